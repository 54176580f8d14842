"""The contract of providers, kept by OpenAIResponsesProvider over real connections."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from loopback_api import EVENTS, JSON, ApiHandler, serving
from loopwright.providers import OpenAIResponsesProvider, Provider
from loopwright.testing import ProviderContract

THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "I see."}],
    "encrypted_content": "gAAA+/=",
}


def text_item(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


def reply_to(asked: dict[str, Any]) -> dict[str, Any]:
    """What a model that looks once and then answers would say."""
    last = asked["input"][-1]
    items: list[dict[str, Any]] = [THOUGHT]
    can_call = asked.get("tools") and asked.get("tool_choice") != "none"
    if can_call and last.get("role") == "user":
        items += [
            text_item("I look."),
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "look",
                "arguments": '{"what": "the sky"}',
            },
        ]
    elif "text" in asked:
        items.append(text_item('{"name": "blue"}'))
    else:
        said = last.get("content") or last.get("output")
        items.append(text_item(f"It is blue ☃ ({said})"))
    usage = {
        "input_tokens": 20,
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    return {
        "model": "small-1",
        "status": "completed",
        "output": items,
        "usage": usage,
    }


def stream(reply: dict[str, Any]) -> Iterator[bytes]:
    """The same reply as events; the end seals the thought again, with other bytes."""

    def event(kind: str, **fields: object) -> bytes:
        body = json.dumps({"type": kind, **fields})
        return f"event: {kind}\ndata: {body}\n\n".encode()

    yield event("response.created", response={"status": "in_progress"})
    for index, item in enumerate(reply["output"]):
        place = {"output_index": index}
        yield event(
            "response.output_item.added", item={**item, "arguments": ""}, **place
        )
        if item["type"] == "message":
            text = item["content"][0]["text"]
            for part in (text[:3], text[3:]):
                yield event("response.output_text.delta", delta=part, **place)
        elif item["type"] == "function_call":
            for part in (item["arguments"][:5], item["arguments"][5:]):
                kind = "response.function_call_arguments.delta"
                yield event(kind, delta=part, **place)
        else:
            kind = "response.reasoning_summary_text.delta"
            yield event(kind, delta="I see.", **place)
        yield event("response.output_item.done", item=item, **place)
    sealed_again = [
        {**item, "encrypted_content": "other"} if item is THOUGHT else item
        for item in reply["output"]
    ]
    yield event("response.completed", response={**reply, "output": sealed_again})


class Handler(ApiHandler):
    """A Responses server; below /broken it answers rubbish."""

    def answer(self, body: bytes) -> tuple[int, str, bytes]:
        if self.path.startswith("/broken"):
            return 200, "text/html", b"<html>Bad gateway</html>"
        asked = json.loads(body)
        reply = reply_to(asked)
        if asked.get("stream"):
            return 200, EVENTS, b"".join(stream(reply))
        return 200, JSON, json.dumps(reply).encode()


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with serving(Handler) as url:
        TestOpenAIResponsesProvider.url = url
        yield


class TestOpenAIResponsesProvider(ProviderContract):
    url = ""

    def provider(self) -> Provider:
        return OpenAIResponsesProvider("gpt-5.2", base_url=f"{self.url}/v1", api_key="")

    def failing(self) -> Iterable[Provider]:
        yield OpenAIResponsesProvider(
            "gpt-5.2", base_url=f"{self.url}/broken", api_key=""
        )
