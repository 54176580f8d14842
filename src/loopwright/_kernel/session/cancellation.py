"""Finish work that a cancellation must not interrupt."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

from ..._internal.own_errors import read_own_error
from ...errors import JournalError

T = TypeVar("T")


async def finish_despite_cancellation(
    work: Callable[[], Awaitable[None]],
) -> asyncio.CancelledError | None:
    """Complete `work` however often this task, or the one that does it, is cancelled.

    An application that stops cancels all its tasks, so `work` may be started more than
    once. Return the last cancellation; raise what `work` raises, and `JournalError` for a
    `CancelledError` of its own, which would come again.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        task = asyncio.ensure_future(_attempt(work))
        cancelled = await wait_despite_cancellation(task) or cancelled
        if not task.cancelled():
            task.result()
            return cancelled


async def _attempt(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except asyncio.CancelledError as raised:
        own = read_own_error(raised)
        raise JournalError(f"the journal failed: {own}") from own


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


class CancellableStart(Coroutine[Any, Any, T]):
    """A coroutine that learns of a cancellation that comes before its first step.

    The body of a plain one would never run, so it could leave nothing in order.

    Args:
        work: returns the coroutine; it is given the cancellation, `None` where the work begins as usual.
    """

    def __init__(
        self,
        work: Callable[[asyncio.CancelledError | None], Coroutine[Any, Any, T]],
    ) -> None:
        self._work = work
        self._begun: Coroutine[Any, Any, T] | None = None

    def send(self, value: Any, /) -> Any:
        """Take the next step."""
        return self._begin(None).send(value)

    def throw(self, *raised: Any) -> Any:
        """Raise an error at the current step, or begin with a cancellation."""
        error = raised[0]
        if self._begun is None and isinstance(error, asyncio.CancelledError):
            return self._begin(error).send(None)
        return self._begin(None).throw(*raised)

    def close(self) -> None:
        """End without another step."""
        if self._begun is not None:
            self._begun.close()

    def __await__(self) -> Generator[Any, Any, T]:
        """Await the work as a part of another task."""
        return self._begin(None).__await__()

    def __getattr__(self, name: str) -> Any:
        """Return what the work has under that name: its stack and its name, for who looks at the task."""
        return getattr(self._begun, name)

    def _begin(
        self, cancelled: asyncio.CancelledError | None
    ) -> Coroutine[Any, Any, T]:
        if self._begun is None:
            begun = self._begun = self._work(cancelled)
            # From here on its task takes the steps of the work itself.
            vars(self).update(send=begun.send, throw=begun.throw)
        return self._begun
