"""Steering: a run in one process, and a second process that pauses it, steers it and unpauses it.

The second process needs nothing but the journal's file: its commands go into the inbox beside it.
From a shell that is `loopwright steer RUN "..."`. No model is needed: `model` plays one.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from loopwright import Entry, Limits, ReActEngine, Request, RunHandle, Runtime, tool
from loopwright.events import CommandReceived, ModelRequested, RunContinued, RunPaused
from loopwright.journals import SQLiteJournal
from loopwright.testing import Line, ScriptedProvider, call


@tool(effect="read", repeatable=True)
async def measure() -> str:
    """Measure the temperature."""
    await asyncio.sleep(0.1)
    return "21 °C"


def model(request: Request) -> Line:
    """Measure until the operator says that it is enough."""
    instructions = [
        message.content
        for message in request.conversation
        if message.origin == "operator"
    ]
    return (
        f"It is 21 °C. The operator says: {instructions[0].splitlines()[-1]}"
        if instructions
        else call("measure")
    )


def is_paused(journal: SQLiteJournal) -> bool:
    """Return whether the run has come to its pause."""
    entries = journal.read("thermometer")
    return any(isinstance(entry.event, RunPaused) for entry in entries)


async def second_process(path: Path) -> None:
    """Control the run of the first process."""
    journal = SQLiteJournal(path)
    control = Runtime(ScriptedProvider([]), journal=journal).control("thermometer")
    await control.pause()
    while not is_paused(journal):  # noqa: ASYNC110 - in another process
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    await control.steer("That is enough.")
    await control.unpause()
    await journal.close()


async def watch(run: RunHandle[Entry, None]) -> None:
    """Print the commands that the run receives, and their effects."""
    async for entry in run:
        match entry.event:
            case CommandReceived(command=command):
                print(f"received  {command}")
            case RunPaused():
                print("paused    between two steps")
            case RunContinued(seconds=seconds):
                print(
                    f"continues after {'a second or more' if seconds > 0.5 else 'no time'}"
                )
            case ModelRequested(commands=commands) if commands:
                print("delivered with the next model call")
            case _:
                pass


async def main() -> None:
    """Start a run, and another process that controls it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        journal = SQLiteJournal(path)
        runtime = Runtime(
            ScriptedProvider(model),
            tools=[measure],
            journal=journal,
            # It measures until it is told to stop, however long the other process takes to start.
            limits=Limits(max_iterations=None, max_llm_calls=None, max_tool_calls=None),
        )
        async with ReActEngine(runtime).start(
            "Watch the temperature.", run_id="thermometer"
        ) as run:
            await asyncio.sleep(0.2)
            other = await asyncio.create_subprocess_exec(
                sys.executable, __file__, str(path)
            )
            await watch(run)
            result = await run.result()
        await other.wait()
        print(f"{result.status}: {result.answer}")
        await journal.close()


if __name__ == "__main__":
    asyncio.run(second_process(Path(sys.argv[1])) if len(sys.argv) > 1 else main())
