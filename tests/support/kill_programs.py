"""The runs that are killed: those of `programs`, with tools that note what they really do, and a few more."""

import asyncio
import dataclasses
import functools
import time
import zlib
from collections.abc import Callable

from kill_notes import Notes
from loopwright import (
    LoopEngine,
    ReActEngine,
    Request,
    Run,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    tool,
)
from loopwright.messages import Effect
from loopwright.testing import call
from loopwright.tools import Fallback, LlmRecovery, RecoveryStrategy, Retry
from programs import PROGRAMS, Line, Program, said, turns

DURATIONS = 0.001, 0.015
"""Seconds between a tool's start and its side effect, by its name and its argument."""
FAR = 0.4
"""Those of a tool that is sent far."""
FAILING = "recovery", "saga"
"""Programs whose tools fail, or that fail themselves: they are recovered, or undone."""
ENDLESS = "endless", "slow"  # programs that only a limit ends
ENGINES = (
    "react", "chain-of-thought", "self-ask", "plan-execute", "reflexion", "critic", "tree-of-thoughts", "tiny",
)  # fmt: skip
EFFECTS: dict[str, Effect] = {
    "look": "read",
    "seek": "read",
    "fail": "read",
    "put": "idempotent",
    "send": "write",
    "stumble": "read",
    "guess": "read",
    "drop": "write",
    "book": "write",
    "hold": "idempotent",
}
RECOVERIES: dict[str, tuple[RecoveryStrategy, ...]] = {
    "stumble": (Retry(max_attempts=3, base_delay=0.005), Fallback("look")),
    "guess": (LlmRecovery(),),
    "drop": (Fallback("put"),),
}
COMPENSATED = "book", "hold"
"""Tools whose calls a saga undoes."""
SAYS = {
    "look": "{} is blue", "seek": "{} is blue", "put": "{} put", "send": "{} sent", "fail": "{} is nowhere",
    "stumble": "{} is too far", "guess": "{} is a guess", "drop": "{} is broken", "book": "{} booked", "hold": "{} held",
}  # fmt: skip


def _fails(name: str, what: str) -> bool:
    return name in ("fail", "stumble", "drop") or (name, what) == ("guess", "sea")


async def _undo(ctx: ToolContext[Notes], result: str) -> None:
    """Note that a call is being undone, and that it is."""
    ctx.deps.add(
        ctx.run_id, "undoing", key=ctx.key, idempotency_key=ctx.idempotency_key
    )
    await asyncio.sleep(0.002)
    ctx.deps.add(ctx.run_id, "undone", key=ctx.key, idempotency_key=ctx.idempotency_key)


@functools.cache
def made(name: str, *, thread: bool) -> Tool:
    """A tool that notes its start, works for a moment, and notes its side effect."""

    def begin(ctx: ToolContext[Notes], what: str) -> float:
        ctx.deps.add(
            ctx.run_id, "started", key=ctx.key, idempotency_key=ctx.idempotency_key
        )
        if what.startswith("far"):
            return FAR
        least, most = DURATIONS
        return least + (most - least) * zlib.crc32(f"{name} {what}".encode()) / 2**32

    def end(ctx: ToolContext[Notes], what: str) -> str:
        ctx.deps.add(
            ctx.run_id, "acted", key=ctx.key, idempotency_key=ctx.idempotency_key
        )
        if _fails(name, what):
            raise ToolError(SAYS[name].format(what))
        return "" if what == "nothing" else SAYS[name].format(what)

    async def in_the_loop(ctx: ToolContext[Notes], what: str) -> str:
        """Do it, while others do something else."""
        await asyncio.sleep(begin(ctx, what))
        return end(ctx, what)

    def in_a_thread(ctx: ToolContext[Notes], what: str) -> str:
        """Do it, in a thread."""
        time.sleep(begin(ctx, what))
        return end(ctx, what)

    return tool(
        effect=EFFECTS[name],
        name=name,
        recovery=RECOVERIES.get(name, ()),
        compensate=_undo if name in COMPENSATED else None,
    )(in_a_thread if thread else in_the_loop)


def tools_of(program: Program, *, threads: bool = False) -> list[Tool]:
    """The program's tools, as they are here; `put` is at work in a thread in any case."""
    return [
        made(one.name, thread=threads or one.name == "put") for one in program.tools
    ]


def _never_ends(star: str) -> Callable[[Request], Line]:
    """A model that looks at one star after the other until it is told to come to an end."""

    def model(request: Request) -> Line:
        said = sum(
            message.role == "assistant" for message in request.conversation.messages
        )
        return (
            "blue"
            if request.tool_choice == "none"
            else call("look", what=f"{star} {said}")
        )

    return model


_WIDE = [call(name, what=what) for name, what in (
    ("send", "card"), ("put", "cup"), ("look", "sky"), ("send", "letter"), ("put", "plate"),
)]  # fmt: skip
_REACT = PROGRAMS["react"]

# --- tools that fail, and are recovered as they declare ---

_FAILURES = turns(
    [call("stumble", what="sky"), call("drop", what="cup"), call("guess", what="sea")],
    [call("send", what="card"), call("stumble", what="sea")],
    "blue",
)


def _recovers(request: Request) -> Line:
    if "Give arguments that could work" in said(request):
        return '{"arguments": {"what": "sky"}}'
    return _FAILURES(request)


# --- a saga that does not complete, and is undone ---


class Traveller(LoopEngine):
    """Books a journey, alone and in branches, and finds at its end that it is sold out."""

    name = "traveller"

    async def solve(self, run: Run) -> str:
        """Book, hold, look, ask, fail."""

        async def branch(inner: Run, tool_name: str, what: str) -> str:
            made = await inner.call(ToolCall(tool_name, {"what": what}))
            return await inner.ask(f"{made.content}?")

        hotel = await run.call(ToolCall("book", {"what": "hotel"}))
        wanted = [("book", "flight"), ("hold", "car"), ("look", "sky")]
        await run.gather(
            *(lambda inner, one=one: branch(inner, *one) for one in wanted)
        )
        boat = await run.call(ToolCall("hold", {"what": "boat"}))
        await run.ask(f"{hotel.content}, {boat.content}: is there room?")
        raise RuntimeError("it is sold out")


KILL_PROGRAMS: dict[str, Program] = {
    **{name: PROGRAMS[name] for name in ENGINES},
    "recovery": Program(
        ReActEngine,
        _recovers,
        "blue",
        tools=[
            made(name, thread=False)
            for name in ("stumble", "drop", "guess", "look", "put", "send")
        ],
    ),
    "saga": Program(
        Traveller,
        lambda request: "no",
        "",
        tools=[made(name, thread=False) for name in ("book", "hold", "look")],
        saga=True,
    ),
    "wide": dataclasses.replace(_REACT, model=turns(_WIDE, _WIDE[:1], "blue")),
    "endless": dataclasses.replace(_REACT, model=_never_ends("star")),
    "slow": dataclasses.replace(_REACT, model=_never_ends("far star")),
}
