"""Taking a run up: the right to write it, and what the journal knows of it; if that fails, it stays as it was."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from ...errors import JournalError
from ...events.entry import Entry
from ...events.lifecycle import read_run_info
from ...events.run import RunSuspended
from ...journals.base import Claim, Command
from ...journals.owner import ACTIVE_TOKENS, new_owner
from ..durability.replay import Replay
from .cancellation import finish_despite_cancellation
from .services import Services
from .session import SUSPEND_REASON, Session


class TakenUp:
    """A run that this process has claimed: its entries, and the commands that were sent to it."""

    claim: Claim

    def __init__(self, services: Services, run_id: str, entries: list[Entry]) -> None:
        self.owner = new_owner()
        self.entries = entries
        self.commands: list[Command] = []
        self._services, self._run_id, self._claimed = services, run_id, False

    async def take(self, *, take_over: bool) -> None:
        """Claim the run and read it. It may be begun again: to the next owner, one that was broken off is dead."""
        journal, lease = self._services.journal, self._services.lease
        ACTIVE_TOKENS.discard(self.owner.token)
        self.owner = new_owner()
        ACTIVE_TOKENS.add(
            self.owner.token
        )  # before the claim is visible, so that no one thinks its owner dead
        self.claim = await journal.claim(
            self._run_id, str(self.owner), take_over=take_over, lease=lease
        )
        self._claimed = True
        self.entries = await asyncio.to_thread(journal.read, self._run_id)
        self.commands = await asyncio.to_thread(journal.inbox, self._run_id)

    async def put_back(self) -> None:
        """Free the run as what it was before, if it was claimed; one that was at work is left as a cancelled one is."""
        ACTIVE_TOKENS.discard(self.owner.token)
        if not self._claimed or self.claim.head_seq != len(
            self.entries
        ):  # unread: then the owner's end frees it
            return
        cancelled: asyncio.CancelledError | None = None
        with contextlib.suppress(JournalError):  # as above
            session = Session(self._services, self.claim, self.owner, Replay(), None)
            status = read_run_info(self.entries)["status"]
            if (
                status == "running"
            ):  # its owner had died, and nothing has happened since
                dead = max(session.writer.wall() - self.entries[-1].at, 0.0)
                session.writer.close(RunSuspended(SUSPEND_REASON.get(), waited=dead))
                status = (
                    "released" if SUSPEND_REASON.get() == "released" else "suspended"
                )
            cancelled = await finish_despite_cancellation(
                lambda: session.writer.barrier(status)
            )
        if cancelled is not None:
            raise cancelled


@contextlib.asynccontextmanager
async def taken_up(
    services: Services, run_id: str, entries: list[Entry], *, take_over: bool
) -> AsyncGenerator[TakenUp]:
    """A run, claimed and read again, to make ready for going on; `entries` are those that were read before.

    Raises `UnknownRun` and `RunBusy`. A cancellation waits until it is known whether the run was claimed.
    """
    taken = TakenUp(services, run_id, entries)
    try:
        cancelled = await finish_despite_cancellation(
            lambda: taken.take(take_over=take_over)
        )
        if cancelled is not None:
            raise cancelled
        yield taken
    except BaseException:
        await taken.put_back()
        raise
