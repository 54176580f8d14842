"""SimulatedJournal: a process's connection to the store of a world, under the contract of `Journal`."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from ..._internal import dataclasses
from ...errors import JournalError
from ...events.entry import Entry
from ...journals.base import Claim, Command, RunHeader, RunInfo, Verification
from ...journals.memory import MemoryJournal
from ...messages import JsonObject
from .host import SimulatedHost


@dataclasses.dataclass
class StoreFaults:
    """How a store misbehaves: chances for each operation, and how late it completes at most.

    Args:
        failures: the chance that an operation fails.
        latency: seconds that the way to the store and back takes at most.
    """

    failures: float = 0.0
    latency: float = 0.003


class NoteLease(Protocol):
    """What remembers the lease of a run."""

    def __call__(self, run_id: str, *, is_returned: bool = False) -> None:
        """Remember the lease that a run has now, or again."""


@dataclasses.dataclass
class _Queue:
    """What one claim has appended and not yet stored."""

    claim: Claim
    batches: list[tuple[tuple[Entry, ...], str | None]]
    lock: asyncio.Lock


class SimulatedJournal:
    """A journal whose entries are durable in `store` when a barrier has returned, and no sooner.

    What a dead process had queued is lost; a barrier may complete late, and it may fail
    before or after it has stored everything.
    """

    def __init__(
        self,
        store: MemoryJournal,
        host: SimulatedHost,
        faults: StoreFaults,
        source: random.Random,
        may_die: Callable[[random.Random], None],
        note_claim: Callable[[RunInfo], None],
        note_lease: NoteLease,
    ) -> None:
        self._store, self._host, self._random = store, host, source
        self._may_die, self._note_claim = may_die, note_claim
        self._note_lease = note_lease
        self.lease_watch = store.lease_watch
        self.faults = faults
        self._queues: dict[int, _Queue] = {}
        self.acknowledged: dict[tuple[str, int], str] = {}
        """The hashes of entries that a barrier has called durable, by run and number."""

    # --- what runs write ---

    def create(self, header: RunHeader) -> Claim:
        """Return the claim to a new run."""
        self._host.owners.add(header.owner)
        return self._store.create(header)

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Claim a run for an owner."""
        self._host.owners.add(owner)
        await self._travel()
        self._fail_before("claim")
        before = self._store.runs()
        claim = await self._store.claim(run_id, owner, take_over=take_over, lease=lease)
        if not take_over:
            self._note_claim(next(info for info in before if info.run_id == run_id))
        self._note_lease(run_id)
        await self._travel()
        self._fail_after("claim")
        return claim

    @property
    def batch_claims(self) -> "SimulatedJournal":
        """What claims many runs in one step: this journal."""
        return self

    async def claim_next(
        self,
        runs: Sequence[RunInfo],
        owners: Sequence[str],
        *,
        lease: float | None = None,
    ) -> list[Claim]:
        """Claim the first runs that are free and as they were listed, one for each owner."""
        self._host.owners.update(owners)
        await self._travel()
        self._fail_before("claim_next")
        before = {info.run_id: info for info in self._store.runs()}
        claims = await self._store.batch_claims.claim_next(runs, owners, lease=lease)
        for claim in claims:
            self._note_claim(before[claim.run_id])
            self._note_lease(claim.run_id)
        await self._travel()
        self._fail_after("claim_next")
        return claims

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        """Return a claim under which nothing was written."""
        await self._travel()
        self._fail_before("return_claim")
        await self._store.batch_claims.return_claim(claim, run)
        after = {info.run_id: info for info in self._store.runs()}.get(claim.run_id)
        returned = claim.fence + 1, run.owner
        if after is not None and (after.fence, after.owner) == returned:
            self._note_lease(claim.run_id, is_returned=True)
        await self._travel()
        self._fail_after("return_claim")

    async def renew(self, claim: Claim, lease: float) -> None:
        """Extend the claim's lease."""
        await self._travel()
        self._fail_before("renew")
        await self._store.renew(claim, lease)
        self._note_lease(claim.run_id)
        await self._travel()

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Queue entries."""
        self._queue(claim).batches.append((tuple(entries), status))

    def _queue(self, claim: Claim) -> _Queue:
        queue = self._queues.get(id(claim))
        if queue is None:
            queue = self._queues[id(claim)] = _Queue(claim, [], asyncio.Lock())
        return queue

    async def barrier(self, claim: Claim) -> None:
        """Store what is queued, after some time."""
        queue = self._queue(claim)
        async with queue.lock:
            await self._travel()
            self._fail_before("barrier")
            if claim.header is None:
                await self._store.barrier(claim)
            stored = self._commit(queue)
            await self._travel()
            self._fail_after("barrier")
            for entry in stored:
                self.acknowledged[entry.run_id, entry.seq] = entry.hash

    def _commit(self, queue: _Queue) -> list[Entry]:
        """Store all batches of a claim in one step."""
        stored: list[Entry] = []
        while queue.batches:
            entries, status = queue.batches[0]
            new = self._drop_known(queue.claim, entries)
            if queue.claim.header is not None:
                self._note_lease(queue.claim.run_id)
            self._store.append(queue.claim, new, status=status)
            queue.batches.pop(0)
            stored.extend(entries)
        return stored

    def _drop_known(self, claim: Claim, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that the store does not have: a repeated append adds nothing."""
        if claim.header is not None:
            return list(entries)
        known = self._store.read(claim.run_id)
        after = entries[0].seq - 1 if entries else 0
        hashes = {entry.hash for entry in known[after:]}
        return [entry for entry in entries if entry.hash not in hashes]

    # --- what everybody reads ---

    def read(self, run_id: str) -> list[Entry]:
        """Return all entries of a run."""
        self._fail_before("read")
        return self._store.read(run_id)

    def runs(self, *, unfinished: bool = False) -> list[RunInfo]:
        """Return all runs, newest first."""
        self._fail_before("runs")
        return self._store.runs(unfinished=unfinished)

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain."""
        return self._store.verify(run_id, head)

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox."""
        self._fail_before("send")
        return self._store.send(run_id, kind, body)

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """Return the commands sent to a run."""
        self._fail_before("inbox")
        return self._store.inbox(run_id, after)

    def inbox_mark(self) -> object:
        """Return the number of commands sent so far."""
        return self._store.inbox_mark()

    async def close(self) -> None:
        """Do nothing: the store outlives its connections."""

    # --- faults ---

    async def _travel(self) -> None:
        """Delay an operation, or its answer; the process may die in the meantime."""
        self._may_die(self._random)
        await asyncio.sleep(self._random.uniform(0.0, self.faults.latency))

    def _fail_before(self, operation: str) -> None:
        self._fail(f"{operation} failed: the store could not be reached")

    def _fail_after(self, operation: str) -> None:
        self._fail(f"{operation} failed: the store's answer was lost")

    def _fail(self, problem: str) -> None:
        if self._random.random() < self.faults.failures:
            raise JournalError(problem)
