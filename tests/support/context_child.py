"""A run with summaries in a process that kills itself at a barrier: `python context_child.py FOLDER BARRIER before|after`.

Each request that the model gets is a line in FOLDER/requests. Barrier 0 kills nothing.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loopwright import Limits, ReActEngine, Runtime, tool
from loopwright.errors import UnknownRun
from loopwright.journals import SQLiteJournal
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider, call

LOOKS = 24
RUN_ID = "summarized"


@tool(effect="read", repeatable=True)
async def look(n: int) -> str:
    """Look something up."""
    return f"{n} " + "x" * 400


def run(folder: Path, fatal: int, when: str) -> None:
    """Begin the run or resume it, and print its answer."""

    class Dying(SQLiteJournal):
        barriers = 0

        async def barrier(self, *given: Any, **options: Any) -> None:
            type(self).barriers += 1
            is_fatal = self.barriers == fatal
            if is_fatal and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            await super().barrier(*given, **options)
            if is_fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    def reply(request: Request) -> Any:
        messages = request.conversation.messages
        is_summary = messages[0].content.startswith("Summarize the earlier part")
        looked = [c.arguments["n"] for m in messages for c in m.calls]
        last: Any = looked[-1] if looked else 0
        line = f"summary {messages[0].content.count('tool: ')}" if is_summary else f"step {last}"  # fmt: skip
        with (folder / "requests").open("a") as log:
            print(line, file=log)
        if is_summary:
            return '{"goal": "look"}'
        return call("look", n=last + 1) if last < LOOKS else "done"

    limits = Limits(context_tokens=1_500, max_iterations=None)
    runtime = Runtime(
        ScriptedProvider([reply] * 200), tools=[look], limits=limits, context="anchored",
        journal=Dying(folder / "runs.db"),
    )  # fmt: skip
    try:
        runtime.journal.read(RUN_ID)
        result = asyncio.run(ReActEngine(runtime).resume(RUN_ID))
    except UnknownRun:
        result = asyncio.run(ReActEngine(runtime).run("Look.", run_id=RUN_ID))
    print(result.answer, result.llm_calls)


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
