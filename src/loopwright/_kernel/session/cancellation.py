"""Finish work that a cancellation must not interrupt."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def finish_despite_cancellation(
    work: Callable[[], Awaitable[None]],
) -> asyncio.CancelledError | None:
    """Complete `work` however often this task, or the one that does it, is cancelled.

    An application that stops cancels all its tasks, so `work` may be started more than
    once. Return the last cancellation; raise what `work` raises.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        task = asyncio.ensure_future(work())
        cancelled = await wait_despite_cancellation(task) or cancelled
        if not task.cancelled():
            task.result()
            return cancelled


async def wait_despite_cancellation(
    task: asyncio.Future[Any],
) -> asyncio.CancelledError | None:
    """Wait until `task` is done; return the last cancellation that arrived meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
