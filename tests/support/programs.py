"""Runs that use all that an engine can do, each with a model that is a function of the request, for crash tests."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loopwright import LoopEngine, Request, Runtime, Tool, ToolContext, tool
from loopwright.messages import ToolCall
from loopwright.policy import Approver
from loopwright.testing import call

Line = str | ToolCall | list[ToolCall]


@dataclass(frozen=True)
class Program:
    """An engine at work: how it is made, what it is asked, who answers, and what must come of it."""

    engine: Callable[[Runtime], LoopEngine]
    model: Callable[[Request], Line]
    answer: str
    task: str = "What is blue?"
    tools: Sequence[Tool] = ()
    approver: Approver | None = None


def log(line: str) -> None:
    """Write a line that survives the process; nothing where no log is asked for."""
    path = os.environ.get("KILLED_LOG")
    if path is None:
        return
    with Path(path).open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


@tool(effect="read")
async def look(ctx: ToolContext[None], what: str) -> str:
    """Look."""
    log(f"tool {ctx.key} {ctx.idempotency_key}")
    return f"{what} is blue"


@tool(effect="idempotent")
def put(ctx: ToolContext[None], what: str) -> str:
    """Put."""
    log(f"tool {ctx.key} {ctx.idempotency_key}")
    return f"{what} put"


@tool(effect="write")
async def send(ctx: ToolContext[None], what: str) -> str:
    """Send."""
    log(f"tool {ctx.key} {ctx.idempotency_key}")
    return f"{what} sent"


def turns(*lines: Line) -> Callable[[Request], Line]:
    """A model that says these lines, one a turn of the conversation."""

    def model(request: Request) -> Line:
        return lines[sum(message.role == "assistant" for message in request.conversation.messages)]

    return model


def _named(name: str) -> Callable[[Runtime], LoopEngine]:
    return lambda runtime: runtime.engine(name)


THREE = [call("look", what="sky"), call("send", what="card"), call("put", what="cup")]
LOOPS = turns(THREE, [call("send", what="end")], "blue")

PROGRAMS: dict[str, Program] = {
    name: Program(_named(name), LOOPS, "blue", tools=(look, send, put)) for name in ("react", "tiny")
}
