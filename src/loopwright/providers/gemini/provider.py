"""`GeminiProvider`: models behind Google's Gemini API."""

import functools
import os
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Self, Unpack
from urllib.parse import quote

from pydantic import SecretStr
from pydantic_core import to_json

from ...errors import ConfigError, ContextTooLong, ProviderError
from ...messages import Completion, Json
from ..base import (
    Capabilities,
    Delta,
    Request,
    Sampling,
    share_usage,
    split_samples,
)
from ..http.endpoint import HEADERS, Endpoint, read_key
from ..http.response import Response
from ..http.tokens import BearerToken, TokenCallback
from ..http.transport import Client, HTTPTransport, StreamingResponse
from ..http.wire import WireError
from ..provider_tools import KINDS
from ..reply_schemas import merge_branches
from ..settings import EndpointOptions, find_model
from .request import encode_contents, encode_tools
from .response import ReplyAssembly, WireCandidate, WireReply

DEFAULT_URL = "https://generativelanguage.googleapis.com/v1beta"
KEY_VARIABLE = "GEMINI_API_KEY"
OTHER_KEY_VARIABLE = "GOOGLE_API_KEY"
URL_VARIABLE = "GEMINI_BASE_URL"
NAMES = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_tokens": "maxOutputTokens",
    "stop": "stopSequences",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
# Tokens that an effort stands for before Gemini 3, which takes a level.
BUDGETS: Mapping[str, int] = {
    "none": 0,
    "minimal": 512,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
}
RESERVED = frozenset({"contents", "systemInstruction", "tools", "toolConfig"})
TOO_LONG = ("exceeds the maximum number of tokens", "input token count")

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
MAX_SAMPLES = 8  # candidates of a request
FIRST_THAT_THINKS = (2, 5)  # the version


class GeminiProvider(Endpoint):
    """A model behind the Gemini API, `generateContent` and `streamGenerateContent`.

    Source: https://ai.google.dev/api/generate-content

    Signatures of thoughts return to the same host and key, byte for byte and in their places. A call that Gemini did
    not make gets Google's documented placeholder from Gemini 3 on, which refuses a step without a signature.

    Args:
        model: its name: "gemini-3-pro-preview".
        base_url: where the API lives, with its version; Google by default.
        api_key: GEMINI_API_KEY or GOOGLE_API_KEY by default; only Google requires a key. An empty text sends none.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here. Without one,
            each event loop has its own connections, which honour the proxies of the environment.
        token: returns a bearer token for each request, in place of a key; see `on_vertex`.
        sampling: the settings that a request leaves open.

    Raises:
        ConfigError: there is no model, no key for Google, or the URL or key cannot be used.
    """

    api = "Gemini"
    opaque_names = ("thought_signature", "thought signature", "thoughtsignature")

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | SecretStr | None = None,
        client: Client | None = None,
        token: TokenCallback | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        url = (base_url or DEFAULT_URL).rstrip("/")
        given, api_key = api_key, None  # so that no frame of an error shows the key
        self._key, self._key_variable = _read_key(given), KEY_VARIABLE
        del given
        if token is not None:
            self._key = None
        is_google = url == DEFAULT_URL and token is None
        _check_options(model, self._key, is_google=is_google)
        authorize = None if token is None else BearerToken(token)
        self._credentials = "" if token is None else "the token of token= was"
        path = f"/models/{quote(model, safe='')}:"
        headers = _build_headers(self._key)
        self._transport = HTTPTransport(
            url,
            f"{path}generateContent",
            headers=headers,
            client=client,
            authorize=authorize,
        )
        self._streaming = HTTPTransport(
            f"{url}?alt=sse",
            f"{path}streamGenerateContent",
            headers=headers,
            client=client,
            authorize=authorize,
        )
        self._model, self._base_url = model, url
        self._name = "gemini" if url == DEFAULT_URL else self._transport.host
        self._sampling = sampling if sampling is not None else Sampling()
        self._has_levels = _read_version(model) >= (3, 0)

    @classmethod
    def on_vertex(
        cls,
        model: str,
        *,
        project: str,
        location: str = "global",
        token: TokenCallback,
        client: Client | None = None,
        sampling: Sampling | None = None,
    ) -> Self:
        """Return a model of a project on Vertex AI; `token` returns an access token of Google Cloud.

        google-auth fetches and renews it: `credentials.refresh(request)`, then `credentials.token`.
        """
        if not project.strip():
            raise ConfigError("project: missing; pass the id of one of Google Cloud")
        host = "" if location == "global" else f"{location}-"
        place = (
            f"projects/{quote(project, safe='')}/locations/{quote(location, safe='')}"
        )
        url = f"https://{host}aiplatform.googleapis.com/v1/{place}/publishers/google"
        made = cls(
            model,
            base_url=url,
            api_key="",
            client=client,
            token=token,
            sampling=sampling,
        )
        made._account = project
        return made

    @classmethod
    def from_env(
        cls, model: str | None = None, **options: Unpack[EndpointOptions]
    ) -> Self:
        """Return the provider that GEMINI_MODEL (unless `model` is given), GEMINI_BASE_URL and GEMINI_API_KEY describe."""
        options["base_url"] = options.get("base_url") or os.environ.get(URL_VARIABLE)
        return cls(find_model("gemini", model), **options)

    @property
    def capabilities(self) -> Capabilities:
        """What the API supports."""
        size = self._size
        return Capabilities(
            json_schema=True,
            context_tokens=size.context,
            max_output_tokens=size.output,
            images=True,
            documents=True,
            max_samples=MAX_SAMPLES,
            provider_tools=KINDS,
        )

    async def aclose(self) -> None:
        """Close the connections of the running event loop; an injected client stays open."""
        await self._streaming.aclose()
        await super().aclose()

    async def complete(self, request: Request) -> Completion:
        """Call the model once and return its reply.

        A request whose signatures are refused is sent once again without them.

        Raises:
            ContextTooLong: the conversation does not fit the model.
            ProviderTimeout: no response in time.
            ProviderError: no response, one that is not a Gemini reply, or a refusal.
        """
        encode = functools.partial(self._encode, request)
        async with await self._open(self._transport, request, encode) as response:
            return self._read_reply(await response.read())

    async def sample(self, request: Request) -> tuple[Completion, ...]:
        """Call the model once and return `request.sampling.n` replies; a refused one is left out.

        Raise as `complete` does.
        """
        number, single = split_samples(request)
        encode = functools.partial(self._encode, single, number=number)
        async with await self._open(self._transport, request, encode) as response:
            return self._read_replies(await response.read())

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Call the model once and yield its reply as it arrives; the last delta carries the completion.

        Raise as `complete` does, and a retryable `ProviderError` for a stream that ends before the reply does.
        """
        encode = functools.partial(self._encode, request)
        async with await self._open(self._streaming, request, encode) as response:
            if not response.is_event_stream:
                completion = self._read_reply(await response.read())
                yield Delta(text=completion.text, completion=completion)
                return
            assembly = ReplyAssembly()
            while (events := await response.read_events()) is not None:
                for event in events:
                    for delta in self._read_event(event.data, response, assembly):
                        yield delta
            status = response.status
        yield Delta(completion=self._build_completion(assembly, status))

    def _read_event(
        self, data: str, response: StreamingResponse, assembly: ReplyAssembly
    ) -> list[Delta]:
        chunk = WireReply.read(data)
        if chunk is None:
            excerpt = self._transport.excerpt(data)
            raise ProviderError(
                f"{self._transport.url} sent an event that is not a part of a Gemini reply: {excerpt}",
                status=response.status,
            )
        if chunk.error is not None:
            raise self._build_stream_error(data.encode(), response.status)
        return assembly.add(chunk)

    def _build_stream_error(self, body: bytes, status: int) -> ProviderError:
        failure = WireError.read(body)
        text = (
            f"{self._transport.url}: {self._model} broke down in the middle of its reply: "
            f"{self._transport.excerpt(failure.text or body)}"
        )
        return ProviderError(text, status=failure.status or status, retryable=True)

    def _read_reply(self, response: Response) -> Completion:
        """Return the completion of a whole reply."""
        assembly = ReplyAssembly()
        assembly.add(self._read_wire(response))
        return self._build_completion(assembly, response.status)

    def _read_replies(self, response: Response) -> tuple[Completion, ...]:
        """Return the completions of all candidates but those that were refused; raise where all were."""
        wire = self._read_wire(response)
        replies: list[Completion] = []
        refused: ProviderError | None = None
        candidates = [[candidate] for candidate in wire.candidates or ()]
        for one in candidates or [list[WireCandidate]()]:
            assembly = ReplyAssembly()
            assembly.add(wire.model_copy(update={"candidates": one}))
            try:
                replies.append(self._build_completion(assembly, response.status))
            except ProviderError as error:
                refused = error
        if refused is not None and not replies:
            raise refused
        return share_usage(replies, replies[0].usage)

    def _read_wire(self, response: Response) -> WireReply:
        if not response.is_success:
            error = self._build_error(response, response.status)
            if any(name in str(error) for name in TOO_LONG):
                raise ContextTooLong(str(error), status=response.status)
            raise error
        wire = WireReply.read(response.body)
        if wire is None or wire.error is not None:
            raise self._build_unreadable_error(response)
        return wire

    def _build_completion(self, assembly: ReplyAssembly, status: int) -> Completion:
        if assembly.refusal:
            raise self._build_refusal(assembly.refusal, status)
        if not assembly.finish_reason:
            text = f"{self._transport.url}: the reply of {self._model} broke off before its end"
            raise ProviderError(text, status=status, retryable=True)
        return assembly.build(self.source)

    def _encode(
        self, request: Request, source: str | None, number: int | None = None
    ) -> bytes:
        try:
            messages = request.conversation.messages
            system, contents = encode_contents(messages, source, signs=self._has_levels)
            parts = [b'{"contents":[', contents, b"]"]
            if system:
                parts += [b',"systemInstruction":{"parts":[', system, b"]}"]
            if request.tools or request.provider_tools:
                tools = encode_tools(request.tools, request.provider_tools)
                parts += [b',"tools":', tools]
            if config := self._build_tool_config(request):
                parts += [b',"toolConfig":', to_json(config)]
            options = to_json(self._build_options(request, number))[1:-1]
            return b"".join([*parts, b"," + options if options else b"", b"}"])
        except ValueError as error:
            raise ProviderError(
                f"the request to {self._model} cannot be written as JSON: {error}"
            ) from None

    def _build_tool_config(self, request: Request) -> dict[str, object]:
        config: dict[str, object] = {}
        if request.tools and request.tool_choice == "none":
            config["functionCallingConfig"] = {"mode": "NONE"}
        # Without it, Gemini 3 refuses functions beside tools of its own, and does not show what those did.
        if request.provider_tools and self._has_levels:
            config["includeServerSideToolInvocations"] = True
        return config

    def _build_options(self, request: Request, number: int | None) -> dict[str, object]:
        settings = self._read_settings(request)
        extra = settings.take_extra_body(RESERVED)
        settings.refuse_samples()
        if _read_version(self._model) < FIRST_THAT_THINKS:
            settings.refuse("effort")
        effort = settings.pop("effort", None)
        config: dict[str, object] = {NAMES[name]: settings[name] for name in settings}
        if number is not None:
            config["candidateCount"] = number
        if effort is not None:
            config["thinkingConfig"] = self._build_thinking(effort)
        if request.schema is not None:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = merge_branches(request.schema.schema)
        options: dict[str, object] = {"generationConfig": config} if config else {}
        return {**options, **extra}

    def _build_thinking(self, effort: Json) -> dict[str, object]:
        if not self._has_levels:
            return {"thinkingBudget": BUDGETS[str(effort)]}
        if effort == "none":
            raise ProviderError(
                f"Sampling.effort: {self._model} cannot turn thinking off, got 'none'; use 'minimal' or more"
            )
        return {"thinkingLevel": str(effort)}


def _read_version(model: str) -> tuple[int, int]:
    """Return the version in a model's name; without one, that of the first that thinks."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else FIRST_THAT_THINKS


def _read_key(given: str | SecretStr | None) -> SecretStr | None:
    if given is None and not os.environ.get(KEY_VARIABLE, "").strip():
        return read_key(None, OTHER_KEY_VARIABLE)
    return read_key(given, KEY_VARIABLE)


def _build_headers(key: SecretStr | None) -> dict[str, str | SecretStr]:
    return {**HEADERS} if key is None else {**HEADERS, "x-goog-api-key": key}


def _check_options(model: str, key: SecretStr | None, *, is_google: bool) -> None:
    if not model:
        raise ConfigError(
            "model: missing; pass one, like GeminiProvider('gemini-3-pro-preview')"
        )
    if is_google and key is None:
        raise ConfigError(
            f"api_key: Google requires one; set {KEY_VARIABLE} or pass api_key (or base_url for another endpoint)"
        )
