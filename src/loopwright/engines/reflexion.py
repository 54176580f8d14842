"""Reflexion: trial, evaluation, verbal self-reflection, next trial (Shinn et al., NeurIPS 2023, arXiv:2303.11366)."""

import contextlib
from typing import Annotated, Literal, Self

from pydantic import Field, PlainValidator

from .._internal import dataclasses
from ..engine import LoopEngine, ProviderName
from ..errors import AskFailed, ConfigError, EngineError
from ..messages import Conversation, Message
from ..prompts import PromptSet
from ..run import Run
from .evaluators import Evaluator, Judgement, ModelJudge, as_evaluator, evaluate
from .react import ReActEngine
from .reflections import ReflectionStore
from .trajectory import EpisodicMemory, Evaluation, Trajectory, count_given_messages

PROMPTS = PromptSet(
    reflections="""\
You tried the task below before and did not solve it. What you learnt from that:
{reflections}
Make use of it this time.""",
    last_attempt="""\
This is your last try at the task below.
{trace}
{outcome}""",
    incorrect="It did not solve the task. {feedback}",
    halted="It was stopped ({stop_reason}) before it came to an answer of its own. {feedback}",
    reflect="""\
You tried the task and did not solve it. Find out why, so that the next try goes better.

Task:
{task}

The try:
{trace}

How it ended: {outcome}

What you learnt from earlier tries:
{reflections}

Name the mistake in one or two sentences, then a plan of a few sentences that avoids it. Do not solve the task here.""",
)
REFLECTING = ("reflection", "both")
# A trial that fails for one of these reasons is over, and the next one starts afresh.
HALTS = ("unreadable", "invalid_output", "context_overflow")
NO_ANSWER = "It gave no answer."


@dataclasses.dataclass(frozen=True)
class Episode:
    """Fact: how a trial ended. `halted` means that it was stopped before a final answer."""

    number: int
    outcome: Literal["correct", "incorrect", "halted"]
    stop_reason: str
    score: float | None
    feedback: str

    @classmethod
    def of(cls, trajectory: Trajectory, evaluation: Evaluation) -> Self:
        """Build the episode of an evaluated trajectory."""
        outcome: Literal["correct", "incorrect", "halted"] = "incorrect"
        if evaluation.passed:
            outcome = "correct"
        elif trajectory.halted:
            outcome = "halted"
        return cls(
            trajectory.number,
            outcome,
            trajectory.stop_reason,
            evaluation.score,
            evaluation.feedback,
        )


@dataclasses.dataclass(frozen=True)
class Reflection:
    """Fact: the self-reflection on an episode."""

    episode: int
    text: str


@dataclasses.dataclass(frozen=True)
class BestAttempt:
    """Fact: the episode whose answer is returned although no evaluation was passed."""

    episode: int
    score: float | None


@dataclasses.dataclass(frozen=True)
class StoreFailed:
    """Fact: reflections could not be read or written; the run continues without them."""

    problem: str


class ReflexionEngine(LoopEngine):
    """Repeat trials of an actor, each with self-reflections on the earlier ones, until an evaluator is satisfied.

    What is carried over is a user message directly before the task. After the last episode the best answer is
    returned, and the fact `BestAttempt` says that it passed no evaluation; a limit that ends the run returns it too.
    An episode without an answer is not evaluated. An unreadable model or a conversation too long for the model ends
    the episode; any other failure of the actor fails the run.

    Args:
        actor: the engine that makes the trials; `None` is a `ReActEngine`.
        max_episodes: the maximum number of trials.
        evaluator: decides whether a trial succeeded: an evaluator, or a function of the `Trajectory` that returns a
            bool, a score (1 passes) or an `Evaluation`, sync or async; `None` is `ModelJudge()`.
        strategy: what a trial is told of the earlier ones: nothing, the last one, reflections on them, or both.
        memory: how many reflections are shown, the newest.
        max_trace_tokens: how much of a trajectory is shown; its longest observations are left out first.
        reflector: the provider that reflects, one of `Runtime(providers=...)`; `None` is the runtime's own.
        store: keeps reflections, including the last episode's, for later runs of the same task.
        prompts: `reflections` with {reflections}, `last_attempt` with {trace} and {outcome}, `incorrect` with
            {feedback}, `halted` with {stop_reason} and {feedback}, `reflect` with {task}, {trace}, {outcome} and
            {reflections}.
    """

    name = "reflexion"
    actor: LoopEngine | None = None
    max_episodes: int = Field(default=3, ge=1)
    evaluator: Annotated[Evaluator | Judgement | None, PlainValidator(as_evaluator)] = (
        None
    )
    strategy: Literal["none", "last_attempt", "reflection", "both"] = "reflection"
    memory: int = Field(default=3, ge=1)
    max_trace_tokens: int = Field(default=1600, ge=1)
    reflector: ProviderName = None
    store: ReflectionStore | None = None
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        """Refuse a store without reflections to keep."""
        super().__post_init__()
        if self.store is not None and not self._reflects:
            raise ConfigError(
                f"store: strategy {self.strategy!r} makes no reflections; leave the store out"
            )

    async def solve(self, run: Run) -> str:
        """Repeat trial, evaluation and reflection until a trial passes; else return the best answer."""
        memory = EpisodicMemory(reflections=await self._recall(run))
        for number in run.iterations(self.max_episodes):
            trajectory = await self._act(run, number, memory)
            evaluation = await self._evaluate(run, trajectory, memory)
            if evaluation.passed and trajectory.answer is not None:
                return trajectory.answer
            await self._reflect(run, number, memory)
        best = memory.best()
        if best is None:
            return await run.best_answer(self._prompt(run, memory))
        trajectory, evaluation = best
        run.note(BestAttempt(trajectory.number, evaluation.score))
        return str(trajectory.answer)

    async def _act(self, run: Run, number: int, memory: EpisodicMemory) -> Trajectory:
        """Let the actor generate a trajectory."""
        given = self._prompt(run, memory)
        result = await run.delegate(self.actor or ReActEngine(self.runtime), given)
        if result.status not in ("limit", "stuck") and result.stop_reason not in HALTS:
            result.raise_for_status()
        has_answer = result.answer is not None and result.answer.strip() != ""
        trajectory = Trajectory(
            number,
            run.task,
            result.answer if has_answer else None,
            result.status,
            result.stop_reason,
            result.conversation,
            result.iterations,
            count_given_messages(result.conversation.messages, given.messages),
            tuple(memory.evaluations),
        )
        memory.add(trajectory)
        _offer_best(run, memory)
        return trajectory

    async def _evaluate(
        self, run: Run, trajectory: Trajectory, memory: EpisodicMemory
    ) -> Evaluation:
        """Evaluate a trajectory that has an answer; one without does not pass."""
        evaluation = Evaluation(False, feedback=NO_ANSWER)
        if trajectory.answer is not None:
            evaluator = ModelJudge() if self.evaluator is None else self.evaluator
            evaluation = await evaluate(evaluator, run, trajectory)
        memory.evaluations[-1] = evaluation
        _offer_best(run, memory)
        run.note(Episode.of(trajectory, evaluation))
        return evaluation

    async def _reflect(self, run: Run, number: int, memory: EpisodicMemory) -> None:
        """Reflect on the last trajectory if a later trial or run can use it.

        An unusable reply is not a reflection.
        """
        is_needed = number < self.max_episodes or self.store is not None
        if not self._reflects or not is_needed:
            return
        prompt = self.prompts.fill(
            "reflect",
            task=run.task,
            trace=memory.trajectories[-1].trace(self.max_trace_tokens),
            outcome=self._describe_outcome(memory),
            reflections=memory.render_reflections(self.memory) or "(nothing)",
        )
        text = ""
        with contextlib.suppress(AskFailed):
            text = await run.ask(
                run.conversation.user(prompt),
                provider=self.reflector,
                purpose="reflect",
                again=False,
            )
        text = text.strip()
        if text:
            memory.reflections.append(text)
            run.note(Reflection(number, text))
            await self._store(run, text)

    @property
    def _reflects(self) -> bool:
        return self.strategy in REFLECTING

    def _prompt(self, run: Run, memory: EpisodicMemory) -> Conversation:
        """Return the caller's conversation with the memory inserted before its latest user message, the task."""
        sections: list[str] = []
        if self._reflects and memory.reflections:
            reflections = memory.render_reflections(self.memory)
            sections.append(self.prompts.fill("reflections", reflections=reflections))
        if self.strategy in ("last_attempt", "both") and memory.trajectories:
            trace = memory.trajectories[-1].trace(self.max_trace_tokens)
            outcome = self._describe_outcome(memory)
            sections.append(
                self.prompts.fill("last_attempt", trace=trace, outcome=outcome)
            )
        if not sections:
            return run.conversation
        messages = run.conversation.messages
        users = [i for i, message in enumerate(messages) if message.role == "user"]
        task = users[-1] if users else len(messages)
        inserted = Message("user", "\n\n".join(sections), origin="engine")
        return Conversation([*messages[:task], inserted, *messages[task:]])

    def _describe_outcome(self, memory: EpisodicMemory) -> str:
        trajectory, feedback = memory.trajectories[-1], memory.evaluations[-1].feedback
        if trajectory.halted:
            return self.prompts.fill(
                "halted", stop_reason=trajectory.stop_reason, feedback=feedback
            ).strip()
        return self.prompts.fill("incorrect", feedback=feedback).strip()

    async def _recall(self, run: Run) -> list[str]:
        """Return the newest stored reflections on the task."""
        store = self.store
        if store is None:
            return []

        async def recall() -> list[str]:
            return list(await store.recall(run.task))[-self.memory :]

        try:
            return await run.effect("recall_reflections", recall, into=list[str])
        except EngineError as error:
            run.note(StoreFailed(str(error)))
            return []

    async def _store(self, run: Run, text: str) -> None:
        """Keep a reflection for later runs."""
        store = self.store
        if store is None:
            return
        try:
            await run.effect(
                "keep_reflection",
                lambda: store.keep(run.task, run.label_text(text)),
                into=type(None),
            )
        except EngineError as error:
            run.note(StoreFailed(str(error)))


def _offer_best(run: Run, memory: EpisodicMemory) -> None:
    """Make the best trajectory's answer the run's answer, whatever ends the run from now on."""
    best = memory.best()
    if best is None:
        run.keep(memory.trajectories[-1].conversation)
        return
    trajectory, _ = best
    run.offer(str(trajectory.answer))
    run.keep(trajectory.conversation)
