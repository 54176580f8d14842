"""ToolExecutor: functions of tools that run elsewhere, behind the same gate, journal, time-outs and recovery."""

import asyncio
import dataclasses
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loopwright import (
    ConfigError,
    ReActEngine,
    Runtime,
    Tool,
    ToolContext,
    ToolError,
    tool,
)
from loopwright.gates import DenyAll
from loopwright.limits import Limits
from loopwright.security import CapabilitySigner, CapabilityVerifier
from loopwright.testing import FakeClock, ScriptedProvider, call
from loopwright.tools import RemoteCall, RemoteExecutor, RemoteTools

SECRET = secrets.token_bytes(32)
SIGNER = CapabilitySigner(SECRET)
Send = Callable[[RemoteCall], Awaitable[Any]]


@tool(effect="write")
async def restart(ctx: ToolContext[None], service: str) -> str:
    """Restart a service."""
    return f"{service} restarted for {ctx.run_id}, once as {bool(ctx.idempotency_key)}"


@tool(effect="read")
def uptime(service: str) -> str:
    """Say for how long a service runs."""
    return f"{service}: 3 days"


@tool(effect="write")
def here(service: str) -> str:
    """Work in this process."""
    return "done here"


def stub(of: Tool) -> Tool:
    """The same tool where the model is: its function must not run there."""

    def refuse(**arguments: Any) -> str:
        raise AssertionError("it ran in the process of the model")

    return dataclasses.replace(of, function=refuse)


async def ask(name: str, send: Send, **services: Any) -> Any:
    """Have a model call a tool; return the result of the run."""
    executor = RemoteExecutor(send, signer=SIGNER, tools=["restart", "up*"])
    model = ScriptedProvider([call(name, service="mail"), "Done."])
    tools = [stub(restart), stub(uptime), here]
    runtime = Runtime(model, tools=tools, executor=executor, **services)
    return await ReActEngine(runtime).run("Work.", run_id="night")


async def test_permitted_call_runs_in_the_other_process() -> None:
    there = RemoteTools([restart, uptime], CapabilityVerifier(SECRET))

    written = await ask("restart", there.run)
    read = await ask("uptime", there.run)
    assert written.conversation.messages[-2].content == (
        "mail restarted for night, once as True"
    )
    assert read.conversation.messages[-2].content == "mail: 3 days"


async def test_tool_that_the_executor_does_not_accept_runs_here() -> None:
    sent: list[RemoteCall] = []

    async def send(given: RemoteCall) -> str:
        sent.append(given)
        return ""

    assert (await ask("here", send)).conversation.messages[-2].content == "done here"
    assert sent == []


async def test_denied_call_is_not_sent() -> None:
    sent: list[RemoteCall] = []

    async def send(given: RemoteCall) -> str:
        sent.append(given)
        return ""

    await ask("restart", send, gate=DenyAll())
    assert sent == []


async def test_call_is_run_once_and_only_as_policy_permitted_it() -> None:
    there = RemoteTools([restart, uptime], CapabilityVerifier(SECRET))
    sent: list[RemoteCall] = []

    async def send(given: RemoteCall) -> Any:
        sent.append(given)
        return await there.run(given)

    await ask("restart", send)
    (given,) = sent
    with pytest.raises(ToolError, match=r"refused the call: the capability was used"):
        await there.run(given)
    fresh = RemoteTools([restart, uptime], CapabilityVerifier(SECRET))
    for change, problem in [
        ({"arguments": {"service": "billing"}}, "is for other arguments"),
        ({"tool": "uptime"}, "is for another tool"),
        ({"token": "x"}, "is not a capability"),
        ({"tool": "erase"}, "erase"),
        ({"arguments": {"name": 3}}, "name"),
    ]:
        with pytest.raises(ToolError, match=problem):
            await fresh.run(dataclasses.replace(given, **change))


@pytest.mark.parametrize(("name", "status"), [("restart", "unknown"), ("uptime", "error")])  # fmt: skip
async def test_executor_without_an_answer_leaves_a_write_unknown(
    name: str, status: str
) -> None:
    async def send(given: RemoteCall) -> str:
        raise ConnectionError("reset by peer")

    result = await ask(name, send)
    last = result.conversation.messages[-2]
    assert "reset by peer" in last.content
    assert ("not known" in last.content or "gave no answer" in last.content) == (status == "unknown")  # fmt: skip


async def test_executor_is_cancelled_at_the_time_out_of_the_call() -> None:
    cancelled: list[str] = []

    async def send(given: RemoteCall) -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(given.tool)
            raise
        return ""

    result = await ask("uptime", send, limits=Limits(tool_timeout=0.05))
    assert "gave no result within 0.05 s" in result.conversation.messages[-2].content
    assert cancelled == ["uptime"]


def test_executor_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"executor: needs an object with a method `execute`"):  # fmt: skip
        Runtime(ScriptedProvider([]), executor=3, clock=FakeClock())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"tools: must be a list of names"):
        RemoteExecutor(lambda given: None, signer=SIGNER, tools="restart")  # type: ignore[arg-type, return-value]
