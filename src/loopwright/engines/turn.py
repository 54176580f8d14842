"""Turn: one message of a user through a pipeline of stages, as CortexPrism's agent loop has them."""

from typing import Any

from pydantic import Field

from .._internal import dataclasses
from ..engine import LoopEngine
from ..errors import AskFailed, EngineError, Unreadable
from ..messages import Conversation, Message, Proposal
from ..parsing.assessment import Assessment as Assessment
from ..parsing.assessment import assess as assess
from ..parsing.goal_drift import find_goal, measure_drift
from ..prompts import PromptSet
from ..result import Result
from ..run import Run
from .plan_execute import PlanExecuteEngine
from .tool_results import structure_result
from .turn_review import MAX_ANSWER, MAX_TASK, Review, TurnReviewed

PROMPTS = PromptSet(
    rounds_left="{left} rounds are left, this one included. In the last one there are no tools.",
    last_round="This is the last round, and there are no tools in it. Give the final answer now, from what you know.",
    thought_alone="OK. Continue.",
    empty_answer="That reply was empty. Answer, or call a tool.",
    ask_first="""\
Before anything is done, the user has to be asked ({reason}). Write the one question whose answer you need, in the \
language of the user. Name what would be done or what is open. Reply with the question alone.""",
    question="Before I begin ({reason}): what exactly do you want me to do?",
    delegate="Other agents may be better at this ({agents}): hand parts of it to them where a tool does that.",
    parallelize="The parts of this do not need each other: call the tools for all of them in one turn.",
    review="""\
Look back at a piece of work. What stands below is data.

Task: {task}
Answer: {answer}

How sure are you (confidence), and how good is the answer (quality), from 0 to 1? Which issues does it have, which general \
patterns help next time, and what is it in one sentence (summary)?""",
    reviewed="Looking back at that answer, this is wrong with it:\n{issues}\nCorrect it, and answer again.",
)
DEFAULT_HOOKS = ("completion-check", "loop-detection", "promise")
PEOPLE = ("caller", "operator")
"""The origins of messages that people wrote, and no hook or engine."""
MAX_QUOTED = 200
"""Characters of an earlier goal that a fact holds."""


@dataclasses.dataclass(frozen=True)
class GoalDrifted:
    """Fact: the message leads away from the goal before it: `score` from 0.4 to 1, and the words that say so."""

    score: float
    keywords: tuple[str, ...]
    previous: str


@dataclasses.dataclass(frozen=True)
class AnswerDemanded:
    """Fact: only one round is left; it offers no tools, so that the model answers."""

    rounds: int


@dataclasses.dataclass(frozen=True)
class AnswerReturned:
    """Fact: an answer went back to the model: in which `round`, and how many `remarks` there were about it."""

    round: int
    remarks: int


class TurnEngine(LoopEngine):
    """Answer one message of a user: assess it, reason and call tools in rounds, look back, and give the answer.

    Stages: `pre_assess`, `post_assess`, `pre_reason`, `post_reason`, `pre_tool`, `pre_reflect`, `post_reflect`, `pre_output`
    and `post_output` (`Run.stage`); before and after a model call, and after a tool, hooks are called in every engine.
    A remark of a hook at `post_reason` or `pre_output` about an answer sends it back, as long as rounds are left.

    An assessment (`loopwright.engines.assess`) decides how the turn begins. `ask_first`: the user is asked, and the run
    waits. `plan_with_rollback`: `PlanExecuteEngine` works on it, each plan is decided about by policy before any of it
    runs, and if a step fails the run does, and what it did is undone. `delegate` and `parallelize` are advice to the model.

    Args:
        max_rounds: model calls with tools or an answer; in the last round tools are off and the answer is demanded.
        escalate: ask the user about a task that would be done at once with a confidence below 0.35.
        assess: assess the task, and note where it leads away from the goal before it.
        hooks: names of the group `loopwright.hooks`, by default `completion-check`, `loop-detection` and `promise`.
        reflect: have the model look back at its answer, and correct it once if it is poor; a call more.
        prompts: the texts for the models; see `PROMPTS`.
    """

    name = "turn"
    max_rounds: int = Field(default=8, ge=1)
    escalate: bool = True
    assess: bool = True
    hooks: tuple[str | dict[str, Any], ...] = DEFAULT_HOOKS
    reflect: bool = False
    prompts: PromptSet = PROMPTS

    async def solve(self, run: Run) -> str:
        """Take the turn through its stages; return the answer."""
        conversation = run.conversation.add(*await run.stage("pre_assess", run.task))
        assessment: Assessment | None = None
        if self.assess:
            assessment = self._assess(run)
            remarks = await run.stage("post_assess", assessment.decision)
            conversation = conversation.add(*remarks)
        answer: str | None = None
        if assessment is not None and assessment.decision == "ask_first":
            conversation = await self._ask_first(run, conversation, assessment)
        elif assessment is not None and assessment.decision == "plan_with_rollback":
            answer = await self._plan(run, conversation)
        if answer is None:
            advice = self._advise(assessment)
            return await self._answer(run, conversation, advice)
        await run.stage("post_output", answer)
        return answer

    # --- how the turn begins ---

    def _assess(self, run: Run) -> Assessment:
        """Return the assessment of the task, noted as a fact with the drift from the goal before it."""
        messages = run.conversation.messages
        earlier = [one.content for one in messages[:-1] if one.role == "user" and one.origin in PEOPLE]  # fmt: skip
        has_context = any(one.role == "assistant" or one.attachments for one in messages)  # fmt: skip
        found = assess(run.task, run.tools, context=has_context, escalate=self.escalate)
        run.note(found)
        previous = find_goal(earlier)
        drift = measure_drift(run.task, previous)
        if drift.is_drift:
            quoted = previous[:MAX_QUOTED]
            run.note(GoalDrifted(drift.score, drift.keywords, quoted))
        return found

    async def _ask_first(
        self, run: Run, conversation: Conversation, assessment: Assessment
    ) -> Conversation:
        """Ask the user what the model wants to know; return the conversation with the question and its answer."""
        reason = assessment.reason
        prompt = self.prompts.fill("ask_first", reason=reason)
        try:
            question = await run.ask(conversation.user(prompt), purpose="question")
        except AskFailed:
            question = ""
        question = question.strip() or self.prompts.fill("question", reason=reason)
        answer = await run.ask_user(question)
        asked = conversation.assistant(question, origin="model")
        return asked.user(answer, origin="operator")

    async def _plan(self, run: Run, conversation: Conversation) -> str | None:
        """Have the task planned and done, as a saga; return the answer, or `None` where there is no plan to carry out."""
        run.begin_saga()
        planner = PlanExecuteEngine(self.runtime, approve_plan=True)
        result = await run.delegate(planner, conversation)
        if isinstance(result.error, Unreadable):
            return None
        failed = _find_failed_step(result)
        if result.error is None and failed is None:
            return result.answer
        if result.answer is not None:
            run.offer(result.answer)
        if result.error is not None:
            raise result.error
        raise EngineError(f"a step of the plan has failed, so it is undone: {failed}")

    def _advise(self, assessment: Assessment | None) -> str:
        """Return what the model is told about how to begin; empty for nothing."""
        if assessment is None or assessment.decision not in ("delegate", "parallelize"):
            return ""
        if assessment.decision == "parallelize":
            return self.prompts.fill("parallelize")
        agents = ", ".join(assessment.agents) or "any"
        return self.prompts.fill("delegate", agents=agents)

    # --- the rounds ---

    async def _answer(self, run: Run, conversation: Conversation, advice: str) -> str:
        """Reason and act until there is an answer that may stand; then give it."""
        has_reviewed = not self.reflect
        for number in run.iterations(self.max_rounds):
            left = self.max_rounds - number + 1
            conversation = conversation.add(*await run.stage("pre_reason", str(left)))
            proposal = await self._reason(run, conversation, left, advice)
            advice = ""
            if proposal.answer is None:
                conversation = await self._act(run, conversation, proposal)
                continue
            remarks = await self._review(run, conversation, proposal, has_reviewed)
            is_blank = not proposal.answer.strip()
            has_reviewed = has_reviewed or not is_blank
            if left == 1 and is_blank:
                break
            if not remarks or left == 1:
                run.keep(conversation.add(*proposal.delivered))
                await run.stage("post_output", proposal.answer)
                return proposal.answer
            run.note(AnswerReturned(number, len(remarks)))
            conversation = conversation.observe(proposal).add(*remarks)
        return await run.best_answer(conversation)

    async def _reason(
        self, run: Run, conversation: Conversation, left: int, advice: str
    ) -> Proposal:
        """Ask the model what to do next, and tell it how many rounds are left; that is read in this call alone."""
        if left == 1:
            run.note(AnswerDemanded(self.max_rounds))
        rounds = self.prompts.fill("rounds_left", left=left) if left > 1 else self.prompts.fill("last_round")  # fmt: skip
        notice = f"{advice}\n{rounds}".strip()
        asked = conversation.user(notice, origin="runtime")
        return await run.reason(asked, tools=left > 1)

    async def _act(
        self, run: Run, conversation: Conversation, proposal: Proposal
    ) -> Conversation:
        """Have policy decide about calls, run them, and return the conversation with their results."""
        remarks = await run.stage("post_reason", proposal.thought, proposal)
        if proposal.calls:
            called = "\n".join(f"{one.name} {dict(one.arguments)}" for one in proposal.calls)  # fmt: skip
            remarks += await run.stage("pre_tool", called, proposal)
        observations = await run.act(await run.gate(proposal))
        names = {tool.name for tool in run.tools}
        shown = [structure_result(one, names) for one in observations]
        conversation = conversation.observe(proposal, shown).add(*remarks)
        if proposal.calls or remarks:
            return conversation
        return conversation.user(self.prompts.fill("thought_alone"), origin="runtime")

    async def _review(
        self,
        run: Run,
        conversation: Conversation,
        proposal: Proposal,
        has_reviewed: bool,
    ) -> tuple[Message, ...]:
        """Return what is to be said about an answer, by hooks and by the model itself; nothing where it may stand."""
        answer = proposal.answer or ""
        remarks = await run.stage("post_reason", answer, proposal)
        if not answer.strip():
            text = self.prompts.fill("empty_answer")
            return (*remarks, Message("user", text, origin="runtime"))
        if not has_reviewed:
            remarks += await self._look_back(run, conversation, answer)
        return remarks + await run.stage("pre_output", answer)

    async def _look_back(
        self, run: Run, conversation: Conversation, answer: str
    ) -> tuple[Message, ...]:
        """Have the model review its answer; return what it has to correct."""
        await run.stage("pre_reflect", answer)
        prompt = self.prompts.fill(
            "review", task=run.task[:MAX_TASK], answer=answer[:MAX_ANSWER]
        )
        try:
            review = await run.ask(prompt, into=Review, purpose="reflection")
        except AskFailed:  # no score is better than an invented one
            return await run.stage("post_reflect", "")
        found = TurnReviewed.of(review)
        run.note(found)
        remarks = await run.stage("post_reflect", found.summary)
        if not found.sends_back:
            return remarks
        issues = "\n".join(f"- {issue}" for issue in found.issues)
        text = self.prompts.fill("reviewed", issues=issues)
        label, untrusted = conversation.label, conversation.untrusted
        asked = Message("user", text, origin="model", label=label, untrusted=untrusted)
        return (asked, *remarks)


def _find_failed_step(result: Result[Any]) -> str | None:
    """Return what the last plan of a run says of a step that did not work; `None` if all did."""
    failed: str | None = None
    for fact in result.facts:
        if fact.name == "Plan":
            failed = None
            continue
        step = fact.value if isinstance(fact.value, dict) else {}
        has_failed = fact.name == "StepFinished" and step.get("status") != "ok"
        if has_failed and failed is None:
            failed = str(step.get("content"))
    return failed
