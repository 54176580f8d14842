"""Questions to a model: as engines put them, as they are asked, and what is replied."""

from collections.abc import Callable, Iterable, Mapping

from ..._internal import dataclasses
from ...events.effects import ModelRequested
from ...messages import Completion, Conversation, Message
from ...providers.base import OutputSchema, Provider, Sampling
from ...providers.provider_tools import ProviderTool


@dataclasses.dataclass(frozen=True)
class Question:
    """What an engine wants to know from a model; `into` names the type of the reply."""

    verb: str
    conversation: Conversation
    provider: Provider
    tools: bool = False
    into: str = ""
    schema: OutputSchema | None = None
    sampling: Sampling = Sampling()
    reserved: bool = False
    purpose: str = ""
    offered: frozenset[str] | None = None
    """The names of the tools that are offered; `None` for all."""
    read: Callable[[str], object] | None = None
    """Reads the reply as what is asked for; raises `ValueError`."""


@dataclasses.dataclass(frozen=True)
class Reply:
    """A model's reply, the key of its effect, and the messages that the runtime added to the question.

    `commands` are the numbers of the commands whose texts are among those messages; `is_changed` says that hooks changed it.
    """

    key: str
    completion: Completion
    delivered: tuple[Message, ...]
    commands: tuple[int, ...] = ()
    is_changed: bool = False


@dataclasses.dataclass(frozen=True)
class Begun:
    """Model calls for one question with their intents, and the tools that the provider may run.

    The intents of the calls `known` are recorded; the others are recorded with what is sent.
    """

    intents: Mapping[str, ModelRequested]
    question: Question
    seconds: float
    """The active time at which the model is asked."""
    offers: tuple[ProviderTool, ...] = ()
    known: frozenset[str] = frozenset()

    def select(self, keys: Iterable[str], seconds: float) -> "Begun":
        """Return those of some keys, for which the model is asked at so many active seconds."""
        chosen = {key: self.intents[key] for key in keys}
        return dataclasses.replace(self, intents=chosen, seconds=seconds)


@dataclasses.dataclass(frozen=True)
class Asked:
    """A question as it is put: with the messages that the runtime adds, in which turn, and by which commands.

    One of a context policy `covers` so many messages.
    """

    question: Question
    delivered: tuple[Message, ...]
    iteration: int
    commands: tuple[int, ...]
    covers: int = 0
