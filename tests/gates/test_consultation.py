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
    PolicyState,
    ReActEngine,
    Runtime,
    tool,
)
from loopwright.gates import AllOf, InstantGate
from loopwright.testing import ScriptedProvider, call

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
