"""ReflexionEngine to be written."""

from ..engine import LoopEngine
from ..run import Run


class ReflexionEngine(LoopEngine):
    """To be written."""

    name = "reflexion"

    async def solve(self, run: Run) -> str:
        """Solve."""
        raise NotImplementedError
