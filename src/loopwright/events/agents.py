"""Events of agents: the instructions with which they work."""

import dataclasses
from typing import Annotated, TypeAlias

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


AgentEvent: TypeAlias = InstructionsSet
