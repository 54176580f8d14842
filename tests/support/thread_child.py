"""A process that sends messages to a thread, and may be killed at a barrier of its journal."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loopwright import Completion, Runtime, ask_user, tool
from loopwright.agents import Thread
from loopwright.agents.agent import InstructionContext
from loopwright.errors import ThreadBusy
from loopwright.journals import SQLiteJournal
from loopwright.journals.base import Claim
from loopwright.messages import ToolCall
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider


class DoomedJournal(SQLiteJournal):
    """A journal whose process is killed at its barrier or deletion number `at`, before or after it; 0 for never."""

    def __init__(self, path: Path, at: int, when: str) -> None:
        super().__init__(path)
        self._left, self._when = at, when

    def _kill(self, when: str) -> None:
        if self._left == 0 and self._when == when:
            os.kill(os.getpid(), signal.SIGKILL)

    async def barrier(self, claim: Claim) -> None:
        """Count, and die."""
        self._left -= 1
        self._kill("before")
        await super().barrier(claim)
        self._kill("after")

    async def delete(self, run_id: str, **options: Any) -> list[str]:
        """Count a deletion too, and die."""
        self._left -= 1
        self._kill("before")
        deleted = await super().delete(run_id, **options)
        self._kill("after")
        return deleted


class ChildProvider(ScriptedProvider):
    """A model that looks once, may ask a question, and answers with what it was told; it notes each call in a file."""

    def __init__(self, ledger: Path) -> None:
        super().__init__([])
        self._ledger = ledger

    async def complete(self, request: Request) -> Completion:
        """Look, ask if the message wants that, then answer."""
        told: list[str] = []
        done = 0
        for one in request.conversation:
            if one.role == "user":
                told, done = [*told, one.content], 0
            elif one.role == "assistant" and not one.calls:
                told, done = [], 0
            elif one.role == "tool":
                done += 1
        with self._ledger.open("a") as file:
            file.write(f"model {' '.join(told)} {done} | {request.system}\n")
        if done == 0:
            return Completion(calls=(ToolCall("look", {"what": told[-1]}, "c1"),))
        if done == 1 and "ask" in told[-1]:
            asked = ToolCall("ask_user", {"question": "Which?"}, "c2")
            return Completion(calls=(asked,))
        last = request.conversation.messages[-1].content
        answer = f"re: {' '.join(told)} / {last}"
        return Completion(text=answer, answer=answer)


def open_thread(path: Path, at: int, when: str) -> tuple[SQLiteJournal, Thread[None]]:
    """Return the journal, and the thread of a person with an agent whose instructions change with each process."""
    ledger = path.with_name("ledger.txt")
    journal = DoomedJournal(path, at, when)

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        with ledger.open("a") as file:
            file.write(f"tool {what}\n")
        return f"{what} is blue"

    def instruct(about: InstructionContext) -> str:
        return f"Process {os.getpid()}."

    runtime = Runtime(ChildProvider(ledger), journal=journal, tools=[look, ask_user])
    runtime.agent("other")
    agent = runtime.agent("support", instructions=instruct)
    return journal, agent.thread("user-42")


async def work(path: Path, plan: dict[str, Any]) -> None:
    """Do what a plan says, and print what became of each message."""
    journal, thread = open_thread(path, plan.get("at", 0), plan.get("when", "before"))
    for message in plan.get("messages", ()):
        try:
            result = await thread.run(message, busy=plan.get("busy", "wait"))
            done = {"status": result.status, "answer": result.answer}
        except ThreadBusy as error:
            done = {"status": "refused", "answer": str(error.command)}
        print(json.dumps({"message": message, **done}), flush=True)
    match plan.get("then"):
        case "switch":
            await thread.switch("other")
        case "fork":
            await thread.fork("fork")
        case "delete":
            await thread.delete()
        case _:
            pass
    await journal.close()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), json.loads(sys.argv[2])))
