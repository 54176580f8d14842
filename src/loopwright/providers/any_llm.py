"""`AnyLLMProvider`: models of the services that any-llm-sdk speaks to, and that have no provider of their own here."""

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import warnings
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Never, Self, Unpack
from weakref import WeakKeyDictionary

from pydantic import SecretStr
from pydantic_core import from_json, to_json

from ..errors import (
    ConfigError,
    ContextTooLong,
    ProviderError,
    ProviderTimeout,
    is_transient,
)
from ..messages import Completion
from .base import Capabilities, Delta, Request
from .http.endpoint import read_key
from .model_sizes import find_size
from .openai.quirks import DEFAULT
from .openai.request import encode_message, encode_tool
from .openai.response import WireReply
from .openai.stream import ReplyAssembly, WireChunk
from .reply_schemas import merge_branches
from .settings import EndpointOptions, Sampling, Settings

INSTALL = "AnyLLMProvider needs any-llm-sdk: pip install 'loopwright[any-llm]'"
MODEL_VARIABLE = "ANY_LLM_MODEL"
TOO_MANY_REQUESTS = 429
MAX_REASON = 300  # characters of an error of the service
NAMES = frozenset(
    {
        "temperature",
        "top_p",
        "max_tokens",
        "stop",
        "seed",
        "presence_penalty",
        "frequency_penalty",
    }
)
RESERVED = frozenset({"model", "messages", "tools", "tool_choice", "stream"})
LIFETIMES: dict[int, AsyncGenerator[None]] = {}
"""Keeps connections whose provider is gone until their event loop ends: a collected generator would be closed half-way."""
# What any-llm-sdk names its errors that say more than their status does.
TOO_LONG = "ContextLengthExceededError"
TIMEOUTS = ("GatewayTimeoutError",)
UNAVAILABLE = ("RateLimitError", "UpstreamProviderError", "ProviderError")


class AnyLLMProvider:
    """A model of one of the services of any-llm-sdk, by its Chat Completions.

    Source: https://docs.mozilla.ai/any-llm

    The library and the SDK of the service do the HTTP, with proxies and time-outs of their own. Each event loop has its own
    connections, which are closed by `aclose` or with the loop. Prefer a provider of this library where there is one: those
    send reasoning back, and were tried against recordings. A setting that the service does not know is refused by
    any-llm-sdk, with its name.

    Args:
        service: its name in any-llm-sdk: "cohere", "sambanova", "watsonx" and others.
        model: its name at the service.
        api_key: the service's own variable by default, such as CO_API_KEY.
        base_url: where the service lives; its own address by default.
        sampling: the settings that a request leaves open.
        json_schema: whether the model holds to a JSON schema (`response_format`).
        options: what the SDK of the service is made with.

    Raises:
        ConfigError: any-llm-sdk or the SDK of the service is not installed, there is no such service, or no key.
    """

    def __init__(
        self,
        service: str,
        model: str,
        *,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        sampling: Sampling | None = None,
        json_schema: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not service or not model:
            raise ConfigError(
                'model: needs a service and a model; write "any-llm:cohere/command-a-03-2025"'
            )
        given, api_key = api_key, None  # so that no frame of an error shows the key
        self._key = read_key("" if given is None else given, "")
        del given
        self.name, self.model = service, model
        self._create = functools.partial(
            _create_client, service, self._key, base_url, options or {}
        )
        self._variable = str(getattr(self._create(), "ENV_API_KEY_NAME", ""))
        self._loops: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[None]]
        ] = WeakKeyDictionary()
        self._sampling = sampling if sampling is not None else Sampling()
        self._json_schema = json_schema

    @classmethod
    def from_env(
        cls, model: str | None = None, **options: Unpack[EndpointOptions]
    ) -> Self:
        """Return the provider for "SERVICE/MODEL", or that of ANY_LLM_MODEL, with the service's own variables."""
        chosen = model or os.environ.get(MODEL_VARIABLE) or ""
        service, _, name = chosen.partition("/")
        return cls(service, name, **options)

    @property
    def capabilities(self) -> Capabilities:
        """What the service supports, as far as that was said."""
        size = find_size(self.model)
        return Capabilities(
            json_schema=self._json_schema,
            context_tokens=size.context,
            max_output_tokens=size.output,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API key that was given, or the one in the variable of the service."""
        given = "" if self._key is None else self._key.get_secret_value()
        found = (given, os.environ.get(self._variable, ""))
        return tuple(dict.fromkeys(filter(None, found)))

    def __repr__(self) -> str:
        return f"AnyLLMProvider({self.name!r}, {self.model!r})"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a provider holds an API key and open connections: it cannot be pickled or copied"
        )

    async def complete(self, request: Request) -> Completion:
        """Call the model once and return its reply.

        Raises:
            ContextTooLong: the conversation does not fit the model.
            ProviderTimeout: no response in time.
            ProviderError: no response, one that cannot be read, or a refusal.
        """
        call = self._build_call(request)
        try:
            client = await self._find_client()
            body = _to_json(await client.acompletion(**call))
        except Exception as error:  # noqa: BLE001 - each SDK has errors of its own
            failure = self._translate(error)
        else:
            return self._read_reply(body)
        # Raised outside the handler: the error of an SDK knows the request with its key.
        raise failure

    def _read_reply(self, body: bytes) -> Completion:
        wire = WireReply.read(body)
        if wire is None:
            raise ProviderError(f"{self.name} answered with no Chat Completions reply")
        message = wire.choices[0].message
        self._check_refusal(message.refusal_text, wire.choices[0].finish_reason)
        return wire.completion(body)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Call the model once and yield its reply as it arrives; the last delta carries the completion.

        Raise as `complete` does, and a retryable `ProviderError` for a stream that ends before the reply does.
        """
        assembly = ReplyAssembly()
        call = {**self._build_call(request), "stream": True}
        failure: ProviderError | None = None
        try:
            client = await self._find_client()
            async with contextlib.aclosing(await client.acompletion(**call)) as chunks:
                async for chunk in chunks:
                    for delta in self._read_chunk(_to_json(chunk), assembly):
                        yield delta
        except Exception as error:  # noqa: BLE001 - as above
            failure = self._translate(error)
        if failure is not None:
            raise failure
        for delta in assembly.flush():
            yield delta
        if not assembly.has_ended:
            text = f"{self.name}: the stream of {self.model} broke off before the end of its reply"
            raise ProviderError(text, retryable=True)
        message = assembly.build_message()
        self._check_refusal(message.refusal_text, assembly.finish_reason)
        yield Delta(completion=assembly.build_completion(message))

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        _, lifetime = self._loops.pop(asyncio.get_running_loop(), (None, None))
        if lifetime is not None:
            await lifetime.aclose()

    async def _find_client(self) -> Any:
        """Return the client of the running event loop, whose connections belong to it."""
        loop = asyncio.get_running_loop()
        client, _ = self._loops.get(loop, (None, None))
        if client is None:
            client = self._create()
            lifetime = _close_with_loop(client)
            self._loops[loop] = client, lifetime
            LIFETIMES[id(client)] = lifetime
            await anext(lifetime)
        return client

    def _read_chunk(self, data: bytes, assembly: ReplyAssembly) -> list[Delta]:
        text = data.decode()
        chunk = WireChunk.read(text)
        if chunk is None:
            raise ProviderError(f"{self.name} sent a chunk that cannot be read")
        return assembly.add(chunk, text)

    def _check_refusal(self, refusal: str, finish: str | None) -> None:
        if refusal or finish == "content_filter":
            raise ProviderError(f"{self.model} refused: {refusal or 'no reason'}")

    def _build_call(self, request: Request) -> dict[str, Any]:
        """Return the arguments of a call."""
        settings = Settings(self.model, self._sampling, request.sampling)
        extra = settings.take_extra_body(RESERVED)
        settings.refuse_samples()
        settings.refuse_headers()
        settings.refuse("top_k")
        call: dict[str, Any] = {"model": self.model, **extra}
        effort = settings.pop("effort", None)
        if effort is not None:
            call["reasoning_effort"] = effort
        call |= {name: settings[name] for name in settings if name in NAMES}
        messages = request.conversation.joined(_encode_message)
        call["messages"] = from_json(b"[" + messages + b"]")
        if request.tools:
            tools = b",".join([spec.encoded(encode_tool) for spec in request.tools])
            call["tools"] = from_json(b"[" + tools + b"]")
            call["tool_choice"] = request.tool_choice
        if request.schema is not None:
            schema = merge_branches(request.schema.schema)
            named = {"name": request.schema.name, "schema": dict(schema)}
            call["response_format"] = {"type": "json_schema", "json_schema": named}
        return call

    def _translate(self, error: Exception) -> ProviderError:
        if isinstance(error, ProviderError):
            return error
        kind = type(error).__name__
        status = getattr(error, "status_code", None)
        text = f"{self.name}: the call of {self.model} failed: {kind}: {self._excerpt(str(error))}"
        if kind == TOO_LONG:
            return ContextTooLong(text, status=status)
        if kind in TIMEOUTS or isinstance(error, TimeoutError):
            return ProviderTimeout(text, retryable=True)
        if kind == "RateLimitError":
            status = status or TOO_MANY_REQUESTS
        retryable = is_transient(status) if status else kind in UNAVAILABLE
        after = _read_seconds(getattr(error, "retry_after", None))
        return ProviderError(
            text, status=status, retryable=retryable, retry_after=after
        )

    def _excerpt(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return " ".join(text[: 4 * MAX_REASON].split())[:MAX_REASON]


_encode_message = functools.partial(encode_message, quirks=DEFAULT)


async def _close_with_loop(client: Any) -> AsyncGenerator[None]:
    """Close a client when this is closed, as `asyncio.run` does with async generators that are open."""
    try:
        yield
    finally:
        LIFETIMES.pop(id(client), None)
        sdk = getattr(client, "client", None)
        close = getattr(sdk, "close", None) or getattr(sdk, "aclose", None)
        closing = close() if close is not None else None
        if inspect.isawaitable(closing):
            await closing


def _create_client(
    service: str,
    key: SecretStr | None,
    base_url: str | None,
    options: Mapping[str, Any],
) -> Any:
    """Return the client of a service; the runtime retries, so its SDK does not where it can be told so."""
    if importlib.util.find_spec("any_llm") is None:
        raise ConfigError(INSTALL)
    library: Any = importlib.import_module("any_llm")
    secret = key.get_secret_value() if key is not None else None
    create = functools.partial(
        library.AnyLLM.create, service, api_base=base_url, unified_exceptions=True
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return create(api_key=secret, max_retries=0, **options)
            except Exception as error:
                if type(error).__name__ != "UnsupportedParameterError":
                    raise
            return create(api_key=secret, **options)
    except Exception as error:  # noqa: BLE001 - as above
        reason = " ".join(str(error).split())[:MAX_REASON]
        problem = reason.replace(secret, "***") if secret else reason
    raise ConfigError(f"model: {service!r} cannot be used: {problem}")


def _to_json(reply: Any) -> bytes:
    return to_json(reply.model_dump(exclude_none=True))


def _read_seconds(value: object) -> float | None:
    try:
        return max(float(str(value)), 0.0)
    except ValueError:
        return None
