"""ReAct: reason and act in turns (Yao et al., ICLR 2023, arXiv:2210.03629)."""

import dataclasses

from pydantic import Field

from ..engine import LoopEngine
from ..errors import ConfigError, Denied
from ..prompts import PromptSet
from ..run import Run

PROMPTS = PromptSet(
    thought_alone="OK. Go on.",
)


@dataclasses.dataclass(frozen=True)
class BackedOff:
    """The fact that a strategy hands the task over; noted before policy decides whether it may.

    Args:
        reason: why, as a stop reason: "max_iterations".
        to: the name of the engine that goes on.
    """

    reason: str
    to: str


class ReActEngine(LoopEngine):
    """Thought, action, observation, until the model answers.

    Works with native tool calls and, behind `TextTools`, with models that only write text: the engine sees the same
    structured proposals. Several calls of one turn run at the same time. A turn without a call or an answer is a
    thought, and goes on.

    A run that has used up its turns is halted, which is an outcome of its own, beside a right and a wrong answer: the
    status is `limit`, the answer the best one so far, or none with `Limits(best_effort=False)`. The paper's back-off
    (section 3.3) avoids it: `ReActEngine(runtime, max_iterations=7, fallback=ChainOfThoughtEngine(runtime, ...))`.

    Args:
        max_iterations: turns; `None` leaves it to the run's limit.
        fallback: the engine that gets the task, from its beginning, when `max_iterations` turns brought no answer. If
            it completes, its answer is the run's; otherwise, or if policy denies the delegation, the run is halted.
            It needs a `max_iterations` that the run's own limit does not forestall, since that one ends the whole run.
        prompts: `thought_alone` is said to a model that thought and did nothing, so that it goes on.
    """

    name = "react"
    max_iterations: int | None = Field(default=None, ge=1)
    fallback: LoopEngine | None = None
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        """Check that a fallback can come to its turn."""
        super().__post_init__()
        if self.fallback is None:
            return
        most = self.runtime.limits.max_iterations
        if self.max_iterations is None:
            raise ConfigError(
                "fallback: needs max_iterations, the turns after which it takes over; the run's own limit ends the run"
            )
        if most is not None and most < self.max_iterations:
            raise ConfigError(
                f"fallback: Limits(max_iterations={most}) ends the run before max_iterations={self.max_iterations} "
                "turns are used up: lower this one, or raise that limit"
            )

    async def solve(self, run: Run) -> str:
        """Loop until there is an answer; after the last turn, back off or ask for the best one so far."""
        conversation = run.conversation
        for _ in run.iterations(self.max_iterations):
            proposal = await run.reason(conversation)
            if proposal.answer is not None:
                return proposal.answer
            observations = await run.act(await run.gate(proposal))
            conversation = conversation.observe(proposal, observations)
            if (
                not proposal.calls
            ):  # two turns of the assistant in a row are more than many servers take
                conversation = conversation.user(
                    self.prompts.fill("thought_alone"), origin="runtime"
                )
        answer = (
            await self._back_off(run, self.fallback)
            if self.fallback is not None
            else None
        )
        return answer if answer is not None else await run.best_answer(conversation)

    async def _back_off(self, run: Run, fallback: LoopEngine) -> str | None:
        """The other engine's answer to the same task, if it may try and completes."""
        run.note(BackedOff("max_iterations", fallback.name))
        try:
            result = await run.delegate(fallback, run.conversation)
        except Denied:
            return None
        return result.answer if result.status == "completed" else None
