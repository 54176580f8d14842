"""Renew the leases of many runs in one call, for a journal that can."""

import asyncio
import contextlib
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
        """Gather for a while, and renew all at once; those that ended meanwhile are left out."""
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(lease / WINDOW_SHARE)
        finally:
            del self._groups[loop]
        wanted = [(claim, done) for claim, done in group if not done.done()]
        try:
            found = await journal.renew_many([claim for claim, _ in wanted], lease)
            pairs = zip(wanted, found, strict=True)
            errors = [(done, error) for (_, done), error in pairs]
        except Exception as error:  # noqa: BLE001 - third-party code: each waiting run has to learn of it
            problem = JournalError(
                f"the leases were not renewed: {format_error(error)}"
            )
            errors = [(done, problem) for _, done in wanted]
        for done, failure in errors:
            with contextlib.suppress(asyncio.InvalidStateError):  # its run has ended
                _settle(done, failure)


def _settle(done: "asyncio.Future[None]", failure: JournalError | None) -> None:
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(type(failure)(*failure.args))
