"""One private, long-lived event-loop thread, so that synchronous callers work anywhere, also inside a running loop."""

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
    """An event loop in a daemon thread, started at first use; connections opened on it stay usable between calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._left_behind: list[asyncio.AbstractEventLoop | None] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` there and wait for it; an interrupt of the caller cancels it."""
        loop = self._started()
        if threading.current_thread() is self._thread:
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

    def end(self, patience: float = 2.0) -> None:
        """Suspend what is still at work, close what is open on the loop, and stop it; at most `patience` seconds."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive() or loop.is_closed():
            return
        with contextlib.suppress(concurrent.futures.TimeoutError):
            asyncio.run_coroutine_threadsafe(_wind_up(), loop).result(patience)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(patience)
        if not thread.is_alive():
            loop.close()

    def forget(self) -> None:
        """After a fork, in the child: the loop's thread is the parent's, and so is what is open on it."""
        self._left_behind.append(
            self._loop
        )  # kept: collecting it would touch sockets that the parent still uses
        self._lock, self._loop, self._thread = threading.Lock(), None, None

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if (
                self._loop is None
                or self._thread is None
                or not self._thread.is_alive()
            ):
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=loop.run_forever, name="loopwright-loop", daemon=True
                )
                self._thread.start()
            return self._loop


async def _wind_up() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


LOOP_THREAD = LoopThread()
atexit.register(LOOP_THREAD.end)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=LOOP_THREAD.forget)
