"""An application from a file: models, tools, gates, nested engines and agents by name, in `agents.toml`.

No model is needed: `SCRIPT` takes the place of the table `main`. With a key in OPENROUTER_API_KEY leave `providers=` out, or
use the command line: `loopwright run --config agents.toml "What do 12 lamps cost at 35.50?"`.
"""

import asyncio
from pathlib import Path

from loopwright import ToolCall
from loopwright.compose import load
from loopwright.events.lifecycle import read_start
from loopwright.testing import ScriptedProvider, call

FILE = Path(__file__).with_name("agents.toml")
SCRIPT: list[str | ToolCall] = [
    call("transfer_to_billing"),
    call("calculate", expression="12 * 35.50"),
    "Twelve lamps cost 426 EUR.",
]


async def main() -> None:
    """Ask for a price."""
    model = ScriptedProvider(SCRIPT)
    async with load(FILE, providers={"main": model}) as shop:
        agent = shop.choose()
        result = await agent.run("What do 12 lamps cost at 35.50?", run_id="lamps")
        started = read_start("lamps", shop.runtime.journal.read("lamps"))
        print(f"{started.agent} ({started.engine}): {result.answer}")
        print(*shop.agents, *shop.engines)


if __name__ == "__main__":
    asyncio.run(main())
