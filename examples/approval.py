"""Approval: a run waits for a person, its process may end, and the decision counts for that one call.

Run in a terminal, the script asks you. Without a terminal it approves the first call and changes
the arguments of the second one, as a person might. No model is needed: `model` plays one.
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
    """Send a mail."""
    return f"sent to {to}: {text}"


def model(request: Request) -> Line:
    """Return two calls, then an answer."""
    sent = sum(message.role == "tool" for message in request.conversation)
    mails = [
        call("send_mail", to="ada@example.com", text="You won!"),
        call("send_mail", to="all", text="Ada won!"),
    ]
    return mails[sent] if sent < 2 else "Both mails are on their way."


def make_runtime(path: Path) -> Runtime:
    """Build what each process builds for itself; they share nothing but the journal."""
    gate = ApprovalGate("send_*")
    return Runtime(
        ScriptedProvider(model),
        tools=[send_mail],
        gate=gate,
        approver=Suspend(),
        journal=SQLiteJournal(path),
    )


async def decide(runtime: Runtime, question: Question, turn: int) -> None:
    """Ask the person at the terminal, and send the decision to the run."""
    control = runtime.control("mails")
    print(f"question  {question.text}")
    if sys.stdin.isatty():
        reply = (
            await asyncio.to_thread(input, "          yes, no, or another address: ")
        ).strip()
    else:
        reply = "yes" if turn == 0 else "team@example.com"
        print(f"          {reply}")
    if reply in ("yes", "y"):
        await control.approve(question.id, by="the person at the terminal")
    elif reply in ("no", "n", ""):
        await control.deny(question.id, "the person at the terminal does not want that")
    else:  # checked against the schema, and gated again
        await control.approve(
            question.id, arguments={**question.arguments, "to": reply}
        )


async def main() -> None:
    """Start a run, and resume it each time a decision was made."""
    with tempfile.TemporaryDirectory() as folder:
        current = make_runtime(Path(folder) / "runs.db")
        result = await ReActEngine(current).run(
            "Tell Ada, and then everybody.", run_id="mails"
        )
        turn = 0
        while result.status == "waiting":
            await current.journal.close()  # this process could end here
            current = make_runtime(Path(folder) / "runs.db")
            for question in result.pending:
                await decide(current, question, turn)
                turn += 1
            result = await ReActEngine(current).resume("mails")
        for message in result.conversation:
            if message.role == "tool":
                print(f"tool      {message.content}")
        print(f"{result.status}: {result.answer}")
        await current.journal.close()


if __name__ == "__main__":
    asyncio.run(main())
