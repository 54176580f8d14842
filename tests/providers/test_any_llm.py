"""AnyLLMProvider over the real any-llm-sdk and a server on this machine: contract, errors, settings, secrets."""

import importlib.util
import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from loopwright import ReActEngine, Runtime, Sampling, tool
from loopwright.errors import ConfigError, ContextTooLong, ProviderError
from loopwright.messages import Conversation
from loopwright.plugins import build_provider
from loopwright.providers import AnyLLMProvider, Provider, Request
from loopwright.testing import ProviderContract

# It is looked for and not imported: each process that collects the tests would load it.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("any_llm") is None, reason="any_llm is not installed"
)

KEY = "service-key-0123456789"


def reply_to(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what a model says that looks once and then answers."""
    last = asked["messages"][-1]
    may_call = asked.get("tools") and asked.get("tool_choice") != "none"
    message: dict[str, Any] = {"role": "assistant", "content": "I look."}
    if may_call and last["role"] == "user":
        function = {"name": "look", "arguments": '{"what": "the sky"}'}
        call = {"id": "c1", "type": "function", "function": function}
        message["tool_calls"] = [call]
    elif "response_format" in asked:
        message["content"] = '{"name": "blue"}'
    else:
        message["content"] = f"It is blue ☃ ({last['content']})"
    finish = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {
        "id": "r",
        "object": "chat.completion",
        "created": 1,
        "model": "small-1",
        "choices": [choice],
        "usage": {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27},
    }


def streamed(reply: dict[str, Any]) -> Iterator[bytes]:
    """Yield the same reply in chunks."""
    choice = reply["choices"][0]
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    text = choice["message"]["content"]
    deltas += [{"content": text[:3]}, {"content": text[3:]}]
    for index, call in enumerate(choice["message"].get("tool_calls", ())):
        deltas.append({"tool_calls": [{"index": index, **call}]})
    head = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "small-1"}  # fmt: skip
    for delta in deltas:
        one = {"index": 0, "delta": delta, "finish_reason": None}
        yield b"data: " + json.dumps({**head, "choices": [one]}).encode() + b"\n\n"
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    yield b"data: " + json.dumps({**head, "choices": [end]}).encode() + b"\n\n"
    usage = {**head, "choices": [], "usage": reply["usage"]}
    yield b"data: " + json.dumps(usage).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


class Server(ThreadingHTTPServer):
    """Takes many connections at once."""

    request_queue_size = 128
    daemon_threads = True
    asked: list[dict[str, Any]]


class Endpoint(BaseHTTPRequestHandler):
    """A Chat Completions server; below /STATUS it fails with that status."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked)
        start = self.path.split("/")[1]
        if start.isdigit():
            echo = self.headers["authorization"]
            message = f"maximum context length exceeded, {echo}" if start == "400" else f"no, {echo}"  # fmt: skip
            code = "context_length_exceeded" if start == "400" else "x"
            failure = {"error": {"message": message, "code": code, "type": "t"}}
            self._send(int(start), "application/json", json.dumps(failure).encode())
        elif asked.get("stream"):
            body = b"".join(streamed(reply_to(asked)))
            self._send(200, "text/event-stream", body)
        else:
            body = json.dumps(reply_to(asked)).encode()
            self._send(200, "application/json", body)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("retry-after", "7")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Endpoint)
    server.asked = []
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    TestAnyLLMProvider.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _url(server: Server) -> None:
    server.asked.clear()


def build(path: str = "/v1", **options: Any) -> AnyLLMProvider:
    url = f"{TestAnyLLMProvider.url}{path}"
    return AnyLLMProvider("sambanova", "m", api_key=KEY, base_url=url, **options)


class TestAnyLLMProvider(ProviderContract):
    url = ""

    def provider(self) -> Provider:
        return build(json_schema=True)

    def failing(self) -> Iterable[Provider]:
        yield build("/401")
        yield build("/500")
        url = "http://127.0.0.1:9/v1"
        yield AnyLLMProvider("sambanova", "m", api_key=KEY, base_url=url)


ASKED = Request(Conversation.of("x"))


@pytest.mark.parametrize(
    ("status", "retryable", "after"),
    [(401, False, None), (404, False, None), (429, True, 7.0), (503, True, None)],
)
async def test_failure_says_whether_it_may_pass_and_holds_no_key(
    server: Server, status: int, retryable: bool, after: float | None
) -> None:
    with pytest.raises(ProviderError) as raised:
        await build(f"/{status}").complete(ASKED)

    error = raised.value
    assert (error.status, error.retryable, error.retry_after) == (
        status,
        retryable,
        after,
    )
    assert KEY not in str(error)
    assert error.__context__ is None
    assert len(server.asked) == 1  # the runtime retries, and nothing else does


async def test_conversation_that_is_too_long_is_told_apart() -> None:
    with pytest.raises(ContextTooLong):
        await build("/400").complete(ASKED)


async def test_settings_are_sent_or_refused_by_their_names(server: Server) -> None:
    own = Sampling(temperature=0.5, seed=1, stop=("END",), max_tokens=9)
    await build(sampling=own).complete(ASKED)

    sent = server.asked[-1]
    assert (sent["temperature"], sent["seed"], sent["stop"]) == (0.5, 1, ["END"])
    assert 9 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    for name, value in (("top_k", 3), ("n", 2), ("extra_headers", {"x-a": "b"})):
        with pytest.raises(ProviderError, match=f"Sampling.{name}"):
            await build(sampling=Sampling(**{name: value})).complete(ASKED)


async def test_run_with_a_tool_by_name(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    monkeypatch.setenv("SAMBANOVA_API_KEY", KEY)
    monkeypatch.setenv("SAMBANOVA_API_BASE", f"{TestAnyLLMProvider.url}/v1")
    runtime = Runtime("any-llm:sambanova/m", tools=[look])
    result = await ReActEngine(runtime).run("x", run_id="r")

    assert result.answer is not None
    assert "saw the sky" in result.answer
    assert runtime.provider.secrets == (KEY,)  # type: ignore[attr-defined]
    assert KEY not in repr(runtime.provider)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("any-llm", "needs a service and a model"),
        ("any-llm:cohere", "needs a service and a model"),
        ("any-llm:nowhere/m", "'nowhere' cannot be used: 'nowhere' is not a supported"),
        ("any-llm:sambanova/m", "'sambanova' cannot be used: .*No sambanova API key"),
    ],
)
def test_what_is_missing_is_named(
    spec: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAMBANOVA_API_KEY", raising=False)
    monkeypatch.delenv("ANY_LLM_MODEL", raising=False)
    with pytest.raises(ConfigError, match=problem):
        build_provider(spec)
