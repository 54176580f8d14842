"""ReAct: reason and act in turns (Yao et al., ICLR 2023, arXiv:2210.03629)."""

from pydantic import Field

from .._internal import dataclasses
from ..engine import LoopEngine
from ..errors import ConfigError, Denied
from ..prompts import PromptSet
from ..run import Run

PROMPTS = PromptSet(
    thought_alone="OK. Go on.",
)


@dataclasses.dataclass(frozen=True)
class BackedOff:
    """Fact: the engine delegates the task to its fallback; noted before policy decides about that.

    Args:
        reason: the stop reason: "max_iterations".
        to: the name of the fallback engine.
    """

    reason: str
    to: str


class ReActEngine(LoopEngine):
    """Alternate thought, action and observation until the model answers.

    Works with native tool calls and, behind `TextTools`, with models that write text only: the engine sees the same
    structured proposals. The calls of one turn run concurrently. A turn without a call or an answer is a thought, and
    the loop continues.

    A run that has used up its turns is halted, which is neither a right nor a wrong answer: the status is `limit`, the
    answer the best one so far, or none with `Limits(best_effort=False)`. The paper's back-off (section 3.3) avoids it:
    `ReActEngine(runtime, max_iterations=7, fallback=ChainOfThoughtEngine(runtime, ...))`.

    Args:
        max_iterations: the maximum number of turns; `None` is the run's limit.
        fallback: the engine that gets the original task if `max_iterations` turns brought no answer. If it completes,
            its answer is the run's; otherwise, or if policy denies the delegation, the run is halted. `max_iterations`
            must be at most the run's own limit, which ends the whole run.
        prompts: `thought_alone` follows a turn with a thought and nothing else.
    """

    name = "react"
    max_iterations: int | None = Field(default=None, ge=1)
    fallback: LoopEngine | None = None
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        """Refuse a fallback that the run's limit makes unreachable."""
        super().__post_init__()
        if self.fallback is None:
            return
        limit = self.runtime.limits.max_iterations
        if self.max_iterations is None:
            raise ConfigError(
                "fallback: needs max_iterations, the turns after which it gets the task; "
                "pass it, because the run's own limit ends the run"
            )
        if limit is not None and limit < self.max_iterations:
            raise ConfigError(
                f"fallback: Limits(max_iterations={limit}) ends the run before max_iterations={self.max_iterations} "
                "turns are used up; lower this one, or raise that limit"
            )

    async def solve(self, run: Run) -> str:
        """Loop until there is an answer; after the last turn, fall back or ask for the best one so far."""
        conversation = run.conversation
        for _ in run.iterations(self.max_iterations):
            proposal = await run.reason(conversation)
            if proposal.answer is not None:
                return proposal.answer
            observations = await run.act(await run.gate(proposal))
            conversation = conversation.observe(proposal, observations)
            if not proposal.calls:
                # Many servers refuse two consecutive turns of the assistant.
                prompt = self.prompts.fill("thought_alone")
                conversation = conversation.user(prompt, origin="runtime")
        answer = await self._fall_back(run)
        return answer if answer is not None else await run.best_answer(conversation)

    async def _fall_back(self, run: Run) -> str | None:
        """Return the fallback engine's answer; `None` without one, if it is denied or does not complete."""
        if self.fallback is None:
            return None
        run.note(BackedOff("max_iterations", self.fallback.name))
        try:
            result = await run.delegate(self.fallback, run.conversation)
        except Denied:
            return None
        return result.answer if result.status == "completed" else None
