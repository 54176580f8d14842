"""ReAct: reason and act in turns (Yao et al., ICLR 2023, arXiv:2210.03629)."""

from pydantic import Field

from ..engine import LoopEngine
from ..run import Run


class ReActEngine(LoopEngine):
    """Thought, action, observation, until the model answers.

    Works with native tool calls and, behind `TextTools`, with models that only write text: the engine sees the same
    structured proposals. Several calls of one turn run at the same time. A turn without a call or an answer is a
    thought, and goes on.

    Args:
        max_iterations: turns; `None` leaves it to the run's limit.
    """

    name = "react"
    max_iterations: int | None = Field(default=None, ge=1)

    async def solve(self, run: Run) -> str:
        """Loop until there is an answer; after the last turn, ask for the best one so far."""
        conversation = run.conversation
        for _ in run.iterations(self.max_iterations):
            proposal = await run.reason(conversation)
            if proposal.answer is not None:
                return proposal.answer
            observations = await run.act(await run.gate(proposal))
            conversation = conversation.observe(proposal, observations)
        return await run.best_answer(conversation)
