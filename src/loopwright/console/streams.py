"""What the console streams: the entries of a run, and which runs have changed, as it happens."""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

from ..errors import JournalError, UnknownRun
from .news import News
from .rows import LOOKBACK, RowReader
from .service import ConsoleService
from .threads import call_in_thread
from .users import ConsoleUser

Item: TypeAlias = tuple[int | None, str, Any]
"""What a stream sends: the number of an entry, the kind of the news, and a value."""
BATCH = 200
"""Entries that are read at a time."""
FIRST_BATCH = 20
"""Entries that are read at first.

A page shows them sooner, and one whose connection breaks again wants no more.
"""


class Streams:
    """Follows the runs of one journal, for each page that is open."""

    def __init__(self, service: ConsoleService) -> None:
        self._service, self._records = service, service.records
        self._news = News(service.records.journal, service.feeds)

    async def follow_run(
        self, run_id: str, after: int, user: str, keep_alive: float
    ) -> AsyncIterator[Item]:
        """Send the rows of a run's entries after a number, and of those to come, until the reader leaves."""
        reader: RowReader | None = None
        size = FIRST_BATCH
        async with self._news.subscribe(run_id) as subscription:
            yield None, "open", {"after": after}
            while True:
                try:
                    reader, rows = await call_in_thread(
                        self._read_on, reader, run_id, after, size, user
                    )
                except UnknownRun:
                    yield None, "gone", {"run": run_id}
                    return
                except JournalError as error:
                    yield None, "broken", {"error": str(error)}
                    return
                for row in rows:
                    yield row["seq"], "entry", row
                    after = row["seq"]
                is_full, size = len(rows) == size, BATCH
                if is_full:
                    continue
                if await subscription.wait(keep_alive) is None:
                    yield None, "", None
                elif not rows:
                    yield None, "changed", {"run": run_id}

    def _read_on(
        self, reader: RowReader | None, run_id: str, after: int, size: int, user: str
    ) -> tuple[RowReader | None, list[dict[str, Any]]]:
        entries = self._records.read(run_id, after, size)
        if not entries:
            return reader, []
        if reader is None or reader.is_full:
            first = max(after - LOOKBACK, 0)
            reader = RowReader(self._records.read(run_id, first, after - first))
        digest = self._records.digest(run_id, entries[-1].hash)
        rows = [
            reader.build(
                entry, is_hidden=self._service.hides(digest, entry.seq, run_id, user)
            )
            for entry in entries
        ]
        return reader, rows

    async def follow_all(
        self, user: ConsoleUser, keep_alive: float
    ) -> AsyncIterator[Item]:
        """Send which runs of a user have changed, until the reader leaves."""
        async with self._news.subscribe(None) as subscription:
            yield None, "open", {}
            while True:
                runs = await subscription.wait(keep_alive)
                if runs is None:
                    yield None, "", None
                else:
                    seen = await call_in_thread(self._service.select_runs, runs, user)
                    if seen or not (runs and user.tenant):
                        yield None, "changed", {"runs": seen}
