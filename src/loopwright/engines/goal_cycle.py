"""The goal cycle: plan, execute a step, evaluate it, decide, until the goal is reached (AlexClaw's reasoning loop)."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from ..engine import LoopEngine, ProviderName
from ..errors import ConfigError, ProviderError, Stuck, TimedOut, Unreadable
from ..messages import Conversation, ToolSpec
from ..parsing.arguments import (
    describe_tools,
    find_tool,
    list_tool_names,
)
from ..parsing.goal_replies import (
    DecisionReply,
    StepDraft,
    read_goal_decision,
    read_goal_plan,
    read_named_text,
)
from ..parsing.plans.plan import Plan as Plan
from ..parsing.plans.results import StepFinished
from ..prompts import PromptSet
from ..run import Run
from .goal_decisions import Bounds, GoalDecided, decide_by_rule, settle_reply
from .goal_forms import decision_form, plan_form, text_form
from .goal_knowledge import KnowledgeFailed as KnowledgeFailed
from .goal_knowledge import PriorKnowledge as PriorKnowledge
from .goal_knowledge import recall_prior, store_reasoning
from .goal_prompts import EXAMPLE_PROMPTS as EXAMPLE_PROMPTS
from .goal_prompts import PROMPTS
from .goal_state import NONE, GoalState, StepEvaluated, fail_step, number_steps
from .goal_steps import StepWork, ask_text, receive
from .plan_execute import PlanRejected
from .working_memory import MemorySnapshot

MAX_PLAN_ATTEMPTS = 3
STEP_RESERVE = 60.0
"""Seconds that a step may take beyond its budget, for what is under way then."""
StopReason = Literal["repeated_action", "repeated_error", "no_progress"]


class GoalCycleEngine(LoopEngine):
    """Reach a goal by a plan whose steps are evaluated one by one, with a decision after each.

    The planner writes steps, each a call of a skill, which is a tool of the run. A plan is checked before anything of it
    runs. For each step a model prepares the input, the skill is called, and a model scores the output. Then comes the next
    step, another plan, a question to the user, the answer or the end: by rules where they suffice (`decide_by_rule`), else
    as a model decides. A working memory goes through all prompts. What people send (`steer`, `add_context`) stays in it
    word for word; a call that they order (`override`) takes the place of the step that is under way.

    Args:
        skills: which tools are skills, by name or pattern.
        max_cycles: steps and decisions about them, in all.
        max_plan_steps: steps of one plan.
        done_confidence: how sure a model must be that the goal is reached, from 0 to 1.
        stuck_threshold: failures in a row that end the run as `stuck`.
        step_timeout: seconds of active time that the call of a skill may take.
        step_budget: seconds that a step may take with its model calls; it is cut off 60 s later.
        max_adjusts: wishes for a new plan at high confidence of which the last leads to the answer.
        max_step_attempts: how often a step is made that fails.
        on_exhausted: what comes after that: the next step, the end as `stuck`, or a question to the user.
        compress_every: cycles between two times at which the working memory may be compressed.
        compress_above: characters of a working memory that is compressed.
        trend_of: how many of the last scores the trend is made of.
        deliver: where outputs and the answer are kept: in the runtime's store of knowledge ("memory"), or nowhere.
        planner: the provider that plans, one of `Runtime(providers=...)`; `None` is the runtime's own.
        evaluator: the provider that evaluates outputs.
        decider: the provider that decides, and writes the answer.
        prompts: the texts for the models; see `PROMPTS`.

    Raises `ConfigError` for a skill that is not a tool.
    """

    name = "goal-cycle"
    offers_tools = False
    decides_plan = True
    skills: tuple[str, ...] = ("*",)
    max_cycles: int = Field(default=15, ge=1)
    max_plan_steps: int = Field(default=8, ge=1)
    done_confidence: float = Field(default=0.7, ge=0, le=1)
    stuck_threshold: int = Field(default=3, ge=1)
    step_timeout: float = Field(default=120.0, gt=0)
    step_budget: float = Field(default=300.0, gt=0)
    max_adjusts: int = Field(default=3, ge=1)
    max_step_attempts: int = Field(default=2, ge=1)
    on_exhausted: Literal["skip", "abort", "escalate"] = "skip"
    compress_every: int = Field(default=3, ge=1)
    compress_above: int = Field(default=500, ge=1)
    trend_of: int = Field(default=3, ge=2)
    deliver: tuple[Literal["memory"], ...] = ("memory",)
    planner: ProviderName = None
    evaluator: ProviderName = None
    decider: ProviderName = None
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        """Refuse a skill that is not a tool; a pattern may fit tools that come later."""
        super().__post_init__()
        tools = [tool.spec for tool in self.runtime.tools]
        plain = [name for name in self.skills if not set(name) & set("*?[")]
        unknown = [name for name in plain if find_tool(name, tools) is None]
        if not self.skills or unknown:
            raise ConfigError(
                f"skills: must be names or patterns of tools, got {unknown or self.skills!r}; "
                f"there are {list_tool_names(tools)}"
            )

    async def solve(self, run: Run) -> str:
        """Plan; then make a step, evaluate it and decide, until there is an answer."""
        state = GoalState()
        state.knowledge = await recall_prior(run, self.runtime.knowledge) or NONE
        await self._plan(run, state)
        is_decided_again = False
        for cycle in run.iterations(self.max_cycles):
            if not is_decided_again:
                await self._make_step(run, state)
            decided = await self._decide(run, state, cycle)
            is_decided_again = decided is None and not state.ordered
            if decided is not None:
                answer, is_decided_again = await self._follow(run, state, *decided)
                if answer is not None:
                    return answer
            await self._compress(run, state, cycle)
        return await run.best_answer(self._fill(run, "results", state))

    # --- plan ---

    async def _plan(self, run: Run, state: GoalState) -> None:
        """Begin a new plan; raise `Stuck` where there is none."""
        await receive(run, state)
        skills = self._find_skills(run)
        prompt = self.prompts.fill(
            "plan",
            skills=describe_tools(skills),
            knowledge=state.knowledge,
            memory=state.memory.text,
            results=state.render_results(),
            max_steps=self.max_plan_steps,
            example=skills[0].name,
        )
        conversation, problem = run.conversation.user(prompt), ""
        form = plan_form(skills, self.max_plan_steps)
        for attempt in range(1, MAX_PLAN_ATTEMPTS + 1):
            text = await ask_text(run, conversation, self.planner, "goal", form)
            try:
                reply = read_goal_plan(text)
                state.memory.take(reply.working_memory)
                if reply.error:
                    raise Stuck("no_progress", f"the goal cannot be reached: {reply.error}")  # fmt: skip
                return self._begin_plan(run, state, reply.steps, skills)
            except ValueError as error:
                problem = str(error)
            run.note(PlanRejected(attempt, problem))
            if text.strip():
                conversation = conversation.assistant(text, origin="model")
            feedback = self.prompts.fill("rejected", reason=problem)
            conversation = conversation.user(feedback)
        raise Stuck(
            "no_progress",
            f"no usable plan in {MAX_PLAN_ATTEMPTS} attempts, the last: {problem}",
        )

    def _find_skills(self, run: Run) -> list[ToolSpec]:
        found = [
            tool
            for tool in run.tools
            if any(fnmatchcase(tool.name, pattern) for pattern in self.skills)
        ]
        if found:
            return found
        raise ConfigError(
            f"skills: no tool fits {', '.join(self.skills)}; there are {list_tool_names(run.tools)}"
        )

    def _begin_plan(
        self,
        run: Run,
        state: GoalState,
        drafts: Sequence[StepDraft],
        skills: Sequence[ToolSpec],
    ) -> None:
        """Begin a plan; raise ValueError with the reason if it cannot be used."""
        if len(drafts) > self.max_plan_steps:
            raise ValueError(
                f"It has {len(drafts)} steps; at most {self.max_plan_steps} are allowed."
            )
        names = [_find_skill(draft, skills) for draft in drafts]
        state.replace_plan(number_steps(drafts, names, state.planned + 1))
        run.note(state.plan)

    # --- execute and evaluate ---

    async def _make_step(self, run: Run, state: GoalState) -> None:
        """Make the next step within its budget, evaluate it, and keep its outcome."""
        step, seconds = state.step, self.step_budget + STEP_RESERVE
        work = StepWork(self.prompts, state, step, self.step_timeout, self.evaluator)
        try:
            outcome = await run.timeout(seconds, work.do)
        except TimedOut:
            outcome = fail_step(str(step.tool), f"The step took longer than {seconds:g} s.")  # fmt: skip
        state.finish_step(outcome)
        run.note(StepFinished(step.id, "ok" if outcome.ok else "failed", outcome.text))
        judged = outcome.evaluation
        if judged is not None:
            run.note(
                StepEvaluated(step.id, judged.quality, judged.mean, judged.scores, judged.summary)
            )  # fmt: skip
        run.keep(self._fill(run, "results", state))
        if outcome.quality != "failed":
            await self._store(run, [f"{step.goal or step.tool}: {outcome.text}"])

    # --- decide ---

    async def _decide(
        self, run: Run, state: GoalState, cycle: int
    ) -> tuple[GoalDecided, DecisionReply | None] | None:
        """Return what comes next, with the reply if a model was asked; `None` if it could not be read.

        So it is where a person has ordered a call, which is made first.
        """
        bounds = Bounds(
            self.stuck_threshold, self.done_confidence, self.max_adjusts, self.max_step_attempts
        )  # fmt: skip
        situation = state.describe()
        decided = decide_by_rule(situation, bounds)
        if decided is not None:
            run.note(decided)
            return decided, None
        await receive(run, state)
        if state.ordered:
            return None
        conversation = run.conversation.user(self._decision_prompt(run, state, cycle))
        form = decision_form(self._find_skills(run), self.max_plan_steps)
        text = await ask_text(run, conversation, self.decider, "decide", form)
        try:
            reply = read_goal_decision(text)
        except ValueError as error:
            state.failures += 1
            state.unread += 1
            state.memory.add(f"[The decision could not be read] {error}")
            return None
        state.memory.take(reply.working_memory)
        decided = settle_reply(reply, situation, bounds)
        run.note(decided)
        return decided, reply

    def _decision_prompt(self, run: Run, state: GoalState, cycle: int) -> str:
        return self.prompts.fill(
            "decide",
            plan=state.render_plan(),
            results=state.render_results(),
            cycle=cycle,
            max_cycles=self.max_cycles,
            failures=state.failures,
            trend=state.render_trend(self.trend_of),
            memory=state.memory.text,
            skills=list_tool_names(self._find_skills(run)),
        )

    async def _follow(
        self,
        run: Run,
        state: GoalState,
        decided: GoalDecided,
        reply: DecisionReply | None,
    ) -> tuple[str | None, bool]:
        """Do what was decided; return the answer, if that is the end, and whether to decide again without a step."""
        match decided.move:
            case "continue":
                state.advance()
            case "repeat":
                return await self._repeat(run, state, decided), False
            case "adjust":
                return None, not self._adjust(run, state, decided, reply)
            case "ask_user":
                await self._ask_user(run, state, (reply and reply.question) or decided.reason)  # fmt: skip
            case "done":
                answer = "" if reply is None else reply.final_answer.strip()
                return await self._answer(run, state, answer), False
            case "summary":
                return await self._answer(run, state, ""), False
            case "stuck":
                raise Stuck(_name_stop(decided), decided.reason)
        return None, False

    async def _repeat(
        self, run: Run, state: GoalState, decided: GoalDecided
    ) -> str | None:
        """Have the last step made again or, if it has failed too often, do what `on_exhausted` says."""
        has_failed = state.done[-1][1].quality == "failed"
        if not has_failed:
            state.memory.add(f"[Low confidence] {decided.reason}")
        if not has_failed or state.attempts < self.max_step_attempts:
            return None
        problem = f"step {state.step.id} failed {state.attempts} times: {state.done[-1][1].text[:200]}"
        if self.on_exhausted == "abort":
            raise Stuck("repeated_error", problem)
        if self.on_exhausted == "escalate":
            await self._ask_user(run, state, f"What shall be done? {problem}")
            return None
        if state.index + 1 >= len(state.plan.steps):
            return await self._answer(run, state, "")
        state.advance()
        return None

    def _adjust(
        self,
        run: Run,
        state: GoalState,
        decided: GoalDecided,
        reply: DecisionReply | None,
    ) -> bool:
        """Begin the plan of a decision; return false if it cannot be used, which the next decision reads."""
        drafts = () if reply is None else reply.new_plan
        try:
            if not drafts:
                raise ValueError("There are no steps in it.")
            self._begin_plan(run, state, drafts, self._find_skills(run))
        except ValueError as error:
            run.note(PlanRejected(1, str(error)))
            state.memory.add(f"[The new plan was rejected] {error}")
            return False
        state.adjusts += (decided.confidence or 0.0) >= self.done_confidence
        return True

    async def _ask_user(self, run: Run, state: GoalState, question: str) -> None:
        """Ask the user, and plan anew with the answer."""
        answer = await run.ask_user(question.strip() or "How shall I continue?")
        state.memory.people.append(
            f"[Asked the user] {question} [Answer of the user] {answer}"
        )
        state.failures = 0
        await self._plan(run, state)

    # --- the answer ---

    async def _answer(self, run: Run, state: GoalState, answer: str) -> str:
        """Return the answer, and keep it; without one, have it written from the results."""
        answer = answer or await self._summarize(run, state)
        await self._store(run, [f"{run.task}: {answer}"])
        return answer

    async def _summarize(self, run: Run, state: GoalState) -> str:
        """Return the answer that a model writes from the results; raise `Unreadable` if it is empty."""
        await receive(run, state)
        prompt = self._fill(run, "summary", state)
        try:
            form = text_form("answer")
            text = await ask_text(run, prompt, self.decider, "answer", form)
        except ProviderError:
            if state.memory.notes:
                run.offer(state.memory.notes)
            raise
        answer = read_named_text(text, "answer")
        if not answer:
            raise Unreadable("the reply with the final answer is empty")
        return answer

    def _fill(self, run: Run, name: str, state: GoalState) -> Conversation:
        """Return the conversation with a prompt that has the results: for the summary, or a best answer."""
        prompt = self.prompts.fill(
            name, results=state.render_results(), memory=state.memory.text
        )
        return run.conversation.user(prompt)

    async def _store(self, run: Run, texts: Sequence[str]) -> None:
        if "memory" in self.deliver:
            await store_reasoning(run, self.runtime.knowledge, texts)

    # --- the working memory ---

    async def _compress(self, run: Run, state: GoalState, cycle: int) -> None:
        """Have the notes shortened when it is time and they are long; what people sent stays as it is."""
        notes = state.memory.notes
        if cycle % self.compress_every or len(notes) <= self.compress_above:
            return
        await receive(run, state)
        prompt = self.prompts.fill("compress", limit=self.compress_above, memory=notes)
        conversation, form = run.conversation.user(prompt), text_form("compressed", self.compress_above)  # fmt: skip
        text = await ask_text(run, conversation, None, "memory", form)
        shorter = read_named_text(text, "compressed")
        if 0 < len(shorter) < len(notes):
            state.memory.notes = shorter
            run.note(MemorySnapshot(cycle, state.memory.text))


def _find_skill(draft: StepDraft, skills: Sequence[ToolSpec]) -> str:
    """Return the registered name of a step's skill; raise ValueError where it is not a skill."""
    if draft.skill is None:
        raise ValueError(f"Step {draft.number} names no skill.")
    found = find_tool(draft.skill, skills)
    if found is None:
        raise ValueError(
            f"Step {draft.number}: {draft.skill[:80]!r} is not a skill. There are {list_tool_names(skills)}."
        )
    return found.name


def _name_stop(decided: GoalDecided) -> StopReason:
    """Return the reason for which a run ends as stuck."""
    if decided.by == "model":
        return "no_progress"
    return "repeated_error" if "failures" in decided.reason else "repeated_action"
