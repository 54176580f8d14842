"""The runs that are killed: those of `programs`, with tools that note what they really do, and a few more."""

import asyncio
import dataclasses
import functools
import time
import zlib
from collections.abc import Callable

from kill_notes import Notes
from loopwright import Request, Tool, ToolContext, ToolError, tool
from loopwright.messages import Effect
from loopwright.testing import call
from programs import PROGRAMS, Line, Program, turns

DURATIONS = 0.001, 0.015
"""Seconds between a tool's start and its side effect, by its name and its argument."""
FAR = 0.4
"""Those of a tool that is sent far."""
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
}
SAYS = {
    "look": "{} is blue", "seek": "{} is blue", "put": "{} put", "send": "{} sent", "fail": "{} is nowhere",
}  # fmt: skip


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
        if name == "fail":
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

    return tool(effect=EFFECTS[name], name=name)(in_a_thread if thread else in_the_loop)


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

KILL_PROGRAMS: dict[str, Program] = {
    **{name: PROGRAMS[name] for name in ENGINES},
    "wide": dataclasses.replace(_REACT, model=turns(_WIDE, _WIDE[:1], "blue")),
    "endless": dataclasses.replace(_REACT, model=_never_ends("star")),
    "slow": dataclasses.replace(_REACT, model=_never_ends("far star")),
}
