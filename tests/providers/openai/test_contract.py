"""The contract of providers, kept by OpenAIProvider over real connections."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from loopback_api import EVENTS, JSON, ApiHandler, serving
from loopwright.providers import OpenAIProvider, Provider
from loopwright.testing import ProviderContract


def reply_to(asked: dict[str, Any]) -> dict[str, Any]:
    """What a model that looks once and then answers would say."""
    last = asked["messages"][-1]
    if (
        asked.get("tools")
        and asked.get("tool_choice") != "none"
        and last["role"] == "user"
    ):
        function = {"name": "look", "arguments": '{"what": "the sky"}'}
        message = {
            "content": "I look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }
    elif "response_format" in asked:
        message = {"content": '{"name": "blue"}'}
    else:
        message = {
            "content": f"It is blue ☃ ({last['content']})",
            "reasoning_content": "I see.",
        }
    finish = "tool_calls" if "tool_calls" in message else "stop"
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": finish,
    }
    return {
        "model": "small-1",
        "choices": [choice],
        "usage": {"prompt_tokens": 20, "completion_tokens": 7},
    }


def streamed(reply: dict[str, Any]) -> Iterator[bytes]:
    """The same reply in chunks."""

    def event(choices: list[object], **top: object) -> bytes:
        return (
            b"data: "
            + json.dumps({"model": "small-1", "choices": choices, **top}).encode()
            + b"\n\n"
        )

    choice = reply["choices"][0]
    for name, value in choice["message"].items():
        halves = (
            (value[:3], value[3:])
            if isinstance(value, str) and name != "role"
            else (value,)
        )
        yield from (
            event([{"index": 0, "delta": {name: half}, "finish_reason": None}])
            for half in halves
        )
    yield event([{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}])
    yield event([], usage=reply["usage"])
    yield b"data: [DONE]\n\n"


class Handler(ApiHandler):
    """A Chat Completions server; below /broken it answers rubbish."""

    def answer(self, body: bytes) -> tuple[int, str, bytes]:
        if self.path.startswith("/broken"):
            return 200, "text/html", b"<html>Bad gateway</html>"
        asked = json.loads(body)
        reply = reply_to(asked)
        if asked.get("stream"):
            return 200, EVENTS, b"".join(streamed(reply))
        return 200, JSON, json.dumps(reply).encode()


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with serving(Handler) as url:
        TestOpenAIProvider.url = url
        yield


class TestOpenAIProvider(ProviderContract):
    url = ""

    def provider(self) -> Provider:
        return OpenAIProvider("small", base_url=f"{self.url}/v1", api_key="")

    def failing(self) -> Iterable[Provider]:
        yield OpenAIProvider("small", base_url=f"{self.url}/broken", api_key="")
