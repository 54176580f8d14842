"""Events of agents: the instructions with which they work, and that one hands a run off to another."""

from typing import Annotated, TypeAlias

from .._internal import dataclasses
from ..labels import Label
from .describe import CONTENT, DescribedEvent, public


@dataclasses.dataclass(frozen=True)
class InstructionsSet(DescribedEvent, heading="system"):
    """The words of the instructions with which an agent works, in front of each of its requests.

    `label` is how sensitive they are, and `untrusted` whether any of them came from outside.
    """

    agent: Annotated[str, public("gen_ai.agent.name", log="agent")]
    text: Annotated[str, CONTENT]
    label: Label = "public"
    untrusted: bool = False

    def summary(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class HandedOff(DescribedEvent, heading="handoff", level="info"):
    """An agent handed the run off to another one, whose entries have keys below this one.

    `fingerprint` covers the conversation that the other agent is given; `about` is the beginning of its task. `source` is
    the key of the call, or of the engine's own effect, that asked for it.
    """

    giver: Annotated[str, public(log="")]
    agent: Annotated[str, public("gen_ai.agent.name", log="")]
    engine: Annotated[str, public(log="")]
    fingerprint: str
    about: Annotated[str, CONTENT] = ""
    source: str = ""

    def summary(self) -> str:
        return f"{self.giver} hands off to {self.agent}"


AgentEvent: TypeAlias = InstructionsSet | HandedOff
