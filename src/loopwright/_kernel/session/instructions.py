"""Instructions of an agent: a text, a template over the dependencies of a run, or a function."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from ..._internal import dataclasses
from ...errors import ConfigError
from ...labels import LabelledText, find_provenance
from ...messages import Conversation, Message
from ...prompts import Template


@dataclasses.dataclass(frozen=True)
class InstructionContext:
    """What a function that writes instructions is given.

    Args:
        run_id: the name of the run.
        agent: the name of the agent.
        task: the latest user text of what the agent was given.
        deps: what the run was started with, as `ToolContext.deps`.
    """

    run_id: str
    agent: str
    task: str
    deps: Any = None


Instructions: TypeAlias = (
    str | Template | Callable[[InstructionContext], str | Awaitable[str]]
)


def fill_template(template: Template, deps: object) -> str:
    """Return a template whose placeholders are keys or attributes of the dependencies; raise `ConfigError`.

    It is as sensitive and untrusted as the labelled texts that fill it.
    """
    values: dict[str, str] = {}
    labelled: list[object] = []
    given: Any = deps
    for name in template.names:
        is_mapping = isinstance(deps, Mapping)
        found = given.get(name) if is_mapping else getattr(given, name, None)
        if found is None:
            has = name in given if is_mapping else hasattr(given, name)
            what = "with None for it" if has else "without it"
            raise ConfigError(
                f"deps: the instructions need {name!r}, got {type(deps).__name__} {what}; pass deps= that has it"
            )
        values[name] = str(found)
        labelled.append(found)
    label, untrusted = find_provenance(labelled)
    return LabelledText(template.fill(**values), label=label, untrusted=untrusted)


NOTHING = Conversation()


class InstructedConversations:
    """Puts instructions in front of the conversations of one engine, each of which mostly continues the one before.

    They are a system message of their own, or stand before the text of the one that a conversation has.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        self._seen: tuple[Message, ...] = ()
        self._led = NOTHING

    def lead(self, conversation: Conversation) -> Conversation:
        """Return a conversation behind the instructions."""
        messages, seen = conversation.messages, self._seen
        if seen and messages[: len(seen)] == seen:
            self._led = self._led.add(*messages[len(seen) :])
        else:
            self._led = Conversation(self._place(messages))
        self._seen = messages
        return self._led

    def _place(self, messages: tuple[Message, ...]) -> list[Message]:
        first = messages[0] if messages else None
        if first is None or first.role != "system":
            return [Message("system", self.text), *messages]
        text = f"{self.text}\n\n{first.content}"
        return [dataclasses.replace(first, content=text), *messages[1:]]
