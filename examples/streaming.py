"""Streaming: the words of a reply as they arrive, then the journal's entry that records the reply.

`start(deltas=True)` asks models to stream. There are two kinds of items. A `Delta` is a chunk of a
reply, for people who watch; no journal holds it. An `Entry` is a fact of the run: a streamed run and
a plain one write the same journal. A provider that cannot stream gives one chunk.

No model is needed: `SCRIPT` plays one. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio
import sys

from loopwright import Completion, Delta, Entry, ReActEngine, Reasoning, Runtime, tool
from loopwright.events import GateDecided, RunFinished, ToolFinished
from loopwright.providers import CallDelta
from loopwright.testing import ScriptedProvider, call


@tool(effect="read")
async def tide(port: str) -> str:
    """When the next high tide is in a port."""
    return {"Husum": "14:52", "Cuxhaven": "15:10"}.get(port, "unknown")


SCRIPT: list[Completion | str] = [
    Completion(
        "I look both ports up.",
        calls=(call("tide", port="Husum"), call("tide", port="Cuxhaven")),
        reasoning=(Reasoning("The question is about two ports."),),
        finish_reason="tool_calls",
    ),
    "High water is at 14:52 in Husum, eighteen minutes before Cuxhaven.",
]


class Screen:
    """Prints chunks of text on one line, and each entry on a separate line."""

    def __init__(self) -> None:
        self.open = ""
        self.chunks = 0
        self.tools: dict[
            int, str
        ] = {}  # by the index of the call, until its arguments come

    def chunk(self, kind: str, text: str) -> None:
        """Continue a line of this kind, or begin one."""
        if not text:
            return
        if self.open != kind:
            self.line()
            sys.stdout.write(f"{kind:>9}  ")
        self.open = kind
        self.chunks += 1
        sys.stdout.write(text)
        sys.stdout.flush()  # at once: that is what streaming is for

    def call(self, call: CallDelta) -> None:
        """Continue a call: its name comes first, then its arguments in chunks."""
        if call.name:
            self.tools[call.index] = f" {call.name}"
        if call.arguments:
            self.chunk("calls", self.tools.pop(call.index, "") + call.arguments)

    def line(self, text: str = "") -> None:
        """End the line that is open, and print another."""
        if self.open:
            print()
        self.open = ""
        if text:
            print(text)

    def show(self, item: Entry | Delta) -> None:
        """Print an item of a run: a chunk of a reply, or an entry."""
        if isinstance(item, Delta):
            self.chunk("thinking", item.reasoning)
            self.chunk("says", item.text)
            if item.call is not None:
                self.call(item.call)
            return
        match item.event:
            case GateDecided(verdict=verdict, tool=name):
                self.line(f"{item.seq:>4} gate  {verdict} {name}")
            case ToolFinished(tool=name, content=content):
                self.line(f"{item.seq:>4} tool  {name}: {content}")
            case RunFinished(status=status):
                self.line(f"{item.seq:>4} end   {status}")
            case _:
                pass


async def main() -> None:
    """Watch a run word by word."""
    screen = Screen()
    runtime = Runtime(ScriptedProvider(SCRIPT), tools=[tide])
    async with ReActEngine(runtime).start(
        "Is high water earlier in Husum or in Cuxhaven?", deltas=True
    ) as run:
        async for item in run:
            screen.show(item)
        result = await run.result()

    print(f"\n{screen.chunks} chunks")
    print(f"{len(runtime.journal.read(result.run_id))} entries")
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    asyncio.run(main())
