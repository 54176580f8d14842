"""An engine reaches tools through its run alone; everybody else may call the function of a tool."""

from typing import Any, ClassVar

import pytest

from loopwright import (
    Action,
    Allow,
    LoopEngine,
    Run,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.events import ToolStarted
from loopwright.journals import MemoryJournal
from loopwright.testing import ScriptedProvider

RAN: list[str] = []
DOOR = r"tool 'look': an engine may not call it directly, past gate and journal; use `await run\.act"


@tool(effect="read")
def look(what: str) -> str:
    """Look something up."""
    RAN.append(what)
    return f"{what} is blue"


@tool(effect="read")
def look_twice(what: str) -> str:
    """Look something up twice, by another tool."""
    return f"{look(what)}, {look(what)}"


class AroundEngine(LoopEngine):
    """Calls a tool in the way that it is given."""

    name: ClassVar[str] = "around"
    way: str

    async def solve(self, run: Run) -> str:
        return str(await getattr(self, f"_{self.way}")(run))

    async def _registry(self, run: Run) -> Any:
        found: Any = self.runtime.tools.get("look")
        return found("sky")

    async def _module(self, run: Run) -> Any:
        return look("sky")

    async def _branch(self, run: Run) -> Any:
        async def work(branch: Run) -> str:
            return str(look("sky"))

        return await run.gather(work)

    async def _effect(self, run: Run) -> Any:
        async def work() -> str:
            return str(look("sky"))

        return await run.effect("own", work, into=str)

    async def _door(self, run: Run) -> Any:
        proposal = run.propose(ToolCall("look_twice", {"what": "sky"}))
        (observation,) = await run.act(await run.gate(proposal))
        return observation.text


class Peeking:
    """A gate that looks something up itself."""

    async def evaluate(self, action: Action, state: Any) -> Allow:
        look("gate")
        return Allow()


def engine(way: str, **options: Any) -> AroundEngine:
    RAN.clear()
    runtime = Runtime(ScriptedProvider([]), tools=[look, look_twice], **options)
    return AroundEngine(runtime, way=way)


@pytest.mark.parametrize("way", ["registry", "module", "branch"])
async def test_an_engine_that_calls_a_tool_itself_is_told_of_the_door(way: str) -> None:
    journal = MemoryJournal()
    result = await engine(way, journal=journal).run("Go.")

    assert RAN == []
    assert result.status == "failed"
    with pytest.raises(Exception, match=DOOR):
        result.raise_for_status()
    entries = journal.read(result.run_id)
    assert not [e for e in entries if isinstance(e.event, ToolStarted)]


async def test_tools_gates_effects_and_applications_call_tools_as_functions() -> None:
    assert (await engine("door").run("Go.")).answer == "sky is blue, sky is blue"
    assert RAN == ["sky", "sky"]
    assert (await engine("effect").run("Go.")).answer == "sky is blue"
    assert (await engine("door", gate=Peeking()).run("Go.")).status == "completed"
    assert RAN == ["gate", "sky", "sky"]
    assert look("sea") == "sea is blue"


def test_the_application_calls_tools_after_a_run_too() -> None:
    engine("registry").run_sync("Go.")

    assert look("sea") == "sea is blue"
