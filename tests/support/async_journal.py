"""A journal over an asynchronous driver: one in memory, each of whose reads waits."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from loopwright.clock import Clock
from loopwright.errors import JournalError
from loopwright.events import Entry
from loopwright.journals import (
    AsyncJournal,
    Claim,
    Command,
    MemoryJournal,
    RunFilter,
    RunHeader,
    RunInfo,
    Verification,
)
from loopwright.messages import JsonObject


class DelayedJournal(AsyncJournal):
    """Keeps runs in memory; each call of a coroutine takes a turn of the event loop, and is counted by loop."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._store = MemoryJournal(clock=clock)
        self.lease_watch = self._store.lease_watch
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def _wait(self) -> None:
        self.loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)

    def create(self, header: RunHeader) -> Claim:
        return self._store.create(header)

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        await self._wait()
        return await self._store.claim(run_id, owner, take_over=take_over, lease=lease)

    async def renew(self, claim: Claim, lease: float) -> None:
        await self._wait()
        await self._store.renew(claim, lease)

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        self._store.append(claim, entries, status=status)

    async def barrier(self, claim: Claim) -> None:
        await self._wait()
        await self._store.barrier(claim)

    async def fetch_entries(self, run_id: str, *, after: int = 0) -> list[Entry]:
        await self._wait()
        return self._store.read(run_id, after=after)

    async def fetch_runs(
        self,
        *,
        unfinished: bool = False,
        where: RunFilter | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[RunInfo]:
        await self._wait()
        return self._store.runs(
            unfinished=unfinished, where=where, limit=limit, before=before
        )

    async def fetch_commands(self, run_id: str, after: int = 0) -> list[Command]:
        await self._wait()
        return self._store.inbox(run_id, after)

    async def store_command(self, run_id: str, kind: str, body: JsonObject) -> int:
        await self._wait()
        return self._store.send(run_id, kind, body)

    async def verify_run(self, run_id: str, head: str | None = None) -> Verification:
        await self._wait()
        return self._store.verify(run_id, head)

    async def close(self) -> None:
        await self._store.close()


class PushingJournal(DelayedJournal):
    """Pushes the runs that got a command, and renews many leases at once.

    Args:
        breaks: whether each watch fails after what it pushed first.
        clock: what leases are measured by; the system's by default.
    """

    def __init__(self, *, breaks: bool = False, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.batches: list[list[str]] = []
        self.watched_again, self.renewed_again = asyncio.Event(), asyncio.Event()
        self._watches = 0
        self._breaks = breaks
        self._queues: list[asyncio.Queue[str]] = []

    def inbox_mark(self) -> object:
        return "only what is pushed is news"

    async def store_command(self, run_id: str, kind: str, body: JsonObject) -> int:
        number = await super().store_command(run_id, kind, body)
        for queue in self._queues:
            queue.put_nowait(run_id)
        return number

    async def watch_inbox(self) -> AsyncIterator[set[str] | None]:
        self._watches += 1
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._queues.append(queue)
        if self._watches > 1:
            self.watched_again.set()
        yield None
        while True:
            yield {await queue.get()}
            if self._breaks:
                self._queues.remove(queue)
                raise ConnectionError("the connection was lost")

    async def renew_many(
        self, claims: Sequence[Claim], lease: float
    ) -> list[JournalError | None]:
        self.batches.append(sorted(claim.run_id for claim in claims))
        if len(self.batches) > 1:
            self.renewed_again.set()
        errors: list[JournalError | None] = []
        for claim in claims:
            try:
                await self.renew(claim, lease)
                errors.append(None)
            except JournalError as error:
                errors.append(error)
        return errors
