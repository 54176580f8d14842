"""Secrets that come from outside the process: servers that say a key back, and all that the command prints."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import structlog

from fault_sizes import figure
from forked_processes import run
from leaks import SHAPES, Left, secret_of
from loopwright import Delta, ReActEngine, Runtime, tool
from loopwright.journals import SQLiteJournal
from loopwright.observers import StructlogObserver
from loopwright.providers import (
    AnthropicProvider,
    FallbackProvider,
    OpenAIProvider,
    TextTools,
)
from loopwright.testing import FakeClock, RecordingProvider
from planted_secrets import PLANTED
from telemetry import Telemetry, everything_said

KEY = "plain+words/of-0123=ABCDEFGH.xyz"  # no shape: only who was told it can know it
TOKEN = PLANTED["GitHub"][0]

JSON, SSE = "application/json", "text/event-stream"


def echo(asked: str) -> str:
    """A body that says back what it was sent, in the spellings that gateways use."""
    encoded = base64.b64encode(KEY.encode()).decode()
    return f"{encoded} {quote(KEY, safe='')} {TOKEN} {KEY} {json.dumps(KEY)}\n{asked}"


def event(value: object) -> str:
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n"


def openai_said(text: str, **more: Any) -> dict[str, Any]:
    """A whole reply of Chat Completions."""
    message = {"role": "assistant", "content": text, **more}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "model": text}


def openai_stream(text: str, end: str) -> str:
    """A reply in pieces of three letters."""
    begun = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    parts = [
        event({"choices": [{"delta": {"content": text[at : at + 3]}}]})
        for at in range(0, len(text), 3)
    ]
    return "".join([begun, *parts, end])


OPENAI_END = event({"choices": [{"delta": {}, "finish_reason": "stop"}]}) + event(
    "[DONE]"
)


def openai_call(arguments: str) -> str:
    pieces = [arguments[at : at + 3] for at in range(0, len(arguments), 3)]
    calls = [
        {
            "index": 0,
            "id": "c1",
            "type": "function",
            "function": {"name": "look", "arguments": ""},
        }
    ]
    begun = event({"choices": [{"delta": {"tool_calls": calls}}]})
    told = [
        event(
            {
                "choices": [
                    {
                        "delta": {
                            "tool_calls": [{"index": 0, "function": {"arguments": p}}]
                        }
                    }
                ]
            }
        )
        for p in pieces
    ]
    return "".join(
        [
            begun,
            *told,
            event({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
            event("[DONE]"),
        ]
    )


def anthropic_said(text: str) -> dict[str, Any]:
    """A whole reply of the Messages API."""
    content = [
        {"type": "thinking", "thinking": text, "signature": "abc"},
        {"type": "text", "text": text},
    ]
    return {
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": "end_turn",
        "model": text,
    }


def anthropic_stream(text: str, end: bool) -> str:
    def named(name: str, **fields: Any) -> str:
        return f"event: {name}\n" + event({"type": name, **fields})

    begun = named(
        "message_start",
        message={**anthropic_said(""), "content": [], "stop_reason": None},
    )
    begun += named(
        "content_block_start", index=0, content_block={"type": "text", "text": ""}
    )
    parts = [
        named(
            "content_block_delta",
            index=0,
            delta={"type": "text_delta", "text": text[at : at + 3]},
        )
        for at in range(0, len(text), 3)
    ]
    stop = named("content_block_stop", index=0) + named(
        "message_delta", delta={"stop_reason": "end_turn"}, usage={}
    )
    return "".join([begun, *parts, *([stop, named("message_stop")] if end else [])])


Answer = tuple[int, str, str]  # status, content type, body
ANYONE: dict[str, Callable[[str], Answer]] = {
    "401": lambda asked: (
        401,
        JSON,
        json.dumps({"error": {"message": echo(asked), "code": KEY}}),
    ),
    "401 in text": lambda asked: (401, "text/plain", echo(asked)),
    "400 in another form": lambda asked: (
        400,
        JSON,
        json.dumps({"detail": [{"input": echo(asked)}]}),
    ),
    "500 in HTML": lambda asked: (500, "text/html", f"<pre>{echo(asked)}</pre>"),
    "302": lambda asked: (302, "text/plain", ""),
    "200 that breaks off": lambda asked: (
        200,
        JSON,
        '{"choices": [{"message": "' + echo(asked),
    ),
    "200 that is no reply": lambda asked: (200, "text/html", echo(asked)),
    "too long": lambda asked: (
        400,
        JSON,
        json.dumps({"error": {"message": f"maximum context length {KEY}"}}),
    ),
    "an event that is an error": lambda asked: (
        200,
        SSE,
        event({"error": {"message": echo(asked)}}),
    ),
    "an event that is broken": lambda asked: (
        200,
        SSE,
        event('{"choices": [{"delta": {"content": "' + KEY),
    ),
    "an event of another kind": lambda asked: (
        200,
        SSE,
        f"event: error\n{event({'oops': {'header': echo(asked)}})}",
    ),
}
OPENAI: dict[str, Callable[[str], Answer]] = {
    "a reply": lambda asked: (
        200,
        JSON,
        json.dumps(openai_said(echo(asked), reasoning_content=echo(asked))),
    ),
    "a refusal": lambda asked: (
        200,
        JSON,
        json.dumps(openai_said("", refusal=echo(asked))),
    ),
    "a stream": lambda asked: (200, SSE, openai_stream(echo(asked), OPENAI_END)),
    "a stream that breaks off": lambda asked: (
        200,
        SSE,
        openai_stream(echo(asked), ""),
    ),
    "a stream that ends in an error": lambda asked: (
        200,
        SSE,
        openai_stream(KEY, event({"error": echo(asked)})),
    ),
    "a streamed call": lambda asked: (
        200,
        SSE,
        openai_call(json.dumps({"what": echo(asked)})),
    ),
}
ANTHROPIC: dict[str, Callable[[str], Answer]] = {
    "a reply": lambda asked: (200, JSON, json.dumps(anthropic_said(echo(asked)))),
    "a stream": lambda asked: (200, SSE, anthropic_stream(echo(asked), end=True)),
    "a stream that breaks off": lambda asked: (
        200,
        SSE,
        anthropic_stream(echo(asked), end=False),
    ),
}


@contextlib.asynccontextmanager
async def server(answer: Callable[[str], Answer]) -> AsyncGenerator[str]:
    """A server on this machine that says back what it is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            contextlib.closing(writer),
            contextlib.suppress(asyncio.IncompleteReadError, ConnectionError),
        ):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = next(
                    int(line.split(":")[1])
                    for line in head.lower().splitlines()
                    if "content-length" in line
                )
                await reader.readexactly(length)
                status, kind, body = answer(head)
                data = body.encode()
                echoed = f"x-echo: {KEY}\r\nlocation: /{KEY}\r\nretry-after: 0\r\ncontent-type: {kind}"
                writer.write(
                    f"HTTP/1.1 {status} Told\r\n{echoed}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
                    + data
                )
                await writer.drain()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"seen {what}"


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


BOTH = (OpenAIProvider, AnthropicProvider)
MADE: dict[str, tuple[Callable[[str], Any], dict[str, Callable[[str], Answer]]]] = {
    "openai": (
        lambda url: OpenAIProvider("m", base_url=url, api_key=KEY),
        {**ANYONE, **OPENAI},
    ),
    "anthropic": (
        lambda url: AnthropicProvider("m", base_url=url, api_key=KEY),
        {**ANYONE, **ANTHROPIC},
    ),
    "wrapped": (
        lambda url: TextTools(
            FallbackProvider(*(make("m", base_url=url, api_key=KEY) for make in BOTH)),
            "react",
        ),
        ANYONE,
    ),
}


@pytest.mark.parametrize("name", MADE)
async def test_a_server_that_says_the_key_back_is_not_repeated(
    name: str, tmp_path: Path, logs: list[Any]
) -> None:
    make, answers = MADE[name]
    left, telemetry, runs = Left(tmp_path), Telemetry(content=True), 0
    journal = SQLiteJournal(tmp_path / "runs.db")
    for number, answer in enumerate(answers.values()):
        async with server(answer) as url:
            provider = make(url)
            assert KEY in provider.secrets
            recording = RecordingProvider(provider, tmp_path / f"{number}.json")
            observers: list[Any] = [StructlogObserver(content=True), telemetry.observer]
            runtime = Runtime(
                recording,
                tools=[look],
                journal=journal,
                observers=observers,
                clock=FakeClock(),
            )
            for deltas in (True, False):
                async with ReActEngine(runtime).start(
                    f"Look: {KEY}", deltas=deltas
                ) as run:
                    left.say(
                        "deltas",
                        [item async for item in run if isinstance(item, Delta)],
                    )
                    left.show(await run.result())
                runs += 1
            await provider.aclose()
    left.say("logs", logs)
    left.say("spans", everything_said(telemetry.spans))
    found = [left.where(secret) for secret in (KEY, secret_of("GitHub"))]
    await journal.close()

    assert [*found, *(left.where(secret) for secret in (KEY, secret_of("GitHub")))] == [
        [],
        [],
        [],
        [],
    ]
    figure(
        f"secrets, {name}",
        f"{runs} runs against servers that say key and token back: 0 found",
    )


@pytest.mark.parametrize(
    "key", ["ollama", "EMPTY", "lm-studio", "not-needed", "", "sk-no-key-required"]
)
def test_a_placeholder_is_not_a_secret(key: str) -> None:
    assert (
        OpenAIProvider("m", base_url="http://localhost:1/v1", api_key=key).secrets == ()
    )


@pytest.mark.parametrize("key", ["token-abc123", KEY, "a" * 20])
def test_a_key_is_a_secret_and_no_attribute_shows_it(key: str) -> None:
    for provider in (
        make("m", base_url="http://localhost:1/v1", api_key=key) for make in BOTH
    ):
        assert provider.secrets == (key,)
        assert key not in f"{provider!r} {vars(provider)}"


# --- the command ---

ENTRY_POINTS = "[loopwright.providers]\nleaky = leaky_cli:Leaky\n"
LEAKY = """
from planted_secrets import PLANTED
from secret_sources import Model, tools

EVERYTHING = "\\n\\n".join(text for text, _ in PLANTED.values())
box = tools(EVERYTHING)

class Leaky(Model):
    def __init__(self, model=""):
        super().__init__(EVERYTHING)
        self.model = model

    async def complete(self, request):
        if self.model == "fails":
            raise ValueError(EVERYTHING)
        return await super().complete(request)
"""


def test_the_command_prints_no_planted_secret(tmp_path: Path) -> None:
    metadata = tmp_path / "installed" / "leaky_cli-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: leaky-cli\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "installed" / "leaky_cli.py").write_text(LEAKY)
    work = tmp_path / "work"
    work.mkdir()
    places = [
        str(tmp_path / "installed"),
        str(Path(__file__).parents[1] / "support"),
        str(Path(__file__).parents[2] / "src"),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    task = "\n\n".join(PLANTED[name][0] for name in SHAPES)
    given = ["--tools", "leaky_cli:box", "--wait"]
    left = Left(work)
    for arguments in (
        [
            "run",
            task,
            "--run-id",
            "plain",
            "--provider",
            "leaky:works",
            "--system",
            task,
            *given,
        ],
        [
            "--debug",
            "run",
            task,
            "--run-id",
            "json",
            "--provider",
            "leaky:fails",
            "--json",
            *given,
        ],
        ["show", "plain"],
        ["--debug", "show", "json", "--json"],
        ["runs"],
        ["--debug", "resume", "plain", "--provider", "leaky:works", *given],
    ):
        done = run("-m", "loopwright", *arguments, folder=work, env=environment)
        left.say(f"stdout of {arguments[:2]}", done.stdout)
        left.say(f"stderr of {arguments[:2]}", done.stderr)

    said = "".join(text for texts in left.texts.values() for text in texts)
    assert "[redacted]" in said
    assert {
        name: where for name in SHAPES if (where := left.where(secret_of(name)))
    } == {}
    figure(
        "secrets, command",
        f"{len(SHAPES)} shapes in 6 commands: 0 found in {left.size / 1e3:.0f} kB",
    )
