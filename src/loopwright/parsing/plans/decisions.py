"""What a model says about a plan at work: whether it is finished, and the result of a step."""

import re
from collections.abc import Iterator

from ..tokenizer import Tokenizer

MAX_DECISION = 40  # characters that are read of a decision

_DECISION = Tokenizer({"decision": "decision", "action": "action"})
_RESULT = Tokenizer({"result": "step result", "answer": "final answer"})
_FIRST_WORD = re.compile(r"\w+")
_DECISIONS = {frozenset({"finish"}): True, frozenset({"replan"}): False}


def read_join(text: str) -> bool | None:
    """Return whether a reply decides to finish (`True`) or to plan again (`False`); `None` if it
    says neither or both.

    The decision is the first word behind `Decision:` (or `Action:`, as in LLMCompiler), or the
    reply's first word.
    """
    words = (_FIRST_WORD.search(stated.strip()) for stated in _iterate_decisions(text))
    decisions = frozenset(word[0].casefold() for word in words if word)
    return _DECISIONS.get(decisions)


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
