"""The contract of providers, kept by BedrockProvider over real connections to a server that checks the signatures."""

import binascii
import json
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

pytest.importorskip("botocore")

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from loopback_api import JSON, ApiHandler, serving
from loopwright.attachments import Attachment
from loopwright.errors import ConfigError, ProviderError
from loopwright.messages import Conversation, Message, Reasoning, ToolCall, ToolSpec
from loopwright.providers import BedrockProvider, Provider, Request, Sampling
from loopwright.providers.bedrock.response import MALFORMED
from loopwright.testing import ProviderContract

NO_CALL = "Answer now, without calling a tool."
KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
NOVA = "amazon.nova-micro-v1:0"
MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def reply_to(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks that a model says that looks once and then answers."""
    thought = {"reasoningText": {"text": "I see.", "signature": "sig+/="}}
    blocks: list[dict[str, Any]] = [{"reasoningContent": thought}]
    last = asked["messages"][-1]["content"][-1]
    may_call = "toolConfig" in asked and last.get("text") != NO_CALL
    if may_call and "text" in last:
        use = {"toolUseId": "t1", "name": "look", "input": {"what": "the sky"}}
        return [*blocks, {"text": "I look."}, {"toolUse": use}]
    said = last.get("text") or last["toolResult"]["content"][0]["text"]
    return [*blocks, {"text": f"It is blue ☃ ({said})"}]


def frame(kind: str, payload: object, message_type: str = "event") -> bytes:
    """Return a frame of an AWS event stream."""
    names = {":message-type": message_type, ":content-type": "application/json"}
    names[":event-type" if message_type == "event" else ":exception-type"] = kind
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in names.items()
    )  # fmt: skip
    body = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    start = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + body
    return start + struct.pack("!I", binascii.crc32(start))


USAGE = {"inputTokens": 20, "outputTokens": 7, "totalTokens": 27}


def stream(blocks: list[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the same reply as events, a text in two."""
    yield frame("messageStart", {"role": "assistant"})
    for index, block in enumerate(blocks):
        place = {"contentBlockIndex": index}
        if "text" in block:
            for part in (block["text"][:3], block["text"][3:]):
                yield frame("contentBlockDelta", {"delta": {"text": part}, **place})
        elif "toolUse" in block:
            use = dict(block["toolUse"])
            written = json.dumps(use.pop("input"))
            yield frame("contentBlockStart", {"start": {"toolUse": use}, **place})
            for part in (written[:5], written[5:]):
                delta = {"toolUse": {"input": part}}
                yield frame("contentBlockDelta", {"delta": delta, **place})
        else:
            for name, value in block["reasoningContent"]["reasoningText"].items():
                delta = {"reasoningContent": {name: value}}
                yield frame("contentBlockDelta", {"delta": delta, **place})
        yield frame("contentBlockStop", place)
    yield frame("messageStop", {"stopReason": finish(blocks)})
    yield frame("metadata", {"usage": USAGE})


def finish(blocks: list[dict[str, Any]]) -> str:
    return "tool_use" if "toolUse" in blocks[-1] else "end_turn"


class Handler(ApiHandler):
    """Answers as the API does, to requests that are signed."""

    def answer(self, body: bytes) -> tuple[int, str, bytes]:
        if not self.is_signed(body):
            return 403, JSON, b'{"message": "The request signature does not match."}'
        blocks = reply_to(json.loads(body))
        if self.path.endswith("converse-stream"):
            return 200, "application/vnd.amazon.eventstream", b"".join(stream(blocks))
        message = {"role": "assistant", "content": blocks}
        whole = {
            "output": {"message": message},
            "stopReason": finish(blocks),
            "usage": USAGE,
        }
        return 200, JSON, json.dumps(whole).encode()

    def is_signed(self, body: bytes) -> bool:
        given = self.headers.get("authorization", "")
        if given == "Bearer bedrock-key-123":
            return True
        url = f"http://{self.headers['host']}{self.path}"
        expected = AWSRequest("POST", url, data=body)
        expected.context["timestamp"] = self.headers.get("x-amz-date")
        auth = SigV4Auth(Credentials(KEY_ID, SECRET), "bedrock", "eu-west-1")
        expected.headers["X-Amz-Date"] = self.headers.get("x-amz-date", "")
        canonical = auth.canonical_request(expected)
        signature = auth.signature(auth.string_to_sign(expected, canonical), expected)
        return f"Signature={signature}" in given


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with serving(Handler) as url:
        TestBedrockProvider.url = url
        yield


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere/config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/credentials")
    for name in (
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_PROFILE",
        "AWS_SESSION_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)


class TestBedrockProvider(ProviderContract):
    """The checks of the contract."""

    url = ""

    def provider(self) -> Provider:
        return BedrockProvider(MODEL, base_url=self.url, region="eu-west-1")

    def failing(self) -> Iterable[Provider]:
        yield BedrockProvider("m", base_url="http://127.0.0.1:9", region="eu-west-1")
        yield BedrockProvider("m", base_url=self.url, region="us-east-1")
        yield BedrockProvider(
            "m", base_url=self.url, region="eu-west-1", api_key="wrong-key-1"
        )


async def test_an_api_key_takes_the_place_of_a_signature() -> None:
    provider = BedrockProvider(
        MODEL,
        base_url=TestBedrockProvider.url,
        region="eu-west-1",
        api_key="bedrock-key-123",
    )
    reply = await provider.complete(Request(Conversation.of("x")))
    assert reply.answer == "It is blue ☃ (x)"
    assert provider.secrets == ("bedrock-key-123", SECRET)
    await provider.aclose()


async def test_without_credentials_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    provider = BedrockProvider("m", base_url="http://127.0.0.1:9", region="eu-west-1")
    with pytest.raises(ProviderError, match="no AWS credentials were found: set"):
        await provider.complete(Request(Conversation.of("x")))


def test_a_region_comes_from_the_arn_the_environment_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arn = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/mine"
    assert "eu-central-1" in repr(BedrockProvider(arn))
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert "bedrock-runtime.eu-north-1.amazonaws.com" in repr(BedrockProvider("m"))
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(
        ConfigError, match="region: missing; pass one, or set AWS_REGION"
    ):
        BedrockProvider("m")


@pytest.mark.parametrize(
    ("model", "sampling", "expected"),
    [
        (
            MODEL,
            Sampling(effort="low", temperature=0.2, top_p=0.9),
            {"thinking": {"type": "enabled", "budget_tokens": 2_048}},
        ),
        (MODEL, Sampling(top_k=4), {"top_k": 4}),
        (
            MODEL,
            Sampling(effort="high", max_tokens=4_000),
            {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
        ),
        (MODEL, Sampling(effort="high", max_tokens=1_000), None),
        (MODEL, Sampling(effort="none"), None),
    ],
)
def test_settings_of_claude_are_its_own_fields(
    model: str, sampling: Sampling, expected: Any
) -> None:
    provider = BedrockProvider(model, region="eu-west-1")
    asked = Request(Conversation.of("x"), sampling=sampling)
    body = json.loads(provider._encode(asked))
    assert body.get("additionalModelRequestFields") == expected
    config = body.get("inferenceConfig", {})
    assert config.get("maxTokens") == sampling.max_tokens
    assert "temperature" not in config


@pytest.mark.parametrize(
    ("model", "setting"),
    [(NOVA, "effort"), (NOVA, "top_k"), (MODEL, "seed"), (MODEL, "presence_penalty")],
)
async def test_a_setting_that_a_model_lacks_is_refused_by_name(
    model: str, setting: str
) -> None:
    value: Any = "low" if setting == "effort" else 1
    provider = BedrockProvider(model, region="eu-west-1")
    asked = Request(Conversation.of("x"), sampling=Sampling(**{setting: value}))
    with pytest.raises(ProviderError, match=f"Sampling.{setting}"):
        await provider.complete(asked)


def test_turns_of_one_side_are_one_message() -> None:
    provider = BedrockProvider(MODEL, region="eu-west-1")
    talk = Conversation(
        [Message("system", "Be brief."), Message("user", "a"), Message("user", "b")]
    )
    body = json.loads(provider._encode(Request(talk)))
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}],
        "system": [{"text": "Be brief."}],
    }


CALL = ToolCall("look", {}, "t1")
SIGNED: dict[str, Any] = {
    "reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}
}
TURN = (Message("user", "x"), Message("assistant", "", calls=(CALL,)))


def test_a_turn_that_began_without_thinking_goes_on_without_it() -> None:
    """Claude refuses thinking there: the engine proposed the call, or the thinking is not sent."""
    provider = BedrockProvider(MODEL, region="eu-west-1")
    thought = Reasoning("hm", "bedrock", SIGNED, provider.source)
    thinking = Message("assistant", "", calls=(CALL,), reasoning=(thought,))
    result = Message("tool", "blue", call_id="t1")

    def thinks(*messages: Message, source: str | None = provider.source) -> bool:
        asked = Request(Conversation(messages), sampling=Sampling(effort="low"))
        return b"budget_tokens" in provider._encode(asked, source)

    assert thinks(*TURN[:1], thinking, result)
    assert not thinks(*TURN[:1], thinking, result, source=None)
    assert not thinks(*TURN, result)
    assert thinks(*TURN, result, Message("assistant", "Blue."), Message("user", "y"))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([Message("assistant", "hello")], ["Begin.", "hello", "Go on."]),
        ([Message("user", " ")], ["Begin."]),
        ([Message("system", " "), Message("user", "x")], ["x"]),
    ],
)
def test_a_conversation_is_sent_as_the_api_wants_it(
    messages: list[Message], expected: list[str]
) -> None:
    provider = BedrockProvider(MODEL, region="eu-west-1")
    body = json.loads(provider._encode(Request(Conversation(messages))))
    texts = [block["text"] for turn in body["messages"] for block in turn["content"]]
    assert texts == expected
    assert [turn["role"] for turn in body["messages"]] == [
        ("user", "assistant")[number % 2] for number in range(len(expected))
    ]
    assert "system" not in body


def test_documents_have_names_that_the_api_takes() -> None:
    provider = BedrockProvider(MODEL, region="eu-west-1")
    named = Attachment.document(b"one", media_type="text/plain", name="Bericht_ü 1.txt")
    other = Attachment.document(b"two", media_type="text/plain")
    untrusted = Attachment.document(
        b"three", media_type="text/plain", name="document-1"
    )
    image = Attachment.image(b"\x89PNG\r\n\x1a\n1")
    messages = [
        Message("user", "x", attachments=(named, other)),
        Message("assistant", "", calls=(CALL,)),
        Message("tool", "read", call_id="t1", attachments=(untrusted,)),
        Message("user", "", attachments=(image,)),
    ]
    body = json.loads(provider._encode(Request(Conversation(messages))))
    first, _, last = (turn["content"] for turn in body["messages"])
    names = [block["document"]["name"] for block in first if "document" in block]
    assert re.fullmatch(r"Bericht-1-txt-[0-9a-f]{8}", names[0])
    assert re.fullmatch(r"document-[0-9a-f]{8}", names[1])
    result = last[0]["toolResult"]["content"][1]["document"]["name"]
    assert re.fullmatch(r"document-1-[0-9a-f]{8}", result)
    assert [set(block) for block in last[1:]] == [{"image"}]


def test_an_answer_is_asked_for_without_tools_in_words() -> None:
    """The API has no choice of tools that forbids them, and wants those described that were called."""
    provider = BedrockProvider(MODEL, region="eu-west-1")
    spec = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
    fresh = Request(Conversation.of("x"), (spec,), "none")
    assert "toolConfig" not in json.loads(provider._encode(fresh))
    talk = Conversation([*TURN, Message("tool", "blue", call_id="t1")])
    body = json.loads(provider._encode(Request(talk, (spec,), "none")))
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == [
        "look"
    ]
    assert body["messages"][-1]["content"][-1] == {"text": NO_CALL}


async def test_a_call_where_none_was_allowed_is_a_problem() -> None:
    import httpx

    use = {"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}
    reply = {
        "output": {"message": {"role": "assistant", "content": [use]}},
        "stopReason": "tool_use",
        "usage": USAGE,
    }
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=reply))
    async with httpx.AsyncClient(transport=transport) as client:
        provider = BedrockProvider(MODEL, region="eu-west-1", client=client)
        talk = Conversation([*TURN, Message("tool", "blue", call_id="t1")])
        completion = await provider.complete(Request(talk, (), "none"))
    assert (completion.calls, completion.problem) == ((), NO_CALL)


@pytest.mark.parametrize(
    ("frames", "retryable"),
    [
        ([frame("throttlingException", {"message": "slow down"}, "exception")], True),
        ([frame("validationException", {"message": "no"}, "exception")], False),
        ([frame("messageStart", {"role": "assistant"})], True),
        ([frame("messageStart", {"role": "assistant"})[:-1] + b"x"], True),
        ([frame("contentBlockDelta", {"delta": 3})], True),
    ],
    ids=["throttled", "invalid", "broken off", "damaged", "senseless"],
)
async def test_a_stream_that_fails_is_a_provider_error(
    frames: list[bytes], retryable: bool
) -> None:
    import httpx

    def answer(_: httpx.Request) -> httpx.Response:
        kind = {"content-type": "application/vnd.amazon.eventstream"}
        return httpx.Response(200, headers=kind, content=b"".join(frames))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        provider = BedrockProvider(MODEL, region="eu-west-1", client=client)
        with pytest.raises(ProviderError) as told:
            _ = [
                delta async for delta in provider.stream(Request(Conversation.of("x")))
            ]
    assert told.value.retryable is retryable


@pytest.mark.parametrize("given", ["AWS_PROFILE", "profile"])
def test_profile_that_is_absent_is_an_error_of_configuration(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    options = {"profile": "nobody"} if given == "profile" else {}
    if not options:
        monkeypatch.setenv(given, "nobody")

    with pytest.raises(ConfigError, match=r"^profile: The config profile \(nobody\)"):
        BedrockProvider("amazon.nova-lite-v1:0", **options)  # type: ignore[arg-type]
    assert BedrockProvider("amazon.nova-lite-v1:0", api_key="k1234567", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("written", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1'])
async def test_arguments_in_a_stream_that_are_not_sound_json_are_a_problem(
    written: str,
) -> None:
    import httpx

    place = {"contentBlockIndex": 0}
    start = {"start": {"toolUse": {"toolUseId": "t1", "name": "look"}}, **place}
    delta = {"delta": {"toolUse": {"input": written}}, **place}
    body = b"".join(
        [
            frame("contentBlockStart", start),
            frame("contentBlockDelta", delta),
            frame("messageStop", {"stopReason": "tool_use"}),
        ]
    )
    kind = {"content-type": "application/vnd.amazon.eventstream"}
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, headers=kind, content=body)
    )
    async with httpx.AsyncClient(transport=transport) as client:
        provider = BedrockProvider(MODEL, region="eu-west-1", client=client)
        deltas = [d async for d in provider.stream(Request(Conversation.of("x")))]

    completion = deltas[-1].completion
    assert completion is not None
    assert (completion.calls, completion.problem) == ((), MALFORMED)
