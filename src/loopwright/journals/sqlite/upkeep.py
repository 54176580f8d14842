"""The upkeep of a SQLite journal: delete, prune, export, import and copy runs while others are at work."""

import asyncio
import contextlib
import functools
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ...clock import Clock
from ...errors import ConfigError, JournalError, UnknownRun
from ...events.payloads import Codec
from ...storage.drafts import drafting, publish
from ...storage.rewrite import PAUSE
from ..arguments import check_run_ids
from ..base import RunInfo, encode_command_body
from ..claims import LeaseWatch
from ..exports import (
    check_new_path,
    check_path,
    format_path_taken,
    read_export,
    write_export,
)
from ..listing import RunFilter, check_page
from ..retention import check_deleter, check_prune, choose_pruned
from .file import JournalFile
from .inbox import Inbox, name_inbox
from .jobs import Job
from .listing import RunQuery
from .reader import read_info, read_journal_id
from .upkeep_jobs import (
    FORGET_ERASURE,
    DeleteRuns,
    Execute,
    ImportRuns,
    PruneThreads,
    RunGone,
    collect_exported,
    read_due_erasure,
    read_exported,
    read_tombstone,
)
from .writer import RewriteFile, Writer

AnyJob = TypeVar("AnyJob", bound=Job)
MAX_DELETED = 100
"""Runs deleted in one transaction, so that others need not wait for long."""
ABORT_PATIENCE = 10.0
"""Seconds to wait for the end of a run that is aborted."""


class Upkeep:
    """What an operator does to the runs of one SQLite journal; `SQLiteJournal` describes each method."""

    def __init__(
        self,
        file: JournalFile,
        inbox: Inbox,
        writer: Writer,
        clock: Clock,
        watch: LeaseWatch,
        codec: Codec | None,
    ) -> None:
        self._file, self._inbox, self._codec = file, inbox, codec
        self._writer, self._clock, self._watch = writer, clock, watch
        self._id = ""

    def read_id(self) -> str:
        """Return the id of the journal, or the one that it gets with its first entry."""
        if not self._id:
            with contextlib.suppress(JournalError), self._file.reading() as connection:
                self._id = "" if connection is None else read_journal_id(connection)
        return self._id or self._file.new_id

    async def change_id(self) -> str:
        """Give the journal a new id."""
        self._require_file()
        new = secrets.token_hex(8)
        change = "INSERT OR REPLACE INTO facts VALUES ('journal_id', ?)"
        await self._do(Execute(change, (new,)))
        self._id = new
        return new

    async def delete(
        self, run_id: str, *, cascade: bool, abort: bool, deleted_by: str
    ) -> list[str]:
        """Delete a run."""
        by = check_deleter(deleted_by)
        self._require_file(run_id)
        if abort:
            await self._abort(run_id)
        job = DeleteRuns(
            [run_id], cascade=cascade, deleted_by=by, clock=self._clock, watch=self._watch
        )  # fmt: skip
        deleted = [run_id]
        try:
            deleted = (await self._do(job)).deleted
        except UnknownRun as error:  # an earlier deletion may have been cut short
            if isinstance(error, RunGone) or self._is_erasure_due():
                await self._erase(deleted)
            raise
        await self._erase(deleted)
        return deleted

    async def prune(
        self,
        older_than: float | None,
        status: str | Sequence[str] | None,
        keep: int | None,
        deleted_by: str,
    ) -> list[str]:
        """Delete old runs that have ended."""
        statuses, by = check_prune(older_than, status, keep), check_deleter(deleted_by)
        before = self._clock.wall() - (older_than or 0.0)
        infos = await asyncio.to_thread(self._list)
        chosen = choose_pruned(infos, statuses, before, keep)
        build = functools.partial(
            PruneThreads, statuses=statuses, deleted_by=by, clock=self._clock, watch=self._watch
        )  # fmt: skip
        deleted: list[str] = []
        try:
            for part in _split(chosen):
                deleted += (await self._do(build(part))).deleted
        finally:
            # Also what an earlier deletion left that was cut short; its caller need not know the ids of its runs.
            if deleted or self._is_erasure_due():
                await self._erase(deleted)
        return deleted

    async def export(
        self,
        path: str | os.PathLike[str],
        run_ids: Sequence[str],
        where: RunFilter | None,
    ) -> list[str]:
        """Write runs into a new file."""
        if bool(run_ids) == (where is not None):
            raise ConfigError("run_ids: give either the ids of runs or where")
        listed = check_run_ids(run_ids)
        check_page(None, None, where)
        check_path(path)
        return await asyncio.to_thread(self._export, path, listed, where)

    async def import_(self, path: str | os.PathLike[str]) -> list[str]:
        """Put the runs of an export into the journal."""
        runs = await asyncio.to_thread(read_export, path)
        await self._do(ImportRuns(runs, self._codec, self._inbox.restore))
        return [run.info.run_id for run in runs]

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy one state of the journal."""
        target = check_new_path(path)
        check_new_path(name_inbox(target))
        self._require_file()
        await asyncio.to_thread(self._copy, target)

    async def _erase(self, deleted: Sequence[str]) -> None:
        """Erase what is left of deleted runs: their commands, and copies of their rows in free pages and logs."""
        with self._file.reading() as connection:
            due = "" if connection is None else read_due_erasure(connection)
        try:
            await asyncio.to_thread(self._delete_commands, deleted)
        finally:
            await self._rewrite()
        if due:
            await self._do(Execute(FORGET_ERASURE, (due,)))

    def _delete_commands(self, deleted: Sequence[str]) -> None:
        """Delete the commands to runs that were deleted, now or by a deletion that was cut short."""
        found = self._inbox.list_runs()
        with self._file.reading() as connection:
            if connection is not None:
                found = [one for one in found if read_tombstone(connection, one)]
        self._inbox.delete([*deleted, *found])

    def _is_erasure_due(self) -> bool:
        with self._file.reading() as connection:
            return connection is not None and bool(read_due_erasure(connection))

    async def _rewrite(self) -> None:
        """Write the file anew and cut its log to nothing; another process may prevent either for a moment."""
        rewrite = self._file.begin_rewrite("the runs are deleted")
        while True:
            await self._do(RewriteFile(rewrite))
            if rewrite.is_complete:
                return
            rewrite.check_patience()
            await asyncio.sleep(PAUSE)

    async def _abort(self, run_id: str) -> None:
        """Abort a run at work and wait for its end."""
        add = functools.partial(self._inbox.add, run_id, self._clock.wall())
        await asyncio.to_thread(add, "abort", encode_command_body("abort", {}))
        end = time.monotonic() + ABORT_PATIENCE
        while time.monotonic() < end:
            with self._file.reading() as connection:
                info = None if connection is None else read_info(connection, run_id)
            if info is None or info.owner is None:
                return
            await asyncio.sleep(0.02)

    def _copy(self, target: Path) -> None:
        """Copy the journal and its inbox, and give the copies their names once both are whole."""
        try:
            with drafting(target) as folder:
                draft = folder / target.name
                self._inbox.copy(draft)
                names = {name_inbox(draft): name_inbox(target)}
                if not name_inbox(draft).exists():
                    names.clear()
                self._file.copy(draft)
                publish({**names, draft: target})
        except FileExistsError as error:  # another process has made one meanwhile
            raise ConfigError(format_path_taken(Path(error.filename))) from None
        except OSError as error:
            raise self._file.explain(error) from error

    def _list(self) -> list[RunInfo]:
        with self._file.reading() as connection:
            return (
                []
                if connection is None
                else RunQuery(None).read(connection, None, None)
            )

    def _export(
        self, path: str | os.PathLike[str], run_ids: list[str], where: RunFilter | None
    ) -> list[str]:
        exported: list[str] | None = None
        with self._file.reading() as connection:
            if connection is not None:
                if where is not None:
                    found = RunQuery(where).read(connection, None, None)
                    run_ids = [info.run_id for info in reversed(found)]
                exported = self._write_export(connection, path, run_ids)
        if exported is None:
            raise build_unknown_run(self._file, run_ids[0] if run_ids else "")
        return exported

    def _write_export(
        self,
        connection: sqlite3.Connection,
        path: str | os.PathLike[str],
        run_ids: Sequence[str],
    ) -> list[str]:
        infos = collect_exported(connection, run_ids, self._watch)
        commands = {info.run_id: self._inbox.read_stored(info.run_id) for info in infos}
        runs = (
            read_exported(connection, info, commands[info.run_id]) for info in infos
        )
        write_export(path, runs)
        return [info.run_id for info in infos]

    async def _do(self, job: AnyJob) -> AnyJob:
        """Let the writer do a job, and return it once it is durable."""
        await self._writer.complete(job)
        return job

    def _require_file(self, run_id: str = "") -> None:
        if not self._file.exists():  # a wrong path must not leave an empty file
            raise build_unknown_run(self._file, run_id)


def _split(threads: Sequence[list[str]]) -> Iterator[list[list[str]]]:
    """Yield threads in parts of `MAX_DELETED` runs, more only where one thread has more."""
    part: list[list[str]] = []
    for thread in threads:
        if part and sum(map(len, part)) + len(thread) > MAX_DELETED:
            yield part
            part = []
        part.append(thread)
    if part:
        yield part


def build_unknown_run(file: JournalFile, run_id: str) -> UnknownRun:
    """Return the error for a run that is not in a journal, which says so if it was deleted.

    The caller must not be reading: before the file has its write-ahead log, a writer that waits for a reader lets no
    other reader in, so that a second one inside the first would wait in vain, and so would the writer.
    """
    with file.reading() as connection:
        deleted = "" if connection is None else read_tombstone(connection, run_id)
    return UnknownRun(deleted or f"no run {run_id!r} in journal {str(file.path)!r}")
