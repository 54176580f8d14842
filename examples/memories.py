"""Memories after a run: the answer comes first, then what is worth remembering is stored, once, in the background.

`Runtime(after=[Memories(...)])` makes it due with the end of each run: if the process dies, a worker or `drain()` does it.
It finds what happened, which names came up, what the person says they always want, and how the tools were used. The
next run reads what matches, within the scope of its user.

No model is needed: `answer` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio
import tempfile
from pathlib import Path

from loopwright import ReActEngine, Request, Runtime, ToolCall, tool
from loopwright.followups import Memories
from loopwright.knowledge import SQLiteKnowledge
from loopwright.testing import ScriptedProvider, call

ADA = {"user": "ada"}


@tool(effect="read")
async def find_trains(town: str) -> str:
    """Find the trains to a town."""
    return "8:25 direct, 9:03 with one change"


@tool(effect="write")
async def book_seat(train: str, seat: str) -> str:
    """Book a seat."""
    return f"booked: {seat} at {train}"


def answer(request: Request) -> str | ToolCall:
    """Say what a model would say: it looks for trains, and books the seat that its person prefers."""
    known = [m.content for m in request.conversation if m.origin == "memory"]
    seat = "window" if any("window seats" in text for text in known) else "aisle"
    done = sum(message.role == "tool" for message in request.conversation)
    steps: list[str | ToolCall] = [
        call("find_trains", town="Bergen"),
        call("book_seat", train="8:25", seat=seat),
        f"You have a seat at the {seat}, 8:25 to Bergen.",
    ]
    return steps[done]


async def main() -> None:
    """Book twice: the second time the preference is known."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteKnowledge(Path(folder) / "memory.db")
        tools = [find_trains, book_seat]
        after = [Memories(skills_folder=folder)]
        model = ScriptedProvider(answer)
        async with Runtime(model, tools=tools, knowledge=store, after=after) as runtime:
            engine = ReActEngine(runtime)
            first = "I always take window seats. Book a train to Bergen."
            print((await engine.run(first, tags=ADA, run_id="first")).answer)
            await runtime.drain()
            print((await runtime.resume("first@after:memories")).answer)

            second = "Book me a train with seats, again to Bergen."
            print((await engine.run(second, tags=ADA)).answer)

        for item in await store.search(
            "window seats", kinds=["preference"], scope="ada"
        ):
            print(f"{item.kind}: {item.text}")
        [skill] = await asyncio.to_thread(lambda: list(Path(folder).rglob("SKILL.md")))
        print(skill.read_text().splitlines()[-2:][0])
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
