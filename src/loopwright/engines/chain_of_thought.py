"""Chain of Thought: reason step by step, then say the answer (Wei et al., arXiv:2201.11903; Kojima et al. 2022)."""

from ..engine import LoopEngine
from ..run import Run

STEPS = "Let's think step by step. Write down your reasoning; do not give the final answer yet."
ANSWER = "Therefore, the answer is? Reply with the answer alone, without the reasoning."


class ChainOfThoughtEngine(LoopEngine):
    """Two calls, as in zero-shot CoT: one for the reasoning, a second, short one that extracts the answer.

    No tools are used. The reasoning stays in the conversation.
    """

    name = "chain-of-thought"

    async def solve(self, run: Run) -> str:
        """Reason, then extract."""
        conversation = run.conversation.user(STEPS)
        reasoning = await run.reason(conversation, tools=False)
        conversation = conversation.observe(reasoning).user(ANSWER)
        final = await run.reason(conversation, tools=False)
        return final.answer if final.answer is not None else final.thought
