"""Recorded exchanges served to the provider of their API, whole and in chunks of any size."""

import itertools
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from loopwright.errors import ProviderError
from loopwright.messages import Completion, Conversation
from loopwright.providers import (
    AnthropicProvider,
    BedrockProvider,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Request,
    StreamingProvider,
)
from wire_checks import encode_response

Row = dict[str, Any]
Build = Callable[..., StreamingProvider]


def build_bedrock(model: str, **options: Any) -> StreamingProvider:
    return BedrockProvider(model, region="us-east-1", **options)


PROVIDERS: dict[str, Build] = {
    "openai-responses": OpenAIResponsesProvider,
    "openai-chat": OpenAIProvider,
    "openrouter": OpenAIProvider,
    "groq": OpenAIProvider,
    "deepseek": OpenAIProvider,
    "mistral": OpenAIProvider,
    "anthropic-messages": AnthropicProvider,
    "google": GeminiProvider,
    "bedrock-converse": build_bedrock,
}


class Chunks(httpx.AsyncByteStream):
    """A body that arrives in chunks."""

    def __init__(self, body: bytes, cuts: list[int]) -> None:
        places = [0, *sorted(cuts), len(body)]
        pairs = itertools.pairwise(places)
        self._chunks = [body[start:end] for start, end in pairs if start < end]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def connect(
    family: str, interaction: Row, cuts: list[int], asked: list[Row] | None = None
) -> StreamingProvider:
    """Return the provider of a family, connected to a recorded response."""
    response = interaction["response"]
    body = encode_response(response)

    def answer(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(json.loads(request.content))
        kind = {"content-type": response["content_type"]}
        return httpx.Response(
            response["status"], headers=kind, stream=Chunks(body, cuts)
        )

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    model = read_model_name(interaction["request"])
    return PROVIDERS[family](
        model, base_url="http://api.example/v1", api_key="k", client=client
    )


def read_model_name(request: Row) -> str:
    """Return the model that a recorded request names, in its body or its path."""
    found = re.search(r"/models/([^:/]+):|/model/([^/]+)/", request["path"])
    return str(
        request["body"].get("model") or ((found[1] or found[2]) if found else "model-1")
    )


async def decode(
    family: str, interaction: Row, *, streaming: bool, cuts: list[int]
) -> Completion | ProviderError:
    provider = connect(family, interaction, cuts)
    request = Request(Conversation.of("x"))
    try:
        if not streaming:
            return await provider.complete(request)
        deltas = [delta async for delta in provider.stream(request)]
    except ProviderError as error:
        return error
    completion = deltas[-1].completion
    assert completion is not None
    return completion
