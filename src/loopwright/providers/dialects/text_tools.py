"""`TextTools`: tool calls for a model that only knows text, by a provider that wraps another and uses a dialect."""

import contextlib
import dataclasses
import functools
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ...errors import ConfigError
from ...messages import Completion, Conversation, Message
from ...parsing.bare_calls import unwrap_reply, unwrap_tag
from ...parsing.react_text import INVENTED
from ...parsing.thinking import strip_thinking
from ..base import (
    Capabilities,
    Delta,
    Provider,
    Request,
    bounds_attempts,
    stream_deltas,
)
from ..fallback import close_all, get_secrets
from ..recovered_calls import is_quotation
from .dialect import Dialect, Parsed, TypedDialect
from .json import JsonDialect
from .near_forms import read_near_form
from .react import ReActDialect
from .streaming import HoldingParser, PlainParser, StreamingDialect, StreamParser
from .think_block import ThinkBlock
from .xml import XmlDialect

NO_TOOL_NOW = "No tool can be used now: reply with the final answer."
CUT_SHORT = "The reply was cut short inside a call. Write the call again, with less text before it."
ANSWER_CUT = "The final answer was cut short. Give it again, in fewer words."

DIALECTS: dict[str, Callable[[], Dialect]] = {
    "json": JsonDialect,
    "react": ReActDialect,
    "react-bracket": functools.partial(ReActDialect, "bracket"),
    "react-numbered": functools.partial(ReActDialect, "numbered"),
    "xml": XmlDialect,
}


class TextTools:
    """A provider whose model calls tools in text.

    Args:
        provider: serves the model; it is asked for text, with a JSON schema if the dialect sets one.
        dialect: "react", "react-bracket", "react-numbered" (see `ReActDialect`), "json", "xml" (see `XmlDialect`), a
            dialect of your own, or "auto": `json` if the provider can constrain a reply to a schema, else `react`.
        examples: short conversations (user, assistant with calls, results, assistant's answer), written as turns of
            the dialect before the real conversation. Small models need about five.
        typed_examples: short conversations that end with a reply of a form, by the name of the form: the type of
            `ask(into=...)`, or the purpose of `ask(schema=...)`. They stand before the real conversation.

    Raises:
        ConfigError: the dialect is unknown.
    """

    def __init__(
        self,
        provider: Provider,
        dialect: str | Dialect = "auto",
        *,
        examples: Sequence[Conversation] = (),
        typed_examples: Mapping[str, Sequence[Conversation]] = MappingProxyType({}),
    ) -> None:
        self._provider = provider
        self.dialect = _choose_dialect(dialect, provider.capabilities)
        self._examples = _join(examples)
        self._typed_examples = {
            name: _join(shown) for name, shown in typed_examples.items()
        }

    @property
    def name(self) -> str:
        """The name of the wrapped provider."""
        return self._provider.name

    @property
    def model(self) -> str:
        """The model of the wrapped provider."""
        return self._provider.model

    @property
    def capabilities(self) -> Capabilities:
        """What the wrapped provider supports, and tool calls; the schema of an answer is part of the dialect."""
        return dataclasses.replace(
            self._provider.capabilities, native_tools=True, schema_with_tools=True
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API keys of the wrapped provider."""
        return get_secrets(self._provider)

    @property
    def bounds_attempts(self) -> bool:
        """Whether the wrapped provider asks several others."""
        return bounds_attempts(self._provider)

    async def complete(self, request: Request) -> Completion:
        """Call the model once, in the dialect.

        A request without tools, or for an answer with a schema, has its calls and results written as text, and its
        reply is the answer. Without tools a reply may still mark its answer as the dialect does; then that is the
        answer.
        """
        exchange = self._prepare(request)
        return exchange.read(await self._provider.complete(exchange.request))

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Call the model once and yield its reply as it arrives, without the text of the dialect.

        The text of the deltas is a prefix of the answer; thoughts before a call or an answer are reasoning. The last
        delta has the rest, which is everything if the wrapped provider cannot stream or if the dialect is not a
        `StreamingDialect`.
        """
        exchange = self._prepare(request)
        stream = _ReplyStream(exchange)
        async with contextlib.aclosing(
            stream_deltas(self._provider, exchange.request)
        ) as deltas:
            async for delta in deltas:
                for shown in stream.feed(delta):
                    yield shown

    async def aclose(self) -> None:
        """Close the wrapped provider."""
        await close_all([self._provider])

    def _prepare(self, request: Request) -> "Exchange":
        if request.tools and not _wants_text(request):
            return self._prepare_with_tools(request)
        plain = self._write_calls(request)
        if request.tool_choice != "auto" or request.schema is not None:
            return Exchange(plain, PlainParser(), _read_unchanged)
        read = functools.partial(self._read_marked_answer, request=request)
        return Exchange(plain, self._parse_stream(plain), read)

    def _prepare_with_tools(self, request: Request) -> "Exchange":
        conversation = _add_examples(request.conversation, self._examples)
        rendered = self._render(dataclasses.replace(request, conversation=conversation))
        read = functools.partial(self._read_in_dialect, request=request)
        return Exchange(rendered, self._parse_stream(request), read, ThinkBlock())

    def _parse_stream(self, request: Request) -> StreamParser:
        if isinstance(self.dialect, StreamingDialect):
            return self.dialect.parse_stream(request)
        return HoldingParser()

    def _read_in_dialect(self, completion: Completion, request: Request) -> Completion:
        if completion.problem is not None:
            return completion
        text = strip_thinking(_get_text(completion))
        parse = self.dialect.parse
        if request.schema is not None and isinstance(self.dialect, TypedDialect):
            parse = self.dialect.parse_typed
        parsed = parse(text, request.tools)
        if self._is_quotation(parsed, text, request):
            parsed = Parsed("", (), text.strip(), None)
        elif self._is_strange(parsed, text, request):
            is_answer = parsed.answer is not None
            near = read_near_form(self.dialect, text, request, calls_only=is_answer)
            parsed = parsed if near is None else near
        return _apply(parsed, completion, text, request)

    def _is_quotation(self, parsed: Parsed, text: str, request: Request) -> bool:
        """Return whether calls that a dialect with tags read without any may be a text that the model repeats."""
        if not parsed.calls or parsed.complete:
            return False
        is_tagged = isinstance(self.dialect, XmlDialect)
        return is_tagged and is_quotation(text, parsed.calls, request)

    def _is_strange(self, parsed: Parsed, text: str, request: Request) -> bool:
        """Return whether a reply may mean a call or an answer in another form than that of the dialect."""
        if request.tool_choice == "none" or parsed.calls or INVENTED in parsed.flags:
            return False
        if parsed.answer is not None:
            is_marked = parsed.answer != text.strip()
            return "{" in parsed.answer and not is_marked
        # By the rules for its own tags, a dialect with tags knows best what is quoted.
        if not isinstance(self.dialect, XmlDialect):
            return True
        return unwrap_reply(text) is not None or unwrap_tag(text) is not None

    def _read_marked_answer(
        self, completion: Completion, request: Request
    ) -> Completion:
        """Read a reply without tools, in which a model that knows the dialect may mark its answer all the same."""
        if completion.problem is not None:
            return completion
        text = _get_text(completion)
        parsed = self.dialect.parse(text, ())
        if parsed.answer in {None, text.strip()}:
            return completion
        return _apply(parsed, completion, text, request)

    def _write_calls(self, request: Request) -> Request:
        """Return the request without tools, its calls and results written as text."""
        if request.tools:
            request = dataclasses.replace(request, tools=())
        name = "" if request.schema is None else request.schema.name
        if examples := self._typed_examples.get(name, ()):
            conversation = _add_examples(request.conversation, examples)
            request = dataclasses.replace(request, conversation=conversation)
        if any(message.calls for message in request.conversation.messages):
            return self._render(request)
        return request

    def _render(self, request: Request) -> Request:
        """Return the request as the dialect writes it, with the bounds of the attempt, of which dialects know nothing."""
        rendered = self.dialect.render(request)
        return dataclasses.replace(
            rendered, timeout=request.timeout, guard=request.guard
        )


def _join(examples: Sequence[Conversation]) -> tuple[Message, ...]:
    return tuple(message for example in examples for message in example.messages)


def _add_examples(
    conversation: Conversation, examples: tuple[Message, ...]
) -> Conversation:
    """Return the conversation with examples behind its system message."""
    if not examples:
        return conversation
    messages = conversation.messages
    has_system = bool(messages) and messages[0].role == "system"
    start = int(has_system)
    return Conversation([*messages[:start], *examples, *messages[start:]])


def _wants_text(request: Request) -> bool:
    """Return whether the reply is the answer although the request has tools."""
    has_fixed_form = request.tool_choice == "none" and request.schema is not None
    return request.as_text or has_fixed_form


def _read_unchanged(completion: Completion) -> Completion:
    return completion


def _get_text(completion: Completion) -> str:
    return completion.text or completion.answer or ""


class Exchange(NamedTuple):
    """A request for the wrapped provider, and how its reply is parsed: in a stream, and at its end."""

    request: Request
    parser: StreamParser
    read: Callable[[Completion], Completion]
    think_block: ThinkBlock | None = None


class _ReplyStream:
    """Turns the deltas of the wrapped provider into deltas without the text of the dialect."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._shown: list[str] = []
        self._reasoning: list[str] = []  # of the wrapped provider
        self._has_thought = False

    def feed(self, delta: Delta) -> Iterator[Delta]:
        """Yield what is certain now that `delta` has arrived."""
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
            yield Delta(reasoning=delta.reasoning)
        if delta.completion is not None:
            yield self._end(self._exchange.read(delta.completion))
            return
        text, thinking = delta.text, ""
        if self._exchange.think_block is not None:
            text, thinking = self._exchange.think_block.feed(text)
        if thinking:
            yield Delta(reasoning=thinking)
        for shown in self._exchange.parser.feed(text):
            self._shown.append(shown.text)
            self._has_thought = self._has_thought or shown.reasoning != ""
            yield shown

    def _end(self, completion: Completion) -> Delta:
        """Return the last delta, with the rest of the answer, and the thought if it was not shown."""
        shown, answer = "".join(self._shown), completion.answer or ""
        rest = answer[len(shown) :] if answer.startswith(shown) else ""
        thought = self._find_new_thought(completion)
        return Delta(text=rest, reasoning=thought, completion=completion)

    def _find_new_thought(self, completion: Completion) -> str:
        if self._has_thought or completion.problem is not None:
            return ""
        if completion.thought == "".join(self._reasoning):
            return ""
        return completion.thought


def _choose_dialect(dialect: str | Dialect, capabilities: Capabilities) -> Dialect:
    if not isinstance(dialect, str):
        return dialect
    if dialect == "auto":
        return JsonDialect() if capabilities.json_schema else ReActDialect()
    if dialect in DIALECTS:
        return DIALECTS[dialect]()
    raise ConfigError(
        f"dialect: there is no {dialect!r}; use 'auto', 'json', 'react', 'xml' or your own "
        "(react also as 'react-bracket', 'react-numbered')"
    )


def _apply(
    parsed: Parsed, completion: Completion, text: str, request: Request
) -> Completion:
    """Return the completion with what was parsed from its text."""
    parsed = _check(parsed, text, request, is_cut=completion.finish_reason == "length")
    return dataclasses.replace(
        completion,
        text=text,
        calls=parsed.calls,
        answer=parsed.answer,
        problem=parsed.problem,
        thought=parsed.thought or completion.thought,
        flags=(*completion.flags, *parsed.flags),
    )


def _check(parsed: Parsed, text: str, request: Request, *, is_cut: bool) -> Parsed:
    """Return what was parsed, or a problem if the request or the end of the reply rules it out."""
    if parsed.answer is not None:
        if is_cut:
            return dataclasses.replace(parsed, answer=None, problem=ANSWER_CUT)
        return parsed
    is_answer_required = request.tool_choice == "none"
    if parsed.problem is not None:
        is_plain = parsed.thought == text.strip() != ""
        if is_answer_required and is_plain:  # no marker says that it is anything else
            return Parsed("", (), text.strip(), None)
        return parsed
    if is_answer_required:
        return dataclasses.replace(parsed, calls=(), problem=NO_TOOL_NOW)
    if parsed.calls and is_cut and not parsed.complete:
        return dataclasses.replace(parsed, calls=(), problem=CUT_SHORT)
    return parsed
