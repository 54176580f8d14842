"""A process that runs or resumes ReAct with the provider of a recorded API: `wire_child.py run|resume CONFIG`.

It has several turns where a row's first reply is an answer already; each is a run, and `resume` begins at the second.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from loopwright import Limits, ReActEngine, Result, Runtime, Tool
from loopwright.journals import SQLiteJournal
from loopwright.messages import Conversation
from wire_replay import PROVIDERS


def build_tool(name: str) -> Tool:
    """Return a tool that takes any arguments and gives its name back."""

    def work(**arguments: Any) -> str:
        return f"{name} is done"

    schema = {"type": "object", "properties": {}, "additionalProperties": True}
    return Tool(name, f"Does {name}.", schema, work, effect="read")


async def main(verb: str, config: dict[str, Any]) -> None:
    """Run or resume, and print how the run ended."""
    provider = PROVIDERS[config["family"]](
        config["model"], base_url=config["url"], api_key="k"
    )
    runtime = Runtime(
        provider,
        tools=[build_tool(name) for name in config["tools"]],
        journal=SQLiteJournal(config["journal"]),
        limits=Limits(max_provider_wait=0),
    )
    async with runtime:
        engine, is_streamed = ReActEngine(runtime), config["streaming"]
        turns = config["turns"]
        number = 0 if verb == "run" or turns == 1 else 1
        if verb == "run":
            result = await ask(engine, Conversation.of("Go."), number, is_streamed)
        else:
            result = await resume(engine, number, is_streamed)
        for later in range(number + 1, turns):
            asked = result.conversation.user("Go on.")
            result = await ask(engine, asked, later, is_streamed)
    print(json.dumps([result.status, result.answer, str(result.error or "")]))


async def ask(
    engine: ReActEngine, asked: Conversation, turn: int, is_streamed: bool
) -> Result[str | None]:
    run_id = f"wire-{turn}"
    if not is_streamed:
        return await engine.run(asked, run_id=run_id)
    async with engine.start(asked, run_id=run_id, deltas=True) as handle:
        return await handle.result()


async def resume(
    engine: ReActEngine, turn: int, is_streamed: bool
) -> Result[str | None]:
    run_id = f"wire-{turn}"
    if not is_streamed:
        return await engine.resume(run_id)
    async with await engine.resume(run_id, deltas=True) as handle:
        return await handle.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())))
