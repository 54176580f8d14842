"""Lists of the runs of a SQLite journal, newest first, found by an index where a filter names one value."""

import sqlite3
from typing import Any, Literal

from ..base import RESUMABLE, RunInfo
from ..listing import RunFilter, build_no_place
from .file import CONTAINS_TEXT
from .reader import INFO_COLUMNS, read_listed_row

_HAS_TEXT = f"{CONTAINS_TEXT}(?, runs.run_id, engine, agent, thread, tags)"
_IS_THERE = "SELECT 1 FROM runs WHERE run_id = ?"
_ALL = RunFilter()


class RunQuery:
    """A query of runs: the tables, conditions and values that a filter asks for."""

    def __init__(self, where: RunFilter | None, *, unfinished: bool = False) -> None:
        self._where = where or _ALL
        self._source, self._order = "runs", "runs.rowid"
        self._conditions: list[str] = []
        self._values: list[Any] = []
        self._first_tag = ""
        self._add_tags()
        self._add_fields()
        if unfinished:
            self._add_any("status", RESUMABLE)

    def read(
        self, connection: sqlite3.Connection, limit: int | None, before: str | None
    ) -> list[RunInfo]:
        """Return a page of the runs, newest first; raise `UnknownRun` if the run before it is not there."""
        if before is not None:
            found = connection.execute(_IS_THERE, (before,)).fetchone()
            if found is None:
                raise build_no_place(before)
        statement, values = self.build(limit, before)
        return [read_listed_row(row) for row in connection.execute(statement, values)]

    def build(self, limit: int | None, before: str | None) -> tuple[str, list[Any]]:
        """Return the statement of a page, and its values."""
        if before is not None:
            self._add_before(before)
        selected, _ = self.select(INFO_COLUMNS)
        statement = f"{selected} ORDER BY {self._order} DESC LIMIT ?"
        return statement, [*self._values, -1 if limit is None else limit]

    def count(self, connection: sqlite3.Connection) -> dict[str, int]:
        """Return the number of runs by status."""
        statement, values = self.select("status, count(*)")
        counts = connection.execute(f"{statement} GROUP BY status", values)
        return {str(status): count for status, count in counts}

    def select(self, columns: str) -> tuple[str, list[Any]]:
        """Return the statement that reads columns of the runs, in no order, and its values."""
        condition = " AND ".join(self._conditions) or "true"
        statement = f"SELECT {columns} FROM {self._source} WHERE {condition}"  # noqa: S608
        return statement, [*self._values]

    def _add(self, condition: str, *values: Any) -> None:
        self._conditions.append(condition)
        self._values += values

    def _add_any(self, column: Literal["status"], values: tuple[str, ...]) -> None:
        self._add(f"runs.{column} IN ({', '.join('?' * len(values))})", *values)

    def _add_tags(self) -> None:
        """Find runs by their first tag, in the order of the tags, which is that of the runs."""
        for name, value in self._where.tags.items():
            if not self._first_tag:
                self._first_tag = name
                self._source = (
                    "run_tags CROSS JOIN runs ON runs.run_id = run_tags.run_id"
                )
                self._order = "run_tags.id"
                self._add("run_tags.name = ? AND run_tags.value = ?", name, value)
                continue
            same = "SELECT 1 FROM run_tags AS more WHERE more.run_id = runs.run_id"
            self._add(
                f"EXISTS ({same} AND more.name = ? AND more.value = ?)", name, value
            )

    def _add_fields(self) -> None:
        where = self._where
        for name, value in where.names.items():
            # The index of threads and agents holds those that have a name.
            self._add(f"runs.{name} = ? AND runs.{name} != ''", value)
        if where.statuses:
            self._add_any("status", where.statuses)
        if where.since is not None:
            self._add("runs.created >= ?", where.since)
        if where.until is not None:
            self._add("runs.created < ?", where.until)
        if where.text:
            self._add(_HAS_TEXT, where.text)

    def _add_before(self, run_id: str) -> None:
        if self._first_tag:
            place = "SELECT id FROM run_tags WHERE run_id = ? AND name = ?"
            self._add(f"run_tags.id < ({place})", run_id, self._first_tag)
        else:
            place = "SELECT earlier.rowid FROM runs AS earlier WHERE earlier.run_id = ?"
            self._add(f"runs.rowid < ({place})", run_id)
