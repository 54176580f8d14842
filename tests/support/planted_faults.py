"""Faults that are put into the library by hand, to see that the simulation finds them."""

import dataclasses
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from loopwright import Allow, Ask, Deny, MemoryJournal, Modify, Run
from loopwright import worker as worker_module
from loopwright._kernel.durability.effects import Effects
from loopwright._kernel.durability.totals import Totals
from loopwright._kernel.phases import gate as gate_module
from loopwright._kernel.session.journal_writer import JournalWriter
from loopwright._kernel.session.replay_end import ReplayEnd
from loopwright._kernel.session.session import Session
from loopwright.errors import Fenced, JournalError
from loopwright.events import Entry, ToolFinished, ToolStarted
from loopwright.journals import Claim, LeaseWatch, RunInfo
from loopwright.journals import memory as memory_module
from loopwright.limits import Budget
from loopwright.testing.simulation.store import SimulatedJournal

Plant = Callable[[pytest.MonkeyPatch], None]
PLANTED: dict[str, Plant] = {}
"""What plants a fault, by its name."""


def planted(plant: Plant) -> Plant:
    """Add a fault to the list, named by its function."""
    PLANTED[plant.__name__] = plant
    return plant


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


async def nothing_later(*_: Any, **__: Any) -> None:
    """Do nothing."""


# --- fence ---


@planted
def fence_store_never_compares(patch: pytest.MonkeyPatch) -> None:
    """The store takes entries of any owner."""

    def find(self: Any, claim: Claim) -> Any:
        return self._find(claim.run_id)

    patch.setattr(MemoryJournal, "_find_owned", find)


@planted
def fence_does_not_rise(patch: pytest.MonkeyPatch) -> None:
    """A new owner has the fence of the one before."""
    claim = MemoryJournal.claim

    async def same(self: Any, run_id: str, owner: str, **options: Any) -> Claim:
        claimed = await claim(self, run_id, owner, **options)
        record = self._find(run_id)
        record.info = dataclasses.replace(record.info, fence=1)
        claimed.fence = 1
        return claimed

    patch.setattr(MemoryJournal, "claim", same)


@planted
def fence_is_ignored_by_the_writer(patch: pytest.MonkeyPatch) -> None:
    """A run that was fenced off acts on."""
    barrier, renew = JournalWriter.barrier, JournalWriter.renew

    async def deaf(self: Any, status: str | None = None) -> None:
        try:
            await barrier(self, status)
        except Fenced:
            self._failure = self._signals.fatal = None

    async def renewed(self: Any) -> None:
        try:
            await renew(self)
        except Fenced:
            self._failure = self._signals.fatal = None

    patch.setattr(JournalWriter, "barrier", deaf)
    patch.setattr(JournalWriter, "renew", renewed)


# --- barrier ---


@planted
def barrier_is_skipped_by_the_writer(patch: pytest.MonkeyPatch) -> None:
    """The writer waits for nothing before it acts."""
    barrier = JournalWriter.barrier

    async def lazy(self: Any, status: str | None = None) -> None:
        is_first = not self.stored.is_set()
        if status is not None or is_first:
            await barrier(self, status)

    patch.setattr(JournalWriter, "barrier", lazy)


@planted
def barrier_of_the_store_lies(patch: pytest.MonkeyPatch) -> None:
    """The store calls durable what it stores with the next barrier."""
    commit = SimulatedJournal._commit

    def late(self: Any, queue: Any) -> list[Entry]:
        is_end = queue.batches and queue.batches[-1][1] is not None
        if queue.claim.header is not None or is_end:
            return commit(self, queue)
        return [entry for batch in queue.batches for entry in batch[0]]

    patch.setattr(SimulatedJournal, "_commit", late)


@planted
def barrier_failure_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A barrier that failed is followed by others, as if nothing were lost."""
    barrier = JournalWriter.barrier

    async def careless(self: Any, status: str | None = None) -> None:
        try:
            await barrier(self, status)
        except JournalError as error:
            if isinstance(error, Fenced):
                raise
            self._failure = self._signals.fatal = None
            self._journal._queues.clear()

    patch.setattr(JournalWriter, "barrier", careless)


# --- lease ---


@planted
def lease_of_a_living_owner_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A run is given to whoever asks."""
    patch.setattr(memory_module, "ensure_claimable", nothing)
    patch.setattr(worker_module, "is_orphaned", _is_running)


def _is_running(info: RunInfo, *_: object) -> bool:
    return info.status == "running"


@planted
def lease_is_not_looked_at_before_acting(patch: pytest.MonkeyPatch) -> None:
    """A process acts without asking whether it still has the run."""
    patch.setattr(JournalWriter, "_is_held", lambda self: True)


@planted
def lease_never_ends(patch: pytest.MonkeyPatch) -> None:
    """Nobody takes up the runs of a dead process."""
    patch.setattr(worker_module, "is_orphaned", lambda *_: False)


@planted
def lease_is_judged_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """Whether a lease is over depends on what the clocks of two machines show."""

    def compute_left(self: Any, info: RunInfo) -> float:
        return (info.lease_until or math.inf) - self._clock.wall()

    patch.setattr(LeaseWatch, "compute_left", compute_left)


@planted
def lease_of_another_machine_is_judged_by_this_ones_clock(
    patch: pytest.MonkeyPatch,
) -> None:
    """Seconds since the boots of two machines are compared."""
    patch.setattr(LeaseWatch, "can_compare_clock", lambda *_: True)


@planted
def lease_is_not_renewed(patch: pytest.MonkeyPatch) -> None:
    """An owner forgets to renew its lease, and believes that it did."""

    async def forget(self: Any, claim: Claim, lease: float) -> None:
        claim.lease_until = self._store._clock.wall() + lease

    patch.setattr(SimulatedJournal, "renew", forget)


# --- replay ---


@planted
def replay_forgets_results_of_tools(patch: pytest.MonkeyPatch) -> None:
    """A resumed run does not know what its tools returned."""
    read = Effects._read_outcome

    def forget(self: Any, entry: Entry, event: Any) -> None:
        if not isinstance(event, ToolFinished):
            read(self, entry, event)

    patch.setattr(Effects, "_read_outcome", forget)


@planted
def replay_forgets_intents_of_tools(patch: pytest.MonkeyPatch) -> None:
    """A resumed run does not know which calls had begun, so it makes them again."""
    read = Effects._read_intent

    def forget(self: Any, entry: Entry, event: Any) -> None:
        if not isinstance(event, ToolStarted):
            read(self, entry, event)

    patch.setattr(Effects, "_read_intent", forget)


@planted
def replay_has_new_idempotency_keys(patch: pytest.MonkeyPatch) -> None:
    """A call that is repeated has another idempotency key."""
    numbers = itertools.count()
    patch.setattr(
        Session, "idempotency_key", lambda self, key: f"{key}:{next(numbers)}"
    )


@planted
def replay_has_other_random_numbers(patch: pytest.MonkeyPatch) -> None:
    """Each life of a run draws numbers of its own."""
    patch.setattr(Run, "random", property(lambda self: random))


@planted
def replay_begins_live_work_too_early(patch: pytest.MonkeyPatch) -> None:
    """A resumed run does not wait for its branches to have replayed, and ends as one that waits."""

    async def halt(self: Any, key: str) -> None:
        if not self.is_reached:
            raise self._diverge(key)

    patch.setattr(ReplayEnd, "reach", halt)


# --- budget ---


@planted
def budget_forgets_model_calls(patch: pytest.MonkeyPatch) -> None:
    """A resumed run counts its model calls from 0."""
    patch.setattr(Totals, "_read_request", nothing)


@planted
def budget_forgets_tool_calls(patch: pytest.MonkeyPatch) -> None:
    """A resumed run counts its tool calls from 0."""
    patch.setattr(Totals, "_read_tool_start", nothing)


@planted
def budget_forgets_tokens(patch: pytest.MonkeyPatch) -> None:
    """A resumed run counts its tokens from 0."""
    patch.setattr(Totals, "_read_reply", nothing)


@planted
def budget_of_model_calls_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    """Model calls are counted, and never refused."""
    patch.setattr(Budget, "check", nothing)


@planted
def budget_of_tool_calls_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    """Tool calls are counted, and never refused."""

    def count(self: Budget) -> None:
        self.tool_calls += 1

    patch.setattr(Budget, "count_tool_call", count)


# --- permits ---


def _change_decisions(
    patch: pytest.MonkeyPatch, kind: type[Any], change: Callable[[Any], Any]
) -> None:
    consult = gate_module.consult_gate

    async def changed(*args: Any) -> Any:
        decision = await consult(*args)
        return change(decision) if isinstance(decision, kind) else decision

    patch.setattr(gate_module, "consult_gate", changed)


@planted
def permit_of_what_was_denied(patch: pytest.MonkeyPatch) -> None:
    """A denial is taken for an allow."""
    _change_decisions(patch, Deny, lambda _: Allow())


@planted
def permit_of_what_was_asked(patch: pytest.MonkeyPatch) -> None:
    """A question is taken for an allow."""
    _change_decisions(patch, Ask, lambda _: Allow())


@planted
def permit_with_the_arguments_before_a_change(patch: pytest.MonkeyPatch) -> None:
    """A change of arguments is taken for an allow."""
    _change_decisions(patch, Modify, lambda _: Allow())


@planted
def permit_by_an_approval_that_denies(patch: pytest.MonkeyPatch) -> None:
    """What a person denied is approved."""
    deny = gate_module.Clearance._refuse

    def permit(self: Any, gated: Any, verdict: str, reason: str, *by: Any) -> Any:
        if by and by[0] is not None:
            return self._allow(gated, by[0])
        return deny(self, gated, verdict, reason, *by)

    patch.setattr(gate_module.Clearance, "_refuse", permit)
