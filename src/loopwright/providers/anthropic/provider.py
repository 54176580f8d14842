"""`AnthropicProvider`: models behind Anthropic's Messages API and every compatible endpoint."""

import functools
import json
import os
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Literal, Self, TypeAlias, Unpack
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_core import from_json, to_json

from ..._internal import dataclasses
from ...errors import ConfigError, ProviderError
from ...messages import Completion, Json, JsonObject
from ..base import (
    Capabilities,
    Delta,
    Request,
    Sampling,
)
from ..called_tools import describe_called_tools
from ..http.endpoint import HEADERS, Endpoint, read_key
from ..http.response import Response
from ..http.transport import Client, HTTPTransport, StreamingResponse
from ..http.wire import WireError
from ..settings import EndpointOptions, Settings, find_model
from ..thinking_budgets import BUDGETS, MIN_BUDGET
from .request import (
    CODE_EXECUTION_BETA,
    build_format,
    build_provider_tool,
    can_think,
    encode_tool,
    encode_turns,
    mark_cached,
)
from .response import WireCount, WireReply, read_status
from .stream import ReplyAssembly, WireEvent

DEFAULT_URL = "https://api.anthropic.com"
HOST = "api.anthropic.com"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
VERSION = "2023-06-01"
BETA_HEADER = "anthropic-beta"
RESERVED = frozenset({"model", "messages", "tools", "stream", "system"})
COUNTED = ("model", "messages", "system", "tools", "tool_choice", "thinking")
"""The fields of a request that its tokens are counted of."""
UNKNOWN = ("presence_penalty", "frequency_penalty")
MIN_TOP_P = 0.95  # beside thinking; the API refuses less
BESIDE_THINKING = "the API takes none beside thinking"
LOW_TOP_P = f"beside thinking the API takes none below {MIN_TOP_P}"
NEWEST = [99]  # the version of a model without a number in its name
INSTRUCTION = (
    "Reply with one JSON value and nothing else. It must fit this JSON schema:\n"
)

Effort: TypeAlias = Literal["adaptive", "low", "medium", "high", "xhigh", "max"]
EFFORTS = ("adaptive", "low", "medium", "high", "xhigh", "max")

_NUMBERS = re.compile(r"(?<!\d)\d{1,2}(?!\d)")  # excludes the eight digits of a date


@dataclasses.dataclass(frozen=True, kw_only=True)
class MessagesQuirks:
    """How a model or an endpoint differs from others that speak the Messages API.

    Args:
        sampling: it accepts `temperature` and `top_p`, which Claude models since 4.7 refuse.
        json_schema: it can constrain its reply to a JSON schema, as Claude models since 4.5 can.
        effort: it takes an effort, as Claude models since 4.6 do; older ones take a budget of tokens.
        thinking: it can think, as Claude models since 3.7 can.
    """

    sampling: bool = True
    json_schema: bool = False
    effort: bool = False
    thinking: bool = True

    @classmethod
    def guess(cls, base_url: str, model: str) -> Self:
        """Return the known quirks of a model, by its name, at the endpoint behind a URL."""
        if "claude" not in model.lower():
            return cls()
        version = list(map(int, _NUMBERS.findall(model)[:2])) or NEWEST
        is_anthropic = urlsplit(base_url).hostname == HOST
        return cls(
            sampling=version < [4, 7],
            json_schema=is_anthropic and version >= [4, 5],
            effort=version >= [4, 6],
            thinking=version >= [3, 7],
        )


class AnthropicProvider(Endpoint):
    """A model behind the Messages API: at Anthropic, or at a compatible gateway or local server.

    Source: https://platform.claude.com/docs/en/api/messages

    `Sampling.seed` has no counterpart, nor has `top_p` beside a temperature. With thinking, the API accepts no temperature,
    no `top_k` and no `top_p` under 0.95. What an engine sets by itself is not sent then, what a person chose is refused.

    Args:
        model: its name at the endpoint.
        base_url: where the API lives, with or without "/v1"; Anthropic by default.
        api_key: ANTHROPIC_API_KEY by default; only Anthropic requires a key. An empty text sends none.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs, an `anthropic-beta` header); it is not
            closed here. Without one, each event loop has its own connections, which honour the proxies of the
            environment.
        sampling: the settings that a request leaves open.
        max_tokens: upper bound of the output tokens if neither the request nor `sampling` sets one.
        thinking: how much the model may think before it answers. A number is a budget in tokens, added to `max_tokens`;
            the `max_tokens` of a request bounds thinking and answer together, so that a small one leaves a smaller
            budget or, under 1,024, none. "low" to "max" is an effort, and "adaptive" leaves the effort to the model.
            Claude models since 4.6 need one of the texts, older ones a number. `None` leaves it to the model's default.
        cache: whether the endpoint caches tools, system and conversation for five minutes: reading them again costs a
            tenth, writing them a quarter more.
        quirks: how the model and the endpoint differ from others; guessed from name and URL by default.

    Raises:
        ConfigError: there is no model, no key for Anthropic, or the URL, key or a number cannot be used.
    """

    api = "Messages"
    opaque_names = ("signature", "redacted_thinking", "`thinking`", "thinking block")

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
        url = (base_url or DEFAULT_URL).rstrip("/")
        is_anthropic = urlsplit(url).hostname == HOST
        given, api_key = api_key, None  # so that no frame of an error shows the key
        self._key, self._key_variable = read_key(given, KEY_VARIABLE), KEY_VARIABLE
        del given
        _check_model(model, self._key, is_anthropic=is_anthropic)
        _check_tokens(max_tokens, thinking)
        path = _choose_path(url)
        self._transport = HTTPTransport(
            url, path, headers=_build_headers(self._key), client=client
        )
        self._counter = HTTPTransport(
            url,
            f"{path}/count_tokens",
            headers=_build_headers(self._key),
            client=client,
        )
        self._model = model
        self._base_url = self._transport.url.removesuffix(path)
        self._name = "anthropic" if is_anthropic else self._transport.host
        self._sampling = sampling if sampling is not None else Sampling()
        self._max_tokens, self._thinking, self._cache = max_tokens, thinking, cache
        self._quirks = (
            quirks if quirks is not None else MessagesQuirks.guess(url, model)
        )
        self._head = b'{"model":' + to_json(model)

    @classmethod
    def from_env(
        cls,
        model: str | None = None,
        *,
        max_tokens: int = 8192,
        thinking: int | Effort | None = None,
        **options: Unpack[EndpointOptions],
    ) -> Self:
        """Return the provider for ANTHROPIC_MODEL (unless `model` is given), ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY."""
        options["base_url"] = options.get("base_url") or os.environ.get(
            "ANTHROPIC_BASE_URL"
        )
        return cls(
            find_model("anthropic", model),
            max_tokens=max_tokens,
            thinking=thinking,
            **options,
        )

    @property
    def capabilities(self) -> Capabilities:
        """What the model supports, by its quirks."""
        able = self._quirks.json_schema
        thinking = self._thinking if isinstance(self._thinking, int) else 0
        return Capabilities(
            json_schema=able,
            schema_with_tools=able,
            context_tokens=self._size.context,
            max_output_tokens=self._max_tokens + thinking,
            provider_tools=("web_search", "code_interpreter"),
            images=True,
            documents=True,
        )

    async def complete(self, request: Request) -> Completion:
        """Call the model once and return its reply.

        Raises:
            ContextTooLong: the conversation does not fit the model, or the request is larger than the endpoint accepts.
            ProviderTimeout: no response in time.
            ProviderError: no response, one that is not a Messages reply, or a refusal.
        """
        encode = functools.partial(self._encode, request)
        async with await self._open(self._transport, request, encode) as response:
            return self._read_reply(await response.read())

    async def count(self, request: Request) -> int:
        """Return how many input tokens a request has, as the endpoint counts them (`/v1/messages/count_tokens`)."""
        whole = from_json(self._encode(request, self.source))
        counted = {name: whole[name] for name in COUNTED if name in whole}
        response = await self._counter.post(to_json(counted))
        wire = WireCount.read(response.body) if response.is_success else None
        if wire is None:
            raise self._build_error(response, response.status)
        return wire.input_tokens

    async def aclose(self) -> None:
        """Close the connections of the running event loop; an injected client stays open."""
        await self._counter.aclose()
        await super().aclose()

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Call the model once; the last delta carries the completion, equal to what `complete` would have returned.

        Raise as `complete` does, and a retryable `ProviderError` for a stream that ends before the reply does.
        """
        encode = functools.partial(self._encode, request, end=b',"stream":true}')
        async with await self._open(self._transport, request, encode) as response:
            if not response.is_event_stream:
                completion = self._read_reply(await response.read())
                yield Delta(text=completion.text, completion=completion)
                return
            assembly = ReplyAssembly()
            while (deltas := await self._read_deltas(response, assembly)) is not None:
                for delta in deltas:
                    yield delta
            status = response.status
        wire = assembly.build()
        if wire is None:
            text = f"{self._transport.url}: the stream of {self._model} broke off before the end of its reply"
            raise ProviderError(text, status=status, retryable=True)
        self._check_refusal(wire, status)
        yield Delta(completion=self._mark_source(wire.completion()))

    async def _read_deltas(
        self, response: StreamingResponse, assembly: ReplyAssembly
    ) -> list[Delta] | None:
        """Return the deltas of the next bytes; `None` at the end of the stream."""
        if assembly.is_over:
            await response.finish()
            return None
        events = await response.read_events()
        if events is None:
            return None
        deltas: list[Delta] = []
        events.reverse()
        while events and not assembly.is_over:
            body = events.pop().data.encode()
            event = Response(response.status, response.head.headers, body)
            delta = self._read_event(event, assembly)
            if isinstance(delta, ProviderError):
                # No frame of the error may show what a server may have echoed.
                del events, event, body
                raise delta
            if delta is not None:
                deltas.append(delta)
        return deltas

    def _read_event(
        self, event: Response, assembly: ReplyAssembly
    ) -> Delta | ProviderError | None:
        """Add the event in a body; return what it shows of the reply, or the error that it reports."""
        wire = WireEvent.read(event.body)
        if wire is None:
            return self._build_unreadable_error(event)
        if wire.type == "error":
            status = read_status(WireError.read(event.body)) or 500
            return self._build_error(event, status)
        try:
            return assembly.add(wire)
        except ValueError as error:
            text = (
                f"{self._transport.url}: the stream of {self._model} is broken: {error}"
            )
            return ProviderError(text, status=event.status, retryable=True)

    def _read_reply(self, response: Response) -> Completion:
        """Return the completion of a whole reply."""
        if not response.is_success:
            raise self._build_error(response, response.status)
        wire = WireReply.read(response.body)
        if wire is None:
            raise self._build_unreadable_error(response)
        self._check_refusal(wire, response.status)
        return self._mark_source(wire.completion(response.body))

    def _check_refusal(self, wire: WireReply, status: int) -> None:
        if wire.refusal is not None:
            raise self._build_refusal(wire.refusal, status)

    def _encode(self, request: Request, source: str | None, end: bytes = b"}") -> bytes:
        try:
            messages = request.conversation.messages
            format_, instruction = self._choose_format(request)
            turns = encode_turns(
                messages, cache=self._cache, instruction=instruction, source=source
            )
            parts = [self._head, b',"messages":[', turns.messages, b"],"]
            if turns.system:
                parts += [b'"system":[', turns.system, b"],"]
            parts += self._encode_tools(request)
            may_think = can_think(messages, source)
            options = self._build_options(request, format_, may_think=may_think)
            parts += [to_json(options)[1:-1], end]
            return b"".join(parts)
        except ValueError as error:
            raise ProviderError(
                f"the request to {self._model} cannot be written as JSON: {error}"
            ) from None

    def _encode_tools(self, request: Request) -> list[bytes]:
        """Encode the tools; if the conversation has calls, the API requires descriptions in any case."""
        specs, choice = request.tools, request.tool_choice
        offered = request.provider_tools
        if not specs and not offered:
            specs, choice = describe_called_tools(request.conversation), "none"
        left = request.max_provider_calls
        encoded = [to_json(build_provider_tool(tool, left)) for tool in offered]
        encoded += [spec.encoded(encode_tool) for spec in specs]
        if not encoded:
            return []
        if self._cache:
            encoded[-1] = mark_cached(encoded[-1])
        parts = [b'"tools":[', b",".join(encoded), b"],"]
        if choice == "none":
            parts.append(b'"tool_choice":{"type":"none"},')
        return parts

    def _choose_format(self, request: Request) -> tuple[JsonObject | None, str]:
        """Return the API's format for the request's schema, or an instruction if the API cannot express it."""
        if request.schema is None:
            return None, ""
        if not self._quirks.json_schema:
            raise ProviderError(
                f"{self._model} takes no JSON schema, as its quirks say; ask it for text"
            )
        format_ = build_format(request.schema)
        if format_ is not None:
            return format_, ""
        return None, INSTRUCTION + json.dumps(request.schema.schema, ensure_ascii=False)

    def _build_options(
        self, request: Request, format_: JsonObject | None, *, may_think: bool
    ) -> dict[str, Json]:
        """Return everything but conversation and tools: the request's own settings, else the provider's."""
        settings = self._read_settings(request)
        extra = settings.take_extra_body(RESERVED)
        settings.refuse_samples()
        settings.refuse(*UNKNOWN)
        settings.drop("seed")
        thinking = self._choose_thinking(settings)
        max_tokens = self._sampling.max_tokens or self._max_tokens
        bound = request.sampling.max_tokens
        options: dict[str, Json] = {"max_tokens": bound or max_tokens}
        output: dict[str, Json] = {} if format_ is None else {"format": dict(format_)}
        if isinstance(thinking, str):
            options["thinking"] = _build_thinking(thinking)
            if thinking not in {"adaptive", "none"}:
                output["effort"] = thinking
        elif thinking is not None and may_think:
            if bound is None:
                options["max_tokens"] = max_tokens + thinking
            else:
                thinking = min(thinking, max(bound - max_tokens, bound // 2))
            if thinking >= MIN_BUDGET:
                options["thinking"] = {"type": "enabled", "budget_tokens": thinking}
        if output:
            options["output_config"] = output
        if "stop" in settings:
            options["stop_sequences"] = settings["stop"]
        is_thinking = "thinking" in options and thinking != "none"
        return {**options, **self._choose_sampling(settings, is_thinking), **extra}

    def _choose_sampling(
        self, settings: Settings, is_thinking: bool
    ) -> dict[str, Json]:
        """Return the temperature or `top_p`, of which models since 4.1 refuse both together, and `top_k`."""
        if not self._quirks.sampling:
            settings.drop("temperature", "top_p")
            settings.refuse("top_k")
        if is_thinking:
            settings.drop("temperature", why=BESIDE_THINKING)
            settings.refuse("top_k", why=BESIDE_THINKING)
            top_p = settings.get("top_p")
            if isinstance(top_p, float | int) and top_p < MIN_TOP_P:
                settings.drop("top_p", why=LOW_TOP_P)
        if "temperature" in settings:
            settings.drop("top_p", why="the API takes none beside a temperature")
        names = ("temperature", "top_p", "top_k")
        return {name: settings[name] for name in names if name in settings}

    def _choose_thinking(self, settings: Settings) -> int | str | None:
        """Return how much the model may think: by the effort of the settings, else as the provider was made."""
        if not self._quirks.thinking:
            settings.refuse("effort")
        effort = settings.get("effort")
        if effort is None:
            return self._thinking
        if effort == "none":
            return "none"
        if self._quirks.effort:
            return "low" if effort == "minimal" else str(effort)
        return BUDGETS[str(effort)]

    def _read_headers(self, request: Request) -> Mapping[str, str]:
        headers = super()._read_headers(request)
        if not any(tool.kind == "code_interpreter" for tool in request.provider_tools):
            return headers
        wanted = [headers.get(BETA_HEADER), CODE_EXECUTION_BETA]
        return {**headers, BETA_HEADER: ",".join(filter(None, wanted))}

    def _read_status(self, failure: WireError) -> int | None:
        return read_status(failure)

    def _is_too_long(self, status: int, failure: WireError) -> bool:
        return status == 413 or super()._is_too_long(status, failure)

    def _explain_status(self, status: int) -> str:
        if status == 413:
            return "the request is larger than the endpoint takes, send less or smaller attachments"
        return super()._explain_status(status)


def _check_model(model: str, key: SecretStr | None, *, is_anthropic: bool) -> None:
    if not model:
        raise ConfigError(
            "model: missing; pass one, like AnthropicProvider('claude-sonnet-4-5')"
        )
    if is_anthropic and key is None:
        raise ConfigError(
            "api_key: Anthropic requires one; set ANTHROPIC_API_KEY or pass api_key (or base_url for another endpoint)"
        )


def _check_tokens(max_tokens: int, thinking: int | Effort | None) -> None:
    if max_tokens < 1:
        raise ConfigError(f"max_tokens: must be 1 or more, got {max_tokens}")
    if isinstance(thinking, str) and thinking not in EFFORTS:
        raise ConfigError(
            f"thinking: must be a number of tokens or one of {', '.join(EFFORTS)}, got {thinking!r}"
        )
    if isinstance(thinking, int) and thinking < MIN_BUDGET:
        raise ConfigError(
            f"thinking: must be {MIN_BUDGET} tokens or more, got {thinking!r}"
        )


def _choose_path(url: str) -> str:
    if urlsplit(url).path.rstrip("/").endswith("/v1"):
        return "/messages"
    return "/v1/messages"


def _build_headers(key: SecretStr | None) -> dict[str, str | SecretStr]:
    headers: dict[str, str | SecretStr] = {**HEADERS, "anthropic-version": VERSION}
    if key is not None:
        headers["x-api-key"] = key
    return headers


def _build_thinking(effort: str) -> dict[str, Json]:
    if effort == "none":
        return {"type": "disabled"}
    # By default the newest models hide their thinking from observers too.
    return {"type": "adaptive", "display": "summarized"}
