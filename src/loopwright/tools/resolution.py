"""The answers to a call whose outcome is unknown: what a tool's `lookup` returns, or a person says."""

from typing import TypeAlias

from .._internal import dataclasses


@dataclasses.dataclass(frozen=True)
class CallCompleted:
    """The call took effect; the model reads `result` as its outcome."""

    result: str


@dataclasses.dataclass(frozen=True)
class CallNotExecuted:
    """The call certainly took no effect: it may be made (again)."""


@dataclasses.dataclass(frozen=True)
class OutcomeUnknown:
    """It cannot be found out whether the call took effect."""


Resolution: TypeAlias = CallCompleted | CallNotExecuted | OutcomeUnknown
