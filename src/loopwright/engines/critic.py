"""CriticEngine to be written."""

from ..engine import LoopEngine
from ..run import Run


class CriticEngine(LoopEngine):
    """To be written."""

    name = "critic"

    async def solve(self, run: Run) -> str:
        """Solve."""
        raise NotImplementedError
