"""Self-Ask: four follow-up questions at once, a fifth that only the first four lead to, and where each answer is from.

The model takes a question apart into follow-ups that can be looked up by themselves. The search answers them; where it
finds nothing the model answers from memory, and the facts of the run say so.

No model is needed: `reply` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`, and `tools=loopwright.toolboxes.search.search()` for Wikipedia.
"""

import asyncio
from typing import Any

from loopwright import Request, Runtime, SelfAskEngine, tool
from loopwright.testing import ScriptedProvider

ENCYCLOPEDIA = {
    "when was marie curie born": "Marie Curie was born on 7 November 1867.",
    "when did marie curie win her first nobel prize": "Marie Curie shared the Nobel Prize in Physics of 1903.",
    "when was linus pauling born": "Linus Pauling was born on 28 February 1901.",
    "when did linus pauling win his first nobel prize": "Linus Pauling won the Nobel Prize in Chemistry of 1954.",
}
QUESTION = "In which country was the one of Marie Curie and Linus Pauling born who was older at the first Nobel Prize?"


@tool(effect="read")
async def search(query: str) -> str:
    """Look one fact up in an encyclopedia."""
    await asyncio.sleep(0.05)  # somewhere on the network
    return ENCYCLOPEDIA.get(query.lower().rstrip("?"), "")  # empty: nothing was found


def reply(request: Request) -> str:
    """The model's part: what it says next is a function of what it was told last."""
    last = request.conversation.messages[-1].content
    if last.startswith("Answer this one question yourself"):  # the search found nothing
        return "Linus Pauling was born in the United States."
    if "born in the United States" in last:
        return "So the final answer is: the United States"
    if "1954" in last:  # 35 or 36 years against 53
        return "Follow up: In which country was Linus Pauling born?"
    return """\
Yes.
Follow up: When was Marie Curie born?
Follow up: When did Marie Curie win her first Nobel Prize?
Follow up: When was Linus Pauling born?
Follow up: When did Linus Pauling win his first Nobel Prize?"""


def tell(name: str, fact: Any) -> None:
    """Print an intermediate answer, and who gave it."""
    if name == "SubAnswer":
        print(f"Follow up: {fact['question']}")
        print(f"  {fact['answer']}   [{fact['source']}]")


def main() -> None:
    """Answer a question that takes five facts."""
    provider = ScriptedProvider(reply)
    runtime = Runtime(provider, tools=[search])
    engine = SelfAskEngine(
        runtime, max_follow_ups=8
    )  # `search` is found by itself: a tool that takes one text
    result = engine.run_sync(QUESTION)

    print(f"Question: {QUESTION}\n")
    for fact in result.facts:
        tell(fact.name, fact.value)
    print(
        f"{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls"
    )
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
