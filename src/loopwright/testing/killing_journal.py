"""KillingJournal: a journal that kills its process at a chosen barrier."""

import os
import signal
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from ..events.entry import Entry
from ..journals.base import (
    Claim,
    Command,
    Journal,
    NewRun,
    RunHeader,
    RunInfo,
    Verification,
)
from ..messages import JsonObject

When: TypeAlias = Literal["before", "after"]


class KillingJournal:
    """A journal that kills its process before or after a chosen barrier; 0 is none."""

    def __init__(self, journal: Journal, barrier: int, when: When) -> None:
        self._journal, self._remaining, self._when = journal, barrier, when

    async def barrier(self, claim: Claim) -> None:
        """Kill the process at the chosen barrier."""
        self._remaining -= 1
        is_chosen = self._remaining == 0
        if is_chosen and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await self._journal.barrier(claim)
        if is_chosen:
            os.kill(os.getpid(), signal.SIGKILL)

    def create(self, header: RunHeader) -> Claim:
        """Return the claim to a new run."""
        return self._journal.create(header)

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Claim a run."""
        return await self._journal.claim(
            run_id, owner, take_over=take_over, lease=lease
        )

    async def renew(self, claim: Claim, lease: float) -> None:
        """Extend a lease."""
        await self._journal.renew(claim, lease)

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Queue entries."""
        self._journal.append(claim, entries, status=status)

    def append_end(
        self,
        claim: Claim,
        entries: Sequence[Entry],
        *,
        status: str,
        due: Sequence[NewRun],
    ) -> None:
        """Queue the last entries of a run, and the runs that are due after it."""
        journal: Any = self._journal
        journal.append_end(claim, entries, status=status, due=due)

    def read(self, run_id: str) -> list[Entry]:
        """Return all entries of a run."""
        return self._journal.read(run_id)

    def runs(self, *, unfinished: bool = False) -> list[RunInfo]:
        """Return all runs, or those that have not ended."""
        return self._journal.runs(unfinished=unfinished)

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain."""
        return self._journal.verify(run_id, head)

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox."""
        return self._journal.send(run_id, kind, body)

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """Return the commands to a run."""
        return self._journal.inbox(run_id, after)

    def inbox_mark(self) -> object:
        """Return a value that changes with the inbox."""
        return self._journal.inbox_mark()

    async def close(self) -> None:
        """Close the journal."""
        await self._journal.close()
