"""Chain of Thought: reason step by step, then extract the answer; several reasoning paths may vote."""

import functools
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from .._internal import dataclasses
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
from ..messages import Conversation, Proposal
from ..parsing.answers import (
    AnswerType,
    read_answer,
    read_closing_answer,
    read_equal_numbers,
    read_options,
)
from ..parsing.thinking import strip_thinking
from ..prompts import PromptSet
from ..run import Run, Sampling
from .self_consistency import Vote

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
SAMPLING_TEMPERATURE = 0.7  # at which reasoning paths differ (Wang et al.)


@dataclasses.dataclass(frozen=True)
class Example:
    """A worked example: shown to the model before the real question."""

    question: str
    reasoning: str
    answer: str


@dataclasses.dataclass(frozen=True)
class AmbiguousAnswer:
    """Fact: asked twice for the answer, the model named several; the first of the last reply was taken.

    Args:
        taken: the answer.
        named: all that the reply names, in order.
    """

    taken: str
    named: tuple[str, ...]


@dataclasses.dataclass
class ReasoningPath:
    """One sampled chain of thought.

    Args:
        prompt: the conversation that asks for the reasoning.
        texts: the reasoning; more than one text if it was continued.
        is_truncated: whether its end is missing.
        answer: the answer that it leads to.
        error: why it has no answer.
    """

    prompt: Conversation
    texts: list[str] = dataclasses.field(default_factory=list[str])
    is_truncated: bool = False
    answer: str | None = None
    error: LoopwrightError | None = None

    def append_to(self, conversation: Conversation) -> Conversation:
        """Return the conversation with this reasoning, if any, at its end."""
        if not self.texts:
            return conversation
        return conversation.assistant("\n".join(self.texts), origin="model")


class ChainOfThoughtEngine(LoopEngine):
    """Reason step by step, then extract the answer by a second, short call (Kojima et al., arXiv:2205.11916).

    With `samples` several reasoning paths are sampled and their answers vote (self-consistency, Wang et al.,
    arXiv:2203.11171); the `Vote` so far is noted after each wave. `examples` are few-shot examples (Wei et al.,
    arXiv:2201.11903). No tools are used. Reasoning that the token limit truncated is continued; if its end is still
    missing, the second call is told so, and no answer is read from the reasoning. At a limit, the majority so far is
    the answer, or a best-effort answer of the type. A sample makes 1 to 3 + `max_continuations` model calls, and one
    more with a pydantic model.

    Args:
        answer: its type: "text", "number", "letter" (A to E), "yes_no", or a pydantic model (then the answer is JSON).
        samples: reasoning paths that vote.
        wave: samples asked before each check whether the vote is decided.
        max_concurrency: concurrent samples; `None` is the whole wave, 1 is sequential.
        temperature: of the reasoning; `None` is the provider's own for one sample and 0.7 for several.
        extract: the second call: "auto" skips it if the reasoning ends with a readable "Final answer: …" or "The
            answer is …" (the prompt `steps` may ask for such an ending), "always" makes it in any case.
        examples: worked examples, shown first.
        max_continuations: how often truncated reasoning is continued.
        fallback: an engine that gets the task if the samples agree too little (CoT-SC to ReAct, Yao et al.,
            arXiv:2210.03629); if it has no answer of the type, the majority counts.
        min_agreement: share of the samples below which `fallback` gets the task.
    """

    name = "chain-of-thought"
    offers_tools = False
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
        """Refuse an example whose answer is not of the type."""
        super().__post_init__()
        for number, example in enumerate(self.examples):
            if read_answer(example.answer, self.answer) is None:
                raise ConfigError(
                    f"examples.{number}: its answer is not {self._wanted}, got {example.answer!r}"
                )

    async def solve(self, run: Run) -> str:
        """Sample reasoning paths until the vote is decided; return the majority's answer."""
        prompt = self._prompt(run.conversation)
        paths: list[ReasoningPath] = []
        vote = Vote.of((), self.answer, self.samples)
        threshold = 0.0 if self.fallback is None else self.min_agreement
        try:
            while not vote.is_decided(threshold):
                wave = await self._sample_wave(run, prompt, len(paths))
                paths += wave
                vote = self._count_votes(run, paths)
                if all(isinstance(path.error, ProviderError) for path in wave):
                    break  # the provider is down: more samples would fail as well
            answer = vote.winner
            if self.fallback is not None and vote.agreement < threshold:
                answer = await self._fall_back(run, self.fallback) or answer
            if answer is None:
                raise _choose_error(paths)
            return answer
        except LimitReached:
            if vote.winner is not None:
                raise  # the winner was offered, so it is the run's answer
            answer = await self._best_effort(run, prompt, paths)
            if answer is None:
                raise
            return answer

    async def _sample_wave(
        self, run: Run, prompt: Conversation, asked: int
    ) -> list[ReasoningPath]:
        """Sample as many reasoning paths as one wave has."""
        size = min(self.wave, self.samples - asked)
        first: Sequence[Proposal | None] = [None] * size
        if size > 1 and run.can_sample():
            try:
                first = await run.samples(
                    prompt, size, tools=False, sampling=self._sampling, purpose="think"
                )
            except ProviderError as error:
                return [ReasoningPath(prompt, error=error)] * size
        works = [functools.partial(self._sample, prompt, begun) for begun in first]
        return await run.gather(*works, max_concurrency=self.max_concurrency)

    def _count_votes(self, run: Run, paths: list[ReasoningPath]) -> Vote:
        """Count, note and offer the vote so far, and keep the winner's reasoning."""
        vote = Vote.of([path.answer for path in paths], self.answer, self.samples)
        if self.samples > 1:
            run.note(vote)
        if vote.winner is not None:
            run.offer(vote.winner)
        best = max(
            paths,
            key=lambda path: (path.answer == vote.winner, path.texts != []),
        )
        run.keep(best.append_to(run.conversation))
        return vote

    async def _fall_back(self, run: Run, fallback: LoopEngine) -> str | None:
        """Return the other engine's answer; `None` if it is denied or gives none of the type."""
        try:
            result = await run.delegate(fallback, run.conversation)
        except Denied:
            return None
        if result.status != "completed":
            return None
        return read_answer(result.answer or "", self.answer)

    async def _best_effort(
        self, run: Run, prompt: Conversation, paths: list[ReasoningPath]
    ) -> str | None:
        """Ask for the answer by the reserved call, after the first reasoning there is."""
        reasoned = [path for path in paths if path.texts]
        path = reasoned[0] if reasoned else ReasoningPath(prompt)
        reply = await run.best_answer(self._extraction_prompt(path))
        return read_answer(reply, self.answer)

    # --- one sample ---

    async def _sample(
        self, prompt: Conversation, begun: Proposal | None, run: Run
    ) -> ReasoningPath:
        """Sample one reasoning path with its answer; an error costs this path its vote.

        One that has `begun` was sampled together with others.
        """
        path = ReasoningPath(prompt)
        try:
            await self._reason(run, path, begun)
            path.answer = await self._extract(run, path)
        except (LimitReached, ProviderError, AskFailed, Unreadable) as error:
            path.error = error
        return path

    async def _reason(
        self, run: Run, path: ReasoningPath, begun: Proposal | None
    ) -> None:
        """Reason step by step; continue what the token limit truncated."""
        prompt = path.prompt
        for _ in range(1 + self.max_continuations):
            if begun is None:
                text, is_cut = await _reply(run, prompt, self._sampling, "think")
            else:
                text, is_cut, begun = *_read_sample(begun), None
            has_text = text.strip() != ""
            # An empty continuation brings no end.
            path.is_truncated = is_cut or (path.is_truncated and not has_text)
            if has_text:
                path.texts.append(text)
            if not path.is_truncated:
                return
            prompt = path.append_to(path.prompt).user(self.prompts.fill("go_on"))

    async def _extract(self, run: Run, path: ReasoningPath) -> str:
        """Return the answer that the reasoning ends with, or extract it by a second call."""
        answer = self._read_ending(path)
        if answer is not None:
            return answer
        prompt = self._extraction_prompt(path)
        sampling = Sampling()
        if self._sampling.temperature is not None:
            sampling = Sampling(temperature=0.0)
        if not isinstance(self.answer, str):
            found = await run.ask(
                prompt, into=self.answer, sampling=sampling, purpose="extract"
            )
            return found.model_dump_json(by_alias=True)
        for attempt in range(2):
            text, is_cut = await _reply(run, prompt, sampling, "extract")
            answer = None if is_cut else read_answer(text, self.answer)
            if answer is None and not is_cut:
                answer = self._choose_option(run, text, is_last=attempt == 1)
            if answer is not None:
                return answer
            if text.strip():
                prompt = prompt.assistant(text, origin="model")
            prompt = prompt.user(self.prompts.fill("again", wanted=self._wanted))
        raise Unreadable(
            f"asked twice for the answer, the model did not reply with {self._wanted}"
        )

    def _choose_option(self, run: Run, text: str, *, is_last: bool) -> str | None:
        """Return the number that a reply gives in several forms; of the last reply, the first answer of those it names."""
        number = read_equal_numbers(text) if self.answer == "number" else None
        options = read_options(text, self.answer) if is_last else []
        is_ambiguous = number is None and len(options) > 1
        is_chosen = number is not None or is_ambiguous
        if not is_chosen or not run.patched("chain-of-thought.options"):
            return None
        if is_ambiguous:
            run.note(AmbiguousAnswer(options[0], tuple(options)))
        return number or options[0]

    def _read_ending(self, path: ReasoningPath) -> str | None:
        """Return the answer that complete reasoning ends with.

        An answer that spans a continuation is not read.
        """
        if self.extract != "auto" or path.is_truncated or not path.texts:
            return None
        return read_closing_answer(path.texts[-1], self.answer)

    def _prompt(self, conversation: Conversation) -> Conversation:
        """Return the caller's conversation with the examples and the step-by-step instruction.

        The examples follow its system message.
        """
        messages = conversation.messages
        others = [i for i, m in enumerate(messages) if m.role != "system"]
        first = others[0] if others else 0
        prompt = Conversation(messages[:first])
        for example in self.examples:
            shown = self.prompts.fill(
                "example", reasoning=example.reasoning, answer=example.answer
            )
            prompt = prompt.user(example.question).assistant(shown)
        return prompt.add(*messages[first:]).user(self.prompts.fill("steps"))

    def _extraction_prompt(self, path: ReasoningPath) -> Conversation:
        """Return the reasoning, followed by the request for its answer."""
        name = "extract_from_cut" if path.is_truncated else "extract"
        trigger = self.prompts.fill(name, wanted=self._wanted)
        return path.append_to(path.prompt).user(trigger)

    @property
    def _wanted(self) -> str:
        name = self.answer if isinstance(self.answer, str) else "json"
        return self.prompts.fill(name)

    @property
    def _sampling(self) -> Sampling:
        """The settings of the reasoning; a temperature that a person chose is not left out."""
        if self.temperature is not None:
            return Sampling(temperature=self.temperature).require()
        if self.samples > 1:
            return Sampling(temperature=SAMPLING_TEMPERATURE)
        return Sampling()


def _choose_error(paths: list[ReasoningPath]) -> LoopwrightError:
    """Return the error to raise if no path has an answer: a limit, else the first one."""
    errors = [path.error for path in paths if path.error is not None]
    limits = [error for error in errors if isinstance(error, LimitReached)]
    return (limits or errors)[0]


def _read_sample(proposal: Proposal) -> tuple[str, bool]:
    """Return the text of a sample, and whether it is truncated: then it is a thought and no answer."""
    if proposal.answer is None:
        return proposal.thought, True
    return strip_thinking(proposal.answer), False


async def _reply(
    run: Run, conversation: Conversation, sampling: Sampling, purpose: str
) -> tuple[str, bool]:
    """Return the model's reply, and whether the token limit truncated it."""
    try:
        text = await run.ask(
            conversation, sampling=sampling, purpose=purpose, again=False
        )
        return text, False
    except AskFailed as failure:
        if not failure.cut:
            raise
        return failure.text, True
