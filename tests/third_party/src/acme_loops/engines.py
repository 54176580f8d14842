"""An engine, as small as one can be."""

from loopwright import LoopEngine, Run


class TinyEngine(
    LoopEngine
):  # an engine is a frozen pydantic dataclass: its fields are its options
    name = "tiny"
    max_iterations: int | None = None  # None: the run's limit

    async def solve(self, run: Run) -> str:
        conversation = (
            run.conversation
        )  # what the caller gave; run.task is the latest user text
        for _ in run.iterations(self.max_iterations):
            proposal = await run.reason(
                conversation
            )  # tools=False for a call without tools
            if proposal.answer is not None:
                return proposal.answer
            observations = await run.act(await run.gate(proposal))
            conversation = conversation.observe(proposal, observations)
        return await run.best_answer(conversation)
