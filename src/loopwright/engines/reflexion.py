"""Reflexion: try, evaluate, put the lesson into words, try again (Shinn et al., NeurIPS 2023, arXiv:2303.11366)."""

import dataclasses
from typing import Annotated, Literal, Self

from pydantic import Field, PlainValidator

from ..engine import LoopEngine, ProviderName
from ..errors import AskFailed, ConfigError, EngineError
from ..messages import Conversation, Message
from ..prompts import PromptSet
from ..run import Run
from .attempt import Attempt, Evaluation, Experience, count_given
from .evaluators import Evaluator, Judgement, ModelJudge, as_evaluator, evaluate
from .react import ReActEngine
from .reflections import ReflectionStore

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
HALTS = (
    "unreadable",
    "invalid_output",
    "context_overflow",
)  # failures of one attempt: the next starts afresh
NO_ANSWER = "It gave no answer."


@dataclasses.dataclass(frozen=True)
class Episode:
    """Fact: how an attempt ended. `halted` is one that was stopped before it had an answer of its own."""

    number: int
    outcome: Literal["correct", "incorrect", "halted"]
    stop_reason: str
    score: float | None
    feedback: str

    @classmethod
    def of(cls, attempt: Attempt, evaluation: Evaluation) -> Self:
        """The episode of an attempt that was evaluated."""
        stop_reason, score, feedback = (
            attempt.stop_reason,
            evaluation.score,
            evaluation.feedback,
        )
        if evaluation.passed:
            return cls(attempt.number, "correct", stop_reason, score, feedback)
        return cls(
            attempt.number,
            "halted" if attempt.halted else "incorrect",
            stop_reason,
            score,
            feedback,
        )


@dataclasses.dataclass(frozen=True)
class Reflection:
    """Fact: what was learnt from an episode."""

    episode: int
    text: str


@dataclasses.dataclass(frozen=True)
class BestAttempt:
    """Fact: the episode whose answer is given although no evaluation was passed."""

    episode: int
    score: float | None


@dataclasses.dataclass(frozen=True)
class StoreFailed:
    """Fact: reflections could not be recalled or kept; the run goes on without."""

    problem: str


class ReflexionEngine(LoopEngine):
    """Episodes of an actor, each with what was learnt from those before, until an evaluator is satisfied.

    What is carried over stands in a user message right before the task. After the last episode the best answer is
    given, and the fact `BestAttempt` says that it passed no evaluation; where a limit ends the run it is given too. An
    episode without an answer is not evaluated. An episode whose model could not be read, or whose conversation outgrew
    the model, is over, while any other failure of the actor fails the run.

    Args:
        actor: the engine that makes the attempts; `None` is a `ReActEngine`.
        max_episodes: how many attempts there are at most.
        evaluator: says whether an attempt succeeded: an evaluator, or a function of the `Attempt` that gives a bool, a
            score (1 passes) or an `Evaluation`, async if it takes time; `None` is `ModelJudge()`.
        strategy: what an attempt gets to know of those before: nothing, the last one, reflections on them, or both.
        memory: how many reflections are shown, the newest.
        max_trace_tokens: how much of an attempt is shown; its longest observations are left out first.
        reflector: who reflects, one of `Runtime(providers=...)`; `None` is the runtime's own.
        store: keeps reflections for later runs of the same task, the last episode's too.
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
        """Check what must go together."""
        super().__post_init__()
        if self.store is not None and self.strategy not in REFLECTING:
            raise ConfigError(
                f"store: strategy {self.strategy!r} makes no reflections; leave the store out"
            )

    async def solve(self, run: Run) -> str:
        """Try until an evaluation is passed, or give the best answer there is."""
        past = Experience(reflections=await self._recalled(run))
        for number in run.iterations(self.max_episodes):
            attempt = await self._attempt(run, number, past)
            evaluation = await self._evaluate(run, attempt, past)
            if evaluation.passed and attempt.answer is not None:
                return attempt.answer
            if self.strategy in REFLECTING and (
                number < self.max_episodes or self.store is not None
            ):
                await self._reflect(run, past)
        best = past.best()
        if best is None:
            return await run.best_answer(self._briefed(run, past))
        attempt, evaluation = best
        run.note(BestAttempt(attempt.number, evaluation.score))
        return str(attempt.answer)

    async def _attempt(self, run: Run, number: int, past: Experience) -> Attempt:
        given = self._briefed(run, past)
        result = await run.delegate(self.actor or ReActEngine(self.runtime), given)
        if result.status not in ("limit", "stuck") and result.stop_reason not in HALTS:
            result.raise_for_status()
        answer = result.answer if result.answer and result.answer.strip() else None
        opening = count_given(result.conversation.messages, given.messages)
        attempt = Attempt(
            number, run.task, answer, result.status, result.stop_reason, result.conversation, result.iterations,
            opening, tuple(past.evaluations),
        )  # fmt: skip
        past.begin(attempt)
        _offer_best(run, past)
        return attempt

    async def _evaluate(
        self, run: Run, attempt: Attempt, past: Experience
    ) -> Evaluation:
        evaluation = Evaluation(False, feedback=NO_ANSWER)
        if attempt.answer is not None:
            evaluation = await evaluate(
                ModelJudge() if self.evaluator is None else self.evaluator, run, attempt
            )
        past.evaluations[-1] = evaluation
        _offer_best(run, past)
        run.note(Episode.of(attempt, evaluation))
        return evaluation

    async def _reflect(self, run: Run, past: Experience) -> None:
        """Put the lesson of the last attempt into words; a reply that cannot be used is no lesson."""
        prompt = self.prompts.fill(
            "reflect",
            task=run.task,
            trace=past.attempts[-1].trace(self.max_trace_tokens),
            outcome=self._outcome(past),
            reflections=past.told(self.memory) or "(nothing)",
        )
        try:
            said = await run.ask(
                run.conversation.user(prompt),
                provider=self.reflector,
                purpose="reflect",
            )
            text = said.strip()
        except AskFailed:
            return
        if text:
            past.reflections.append(text)
            run.note(Reflection(past.attempts[-1].number, text))
            await self._keep(run, text)

    def _briefed(self, run: Run, past: Experience) -> Conversation:
        """The caller's conversation with what is carried over before its latest user message, which stays the task."""
        told: list[str] = []
        if self.strategy in REFLECTING and past.reflections:
            told.append(
                self.prompts.fill("reflections", reflections=past.told(self.memory))
            )
        if self.strategy in ("last_attempt", "both") and past.attempts:
            trace = past.attempts[-1].trace(self.max_trace_tokens)
            told.append(
                self.prompts.fill(
                    "last_attempt", trace=trace, outcome=self._outcome(past)
                )
            )
        if not told:
            return run.conversation
        messages = run.conversation.messages
        task = max(
            (i for i, message in enumerate(messages) if message.role == "user"),
            default=len(messages),
        )
        memory = Message("user", "\n\n".join(told), origin="engine")
        return Conversation([*messages[:task], memory, *messages[task:]])

    def _outcome(self, past: Experience) -> str:
        attempt, feedback = past.attempts[-1], past.evaluations[-1].feedback
        if attempt.halted:
            return self.prompts.fill(
                "halted", stop_reason=attempt.stop_reason, feedback=feedback
            ).strip()
        return self.prompts.fill("incorrect", feedback=feedback).strip()

    async def _recalled(self, run: Run) -> list[str]:
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

    async def _keep(self, run: Run, text: str) -> None:
        store = self.store
        if store is not None:
            try:
                await run.effect(
                    "keep_reflection",
                    lambda: store.keep(run.task, text),
                    into=type(None),
                )
            except EngineError as error:
                run.note(StoreFailed(str(error)))


def _offer_best(run: Run, past: Experience) -> None:
    """Whatever ends the run from now on, the best attempt's answer is its own."""
    best = past.best()
    if best is not None:
        run.offer(str(best[0].answer))
    run.keep((best[0] if best else past.attempts[-1]).conversation)
