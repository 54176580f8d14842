"""Find the failures of providers, and the dead letters, that a retry forgets: the run continues before them."""

from collections.abc import Iterator, Sequence

from ..._internal import dataclasses
from ...errors import ConfigError, ProviderError
from ...events.branches import BranchDelivered
from ...events.control import QuestionWithdrawn
from ...events.effect_key import EffectKey, closed_key, done_key
from ...events.effects import ChildFinished, ModelFailed
from ...events.entry import Entry
from ...events.run import RunFinished
from .effects import OUTCOMES
from .replay import Replay


def find_forgotten(run_id: str, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the keys that a retry forgets: failures that nothing came after, and their deliveries; else dead letters.

    Raises `ConfigError` if the run did something after each failure, or undid what it had done.
    """
    replay = Replay(entries)
    if replay.recoveries.undo is not None:
        raise ConfigError(
            f"run_id: what run {run_id!r} did is undone, so it cannot continue: fork it before its failure"
        )
    outcomes = replay.effects.outcomes
    failed = [key for key in outcomes if _is_failure(replay, key)]
    failed = failed or sorted(replay.recoveries.dead_lettered)
    # A child's own failures are looked at once the child counts as open again.
    failed.sort(key=lambda known: len(list(EffectKey.parse(known).around)))
    deliveries = _Deliveries(replay, entries)
    found: list[str] = []
    for key in failed:
        given = deliveries.reopen(key)
        if given is not None and not replay.scopes.has_outcome_after(key):
            replay.scopes.reopen(key)
            found += [key, *given]
    if failed and not found:
        raise ConfigError(
            f"run_id: run {run_id!r} did something after its failure, which a retry would do again: "
            "fork it before its failure"
        )
    return tuple(found)


def failed_by_provider(ended: RunFinished | ChildFinished) -> bool:
    """Whether a run, or a child, ended because its provider failed."""
    return (ended.status, ended.stop_reason) == ("failed", "provider_error")


def may_be_retried(ended: RunFinished, entries: Sequence[Entry]) -> bool:
    """Whether a run ended because its provider failed, or failed with calls that are dead letters."""
    is_dead = bool(Replay(entries).recoveries.dead_lettered)
    found = ended.status, is_dead
    return failed_by_provider(ended) or found == ("failed", True)


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
