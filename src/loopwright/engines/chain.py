"""Chain: steps in a fixed order, each of which is given the result of the one before (prompt chaining)."""

import dataclasses
from collections.abc import Sequence

from pydantic import Field

from ..engine import LoopEngine
from ..errors import ConfigError
from ..messages import Conversation
from ..prompts import PromptSet, Template
from ..run import Run
from .assignee import Assignee, CompositeEngine, check_assignees, name_of, perform

PLACEHOLDERS = frozenset({"task", "input"})
PROMPTS = PromptSet(
    step="""\
This is step {number} of {total} of the task above. The step before has brought this result:

{input}

Do your part of the task with it.""",
)


@dataclasses.dataclass(frozen=True)
class ChainStep:
    """Fact: a step of a chain is done: who did it, and its result."""

    number: int
    by: str
    content: str


class ChainEngine(CompositeEngine):
    """Do steps one after the other; the result of the last one is the answer.

    A step is an engine, the name of an agent, or a prompt with {input}, the result of the step before (the task, for
    the first one), and perhaps {task}. An engine or an agent that is first gets the conversation as it stands. A step
    that fails fails the run; a limit ends it with the result of the last step that was done.

    Args:
        steps: the steps, at least one.
        prompts: `step` with {number}, {total} and {input}: what an engine or an agent is told that is not first.
    """

    name = "chain"
    steps: tuple[Assignee, ...] = Field(min_length=1)
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        for number, step in enumerate(self.steps, 1):
            if _is_prompt(step):
                _check_prompt(number, str(step))
        super().__post_init__()

    @property
    def assignees(self) -> Sequence[tuple[str, Assignee | None]]:
        """The steps that are not prompts."""
        parts = enumerate(self.steps, 1)
        return [(f"steps.{n}", step) for n, step in parts if not _is_prompt(step)]

    async def solve(self, run: Run) -> str:
        """Do each step with the result of the one before."""
        check_assignees(self)
        result = ""
        for number, step in enumerate(self.steps, 1):
            talk = self._open(run, number, result)
            who, by = (None, "model") if _is_prompt(step) else (step, name_of(step))
            result = await perform(run, self, who, talk, purpose="step")
            run.note(ChainStep(number, by, result))
            run.offer(result)
        return result

    def _open(self, run: Run, number: int, result: str) -> Conversation:
        """Return the conversation of a step."""
        step, talk = self.steps[number - 1], run.conversation
        if isinstance(step, str) and _is_prompt(step):
            given = {"task": run.task, "input": run.task if number == 1 else result}
            template = Template(step)
            wanted = {name: given[name] for name in template.names}
            return talk.user(template.fill(**wanted))
        if number == 1:
            return talk
        total = len(self.steps)
        prompt = self.prompts.fill("step", number=number, total=total, input=result)
        return talk.user(prompt)


def _is_prompt(step: Assignee) -> bool:
    """Whether a step is a prompt: names of agents have no braces."""
    return not isinstance(step, LoopEngine) and "{" in step


def _check_prompt(number: int, step: str) -> None:
    names = Template(step).names
    if "input" not in names or not names <= PLACEHOLDERS:
        found = ", ".join(f"{{{name}}}" for name in sorted(names)) or "none"
        raise ConfigError(
            f"steps.{number}: a prompt has {{input}} and may have {{task}}, got {found}; write {{{{ for a literal brace"
        )
