"""PlanExecuteEngine to be written."""

from ..engine import LoopEngine
from ..run import Run


class PlanExecuteEngine(LoopEngine):
    """To be written."""

    name = "plan-execute"

    async def solve(self, run: Run) -> str:
        """Solve."""
        raise NotImplementedError
