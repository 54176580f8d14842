"""A person's three days with an agent: what is said, what the model makes of it, and one process of it."""

import asyncio
import os
import re
import signal
import sys
import time
from pathlib import Path

from loopwright import Limits, Request, Result, Runtime, Suspend, ToolCall, tool
from loopwright.agents import Thread
from loopwright.clock import SystemClock
from loopwright.followups import Memories
from loopwright.journals import SQLiteJournal
from loopwright.knowledge import SQLiteKnowledge
from loopwright.testing import ScriptedProvider, call

NAME = "Quillfeather"
ADA = {"user": f"ada-{NAME}"}
TURNS = 200
HANDOFF, APPROVAL, KILL, QUESTION = 40, 66, 100, 150
SAID = {
    1: f"I am Ada {NAME}. Please always answer in German.",
    HANDOFF: "Let me talk to bookings.",
    APPROVAL: "Book flight X1.",
    QUESTION: "What is my name?",
}
EVENING = 1_800_000_000.0
HOURS = (0, 13, 37)
"""Hours after the first evening at which each day begins."""


class Days(SystemClock):
    """The machine's clocks, with the wall clock of another day."""

    def __init__(self, day: int) -> None:
        self._ahead = EVENING + HOURS[day] * 3600 - time.time()

    def wall(self) -> float:
        """Return seconds since the Unix epoch."""
        return time.time() + self._ahead


def say(number: int) -> str:
    """Return what the person says in a turn."""
    return f"{SAID.get(number, 'Go on.')} ({number})"


@tool(effect="read", trusted=True)
async def look(number: int) -> str:
    """Look a thing up."""
    return f"thing {number}: " + "details " * 150


@tool(effect="destructive")
async def book(flight: str) -> str:
    """Book a flight."""
    return f"flight {flight} is booked"


class Model:
    """What a model would say; a process is killed in the middle of one turn, once."""

    def __init__(self, folder: Path) -> None:
        self._killed = folder / "killed"
        self.summaries = 0

    def __call__(self, request: Request) -> str | ToolCall:
        """Return a reply to the newest message of the person."""
        messages = request.conversation.messages
        if messages[-1].content.startswith("Summarize"):
            self.summaries += 1
            return '{"goal": "to travel", "done": ["the first turns"]}'
        spoken = [n for n, one in enumerate(messages) if one.origin == "caller" and one.role == "user"]  # fmt: skip
        found = re.search(r"\((\d+)\)$", messages[spoken[-1]].content)
        assert found is not None
        number = int(found[1])
        results = [one.content for one in messages[spoken[-1] :] if one.role == "tool"]
        if number == KILL and results and not self._killed.exists():
            self._killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._reply(number, results, {spec.name for spec in request.tools})

    def _reply(
        self, number: int, results: list[str], tools: set[str]
    ) -> str | ToolCall:
        if number == HANDOFF and "transfer_to_bookings" in tools:
            return call("transfer_to_bookings")
        if number == APPROVAL and not results:
            return call("book", flight="X1")
        if number == QUESTION:
            shown = "".join(results)
            return f"Ada {NAME}" if NAME in shown else call("recall", handle="all", find="I am Ada")  # fmt: skip
        if number % 5 == 0 and not results:
            return call("look", number=number)
        return f"Answer {number}."


def open_thread(folder: Path, day: int) -> tuple[Runtime, Thread[None], Model]:
    """Return what a process on one of the days works with."""
    model, clock = Model(folder), Days(day)
    journal = SQLiteJournal(folder / "runs.db", clock=clock)
    runtime = Runtime(
        ScriptedProvider(model), tools=[look, book], approver=Suspend(), clock=clock,
        journal=journal, knowledge=SQLiteKnowledge(folder / "memory.db"),
        after=[Memories()], limits=Limits(context_tokens=3_000), context="anchored",
    )  # fmt: skip
    support = runtime.agent("support", instructions="You help.", handoffs=["bookings"])
    runtime.agent("bookings", instructions="You book.", handoffs=["support"])
    return runtime, support.thread(f"chat of {NAME}", tags=ADA), model


async def talk(
    folder: Path, day: int, first: int, last: int
) -> tuple[list[Result], int]:
    """Say what the person says in the turns from `first` to `last`; return how each ended, and the number of summaries."""
    runtime, thread, model = open_thread(folder, day)
    async with runtime:
        results = [await thread.run(say(number)) for number in range(first, last + 1)]
        await runtime.drain()
    await runtime.journal.close()
    return results, model.summaries


if __name__ == "__main__":
    asyncio.run(talk(Path(sys.argv[1]), *map(int, sys.argv[2:])))
