"""Events of the control of a run by a person: commands, pauses, follow-ups, declassification."""

import dataclasses
from typing import TypeAlias

from ..labels import Label
from ..messages import JsonObject


@dataclasses.dataclass(frozen=True)
class CommandReceived:
    """Somebody told the run something from outside; `number`, `command`, `body` and `sent` as in its inbox.

    It stands here without secrets. `waited` is for how many seconds before it the run's clock stood still, as of a
    pause that goes on. `refused` says why nothing was made of it; it is empty if it counts.
    """

    number: int
    command: str
    body: JsonObject
    sent: float
    waited: float = 0.0
    refused: str = ""


@dataclasses.dataclass(frozen=True)
class RunPaused:
    """The run stands still between two steps, since somebody paused it."""


@dataclasses.dataclass(frozen=True)
class RunContinued:
    """The run goes on after a pause of so many `seconds`.

    `waited` is for how many of them nothing of it was at work, as far as no entry before this one says it.
    """

    waited: float
    seconds: float = 0.0

    @property
    def lasted(self) -> float:
        """How long the pause was, in seconds; older entries have `waited` alone."""
        return self.seconds or self.waited


@dataclasses.dataclass(frozen=True)
class FollowedUp:
    """The engine had answered, and it goes on with what the person of that command said then.

    `label` is how sensitive that is.
    """

    command: int
    text: str
    label: Label = "public"


@dataclasses.dataclass(frozen=True)
class Declassified:
    """A person said that the run counts as no more than `label` from here on, whatever it has read."""

    label: Label
    reason: str
    command: int


ControlEvent: TypeAlias = (
    CommandReceived | RunPaused | RunContinued | FollowedUp | Declassified
)
