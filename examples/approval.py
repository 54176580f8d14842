"""Approval: a run waits for a person, its process may end, and what the person said counts for that one call.

Run in a terminal, the script asks you. Where there is nobody to ask it says yes to the first call and gives the second
one other arguments, as a person might. No model is needed: `SCRIPT` says what one would say.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from loopwright import Question, ReActEngine, Request, Runtime, Suspend, tool
from loopwright.gates import ApprovalGate
from loopwright.journals import SQLiteJournal
from loopwright.testing import Line, ScriptedProvider, call


@tool(effect="write")
def send_mail(to: str, text: str) -> str:
    """Send a letter."""
    return f"sent to {to}: {text}"


def model(request: Request) -> Line:
    """Two letters, and an answer."""
    sent = sum(message.role == "tool" for message in request.conversation)
    letters = [
        call("send_mail", to="ada@example.com", text="You won!"),
        call("send_mail", to="all", text="Ada won!"),
    ]
    return letters[sent] if sent < 2 else "Both letters are on their way."


def runtime(path: Path) -> Runtime:
    """What each process makes for itself; the journal is all that they share."""
    gate = ApprovalGate("send_*")
    return Runtime(
        ScriptedProvider(model),
        tools=[send_mail],
        gate=gate,
        approver=Suspend(),
        journal=SQLiteJournal(path),
    )


async def decide(parts: Runtime, question: Question, turn: int) -> None:
    """What a person says to one question."""
    control = parts.control("letters")
    print(f"question  {question.text}")
    if sys.stdin.isatty():
        said = (
            await asyncio.to_thread(input, "          yes, no, or another address: ")
        ).strip()
    else:
        said = "yes" if turn == 0 else "team@example.com"
        print(f"          {said}")
    if said in ("yes", "y"):
        await control.approve(question.id, by="the person at the terminal")
    elif said in ("no", "n", ""):
        await control.deny(question.id, "the person at the terminal does not want that")
    else:  # checked against the schema, and gated again
        await control.approve(question.id, arguments={**question.arguments, "to": said})


async def main() -> None:
    """Begin a run, and go on with it each time somebody has decided."""
    with tempfile.TemporaryDirectory() as folder:
        parts = runtime(Path(folder) / "runs.db")
        result = await ReActEngine(parts).run(
            "Tell Ada, and then everybody.", run_id="letters"
        )
        turn = 0
        while result.status == "waiting":
            await parts.journal.close()  # this process could end here
            parts = runtime(Path(folder) / "runs.db")
            for question in result.pending:
                await decide(parts, question, turn)
                turn += 1
            result = await ReActEngine(parts).resume("letters")
        for message in result.conversation:
            if message.role == "tool":
                print(f"tool      {message.content}")
        print(f"{result.status}: {result.answer}")
        await parts.journal.close()


if __name__ == "__main__":
    asyncio.run(main())
