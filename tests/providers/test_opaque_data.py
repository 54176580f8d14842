"""Opaque data of replies returns to the host and account that it came from; a refusal of it is answered once."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from loopwright.errors import ProviderError
from loopwright.messages import Completion, Conversation, Message, Reasoning
from loopwright.providers import (
    AnthropicProvider,
    BedrockProvider,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Provider,
    Request,
    StreamingProvider,
    stream_deltas,
)
from loopwright.providers.openai.quirks import OPENROUTER

Build = Callable[[httpx.AsyncClient, str, str], Any]
SEAL = "c2VhbGVk+/8="
HOST, KEY = "http://api.example/v1", "key-of-account-1"


def claude(client: httpx.AsyncClient, url: str, key: str) -> Provider:
    return AnthropicProvider(
        "claude-sonnet-4-6", base_url=url, api_key=key, client=client
    )


def openrouter(client: httpx.AsyncClient, url: str, key: str) -> Provider:
    return OpenAIProvider(
        "m", base_url=url, api_key=key, client=client, quirks=OPENROUTER
    )


def responses(client: httpx.AsyncClient, url: str, key: str) -> Provider:
    return OpenAIResponsesProvider("gpt-5.2", base_url=url, api_key=key, client=client)


def gemini(client: httpx.AsyncClient, url: str, key: str) -> Provider:
    return GeminiProvider("gemini-3-pro", base_url=url, api_key=key, client=client)


def bedrock(client: httpx.AsyncClient, url: str, key: str) -> Provider:
    return BedrockProvider(
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", region="eu-west-1",
        base_url=url, api_key=key, client=client,
    )  # fmt: skip


REPLIES: dict[Build, Any] = {
    claude: {
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": SEAL},
            {"type": "text", "text": "ok"},
        ],
        "stop_reason": "end_turn",
    },
    openrouter: {
        "choices": [
            {
                "message": {
                    "content": "ok",
                    "reasoning_details": [
                        {"type": "reasoning.encrypted", "data": SEAL}
                    ],
                },
                "finish_reason": "stop",
            }
        ]
    },
    responses: {
        "status": "completed",
        "output": [
            {
                "type": "reasoning",
                "id": "r",
                "summary": [],
                "encrypted_content": SEAL,
            },
            {
                "type": "message",
                "content": [{"type": "output_text", "text": "ok"}],
            },
        ],
    },
    gemini: {
        "candidates": [
            {
                "content": {"parts": [{"text": "ok", "thoughtSignature": SEAL}]},
                "finishReason": "STOP",
            }
        ]
    },
    bedrock: {
        "output": {
            "message": {
                "content": [
                    {
                        "reasoningContent": {
                            "reasoningText": {"text": "Hm.", "signature": SEAL}
                        }
                    },
                    {"text": "ok"},
                ]
            }
        },
        "stopReason": "end_turn",
    },
}
REFUSALS: dict[Build, str] = {
    claude: "messages.1.content.0: Invalid `signature` in `thinking` block",
    openrouter: "reasoning_details: the encrypted block could not be verified",
    responses: "The encrypted content of item r could not be verified.",
    gemini: "Thought signature is not valid.",
    bedrock: "The signature of the reasoning is invalid.",
}
BUILDS = pytest.mark.parametrize("build", REPLIES, ids=lambda one: one.__name__)


class Server:
    """Answers each request with the next status, and keeps what it was sent."""

    def __init__(self, build: Build, *statuses: int, refusal: str = "") -> None:
        self.bodies: list[str] = []
        self._statuses = list(statuses)
        self._reply, self._refusal = REPLIES[build], refusal or REFUSALS[build]
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.content.decode())
        status = self._statuses.pop(0) if self._statuses else 200
        if status == 200:
            return httpx.Response(200, json=self._reply)
        return httpx.Response(status, json={"error": {"message": self._refusal}})


def follow_up(reply: Completion) -> Request:
    """Return the request that follows a reply."""
    turn = Message("assistant", reply.text, reasoning=reply.reasoning)
    return Request(Conversation.of("x").add(turn).user("y"))


async def first_reply(build: Build) -> Completion:
    server = Server(build)
    reply = await build(server.client, HOST, KEY).complete(
        Request(Conversation.of("x"))
    )
    assert all(thought.source for thought in reply.reasoning)
    assert KEY not in repr([thought.source for thought in reply.reasoning])
    return reply  # type: ignore[no-any-return]


@BUILDS
@pytest.mark.parametrize(
    ("url", "key", "returns"),
    [
        (HOST, KEY, True),
        (HOST, "key-of-account-2", False),
        ("http://other.example/v1", KEY, False),
    ],
)
async def test_opaque_data_returns_to_its_own_account_alone(
    build: Build, url: str, key: str, returns: bool
) -> None:
    reply, server = await first_reply(build), Server(build)

    await build(server.client, url, key).complete(follow_up(reply))

    assert (json.dumps(SEAL)[1:-1] in server.bodies[0]) == returns


@BUILDS
@pytest.mark.parametrize("streams", [False, True])
async def test_refused_opaque_data_is_left_out_once(
    build: Build, streams: bool
) -> None:
    reply, server = await first_reply(build), Server(build, 400)
    provider: StreamingProvider = build(server.client, HOST, KEY)
    asked = follow_up(reply)

    if streams and build is not bedrock:  # its streams are in frames of their own
        deltas = [delta async for delta in stream_deltas(provider, asked)]
        again = deltas[-1].completion
    else:
        again = await provider.complete(asked)

    assert again is not None
    assert again.answer == "ok"
    assert [SEAL in body for body in server.bodies] == [True, False]


@BUILDS
async def test_second_refusal_is_an_error(build: Build) -> None:
    reply, server = await first_reply(build), Server(build, 400, 400)

    with pytest.raises(ProviderError) as raised:
        await build(server.client, HOST, KEY).complete(follow_up(reply))

    assert (raised.value.status, raised.value.retryable) == (400, False)
    assert len(server.bodies) == 2


@BUILDS
async def test_other_refusals_are_not_answered(build: Build) -> None:
    reply = await first_reply(build)
    server = Server(build, 400, refusal="the temperature is too high")

    with pytest.raises(ProviderError):
        await build(server.client, HOST, KEY).complete(follow_up(reply))

    assert len(server.bodies) == 1


async def test_thinking_in_journals_of_before_names_no_source_and_is_sent() -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": SEAL}
    reply = Completion("ok", reasoning=(Reasoning("Hm.", "thinking", block),))
    server = Server(claude)

    await claude(server.client, HOST, KEY).complete(follow_up(reply))

    assert SEAL in server.bodies[0]


def test_project_is_the_account_on_vertex() -> None:
    def source(project: str) -> str:
        return GeminiProvider.on_vertex("m", project=project, token=lambda: "t").source

    assert source("one") == source("one") != source("two")
