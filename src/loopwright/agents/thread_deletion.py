"""Delete a thread with all that runs hold of it, and say what is left."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence

from .._internal import dataclasses
from .._kernel.control.run_control import RunControl
from .._kernel.session.services import Services
from ..errors import ConfigError, RunBusy, ThreadBusy, UnknownRun
from ..journals.access import consult
from ..journals.base import RESUMABLE, RunInfo, is_turn_id
from ..journals.capabilities import DeletingJournal
from ..journals.claims import LeaseWatch, ensure_claimable, get_watch
from ..knowledge.base import Knowledge
from .turn import TurnName

ABORT_PATIENCE = 10.0
"""Seconds to wait for the end of turns that are aborted."""
PAUSE = 0.02
LEFT = (
    "backups and exports of the journal that were made before",
    "what tools have stored outside of the journal and its knowledge, and skills in files",
)
"""What no deletion reaches."""


@dataclasses.dataclass(frozen=True)
class DeletedThread:
    """What the deletion of a thread has deleted, and what it has left.

    Args:
        runs: the runs that are gone: turns, those of forks, and others that belong to these threads.
        forks: the ids of the forks that are gone.
        knowledge: the number of items that were forgotten.
        left: what is not deleted, in words.
    """

    runs: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    knowledge: int = 0
    left: tuple[str, ...] = LEFT


class ThreadDeletion:
    """Deletes the thread with an id, its forks, the commands to them, and what their runs have stored as knowledge.

    Args:
        services: have the journal.
        id: the thread.
        stores: the stores of knowledge of the agents.
        abort: whether a turn at work is aborted first.
    """

    def __init__(
        self, services: Services, id: str, stores: Iterable[Knowledge], *, abort: bool
    ) -> None:
        self._services, self._journal = services, services.journal
        self._id, self._stores, self._abort = id, tuple(stores), abort

    async def delete(self) -> DeletedThread:
        """Delete it; raise `ThreadBusy` for one with a turn at work, before anything is deleted."""
        journal: object = self._journal
        if not isinstance(journal, DeletingJournal):
            raise ConfigError(
                f"journal: {type(journal).__name__} cannot delete runs, so the thread stays"
            )
        deadline = asyncio.get_running_loop().time() + ABORT_PATIENCE
        deleted: list[str] = []
        forks: set[str] = set()
        forgotten = 0
        while infos := await consult(self._collect):
            await self._end_work(infos, deadline)
            forks |= {info.thread for info in infos} - {self._id, ""}
            forgotten += await self._forget(infos)
            try:
                deleted += await self._delete(journal, infos)
            except RunBusy:  # another turn began meanwhile
                await asyncio.sleep(PAUSE)
        if not deleted:
            # The journal completes a deletion that was cut short, of which no run is left to name.
            with contextlib.suppress(UnknownRun):
                await journal.delete(str(TurnName.first()))
        self._services.turn_ends.clear()
        return DeletedThread(tuple(deleted), tuple(sorted(forks)), forgotten)

    def _collect(self) -> list[RunInfo]:
        """Return the runs of the thread, of its forks and of theirs, each before the runs that continue it."""
        infos = self._journal.runs()
        infos.reverse()
        threads, run_ids = {self._id}, set[str]()
        found: dict[str, RunInfo] = {}
        while True:
            before = len(found)
            for info in infos:
                is_forked = {info.follows, info.parent_run} & run_ids
                if info.thread in threads or is_forked:
                    found[info.run_id] = info
                    run_ids.add(info.run_id)
                    if is_turn_id(info.run_id):
                        threads.add(info.thread)
            if len(found) == before:
                return list(found.values())

    async def _end_work(self, infos: Sequence[RunInfo], deadline: float) -> None:
        """Abort the runs at work, and wait for their end; raise `ThreadBusy` where that is not wanted or takes too long."""
        watch = get_watch(self._journal, self._services.clock)
        loop, sent = asyncio.get_running_loop(), set[str]()
        while busy := [info for info in infos if _is_busy(info, watch)]:
            if not self._abort or loop.time() > deadline:
                raise _build_busy(self._id, busy[0])
            for info in busy:
                if info.run_id not in sent:
                    await self._send_abort(info.run_id)
                sent.add(info.run_id)
            await asyncio.sleep(PAUSE)
            infos = await consult(self._collect)

    async def _send_abort(self, run_id: str) -> None:
        try:
            control = RunControl(
                self._journal, self._services.redactor, run_id,
                signer=self._services.command_signer,
            )  # fmt: skip
            await control.abort()
        except ConfigError:
            return  # it has ended, or is gone

    async def _forget(self, infos: Sequence[RunInfo]) -> int:
        """Forget what the runs have stored, while the journal still names them."""
        count = 0
        for store in self._stores:
            for info in infos:
                count += await store.forget(source_run=info.run_id)
        return count

    async def _delete(
        self, journal: DeletingJournal, infos: Sequence[RunInfo]
    ) -> list[str]:
        """Delete the runs; the first of a thread takes those that continue it along, in one transaction."""
        deleted: list[str] = []
        for info in infos:
            if info.run_id in deleted:
                continue
            try:
                deleted += await journal.delete(info.run_id, cascade=True)
            except UnknownRun:
                continue  # another process deletes the thread, too
        return deleted


def _is_busy(info: RunInfo, watch: LeaseWatch) -> bool:
    if info.status not in RESUMABLE:
        return False
    try:
        ensure_claimable(info, False, watch)
    except RunBusy:
        return True
    return False


def _build_busy(id: str, info: RunInfo) -> ThreadBusy:
    return ThreadBusy(
        f"thread {id!r}: run {info.run_id!r} is at work; wait for its end, or pass abort=True to abort it first",
        run_id=info.run_id,
        status=info.status,
    )
