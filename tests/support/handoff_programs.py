"""Runs that are handed off, for crash tests: each strategy gives a run away to an agent of the same strategy."""

import dataclasses

from loopwright import LoopEngine, Request, Run, Runtime
from loopwright.agents import Handoff
from loopwright.messages import ToolCall
from loopwright.testing import call
from programs import PROGRAMS, Line, Program, look, put, said

STRATEGIES = (
    "react", "chain-of-thought", "self-ask", "plan-execute", "reflexion", "critic", "tree-of-thoughts", "tiny", "turn",
)  # fmt: skip
TRANSFER = "transfer_to_second"


def handed_off(name: str) -> Program:
    """A run of an agent with that strategy, which hands it off to another with the same one."""
    if name == "parallel":
        return _PARALLEL
    own = PROGRAMS["react"] if name == "turn" else PROGRAMS[name]
    if name == "turn":  # the whole of it is in a program of its own
        own = dataclasses.replace(own, engine=lambda runtime: runtime.engine("turn"))

    def make(runtime: Runtime) -> LoopEngine:
        first = runtime.agent(
            "first",
            instructions="first",
            engine=own.engine(runtime),
            handoffs=[Handoff("second", filter="last")],
        )
        runtime.agent("second", instructions="second", engine=own.engine(runtime))
        return first.engine

    def model(request: Request) -> Line:
        return own.model(request) if request.system == "second" else _give(request)

    tools = {tool.name: tool for tool in (*own.tools, look, put)}
    return dataclasses.replace(
        own, engine=make, model=model, tools=tuple(tools.values())
    )


def _give(request: Request) -> Line:
    """Look, and then hand the run off beside another call."""
    if [tool.name for tool in request.tools] == [TRANSFER]:
        return call(TRANSFER)
    if "Plan how" in said(request):
        return f'1. look("sky")\n2. put("cup")\n3. {TRANSFER}()\njoin()'
    if any(message.calls for message in request.conversation):
        return [call(TRANSFER), call("put", what="cup")]
    return call("look", what="sky")


class Parallel(LoopEngine):
    """Works in branches, one of which hands the run off."""

    name = "parallel"

    async def solve(self, run: Run) -> str:
        """Look in each branch, and work beside them."""

        async def looks(branch: Run) -> str:
            await branch.call(ToolCall("look", {"what": "sea"}))
            await branch.call(ToolCall("put", {"what": "cup"}))
            return await branch.ask("And then?")

        async def leaves(branch: Run) -> str:
            await branch.call(ToolCall("look", {"what": "sky"}))
            await branch.call(ToolCall(TRANSFER, {}))
            return "never"

        async with run.as_completed(looks, leaves, looks) as done:
            await run.ask("Beside them?")
            async for _ in done:
                await run.ask("One of them?")
        return await run.ask("All of them?")


def _make_parallel(runtime: Runtime) -> LoopEngine:
    handoffs = [Handoff("second", filter="last")]
    first = runtime.agent("first", engine=Parallel(runtime), handoffs=handoffs)
    runtime.agent("second", instructions="second", handoffs=["third"])
    runtime.agent("third", instructions="third", engine=Leaving(runtime))
    runtime.agent("fourth", instructions="fourth")
    return first.engine


class Leaving(LoopEngine):
    """Hands the run off by itself."""

    name = "leaving"

    async def solve(self, run: Run) -> str:
        """Ask, then hand off."""
        await run.ask("To whom?")
        await run.handoff("fourth")


def _say(request: Request) -> Line:
    if request.system == "second":
        return call("transfer_to_third")
    return "blue"


_PARALLEL = Program(_make_parallel, _say, "blue", tools=(look, put))
