"""SelfAskEngine to be written."""

from ..engine import LoopEngine
from ..run import Run


class SelfAskEngine(LoopEngine):
    """To be written."""

    name = "self-ask"

    async def solve(self, run: Run) -> str:
        """Solve."""
        raise NotImplementedError
