"""Chain of Thought: reason step by step, then say the answer; several lines of reasoning may vote on it."""

import dataclasses
import functools
from typing import Literal

from pydantic import Field

from ..engine import LoopEngine
from ..errors import (
    AskFailed,
    ConfigError,
    Denied,
    LimitReached,
    LoopwrightError,
    ProviderError,
    Unreadable,
)
from ..messages import Conversation
from ..parsing.answers import AnswerType, read_answer, read_closing_answer
from ..prompts import PromptSet
from ..run import Run, Sampling
from .vote import Vote

PROMPTS = PromptSet(
    steps="Work this out step by step, and write down each step of your reasoning.",
    example="{reasoning}\n\nFINAL ANSWER: {answer}",
    go_on="That was cut off at the limit of length. Go on where it stopped. Repeat nothing, and be brief.",
    extract="What is the answer, then? Reply with {wanted}, and nothing else.",
    extract_from_cut="""\
Your reasoning was cut off at the limit of length, so what stands at its end may be no result. Finish it in your head.
What is the answer, then? Reply with {wanted}, and nothing else.""",
    again="That is not {wanted}. Reply with that, and nothing else.",
    text="the answer alone, in as few words as it needs",
    number="the answer as one number in digits",
    letter="the letter of the answer, A to E",
    yes_no="yes or no",
    json="the answer as JSON",
)
WARM = 0.7  # the temperature at which lines of reasoning differ (Wang et al.)


@dataclasses.dataclass(frozen=True)
class Example:
    """A question that was worked out, shown to the model before the real one."""

    question: str
    reasoning: str
    answer: str


@dataclasses.dataclass
class Sample:
    """One line of reasoning as far as it came: its parts, whether its end is missing, what it led to."""

    opened: Conversation
    parts: list[str] = dataclasses.field(default_factory=list)
    cut: bool = False
    answer: str | None = None
    error: LoopwrightError | None = None

    def after(self, conversation: Conversation) -> Conversation:
        """The conversation with this reasoning at its end, if there is any."""
        return (
            conversation.assistant("\n".join(self.parts), origin="model")
            if self.parts
            else conversation
        )


class ChainOfThoughtEngine(LoopEngine):
    """Reason step by step, then extract the answer in a second, short call (Kojima et al., arXiv:2205.11916).

    With `samples` the reasoning is done several times and the answers vote (self-consistency, Wang et al.,
    arXiv:2203.11171); the `Vote` so far is noted after each wave. With `examples` it is shown how (Wei et al.,
    arXiv:2201.11903). No tools are used. Reasoning that is cut off by the token limit is continued; if its end stays
    missing, the second call is told so and nothing is read from it. A limit leaves the majority so far, or a best
    answer of the type. A sample makes 1 to 3 + `max_continuations` model calls; one with a pydantic model one more.

    Args:
        answer: its type: "text", "number", "letter" (A to E), "yes_no", or a pydantic model (the answer is JSON then).
        samples: lines of reasoning that vote.
        wave: samples asked before it is looked whether the vote is decided.
        max_concurrency: samples at work at once; `None` is the whole wave, 1 one after the other.
        temperature: of the reasoning; `None` is the provider's own for one sample and 0.7 for several.
        extract: the second call: "auto" leaves it out where the reasoning ends with "Final answer: …" or "The answer is
            …" and that can be read (the prompt `steps` may ask for such an ending), "always" makes it anyway.
        examples: questions worked out, shown first.
        max_continuations: how often a reasoning that was cut off is continued.
        fallback: an engine that takes over where the samples agree too little (CoT-SC to ReAct, Yao et al.,
            arXiv:2210.03629); if it has no answer of the type, the majority counts.
        min_agreement: share of the samples below which `fallback` takes over.
    """

    name = "chain-of-thought"
    answer: AnswerType = "text"
    samples: int = Field(default=1, ge=1)
    wave: int = Field(default=5, ge=1)
    max_concurrency: int | None = Field(default=8, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    extract: Literal["auto", "always"] = "auto"
    examples: tuple[Example, ...] = ()
    max_continuations: int = Field(default=1, ge=0)
    fallback: LoopEngine | None = None
    min_agreement: float = Field(default=0.5, ge=0, le=1)
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        """Check the examples' answers."""
        super().__post_init__()
        for number, example in enumerate(self.examples):
            if read_answer(example.answer, self.answer) is None:
                raise ConfigError(
                    f"examples.{number}: its answer is not {self._wanted}, got {example.answer!r}"
                )

    async def solve(self, run: Run) -> str:
        """Sample until the vote is decided, and fall back where there is too little agreement."""
        opened = self._opening(
            run.conversation
        )  # once: what is kept below is not for the samples to see
        samples: list[Sample] = []
        vote = Vote.of((), self.answer, self.samples)
        threshold = 0.0 if self.fallback is None else self.min_agreement
        try:
            while not vote.is_decided(threshold):
                wave = [functools.partial(self._sample, opened)] * min(
                    self.wave, self.samples - len(samples)
                )
                latest = await run.gather(*wave, at_once=self.max_concurrency)
                samples += latest
                vote = self._count(run, samples)
                if all(isinstance(sample.error, ProviderError) for sample in latest):
                    break  # nobody is there to ask
            answer = vote.winner
            if self.fallback is not None and vote.agreement < threshold:
                answer = await self._fall_back(run, self.fallback) or answer
            if answer is not None:
                return answer
            errors = [sample.error for sample in samples if sample.error is not None]
            raise next(
                (error for error in errors if isinstance(error, LimitReached)),
                errors[0],
            )
        except LimitReached:
            if vote.winner is not None:
                raise  # it was offered, so the run has it
            reasoned = next(
                (sample for sample in samples if sample.parts), Sample(opened)
            )
            answer = read_answer(
                await run.best_answer(self._question(reasoned)), self.answer
            )
            if answer is None:
                raise
            return answer

    def _count(self, run: Run, samples: list[Sample]) -> Vote:
        """The vote so far: noted, offered, and its best line of reasoning kept."""
        vote = Vote.of([sample.answer for sample in samples], self.answer, self.samples)
        if self.samples > 1:
            run.note(vote)
        if vote.winner is not None:
            run.offer(vote.winner)
        best = max(
            samples,
            key=lambda sample: (sample.answer == vote.winner, sample.parts != []),
        )
        run.keep(best.after(run.conversation))
        return vote

    async def _fall_back(self, run: Run, fallback: LoopEngine) -> str | None:
        """The other engine's answer; `None` if it has none of the type, or may not work."""
        try:
            result = await run.delegate(fallback, run.conversation)
        except Denied:
            return None
        return (
            read_answer(result.answer or "", self.answer)
            if result.status == "completed"
            else None
        )

    # --- one sample ---

    async def _sample(self, opened: Conversation, run: Run) -> Sample:
        """One line of reasoning and its answer; what goes wrong on the way costs this sample its vote."""
        sample = Sample(opened)
        try:
            await self._reason(run, sample)
            sample.answer = await self._answer(run, sample)
        except (LimitReached, ProviderError, AskFailed, Unreadable) as error:
            sample.error = error
        return sample

    async def _reason(self, run: Run, sample: Sample) -> None:
        """The reasoning; what the token limit cut off is continued."""
        asked = sample.opened
        for _ in range(1 + self.max_continuations):
            text, cut = await _reply(run, asked, self._warm, "think")
            sample.cut = cut or (
                sample.cut and not text.strip()
            )  # an empty continuation brings no end
            sample.parts += [text] if text.strip() else []
            if not sample.cut:
                return
            asked = sample.after(sample.opened).user(self.prompts.fill("go_on"))

    async def _answer(self, run: Run, sample: Sample) -> str:
        """The answer that the reasoning ends with, or what a second, short call makes of it."""
        if self.extract == "auto" and not sample.cut and sample.parts:
            answer = read_closing_answer(
                sample.parts[-1], self.answer
            )  # not across a seam
            if answer is not None:
                return answer
        asked, cool = self._question(sample), None if self._warm is None else 0.0
        if not isinstance(self.answer, str):
            sampling = Sampling(temperature=cool)
            found = await run.ask(
                asked, into=self.answer, sampling=sampling, purpose="extract"
            )
            return found.model_dump_json(by_alias=True)
        for _ in range(2):
            text, cut = await _reply(run, asked, cool, "extract")
            answer = None if cut else read_answer(text, self.answer)
            if answer is not None:
                return answer
            asked = asked.assistant(text, origin="model") if text.strip() else asked
            asked = asked.user(self.prompts.fill("again", wanted=self._wanted))
        raise Unreadable(
            f"asked twice for the answer, the model did not reply with {self._wanted}"
        )

    def _opening(self, conversation: Conversation) -> Conversation:
        """The caller's conversation, the examples behind its system message, and the instruction at its end."""
        given = conversation.messages
        first = next(
            (place for place, message in enumerate(given) if message.role != "system"),
            0,
        )
        opened = Conversation(given[:first])
        for example in self.examples:
            shown = self.prompts.fill(
                "example", reasoning=example.reasoning, answer=example.answer
            )
            opened = opened.user(example.question).assistant(shown)
        return opened.add(*given[first:]).user(self.prompts.fill("steps"))

    def _question(self, sample: Sample) -> Conversation:
        """The reasoning and the question for its answer."""
        trigger = "extract_from_cut" if sample.cut else "extract"
        return sample.after(sample.opened).user(
            self.prompts.fill(trigger, wanted=self._wanted)
        )

    @property
    def _wanted(self) -> str:
        return self.prompts.fill(
            self.answer if isinstance(self.answer, str) else "json"
        )

    @property
    def _warm(self) -> float | None:
        return (
            WARM if self.temperature is None and self.samples > 1 else self.temperature
        )


async def _reply(
    run: Run, conversation: Conversation, temperature: float | None, purpose: str
) -> tuple[str, bool]:
    """The model's reply, and whether the token limit cut it off."""
    try:
        return await run.ask(
            conversation, sampling=Sampling(temperature=temperature), purpose=purpose
        ), False
    except AskFailed as failure:
        if not failure.cut:
            raise
        return failure.text, True
