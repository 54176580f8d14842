"""Recorded replies of real models, decoded by the provider of their API, whole and in chunks of any size."""

import contextlib
import itertools
import json
import random
from typing import Any

import pytest

from fault_sizes import sized
from loopwright.attachments import Attachment
from loopwright.errors import ProviderError
from loopwright.messages import (
    Completion,
    Conversation,
    Message,
    Observation,
    Proposal,
    ToolCall,
)
from loopwright.providers import Request
from recordings import MISSING, rows
from wire_checks import encode_response, list_differences, list_sealed
from wire_replay import PROVIDERS, connect, decode

Row = dict[str, Any]
CHUNKINGS = sized(20, 10_000)


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


@pytest.mark.timeout(sized(120, 7_200))
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


TWO_TURNS = [one for one in ROWS if len(one.values[1]["interactions"]) > 1]


@pytest.mark.parametrize(("family", "row"), TWO_TURNS)
async def test_next_request_carries_what_the_recorded_one_does(
    family: str, row: Row
) -> None:
    """Every signature and encrypted part of a reply that the recorded client sent back goes back, in its order."""
    for interaction, following in itertools.pairwise(row["interactions"]):
        completion = await decode(
            family, interaction, streaming=row["streaming"], cuts=[]
        )
        if isinstance(completion, ProviderError):
            continue
        sent: list[Row] = []
        again = connect(family, following, [], sent)
        question = Request(answer_calls(Conversation.of("x"), completion).user("And?"))
        with contextlib.suppress(ProviderError):  # the recorded reply may be an error
            await again.complete(question)

        given = list_sealed(read_reply(interaction["response"]))
        recorded = list_sealed(following["request"]["body"])
        wanted = [sealed for sealed in recorded if unify(sealed) in map(unify, given)]
        own = map(unify, list_sealed(sent[0]))
        missing = [sealed for sealed in map(unify, wanted) if sealed not in own]
        assert missing == []  # `in` moves the iterator on, so that the order counts too


def read_reply(response: Row) -> Any:
    """Return a recorded reply as JSON: that of each event of a stream of texts."""
    if "sse" not in response:
        return response.get("body")
    lines = [line for line in response["sse"].splitlines() if line.startswith("data:")]
    return [json.loads(line[5:]) for line in lines if "{" in line]


def unify(sealed: str) -> str:
    """Return base64 in one alphabet: Google's client writes that for URLs."""
    return sealed.replace("-", "+").replace("_", "/")


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


SHOWN = [
    one
    for one in ROWS
    if "test_multimodal_tool_returns" in one.values[1]["id"]
    and "direct-" in one.values[1]["id"]
    and one.values[0]
    not in (
        "groq",
        "mistral",
        "openai-chat",
    )  # whose own order the tests of images have
]
SOURCED = ("image", "document")
IMAGE_KINDS = {"jpeg": "image/jpeg", "png": "image/png", "pdf": "application/pdf"}


@pytest.mark.parametrize(("family", "row"), SHOWN)
async def test_attachment_of_a_tool_is_sent_where_the_recorded_client_had_it(
    family: str, row: Row
) -> None:
    recorded = find_parts(row["interactions"][-1]["request"]["body"])
    found = [load_part(part) for part in recorded]
    if not found or None in found:
        pytest.skip("sound, video, or a file that the vendor keeps")
    call = ToolCall("get_file", {}, "c1")
    asked = Conversation.of("x").add(
        Message("assistant", "", (call,)),
        Message(
            "tool", "", call_id="c1", attachments=tuple(one for one in found if one)
        ),
    )
    sent: list[Row] = []
    await connect(family, row["interactions"][-1], [], sent).complete(Request(asked))

    own = [part for part in find_parts(sent[0]) if "text" not in part]
    assert [load_part(part) for part in own] == found


RESULTS = (
    "tool_result",
    "function_call_output",
    "toolResult",
    "function_response",
    "functionResponse",
)


def find_parts(value: Any, *, inside: bool = False) -> list[Row]:
    """Return the images and documents inside of the results of a request, as they are written."""
    if isinstance(value, list):
        return [part for one in value for part in find_parts(one, inside=inside)]
    if not isinstance(value, dict):
        return []
    if inside and load_part(value) is not None:
        return [value]
    is_result = value.get("type") in RESULTS
    return [
        part
        for name, one in value.items()
        for part in find_parts(one, inside=inside or is_result or name in RESULTS)
    ]


def load_part(part: Row) -> Attachment | None:
    """Return the attachment that a part of any API is."""
    if "image_url" in part:
        return load_url("image", part["image_url"])
    if "file_data" in part:
        return load_url("document", part["file_data"], part["filename"])
    google = part.get("inline_data") or part.get("inlineData")
    if google:
        media_type = google.get("mime_type") or google["mimeType"]
        return load(media_type, unify(google["data"]))
    bedrock = part.get("image") or part.get("document")
    if bedrock:
        return load(IMAGE_KINDS[bedrock["format"]], bedrock["source"]["bytes"])
    return load_source(part["source"]) if part.get("type") in SOURCED else None


def load_source(source: Row) -> Attachment:
    if "url" in source:
        return Attachment.image(source["url"])
    return load(source["media_type"], source["data"])


def load_url(kind: Any, url: str, name: str = "") -> Attachment:
    loaded = Attachment.image(url) if kind == "image" else Attachment.document(url)
    return Attachment(kind, loaded.media_type, loaded.data, loaded.url, name)


def load(media_type: str, data: str) -> Attachment:
    kind: Any = media_type.partition("/")[0]
    return Attachment("image" if kind == "image" else "document", media_type, data)
