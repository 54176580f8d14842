"""A gate that answers after its time does not count, whether it is awaited or only computes."""

import asyncio
import time
from typing import Any

import pytest

from conversations import tool_messages
from loopwright import (
    Action,
    Allow,
    AllowAll,
    Decision,
    Deny,
    Limits,
    PolicyState,
    ProviderError,
    ReActEngine,
    Result,
    Runtime,
    tool,
)
from loopwright.gates import AllOf, InstantGate
from loopwright.testing import FakeClock, ScriptedProvider, call

NOT_IN_TIME = "the policy gate did not decide in time"
LATE = 0.03


class LateAwaited:
    """Blocks the event loop until its time is over, and allows."""

    timeout = LATE / 3

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        time.sleep(LATE)  # noqa: ASYNC251 - this is what the test is about
        return Allow()


class LateSwallowed:
    """Does not let itself be cancelled, and allows."""

    timeout = LATE / 3

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return Allow()
        return Deny("never")


class LateComputed(InstantGate):
    """Computes for longer than it has, and allows."""

    version, timeout = "late-1", LATE / 3

    def decide(self, action: Action, state: PolicyState) -> Decision:
        time.sleep(LATE)
        return Allow()


@pytest.mark.parametrize(
    "gate",
    [
        LateAwaited(),
        LateSwallowed(),
        LateComputed(),
        AllOf(LateComputed(), AllowAll()),
        AllOf(LateAwaited(), AllowAll()),
        AllOf(AllowAll(), LateSwallowed()),
    ],
    ids=lambda gate: type(gate).__name__,
)
async def test_a_gate_that_allows_too_late_has_denied(gate: Any) -> None:
    ran: list[str] = []

    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        ran.append(what)
        return "blue"

    provider = ScriptedProvider([call("look", what="sky"), "done"])
    result = await ReActEngine(Runtime(provider, tools=[look], gate=gate)).run("Go.")

    assert ran == []
    assert tool_messages(result) == [NOT_IN_TIME]


async def test_a_gate_that_computes_has_a_second_unless_it_says_otherwise() -> None:
    class Quick(InstantGate):
        version = "quick-1"

        def decide(self, action: Action, state: PolicyState) -> Decision:
            time.sleep(LATE)
            return Allow()

    action, state = Action("look", {}), PolicyState("r", "0#0", "react", 1, 1, 0)

    assert AllOf(Quick(), AllowAll()).timeout == 2
    assert await AllOf(Quick(), AllowAll()).evaluate(action, state) == Allow()


class Unavailable:
    """Asks a model that does not answer for a number of times, and allows."""

    def __init__(self, times: int) -> None:
        self.times, self.keys = times, list[str]()

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        self.keys.append(state.key)
        if len(self.keys) <= self.times:
            raise ProviderError("down", status=503, retryable=True, retry_after=2)
        return Allow()


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return "blue"


async def run_behind(gate: Unavailable) -> tuple[Result, FakeClock]:
    clock = FakeClock()
    provider = ScriptedProvider([call("look", what="sky"), "done"])
    limits = Limits(max_provider_wait=5)
    runtime = Runtime(provider, tools=[look], gate=gate, limits=limits, clock=clock)
    return await ReActEngine(runtime).run("Go.", run_id="r"), clock


async def test_run_waits_for_the_model_of_a_gate_as_for_its_own() -> None:
    gate = Unavailable(2)
    result, clock = await run_behind(gate)

    assert (result.answer, tool_messages(result)) == ("done", ["blue"])
    assert (gate.keys, clock.monotonic()) == (["0#0"] * 3, 1_004.0)


async def test_run_is_suspended_while_the_model_of_a_gate_stays_away() -> None:
    gate = Unavailable(9)
    result, _ = await run_behind(gate)

    assert (result.status, result.stop_reason) == ("suspended", "provider_unavailable")
    assert "Unavailable does not work; the run waited 4 s" in str(result.error)
    assert gate.keys == ["0#0"] * 3
