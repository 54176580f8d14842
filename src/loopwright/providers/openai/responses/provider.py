"""`OpenAIResponsesProvider`: models behind OpenAI's Responses API and every compatible endpoint."""

import functools
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Self, Unpack

from pydantic import SecretStr
from pydantic_core import to_json

from ....errors import ConfigError, ContextTooLong, ProviderError
from ....messages import Completion, Json
from ...base import (
    Capabilities,
    Delta,
    Request,
    Sampling,
)
from ...call_names import make_ids_unique
from ...http.endpoint import Endpoint, read_key
from ...http.response import Response
from ...http.sse import ServerEvent
from ...http.tokens import BearerToken, TokenCallback
from ...http.transport import Client, HTTPTransport, StreamingResponse
from ...http.wire import WireError
from ...provider_tools import bound_uses
from ...settings import EndpointOptions, find_model
from ..provider import DEFAULT_URL, END_OF_STREAM, build_headers
from .quirks import ResponsesQuirks
from .request import (
    build_provider_tool,
    build_text_format,
    encode_loose_tool,
    encode_tool,
    get_message_encoder,
)
from .response import WireReply
from .stream import ReplyAssembly, WireEvent

PATH = "/responses"
KEY_VARIABLE = "OPENAI_API_KEY"
URL_VARIABLE = "OPENAI_BASE_URL"
RESERVED = frozenset({"model", "input", "tools", "stream", "store", "text"})
# What the API has no field for.
UNKNOWN = ("top_k", "presence_penalty", "frequency_penalty")
STREAM = b',"stream":true'


class OpenAIResponsesProvider(Endpoint):
    """A model behind the Responses API: at OpenAI, which takes tools for its reasoning models nowhere else.

    Source: https://platform.openai.com/docs/api-reference/responses

    Nothing is stored at the endpoint. Each request holds the whole conversation, with the model's encrypted reasoning
    as it came. `Sampling.stop` and `Sampling.seed` have no counterpart, nor have `temperature` and `top_p` for models
    that reason: what an engine sets by itself is not sent, what a person chose is refused.

    Args:
        model: its name at the endpoint.
        base_url: where the API lives, with its version; OpenAI by default.
        api_key: OPENAI_API_KEY by default; only OpenAI requires a key. An empty text sends none.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here. Without one,
            each event loop has its own connections, which honour the proxies of the environment.
        token: returns a bearer token for each request, in place of a key: an Entra token for Azure.
        sampling: the settings that a request leaves open.
        quirks: how the model and the endpoint differ from others; guessed from the model's name by default.

    Raises:
        ConfigError: there is no model, no key for OpenAI, or the URL or key cannot be used.
    """

    api = "Responses"
    # Encrypted reasoning of another key, or of a model that is gone.
    opaque_names = (
        "encrypted_content",
        "encrypted content",
        "reasoning item",
        "'reasoning'",
    )

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | SecretStr | None = None,
        client: Client | None = None,
        token: TokenCallback | None = None,
        sampling: Sampling | None = None,
        quirks: ResponsesQuirks | None = None,
    ) -> None:
        url = base_url or DEFAULT_URL
        is_openai = url.rstrip("/") == DEFAULT_URL
        given, api_key = api_key, None  # so that no frame of an error shows the key
        self._key, self._key_variable = read_key(given, KEY_VARIABLE), KEY_VARIABLE
        del given
        _check_options(model, self._key, is_openai=is_openai and token is None)
        authorize = None if token is None else BearerToken(token)
        self._credentials = "" if token is None else "the token of token= was"
        self._transport = HTTPTransport(
            url, PATH, headers=self._build_headers(), client=client, authorize=authorize
        )
        self._model = model
        self._base_url = self._transport.url.removesuffix(PATH)
        self._name = "openai" if is_openai else self._transport.host
        self._sampling = sampling if sampling is not None else Sampling()
        self._quirks = quirks if quirks is not None else ResponsesQuirks.guess(model)
        self._encode_tool = (
            encode_tool if self._quirks.strict_tools else encode_loose_tool
        )
        self._head = b'{"model":' + to_json(model) + b',"input":['

    def _build_headers(self) -> dict[str, str | SecretStr]:
        return build_headers(self._key)

    @classmethod
    def from_env(
        cls, model: str | None = None, **options: Unpack[EndpointOptions]
    ) -> Self:
        """Return the provider that OPENAI_MODEL (unless `model` is given), OPENAI_BASE_URL and OPENAI_API_KEY describe."""
        options["base_url"] = options.get("base_url") or os.environ.get(URL_VARIABLE)
        return cls(find_model("openai", model), **options)

    @property
    def capabilities(self) -> Capabilities:
        """What the endpoint supports, by its quirks; the API has no stop sequences."""
        able = self._quirks.json_schema
        size = self._size
        return Capabilities(
            json_schema=able,
            stop=False,
            schema_with_tools=able,
            context_tokens=size.context,
            max_output_tokens=size.output,
            provider_tools=self._quirks.provider_tools,
            images=self._takes_images,
            documents=self._takes_images,
        )

    async def complete(self, request: Request) -> Completion:
        """Call the model once and return its reply.

        A request whose opaque data is refused is sent once again without it.

        Raises:
            ContextTooLong: the conversation does not fit the model.
            ProviderTimeout: no response in time.
            ProviderError: no response, one that is not a Responses reply, or a refusal.
        """
        encode = functools.partial(self._encode, request)
        async with await self._open(self._transport, request, encode) as response:
            return self._read_reply(await response.read())

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Call the model once and yield its reply as it arrives; the last delta carries the completion.

        Raise as `complete` does, and a retryable `ProviderError` for a stream that ends before the reply does.
        """
        encode = functools.partial(self._encode, request, end=STREAM)
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
        yield Delta(completion=self._build_completion(wire, status))

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
        for event in events:
            if event.data in ("", END_OF_STREAM):
                continue
            delta = assembly.add(self._read_event(event, response))
            if delta is not None:
                deltas.append(delta)
        return deltas

    def _read_event(self, event: ServerEvent, response: StreamingResponse) -> WireEvent:
        wire = WireEvent.read(event.data)
        if wire is not None and not wire.is_failure:
            return wire
        if wire is not None:
            body = event.data.encode()
            status = WireError.read(body).status or response.status
            raise self._build_failure(body, status)
        excerpt = self._transport.excerpt(event.data)
        text = f"{self._transport.url} sent an event that is not a part of a Responses reply: {excerpt}"
        raise ProviderError(text, status=response.status)

    def _read_reply(self, response: Response) -> Completion:
        """Return the completion of a whole reply."""
        if not response.is_success:
            raise self._build_error(response, response.status)
        wire = WireReply.read(response.body)
        if wire is None:
            raise self._build_unreadable_error(response)
        return self._build_completion(wire, response.status)

    def _build_completion(self, wire: WireReply, status: int) -> Completion:
        """Return the completion; raise `ProviderError` if the model refused, was filtered or failed half-way."""
        if wire.has_failed:
            body = to_json({"error": wire.error or {"message": "no reason"}})
            raise self._build_failure(body, status)
        if wire.refusal:
            raise self._build_refusal(wire.refusal, status)
        if wire.is_filtered:
            shown = self._transport.hide_secrets(wire.text)[:200] or "no text"
            text = f"{self._model} was stopped by a content filter: {shown}"
            raise ProviderError(text, status=status)
        return wire.completion(self.source)

    def _build_failure(self, body: bytes, status: int) -> ProviderError:
        """Return the error for a failure that is reported in a response of status 200."""
        failure = WireError.read(body)
        excerpt = self._transport.excerpt(failure.text or body)
        text = f"{self._transport.url}: {self._model} broke down in the middle of its reply: {excerpt}"
        if failure.is_too_long:
            return ContextTooLong(text, status=status)
        return ProviderError(text, status=status, retryable=True)

    def _encode(self, request: Request, source: str | None, end: bytes = b"") -> bytes:
        try:
            items = self._encode_items(request, source)
            options = to_json(self._build_options(request))[1:-1]
            parts = [self._head, items, b"]", b"," + options if options else b""]
            parts += self._encode_tools(request)
            return b"".join([*parts, end, b"}"])
        except ValueError as error:
            raise ProviderError(
                f"the request to {self._model} cannot be written as JSON: {error}"
            ) from None

    def _encode_items(self, request: Request, source: str | None) -> bytes:
        encode = get_message_encoder(source)
        messages = make_ids_unique(request.conversation.messages)
        encoded = [message.encoded(encode) for message in messages]
        return b",".join(filter(None, encoded))

    def _build_options(self, request: Request) -> dict[str, object]:
        quirks = self._quirks
        settings = self._read_settings(request)
        extra = settings.take_extra_body(RESERVED)
        settings.refuse_samples()
        settings.refuse(*UNKNOWN)
        settings.drop("stop", "seed")
        if not quirks.sampling:
            settings.drop("temperature", "top_p")
        if not quirks.encrypted_reasoning:
            settings.refuse("effort")
        options = {**_name_settings(settings), **extra}
        if quirks.stateless:
            options["store"] = False
        if quirks.encrypted_reasoning:
            options["include"] = ["reasoning.encrypted_content"]
        if request.schema is not None:
            if not quirks.json_schema:
                raise ProviderError(
                    f"{self._model} takes no JSON schema, as its quirks say; ask it for text"
                )
            options["text"] = {"format": build_text_format(request.schema)}
        return options

    def _encode_tools(self, request: Request) -> list[bytes]:
        encoded = [spec.encoded(self._encode_tool) for spec in request.tools]
        offered = request.provider_tools
        encoded += [to_json(build_provider_tool(tool)) for tool in offered]
        if not encoded:
            return []
        parts = [b',"tools":[' + b",".join(encoded) + b"]"]
        bounds = [bound_uses(tool, request.max_provider_calls) for tool in offered]
        if offered and None not in bounds:
            bound = max(filter(None, bounds))
            parts.append(b',"max_tool_calls":%d' % bound)
        if request.tool_choice == "none":
            parts.append(b',"tool_choice":"none"')
        return parts


def _name_settings(settings: Mapping[str, Json]) -> dict[str, object]:
    """Return the settings under the names of the API."""
    options: dict[str, object] = {**settings}
    if "max_tokens" in options:
        options["max_output_tokens"] = options.pop("max_tokens")
    if "effort" in options:
        options["reasoning"] = {"effort": options.pop("effort")}
    return options


def _check_options(model: str, key: SecretStr | None, *, is_openai: bool) -> None:
    if not model:
        raise ConfigError(
            "model: missing; pass one, like OpenAIResponsesProvider('gpt-5.2')"
        )
    if is_openai and key is None:
        raise ConfigError(
            "api_key: OpenAI requires one; set OPENAI_API_KEY, or pass api_key (or base_url for another endpoint)"
        )
