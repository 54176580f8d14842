"""Models behind OpenAI's Chat Completions API, and behind every endpoint that speaks it too."""

import dataclasses
import ipaddress
import os
from typing import Literal, Never, Self
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_core import to_json

from ..errors import ConfigError, ContextTooLong, ProviderError
from ..messages import Completion
from ..provider import Capabilities, Request, Sampling
from .chat_completions import WireChoice, WireError, WireReply, encode_message, encode_schema, encode_tool
from .transport import Client, HTTPTransport, Reply, retry_after, worth_retrying

DEFAULT_URL = "https://api.openai.com/v1"
LONGEST_REFUSAL = 2_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quirks:
    """In what an endpoint differs from the others that speak Chat Completions.

    Args:
        max_tokens_field: how `Sampling.max_tokens` is called.
        native_tools: it takes tool schemas and returns calls.
        json_schema: it takes `response_format` with a JSON schema.
        stop: it takes stop sequences.
        parallel_tool_calls: sent with the tools; `None` leaves it out. llama.cpp makes several calls in one turn only
            if this is `True`.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    native_tools: bool = True
    json_schema: bool = False
    stop: bool = True
    parallel_tool_calls: bool | None = None

    @classmethod
    def of(cls, base_url: str) -> Self:
        """What is known of the endpoint behind a URL; of a stranger only what all of them do is expected."""
        host = urlsplit(base_url).hostname or ""
        if host == "api.openai.com":
            return cls(max_tokens_field="max_completion_tokens", json_schema=True)
        return cls(json_schema=_is_this_machine(host))  # llama.cpp, Ollama, vLLM and LM Studio all take schemas


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class OpenAIProvider:
    """A model that is asked by Chat Completions: at OpenAI, OpenRouter, vLLM, llama.cpp, Ollama, LM Studio and others.

    Source: https://platform.openai.com/docs/api-reference/chat

    Args:
        model: its name at the endpoint.
        base_url: where the API lives, with its version: "http://localhost:11434/v1"; OpenAI itself by default.
        api_key: falls back to OPENAI_API_KEY; only OpenAI itself demands one. An empty string sends none.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here. Without one,
            connections are made for each event loop, and proxies named in the environment are not used.
        sampling: how to pick words where a request does not say it.
        quirks: how the endpoint differs from others; guessed from the URL.

    Raises:
        ConfigError: no model, no key for OpenAI itself, or a URL or key that cannot be used.
    """

    _model = _base_url = ""  # so that a half-made provider has a repr too

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
        given, api_key = api_key, None  # so that no frame of an error shows it
        key = _key(given)
        del given
        if not model:
            raise ConfigError("model: name the model, like OpenAIProvider('gpt-4.1-mini')")
        url = base_url or DEFAULT_URL
        if not key and url.rstrip("/") == DEFAULT_URL:
            raise ConfigError(
                "api_key: OpenAI wants one: set OPENAI_API_KEY, or pass api_key (or base_url for another endpoint)"
            )
        headers: dict[str, str | SecretStr] = {
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": "loopwright",
        }
        if key:
            headers["authorization"] = SecretStr(f"Bearer {key.get_secret_value()}")
        self._transport = HTTPTransport(url, "/chat/completions", headers=headers, client=client)
        self._model, self._base_url = model, self._transport.url.removesuffix("/chat/completions")
        self._quirks = quirks if quirks is not None else Quirks.of(url)
        self._sampling = sampling if sampling is not None else Sampling()
        self._has_key = bool(key)
        self._name = "openai" if url.rstrip("/") == DEFAULT_URL else self._transport.host
        self._head = b'{"model":' + to_json(model) + b',"messages":['
        self._default_tail = self._sampled(Sampling())

    @classmethod
    def from_env(cls, model: str | None = None) -> Self:
        """The provider that OPENAI_MODEL (unless `model` is given), OPENAI_BASE_URL and OPENAI_API_KEY describe."""
        model = model or os.environ.get("OPENAI_MODEL")
        if not model:
            raise ConfigError("model: name one, or set OPENAI_MODEL")
        return cls(model, base_url=os.environ.get("OPENAI_BASE_URL"))

    @property
    def name(self) -> str:
        """ "openai", or the host (and port) of another endpoint."""
        return self._name

    @property
    def model(self) -> str:
        """The model's name at the endpoint."""
        return self._model

    @property
    def capabilities(self) -> Capabilities:
        """What the endpoint can do, by its quirks."""
        quirks = self._quirks
        return Capabilities(native_tools=quirks.native_tools, json_schema=quirks.json_schema, stop=quirks.stop)

    def __repr__(self) -> str:
        return f"OpenAIProvider({self._model!r}, base_url={self._base_url!r})"

    def __reduce__(self) -> Never:
        raise TypeError("a provider holds an API key and open connections: it cannot be pickled or copied")

    async def aclose(self) -> None:
        """Close the connections of the running event loop; an injected client stays open."""
        await self._transport.aclose()

    async def complete(self, request: Request) -> Completion:
        """Ask the model once.

        Raises:
            ContextTooLong: the conversation does not fit the model.
            ProviderTimeout: no answer in time.
            ProviderError: no answer, one that is no Chat Completions reply, or a refusal.
        """
        reply = await self._transport.post(self._encode(request))
        if not 200 <= reply.status < 300:
            raise self._failure(reply, reply.status)
        wire = WireReply.read(reply.body)
        if wire is None:
            raise self._unusable(reply)
        self._check_end(wire.choices[0], reply.status)
        return wire.completion(reply.body)

    def _check_end(self, choice: WireChoice, status: int) -> None:
        """Raise if the model did not come to an end of its own: it refused, was filtered, or broke down half-way."""
        message, said = choice.message, choice.message.text or "no text"
        if message.refused:
            raise ProviderError(f"{self._model} refused: {message.refused[:LONGEST_REFUSAL]}", status=status)
        if choice.finish_reason == "content_filter":
            text = f"{self._model} was stopped by a content filter: {said[:LONGEST_REFUSAL]}"
            raise ProviderError(text, status=status)
        if choice.finish_reason in {"error", "abort"}:  # OpenRouter's and vLLM's words for it
            text = f"{self._transport.url}: {self._model} broke down in the middle of its reply"
            raise ProviderError(text, status=status, retryable=True)

    def _encode(self, request: Request) -> bytes:
        try:
            messages = request.conversation.joined(encode_message)
            return b"".join([self._head, messages, b"]", *self._tail(request), b"}"])
        except ValueError as error:
            raise ProviderError(f"the request to {self._model} cannot be written as JSON: {error}") from None

    def _tail(self, request: Request) -> list[bytes]:
        quirks = self._quirks
        parts = [self._default_tail if request.sampling == Sampling() else self._sampled(request.sampling)]
        if request.tools:
            if not quirks.native_tools:
                raise ProviderError(f"{self._model} takes no tools by its quirks: wrap the provider in TextTools")
            tools = b",".join([spec.encoded(encode_tool) for spec in request.tools])
            parts.append(b',"tools":[' + tools + b"]")
            if request.tool_choice == "none":
                parts.append(b',"tool_choice":"none"')
            if quirks.parallel_tool_calls is not None:
                parts.append(b',"parallel_tool_calls":' + to_json(quirks.parallel_tool_calls))
        if request.schema is not None:
            if not quirks.json_schema:
                raise ProviderError(f"{self._model} takes no JSON schema by its quirks: ask it for text")
            parts.append(b',"response_format":' + encode_schema(request.schema))
        return parts

    def _sampled(self, sampling: Sampling) -> bytes:
        """The request's own values, else the provider's, as the end of a JSON object."""
        chosen = {**_set_fields(self._sampling), **_set_fields(sampling)}
        if "max_tokens" in chosen:
            chosen[self._quirks.max_tokens_field] = chosen.pop("max_tokens")
        if not self._quirks.stop:
            chosen.pop("stop", None)
        return b"," + to_json(chosen)[1:-1] if chosen else b""

    def _unusable(self, reply: Reply) -> ProviderError:
        """A reply of status 2xx without a choice: a gateway's error, or something else than Chat Completions."""
        told = WireError.read(reply.body)
        if told.text and told.status is not None:
            return self._failure(reply, told.status)
        kind = reply.header("content-type") or "no content type"
        return ProviderError(
            f"{self._transport.url} answered with status {reply.status} and no Chat Completions reply ({kind}): "
            f"{self._transport.excerpt(reply.body) or 'an empty body'}",
            status=reply.status,
        )

    def _failure(self, reply: Reply, status: int) -> ProviderError:
        """The error that a status other than 2xx stands for."""
        told = WireError.read(reply.body)
        words = self._transport.excerpt(told.text or reply.body) or "no reason"
        text = f"{self._transport.url}: {self._advice(status)} (status {status}): {words}"
        if status in {400, 413, 422} and told.is_too_long:
            return ContextTooLong(text, status=status)
        retryable = worth_retrying(dataclasses.replace(reply, status=status))
        return ProviderError(text, status=status, retryable=retryable, retry_after=retry_after(reply))

    def _advice(self, status: int) -> str:
        if status in {401, 403}:
            if self._has_key:
                return "the API key was not accepted, check OPENAI_API_KEY or api_key"
            return "no API key was given, set OPENAI_API_KEY or pass api_key"
        if status == 404:
            return f"no model {self._model!r} here, or no Chat Completions API: check model and base_url"
        return f"the call of {self._model} failed"


def _key(given: str | SecretStr | None) -> SecretStr | None:
    if given is None:
        given = os.environ.get("OPENAI_API_KEY", "")
    text = (given.get_secret_value() if isinstance(given, SecretStr) else given).strip()
    return SecretStr(text) if text else None


def _set_fields(sampling: Sampling) -> dict[str, object]:
    return {name: value for name, value in vars(sampling).items() if value not in (None, ())}
