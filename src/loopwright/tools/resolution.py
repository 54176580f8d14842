"""What can be said of a call of which nobody knows whether it took effect."""

import dataclasses
from typing import TypeAlias


@dataclasses.dataclass(frozen=True)
class Done:
    """It took effect; `result` is what the model is told of it."""

    result: str


@dataclasses.dataclass(frozen=True)
class NotDone:
    """It certainly took no effect: it may be made (again)."""


@dataclasses.dataclass(frozen=True)
class Unknown:
    """It cannot be told."""


Resolution: TypeAlias = Done | NotDone | Unknown
