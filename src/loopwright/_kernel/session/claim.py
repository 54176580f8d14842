"""Claim a run to resume it: the right to write its journal, its entries and its commands."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextvars import ContextVar

from ...clock import ClockReading
from ...errors import JournalError
from ...events.entry import Entry
from ...events.lifecycle import read_run_info
from ...events.run import RunSuspended
from ...journals.access import read_inbox, read_run
from ...journals.base import Claim, Command
from ...journals.owner import ACTIVE_TOKENS, new_owner
from ..durability.deaths import correct_ending
from ..durability.replay import Replay
from .cancellation import finish_despite_cancellation
from .claim_batch import find_early_claim, note_resumed
from .services import Services
from .session import STATUS_OF_SUSPENDED, SUSPEND_REASON, Session

ALONE: ContextVar[bool] = ContextVar("ALONE", default=False)
"""Whether a worker works on this run and on nothing else."""


class ClaimedRun:
    """A run that this process has claimed: its entries, and the commands that were sent to it."""

    claim: Claim

    def __init__(self, services: Services, run_id: str, entries: list[Entry]) -> None:
        self.owner = new_owner()
        self.entries = entries
        self.commands: list[Command] = []
        self._services, self._run_id, self._is_claimed = services, run_id, False
        self.is_released = False

    async def take(self, *, take_over: bool) -> None:
        """Claim the run and read it.

        This may be started again after a cancellation: the owner of the attempt before is dead then.
        """
        journal = self._services.journal
        ACTIVE_TOKENS.discard(self.owner.token)
        early = find_early_claim(self._run_id)
        if early is None:
            await self._claim(take_over)
        else:
            self.owner, self.claim, early.is_used = early.owner, early.claim, True
        self._is_claimed = True
        self.entries = await read_run(journal, self._run_id)
        self.claim.after = correct_ending(self.entries, self.claim.after)
        self.commands = await read_inbox(journal, self._run_id)

    async def _claim(self, take_over: bool) -> None:
        journal, lease = self._services.journal, self._services.lease
        self.owner = new_owner()
        # Before the claim is visible, so that no other process takes its owner for dead.
        ACTIVE_TOKENS.add(self.owner.token)
        began = ClockReading.take(self._services.clock)
        self.claim = await journal.claim(
            self._run_id, str(self.owner), take_over=take_over, lease=lease
        )
        self.claim.began = began

    async def release(self) -> None:
        """Release the run with the status that it had before, if it was claimed."""
        self.is_released = True
        ACTIVE_TOKENS.discard(self.owner.token)
        # A run that was not read is freed by the end of its owner.
        if not self._is_claimed or self.claim.head_seq != len(self.entries):
            return
        cancelled: asyncio.CancelledError | None = None
        with contextlib.suppress(JournalError):  # as above
            session = Session(self._services, self.claim, self.owner, Replay(), None)
            status = self._restore_status(session)
            cancelled = await finish_despite_cancellation(
                lambda: session.writer.barrier(status)
            )
        if cancelled is not None:
            raise cancelled

    def _restore_status(self, session: Session) -> str:
        """Return the status of the run, suspended if its owner had died at work on it."""
        recorded = read_run_info(self.entries)
        status: str = recorded["status"]
        self.claim.wake_at = recorded.get("wake_at", 0.0)
        if status != "running":
            return status
        reason = SUSPEND_REASON.get()
        seconds_dead = max(session.writer.wall() - self.entries[-1].at, 0.0)
        session.writer.close(RunSuspended(reason, waited=seconds_dead))
        return STATUS_OF_SUSPENDED[reason]


@contextlib.asynccontextmanager
async def claim_run(
    services: Services, run_id: str, entries: list[Entry], *, take_over: bool
) -> AsyncGenerator[ClaimedRun]:
    """Claim a run and read it again, to prepare its resume; `entries` were read before.

    Raises `UnknownRun` and `RunBusy`. A cancellation waits until it is known whether the run was
    claimed; if the preparation fails, the run is released.
    """
    claimed = ClaimedRun(services, run_id, entries)
    try:
        cancelled = await finish_despite_cancellation(
            lambda: claimed.take(take_over=take_over)
        )
        if cancelled is not None:
            raise cancelled
        yield claimed
        if not claimed.is_released:
            note_resumed(run_id)
    except BaseException:
        await claimed.release()
        raise
