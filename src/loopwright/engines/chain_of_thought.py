"""Chain of Thought: reason step by step, then say the answer; several lines of reasoning may vote on it."""

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, Field

from ..engine import LoopEngine
from ..errors import AskFailed, ConfigError, Denied, LimitReached, LoopwrightError, ProviderError, Unreadable
from ..events import Entry, FactNoted
from ..messages import Conversation, Message
from ..parsing import strict_json
from ..parsing.answers import AnswerKind, is_decided, read_answer, read_ending, tally
from ..prompts import PromptSet
from ..run import Run, Sampling

PROMPTS = PromptSet(
    steps="Work this out step by step, and write down each step of your reasoning.",
    steps_and_answer="""\
Work this out step by step, and write down each step of your reasoning.
Then end with a line of its own that says FINAL ANSWER: and behind it {wanted}.""",
    example="{reasoning}\n\nFINAL ANSWER: {answer}",
    go_on="That was cut off at the limit of length. Go on where it stopped. Repeat nothing, and be brief.",
    extract="What is the answer, then? Reply with {wanted}, and nothing else.",
    extract_from_cut="""\
Your reasoning was cut off at the limit of length, so what stands at its end may be no result. Finish it in your head.
What is the answer, then? Reply with {wanted}, and nothing else.""",
    again="That cannot be read: {problem}. Reply with {wanted}, and nothing else.",
    text="the answer alone, in as few words as it needs",
    number="the answer as one number in digits",
    letter="the letter of the answer, A to E",
    yes_no="yes or no",
    json="the answer as JSON",
)
WARM = 0.7  # the temperature at which lines of reasoning differ (Wang et al.)
DOWN = 3  # so many samples in a row without a reply, and no more are asked
CUT = "it reached the limit of output tokens"


@dataclasses.dataclass(frozen=True)
class Example:
    """A question that was worked out, shown to the model before the real one."""

    question: str
    reasoning: str
    answer: str


@dataclasses.dataclass(frozen=True)
class Vote:
    """How samples voted, noted before the winner is returned.

    Args:
        counts: votes by answer, in the order in which the answers came up.
        winner: the answer with most votes, of equals the first; `None` if no sample gave an answer.
        agreement: votes of the winner by samples asked, 0 to 1.
        samples: how many samples the engine may ask.
        asked: how many it asked until the vote was decided, those without a readable answer included.
    """

    counts: dict[str, int]
    winner: str | None
    agreement: float
    samples: int
    asked: int

    @classmethod
    def read(cls, entries: Iterable[Entry]) -> "Vote | None":
        """The last vote in a run's journal: `Vote.read(runtime.journal.read(result.run_id))`."""
        facts = (entry.event for entry in entries if isinstance(entry.event, FactNoted))
        values = [fact.value for fact in facts if fact.name == cls.__name__ and isinstance(fact.value, dict)]
        fields = {field.name for field in dataclasses.fields(cls)}
        found = next((value for value in reversed(values) if value.keys() == fields), None)
        return None if found is None else cls(**found)  # type: ignore[arg-type]


@dataclasses.dataclass
class Sample:
    """One line of reasoning as far as it came: its parts, whether its end is missing, what it led to."""

    conversation: Conversation
    said: list[str] = dataclasses.field(default_factory=list)
    cut: bool = False
    answer: str | None = None
    error: LoopwrightError | None = None


class ChainOfThoughtEngine(LoopEngine):
    """Reason step by step, then extract the answer in a second, short call (Kojima et al., arXiv:2205.11916).

    With `samples` the reasoning is done several times and the answers vote (self-consistency, Wang et al.,
    arXiv:2203.11171); with `examples` it is shown how (Wei et al., arXiv:2201.11903). No tools are used. Reasoning that
    is cut off by the token limit is continued; if its end stays missing, the second call is told so and nothing is read
    from it. Agreement is a noted fact: see `Vote`.

    Args:
        answer: its type: "text", "number", "letter" (A to E), "yes_no", or a pydantic model (the answer is JSON then).
        samples: lines of reasoning that vote.
        wave: samples asked before it is looked whether the vote is decided.
        max_concurrency: samples at work at once; `None` is the whole wave, 1 one after the other.
        temperature: of the reasoning; `None` is the provider's own for one sample and 0.7 for several.
        extract: the second call: "auto" leaves it out where the reasoning ends with "Final answer: …" or "The answer is
            …" and that can be read, "always" makes it anyway, "never" asks for such an ending instead.
        examples: questions worked out, shown first.
        max_continuations: how often a reasoning that was cut off is continued.
        fallback: an engine that takes over where the samples agree too little (CoT-SC to ReAct, Yao et al.,
            arXiv:2210.03629); if it has no answer, the majority counts.
        min_agreement: share of the samples below which `fallback` takes over.
    """

    name = "chain-of-thought"
    answer: AnswerKind | type[BaseModel] = "text"
    samples: int = Field(default=1, ge=1)
    wave: int = Field(default=5, ge=1)
    max_concurrency: int | None = Field(default=8, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    extract: Literal["auto", "always", "never"] = "auto"
    examples: tuple[Example, ...] = ()
    max_continuations: int = Field(default=1, ge=0)
    fallback: LoopEngine | None = None
    min_agreement: float = Field(default=0.5, ge=0, le=1)
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        """Check what one option means for another."""
        super().__post_init__()
        if self.extract == "never" and not isinstance(self.answer, str):
            raise ConfigError("extract: a pydantic model is made by the second call: use 'auto' or 'always'")
        for number, example in enumerate(self.examples):
            if self._read(example.answer) is None:
                raise ConfigError(f"examples.{number}: its answer is not {self._wanted}, got {example.answer!r}")

    async def solve(self, run: Run) -> str:
        """Sample, vote, and fall back where there is too little agreement."""
        polled = [await self._sample(run)] if self.samples == 1 else await self._poll(run)
        vote = self._count(polled)
        if self.samples > 1:
            run.note(vote)
        limit = next((sample.error for sample in polled if isinstance(sample.error, LimitReached)), None)
        if limit is not None:
            return vote.winner if vote.winner is not None else await self._best_answer(run, polled, limit)
        if self.fallback is not None and vote.agreement < self.min_agreement:
            other = await self._fall_back(run, self.fallback)
            if other is not None:
                return other
        if vote.winner is None:
            raise next(sample.error for sample in polled if sample.error is not None)
        if self.samples > 1:
            with contextlib.suppress(LimitReached):  # there is an answer already
                await _keep(run, next(sample for sample in polled if sample.answer == vote.winner))
        return vote.winner

    # --- the vote ---

    async def _poll(self, run: Run) -> list[Sample]:
        """Samples in waves, until the vote is decided or no more can be asked."""
        polled: list[Sample] = []
        while len(polled) < self.samples and not self._is_over(polled):
            works = [self._sample] * min(self.wave, self.samples - len(polled))
            try:
                polled += await run.gather(*works, at_once=self.max_concurrency)
            except LimitReached:  # met by another engine, before this wave
                if not self._tally(polled):
                    raise
                break
        return polled

    def _is_over(self, polled: list[Sample]) -> bool:
        if any(isinstance(sample.error, LimitReached) for sample in polled):
            return True
        latest = polled[-max(self.wave, DOWN) :]
        if len(latest) >= DOWN and all(isinstance(sample.error, ProviderError) for sample in latest):
            return True
        votes, left = self._tally(polled), self.samples - len(polled)
        most = max(votes.values(), default=0)
        if self.fallback is None or most >= self.min_agreement * self.samples:
            return is_decided(votes, left)
        return most + left < self.min_agreement * self.samples

    def _tally(self, polled: list[Sample]) -> dict[str, int]:
        answers = [sample.answer for sample in polled if sample.answer is not None]
        return tally(answers, self.answer if isinstance(self.answer, str) else "text")

    def _count(self, polled: list[Sample]) -> Vote:
        votes = self._tally(polled)
        winner = max(votes, key=votes.__getitem__, default=None)
        most = max(votes.values(), default=0)
        return Vote(votes, winner, round(most / len(polled), 4), self.samples, len(polled))

    async def _fall_back(self, run: Run, engine: LoopEngine) -> str | None:
        """The other engine's answer; `None` if it has none of the right type, or may not work."""
        try:
            result = await run.delegate(engine, run.conversation)
        except (Denied, LimitReached):
            return None
        return self._read(result.answer) if result.status == "completed" and result.answer is not None else None

    async def _best_answer(self, run: Run, polled: list[Sample], limit: LoopwrightError) -> str:
        """The reserved call, on the first reasoning that there is; what cannot be read is no answer."""
        sample = next((sample for sample in polled if sample.said), polled[0])
        answer = self._read(await run.best_answer(self._asked(sample)))
        if answer is None:
            raise limit
        return answer

    # --- one sample ---

    async def _sample(self, run: Run) -> Sample:
        """One line of reasoning and its answer; what went wrong on the way costs this sample its vote."""
        sample = Sample(self._opening(run.conversation))
        try:
            await self._reason(run, sample)
            if self.samples == 1:
                await _keep(run, sample)
            sample.answer = await self._answer(run, sample)
        except (LimitReached, ProviderError, AskFailed, Unreadable) as error:
            sample.error = error
        return sample

    def _opening(self, conversation: Conversation) -> Conversation:
        """The caller's conversation, the examples behind its system message, and the instruction at its end."""
        messages = conversation.messages
        opening = int(bool(messages) and messages[0].role == "system")
        shown = [message for example in self.examples for message in self._turns(example)]
        whole = Conversation([*messages[:opening], *shown, *messages[opening:]])
        if self.extract == "never":
            return whole.user(self.prompts.fill("steps_and_answer", wanted=self._wanted))
        return whole.user(self.prompts.fill("steps"))

    def _turns(self, example: Example) -> tuple[Message, Message]:
        shown = self.prompts.fill("example", reasoning=example.reasoning, answer=example.answer)
        return Message("user", example.question, origin="engine"), Message("assistant", shown, origin="engine")

    async def _reason(self, run: Run, sample: Sample) -> None:
        """The reasoning, continued where it was cut off by the token limit."""
        for _ in range(1 + self.max_continuations):
            asked = sample.conversation.user(self.prompts.fill("go_on")) if sample.cut else sample.conversation
            try:
                text, cut = await run.ask(asked, sampling=self._sampling), False
            except AskFailed as failure:
                if not failure.cut:
                    raise
                text, cut = failure.text, True
            sample.cut = cut or (sample.cut and not text.strip())  # an empty continuation brings no end
            if text.strip():
                sample.said.append(text)
                sample.conversation = asked.assistant(text, origin="model")
            if not sample.cut:
                return

    async def _answer(self, run: Run, sample: Sample) -> str:
        """The answer that the reasoning ends with, or what the second call makes of it."""
        if isinstance(self.answer, str) and self.extract != "always" and not sample.cut and sample.said:
            answer = read_ending(sample.said[-1], self.answer)
            if answer is not None:
                return answer
        if self.extract == "never":
            raise Unreadable(
                f"the reasoning does not end with {self._wanted}" + (": it was cut off" if sample.cut else "")
            )
        asked = self._asked(sample)
        if not isinstance(self.answer, str):
            return (await run.ask(asked, into=self.answer, sampling=self._cool)).model_dump_json(by_alias=True)
        return await self._extract(run, asked, self.answer)

    def _asked(self, sample: Sample) -> Conversation:
        """The reasoning and the question for its answer."""
        trigger = "extract_from_cut" if sample.cut else "extract"
        return sample.conversation.user(self.prompts.fill(trigger, wanted=self._wanted))

    async def _extract(self, run: Run, conversation: Conversation, kind: AnswerKind) -> str:
        """Ask for the answer; a reply that is none of its type goes back once, with the reason."""
        problem = ""
        for _ in range(2):
            try:
                reply, problem = await run.ask(conversation, sampling=self._cool), f"it is not {self._wanted}"
                answer = read_answer(reply, kind)
                if answer is not None:
                    return answer
            except AskFailed as failure:
                reply, problem = failure.text, CUT if failure.cut else str(failure)
            if reply.strip():
                conversation = conversation.assistant(reply, origin="model")
            conversation = conversation.user(self.prompts.fill("again", problem=problem, wanted=self._wanted))
        raise Unreadable(f"the answer could not be read twice running: {problem}")

    def _read(self, text: str) -> str | None:
        """An answer that came by another way, if it is of the type."""
        if isinstance(self.answer, str):
            return read_answer(text, self.answer)
        try:
            return self.answer.model_validate(strict_json(text)).model_dump_json(by_alias=True)
        except ValueError:
            return None

    @property
    def _wanted(self) -> str:
        return self.prompts.fill(self.answer if isinstance(self.answer, str) else "json")

    @property
    def _sampling(self) -> Sampling:
        warm = WARM if self.samples > 1 else None
        return Sampling(temperature=warm if self.temperature is None else self.temperature)

    @property
    def _cool(self) -> Sampling:
        """The second call is to vary as little as it can, unless nothing was said about temperatures."""
        return Sampling(temperature=None if self._sampling.temperature is None else 0.0)


async def _keep(run: Run, sample: Sample) -> None:
    """Make the reasoning a turn of the run, so that its conversation holds it."""
    if sample.said:
        await run.act(await run.gate(run.propose(thought="\n".join(sample.said))))
