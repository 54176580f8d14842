"""A provider for Amazon Bedrock: the Converse API, `converse` and `converse-stream`."""

import dataclasses
import functools
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, Self, Unpack
from urllib.parse import quote

from pydantic import SecretStr
from pydantic_core import from_json, to_json

from ...errors import ConfigError, ProviderError
from ...messages import Completion, Json
from ..base import (
    Capabilities,
    Delta,
    Request,
    Sampling,
)
from ..called_tools import describe_called_tools
from ..http.endpoint import HEADERS, Endpoint, read_key
from ..http.transport import Client, HTTPTransport
from ..http.wire import WireError
from ..settings import EndpointOptions, Settings, find_model
from ..thinking_budgets import BUDGETS, MIN_BUDGET
from .aws import Signer, check_installed, check_profile, find_region, load_event_buffer
from .request import (
    build_output_config,
    can_think,
    encode_messages,
    encode_tools,
)
from .response import REFUSALS, ReplyAssembly, WireReply

KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
URL_VARIABLE = "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"
SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
RESERVED = frozenset({"messages", "system", "toolConfig", "outputConfig"})
UNKNOWN = ("seed", "presence_penalty", "frequency_penalty")
NAMES = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxTokens",
    "stop": "stopSequences",
}
BESIDE_THINKING = "Claude takes none while it thinks"
NO_CALL = "Answer now, without calling a tool."
"""The API cannot say that none of the described tools may be called."""
RETRYABLE = ("throttling", "unavailable", "internal", "modelstream", "timeout")

_REGION_IN_ARN = re.compile(r"arn:[^:]*:bedrock:(?P<region>[^:]+):")


class BedrockProvider(Endpoint):
    """A model behind Bedrock's Converse API, `converse` and `converse-stream`.

    Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html

    AWS's own botocore finds the credentials and signs each request (`pip install 'loopwright[bedrock]'`); with an API key
    of Bedrock none is needed. Reasoning returns byte for byte to the same endpoint.

    Args:
        model: its id, that of an inference profile, or an ARN: "us.anthropic.claude-sonnet-4-5-20250929-v1:0".
        region: AWS_REGION, else that of AWS's files, by default.
        profile: the profile of AWS's files whose credentials are used.
        api_key: AWS_BEARER_TOKEN_BEDROCK by default; in place of a signature.
        base_url: AWS_ENDPOINT_URL_BEDROCK_RUNTIME, else the region's own, by default.
        json_schema: whether the model holds to a JSON schema (`outputConfig`), as some do.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here.
        sampling: the settings that a request leaves open. `effort` and `top_k` are for Claude.

    Raises:
        ConfigError: there is no model or no region, or the URL or key cannot be used.
    """

    api = "Converse"
    opaque_names = (
        "signature",
        "redacted",
        "reasoningcontent",
        "reasoning content",
        "thinking block",
        "`thinking`",
    )

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        profile: str | None = None,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        json_schema: bool = False,
        client: Client | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        if not model:
            raise ConfigError("model: missing; pass the id of one")
        check_installed()
        given, api_key = api_key, None  # so that no frame of an error shows the key
        self._key, self._key_variable = read_key(given, KEY_VARIABLE), KEY_VARIABLE
        del given
        found = _REGION_IN_ARN.match(model)
        region = find_region(region or (found and found["region"]), profile)
        if self._key is None:
            check_profile(profile)
        url = base_url or os.environ.get(URL_VARIABLE)
        url = (url or f"https://bedrock-runtime.{region}.amazonaws.com").rstrip("/")
        path = f"/model/{quote(model, safe='')}"
        self._transport = self._connect(
            url, f"{path}/converse", region, profile, client
        )
        self._streaming = self._connect(
            url, f"{path}/converse-stream", region, profile, client
        )
        self._model, self._base_url, self._name = model, url, "bedrock"
        self._account = profile or ""
        self._credentials = "the credentials that botocore found were"
        self._json_schema, self._is_claude = json_schema, "anthropic." in model
        self._sampling = sampling if sampling is not None else Sampling()

    def _connect(
        self,
        url: str,
        path: str,
        region: str,
        profile: str | None,
        client: Client | None,
    ) -> HTTPTransport:
        if self._key is None:
            signer = Signer(url + path, region, profile)
            return HTTPTransport(
                url, path, headers=HEADERS, client=client, authorize=signer
            )
        headers: dict[str, str | SecretStr] = {**HEADERS}
        bearer = SecretStr(f"Bearer {self._key.get_secret_value()}")
        headers["authorization"] = bearer
        return HTTPTransport(url, path, headers=headers, client=client)

    @classmethod
    def from_env(
        cls,
        model: str | None = None,
        *,
        region: str | None = None,
        profile: str | None = None,
        **options: Unpack[EndpointOptions],
    ) -> Self:
        """Return the provider for BEDROCK_MODEL (unless `model` is given), with AWS's own variables."""
        found = find_model("bedrock", model)
        return cls(found, region=region, profile=profile, **options)

    @property
    def capabilities(self) -> Capabilities:
        """What the model supports, as far as it was said."""
        size = self._size
        return Capabilities(
            json_schema=self._json_schema,
            context_tokens=size.context,
            max_output_tokens=size.output,
            images=self._takes_images,
            documents=self._takes_images,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API key, and what the environment has of AWS's."""
        found = [os.environ.get(name, "") for name in SECRET_VARIABLES]
        return (*super().secrets, *filter(None, found))

    async def aclose(self) -> None:
        """Close the connections of the running event loop; an injected client stays open."""
        await self._streaming.aclose()
        await super().aclose()

    async def complete(self, request: Request) -> Completion:
        """Call the model once and return its reply.

        Raises:
            ContextTooLong: the conversation does not fit the model.
            ProviderTimeout: no response in time.
            ProviderError: no response, no credentials, one that is not a Converse reply, or a refusal.
        """
        encode = functools.partial(self._encode, request)
        async with await self._open(self._transport, request, encode) as opened:
            response = await opened.read()
        if not response.is_success:
            raise self._build_error(response, response.status)
        wire = WireReply.read(response.body)
        if wire is None:
            raise self._build_unreadable_error(response)
        assembly = ReplyAssembly()
        assembly.add_reply(wire)
        return self._build_completion(assembly, response.status, request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Call the model once and yield its reply as it arrives; the last delta carries the completion.

        Raise as `complete` does, and a retryable `ProviderError` for a stream that ends before the reply does.
        """
        assembly, events = ReplyAssembly(), load_event_buffer()
        encode = functools.partial(self._encode, request)
        async with await self._open(self._streaming, request, encode) as response:
            if not response.head.is_success:
                whole = await response.read()
                raise self._build_error(whole, whole.status)
            while (chunk := await response.read_chunk()) is not None:
                events.add_data(chunk)
                for delta in self._read_events(events, assembly):
                    yield delta
            status = response.status
        completion = self._build_completion(assembly, status, request)
        yield Delta(completion=completion)

    def _read_events(self, events: Any, assembly: ReplyAssembly) -> Iterator[Delta]:
        """Yield what the whole events in a buffer show; raise `ProviderError` for a failure or a damaged event."""
        try:
            for event in events:
                headers = event.headers
                if headers.get(":message-type", "event") != "event":
                    raise self._build_stream_error(headers, event.payload)
                payload: Any = from_json(event.payload)
                delta = assembly.add(str(headers.get(":event-type")), payload)
                if delta is not None:
                    yield delta
        except ProviderError:
            raise
        except Exception as error:  # noqa: BLE001 - botocore has an error for each way in which bytes can be damaged
            raise ProviderError(
                f"{self._streaming.url}: the stream of {self._model} is damaged: {type(error).__name__}",
                retryable=True,
            ) from None

    def _build_stream_error(
        self, headers: Mapping[str, Any], body: bytes
    ) -> ProviderError:
        kind = str(headers.get(":exception-type") or headers.get(":error-code") or "")
        text = WireError.read(body).text or headers.get(":error-message") or body
        retryable = any(name in kind.lower() for name in RETRYABLE)
        return ProviderError(
            f"{self._streaming.url}: {self._model} broke down in the middle of its reply: {kind}: "
            f"{self._streaming.excerpt(text)}",
            retryable=retryable,
        )

    def _build_completion(
        self, assembly: ReplyAssembly, status: int, request: Request
    ) -> Completion:
        if assembly.stop_reason in REFUSALS:
            raise self._build_refusal(assembly.stop_reason, status)
        if not assembly.stop_reason:
            text = f"{self._transport.url}: the reply of {self._model} broke off before its end"
            raise ProviderError(text, status=status, retryable=True)
        completion = assembly.build(self._model, self.source)
        if completion.calls and request.tool_choice == "none":
            return dataclasses.replace(completion, calls=(), problem=NO_CALL)
        return completion

    def _is_too_long(self, status: int, failure: WireError) -> bool:
        is_named = "too long" in failure.text.lower()
        return (status == 400 and is_named) or super()._is_too_long(status, failure)

    def _encode(self, request: Request, source: str | None = None) -> bytes:
        conversation = request.conversation
        specs = request.tools
        if request.tool_choice == "none":
            specs = describe_called_tools(conversation)
            if specs:
                conversation = conversation.user(NO_CALL, origin="runtime")
        try:
            system, messages = encode_messages(conversation.messages, source)
            parts = [b'{"messages":[', messages, b"]"]
            if system:
                parts += [b',"system":[', system, b"]"]
            if specs:
                parts += [b',"toolConfig":', encode_tools(specs)]
            may_think = can_think(request.conversation.messages, source)
            built = self._build_options(request, may_think=may_think)
            options = to_json(built)[1:-1]
            return b"".join([*parts, b"," + options if options else b"", b"}"])
        except ValueError as error:
            raise ProviderError(
                f"the request to {self._model} cannot be written as JSON: {error}"
            ) from None

    def _build_options(self, request: Request, *, may_think: bool) -> dict[str, Json]:
        settings = self._read_settings(request)
        extra = settings.take_extra_body(RESERVED)
        settings.refuse_samples()
        settings.refuse(*UNKNOWN)
        fields = self._take_model_fields(settings, may_think=may_think)
        options: dict[str, Json] = {}
        if settings:
            options["inferenceConfig"] = {
                NAMES[name]: settings[name] for name in settings
            }
        if fields:
            options["additionalModelRequestFields"] = fields
        if request.schema is not None:
            if not self._json_schema:
                raise ProviderError(
                    f"{self._model} takes no JSON schema: pass json_schema=True if it does, or ask it for text"
                )
            options["outputConfig"] = build_output_config(request.schema)
        return {**options, **extra}

    def _take_model_fields(
        self, settings: Settings, *, may_think: bool
    ) -> dict[str, Json]:
        """Remove the settings that only some models know, and return them in the form of those."""
        if not self._is_claude:
            settings.refuse("effort", "top_k")
            return {}
        effort = settings.pop("effort", None)
        budget = BUDGETS.get(str(effort), 0) if may_think else 0
        budget = _fit_budget(budget, settings.get("max_tokens"))
        if budget < MIN_BUDGET:
            top_k = settings.pop("top_k", None)
            return {} if top_k is None else {"top_k": top_k}
        settings.drop("temperature", "top_p", why=BESIDE_THINKING)
        settings.refuse("top_k", why=BESIDE_THINKING)
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _fit_budget(budget: int, max_tokens: object) -> int:
    """Return a budget of thinking within the bound of output tokens, half of which is for the reply."""
    if not isinstance(max_tokens, int):
        return budget
    return min(budget, max_tokens // 2)
