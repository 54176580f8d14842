"""Crash and resume: a process is killed in the middle of a run, another resumes it, and nothing is bought twice.

The child process buys a ticket and books a room, and is killed with SIGKILL while the model thinks about what comes
next: no handler runs, no file is closed. The parent finds the run in its journal and resumes it. Model calls and side
effects that the journal holds are answered from it; the first thing that is really done is what was missing.

No model is needed: `reply` says what one would say. It is a function of the conversation, so that both processes get
the same. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from `loopwright.providers`) in place of the
`ScriptedProvider`; everything else stays.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from loopwright import ReActEngine, Request, Runtime, ToolCall, ToolContext, tool
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider, call

RUN = "trip-to-porto"
TASK = "Buy a ticket to Porto, book a room for two nights, and write to Ada that I am coming."


def ledger(folder: Path, line: str) -> None:
    """Count a side effect, in a file that outlives the process."""
    with (folder / "ledger").open("a") as file:
        file.write(line + "\n")


@tool(effect="write")
def buy_ticket(ctx: ToolContext[Path], city: str) -> str:
    """Buy a train ticket."""
    ledger(ctx.deps, f"ticket to {city}")
    return "ticket 88-1, 08:12, seat 61"


@tool(effect="write")
def book_room(ctx: ToolContext[Path], nights: int) -> str:
    """Book a hotel room."""
    ledger(ctx.deps, f"room for {nights} nights")
    return "room 14"


@tool(effect="write")
def send_mail(ctx: ToolContext[Path], to: str, text: str) -> str:
    """Send a message."""
    ledger(ctx.deps, f"mail to {to}: {text}")
    return "sent"


def reply(request: Request) -> list[ToolCall] | ToolCall | str:
    """Play the model: the next reply follows from the conversation."""
    print(
        f"{'child' if 'child' in sys.argv else 'parent'}: model call {len(request.conversation)}",
        flush=True,
    )
    match sum(message.role == "assistant" for message in request.conversation.messages):
        case 0:
            return [call("buy_ticket", city="Porto"), call("book_room", nights=2)]
        case 1:
            if "child" in sys.argv:
                time.sleep(60)  # it thinks, and will never say
            return call("send_mail", to="Ada", text="I am coming to Porto.")
        case _:
            return "You travel at 08:12, sleep in room 14, and Ada knows."


def runtime(folder: Path) -> Runtime:
    """Build the same runtime in both processes."""
    journal = SQLiteJournal(str(folder / "runs.db"))
    return Runtime(
        ScriptedProvider(reply),
        tools=[buy_ticket, book_room, send_mail],
        journal=journal,
    )


def child(folder: Path) -> None:
    """Start the run; it will not see the end of it."""
    ReActEngine(runtime(folder)).run_sync(TASK, run_id=RUN, deps=folder)


async def start_and_kill_a_child(folder: Path) -> None:
    """Let another process come as far as its second model call, in which it hangs."""
    command = [sys.executable, __file__, "child", str(folder)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE
    )
    if process.stdout is not None:
        for _ in range(2):
            print((await process.stdout.readline()).decode(), end="")
    os.kill(process.pid, signal.SIGKILL)
    print(f"parent: the child was killed by signal {-await process.wait()}")


async def parent(folder: Path) -> None:
    """Resume from the journal of a child process that was killed."""
    await start_and_kill_a_child(folder)
    print(
        f"parent: {len((folder / 'ledger').read_text().splitlines())} side effects so far\n"
    )

    async with runtime(folder) as parts:
        result = await parts.resume(RUN, deps=folder)
        check = parts.journal.verify(RUN, result.head_hash)
    effects = (folder / "ledger").read_text().splitlines()
    for effect in effects:
        print(f"done {effects.count(effect)} times: {effect}")
    print(
        f"{result.status}: {result.llm_calls} model calls in both lives, {result.tool_calls} tool calls"
    )
    print(f"Journal: {'unchanged' if check.ok else check.problem}")
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(Path(sys.argv[2]))
    else:
        with TemporaryDirectory() as directory:
            asyncio.run(parent(Path(directory)))
