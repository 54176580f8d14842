"""Recorded replies of real models, decoded by the provider of their API, whole and in chunks of any size."""

import itertools
import json
import random
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from fault_sizes import sized
from loopwright.errors import ProviderError
from loopwright.messages import Completion, Conversation, Observation, Proposal
from loopwright.providers import (
    AnthropicProvider,
    BedrockProvider,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Request,
    StreamingProvider,
)
from recordings import MISSING, rows
from wire_checks import encode_response, list_differences, list_sealed

Row = dict[str, Any]
Build = Callable[..., StreamingProvider]
CHUNKINGS = sized(20, 10_000)


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
ROWS = [
    pytest.param(family, row, id=f"{family}-{number}")
    for family in PROVIDERS
    for number, row in enumerate(rows(f"wire/{family}.jsonl"))
]
STREAMS = [one for one in ROWS if one.values[1]["streaming"]]
SEALED = [
    one
    for one in ROWS
    if one.values[0] == "openai-responses" and len(one.values[1]["interactions"]) > 1
]

pytestmark = pytest.mark.skipif(not ROWS, reason=MISSING)


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


def check(decoded: Completion | ProviderError, expected: Row) -> None:
    if "error" in expected:
        assert isinstance(decoded, ProviderError)
    elif isinstance(decoded, ProviderError):
        assert expected.get("refusal") or expected.get("cut_off"), decoded
    elif not expected.get("refusal") and not expected.get("cut_off"):
        assert list_differences(decoded, expected) == []


@pytest.mark.parametrize(("family", "row"), ROWS)
async def test_recorded_reply_decodes_to_what_was_expected(
    family: str, row: Row
) -> None:
    pairs = zip(row["interactions"], row["expected"], strict=True)
    for interaction, expected in pairs:
        decoded = await decode(family, interaction, streaming=row["streaming"], cuts=[])
        check(decoded, expected)


@pytest.mark.parametrize(("family", "row"), STREAMS)
async def test_recorded_stream_decodes_equally_however_it_is_cut(
    family: str, row: Row
) -> None:
    chance = random.Random(row["id"])
    for interaction in row["interactions"]:
        size = len(encode_response(interaction["response"]))
        whole = await decode(family, interaction, streaming=True, cuts=[])
        for _ in range(CHUNKINGS):
            count = chance.randrange(1, 40)
            cuts = [chance.randrange(size + 1) for _ in range(count)]
            cut = await decode(family, interaction, streaming=True, cuts=cuts)
            assert repr(cut) == repr(whole), cuts


@pytest.mark.parametrize(("family", "row"), SEALED)
async def test_next_request_returns_what_the_reply_sealed(
    family: str, row: Row
) -> None:
    for interaction, following in itertools.pairwise(row["interactions"]):
        if len(following["request"]["body"].get("input", "")) < 2:
            continue  # the recorded client let the server remember
        provider = connect(family, interaction, [])
        asked = Conversation.of("x")
        if row["streaming"]:
            stream = provider.stream(Request(asked))
            completion = [delta async for delta in stream][-1].completion
        else:
            completion = await provider.complete(Request(asked))
        assert completion is not None
        sent: list[Row] = []
        again = connect(family, following, [], sent)
        await again.complete(Request(answer_calls(asked, completion)))

        recorded = following["request"]["body"]["input"]
        own = list_sealed(interaction["response"])
        assert list_sealed(sent[0]["input"]) == own
        if row["endpoint"] == "openai":  # others' reasoning was recorded as text
            assert list_kinds(sent[0]["input"])[1:] == list_new_kinds(recorded, own)


GEMINI = [
    one
    for one in ROWS
    if one.values[0] == "google" and len(one.values[1]["interactions"]) > 1
]


@pytest.mark.parametrize(("family", "row"), GEMINI)
async def test_next_request_of_gemini_returns_the_signatures(
    family: str, row: Row
) -> None:
    for interaction in row["interactions"][:-1]:
        response = interaction["response"]
        if "body" not in response or "candidates" not in response["body"]:
            continue
        asked = Conversation.of("x")
        completion = await connect(family, interaction, []).complete(Request(asked))
        sent: list[Row] = []
        again = connect(family, interaction, [], sent)
        await again.complete(Request(answer_calls(asked, completion).user("And?")))

        parts = response["body"]["candidates"][0]["content"]["parts"]
        turns = [one for one in sent[0]["contents"] if one["role"] == "model"]
        returned = [
            part.get("thoughtSignature") for turn in turns for part in turn["parts"]
        ]
        if any(returned):
            assert returned == [part.get("thoughtSignature") for part in parts]
        assert list_sealed(turns) == list_sealed(parts)


def answer_calls(asked: Conversation, completion: Completion) -> Conversation:
    """Return the conversation with the reply and a result for each of its calls."""
    proposal = Proposal.issue(
        thought=completion.thought,
        calls=completion.calls,
        answer=completion.answer,
        delivered=(),
        reasoning=completion.reasoning,
    )
    results = [Observation(call, "ok", "done") for call in completion.calls]
    return asked.observe(proposal, results)


def list_kinds(items: list[Row]) -> list[str]:
    return [item.get("type") or item["role"] for item in items]


def list_new_kinds(items: list[Row], sealed: list[str]) -> list[str]:
    """Return the kinds of the items from the first one that the reply sealed, up to the next user message."""
    ids = [item.get("encrypted_content") or item.get("id") for item in items]
    for place, item_id in enumerate(ids):
        if item_id in sealed:
            kinds = list_kinds(items[place:])
            return kinds[: kinds.index("user")] if "user" in kinds else kinds
    calls = [item for item in items if item.get("type") == "function_call"]
    count = 1 if calls else 0
    return ["function_call", "function_call_output"] * count
