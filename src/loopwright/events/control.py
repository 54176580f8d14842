"""Events of the control of a run by a person: commands, pauses, follow-ups, declassification."""

from typing import Annotated, Literal, TypeAlias

from .._internal import dataclasses
from ..labels import Label
from ..messages import JsonObject
from .describe import (
    CALL_ID,
    CONTENT,
    PROPOSED_TOOL,
    PUBLIC,
    DescribedEvent,
    format_value,
    public,
)

SHOWN_IN_A_COMMAND = (
    "text", "key", "tool", "arguments", "seconds", "reason", "label", "by", "verdict", "result",
)  # fmt: skip
"""The keys of a command's body that a timeline shows; the others bind it to its question."""

COMMAND_NUMBER = public("loopwright.command.number")


@dataclasses.dataclass(frozen=True)
class CommandReceived(DescribedEvent, heading="person", level="info"):
    """A person sent the run a command; `number`, `command`, `body` and `sent` are those of its inbox, without secrets.

    `waited` are the seconds before it in which the run's clock was stopped, by a pause that lasts. `refused` says why
    the command was refused; it is empty if it takes effect.
    """

    number: Annotated[int, COMMAND_NUMBER]
    command: Annotated[str, public("loopwright.command")]
    body: Annotated[JsonObject, CONTENT]
    sent: Annotated[float, PUBLIC]
    waited: float = 0.0
    refused: str = ""

    def summary(self) -> str:
        shown = [
            f"{name}={format_value(value)}"
            for name, value in self.body.items()
            if name in SHOWN_IN_A_COMMAND and value not in (None, "")
        ]
        return f"{self.command.replace('_', ' ')}  {', '.join(shown)}".rstrip()

    def lines(self) -> list[tuple[str, str]]:
        return [(self.heading, self.summary()), ("refused", self.refused)]


@dataclasses.dataclass(frozen=True)
class RunPaused(DescribedEvent, heading="paused", level="info"):
    """The run is paused between two steps, by a person's command."""

    def summary(self) -> str:
        return "until a person unpauses the run"


@dataclasses.dataclass(frozen=True)
class RunContinued(
    DescribedEvent,
    heading="unpaused",
    level="info",
    derived={"lasted": public("loopwright.paused", log="seconds")},
):
    """The run continues after a pause of so many `seconds`.

    `waited` are those of them in which nothing of the run was at work and that no earlier entry counts.
    """

    waited: float
    seconds: float = 0.0

    @property
    def lasted(self) -> float:
        """Return the length of the pause in seconds; older entries have `waited` alone."""
        return self.seconds or self.waited

    def summary(self) -> str:
        return f"after {self.lasted:.1f} s"


@dataclasses.dataclass(frozen=True)
class FollowedUp(DescribedEvent, heading="message", level="info"):
    """The engine had answered, and the run continues with the text of that follow-up command.

    `label` is how sensitive the text is.
    """

    command: Annotated[int, PUBLIC]
    text: Annotated[str, CONTENT]
    label: Label = "public"

    def summary(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Declassified(DescribedEvent, heading="label", level="warning"):
    """A person declared that the run counts as no more than `label` from here on, whatever it has read.

    With `trusted`, the run counts as one that has read nothing from outside, too.
    """

    label: Annotated[Label, public("loopwright.label")]
    reason: Annotated[str, CONTENT]
    command: Annotated[int, COMMAND_NUMBER]
    trusted: bool = False

    def summary(self) -> str:
        trusted = " and trusted" if self.trusted else ""
        return f"{self.label}{trusted} from here on: {self.reason}"


@dataclasses.dataclass(frozen=True)
class QuestionWithdrawn(DescribedEvent, heading="withdrawn", level="info"):
    """A question to a person is withdrawn: the gather around the branch that asked it has ended.

    The key is that of the question; no answer to it counts any more. `about` is as in `Question`.
    """

    tool: Annotated[str, PROPOSED_TOOL]
    call_id: Annotated[str, CALL_ID]
    about: Annotated[Literal["approval", "doubt", "failure", "question"], PUBLIC]

    def summary(self) -> str:
        return (
            f"the question about {self.tool or 'what the user wants'}, with its branch"
        )


ControlEvent: TypeAlias = (
    CommandReceived
    | RunPaused
    | RunContinued
    | FollowedUp
    | Declassified
    | QuestionWithdrawn
)
