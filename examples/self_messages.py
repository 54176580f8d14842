"""Self-messages: threads that think by writing to themselves, spawn others, wait for them and keep a list of what to do.

The first thread spawns two that look things up at the same time and waits for them, answers too early and is told so, sets
a timer, and ends once every step of its list is done. Each thread remembers its own conversation alone.

No model is needed: `reply` says what each thread would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")`
(from `loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loopwright import Request, Runtime, ToolCall, tool
from loopwright.engines import ThreadEngine
from loopwright.testing import ScriptedProvider, call

HUTS = {"Weisshorn": "12 beds free", "Dom": "no bed free"}

LINES: Mapping[str, Sequence[str | ToolCall]] = {
    "root": (
        """I need the huts first.
<todo-until condition="a hut is booked"><step>ask both huts</step><step>book one</step></todo-until>
<spawn-thread suggested_sub_id="dom"><initial-payload>Is there a bed in the Dom hut?</initial-payload></spawn-thread>
<spawn-thread suggested_sub_id="weisshorn">
<initial-payload>Is there a bed in the Weisshorn hut?</initial-payload>
</spawn-thread>""",
        "<answer>The Weisshorn hut is free.</answer>",
        """<todo-until condition="a hut is booked"><step done="true">ask both huts</step></todo-until>
<post to="root.weisshorn">Book it for two.</post>""",
        """It has ended, so I book it myself, when they answer the telephone.
<timer seconds="0.2">They answer now.</timer>""",
        """<todo-until condition="a hut is booked"><step done="true">book one</step></todo-until>
<answer>The Weisshorn hut is booked for two; the Dom hut is full.</answer>""",
    ),
    "root.dom": (
        call("ask_hut", name="Dom"),
        "<dom>No bed, so there is nothing to book.</dom>",
        "<answer>No bed in the Dom hut.</answer>",
    ),
    "root.weisshorn": (
        call("ask_hut", name="Weisshorn"),
        "<answer>12 beds in the Weisshorn hut.</answer>",
    ),
}


@tool(effect="read")
async def ask_hut(name: str) -> str:
    """Ask a hut for free beds."""
    return HUTS[name]


def reply(request: Request) -> str | ToolCall:
    """The model's part: each thread says its next line."""
    messages = request.conversation.messages
    name = messages[0].content.split("You are thread ")[1].split(". ")[0]
    turn = sum(message.role == "assistant" for message in messages)
    for line in messages[-1].content.splitlines() if turn else ():
        print(f"{name:15} reads {line}")
    return LINES[name][turn]


def tell(name: str, fact: Any) -> None:
    """Print who was at work at the same time."""
    if name == "Wave":
        print(f"wave {fact['number']}: {', '.join(fact['turns'])}")


def main() -> None:
    """Find a hut."""
    runtime = Runtime(ScriptedProvider(reply), tools=[ask_hut])
    engine = ThreadEngine(runtime, peers=(("root", "*"), ("*", "root")))
    result = engine.run_sync("Book a hut for two, the Dom hut if there is a bed.")

    print()
    for fact in result.facts:
        tell(fact.name, fact.value)
    print(
        f"{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls"
    )
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
