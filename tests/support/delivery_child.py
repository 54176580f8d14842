"""A process whose run is delivered to a webhook."""

import asyncio
import sys
from pathlib import Path

from loopwright import ReActEngine, Runtime
from loopwright.followups import Deliver, Webhook
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider


def application(path: Path, url: str) -> Runtime:
    """Return the application."""
    target = Webhook(url=url, allow_private=("127.0.0.1",))
    return Runtime(
        ScriptedProvider(["It rains."]), journal=SQLiteJournal(path), after=[Deliver(to=[target])]
    )  # fmt: skip


async def main(path: Path, url: str) -> None:
    """Run, and deliver."""
    async with application(path, url) as runtime:
        await ReActEngine(runtime).run("Where does it rain?", run_id="r")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
