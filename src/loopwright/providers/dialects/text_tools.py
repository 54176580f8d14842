"""Gives tool calls to a model that knows text only: a provider that wraps another and talks to it in a dialect."""

import contextlib
import dataclasses
import functools
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import NamedTuple

from ...errors import ConfigError
from ...messages import Completion, Conversation, Message
from ...parsing.thinking import strip_thinking
from ..base import Capabilities, Delta, Provider, Request, stream_deltas
from ..fallback import close_all, get_secrets
from .dialect import Dialect, Parsed
from .json import JsonDialect
from .react import ReActDialect
from .streaming import Open, Silent, Watch, Watched
from .think_block import ThinkBlock
from .xml import XmlDialect

NO_TOOL_NOW = "No tool can be used now: reply with the final answer."
CUT_SHORT = "The reply was cut short inside a call. Write the call again, with less text before it."
ANSWER_CUT = "The final answer was cut short. Give it again, in fewer words."


class TextTools:
    """A provider whose model calls tools in text.

    Args:
        provider: serves the model; it is asked for text, with a JSON schema where the dialect sets one.
        dialect: "react", "react-bracket", "react-numbered" (see `ReActDialect`), "json", "xml" (see `XmlDialect`), one
            of your own, or "auto": `json` where the provider can hold the model to a schema, else `react`.
        examples: whole little conversations (user, assistant with calls, results, assistant's answer), told as turns of
            the dialect before the real conversation. Small models need about five.

    Raises `ConfigError` for an unknown dialect.
    """

    def __init__(
        self,
        provider: Provider,
        dialect: str | Dialect = "auto",
        *,
        examples: Sequence[Conversation] = (),
    ) -> None:
        self._provider = provider
        self.dialect = _dialect(dialect, provider.capabilities)
        self._examples: tuple[Message, ...] = tuple(
            m for example in examples for m in example.messages
        )

    @property
    def name(self) -> str:
        """Who serves the model."""
        return self._provider.name

    @property
    def model(self) -> str:
        """Which model it is."""
        return self._provider.model

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do by itself, and tool calls."""
        return dataclasses.replace(self._provider.capabilities, native_tools=True)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API keys of the provider that it wraps."""
        return get_secrets(self._provider)

    async def complete(self, request: Request) -> Completion:
        """Ask the model once, in the dialect.

        A request without tools, or one for an answer that fits a schema of its own, has its calls and results told as
        text; the reply is the answer as it stands. Where tools might have been there, a reply that marks its answer
        means that answer.
        """
        turn = self._turn(request)
        return turn.read(await self._provider.complete(turn.asked))

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Ask the model once; its words are told as they come, without those of the dialect.

        The text that is told is a beginning of the answer; thoughts before a call or an answer are told as reasoning.
        What is not certain to be one of these waits for the last delta, and so does everything where the wrapped
        provider cannot stream or a dialect of your own has no `watch`.
        """
        turn = self._turn(request)
        telling = Telling(turn)
        async with contextlib.aclosing(
            stream_deltas(self._provider, turn.asked)
        ) as deltas:
            async for delta in deltas:
                for told in telling.take(delta):
                    yield told

    async def aclose(self) -> None:
        """Close the wrapped provider."""
        await close_all([self._provider])

    def _turn(self, request: Request) -> "Turn":
        open_turn = request.tool_choice == "auto" and request.schema is None
        if (
            not request.tools
            or request.as_text
            or (request.tool_choice == "none" and request.schema is not None)
        ):
            asked = self._as_text(request)
            if not open_turn:
                return Turn(asked, Open(), _as_it_is)
            return Turn(
                asked,
                self._watch(asked),
                functools.partial(self._marked_answer, request=request),
            )
        shown = dataclasses.replace(
            request, conversation=self._shown(request.conversation)
        )
        read = functools.partial(self._in_dialect, request=request)
        return Turn(
            self.dialect.render(shown), self._watch(request), read, ThinkBlock()
        )

    def _watch(self, request: Request) -> Watch:
        return (
            self.dialect.watch(request)
            if isinstance(self.dialect, Watched)
            else Silent()
        )

    def _in_dialect(self, completion: Completion, request: Request) -> Completion:
        if completion.problem is not None:
            return completion
        text = strip_thinking(completion.text or completion.answer or "")
        return _as_parsed(
            completion, text, self.dialect.parse(text, request.tools), request
        )

    def _marked_answer(self, completion: Completion, request: Request) -> Completion:
        """The reply of a turn without tools: a model that is used to a dialect marks its answer all the same."""
        text = completion.text or completion.answer or ""
        parsed = self.dialect.parse(text, ())
        if (
            completion.problem is not None
            or parsed.answer is None
            or parsed.answer == text.strip()
        ):
            return completion
        return _as_parsed(completion, text, parsed, request)

    def _as_text(self, request: Request) -> Request:
        if not any(message.calls for message in request.conversation.messages):
            return dataclasses.replace(request, tools=()) if request.tools else request
        return self.dialect.render(dataclasses.replace(request, tools=()))

    def _shown(self, conversation: Conversation) -> Conversation:
        """The conversation with the examples before it, behind its system message."""
        if not self._examples:
            return conversation
        messages = conversation.messages
        opening = 1 if messages and messages[0].role == "system" else 0
        return Conversation([*messages[:opening], *self._examples, *messages[opening:]])


def _as_it_is(completion: Completion) -> Completion:
    return completion


class Turn(NamedTuple):
    """How one reply is asked for, told while it comes, and read in the end."""

    asked: Request
    watch: Watch
    read: Callable[[Completion], Completion]
    thinking: ThinkBlock | None = None


class Telling:
    """What is told of one reply while it comes; the rest of its answer goes with its end."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._told: list[str] = []
        self._reasoning: list[str] = []  # of the wrapped provider
        self._has_thought = False

    def take(self, delta: Delta) -> Iterator[Delta]:
        """What can be told now that `delta` has come."""
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
            yield Delta(reasoning=delta.reasoning)
        if delta.completion is not None:
            yield self._last(self._turn.read(delta.completion))
            return
        words, thinking = (
            self._turn.thinking.feed(delta.text)
            if self._turn.thinking
            else (delta.text, "")
        )
        if thinking:
            yield Delta(reasoning=thinking)
        for told in self._turn.watch.feed(words):
            self._told.append(told.text)
            self._has_thought = self._has_thought or told.reasoning != ""
            yield told

    def _last(self, completion: Completion) -> Delta:
        told, answer = "".join(self._told), completion.answer or ""
        rest = answer[len(told) :] if answer.startswith(told) else ""
        known = (
            self._has_thought
            or completion.problem is not None
            or completion.thought == "".join(self._reasoning)
        )
        thought = "" if known else completion.thought
        return Delta(text=rest, reasoning=thought, completion=completion)


def _dialect(dialect: str | Dialect, capabilities: Capabilities) -> Dialect:
    if not isinstance(dialect, str):
        return dialect
    name = (
        ("json" if capabilities.json_schema else "react")
        if dialect == "auto"
        else dialect
    )
    known: tuple[Dialect, ...] = (JsonDialect(), ReActDialect(), XmlDialect())
    forms: tuple[Dialect, ...] = (ReActDialect("bracket"), ReActDialect("numbered"))
    found = next((one for one in known + forms if one.name == name), None)
    if found is None:
        names, more = (
            ", ".join(repr(one.name) for one in some) for some in (known, forms)
        )
        raise ConfigError(
            f"dialect: there is no {dialect!r}; use 'auto', {names} or your own (react also as {more})"
        )
    return found


def _as_parsed(
    completion: Completion, text: str, parsed: Parsed, request: Request
) -> Completion:
    """The completion with what its text says in a dialect."""
    parsed = _checked(parsed, text, request, completion.finish_reason)
    return dataclasses.replace(
        completion,
        text=text,
        calls=parsed.calls,
        answer=parsed.answer,
        problem=parsed.problem,
        thought=parsed.thought or completion.thought,
        flags=(*completion.flags, *parsed.flags),
    )


def _checked(parsed: Parsed, text: str, request: Request, finish_reason: str) -> Parsed:
    """What was parsed, seen with what was asked for and how the reply ended."""
    goes_on = (
        parsed.answer is None and parsed.problem is None
    )  # with calls, or as a thought alone
    if goes_on and request.tool_choice == "none":
        return dataclasses.replace(parsed, calls=(), problem=NO_TOOL_NOW)
    if parsed.calls and finish_reason == "length" and not parsed.complete:
        return dataclasses.replace(parsed, calls=(), problem=CUT_SHORT)
    if parsed.answer is not None and finish_reason == "length":
        return dataclasses.replace(parsed, answer=None, problem=ANSWER_CUT)
    plain_words = parsed.problem is not None and parsed.thought == text.strip() != ""
    if plain_words and request.tool_choice == "none":
        return Parsed(
            "", (), text.strip(), None
        )  # nothing but an answer was asked for, and no marker says otherwise
    return parsed
