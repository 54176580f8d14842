"""Several gates as one: what all of them allow is allowed."""

import copy
import dataclasses
import math
from typing import Any, Final

from ..errors import ConfigError
from ..messages import arguments_hash
from ..resilience.timeouts import CodeOutcome, capture, run_with_timeout
from .base import (
    RESPOND,
    Action,
    Allow,
    Ask,
    Decision,
    Deny,
    InstantGate,
    Modify,
    PolicyGate,
    PolicyState,
    is_instant,
)

DEFAULT_TIMEOUT: Final = 1.0  # seconds for a gate that does not say how many it needs
MARGIN: Final = (
    0.1  # seconds more for all together, so that each gate's own deadline comes first
)


class AllOf:
    """Asks several gates in their order, and allows what all of them allow.

    The first `Deny` is the decision, and the gates after it are not asked. A gate that raises, gives no decision, or
    takes longer than its `timeout` has denied. Else the first `Modify` is the decision: the changed call comes back to
    all gates, so that a person is asked about what would really run. Else the questions are asked as one. `Allow` is
    what is left.

    Where all gates only compute, so does this one. `version` joins theirs; `timeout` is the sum of theirs, in seconds.
    About the answer of a run it asks those of them that want to be asked (`answers`).

    Raises `ConfigError` if there is no gate, or something that is none.
    """

    def __new__(cls, *gates: PolicyGate) -> "AllOf":
        """One that only computes, if all gates do."""
        instant = cls is AllOf and all(map(is_instant, gates))
        kind: type[AllOf] = _InstantAllOf if instant else cls
        return object.__new__(kind)

    def __init__(self, *gates: PolicyGate) -> None:
        if not gates:
            raise ConfigError("AllOf: name the gates that have to allow")
        for gate in gates:
            if not callable(getattr(gate, "evaluate", None)):
                raise ConfigError(f"AllOf: {gate!r} is no gate: it has no `evaluate`")
            _seconds(gate)
        self._gates = gates

    @property
    def version(self) -> str:
        """The versions of all gates, as they are now."""
        return "+".join(
            getattr(gate, "version", None) or _class_name(type(gate))
            for gate in self._gates
        )

    @property
    def answers(self) -> bool:
        """Whether one of the gates wants to be asked about the answer of a run."""
        return any(getattr(gate, "answers", False) for gate in self._gates)

    @property
    def timeout(self) -> float:
        """The seconds that all gates together may take."""
        return sum(map(_seconds, self._gates)) + MARGIN * len(self._gates)

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Ask all gates."""
        said = _Said(action)
        for gate in self._asked_about(action):
            refused = said.take(await _asked(gate, action, state))
            if refused is not None:
                return refused
        return said.decision()

    def _asked_about(self, action: Action) -> tuple[PolicyGate, ...]:
        """All gates; about an answer those that want to be: one that knows tools alone would refuse every answer."""
        if action.tool != RESPOND or not self.answers:
            return self._gates
        return tuple(gate for gate in self._gates if getattr(gate, "answers", False))


class _InstantAllOf(InstantGate, AllOf):  # pyright: ignore[reportIncompatibleVariableOverride] - `version` is only read
    """Several gates that only compute, asked in place: what such a gate does comes before what awaits them."""

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Ask all gates."""
        said = _Said(action)
        for gate in self._asked_about(action):
            refused = said.take(_computed(gate, action, state))
            if refused is not None:
                return refused
        return said.decision()


class _Said:
    """What some gates have said so far about an action."""

    def __init__(self, action: Action) -> None:
        self._action = action
        self._change: Modify | None = None
        self._questions: list[str] = []

    def take(self, ended: CodeOutcome) -> Deny | None:
        """One more decision, or what came in place of one; a `Deny` is the decision of all."""
        decision = ended.value
        if ended.timed_out:
            return Deny("the policy gate did not decide in time")
        if ended.error is not None:
            return Deny(f"the policy gate failed ({type(ended.error).__name__})")
        if isinstance(decision, Deny):
            return decision
        if isinstance(decision, Modify):
            if self._change is None and self._changes(decision):
                self._change = decision
        elif isinstance(decision, Ask):
            self._questions.append(decision.question)
        elif not isinstance(decision, Allow):
            return Deny(f"the policy gate gave no decision ({type(decision).__name__})")
        return None

    def _changes(self, decision: Modify) -> bool:
        """Whether other arguments are wanted: a change to the same ones would hide what the other gates say."""
        wanted = arguments_hash(decision.arguments)
        return not wanted or wanted != arguments_hash(self._action.arguments)

    def decision(self) -> Decision:
        """What they come to. A change goes first: leave that a person gave for other arguments is worth nothing."""
        if self._change is not None:
            return self._change
        return (
            Ask("; ".join(dict.fromkeys(self._questions)))
            if self._questions
            else Allow()
        )


async def _asked(gate: PolicyGate, action: Action, state: PolicyState) -> CodeOutcome:
    if is_instant(gate):
        return _computed(gate, action, state)
    given, defaults = (
        copy.deepcopy(dict(action.arguments)),
        copy.deepcopy(action.defaults),
    )  # to keep, even to change
    own = dataclasses.replace(action, arguments=given, defaults=defaults)
    return await run_with_timeout(_awaited(gate, own, state), _seconds(gate))


def _computed(gate: Any, action: Action, state: PolicyState) -> CodeOutcome:
    return capture(lambda: gate.decide(action, state))


async def _awaited(gate: PolicyGate, action: Action, state: PolicyState) -> Any:
    return await gate.evaluate(action, state)


def _seconds(gate: PolicyGate) -> float:
    """The seconds that a gate has for a decision; none where it only computes."""
    if is_instant(gate):
        return 0.0
    timeout = getattr(gate, "timeout", DEFAULT_TIMEOUT)
    if (
        isinstance(timeout, bool)
        or not isinstance(timeout, (int, float))
        or not 0 < timeout < math.inf
    ):
        raise ConfigError(
            f"AllOf: timeout of {_class_name(type(gate))}: a number of seconds is needed, got {timeout!r}"
        )
    return float(timeout)


def _class_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
