"""Run sixty steps in a window of 4,000 tokens: old results are masked, and the model reads one of them again.

A script says what a model would say; `Runtime("openai:gpt-4.1-mini", ...)` asks a real one. What is printed shows that the
fact of the third result is not sent at the end any more, and comes back through the tool `recall`.
"""

import asyncio
from typing import Any

from loopwright import Limits, ReActEngine, Runtime, tool
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider, call

ROOMS = 60


@tool(effect="read", trusted=True)
async def visit(room: int) -> str:
    """Visit a room and describe it."""
    found = "A key lies under the carpet." if room == 3 else "Nothing of interest."
    return f"Room {room}. {found} " + "The walls are white. " * 20


def reply(request: Request) -> Any:
    """Visit all rooms, then look for the key."""
    rooms = [
        int(str(one.arguments["room"]))
        for message in request.conversation
        for one in message.calls
        if one.name == "visit"
    ]
    room = rooms[-1] + 1 if rooms else 1
    if room <= ROOMS:
        return call("visit", room=room)
    last = request.conversation.messages[-1].content
    if "under the carpet" in last:
        return "The key lies under the carpet of room 3."
    return call("recall", handle="all", find="key lies")


async def main() -> None:
    """Print what was sent at the end, and the answer."""
    provider = ScriptedProvider([reply] * (ROOMS + 2))
    limits = Limits(
        context_tokens=4_000, max_iterations=None, max_llm_calls=None, max_tokens=None
    )
    runtime = Runtime(provider, tools=[visit], limits=limits)
    result = await ReActEngine(runtime).run("Where is the key?")

    sent = provider.requests[ROOMS].conversation
    texts = [message.content for message in sent]
    print(f"messages: {len(result.conversation)} in all, {len(sent)} sent at the end")
    print("the key is among them:", any("under the carpet" in text for text in texts))
    print("masked:", next(text for text in texts if "kept as" in text))
    print(f"{result.trimmed} model calls were not sent everything")
    print(result.answer)


if __name__ == "__main__":
    asyncio.run(main())
