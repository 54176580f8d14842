"""Tools of a real MCP server, made with the official SDK, in a process of its own: by stdio and by HTTP."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry import trace

from loopwright import ReActEngine, Runtime, ToolError
from loopwright.errors import UnknownOutcome
from loopwright.testing import ScriptedProvider, call
from loopwright.toolboxes import McpToolbox, StdioServer
from loopwright.tools import ToolContext

SERVER = str(Path(__file__).parents[2] / "support" / "mcp_server.py")
CONTEXT = ToolContext[Any]("run", "0", "key-1", None, None)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The server by HTTP, one process for all tests of this module."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, SERVER, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while process.poll() is None:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port)),
            ):
                break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["stdio", "http"])
async def box(request: pytest.FixtureRequest) -> AsyncIterator[McpToolbox]:
    """A toolbox that takes the server's word for what its tools do, by either transport."""
    server = (
        StdioServer(sys.executable, (SERVER,))
        if request.param == "stdio"
        else request.getfixturevalue("url")
    )
    async with McpToolbox(server, name="demo", trusted=True) as opened:
        yield opened


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    while not holds():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


async def use(box: McpToolbox, tool: str, **arguments: object) -> Any:
    [found] = [each for each in box.tools if each.name == f"{box.name}_{tool}"]
    return await found.function(CONTEXT, **arguments)


async def test_a_trusted_server_says_what_its_tools_do(box: McpToolbox) -> None:
    effects = {tool.name: tool.effect for tool in box.tools}

    assert effects == {
        "demo_add": "read",
        "demo_put": "idempotent",
        "demo_fail": "write",
        "demo_mixed": "destructive",
        "demo_chart": "read",
        "demo_together": "read",
        "demo_hang": "read",
        "demo_told": "destructive",
        "demo_ask": "destructive",
        "demo_grow": "destructive",
        "demo_die": "destructive",
    }
    assert box.left_out == {}


async def test_the_runtime_calls_the_tools(box: McpToolbox) -> None:
    model = ScriptedProvider(
        [call("demo_add", a=2, b=3), call("demo_add", a="two"), "5."]
    )

    result = await ReActEngine(Runtime(model, tools=box.tools)).run("2 and 3?")

    read = [m.content for m in result.conversation.messages if m.role == "tool"]
    assert (result.status, result.answer, result.tool_calls) == ("completed", "5.", 1)
    assert "5" in read[0]
    assert "demo_add, at a: 'two' is not of type 'integer'" in read[1]


async def test_a_result_is_told_once_and_what_is_no_text_by_its_name(
    box: McpToolbox,
) -> None:
    assert await use(box, "put", place="the shelf") == '{\n  "place": "the shelf"\n}'
    assert await use(box, "mixed") == (
        "Two things:\n[image: image/png, 3 bytes, not shown]\n[resource: report, file:///report.pdf]\n"
        '[resource: file:///notes.txt]\nBuy milk.\n{"things": 2}'
    )


async def test_mcp_images_and_documents_reach_a_model_that_sees(
    box: McpToolbox,
) -> None:
    model = ScriptedProvider([call("demo_chart"), "Rising."])

    result = await ReActEngine(Runtime(model, tools=box.tools)).run("How are sales?")

    seen = model.requests[1].conversation.messages[-1]
    kinds = [(one.kind, one.media_type) for one in seen.attachments]
    assert result.answer == "Rising."
    assert kinds == [("image", "image/png"), ("document", "application/pdf")]
    assert seen.attachments[1].content == b"%PDF-1.7 report"
    assert "Sales in May:" in seen.content


async def test_a_tool_that_says_it_failed_raises_a_tool_error(box: McpToolbox) -> None:
    with pytest.raises(ToolError, match="there is no milk"):
        await use(box, "fail", why="there is no milk")


async def test_calls_share_one_session_at_the_same_time(box: McpToolbox) -> None:
    assert (
        await asyncio.gather(*(use(box, "together", others=5) for _ in range(5)))
        == ["5 at once"] * 5
    )


async def test_a_cancelled_call_is_cancelled_at_the_server(
    box: McpToolbox, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    hanging = asyncio.create_task(use(box, "hang", mark=str(mark)))
    await until(lambda: mark.exists())

    hanging.cancel()

    await until(lambda: mark.read_text() == "cancelled")
    assert await use(box, "add", a=1, b=1) == "2"


async def test_what_a_server_asks_of_its_client_is_refused(box: McpToolbox) -> None:
    with pytest.raises(ToolError, match=r"asks for something|Elicitation|elicitation"):
        await use(box, "ask")


async def test_key_and_trace_go_along_and_the_environment_does_not(
    box: McpToolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-secret")
    parent = trace.SpanContext(
        0xABC << 100, 1, is_remote=True, trace_flags=trace.TraceFlags(1)
    )

    with trace.use_span(trace.NonRecordingSpan(parent)):
        told = json.loads(await use(box, "told"))

    assert told["meta"]["loopwright/idempotency-key"] == "key-1"
    assert told["meta"]["traceparent"].split("-")[1] == f"{parent.trace_id:032x}"
    assert "MY_API_KEY" not in told["environment"]


async def test_a_list_that_changes_is_read_again_and_a_tool_that_changed_is_refused(
    url: str,
) -> None:
    async with McpToolbox(url, name="demo") as box:
        before = {tool.name: tool for tool in box.tools}
        assert await use(box, "grow") == "grown"
        await until(lambda: box.stale)
        after = {tool.name for tool in await box.refresh()}

        assert (after - before.keys(), before.keys() - after) == (
            {"demo_extra"},
            {"demo_put"},
        )
        assert box.changed == ("put",)
        with pytest.raises(
            ToolError,
            match=r"changed what 'put' is. The call was not made: a person has to review",
        ):
            await before["demo_put"].function(CONTEXT, place="here")

        box.accept("put")

        assert await use(box, "put", place="here") == "here"
        with pytest.raises(ToolError, match="not made: propose the call again"):
            await before["demo_put"].function(CONTEXT, place="here")


@pytest.mark.faults
async def test_a_server_killed_between_two_calls_is_started_again(
    tmp_path: Path,
) -> None:
    async with McpToolbox(StdioServer(sys.executable, (SERVER,)), name="demo") as box:
        first = json.loads(await use(box, "told"))["pid"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: not is_there(first))

        second = json.loads(await use(box, "told"))["pid"]
        with pytest.raises(UnknownOutcome, match="not known whether 'die' took effect"):
            await use(box, "die", mark=str(tmp_path / "mark"))

    assert second != first
    assert (tmp_path / "mark").read_text() == "x"
    assert not is_there(second)


def is_there(pid: int) -> bool:
    """Whether there is such a process, be it a zombie."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
