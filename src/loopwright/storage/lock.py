"""A lock between processes, on a file of its own."""

import contextlib
import errno
import os
import time
from collections.abc import Generator
from pathlib import Path

from ..errors import LoopwrightError
from .kind import FileKind
from .modes import PRIVATE
from .ownership import check_owner, check_state

try:
    import fcntl
except ImportError:  # the system has no such locks
    _flock, _lock_flags, _unlock_flags = None, 0, 0
else:
    _flock = fcntl.flock
    _lock_flags, _unlock_flags = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN

LOCK_POLL = 0.001  # seconds


class ProcessLock:
    """A lock between processes, on a separate file.

    SQLite before 3.51.3 can damage a file that two connections write or checkpoint concurrently, so a write never
    relies on SQLite's own locks alone. A system without `flock` has only those.
    """

    def __init__(self, path: Path, timeout: float, kind: FileKind) -> None:
        self._path, self._kind = path, kind
        self.timeout = timeout
        self._descriptor = -1

    def __enter__(self) -> "ProcessLock":
        check_owner([self._path], self._kind)
        flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
        self._descriptor = os.open(self._path, flags, PRIVATE)
        try:
            check_state(self._path, os.fstat(self._descriptor), self._kind)
        except LoopwrightError:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Hold the lock; raise `TimeoutError` if it is not released in time."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self, patience: float | None = None) -> None:
        """Acquire the lock; raise `TimeoutError` if it is not released within `patience`, by default the timeout."""
        if self._try_lock():
            return
        patience = self.timeout if patience is None else patience
        end = time.monotonic() + patience
        while not self._try_lock():
            if time.monotonic() > end:
                raise TimeoutError(
                    errno.ETIMEDOUT,
                    f"{str(self._path)!r}: another process held it for {patience:.3g} s",
                )
            time.sleep(LOCK_POLL)

    def release(self) -> None:
        """Release the lock."""
        if _flock is not None:
            _flock(self._descriptor, _unlock_flags)

    def _try_lock(self) -> bool:
        return try_lock(self._descriptor)


def try_lock(descriptor: int) -> bool:
    """Return whether a file is locked for this process now, until it is closed; always on a system without `flock`."""
    try:
        if _flock is not None:
            _flock(descriptor, _lock_flags)
    except BlockingIOError:
        return False
    return True
