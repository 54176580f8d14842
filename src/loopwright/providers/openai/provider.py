"""`OpenAIProvider`: models behind OpenAI's Chat Completions API and every compatible endpoint."""

import functools
import os
from collections.abc import AsyncGenerator
from typing import Self, Unpack

from pydantic import SecretStr
from pydantic_core import to_json

from ...errors import ConfigError, ContextTooLong, ProviderError
from ...messages import Completion
from ..base import (
    Capabilities,
    Delta,
    Request,
    Sampling,
    share_usage,
    split_samples,
)
from ..http.endpoint import HEADERS, MAX_REFUSAL, Endpoint, read_key
from ..http.response import Response
from ..http.sse import ServerEvent
from ..http.tokens import BearerToken, TokenCallback
from ..http.transport import Client, HTTPTransport, StreamingResponse
from ..http.wire import WireError
from ..settings import EndpointOptions, Settings, find_model
from .arrangement import arrange_messages
from .quirks import Quirks as Quirks
from .request import (
    encode_schema,
    encode_tool,
    get_message_encoder,
    join_system_messages,
)
from .response import WireMessage, WireReply
from .stream import ReplyAssembly, WireChunk

DEFAULT_URL = "https://api.openai.com/v1"
PATH = "/chat/completions"
END_OF_STREAM = "[DONE]"
RESERVED = frozenset({"model", "messages", "tools", "stream", "response_format"})
# The finish reasons of OpenRouter, vLLM and DeepSeek for a reply that failed half-way.
FAILED_REASONS = frozenset({"error", "abort", "insufficient_system_resource"})


class OpenAIProvider(Endpoint):
    """A model behind Chat Completions: at OpenAI, OpenRouter, vLLM, llama.cpp, Ollama, LM Studio and others.

    Source: https://platform.openai.com/docs/api-reference/chat

    Args:
        model: its name at the endpoint.
        base_url: where the API lives, with its version: "http://localhost:11434/v1"; OpenAI by default.
        api_key: by default the value of the variable that the quirks name, which is OPENAI_API_KEY for an unknown
            endpoint; only OpenAI requires a key. An empty text sends none.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here. Without one,
            each event loop has its own connections, which honour the proxies of the environment.
        token: returns a bearer token for each request, in place of a key: an Entra token for Azure.
        sampling: the settings that a request leaves open.
        quirks: how the endpoint differs from others; guessed from the URL by default.

    Raises:
        ConfigError: there is no model, no key for OpenAI, or the URL or key cannot be used.
    """

    api = "Chat Completions"
    opaque_names = ("reasoning_details", "reasoning_content", "signature", "encrypted")

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | SecretStr | None = None,
        client: Client | None = None,
        token: TokenCallback | None = None,
        sampling: Sampling | None = None,
        quirks: Quirks | None = None,
    ) -> None:
        url = base_url or DEFAULT_URL
        is_openai = url.rstrip("/") == DEFAULT_URL
        self._quirks = quirks if quirks is not None else Quirks.guess(url)
        self._key_variable = self._quirks.key_variable
        given, api_key = api_key, None  # so that no frame of an error shows the key
        self._key = read_key(given, self._key_variable)
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
        self._prepare_encoding()

    def _prepare_encoding(self) -> None:
        """Encode once what all requests have in common."""
        self._head = b'{"model":' + to_json(self._model) + b',"messages":['
        self._stream_options = b',"stream":true'
        if self._quirks.stream_usage:
            self._stream_options += b',"stream_options":{"include_usage":true}'

    def _build_headers(self) -> dict[str, str | SecretStr]:
        return build_headers(self._key)

    @classmethod
    def from_env(
        cls, model: str | None = None, **options: Unpack[EndpointOptions]
    ) -> Self:
        """Return the provider that OPENAI_MODEL (unless `model` is given), OPENAI_BASE_URL and OPENAI_API_KEY describe."""
        options["base_url"] = options.get("base_url") or os.environ.get(
            "OPENAI_BASE_URL"
        )
        return cls(find_model("openai", model), **options)

    @property
    def capabilities(self) -> Capabilities:
        """What the endpoint supports, by its quirks."""
        quirks, size = self._quirks, self._size
        window = quirks.context_tokens
        return Capabilities(
            native_tools=quirks.native_tools,
            json_schema=quirks.json_schema,
            stop=quirks.stop,
            schema_with_tools=quirks.schema_with_tools,
            context_tokens=size.context if window == "model" else window,
            max_output_tokens=size.output,
            images="image" in quirks.attachments and self._takes_images,
            documents="document" in quirks.attachments,
            max_samples=quirks.max_samples,
        )

    async def complete(self, request: Request) -> Completion:
        """Call the model once and return its reply.

        Raises:
            ContextTooLong: the conversation does not fit the model.
            ProviderTimeout: no response in time.
            ProviderError: no response, one that is not a Chat Completions reply, or a refusal.
        """
        encode = functools.partial(self._encode, request)
        async with await self._open(self._transport, request, encode) as response:
            return self._read_reply(await response.read())

    async def sample(self, request: Request) -> tuple[Completion, ...]:
        """Call the model once and return `request.sampling.n` replies; a refused one is left out.

        Raise as `complete` does.
        """
        number, single = split_samples(request)
        encode = functools.partial(self._encode, single, end=b',"n":%d' % number)
        async with await self._open(self._transport, request, encode) as response:
            return self._read_replies(await response.read())

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Call the model once and yield its reply as it arrives; the last delta carries the completion.

        An endpoint that replies whole in spite of the request gives one delta. Raise as `complete` does; a stream that
        ends before the reply does is an error, never a completion.
        """
        encode = functools.partial(self._encode, request, end=self._stream_options)
        async with await self._open(self._transport, request, encode) as response:
            if not response.is_event_stream:
                completion = self._read_reply(await response.read())
                yield Delta(text=completion.text, completion=completion)
                return
            assembly = ReplyAssembly()
            while (deltas := await self._read_deltas(response, assembly)) is not None:
                for delta in deltas:
                    yield delta
            for delta in assembly.flush():
                yield delta
            completion = self._build_completion(assembly, response.status)
            yield Delta(completion=completion)

    async def _read_deltas(
        self, response: StreamingResponse, assembly: ReplyAssembly
    ) -> list[Delta] | None:
        """Return the deltas of the next bytes; `None` at the end of the stream."""
        if assembly.is_over:
            await response.finish()
            return None
        deltas: list[Delta] = []
        try:
            events = await (
                response.read_last_events()
                if assembly.has_ended
                else response.read_events()
            )
            if events is None:
                return None
            for event in events:
                deltas += self._read_event(event, response, assembly)
        except ProviderError:
            # After the end of the reply, only the usage or the end marker can be missing.
            if not assembly.has_ended:
                raise
            assembly.end()
        return deltas

    def _read_event(
        self, event: ServerEvent, response: StreamingResponse, assembly: ReplyAssembly
    ) -> list[Delta]:
        if event.data == END_OF_STREAM:
            assembly.end()
        if assembly.is_over or not event.data:
            return []
        chunk = self._read_chunk(event, response)
        return assembly.add(chunk, event.data)

    def _read_chunk(self, event: ServerEvent, response: StreamingResponse) -> WireChunk:
        chunk = WireChunk.read(event.data)
        if event.event == "error" or (chunk is not None and chunk.is_failure):
            raise self._build_stream_error(event, response)
        if chunk is None:
            excerpt = self._transport.excerpt(event.data)
            text = f"{self._transport.url} sent an event that is not a chunk of a Chat Completions reply: {excerpt}"
            raise ProviderError(text, status=response.status)
        return chunk

    def _build_completion(self, assembly: ReplyAssembly, status: int) -> Completion:
        """Return the completion of a streamed reply, read as if it had come whole."""
        if not assembly.has_ended:
            text = f"{self._transport.url}: the stream of {self._model} broke off before the end of its reply"
            raise ProviderError(text, retryable=True)
        if not assembly.has_begun:
            text = f"{self._transport.url} answered with a stream that holds no Chat Completions reply"
            raise ProviderError(text, status=status)
        message = assembly.build_message()
        self._check_finish(message, assembly.finish_reason, status)
        return self._mark_source(assembly.build_completion(message))

    def _read_reply(self, response: Response) -> Completion:
        """Return the completion of a whole reply."""
        wire = self._read_wire(response)
        choice = wire.choices[0]
        self._check_finish(choice.message, choice.finish_reason, response.status)
        return self._mark_source(wire.completion(response.body))

    def _read_replies(self, response: Response) -> tuple[Completion, ...]:
        """Return the completions of all alternatives but those that the model refused; raise where it refused all."""
        wire = self._read_wire(response)
        replies: list[Completion] = []
        refused: ProviderError | None = None
        for choice, completion in zip(
            wire.choices, wire.completions(response.body), strict=True
        ):
            try:
                self._check_finish(
                    choice.message, choice.finish_reason, response.status
                )
            except ProviderError as error:
                refused = error
            else:
                replies.append(self._mark_source(completion))
        if refused is not None and not replies:
            raise refused
        return share_usage(replies, wire.read_usage())

    def _read_wire(self, response: Response) -> WireReply:
        if not response.is_success:
            raise self._build_error(response, response.status)
        wire = WireReply.read(response.body)
        if wire is None:
            raise self._build_unreadable_error(response)
        return wire

    def _check_finish(
        self, message: WireMessage, finish_reason: str | None, status: int
    ) -> None:
        """Raise `ProviderError` if the model refused, was filtered or failed half-way."""
        if message.refusal_text:
            raise self._build_refusal(message.refusal_text, status)
        if finish_reason == "content_filter":
            shown = self._transport.hide_secrets(message.text)[:MAX_REFUSAL]
            text = (
                f"{self._model} was stopped by a content filter: {shown or 'no text'}"
            )
            raise ProviderError(text, status=status)
        if finish_reason in FAILED_REASONS:
            text = f"{self._transport.url}: {self._model} broke down in the middle of its reply"
            raise ProviderError(text, status=status, retryable=True)

    def _build_stream_error(
        self, event: ServerEvent, response: StreamingResponse
    ) -> ProviderError:
        """Return the error that an event of a stream reports."""
        body = event.data.encode()
        failure = WireError.read(body)
        if failure.status is not None:
            head = Response(response.status, response.head.headers, body)
            return self._build_error(head, failure.status)
        excerpt = self._transport.excerpt(failure.text or event.data)
        text = f"{self._transport.url}: {self._model} broke down in the middle of its reply: {excerpt}"
        if failure.is_too_long:
            return ContextTooLong(text, status=response.status)
        return ProviderError(text, status=response.status, retryable=True)

    def _encode(self, request: Request, source: str | None, end: bytes = b"") -> bytes:
        conversation = request.conversation
        if self._quirks.one_system_message:
            conversation = join_system_messages(conversation)
        conversation = arrange_messages(conversation, self._quirks)
        try:
            encoder = get_message_encoder(self._quirks, source)
            messages = conversation.joined(encoder)
            options = self._encode_options(request)
            return b"".join([self._head, messages, b"]", *options, end, b"}"])
        except ValueError as error:
            raise ProviderError(
                f"the request to {self._model} cannot be written as JSON: {error}"
            ) from None

    def _encode_options(self, request: Request) -> list[bytes]:
        options = [self._default_sampling]
        if request.sampling != Sampling():
            options = [self._encode_sampling(request.sampling)]
        if request.tools:
            options += self._encode_tools(request)
        if request.schema is not None:
            if not self._quirks.json_schema:
                raise ProviderError(
                    f"{self._model} takes no JSON schema, as its quirks say; ask it for text"
                )
            quirks = self._quirks
            schema = encode_schema(
                request.schema, strict=quirks.strict_schema, any_root=quirks.any_root
            )
            options.append(b',"response_format":' + schema)
        return options

    def _encode_tools(self, request: Request) -> list[bytes]:
        quirks = self._quirks
        if not quirks.native_tools:
            raise ProviderError(
                f"{self._model} takes no tools, as its quirks say; wrap the provider in TextTools"
            )
        is_answer = request.tool_choice == "none"
        if is_answer and not quirks.tool_choice_none:
            return []
        tools = b",".join([spec.encoded(encode_tool) for spec in request.tools])
        options = [b',"tools":[' + tools + b"]"]
        if is_answer:
            options.append(b',"tool_choice":"none"')
        if quirks.parallel_tool_calls is not None:
            parallel = to_json(quirks.parallel_tool_calls)
            options.append(b',"parallel_tool_calls":' + parallel)
        return options

    @functools.cached_property
    def _default_sampling(self) -> bytes:
        return self._encode_sampling(Sampling())

    def _encode_sampling(self, sampling: Sampling) -> bytes:
        """Return the request's settings, else the provider's, as the end of a JSON object."""
        options, quirks = Settings(self._model, self._sampling, sampling), self._quirks
        extra = options.take_extra_body(RESERVED)
        options.refuse_samples()
        if not quirks.stop:
            options.drop("stop")
        if not quirks.top_k:
            options.refuse("top_k")
        if quirks.effort is None:
            options.refuse("effort")
        elif "effort" in options:
            effort = options.pop("effort")
            is_object = quirks.effort == "reasoning"
            options[quirks.effort] = {"effort": effort} if is_object else effort
        if "max_tokens" in options:
            options[quirks.max_tokens_field] = options.pop("max_tokens")
        written = {**options, **extra}
        return b"," + to_json(written)[1:-1] if written else b""


def _check_options(model: str, key: SecretStr | None, *, is_openai: bool) -> None:
    if not model:
        raise ConfigError(
            "model: missing; pass one, like OpenAIProvider('gpt-4.1-mini')"
        )
    if is_openai and key is None:
        raise ConfigError(
            "api_key: OpenAI requires one; set OPENAI_API_KEY, or pass api_key (or base_url for another endpoint)"
        )


def build_headers(key: SecretStr | None) -> dict[str, str | SecretStr]:
    """Return the headers of a request, with the key as a bearer token."""
    if key is None:
        return {**HEADERS}
    token = SecretStr(f"Bearer {key.get_secret_value()}")
    return {**HEADERS, "authorization": token}
