"""A process that runs or resumes ReAct with the provider of a recorded API: `wire_child.py run|resume CONFIG`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from loopwright import Limits, ReActEngine, Runtime, Tool
from loopwright.journals import SQLiteJournal
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
        engine = ReActEngine(runtime)
        if verb == "run":
            result = await engine.run("Go.", run_id="wire")
        else:
            result = await engine.resume("wire")
    print(json.dumps([result.status, result.answer, str(result.error or "")]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())))
