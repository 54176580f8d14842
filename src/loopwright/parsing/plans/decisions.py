"""What a model says about a plan at work: whether it is finished, and the result of a step."""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from ..tokenizer import Tokenizer

Join: TypeAlias = Literal["finish", "replan", "continue"]

MAX_DECISION = 40  # characters that are read of a decision

_DECISION = Tokenizer({"decision": "decision", "action": "action"})
_RESULT = Tokenizer({"result": "step result", "answer": "final answer"})
_FIRST_WORD = re.compile(r"\w+")
_DECISIONS: dict[str, Join] = {
    "finish": "finish",
    "replan": "replan",
    "continue": "continue",
}


def read_join(text: str) -> Join | None:
    """Return what a reply decides about a plan; `None` if it decides nothing, or several things.

    The decision is the first word behind `Decision:` (or `Action:`, as in LLMCompiler), or the
    reply's first word.
    """
    words = (_FIRST_WORD.search(stated.strip()) for stated in _iterate_decisions(text))
    decisions = {word[0].casefold() for word in words if word}
    return _DECISIONS.get(decisions.pop()) if len(decisions) == 1 else None


def _iterate_decisions(text: str) -> Iterator[str]:
    """Iterate over the beginnings of the texts behind markers of a decision, or of the whole text
    without any.
    """
    tokens = _DECISION.tokenize(text).tokens
    if not tokens:
        yield text.lstrip()[:MAX_DECISION]
    for token in tokens:
        yield text[token.value_start : token.value_start + MAX_DECISION]


def read_result(answer: str) -> str:
    """Return an answer without the words `Step result:` or `Final answer:` at its start."""
    text = answer.strip()
    tokens = _RESULT.tokenize(text).tokens
    if not tokens or tokens[0].start > 0:
        return text
    result = text[tokens[0].value_start :].strip()
    markup = tokens[0].markup
    return result.removesuffix(markup).rstrip() if markup else result
