"""One private, long-lived event-loop thread for synchronous callers, who may themselves be inside a running loop."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..errors import PhaseError

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread that starts at first use; its connections stay usable between calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inherited: list[asyncio.AbstractEventLoop | None] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in that thread and wait for its result; an interrupt of the caller cancels it."""
        loop = self._ensure_started()
        if self.is_current:
            work.close()
            raise PhaseError(
                "run_sync was called on the thread that runs it: use `await engine.run(...)` there"
            )
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                concurrent.futures.wait([future], timeout=5)
            raise

    @property
    def is_current(self) -> bool:
        """Whether this is called on that thread."""
        return threading.current_thread() is self._thread

    def end(self, patience: float = 2.0) -> None:
        """Cancel the tasks, close the async generators and stop the loop, waiting at most `patience` seconds a step."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        if loop.is_closed() or not thread.is_alive():
            return
        with contextlib.suppress(concurrent.futures.TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_tasks(), loop).result(patience)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(patience)
        if not thread.is_alive():
            loop.close()

    def forget(self) -> None:
        """Start afresh in a forked child: the thread exists only in the parent, which also owns the connections."""
        # Kept alive, since collecting the loop would touch sockets that the parent still uses.
        self._inherited.append(self._loop)
        self._lock, self._loop, self._thread = threading.Lock(), None, None

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            is_alive = self._thread is not None and self._thread.is_alive()
            if self._loop is None or not is_alive:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="loopwright-loop", daemon=True
                )
                self._thread.start()
            return self._loop


async def _cancel_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


LOOP_THREAD = LoopThread()
atexit.register(LOOP_THREAD.end)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=LOOP_THREAD.forget)
