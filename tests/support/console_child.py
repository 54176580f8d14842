"""A process of the console's tests: has one run at work that knows of no page.

python console_child.py JOURNAL RUN STEPS PAUSE [FILE]

With a file its tools wait until that exists.
"""

import asyncio
import sys
from pathlib import Path

from loopwright import Limits, ReActEngine, Request, Runtime, tool
from loopwright.journals import SQLiteJournal
from loopwright.testing import Line, ScriptedProvider, call
from waiting import eventually


async def main(
    path: str, run_id: str, steps: int, pause: float, begun: Path | None = None
) -> None:
    @tool(effect="read", repeatable=True)
    async def measure(number: int) -> str:
        """Measure."""
        await asyncio.sleep(pause)
        if begun is not None:
            await eventually(begun.exists)
        return f"result {number}"

    def model(request: Request) -> Line:
        done = sum(message.role == "tool" for message in request.conversation)
        return call("measure", number=done) if done < steps else "measured"

    limits = Limits(
        max_iterations=None, max_llm_calls=None, max_tool_calls=None, timeout=None
    )
    runtime = Runtime(
        ScriptedProvider(model),
        tools=[measure],
        journal=SQLiteJournal(path),
        limits=limits,
    )
    print((await ReActEngine(runtime).run("Measure.", run_id=run_id)).status)


if __name__ == "__main__":
    path, run_id, steps, pause, *begun = sys.argv[1:]
    asyncio.run(main(path, run_id, int(steps), float(pause), *map(Path, begun)))
