"""Models behind OpenAI's Chat Completions API, and behind every endpoint that speaks it too."""

import os
from collections.abc import AsyncGenerator
from typing import Self

from pydantic import SecretStr
from pydantic_core import to_json

from ...errors import ConfigError, ContextTooLong, ProviderError
from ...messages import Completion
from ..base import Capabilities, Delta, Request, Sampling
from ..http.endpoint import HEADERS, LONGEST_REFUSAL, Endpoint, key_of
from ..http.replies import Reply
from ..http.sse import ServerEvent
from ..http.transport import Client, HTTPTransport, OpenReply
from ..http.wire import WireError
from .quirks import Quirks as Quirks
from .request import (
    encode_schema,
    encode_tool,
    message_encoder,
    with_one_system_message,
)
from .response import WireMessage, WireReply
from .stream import ReplyAssembly, WireChunk

DEFAULT_URL = "https://api.openai.com/v1"
END_OF_STREAM = "[DONE]"
BROKEN_OFF = {
    "error",
    "abort",
    "insufficient_system_resource",
}  # OpenRouter's, vLLM's and DeepSeek's words for it


class OpenAIProvider(Endpoint):
    """A model that is asked by Chat Completions: at OpenAI, OpenRouter, vLLM, llama.cpp, Ollama, LM Studio and others.

    Source: https://platform.openai.com/docs/api-reference/chat

    Args:
        model: its name at the endpoint.
        base_url: where the API lives, with its version: "http://localhost:11434/v1"; OpenAI itself by default.
        api_key: falls back to the variable that the quirks name, which is OPENAI_API_KEY for an endpoint that is not
            known; only OpenAI itself demands one. An empty string sends none.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here. Without one,
            connections are made for each event loop, and proxies named in the environment are not used.
        sampling: how to pick words where a request does not say it.
        quirks: how the endpoint differs from others; guessed from the URL.

    Raises:
        ConfigError: no model, no key for OpenAI itself, or a URL or key that cannot be used.
    """

    api = "Chat Completions"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | SecretStr | None = None,
        client: Client | None = None,
        sampling: Sampling | None = None,
        quirks: Quirks | None = None,
    ) -> None:
        url = base_url or DEFAULT_URL
        self._quirks = quirks if quirks is not None else Quirks.of(url)
        given, api_key = api_key, None  # so that no frame of an error shows it
        key = key_of(given, self._quirks.key_variable)
        del given
        if not model:
            raise ConfigError(
                "model: name the model, like OpenAIProvider('gpt-4.1-mini')"
            )
        if not key and url.rstrip("/") == DEFAULT_URL:
            raise ConfigError(
                "api_key: OpenAI wants one: set OPENAI_API_KEY, or pass api_key (or base_url for another endpoint)"
            )
        headers: dict[str, str | SecretStr] = {**HEADERS}
        if key:
            headers["authorization"] = SecretStr(f"Bearer {key.get_secret_value()}")
        self._transport = HTTPTransport(
            url, "/chat/completions", headers=headers, client=client
        )
        self._model, self._base_url = (
            model,
            self._transport.url.removesuffix("/chat/completions"),
        )
        self._encode_message = message_encoder(self._quirks)
        self._sampling = sampling if sampling is not None else Sampling()
        self._key, self._has_key, self._key_variable = (
            key,
            bool(key),
            self._quirks.key_variable,
        )
        self._name = (
            "openai" if url.rstrip("/") == DEFAULT_URL else self._transport.host
        )
        self._head = b'{"model":' + to_json(model) + b',"messages":['
        self._default_tail = self._sampled(Sampling())
        usage = (
            b',"stream_options":{"include_usage":true}'
            if self._quirks.stream_usage
            else b""
        )
        self._streamed = b',"stream":true' + usage

    @classmethod
    def from_env(cls, model: str | None = None) -> Self:
        """The provider that OPENAI_MODEL (unless `model` is given), OPENAI_BASE_URL and OPENAI_API_KEY describe."""
        model = model or os.environ.get("OPENAI_MODEL")
        if not model:
            raise ConfigError("model: name one, or set OPENAI_MODEL")
        return cls(model, base_url=os.environ.get("OPENAI_BASE_URL"))

    @property
    def capabilities(self) -> Capabilities:
        """What the endpoint can do, by its quirks."""
        quirks = self._quirks
        return Capabilities(
            native_tools=quirks.native_tools,
            json_schema=quirks.json_schema,
            stop=quirks.stop,
        )

    async def complete(self, request: Request) -> Completion:
        """Ask the model once.

        Raises:
            ContextTooLong: the conversation does not fit the model.
            ProviderTimeout: no answer in time.
            ProviderError: no answer, one that is no Chat Completions reply, or a refusal.
        """
        return self._completion(await self._transport.post(self._encode(request)))

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Ask the model once, and tell its reply while it comes; the last delta carries the completion.

        An endpoint that answers in one piece all the same gives one delta. Raises as `complete` does; a stream that
        breaks off before the model came to an end is an error, never a completion.
        """
        async with await self._transport.open(
            self._encode(request, self._streamed)
        ) as reply:
            if not (200 <= reply.status < 300 and reply.is_events):
                completion = self._completion(await reply.read())
                yield Delta(text=completion.text, completion=completion)
                return
            assembly = ReplyAssembly()
            while (deltas := await self._next_deltas(reply, assembly)) is not None:
                for delta in deltas:
                    yield delta
            for delta in assembly.rest():
                yield delta
            yield Delta(completion=self._assembled(assembly, reply.status))

    async def _next_deltas(
        self, reply: OpenReply, assembly: ReplyAssembly
    ) -> list[Delta] | None:
        """What the next bytes add to the reply; `None` at the end of the stream."""
        if assembly.is_over:
            await reply.finish()
            return None
        deltas: list[Delta] = []
        try:
            events = await (
                reply.read_last_events() if assembly.has_ended else reply.read_events()
            )
            if events is None:
                return None
            for event in events:
                deltas += self._told(event, reply, assembly)
        except ProviderError:
            if (
                not assembly.has_ended
            ):  # else only figures, or the mark of the end, can be missing
                raise
            assembly.end()
        return deltas

    def _told(
        self, event: ServerEvent, reply: OpenReply, assembly: ReplyAssembly
    ) -> list[Delta]:
        if event.data == END_OF_STREAM:
            assembly.end()
        if assembly.is_over or not event.data:
            return []
        return assembly.take(self._chunk(event, reply), event.data)

    def _chunk(self, event: ServerEvent, reply: OpenReply) -> WireChunk:
        chunk = WireChunk.read(event.data)
        if event.event == "error" or (chunk is not None and chunk.is_failure):
            raise self._broken_down(event, reply)
        if chunk is None:
            words = self._transport.excerpt(event.data)
            text = f"{self._transport.url} sent an event that is no piece of a Chat Completions reply: {words}"
            raise ProviderError(text, status=reply.status)
        return chunk

    def _assembled(self, assembly: ReplyAssembly, status: int) -> Completion:
        """What a streamed reply says, read as if it had come whole."""
        if not assembly.has_ended:
            text = f"{self._transport.url}: the stream of {self._model} broke off before the end of its reply"
            raise ProviderError(text, retryable=True)
        if not assembly.has_begun:
            text = f"{self._transport.url} answered with a stream that holds no Chat Completions reply"
            raise ProviderError(text, status=status)
        message = assembly.message()
        self._check_end(message, assembly.finish_reason, status)
        return assembly.completion(message)

    def _completion(self, reply: Reply) -> Completion:
        """What a whole reply says."""
        if not 200 <= reply.status < 300:
            raise self._failure(reply, reply.status)
        wire = WireReply.read(reply.body)
        if wire is None:
            raise self._unusable(reply)
        self._check_end(
            wire.choices[0].message, wire.choices[0].finish_reason, reply.status
        )
        return wire.completion(reply.body)

    def _check_end(
        self, message: WireMessage, finish_reason: str | None, status: int
    ) -> None:
        """Raise if the model did not come to an end of its own: it refused, was filtered, or broke down half-way."""
        if message.refused:
            raise self._refused(message.refused, status)
        if finish_reason == "content_filter":
            said = self._transport.hidden(message.text)[:LONGEST_REFUSAL] or "no text"
            text = f"{self._model} was stopped by a content filter: {said}"
            raise ProviderError(text, status=status)
        if finish_reason in BROKEN_OFF:
            text = f"{self._transport.url}: {self._model} broke down in the middle of its reply"
            raise ProviderError(text, status=status, retryable=True)

    def _encode(self, request: Request, streamed: bytes = b"") -> bytes:
        conversation = request.conversation
        if self._quirks.one_system_message:
            conversation = with_one_system_message(conversation)
        try:
            messages = conversation.joined(self._encode_message)
            return b"".join(
                [self._head, messages, b"]", *self._tail(request), streamed, b"}"]
            )
        except ValueError as error:
            raise ProviderError(
                f"the request to {self._model} cannot be written as JSON: {error}"
            ) from None

    def _tail(self, request: Request) -> list[bytes]:
        quirks = self._quirks
        parts = [
            self._default_tail
            if request.sampling == Sampling()
            else self._sampled(request.sampling)
        ]
        parts += self._tools(request) if request.tools else []
        if request.schema is not None:
            if not quirks.json_schema:
                raise ProviderError(
                    f"{self._model} takes no JSON schema by its quirks: ask it for text"
                )
            parts.append(
                b',"response_format":'
                + encode_schema(request.schema, strict=quirks.strict_schema)
            )
        return parts

    def _tools(self, request: Request) -> list[bytes]:
        quirks = self._quirks
        if not quirks.native_tools:
            raise ProviderError(
                f"{self._model} takes no tools by its quirks: wrap the provider in TextTools"
            )
        if request.tool_choice == "none" and not quirks.tool_choice_none:
            return []
        parts = [
            b',"tools":['
            + b",".join([spec.encoded(encode_tool) for spec in request.tools])
            + b"]"
        ]
        if request.tool_choice == "none":
            parts.append(b',"tool_choice":"none"')
        if quirks.parallel_tool_calls is not None:
            parts.append(
                b',"parallel_tool_calls":' + to_json(quirks.parallel_tool_calls)
            )
        return parts

    def _sampled(self, sampling: Sampling) -> bytes:
        """The request's own values, else the provider's, as the end of a JSON object."""
        chosen = {**self._sampling.options, **sampling.options}
        if "max_tokens" in chosen:
            chosen[self._quirks.max_tokens_field] = chosen.pop("max_tokens")
        if not self._quirks.stop:
            chosen.pop("stop", None)
        return b"," + to_json(chosen)[1:-1] if chosen else b""

    def _broken_down(self, event: ServerEvent, reply: OpenReply) -> ProviderError:
        """The error that an event of a stream tells."""
        told = WireError.read(event.data.encode())
        if told.status is not None:
            return self._failure(
                Reply(reply.status, reply.headers, event.data.encode()), told.status
            )
        words = self._transport.excerpt(told.text or event.data)
        text = f"{self._transport.url}: {self._model} broke down in the middle of its reply: {words}"
        if told.is_too_long:
            return ContextTooLong(text, status=reply.status)
        return ProviderError(text, status=reply.status, retryable=True)
