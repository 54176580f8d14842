"""What a search over thoughts is about: the protocol of a problem, and the problem whose states are plain text."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from ..parsing import Tokenizer, read_value
from ..prompts import PromptSet

State = TypeVar("State")
Judgement: TypeAlias = str | Sequence[str] | float

PROMPTS = PromptSet(
    thought="""\
Your reasoning so far:
{state}

Write the next step of the reasoning, and only that one step, in a few sentences. If this step finishes the task, end \
it with a line `ANSWER:` and the final answer.""",
    propose="""\
Your reasoning so far:
{state}

Propose different ways to go on, each one a single next step. Begin each of them on a line of its own with `THOUGHT:`. \
If a step finishes the task, end it with a line `ANSWER:` and the final answer.""",
    judge="""\
Someone works on the task above. The reasoning so far:
{state}

How likely does this lead to a correct and complete answer? Look for mistakes and dead ends before you decide.
{scale}""",
    judge_answer="""\
Someone worked on the task above. The reasoning:
{state}

The final answer: {answer}

Is this answer correct and complete? Check it against the task before you decide.
{scale}""",
    score="End with a line `Score: N`, where N goes from 0 (hopeless) to 10 (certain).",
    label="End with a line that is exactly one of these words: {labels}.",
    vote="""\
Here are {count} candidates for going on with the task above.

{candidates}

Compare them. End with a line `The best choice is N`, where N is the number of one candidate.""",
    conclude="""\
Your reasoning so far:
{state}

There are no more steps. Give the final answer now, on a line that begins with `ANSWER:`.""",
)

NOTHING_YET = "(nothing yet)"
_ITEM = re.compile(
    r"^[ \t]*+(?:[-*+\u2022]|\d{1,3}+[.)])[ \t]++(?=[*_]{0,3}thought\b)",
    re.IGNORECASE | re.MULTILINE,
)
_TOKENIZER = Tokenizer(
    {"answer": "answer", "final": "final answer", "thought": "thought"}
)


@runtime_checkable
class ThoughtProblem(Protocol[State]):
    """A problem with states of its own: what is asked of the model there, and how its replies are read.

    It is pure: it writes prompts and reads replies, and the engine makes the calls. A state is an immutable value, so
    that going back to an earlier one costs nothing.
    """

    def start(self, task: str) -> State:
        """The state before the first thought."""
        ...

    def render(self, state: State) -> str:
        """The state as text, for the model and for people; states with the same text are the same state."""
        ...

    def propose(self, state: State) -> str:
        """The prompt that asks for thoughts which lead on from a state."""
        ...

    def read(self, state: State, reply: str) -> Sequence[tuple[str, float]]:
        """The thoughts in a reply to that prompt, in order, each with a weight such as the model's confidence.

        Depth-first search tries the heaviest first, by the sum over all replies. An unreadable reply has none.
        """
        ...

    def refuse(self, state: State, thought: str) -> str | None:
        """Why a thought cannot be applied to a state, or `None` if it can."""
        ...

    def apply(self, state: State, thought: str) -> State:
        """The state that a thought leads to."""
        ...

    def judge(self, state: State) -> Judgement:
        """The prompt, or the prompts, by which a state is judged, or its value where that is known without asking.

        A finished state may need another prompt than an open one.
        """
        ...

    def answer(self, state: State) -> str | None:
        """The answer that a finished state holds, or `None` if the state is open."""
        ...


@dataclasses.dataclass(frozen=True)
class TextThoughts:
    """Any task, as a chain of thoughts in plain text; a thought with a line `ANSWER: …` finishes it.

    Args:
        prompts: see `PROMPTS`.
        several: whether one reply proposes several thoughts (after `THOUGHT:` markers) or is a thought itself.
        labels: the words of the judge's scale; `None` is a number from 0 to 10.
    """

    prompts: PromptSet = PROMPTS
    several: bool = False
    labels: Mapping[str, float] | None = None

    def start(self, task: str) -> tuple[str, ...]:
        """No thought yet; the task stands in the conversation in which everything is asked."""
        return ()

    def render(self, state: tuple[str, ...]) -> str:
        """The thoughts, one below the other."""
        return "\n".join(state) or NOTHING_YET

    def propose(self, state: tuple[str, ...]) -> str:
        """Ask for one thought or several."""
        return self.prompts.fill(
            "propose" if self.several else "thought", state=self.render(state)
        )

    def read(self, state: tuple[str, ...], reply: str) -> Sequence[tuple[str, float]]:
        """The reply, or what stands behind its `THOUGHT:` markers."""
        if not self.several:
            return [(reply.strip(), 1.0)]
        reply = _ITEM.sub("", reply)
        tokens = [
            token
            for token in _TOKENIZER.tokenize(reply).tokens
            if token.kind == "thought"
        ]
        ends = [token.start for token in tokens[1:]] + [len(reply)]
        return [
            (reply[token.value_start : end].strip(), 1.0)
            for token, end in zip(tokens, ends, strict=False)
        ]

    def refuse(self, state: tuple[str, ...], thought: str) -> str | None:
        """Refuse a thought without text."""
        return None if thought else "it is empty"

    def apply(self, state: tuple[str, ...], thought: str) -> tuple[str, ...]:
        """Append the thought."""
        return (*state, thought)

    def judge(self, state: tuple[str, ...]) -> str:
        """Ask how promising the reasoning is or, if it is finished, whether the answer is right."""
        words = ", ".join(self.labels or ())
        scale = (
            self.prompts.fill("label", labels=words)
            if self.labels
            else self.prompts.fill("score")
        )
        answer = self.answer(state)
        if answer is None:
            return self.prompts.fill("judge", state=self.render(state), scale=scale)
        return self.prompts.fill(
            "judge_answer", state=self.render(state), answer=answer, scale=scale
        )

    def answer(self, state: tuple[str, ...]) -> str | None:
        """What the last thought says behind `ANSWER:`."""
        return (marked_answer(state[-1]) if state else None) or None


def marked_answer(text: str) -> str | None:
    """The text behind the last `ANSWER:` at a line start; empty if nothing is there, `None` without such a marker."""
    tokens = _TOKENIZER.tokenize(text).tokens
    for index in reversed(range(len(tokens))):
        if tokens[index].kind != "thought":
            return read_value(text, tokens, index)
    return None
