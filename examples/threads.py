"""Threads: a chat per user that the journal keeps, for any process, one turn at a time.

Two messages come at once and are answered one after the other; the agent asks a question, and the next message is its
answer; a fork tries another way; and a customer who asks to be forgotten is, with the fork.

No model is needed: `answer` says what one would say. For a real one put `"openai:gpt-4.1-mini"` in place of the
`ScriptedProvider`; everything else stays.
"""

import asyncio
import tempfile
from pathlib import Path

from loopwright import Runtime, ToolCall, ask_user
from loopwright.agents import Agent
from loopwright.journals import SQLiteJournal
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider, call


def answer(request: Request) -> ToolCall | str:
    """Ask which card is meant, and count what was said."""
    last = request.conversation.messages[-1]
    if last.role == "user" and "block" in last.content:
        return call("ask_user", question="Which card?")
    if last.role == "tool":
        return f"Card {last.content} is blocked."
    count = sum(message.role == "user" for message in request.conversation)
    return f"That was message {count}."


def open_desk(path: Path) -> tuple[SQLiteJournal, Runtime, Agent[None]]:
    """Return the parts of one process."""
    journal = SQLiteJournal(path)
    runtime = Runtime(ScriptedProvider(answer), journal=journal, tools=[ask_user])
    agent = runtime.agent("support", instructions="You help customers of a bank.")
    return journal, runtime, agent


async def talk(path: Path) -> None:
    """Two messages at once, and a question that the agent asks."""
    journal, _, support = open_desk(path)
    thread = support.thread("user-42", tags={"tenant": "acme"})
    both = await asyncio.gather(thread.run("Hello."), thread.run("Are you there?"))
    print("at once:", *(result.answer for result in both))
    waiting = await thread.run("Please block my card.")
    print(f"{waiting.status}: {waiting.pending[0].text}")
    await journal.close()


async def continue_talk(path: Path) -> None:
    """Another process takes the next turn; later the customer asks to be forgotten."""
    journal, runtime, support = open_desk(path)
    thread = support.thread("user-42")
    print((await thread.run("7788")).answer)
    other = await thread.fork("user-42/other", at=1)
    print("in the fork:", (await other.run("Thank you.")).answer)
    for turn in await thread.turns():
        print(f"  {turn.number} {turn.text} -> {turn.answer}")

    print("threads:", *(info.id for info in await runtime.threads()))
    deleted = await thread.delete()
    print(f"deleted {len(deleted.runs)} runs, the fork {deleted.forks[0]} too")
    print("threads:", len(await runtime.threads()))
    await journal.close()
    files = [file.read_bytes() for file in path.parent.iterdir()]
    print("7788 is in a file:", any(b"7788" in content for content in files))


def main() -> None:
    """Talk in one process and continue in another one; here both are parts of this one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank.db"
        asyncio.run(talk(path))
        asyncio.run(continue_talk(path))


if __name__ == "__main__":
    main()
