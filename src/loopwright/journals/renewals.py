"""Renew the leases of many runs in one call, for a journal that can."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ..errors import JournalError, format_error
from .base import Claim, Journal

WINDOW_SHARE = 30
"""Renewals are gathered for this part of a lease, of which a third has passed by then."""
_Group: TypeAlias = list[tuple[Claim, "asyncio.Future[None]"]]


@runtime_checkable
class BatchRenewingJournal(Protocol):
    """A journal that renews the leases of many runs in one call to its store.

    One that writes in groups by itself, as `SQLiteJournal` does, needs no such method.
    """

    async def renew_many(
        self, claims: Sequence[Claim], lease: float
    ) -> Sequence[JournalError | None]:
        """Do what `renew` does for each claim; return `None` for each that was renewed, and the error of any other.

        An error of one, such as `Fenced`, leaves the others alone. What is raised counts for all of them.
        """
        ...


class Renewals:
    """The renewals of the runs at work in a runtime, gathered for each event loop."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._groups: dict[asyncio.AbstractEventLoop, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def renew(self, claim: Claim, lease: float) -> None:
        """Renew one lease, together with those that are due soon after it where the journal can."""
        journal: Any = self._journal
        if not hasattr(journal, "renew_many"):
            await journal.renew(claim, lease)
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        group = self._groups.get(loop)
        if group is None:
            group = self._groups[loop] = []
            task = loop.create_task(self._renew_group(journal, group, lease))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        group.append((claim, done))
        await done

    async def _renew_group(
        self, journal: BatchRenewingJournal, group: _Group, lease: float
    ) -> None:
        """Gather for a while, and renew all at once; those that ended meanwhile are left out.

        Whatever the journal does, no run is left waiting: its keeper would renew no more.
        """
        problem = "the call was cancelled"
        try:
            await self._gather(lease)
            wanted = [(claim, done) for claim, done in group if not done.done()]
            found = await journal.renew_many([claim for claim, _ in wanted], lease)
            for (_, done), failure in list(zip(wanted, found, strict=True)):
                _settle(done, failure)
        except Exception as error:  # noqa: BLE001 - third-party code: each waiting run has to learn of it
            problem = format_error(error)
        finally:
            for _, done in group:
                _settle(done, JournalError(f"the leases were not renewed: {problem}"))

    async def _gather(self, lease: float) -> None:
        """Wait for the renewals of the group of this event loop, and begin no other one meanwhile."""
        try:
            await asyncio.sleep(lease / WINDOW_SHARE)
        finally:
            del self._groups[asyncio.get_running_loop()]


def _settle(done: "asyncio.Future[None]", failure: object) -> None:
    """End the wait of a renewal, unless it has ended; what a journal returned is checked."""
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    elif isinstance(failure, JournalError):
        done.set_exception(failure)
    else:
        problem = f"must hold None or a JournalError for each claim, got {failure!r}"
        done.set_exception(JournalError(f"renew_many: {problem}; return one of them"))
