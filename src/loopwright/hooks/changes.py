"""Read what hooks return: a text, or what they change about a model call."""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from .._internal import dataclasses
from ..journals.recorded_messages import find_thought
from ..messages import Completion, Json, Message, Observation, ToolCall, ToolSpec
from ..providers.settings import Sampling
from .base import Before, ModelQuestion

MAX_MESSAGES = 16_000
"""Bytes of the texts of all hooks for one model call, about 4,000 tokens."""


class TextReader:
    """Reads a text that a hook returned.

    Args:
        clean: returns a text without secrets.
        check: reads a text as what it must be; raises `ValueError`.
    """

    __slots__ = ("_check", "_clean")

    def __init__(
        self,
        clean: Callable[[str], str],
        check: Callable[[str], object] | None,
    ) -> None:
        self._clean, self._check = clean, check

    def __call__(self, returned: Any) -> tuple[Json, str]:
        """Return the change and the text; raise `ValueError` or `TypeError` for one that cannot be used."""
        if not isinstance(returned, str):
            raise TypeError(f"must return a text or None, got {returned!r:.80}")
        text = self._clean(returned)
        if self._check is not None:
            self._check(text)
        return {"text": text}, text

    def recall(self, changed: Json, value: str) -> str:
        """Return the text as a recorded change left it."""
        text = changed.get("text") if isinstance(changed, dict) else None
        return text if isinstance(text, str) else value


class BeforeReader:
    """Reads what hooks return before a model call, one after the other.

    Args:
        asked: the model call.
        tools: the tools that there are.
        providers: the names of the providers that there are.
        clean: returns a text without secrets.
    """

    def __init__(
        self,
        asked: ModelQuestion,
        tools: Iterable[ToolSpec],
        providers: Container[str],
        clean: Callable[[str], str],
    ) -> None:
        self.asked, self._tools, self._providers = asked, tools, providers
        self._clean = clean
        self.changes: list[Json] = []
        self.texts: list[str] = []

    def __call__(self, returned: Any) -> tuple[Json, ModelQuestion]:
        """Return the change and the model call with it; raise for one that cannot be."""
        if not isinstance(returned, Before):
            raise TypeError(f"must return Before(...) or None, got {returned!r:.80}")
        given = _list_texts(returned)
        # No more of a text is read by the model.
        texts = [self._clean(text)[:MAX_MESSAGES] for text in given]
        change = self._read(returned, texts)
        return change, self._take(returned, texts, change)

    def recall(self, changed: Json, value: ModelQuestion) -> ModelQuestion:
        """Return the model call with a recorded change; that of a hook that changed nothing is as it was."""
        if not isinstance(changed, dict):
            return value
        written = changed.get("messages")
        # Runs of before have their number alone.
        kept = written if isinstance(written, list) else []
        # A text may hold what has become a secret since.
        texts = [self._clean(str(text)) for text in kept]
        return self._take(read_change(changed), texts, changed)

    def _take(self, before: Before, texts: list[str], change: Json) -> ModelQuestion:
        self.asked = _change(self.asked, before, texts)
        self.texts += texts
        self.changes.append(change)
        return self.asked

    def _read(self, before: Before, texts: list[str]) -> dict[str, Json]:
        """Return a change as it is recorded; raise for a provider or tools that are not there."""
        change: dict[str, Json] = {}
        if texts:
            change["messages"] = [*texts]
        if before.provider is not None:
            if before.provider not in self._providers:
                raise ValueError(
                    f"provider: {before.provider!r} is not among Runtime(providers=...)"
                )
            change["provider"] = before.provider
        if before.tools is not None:
            unknown = sorted({*before.tools} - {tool.name for tool in self._tools})
            if unknown:
                raise ValueError(f"tools: there is no {', '.join(unknown)}")
            change["tools"] = [*before.tools]
        if before.sampling.options:
            change["sampling"] = dict(before.sampling.options)
        return change

    def cut(self) -> list[str]:
        """Return the texts of all hooks, cut to the length that they may have together."""
        room, kept = MAX_MESSAGES, list[str]()
        for text in self.texts:
            shown = text.encode()[:room].decode(errors="ignore")
            room -= len(shown.encode())
            if shown:
                kept.append(shown)
        return kept


DROPPED = "[the result of"
"""What a text begins with that stands for a result which was withheld, with its attachments."""


def replace_text(observation: Observation, text: str) -> Observation:
    """Return an observation with another text, in a fence if it has one."""
    if text.startswith(DROPPED):
        observation = dataclasses.replace(observation, attachments=())
    if observation.plain is None:
        return dataclasses.replace(observation, content=text)
    fenced = observation.fence_excerpt(text)
    return dataclasses.replace(observation, content=fenced, plain=text)


def read_text(completion: Completion) -> str:
    """Return what a model said: its answer, or what it thought beside calls."""
    if completion.answer is not None:
        return completion.answer
    return find_thought(completion)


def replace_reply(completion: Completion, text: str) -> Completion:
    """Return a reply with another text, without the blocks that its provider signed."""
    calls = tuple(_drop_block(call) for call in completion.calls)
    if completion.answer is not None:
        return dataclasses.replace(
            completion, text=text, answer=text, calls=calls, reasoning=()
        )
    return dataclasses.replace(
        completion, text=text, thought=text, calls=calls, reasoning=()
    )


def _drop_block(call: ToolCall) -> ToolCall:
    return dataclasses.replace(call, form="", block=None, source="")


def find_check(
    read: Callable[[str], object] | None, text: str
) -> Callable[[str], object] | None:
    """Return what reads a changed reply, where the model's own can be read."""
    if read is None:
        return None
    try:
        read(text)
    except ValueError:
        return None
    return read


def find_purpose(purpose: str, verb: str) -> str:
    """Return what a model call is for, in a word: what its engine said, else its verb."""
    return purpose or ("reason" if verb == "samples" else verb)


def find_name(providers: Mapping[str, object], provider: object) -> str:
    """Return the name of a provider; empty for one without."""
    if not providers:
        return ""
    return next((name for name, one in providers.items() if one is provider), "")


def read_change(recorded: Json) -> Before:
    """Return a recorded change of a model call, without its messages."""
    if not isinstance(recorded, dict):
        return Before()
    provider, tools = recorded.get("provider"), recorded.get("tools")
    change, given = Before(), recorded.get("sampling")
    if isinstance(provider, str):
        change = dataclasses.replace(change, provider=provider)
    if isinstance(tools, list):
        change = dataclasses.replace(change, tools=tuple(map(str, tools)))
    if isinstance(given, dict):
        change = dataclasses.replace(change, sampling=Sampling.from_options(given))
    return change


def narrow_tools(
    offered: frozenset[str] | None, tools: tuple[str, ...] | None
) -> frozenset[str] | None:
    """Return the names of the tools that are offered, of those that were, once a hook chose."""
    if tools is None:
        return offered
    names = frozenset(tools)
    return names if offered is None else names & offered


def _change(asked: ModelQuestion, before: Before, texts: list[str]) -> ModelQuestion:
    """Return a model call as the next hook sees it."""
    tools, provider = asked.tools, asked.provider
    if before.tools is not None:
        tools = tuple(one for one in tools if one.name in before.tools)
    if before.provider is not None:
        provider = before.provider
    messages = [Message("user", text, origin="hook") for text in texts]
    sampling = asked.sampling.override(before.sampling)
    return ModelQuestion(asked.conversation.add(*messages), tools, provider, sampling)


def _list_texts(before: Before) -> tuple[str, ...]:
    given: Any = before.messages
    if isinstance(given, str) or not all(isinstance(text, str) for text in given):
        raise TypeError(f"messages: must be texts, got {given!r:.80}")
    return tuple(given)
