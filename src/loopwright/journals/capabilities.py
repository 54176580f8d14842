"""What a journal can do beyond the port, told by the methods that it has."""

import os
from collections.abc import Iterator, Sequence
from typing import Protocol, cast, runtime_checkable

from ..errors import UnknownRun
from ..events.entry import Entry
from ..schedules.base import ScheduleStore
from .base import Claim, Journal, NewRun, RunInfo
from .listing import RunFilter, take_page


@runtime_checkable
class PagedJournal(Protocol):
    """A journal that lists the runs of a filter page by page, and tells when something was written."""

    def runs(
        self,
        *,
        unfinished: bool = False,
        where: RunFilter | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[RunInfo]:
        """Return the runs that a filter selects, newest first: `limit` of them that began before the run `before`."""
        ...

    def head_mark(self) -> object:
        """Return a mark that changes with what is written."""
        ...


@runtime_checkable
class DeletingJournal(Protocol):
    """A journal whose runs can be deleted."""

    async def delete(
        self,
        run_id: str,
        *,
        cascade: bool = False,
        abort: bool = False,
        deleted_by: str = "",
    ) -> list[str]:
        """Delete a run, with those that continue it if `cascade`; return the ids that are gone."""
        ...


@runtime_checkable
class RetainingJournal(DeletingJournal, Protocol):
    """A journal whose runs can be deleted, exported and copied. `SQLiteJournal` describes the methods."""

    async def prune(
        self,
        *,
        older_than: float | None = None,
        status: str | Sequence[str] | None = None,
        keep: int | None = None,
        deleted_by: str = "",
    ) -> list[str]:
        """Delete runs that have ended; return their ids."""
        ...

    async def export(
        self,
        path: str | os.PathLike[str],
        run_ids: Sequence[str] = (),
        *,
        where: RunFilter | None = None,
    ) -> list[str]:
        """Write runs into a new file; return their ids."""
        ...

    async def import_(self, path: str | os.PathLike[str]) -> list[str]:
        """Put the runs of an export into this journal; return their ids."""
        ...

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy one state of the journal to a new path."""
        ...

    async def close(self) -> None:
        """Make all queued entries durable, and close the journal."""
        ...


@runtime_checkable
class FollowUpJournal(Protocol):
    """A journal that stores the runs that are due after a run together with the end of that run."""

    def append_end(
        self,
        claim: Claim,
        entries: Sequence[Entry],
        *,
        status: str,
        due: Sequence[NewRun],
    ) -> None:
        """Queue the last entries of a run as `append` does, and the runs that are due after it.

        All of it becomes durable in one transaction, or nothing. A run is left out if its id is taken or was deleted.
        """
        ...


@runtime_checkable
class ScheduleJournal(Protocol):
    """A journal that keeps schedules."""

    @property
    def schedules(self) -> ScheduleStore[NewRun]:
        """What keeps them."""
        ...


def list_page(
    journal: Journal,
    where: RunFilter | None = None,
    limit: int | None = None,
    before: str | None = None,
) -> list[RunInfo]:
    """Return the runs that a filter selects, newest first, from a journal that lists pages or one that does not."""
    pages = cast("object", journal)
    if isinstance(pages, PagedJournal):
        return pages.runs(where=where, limit=limit, before=before)
    return take_page(journal.runs(), where, limit, before)


def iterate_runs(
    journal: Journal, where: RunFilter | None, page_size: int
) -> Iterator[RunInfo]:
    """Yield the runs that a filter selects, newest first, read page by page.

    Where the last run of a page is deleted meanwhile, the list is read from its first page again, and each run yielded once.
    """
    seen = set[str]()
    before: str | None = None
    while True:
        try:
            page = list_page(journal, where, page_size, before)
        except UnknownRun:
            if before is None:
                raise
            before = None
            continue
        if not page:
            return
        yield from [info for info in page if info.run_id not in seen]
        seen |= {info.run_id for info in page}
        before = page[-1].run_id
