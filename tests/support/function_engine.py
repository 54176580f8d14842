"""An engine whose strategy is a function of the test."""

from typing import Any

from loopwright import LoopEngine, Run


class FunctionEngine(LoopEngine):
    """Run `body` as the strategy; its result is the answer."""

    name = "doing"
    body: Any = None

    async def solve(self, run: Run) -> str:
        """Await the body with the run."""
        return str(await self.body(run))
