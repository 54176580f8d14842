"""Take what a journal pushes, and begin again where that ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ..errors import format_error

Pushed: TypeAlias = Collection[str] | None
"""The runs to which something was written; `None` for any, since something may have been missed."""


@runtime_checkable
class PushingJournal(Protocol):
    """A journal that says by itself which runs got a command, as a database with `LISTEN` can."""

    def watch_inbox(self) -> AsyncIterator[Pushed]:
        """Yield the ids of runs that got a command, soon after it is durable; first `None`, once the watch has begun.

        The runtime watches in each event loop with a run at work, and looks by itself only every few seconds meanwhile.
        Where the watch fails or ends, it looks as often as at a journal without this method, and begins another one.
        """
        ...


def concerns(pushed: Pushed, run_id: str) -> bool:
    """Return whether something may have been written to a run."""
    return pushed is None or run_id in pushed


async def follow_pushes(
    watch: Callable[[], AsyncIterator[Any]],
    take: Callable[[Pushed], None],
    end: Callable[[str], None],
    pause: float,
) -> None:
    """Take what is pushed until this is cancelled.

    `end` is told each time that a watch ends, with its error or an empty text; another begins after `pause` seconds.
    """
    while True:
        problem = ""
        try:
            async for pushed in watch():
                take(pushed)
        except Exception as error:  # noqa: BLE001 - a journal may be third-party code, and polling continues
            problem = format_error(error)
        end(problem)
        await asyncio.sleep(pause)
