"""The contract of providers, kept by OpenAIProvider over real connections."""

import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

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


class Server(ThreadingHTTPServer):
    """Takes many connections at once."""

    request_queue_size = 128
    daemon_threads = True


class Endpoint(BaseHTTPRequestHandler):
    """A Chat Completions server; below /broken it answers rubbish."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.startswith("/broken"):
            self._send("text/html", b"<html>Bad gateway</html>")
        elif asked.get("stream"):
            self._send("text/event-stream", b"".join(streamed(reply_to(asked))))
        else:
            self._send("application/json", json.dumps(reply_to(asked)).encode())

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module", autouse=True)
def endpoint() -> Iterator[None]:
    server = Server(("127.0.0.1", 0), Endpoint)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    TestOpenAIProvider.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield
    server.shutdown()
    server.server_close()


class TestOpenAIProvider(ProviderContract):
    url = ""

    def provider(self) -> Provider:
        return OpenAIProvider("small", base_url=f"{self.url}/v1", api_key="")

    def failing(self) -> Iterable[Provider]:
        yield OpenAIProvider("small", base_url=f"{self.url}/broken", api_key="")
