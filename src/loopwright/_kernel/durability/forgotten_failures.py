"""Find the failures of providers, and the dead letters, that a retry forgets: the run continues before them."""

from collections.abc import Iterator, Sequence

from ..._internal import dataclasses
from ...errors import ProviderError
from ...events.branches import BranchDelivered
from ...events.control import QuestionWithdrawn
from ...events.effect_key import EffectKey, closed_key, done_key
from ...events.effects import ChildFinished, ModelFailed
from ...events.entry import Entry
from ...events.run import RunFinished, RunParked
from .effects import OUTCOMES
from .replay import Replay, last_event

NOTHING_TO_RETRY = (
    "is neither parked nor failed by a provider or a dead letter, so there is nothing to retry: resume it, "
    "or fork it before its end"
)
IS_UNDONE = "has undone what it did, so it cannot continue: fork it before its failure"
IS_FOLLOWED = "did something after its failure, which a retry would do again: fork it before its failure"
MAY_HAVE_TAKEN = (
    "which may have taken effect, so a retry makes none of them again: see whether they did, do by hand what is "
    "missing, and begin a new run or fork this one"
)


@dataclasses.dataclass(frozen=True)
class RetryPlan:
    """What a retry of a run forgets, by its keys; or why it is refused, as what is to be said of the run."""

    forgets: tuple[str, ...] = ()
    problem: str = ""


def plan_retry(entries: Sequence[Entry]) -> RetryPlan:
    """Return what a retry of a run would do: both the command and the console ask this."""
    ended = last_event(entries)
    if isinstance(ended, RunParked):
        return RetryPlan()
    if not isinstance(ended, RunFinished):
        return RetryPlan(problem=NOTHING_TO_RETRY)
    replay = Replay(entries)
    dead, intent = replay.recoveries.dead_lettered, replay.effects.intent
    is_provider = failed_by_provider(ended)
    if not is_provider and (not dead or ended.status != "failed"):
        return RetryPlan(problem=NOTHING_TO_RETRY)
    if replay.recoveries.undo is not None:
        return RetryPlan(problem=IS_UNDONE)
    failed = [key for key in replay.effects.outcomes if _is_failure(replay, key)]
    failed = failed or [k for k in sorted(dead) if dead[k].is_repeatable(intent(k))]
    if not failed and not is_provider:
        tools = ", ".join(sorted({call.tool for call in dead.values()}))
        return RetryPlan(problem=f"has dead letters of {tools} alone, {MAY_HAVE_TAKEN}")
    found = _find_last(replay, entries, failed)
    return RetryPlan(found, IS_FOLLOWED if failed and not found else "")


def _find_last(
    replay: Replay, entries: Sequence[Entry], failed: list[str]
) -> tuple[str, ...]:
    """Return the keys of failures that nothing came after, and of their deliveries."""
    # A child's own failures are looked at once the child counts as open again.
    failed.sort(key=lambda known: len(list(EffectKey.parse(known).around)))
    deliveries = _Deliveries(replay, entries)
    found: list[str] = []
    for key in failed:
        given = deliveries.reopen(key)
        if given is not None and not replay.scopes.has_outcome_after(key):
            replay.scopes.reopen(key)
            found += [key, *given]
    return tuple(found)


def failed_by_provider(ended: RunFinished | ChildFinished) -> bool:
    """Whether a run, or a child, ended because its provider failed."""
    return (ended.status, ended.stop_reason) == ("failed", "provider_error")


def _is_failure(replay: Replay, key: str) -> bool:
    outcome = replay.effects.outcomes[key]
    if isinstance(outcome, ChildFinished):
        return failed_by_provider(outcome)
    return isinstance(outcome, ModelFailed) and isinstance(
        outcome.error.restore(), ProviderError
    )


@dataclasses.dataclass(frozen=True)
class _Deliveries:
    """What engines were given of branches that they worked beside."""

    replay: Replay
    entries: Sequence[Entry]

    def reopen(self, key: str) -> list[str] | None:
        """Forget that branches around a failure were given; return the keys of that.

        So are later deliveries, and that the engine left the other branches. `None` if an
        engine did something afterwards, or withdrew a question.
        """
        branches = self.replay.scopes.branches
        around = [place.text for place in EffectKey.parse(key).around]
        given = [self._find(path) for path in around if path in branches.delivered]
        if not all(map(self._is_last, given)):
            return None
        forgotten = [side for entry in given for side in self._sides_from(entry)]
        for side in forgotten:
            self.replay.forget_delivery(side)
        return forgotten

    def _find(self, branch: str) -> Entry:
        """Return the entry that says that a branch was given."""
        effect, _, index = branch.rpartition(".")
        return next(
            entry
            for entry in self.entries
            if isinstance(entry.event, BranchDelivered)
            and EffectKey.parse(entry.key).path == effect
            and entry.event.index == int(index)
        )

    def _is_last(self, given: Entry) -> bool:
        """Whether nothing has happened since in the scope of the engine that it was given to."""
        effect = EffectKey.parse(EffectKey.parse(given.key).path)
        return not any(
            self._has_followed(entry, effect) for entry in self.entries[given.seq :]
        )

    def _has_followed(self, entry: Entry, effect: EffectKey) -> bool:
        key = EffectKey.parse(entry.key)
        if isinstance(entry.event, QuestionWithdrawn):
            return key.is_inside(effect.text)
        is_outcome = key.is_effect and isinstance(entry.event, OUTCOMES)
        is_beside = is_outcome and not key.is_inside(effect.text)
        return is_beside and key.is_at_or_after(effect)

    def _sides_from(self, given: Entry) -> Iterator[str]:
        """Yield the keys of a delivery, of those after it, and of the end of the branches."""
        key = EffectKey.parse(given.key)
        effect, number = key.path, key.number
        while self.replay.effects.side(done_key(effect, number)) is not None:
            yield done_key(effect, number)
            number += 1
        if self.replay.effects.side(closed_key(effect)) is not None:
            yield closed_key(effect)
