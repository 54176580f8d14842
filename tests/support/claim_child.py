"""A worker that is killed once it has claimed runs in one step, before it resumes any of them.

    python claim_child.py JOURNAL NOTES claimed|reading

It dies when the claims are durable and it does not know of them yet, or when it reads the first run under its claim.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from loopwright import Runtime, Worker, tool
from loopwright.journals import Claim, RunInfo, SQLiteJournal
from loopwright.providers import Request
from loopwright.testing import Line, ScriptedProvider, call


class Killing(SQLiteJournal):
    """Kills its process."""

    def __init__(self, path: str, when: str) -> None:
        super().__init__(path)
        self._when, self._has_claimed = when, False
        self.kept_claims, self.batch_claims = self.batch_claims, cast("Any", self)

    async def claim_next(
        self, runs: Sequence[RunInfo], owners: Sequence[str], **options: Any
    ) -> Any:
        claims = await self.kept_claims.claim_next(runs, owners, **options)
        self._has_claimed = True
        if self._when == "claimed":
            os.kill(os.getpid(), signal.SIGKILL)
        return claims

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        await self.kept_claims.return_claim(claim, run)

    def inbox(self, run_id: str, after: int = 0) -> Any:
        if self._has_claimed:  # what is read last before a run continues
            os.kill(os.getpid(), signal.SIGKILL)
        return super().inbox(run_id, after)


def make_runtime(journal: SQLiteJournal, notes: Path) -> Runtime:
    """Return a runtime whose runs pay once each."""

    def model(request: Request) -> Line:
        has_paid = any(message.role == "tool" for message in request.conversation)
        if has_paid:
            return "paid"
        return call("pay", run=request.conversation.task)

    @tool(effect="write")
    def pay(run: str) -> str:
        """Pay."""
        with notes.open("a") as file:
            file.write(f"{run}\n")
        return "paid"

    return Runtime(ScriptedProvider(model), tools=[pay], journal=journal, lease=30.0)


async def main(path: str, notes: str, when: str) -> None:
    journal = Killing(path, when)
    await Worker(make_runtime(journal, Path(notes)), max_concurrency=6).drain()


if __name__ == "__main__":
    import asyncio

    asyncio.run(main(*sys.argv[1:]))
