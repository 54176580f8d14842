"""Runtime(default_recovery=...): what is done about failed calls of tools without a recovery of their own."""

from typing import Any

import pytest

from loopwright import ConfigError, ReActEngine, Runtime, tool
from loopwright.testing import FakeClock, ScriptedProvider, call
from loopwright.tools import DeadLetter, Fallback, Retry

FAILED: list[str] = []


def build(effect: Any, **options: Any) -> Any:
    """A tool that fails twice."""

    @tool(effect=effect, **options)
    async def door(number: int) -> str:
        """Open a door."""
        FAILED.append("door")
        if len(FAILED) < 3:
            raise OSError("stuck")
        return "open"

    FAILED.clear()
    return door


async def strategies(*tools: Any, default: Any) -> list[str]:
    """Call the door; return the strategies that were taken."""
    provider = ScriptedProvider([call("door", number=7), "Well."])
    runtime = Runtime(provider, tools=tools, default_recovery=default, clock=FakeClock())  # fmt: skip
    await ReActEngine(runtime).run("Open it.", run_id="one")
    entries = runtime.journal.read("one")
    found = [one.event for one in entries if one.kind == "recovery_triggered"]
    return [event.strategy for event in found]  # type: ignore[union-attr]


async def test_tool_without_recovery_has_that_of_the_runtime() -> None:
    taken = await strategies(build("read"), default=Retry(max_attempts=3, base_delay=0))

    assert (taken, len(FAILED)) == (["retry", "retry"], 3)


async def test_strategy_that_does_not_suit_the_effect_is_left_out() -> None:
    taken = await strategies(build("write"), default=[Retry(), DeadLetter()])

    assert (taken, len(FAILED)) == (["dead_letter"], 1)


async def test_recovery_of_a_tool_takes_precedence() -> None:
    taken = await strategies(build("read", recovery=DeadLetter()), default=Retry())

    assert (taken, len(FAILED)) == (["dead_letter"], 1)


async def test_tool_of_an_agent_has_the_recovery_of_the_runtime() -> None:
    provider = ScriptedProvider([call("door", number=7), "Well."])
    runtime = Runtime(provider, default_recovery=[Retry(base_delay=0)], clock=FakeClock())  # fmt: skip
    agent = runtime.agent("porter", tools=[build("read")])
    await agent.run("Open it.")

    assert len(FAILED) > 1


def test_strategy_that_no_tool_can_have_is_refused() -> None:
    for wrong, problem in [
        (Fallback("other"), "default_recovery: .* names the tool for one other"),
        ("retry", "default_recovery: must be Retry"),
    ]:
        with pytest.raises(ConfigError, match=problem):
            Runtime(ScriptedProvider([]), default_recovery=wrong)  # type: ignore[arg-type]


async def test_run_without_defaults_takes_no_step() -> None:
    assert await strategies(build("read"), default=()) == []
