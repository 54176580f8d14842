"""Thought decomposition of a Tree of Thoughts search: states, prompts and readers of a problem."""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from .._internal import dataclasses
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
    """The states of a problem, the prompts for the model, and the readers of its replies.

    All methods are pure: the problem writes prompts and reads replies, and the engine makes the calls. A state is an
    immutable value, so that backtracking costs nothing.
    """

    def start(self, task: str) -> State:
        """Return the state before the first thought."""
        ...

    def render(self, state: State) -> str:
        """Return the state as text, for the model and for people; equal texts are equal states."""
        ...

    def propose(self, state: State) -> str:
        """Return the prompt that asks for the next thoughts of a state."""
        ...

    def read(self, state: State, reply: str) -> Sequence[tuple[str, float]]:
        """Return the thoughts in a reply to that prompt, in order, each with a weight.

        A weight is for example the model's confidence. Depth-first search tries the heaviest thoughts first, by the
        sum over all replies. An unreadable reply has no thoughts.
        """
        ...

    def refuse(self, state: State, thought: str) -> str | None:
        """Return why a thought cannot be applied to a state, or `None` if it can."""
        ...

    def apply(self, state: State, thought: str) -> State:
        """Return the state that a thought leads to."""
        ...

    def judge(self, state: State) -> Judgement:
        """Return the prompt or prompts that evaluate a state, or its value if it is known without a call.

        A finished state may need another prompt than an open one.
        """
        ...

    def answer(self, state: State) -> str | None:
        """Return the answer of a finished state, or `None` if the state is open."""
        ...


@dataclasses.dataclass(frozen=True)
class TextThoughts:
    """Any task as a chain of thoughts in plain text; a thought with a line `ANSWER: …` finishes it.

    Args:
        prompts: see `PROMPTS`.
        several: whether a reply proposes several thoughts (after `THOUGHT:` markers) or is one thought.
        labels: the labels of the evaluation scale; `None` is a number from 0 to 10.
    """

    prompts: PromptSet = PROMPTS
    several: bool = False
    labels: Mapping[str, float] | None = None

    def start(self, task: str) -> tuple[str, ...]:
        """Return the empty chain; the task is in the conversation of every call."""
        return ()

    def render(self, state: tuple[str, ...]) -> str:
        """Return the thoughts, one a line."""
        return "\n".join(state) or NOTHING_YET

    def propose(self, state: tuple[str, ...]) -> str:
        """Ask for one thought or several."""
        name = "propose" if self.several else "thought"
        return self.prompts.fill(name, state=self.render(state))

    def read(self, state: tuple[str, ...], reply: str) -> Sequence[tuple[str, float]]:
        """Return the reply, or the texts after its `THOUGHT:` markers."""
        if not self.several:
            return [(reply.strip(), 1.0)]
        reply = _ITEM.sub("", reply)
        tokens = [t for t in _TOKENIZER.tokenize(reply).tokens if t.kind == "thought"]
        ends = [token.start for token in tokens[1:]] + [len(reply)]
        return [
            (reply[token.value_start : end].strip(), 1.0)
            for token, end in zip(tokens, ends, strict=False)
        ]

    def refuse(self, state: tuple[str, ...], thought: str) -> str | None:
        """Refuse an empty thought."""
        return None if thought else "it is empty"

    def apply(self, state: tuple[str, ...], thought: str) -> tuple[str, ...]:
        """Append the thought."""
        return (*state, thought)

    def judge(self, state: tuple[str, ...]) -> str:
        """Ask how promising the reasoning is or, if it is finished, whether the answer is correct."""
        scale = self.prompts.fill("score")
        if self.labels:
            scale = self.prompts.fill("label", labels=", ".join(self.labels))
        reasoning, answer = self.render(state), self.answer(state)
        if answer is None:
            return self.prompts.fill("judge", state=reasoning, scale=scale)
        return self.prompts.fill(
            "judge_answer", state=reasoning, answer=answer, scale=scale
        )

    def answer(self, state: tuple[str, ...]) -> str | None:
        """Return the text after `ANSWER:` in the last thought."""
        return (extract_marked_answer(state[-1]) if state else None) or None


def extract_marked_answer(text: str) -> str | None:
    """Return the text after the last `ANSWER:` at a line start.

    It is empty if nothing follows the marker, and `None` without a marker.
    """
    tokens = _TOKENIZER.tokenize(text).tokens
    for index in reversed(range(len(tokens))):
        if tokens[index].kind != "thought":
            return read_value(text, tokens, index)
    return None
