"""Models behind Anthropic's Messages API, and behind every endpoint that speaks it too."""

import dataclasses
import json
import os
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_core import to_json

from ...errors import ConfigError, ProviderError
from ...messages import Completion, Json, JsonObject, Message, ToolSpec
from ..base import Capabilities, Delta, Request, Sampling
from ..http.endpoint import HEADERS, Endpoint, key_of
from ..http.replies import Reply
from ..http.transport import Client, HTTPTransport, OpenReply
from ..http.wire import WireError
from .request import cached, encode_format, encode_tool, encode_turns, may_think
from .response import WireReply, status_of
from .stream import Assembly, WireEvent

DEFAULT_URL = "https://api.anthropic.com"
HOST = "api.anthropic.com"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
VERSION = "2023-06-01"
SMALLEST_BUDGET = 1024  # tokens; the API refuses less
LEAST_TOP_P = 0.95  # with thinking the API takes no less
INSTRUCTION = (
    "Reply with one JSON value and nothing else. It must fit this JSON schema:\n"
)

Effort: TypeAlias = Literal["adaptive", "low", "medium", "high", "xhigh", "max"]
EFFORTS = ("adaptive", "low", "medium", "high", "xhigh", "max")

_NUMBERS = re.compile(r"(?<!\d)\d{1,2}(?!\d)")  # not the eight digits of a date


@dataclasses.dataclass(frozen=True, kw_only=True)
class MessagesQuirks:
    """In what a model or an endpoint differs from the others that speak the Messages API.

    Args:
        sampling: it takes `temperature` and `top_p`, which Claude models since 4.7 refuse.
        json_schema: it can hold its reply to a JSON schema, as Claude models since 4.5 can.
    """

    sampling: bool = True
    json_schema: bool = False

    @classmethod
    def of(cls, base_url: str, model: str) -> Self:
        """What is known of a model by its name, and of the endpoint behind a URL."""
        if "claude" not in model.lower():
            return cls()
        version = [int(number) for number in _NUMBERS.findall(model)[:2]] or [
            99
        ]  # the newest have no number
        is_theirs = urlsplit(base_url).hostname == HOST
        return cls(
            sampling=version < [4, 7], json_schema=is_theirs and version >= [4, 5]
        )


class AnthropicProvider(Endpoint):
    """A model that is asked by the Messages API: at Anthropic, or at a gateway or local server that speaks it.

    Source: https://platform.claude.com/docs/en/api/messages

    `Sampling.seed` has no counterpart and is left out, and so is `top_p` beside a temperature. With thinking on, the
    API takes no temperature, and no `top_p` under 0.95: those are left out too.

    Args:
        model: its name at the endpoint.
        base_url: where the API lives, with or without "/v1"; Anthropic itself by default.
        api_key: falls back to ANTHROPIC_API_KEY; only Anthropic itself demands one. An empty string sends none.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs, an `anthropic-beta` header); it is not
            closed here. Without one, connections are made for each event loop, and proxies named in the environment
            are not used.
        sampling: how to pick words where a request does not say it.
        max_tokens: the most output tokens where neither says it.
        thinking: what the model may spend on thinking before it answers. A number is a budget in tokens, which comes on
            top of `max_tokens`; a word ("low" … "max") lets the model decide by that effort, and "adaptive" by its own.
            Claude models since 4.6 want a word, older ones a number. Without it, a model does as it does by default.
        cache: have the endpoint keep what it has read of tools, system and conversation for five minutes: reading it
            again costs a tenth, writing it a quarter more.
        quirks: how model and endpoint differ from others; guessed from name and URL.

    Raises:
        ConfigError: no model, no key for Anthropic itself, or a URL, key or number that cannot be used.
    """

    api = "Messages"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | SecretStr | None = None,
        client: Client | None = None,
        sampling: Sampling | None = None,
        max_tokens: int = 8192,
        thinking: int | Effort | None = None,
        cache: bool = True,
        quirks: MessagesQuirks | None = None,
    ) -> None:
        given, api_key = api_key, None  # so that no frame of an error shows it
        key = key_of(given, KEY_VARIABLE)
        del given
        if not model:
            raise ConfigError(
                "model: name the model, like AnthropicProvider('claude-sonnet-4-5')"
            )
        url = (base_url or DEFAULT_URL).rstrip("/")
        is_theirs = urlsplit(url).hostname == HOST
        if not key and is_theirs:
            raise ConfigError(
                "api_key: Anthropic wants one: set ANTHROPIC_API_KEY or pass api_key (or base_url for another endpoint)"
            )
        _check_tokens(max_tokens, thinking)
        headers: dict[str, str | SecretStr] = {**HEADERS, "anthropic-version": VERSION}
        if key:
            headers["x-api-key"] = key
        path = (
            "/messages"
            if urlsplit(url).path.rstrip("/").endswith("/v1")
            else "/v1/messages"
        )
        self._transport = HTTPTransport(url, path, headers=headers, client=client)
        self._model, self._base_url = model, self._transport.url.removesuffix(path)
        self._sampling = sampling if sampling is not None else Sampling()
        self._max_tokens, self._thinking, self._cache = max_tokens, thinking, cache
        self._quirks = quirks if quirks is not None else MessagesQuirks.of(url, model)
        self._key, self._has_key, self._key_variable = key, bool(key), KEY_VARIABLE
        self._name = "anthropic" if is_theirs else self._transport.host
        self._head = b'{"model":' + to_json(model)

    @classmethod
    def from_env(cls, model: str | None = None) -> Self:
        """The provider of ANTHROPIC_MODEL (unless `model` is given), ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY."""
        model = model or os.environ.get("ANTHROPIC_MODEL")
        if not model:
            raise ConfigError("model: name one, or set ANTHROPIC_MODEL")
        return cls(model, base_url=os.environ.get("ANTHROPIC_BASE_URL"))

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do, by its quirks."""
        return Capabilities(json_schema=self._quirks.json_schema)

    async def complete(self, request: Request) -> Completion:
        """Ask the model once.

        Raises:
            ContextTooLong: the conversation does not fit the model, or the request is larger than the endpoint takes.
            ProviderTimeout: no answer in time.
            ProviderError: no answer, one that is no Messages reply, or a refusal.
        """
        return self._completion(await self._transport.post(self._encode(request)))

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Ask the model once; the last delta carries the completion, equal to what `complete` would have returned.

        Raises as `complete` does, and a retryable `ProviderError` for a stream that ends before the reply does.
        """
        async with await self._transport.open(
            self._encode(request, b',"stream":true}')
        ) as answer:
            if not (answer.is_events and 200 <= answer.status < 300):
                completion = self._completion(await answer.read())
                yield Delta(text=completion.text, completion=completion)
                return
            assembly = Assembly()
            while (deltas := await self._next_deltas(answer, assembly)) is not None:
                for delta in deltas:
                    yield delta
            reply = Reply(answer.status, answer.headers, b"")
        wire = assembly.reply
        if wire is None:
            text = f"{self._transport.url}: the stream of {self._model} broke off before the end of its reply"
            raise ProviderError(text, status=reply.status, retryable=True)
        self._check_end(wire, reply.status)
        yield Delta(completion=wire.completion())

    async def _next_deltas(
        self, answer: OpenReply, assembly: Assembly
    ) -> list[Delta] | None:
        """What the next bytes tell those who watch, while the assembly takes every event; `None` at the end."""
        if assembly.is_over:
            await answer.finish()
            return None
        events = await answer.read_events()
        if events is None:
            return None
        told: list[Delta] = []
        events.reverse()
        while events and not assembly.is_over:
            delta = self._take(
                Reply(answer.status, answer.headers, events.pop().data.encode()),
                assembly,
            )
            if isinstance(delta, ProviderError):
                del (
                    events
                )  # so that no frame of an error shows what a server may have echoed
                raise delta
            told += [delta] if delta is not None else []
        return told

    def _take(self, told: Reply, assembly: Assembly) -> Delta | ProviderError | None:
        """Add the event whose data is the body of `told`: what watchers see of it, or the error that it means."""
        event = WireEvent.read(told.body)
        if event is None:
            return self._unusable(told)
        if event.type == "error":
            return self._failure(told, status_of(WireError.read(told.body)) or 500)
        try:
            return assembly.take(event)
        except ValueError as error:
            text = (
                f"{self._transport.url}: the stream of {self._model} is broken: {error}"
            )
            return ProviderError(text, status=told.status, retryable=True)

    def _completion(self, reply: Reply) -> Completion:
        """What a reply in one piece says."""
        if not 200 <= reply.status < 300:
            raise self._failure(reply, reply.status)
        wire = WireReply.read(reply.body)
        if wire is None:
            raise self._unusable(reply)
        self._check_end(wire, reply.status)
        return wire.completion(reply.body)

    def _check_end(self, wire: WireReply, status: int) -> None:
        if wire.refusal is not None:
            raise self._refused(wire.refusal, status)

    def _encode(self, request: Request, end: bytes = b"}") -> bytes:
        try:
            messages = request.conversation.messages
            format_, instruction = self._format(request)
            turns = encode_turns(messages, cache=self._cache, last_words=instruction)
            parts = [self._head, b',"messages":[', turns.messages, b"],"]
            if turns.system:
                parts += [b'"system":[', turns.system, b"],"]
            parts += self._tools(request)
            parts += [to_json(self._options(request, messages, format_))[1:-1], end]
            return b"".join(parts)
        except ValueError as error:
            raise ProviderError(
                f"the request to {self._model} cannot be written as JSON: {error}"
            ) from None

    def _tools(self, request: Request) -> list[bytes]:
        """The tools on offer; where a conversation holds calls, the API wants some described in any case."""
        specs, choice = request.tools, request.tool_choice
        if not specs:
            names = {
                call.name: None
                for message in request.conversation
                for call in message.calls
            }
            specs, choice = tuple([ToolSpec(name, "", {}) for name in names]), "none"
        if not specs:
            return []
        encoded = [spec.encoded(encode_tool) for spec in specs]
        if self._cache:
            encoded[-1] = cached(encoded[-1])
        none = b'"tool_choice":{"type":"none"},' if choice == "none" else b""
        return [b'"tools":[', b",".join(encoded), b"],", none]

    def _format(self, request: Request) -> tuple[JsonObject | None, str]:
        """How the reply is held to a schema: by the API where it has words for it, else by an instruction."""
        if request.schema is None:
            return None, ""
        if not self._quirks.json_schema:
            raise ProviderError(
                f"{self._model} takes no JSON schema by its quirks: ask it for text"
            )
        format_ = encode_format(request.schema)
        told = INSTRUCTION + json.dumps(request.schema.schema, ensure_ascii=False)
        return format_, "" if format_ is not None else told

    def _options(
        self, request: Request, messages: Sequence[Message], format_: JsonObject | None
    ) -> dict[str, Json]:
        """Everything that is neither conversation nor tools: the request's own sampling, else the provider's."""
        chosen = {**self._sampling.options, **request.sampling.options}
        most = (
            request.sampling.max_tokens or self._sampling.max_tokens or self._max_tokens
        )
        options: dict[str, Json] = {"max_tokens": most}
        config: dict[str, Json] = {} if format_ is None else {"format": dict(format_)}
        if isinstance(self._thinking, int) and may_think(messages):
            options["thinking"] = {"type": "enabled", "budget_tokens": self._thinking}
            options["max_tokens"] = most + self._thinking
        elif isinstance(self._thinking, str):
            # By default the newest models hide what they thought, also from the people who watch.
            options["thinking"] = {"type": "adaptive", "display": "summarized"}
            config |= {"effort": self._thinking} if self._thinking != "adaptive" else {}
        if config:
            options["output_config"] = config
        if "stop" in chosen:
            options["stop_sequences"] = chosen["stop"]
        if self._quirks.sampling:
            options |= _picking(chosen, is_thinking="thinking" in options)
        return options

    def _status_in(self, told: WireError) -> int | None:
        return status_of(told)

    def _is_too_long(self, status: int, told: WireError) -> bool:
        return status == 413 or super()._is_too_long(status, told)

    def _advice(self, status: int) -> str:
        if status == 413:
            return "the request is larger than the endpoint takes, send less or smaller attachments"
        return super()._advice(status)


def _check_tokens(max_tokens: int, thinking: int | Effort | None) -> None:
    if max_tokens < 1:
        raise ConfigError(f"max_tokens: must be 1 or more, got {max_tokens}")
    if isinstance(thinking, str) and thinking not in EFFORTS:
        raise ConfigError(
            f"thinking: must be a number of tokens or one of {', '.join(EFFORTS)}, got {thinking!r}"
        )
    if isinstance(thinking, int) and thinking < SMALLEST_BUDGET:
        raise ConfigError(
            f"thinking: must be {SMALLEST_BUDGET} tokens or more, got {thinking!r}"
        )


def _picking(chosen: dict[str, Json], *, is_thinking: bool) -> dict[str, Json]:
    """Temperature or `top_p`, never both: the models since 4.1 refuse that."""
    top_p = chosen.get("top_p")
    if "temperature" in chosen and not is_thinking:
        return {"temperature": chosen["temperature"]}
    if isinstance(top_p, float | int) and (not is_thinking or top_p >= LEAST_TOP_P):
        return {"top_p": top_p}
    return {}
