"""What a process holds: memory, tasks, threads, files and objects, read from the process itself (Linux)."""

import asyncio
import ctypes
import gc
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1_000_000
STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class Sample:
    """One look at a process under load.

    Args:
        at: seconds since the beginning.
        rss: resident memory in bytes.
        tasks: asyncio tasks that are not done.
        threads: Python threads.
        files: open file descriptors.
    """

    at: float
    rss: int
    tasks: int
    threads: int
    files: int

    @classmethod
    def now(cls, at: float) -> "Sample":
        """A look at this process."""
        return cls(
            at,
            resident(),
            len(asyncio.all_tasks()),
            threading.active_count(),
            open_files(),
        )


@dataclass(frozen=True)
class Rest:
    """One look at a process that has nothing to do.

    Args:
        runs: runs that have ended by now.
        objects: objects that the garbage collector knows.
        held: bytes that the C library has given out and not got back, or 0 if it does not tell (before glibc 2.33).
        rss: resident memory in bytes.
        tasks: asyncio tasks that are not done.
        files: open file descriptors.
        threads: Python threads by the first part of their names.
        ours: objects of the package's own classes, by the name of the class.
    """

    runs: int
    objects: int
    held: int
    rss: int
    tasks: int
    files: int
    threads: dict[str, int]
    ours: dict[str, int]

    @classmethod
    def now(cls, runs: int, package: str) -> "Rest":
        """A look at this process; `package` is whose objects are counted by class."""
        while gc.collect():
            pass
        objects = gc.get_objects()
        ours = Counter(
            type(o).__name__
            for o in objects
            if type(o).__module__.partition(".")[0] == package
        )
        count = len(objects)
        del objects
        return cls(
            runs, count, held(), resident(), len(asyncio.all_tasks()), open_files(),
            dict(Counter(thread.name.partition("_")[0] for thread in threading.enumerate())), dict(ours),
        )  # fmt: skip


def resident() -> int:
    """Resident memory of this process in bytes."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc, see mallinfo(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def held() -> int:
    """Bytes that the C library has given out and not got back; 0 if it does not tell.

    With `PYTHONMALLOC=malloc` that is all the memory that Python and its extensions hold, without what is only kept for
    later.
    """
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _MallInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def open_files() -> int:
    """Open file descriptors of this process, without the one that counts them."""
    return len(os.listdir("/proc/self/fd")) - 1


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line of least squares through points `(x, y)`, in units of y for each of x."""
    middle = sum(x for x, _ in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    return sum((x - middle) * y for x, y in points) / spread
