"""One private, long-lived event-loop thread, so that synchronous callers work anywhere, also inside a running loop."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from .errors import PhaseError

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, started at first use; connections opened on it stay usable between calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` there and wait for it; an interrupt of the caller cancels it."""
        loop = self._started()
        if threading.current_thread() is self._thread:
            work.close()
            raise PhaseError("run_sync was called on the thread that runs it: use `await engine.run(...)` there")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                concurrent.futures.wait([future], timeout=5)
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=loop.run_forever, name="loopwright-loop", daemon=True)
                self._thread.start()
            return self._loop


LOOP_THREAD = LoopThread()
