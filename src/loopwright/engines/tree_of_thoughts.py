"""TreeOfThoughtsEngine to be written."""

from ..engine import LoopEngine
from ..run import Run


class TreeOfThoughtsEngine(LoopEngine):
    """To be written."""

    name = "tree-of-thoughts"

    async def solve(self, run: Run) -> str:
        """Solve."""
        raise NotImplementedError
