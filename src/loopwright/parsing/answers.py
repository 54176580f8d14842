"""Answers in model text: the same answer in other words, and an answer of a given kind."""

import re

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]|_")


def normalized(answer: str) -> str:
    """An answer without case, punctuation, articles and extra blanks, so that equal answers are equal texts.

    After the evaluation script of SQuAD (Rajpurkar et al., arXiv:1606.05250), for letters of every script.
    """
    return " ".join(_ARTICLES.sub(" ", _PUNCTUATION.sub("", answer.casefold())).split())
