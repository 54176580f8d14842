"""How far each scope of a recorded run had come, by the keys of its entries."""

import itertools
import sys
from collections.abc import Iterable
from typing import Literal, TypeAlias

from ...events.branches import BranchesOpened, TimeoutSet
from ...events.control import QuestionWithdrawn
from ...events.effect_key import EffectKey, is_inside
from ...events.effects import ChildFinished, ChildStarted, GateDecided, ToolStarted
from ...events.entry import Entry
from .branches import BranchRecords
from .effects import OUTCOMES

Verb: TypeAlias = Literal["gate", "act"]


class Scopes:
    """The positions of recorded effects in the program of a run."""

    def __init__(self) -> None:
        self._first_entries: dict[str, int] = {}
        self._last_entries: dict[str, int] = {}
        """The number of the last entry of each scope."""
        self._reached: dict[str, int] = {}
        """The highest number in each scope, with what happened in the scopes inside it."""
        self._highest_outcome: dict[str, int] = {}
        self._ended: set[str] = set()
        """The scopes of child engines, and of engines that answer a call, that had ended."""
        self._opened: set[str] = {""}
        """The paths that are scopes: of the root, of branches and of child engines, not of a gather."""
        self.branches = BranchRecords()
        self._begun: set[tuple[Verb, str]] = set()
        """The proposals whose calls were decided (`gate`), or started or ended (`act`)."""

    def add(self, entry: Entry) -> None:
        """Note the position of an entry; one that is not about an effect has none."""
        key, event = EffectKey.parse(entry.key), entry.event
        if isinstance(event, (TimeoutSet, BranchesOpened)):  # an effect had begun
            begun = EffectKey.parse(key.place)
            self._reach((begun, *begun.around))
            return
        # A withdrawn question had its place before, and nothing happens there.
        if not key.is_effect or isinstance(event, QuestionWithdrawn):
            return
        self._first_entries.setdefault(key.text, entry.seq)
        self._last_entries[key.path] = entry.seq
        self._reach((key, *key.around))
        self._opened.add(key.path)
        if isinstance(event, (ChildStarted, ToolStarted)):
            self._opened.add(key.child_path)
        if key.is_call:
            verb: Verb = "gate" if isinstance(event, GateDecided) else "act"
            self._begun.add((verb, key.effect))
        if isinstance(event, OUTCOMES):
            highest = self._highest_outcome.get(key.path, -1)
            self._highest_outcome[key.path] = max(highest, key.number)
            if key.is_call or isinstance(event, ChildFinished):
                self._ended.add(key.child_path)

    def _reach(self, places: Iterable[EffectKey]) -> None:
        for place in places:
            reached = self._reached.get(place.path, -1)
            self._reached[place.path] = max(reached, place.number)

    def reopen(self, key: str) -> None:
        """Let the engine at a key continue: its outcome does not count any more."""
        self._ended.discard(EffectKey.parse(key).child_path)

    def first_entry(self, key: str) -> int:
        """Return the number of the first entry at a key."""
        return self._first_entries[key]

    def has_entry(self, key: str) -> bool:
        """Whether anything is recorded at a key."""
        return key in self._first_entries

    def has_samples(self, effect: str) -> bool:
        """Return whether several replies are recorded at an effect, or in one of its branches."""
        return any(
            "~s" in known and known.startswith((f"{effect}~", f"{effect}."))
            for known in self._first_entries
        )

    def last_entry(self, key: str) -> int:
        """Return the number of the last entry in the scope of a key; without one, a large number."""
        return self._last_entries.get(EffectKey.parse(key).path, sys.maxsize)

    def last_entry_inside(self, path: str) -> int:
        """Return the number of the last entry of a scope and those inside it; 0 without one."""
        entries = self._last_entries.items()
        return max((seq for scope, seq in entries if is_inside(scope, path)), default=0)

    def entries_from(self, key: EffectKey) -> list[int]:
        """Return the first entries of an effect, of later ones of its scope, and of those inside."""
        return [
            seq
            for known, seq in self._first_entries.items()
            if EffectKey.parse(known).is_at_or_after(key)
        ]

    def reaches(self, path: str, number: int) -> bool:
        """Whether a scope, with those inside it, had begun its effect of that number."""
        return self._reached.get(path, -1) >= number

    def has_begun(self, verb: Verb, proposal: str) -> bool:
        """Whether calls of a proposal were decided (`gate`), or started or ended (`act`)."""
        return (verb, proposal) in self._begun

    def has_ended(self, path: str) -> bool:
        """Whether the child engine, the engine of a call, or the branch in that scope had ended."""
        return path in self._ended or path in self.branches.delivered

    def has_outcome_from(self, path: str, number: int) -> bool:
        """Whether a scope has a recorded outcome at `number` or later."""
        return self._highest_outcome.get(path, -1) >= number

    def has_outcome_after(self, text: str) -> bool:
        """Whether outcomes come after an effect that has none, in its scope or one around it.

        So do outcomes of a scope that was opened at its very place.
        """
        if not self._highest_outcome:
            return False
        key = EffectKey.parse(text)
        if not key.is_effect:
            return False
        if self.has_outcome_from(key.path, key.number + 1):
            return True
        if not key.is_call and self._has_outcome_inside(text):
            return True
        return any(map(self._is_past, key.around))

    def is_abandoned(self, text: str) -> bool:
        """Whether a scope around an effect had ended, or had begun a later effect without it.

        The scope of the effect itself ended by what it met where it had waited, such as a
        limit; so did a branch that was given to its engine.
        """
        key, is_given = EffectKey.parse(text), self.branches.delivered.__contains__
        around = list(key.around)
        inside = list(itertools.takewhile(lambda one: not is_given(one.text), around))
        ended = around[1 : len(inside) + 1]
        has_ended = any(self.has_ended(place.text) for place in ended)
        return key.is_effect and (has_ended or any(map(self._is_left, inside)))

    def _is_left(self, place: EffectKey) -> bool:
        is_left = place.path in self._opened and place.text not in self.branches.open
        return is_left and self.reaches(place.path, place.number + 1)

    def _is_past(self, place: EffectKey) -> bool:
        """Whether the run had gone past a scope: it ended, or a later outcome is recorded.

        An engine that works beside its branches has later outcomes, which say nothing of them.
        """
        number = place.number + 1
        if place.text in self.branches.open:
            number = sys.maxsize
        return self.has_outcome_from(place.path, number) or self.has_ended(place.text)

    def _has_outcome_inside(self, path: str) -> bool:
        return any(is_inside(scope, path) for scope in self._highest_outcome)
