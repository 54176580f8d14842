"""Workers: three runs whose process is killed, a worker that resumes them and is killed too, and one that ends them.

Each run waters a bed in four steps. The first process comes as far as the first step and hangs; it is killed with
SIGKILL. So is the worker that resumes the runs, after the second step. The last worker is this process. What was under
way when a process died has an unknown outcome: the tool's `lookup` reads in the ledger whether it was done. So each
step is done once, by one of the processes.

No model is needed: `reply` says what one would say. It is a function of the conversation, so that all processes get
the same.
"""

import asyncio
import re
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from loopwright import (
    ReActEngine,
    Request,
    Runtime,
    ToolCall,
    ToolContext,
    Worker,
    tool,
)
from loopwright.events import RunResumed
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider, call
from loopwright.tools import CallCompleted, CallNotExecuted

RUNS = ("roses", "tulips", "herbs")
STEPS = 4
HANGS_AT = int(sys.argv[3]) if sys.argv[1:] else STEPS


def ledger(folder: Path) -> list[str]:
    """What was done so far, by all processes."""
    file = folder / "ledger"
    return file.read_text().splitlines() if file.exists() else []


def was_done(ctx: ToolContext[Path]) -> CallCompleted | CallNotExecuted:
    """Whether a step was done by a process that died before it could say so."""
    line = f"{ctx.arguments['bed']} {ctx.arguments['step']}"
    return (
        CallCompleted("done before") if line in ledger(ctx.deps) else CallNotExecuted()
    )


@tool(effect="write", lookup=was_done)
async def water(ctx: ToolContext[Path], bed: str, step: int) -> str:
    """Water a part of a bed."""
    if step >= HANGS_AT:
        await asyncio.sleep(60)
    with (ctx.deps / "ledger").open("a") as file:
        file.write(f"{bed} {step}\n")
    return "done"


def reply(request: Request) -> ToolCall | str:
    """The model's part: the next step, until all are done."""
    done = sum(message.role == "tool" for message in request.conversation.messages)
    bed = re.findall(r"\w+", request.conversation.task)[-1]
    return (
        call("water", bed=bed, step=done) if done < STEPS else f"The {bed} are watered."
    )


def runtime(folder: Path) -> Runtime:
    """The same parts in all processes; a lease, so that one that hangs does not keep its runs for ever."""
    return Runtime(
        ScriptedProvider(reply),
        tools=[water],
        journal=SQLiteJournal(folder / "runs.db"),
        lease=30,
    )


async def begin(folder: Path) -> None:
    """The first process: it will not see the end of its runs."""
    engine = ReActEngine(runtime(folder))
    await asyncio.gather(
        *(engine.run(f"Water the {bed}", run_id=bed, deps=folder) for bed in RUNS)
    )


async def work(folder: Path) -> None:
    """A worker, until it is stopped."""
    await Worker(runtime(folder), deps=folder, poll=0.1).serve()


async def start_and_kill(what: str, folder: Path, hangs_at: int) -> None:
    """Start a process, wait until it has come as far as it can, and kill it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, what, str(folder), str(hangs_at)
    )
    while len(ledger(folder)) < hangs_at * len(RUNS):  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    print(
        f"{what}: killed by signal {-await process.wait()}, {len(ledger(folder))} steps done so far"
    )


async def main(folder: Path) -> None:
    """Two processes die; this one ends what they began."""
    await start_and_kill("begin", folder, 1)
    await start_and_kill("worker", folder, 2)
    async with runtime(folder) as parts:
        results = await Worker(parts, deps=folder).drain()
        print(f"this process: ended {len(results)} runs\n")
        for result in sorted(results, key=lambda ended: ended.run_id):
            claims = sum(
                isinstance(entry.event, RunResumed)
                for entry in parts.journal.read(result.run_id)
            )
            journal = (
                "whole"
                if parts.journal.verify(result.run_id, result.head_hash).ok
                else "damaged"
            )
            steps = [line for line in ledger(folder) if line.startswith(result.run_id)]
            print(
                f"{result.run_id}: {result.status}, claimed {claims} times, journal {journal}"
            )
            print(
                f"    {len(steps)} steps, {len(set(steps))} different ones: {result.answer}"
            )
        await parts.journal.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run({"begin": begin, "worker": work}[sys.argv[1]](Path(sys.argv[2])))
    else:
        with TemporaryDirectory() as directory:
            asyncio.run(main(Path(directory)))
