"""A tool that holds a run between two steps, so that a test can send it a command there."""

import asyncio
from typing import Any

from loopwright import Tool, tool
from loopwright.journals import Journal


class HeldTool:
    """A tool that holds the run between two model calls until the test sets `go`."""

    def __init__(self) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self.ran: list[str] = []

    def tools(self) -> list[Tool]:
        """The tool that holds, and one that pays."""

        @tool(effect="read")
        async def hold(what: str) -> str:
            """Hold."""
            self.ran.append(what)
            self.reached.set()
            await self.go.wait()
            return f"held {what}"

        @tool(effect="write")
        async def pay(amount: int) -> str:
            """Pay."""
            self.ran.append(f"pay {amount}")
            return f"paid {amount}"

        return [hold, pay]


def events_of(journal: Journal, run_id: str, kind: type[Any]) -> list[Any]:
    """Return the events of one type in a run."""
    return [
        entry.event for entry in journal.read(run_id) if isinstance(entry.event, kind)
    ]
