"""Several gates as one, which allows the calls that all of them allow."""

import math
from typing import Any, Final, cast

from ..errors import ConfigError
from ..messages import hash_arguments
from ..resilience.timeouts import CodeOutcome
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
from .consultation import GATE_TIMEOUT, ask_gate, compute

MARGIN: Final = 0.1
"""Seconds added for each gate, so that its own deadline comes before that of all together."""


class AllOf:
    """Asks several gates in their order, and allows the calls that all of them allow.

    The first `Deny` is the decision, and later gates are not asked. A gate that raises, returns no
    decision or takes longer than its `timeout` has denied. Otherwise the first `Modify` is the
    decision: the changed call is decided by all gates again, so that a person is asked about the
    call that would run. Otherwise all questions are asked as one. Otherwise the call is allowed.

    If all gates only compute, so does this one. `version` joins their versions; `timeout` is the sum
    of theirs, in seconds. Only the gates with a true `answers` are asked about the answer of a run.

    Raises `ConfigError` if there is no gate, or a value that is not a gate.
    """

    def __new__(cls, *gates: PolicyGate) -> "AllOf":
        """Return a gate that only computes, if all gates do."""
        instant = cls is AllOf and all(map(is_instant, gates))
        kind: type[AllOf] = _InstantAllOf if instant else cls
        return object.__new__(kind)

    def __init__(self, *gates: PolicyGate) -> None:
        if not gates:
            raise ConfigError("AllOf: name the gates that must allow a call")
        for gate in gates:
            if not callable(getattr(gate, "evaluate", None)):
                raise ConfigError(
                    f"AllOf: {gate!r} is not a gate; it has no `evaluate`"
                )
            _seconds(gate)
        self._gates = gates

    @property
    def version(self) -> str:
        """Return the versions of all gates, as they are now."""
        return "+".join(
            getattr(gate, "version", None) or _class_name(type(gate))
            for gate in self._gates
        )

    @property
    def answers(self) -> bool:
        """Whether one of the gates wants to be asked about the answer of a run."""
        return any(getattr(gate, "answers", False) for gate in self._gates)

    @property
    def plans(self) -> bool:
        """Whether one of the gates wants a plan before the engine begins."""
        return any(getattr(gate, "plans", False) for gate in self._gates)

    @property
    def timeout(self) -> float:
        """Return the seconds that all gates together may take."""
        return sum(map(_seconds, self._gates)) + MARGIN * len(self._gates)

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Ask all gates."""
        votes = _Votes(action)
        for gate in self._choose_gates(action):
            refused = votes.add(await ask_gate(gate, action, state))
            if refused is not None:
                return refused
        return votes.decide()

    def _choose_gates(self, action: Action) -> tuple[PolicyGate, ...]:
        """Return all gates; for an answer only those that want to be asked.

        A gate that knows tools alone would refuse every answer.
        """
        if action.tool != RESPOND or not self.answers:
            return self._gates
        return tuple(gate for gate in self._gates if getattr(gate, "answers", False))


class _InstantAllOf(InstantGate, AllOf):  # pyright: ignore[reportIncompatibleVariableOverride] - `version` is only read
    """Several gates that only compute; `InstantGate` comes first, so that none of them is awaited."""

    @property
    def timeout(self) -> float:
        """Return the seconds that all gates together may take; a late one is found by itself."""
        return sum(getattr(gate, "timeout", GATE_TIMEOUT) for gate in self._gates)

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Ask all gates."""
        votes = _Votes(action)
        for gate in self._choose_gates(action):
            refused = votes.add(compute(cast("InstantGate", gate), action, state))
            if refused is not None:
                return refused
        return votes.decide()


class _Votes:
    """The decisions of some gates about one action."""

    def __init__(self, action: Action) -> None:
        self._action = action
        self._change: Modify | None = None
        self._questions: list[Ask] = []

    def add(self, ended: CodeOutcome) -> Deny | None:
        """Add the outcome of one gate; return a `Deny` if that decides for all."""
        if ended.timed_out:
            return Deny("the policy gate did not decide in time")
        if ended.error is not None:
            return Deny(f"the policy gate failed ({type(ended.error).__name__})")
        match ended.value:
            case Deny() as refusal:
                return refusal
            case Modify() as change:
                self._add_change(change)
            case Ask() as question:
                self._questions.append(question)
            case Allow():
                pass
            case other:
                kind = type(other).__name__
                return Deny(f"the policy gate gave no decision ({kind})")
        return None

    def _add_change(self, change: Modify) -> None:
        """Keep the first change to other arguments.

        A change to the same arguments would hide the decisions of the other gates.
        """
        wanted = hash_arguments(change.arguments)
        is_same = wanted and wanted == hash_arguments(self._action.arguments)
        if self._change is None and not is_same:
            self._change = change

    def decide(self) -> Decision:
        """Return the common decision.

        A change comes first: approval for other arguments would have no value.
        """
        if self._change is not None:
            return self._change
        if self._questions:
            texts = dict.fromkeys(asked.question for asked in self._questions)
            rules = [rule for asked in self._questions for rule in asked.approvals]
            return Ask("; ".join(texts), tuple(dict.fromkeys(rules)))
        return Allow()


def _seconds(gate: PolicyGate) -> float:
    """Return the seconds that a gate has for a decision; 0 if it only computes."""
    if is_instant(gate):
        return 0.0
    timeout = getattr(gate, "timeout", GATE_TIMEOUT)
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout < math.inf:
        name = _class_name(type(gate))
        raise ConfigError(
            f"AllOf: timeout of {name}: must be a number of seconds, got {timeout!r}"
        )
    return float(timeout)


def _class_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
