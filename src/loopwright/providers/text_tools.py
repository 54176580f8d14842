"""Gives tool calls to a model that knows text only: a provider that wraps another and talks to it in a dialect."""

import dataclasses
from collections.abc import Sequence

from ..errors import ConfigError
from ..messages import Completion, Conversation, Message
from ..parsing.thinking import without_thinking
from ..provider import Capabilities, Provider, Request
from .dialects import Dialect, JsonDialect, Parsed, ReActDialect

NO_TOOL_NOW = "No tool can be used now: reply with the final answer."
CUT_SHORT = "The reply was cut short inside a call. Write the call again, with less text before it."
ANSWER_CUT = "The final answer was cut short. Give it again, in fewer words."


class TextTools:
    """A provider whose model calls tools in text.

    Args:
        provider: serves the model; it is asked for text, with a JSON schema where the dialect sets one.
        dialect: "react", "react-bracket", "react-numbered" (see `ReActDialect`), "json", one of your own, or "auto":
            `json` where the provider can hold the model to a schema, else `react`.
        examples: whole little conversations (user, assistant with calls, results, assistant's answer), told as turns of
            the dialect before the real conversation. Small models need about five.

    Raises `ConfigError` for an unknown dialect.
    """

    def __init__(
        self, provider: Provider, dialect: str | Dialect = "auto", *, examples: Sequence[Conversation] = ()
    ) -> None:
        self._provider = provider
        self.dialect = _dialect(dialect, provider.capabilities)
        self._examples: tuple[Message, ...] = tuple(m for example in examples for m in example.messages)

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

    async def complete(self, request: Request) -> Completion:
        """Ask the model once, in the dialect.

        A request without tools, or one for an answer that fits a schema of its own, has its calls and results told as
        text; the reply is the answer as it stands. Where tools might have been there, a reply that marks its answer
        means that answer.
        """
        if not request.tools or request.as_text or (request.tool_choice == "none" and request.schema is not None):
            completion = await self._provider.complete(self._as_text(request))
            open_turn = request.tool_choice == "auto" and request.schema is None
            return self._marked_answer(completion, request) if open_turn else completion
        shown = dataclasses.replace(request, conversation=self._shown(request.conversation))
        completion = await self._provider.complete(self.dialect.render(shown))
        if completion.problem is not None:
            return completion
        text = without_thinking(completion.text or completion.answer or "")
        return _as_parsed(completion, text, self.dialect.parse(text, request.tools), request)

    def _marked_answer(self, completion: Completion, request: Request) -> Completion:
        """The reply of a turn without tools: a model that is used to a dialect marks its answer all the same."""
        text = completion.text or completion.answer or ""
        parsed = self.dialect.parse(text, ())
        if completion.problem is not None or parsed.answer is None:
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


def _dialect(dialect: str | Dialect, capabilities: Capabilities) -> Dialect:
    if not isinstance(dialect, str):
        return dialect
    name = ("json" if capabilities.json_schema else "react") if dialect == "auto" else dialect
    known: tuple[Dialect, ...] = (JsonDialect(), ReActDialect())
    forms: tuple[Dialect, ...] = (ReActDialect("bracket"), ReActDialect("numbered"))
    found = next((one for one in known + forms if one.name == name), None)
    if found is None:
        names, more = (", ".join(repr(one.name) for one in some) for some in (known, forms))
        raise ConfigError(f"dialect: there is no {dialect!r}; use 'auto', {names} or your own (react also as {more})")
    return found


def _as_parsed(completion: Completion, text: str, parsed: Parsed, request: Request) -> Completion:
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
    goes_on = parsed.answer is None and parsed.problem is None  # with calls, or as a thought alone
    if goes_on and request.tool_choice == "none":
        return dataclasses.replace(parsed, calls=(), problem=NO_TOOL_NOW)
    if parsed.calls and finish_reason == "length" and not parsed.complete:
        return dataclasses.replace(parsed, calls=(), problem=CUT_SHORT)
    if parsed.answer is not None and finish_reason == "length":
        return dataclasses.replace(parsed, answer=None, problem=ANSWER_CUT)
    plain_words = parsed.problem is not None and parsed.thought == text.strip() != ""
    if plain_words and request.tool_choice == "none":
        return Parsed("", (), text.strip(), None)  # nothing but an answer was asked for, and no marker says otherwise
    return parsed
