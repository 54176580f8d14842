"""Whatever a gate does that is no decision, in any engine and on any path, no tool starts that should not."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fault_sizes import figure, sized
from loopwright import (
    Action,
    Allow,
    Ask,
    ChainOfThoughtEngine,
    Completion,
    Deny,
    LoopEngine,
    Modify,
    PolicyState,
    ReActEngine,
    Request,
    Runtime,
    Tool,
    tool,
)
from loopwright.testing import ScriptedProvider
from programs import LOOPS, PROGRAMS

CASES = sized(15, 10_000)
ENGINES = (
    "react", "plan-execute", "reflexion", "self-ask", "critic", "tree-of-thoughts", "chain-of-thought", "tiny",
    "react-as-tool", "turn",
)  # fmt: skip
LATE = 0.004  # seconds; the gate has half of that


class Hostile:
    """A gate that goes through a list of misdeeds, and remembers what it really let through."""

    version = "hostile-1"

    def __init__(self, misdeeds: list[str], approves: bool) -> None:
        self.timeout, self.told = LATE / 2, asyncio.Event()
        self._misdeeds, self._turn, self._approves = misdeeds, 0, approves
        self.allowed: list[str] = []

    async def evaluate(self, action: Action, state: PolicyState) -> Any:
        misdeed = self._misdeeds[self._turn % len(self._misdeeds)]
        self._turn += 1
        return await getattr(self, f"_{misdeed}")(action)

    async def approve(self, action: Action, question: str) -> bool:
        if self._approves:
            self.allowed.append(called(action.tool, action.arguments))
        return self._approves

    async def _allow(self, action: Action) -> Allow:
        self.allowed.append(called(action.tool, action.arguments))
        return Allow()

    async def _deny(self, action: Action) -> Deny:
        return Deny("no")

    async def _ask(self, action: Action) -> Ask:
        return Ask("may it?")

    async def _modify(self, action: Action) -> Modify:
        if action.arguments == {"what": "cloud"}:  # what it wants is what it has
            self.allowed.append(called(action.tool, action.arguments))
        return Modify({"what": "cloud"}, "rather that")

    async def _modify_on_and_on(self, action: Action) -> Modify:
        return Modify(
            {"what": str(action.arguments.get("what")) + "!"}, "a little more"
        )

    async def _modify_out_of_schema(self, action: Action) -> Modify:
        return Modify({"which": 1}, "badly")

    async def _modify_into_no_json(self, action: Action) -> Modify:
        return Modify({"what": object()}, "badly")  # type: ignore[dict-item]

    async def _modify_into_nothing(self, action: Action) -> Modify:
        return Modify(None, "badly")  # type: ignore[arg-type]

    async def _change_the_tool(self, action: Action) -> Allow:
        object.__setattr__(action, "tool", "send")
        self.allowed.append(called("never", {}))
        return Deny("after all")  # type: ignore[return-value]

    async def _change_the_arguments(self, action: Action) -> Allow:
        self.allowed.append(
            called(action.tool, action.arguments)
        )  # what it saw is what may run, not what it made of it
        action.arguments["what"] = "everything"  # type: ignore[index]
        return Allow()

    async def _raise(self, action: Action) -> None:
        raise ValueError("broken")

    async def _exit(self, action: Action) -> None:
        raise SystemExit(0)

    async def _recurse(self, action: Action) -> Any:
        return await self._recurse(action)

    async def _cancel(self, action: Action) -> None:
        raise asyncio.CancelledError

    async def _nothing(self, action: Action) -> None:
        return None

    async def _true(self, action: Action) -> bool:
        return True

    async def _word(self, action: Action) -> str:
        return "allow"

    async def _class(self, action: Action) -> type:
        return Allow

    async def _like_allow(self, action: Action) -> Any:
        return type("Allow", (), {})()

    async def _hang(self, action: Action) -> None:
        await asyncio.sleep(60)

    async def _late(self, action: Action) -> Allow:
        await asyncio.sleep(LATE)
        return Allow()

    async def _swallow(self, action: Action) -> Allow:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return Allow()


MISDEEDS = sorted(
    name[1:]
    for name, value in vars(Hostile).items()
    if name[0] == "_" and name[1] != "_"
)


def called(name: str, arguments: Any) -> str:
    return f"{name} {json.dumps(dict(arguments), sort_keys=True, default=repr)}"


def recording(ran: list[str]) -> Iterator[Tool]:
    """Tools of all names that the programs use."""
    for name, effect in (
        ("look", "read"),
        ("seek", "read"),
        ("put", "idempotent"),
        ("send", "write"),
        ("fail", "read"),
    ):

        def made(name: str = name) -> Callable[..., Any]:
            async def run(what: str) -> str:
                """Run."""
                ran.append(called(name, {"what": what}))
                return f"{what} is blue"

            return run

        yield tool(name=name, effect=effect)(made())  # type: ignore[call-overload]


class Waiting(ScriptedProvider):
    """Replies once a person has said their word."""

    def __init__(self, model: Any, told: asyncio.Event) -> None:
        super().__init__(model)
        self._told = told

    async def complete(self, request: Request) -> Completion:
        await self._told.wait()
        return await super().complete(request)


def engine_of(name: str, gate: Hostile, ran: list[str]) -> LoopEngine:
    def runtime(model: Any) -> Runtime:
        return Runtime(
            ScriptedProvider(model),
            tools=list(recording(ran)),
            gate=gate,
            approver=gate.approve,
        )

    if (
        name == "chain-of-thought"
    ):  # by itself it has no calls to make: it hands over where its samples differ
        answers = itertools.count()
        differing = runtime(lambda request: f"So it is. The answer is {next(answers)}.")
        return ChainOfThoughtEngine(
            differing,
            samples=2,
            min_agreement=1.0,
            fallback=ReActEngine(runtime(LOOPS)),
        )
    if name == "react-as-tool":
        inner = ReActEngine(runtime(LOOPS)).as_tool(name="ask", description="Ask.")
        outer = Runtime(
            ScriptedProvider(PROGRAMS[name].model),
            tools=[*recording(ran), inner],
            gate=gate,
            approver=gate.approve,
        )
        return ReActEngine(outer)
    if name == "tree-of-thoughts":  # nor has it: a person has one made
        waiting = Runtime(
            Waiting(PROGRAMS[name].model, gate.told),
            tools=list(recording(ran)),
            gate=gate,
            approver=gate.approve,
        )
        return PROGRAMS[name].engine(waiting)
    if name == "turn":
        return runtime(LOOPS).engine("turn")
    if name == "tiny":
        return Tiny(runtime(PROGRAMS[name].model))
    return PROGRAMS[name].engine(runtime(PROGRAMS[name].model))


class Tiny(LoopEngine):
    """A stranger's loop."""

    name = "tiny-gated"

    async def solve(self, run: Any) -> str:
        conversation = run.conversation
        for _ in run.iterations():
            proposal = await run.reason(conversation)
            if proposal.answer is not None:
                return str(proposal.answer)
            observations = await run.act(await run.gate(proposal))
            conversation = conversation.observe(proposal, observations)
        return str(await run.best_answer(conversation))


async def go(name: str, gate: Hostile, ran: list[str]) -> None:
    """Let an engine run, with a call that a person wants made where it makes none by itself."""
    async with engine_of(name, gate, ran).start("What is blue?") as run:
        if name == "tree-of-thoughts":
            await run.override("send", {"what": "card"})
            gate.told.set()
        await run.result()


def unlawful(ran: list[str], allowed: list[str]) -> list[str]:
    """The calls that ran more often than they were let through."""
    left = list(allowed)
    return [each for each in ran if each not in left or left.remove(each)]  # type: ignore[func-returns-value]


@pytest.mark.parametrize("name", ENGINES)
def test_no_tool_starts_that_should_not(name: str) -> None:
    cases = starts = 0

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.sampled_from(MISDEEDS), min_size=1, max_size=6), st.booleans())
    def gated(misdeeds: list[str], approves: bool) -> None:
        nonlocal cases, starts
        ran: list[str] = []
        gate = Hostile(misdeeds, approves)
        asyncio.run(go(name, gate, ran))
        cases, starts = cases + 1, starts + len(ran)

        assert unlawful(ran, gate.allowed) == []

    gated()
    assert starts, "else nothing was tried"
    figure(
        f"hostile gates, {name}",
        f"{cases} cases, {starts} lawful tool starts, 0 others",
    )


@pytest.mark.parametrize("misdeed", MISDEEDS)
async def test_each_misdeed_alone_lets_nothing_run(misdeed: str) -> None:
    ran: list[str] = []
    gate = Hostile([misdeed], approves=False)

    await engine_of("react", gate, ran).run("What is blue?")

    assert (ran != []) == (misdeed in ("allow", "change_the_arguments", "modify"))
    assert unlawful(ran, gate.allowed) == []
