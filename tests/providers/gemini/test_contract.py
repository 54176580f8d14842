"""The contract of providers, kept by GeminiProvider over real connections."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from loopback_api import EVENTS, JSON, ApiHandler, serving
from loopwright.providers import GeminiProvider, Provider
from loopwright.testing import ProviderContract


def reply_to(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts that a model says that looks once and then answers."""
    parts: list[dict[str, Any]] = [{"text": "I see.", "thought": True}]
    last = asked["contents"][-1]["parts"][-1]
    mode = asked.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
    if "tools" in asked and mode != "NONE" and "text" in last:
        call = {"name": "look", "args": {"what": "the sky"}}
        return [
            *parts,
            {"text": "I look."},
            {"functionCall": call, "thoughtSignature": "c2ln"},
        ]
    if "responseJsonSchema" in asked.get("generationConfig", {}):
        return [*parts, {"text": '{"name": "blue"}'}]
    said = last.get("text") or last["functionResponse"]["response"]["result"]
    return [*parts, {"text": f"It is blue ☃ ({said})"}]


def candidate(parts: list[dict[str, Any]], finish: str | None = "STOP") -> Any:
    usage = {"promptTokenCount": 20, "candidatesTokenCount": 4, "thoughtsTokenCount": 3}
    content = {"content": {"role": "model", "parts": parts}}
    ended = {"finishReason": finish} if finish else {}
    return {
        "candidates": [{**content, **ended}],
        "usageMetadata": usage,
        "modelVersion": "small-1",
    }


def stream(parts: list[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the same reply as events, a text in two."""
    for place, part in enumerate(parts):
        is_last = place == len(parts) - 1
        pieces = [part]
        if "text" in part and "thought" not in part:
            pieces = [
                {**part, "text": part["text"][:3]},
                {**part, "text": part["text"][3:]},
            ]
        for number, piece in enumerate(pieces):
            ends = is_last and number == len(pieces) - 1
            body = json.dumps(candidate([piece], "STOP" if ends else None))
            yield f"data: {body}\r\n\r\n".encode()


class Handler(ApiHandler):
    """Answers as the API does; wrong keys are refused."""

    def answer(self, body: bytes) -> tuple[int, str, bytes]:
        if self.headers.get("x-goog-api-key") == "wrong-key-123":
            return 403, JSON, b'{"error": {"message": "bad key"}}'
        parts = reply_to(json.loads(body))
        if "streamGenerateContent" in self.path:
            return 200, EVENTS, b"".join(stream(parts))
        return 200, JSON, json.dumps(candidate(parts)).encode()


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with serving(Handler) as url:
        TestGeminiProvider.url = url + "/v1beta"
        yield


class TestGeminiProvider(ProviderContract):
    """The checks of the contract."""

    url = ""

    def provider(self) -> Provider:
        return GeminiProvider("gemini-3-small", base_url=self.url, api_key="key-123456")

    def failing(self) -> Iterable[Provider]:
        yield GeminiProvider("m", base_url="http://127.0.0.1:9", api_key="key-123456")
        yield GeminiProvider("m", base_url=self.url, api_key="wrong-key-123")


async def test_vertex_asks_the_project_with_a_fresh_token() -> None:
    import httpx

    from loopwright.messages import Conversation
    from loopwright.providers import Request

    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=candidate([{"text": "hi"}]))

    tokens = iter(["token-1", "token-2"])

    async def token() -> str:
        return next(tokens)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        provider = GeminiProvider.on_vertex(
            "gemini-3-pro",
            project="mine",
            location="europe-west1",
            token=token,
            client=client,
        )
        for _ in range(2):
            reply = await provider.complete(Request(Conversation.of("x")))
            assert reply.answer == "hi"
    assert [str(one.url) for one in asked] == [
        "https://europe-west1-aiplatform.googleapis.com/v1/projects/mine/locations/europe-west1/publishers/google/"
        "models/gemini-3-pro:generateContent"
    ] * 2
    sent = [one.headers["authorization"] for one in asked]
    assert sent == ["Bearer token-1", "Bearer token-2"]
    assert "x-goog-api-key" not in asked[0].headers
