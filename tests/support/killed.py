"""A process that works on one run and kills itself at a chosen barrier of its journal.

    python killed.py ENGINE DATABASE LOG BARRIER [before|after]

It starts the run, or resumes it if the journal has it; what the model and the tools do goes into LOG, a line each,
flushed to the disk before the process goes on. BARRIER 0 kills nothing. The last line printed is the answer.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from loopwright import Request, Runtime, ToolContext, UnknownRun, tool
from loopwright.journal import Claim
from loopwright.journals import SQLiteJournal
from loopwright.messages import ToolCall
from loopwright.testing import ScriptedProvider, call

ENGINE, DATABASE, LOG, BARRIER, WHEN = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
RUN = "the-run"


def log(line: str) -> None:
    """Write a line that survives the process."""
    with Path(LOG).open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


class Mortal(SQLiteJournal):
    """A journal whose process dies at a barrier."""

    count = 0

    async def barrier(self, claim: Claim) -> None:
        """Die before or after the chosen one."""
        self.count += 1
        this = self.count
        if (this, WHEN) == (BARRIER, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        await super().barrier(claim)
        if (this, WHEN) == (BARRIER, "after"):
            os.kill(os.getpid(), signal.SIGKILL)


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


def model(request: Request) -> str | list[ToolCall]:
    """What the model says depends on the conversation alone."""
    turn = sum(message.role == "assistant" for message in request.conversation.messages)
    log(f"model {turn} {len(request.conversation)}")
    return [
        [call("look", what="sky"), call("send", what="card"), call("put", what="cup")],
        [call("send", what="end")],
        "blue",
    ][turn]


async def main() -> None:
    """Start or resume, and print the answer."""
    journal = Mortal(DATABASE)
    async with Runtime(ScriptedProvider(model), tools=[look, put, send], journal=journal) as runtime:
        try:
            result = await runtime.resume(RUN)
        except UnknownRun:
            result = await runtime.engine(ENGINE).run("What is blue?", run_id=RUN)
        result.raise_for_status()
        check = journal.verify(RUN, result.head_hash)
        await journal.close()
        print(result.answer, check.problem or "verified", result.llm_calls, result.tool_calls)


asyncio.run(main())
