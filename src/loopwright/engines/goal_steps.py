"""One step of the goal cycle: its input is prepared, its skill called, its output evaluated."""

import dataclasses
from typing import cast

from pydantic_core import to_json

from ..engine import ProviderName
from ..errors import AskFailed, TimedOut
from ..messages import Conversation, Json, JsonObject, ToolCall, ToolSpec
from ..parsing.arguments import (
    describe_tools,
    get_parameters,
    get_required,
    read_arguments,
)
from ..parsing.goal_replies import read_evaluation, read_step_input
from ..parsing.plans.plan import PlanStep
from ..prompts import PromptSet
from ..run import Run
from .goal_forms import evaluation_form, input_form
from .goal_state import MAX_OUTPUT, GoalState, StepOutcome, fail_step, observe_step

GUIDANCE = {"steer": "[Guidance of the user]", "add_context": "[Context of the user]"}


async def ask_text(
    run: Run,
    conversation: Conversation,
    provider: str | None,
    purpose: str,
    form: JsonObject,
) -> str:
    """Return the model's reply, in a form where its provider can; also one that was cut, which its reader refuses."""
    try:
        return await run.ask(
            conversation, provider=provider, purpose=purpose, again=False, schema=form
        )
    except AskFailed as failed:
        return failed.text


async def receive(run: Run, state: GoalState) -> None:
    """Take in what people sent since: guidance into the memory, ordered calls to be made."""
    for command in await run.received():
        if command.number in state.received:  # in a branch that has ended
            continue
        state.received.add(command.number)
        if command.kind == "override":
            state.ordered.append(command.body)
        else:
            text = str(command.body["text"])
            state.memory.people.append(f"{GUIDANCE[command.kind]} {text}")


@dataclasses.dataclass(frozen=True)
class StepWork:
    """The work of one step.

    Args:
        prompts: those of the engine.
        state: the state of the run.
        step: the step of the plan.
        seconds: how long a call may take.
        evaluator: the provider that evaluates its output.
    """

    prompts: PromptSet
    state: GoalState
    step: PlanStep
    seconds: float
    evaluator: ProviderName = None

    async def do(self, run: Run) -> StepOutcome:
        """Prepare the input of a step, call its skill and evaluate the output.

        A call that a person orders is made instead; the output of one that is ordered meanwhile counts instead of its own.
        """
        await receive(run, self.state)
        outcome = await self._obey(run) or await self._call_skill(run)
        await receive(run, self.state)
        return await self._evaluate(run, await self._obey(run) or outcome)

    async def _obey(self, run: Run) -> StepOutcome | None:
        """Make the calls that people ordered; return the outcome of the last one, if there is any."""
        outcome: StepOutcome | None = None
        while self.state.ordered:
            ordered = self.state.ordered.pop(0)
            arguments = cast("JsonObject", ordered["arguments"])
            call = ToolCall(str(ordered["tool"]), arguments)
            outcome = await self._call(run, call, None, by_person=True)
        return outcome

    async def _call_skill(self, run: Run) -> StepOutcome:
        """Have the input of a step prepared, and call its skill."""
        tool = next(one for one in run.tools if one.name == self.step.tool)
        prompt = self.prompts.fill(
            "input",
            step=_describe_step(self.step),
            skill=describe_tools([tool]).removeprefix("- "),
            results=self.state.render_results(),
            memory=self.state.memory.text,
            example=_write_example(tool),
        )
        conversation, form = run.conversation.user(prompt), input_form(tool)
        text = await ask_text(run, conversation, None, "input", form)
        try:
            reply = read_step_input(text)
            arguments = _read_arguments(reply.input, tool)
        except ValueError as error:
            return fail_step(tool.name, f"Its input cannot be used. {error}")
        return await self._call(run, ToolCall(tool.name, arguments), reply.working_memory)  # fmt: skip

    async def _call(
        self, run: Run, call: ToolCall, memory: str | None, *, by_person: bool = False
    ) -> StepOutcome:
        """Make a call within the time of a step."""
        try:
            seen = await run.timeout(self.seconds, lambda branch: branch.call(call))  # fmt: skip
        except TimedOut:
            reason = f"The call took longer than {self.seconds:g} s."
            return StepOutcome(
                call.name, call.arguments, False, reason, memory=memory, by_person=by_person
            )  # fmt: skip
        return observe_step(seen, memory, by_person=by_person)

    async def _evaluate(self, run: Run, outcome: StepOutcome) -> StepOutcome:
        """Return the outcome of a step with its evaluation; a call that failed needs none."""
        if not outcome.ok:
            return outcome
        prompt = self.prompts.fill(
            "evaluate",
            step=_describe_step(self.step),
            output=outcome.excerpt(MAX_OUTPUT),
            memory=self.state.memory.preview(outcome.memory),
        )
        conversation = run.conversation.user(prompt)
        form = evaluation_form()
        text = await ask_text(run, conversation, self.evaluator, "evaluate", form)
        try:
            return outcome.judge(read_evaluation(text))
        except ValueError:
            return outcome


def _describe_step(step: PlanStep) -> str:
    return f"{step.id}. {step.tool}: {step.goal}".rstrip(": ")


def _write_example(tool: ToolSpec) -> str:
    """Return the arguments of a skill as JSON, with what stands for their values."""
    required = get_required(tool) or list(get_parameters(tool))[:1]
    return to_json({name: f"the {name}" for name in required}).decode()


def _read_arguments(given: Json, tool: ToolSpec) -> JsonObject:
    """Return the arguments that the input of a step means; raise ValueError."""
    if isinstance(given, dict):
        return given
    text = given if isinstance(given, str) else str(given)
    arguments, _ = read_arguments(text, tool.name, tool)
    return arguments
