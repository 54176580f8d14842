"""The threads in which the console reads a journal: few, and its own."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
# An allocator keeps memory for each thread that a read has filled: with the pool of the event loop, which has up to 32,
# the process of a page that watches a hundred runs grew for hours. The console also takes none of the threads of tools.
_READS = ThreadPoolExecutor(2, "console-read")
_SCANS = ThreadPoolExecutor(1, "console-scan")


async def call_in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Call what reads a page's worth of the journal, or adds to a file, in one of two threads."""
    return await _call(_READS, work, *arguments)


async def scan_in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Call what reads whole runs in a thread for that, so that nothing else waits for it."""
    return await _call(_SCANS, work, *arguments)


async def _call(
    threads: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any
) -> T:
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, lambda: context.run(work, *arguments))
