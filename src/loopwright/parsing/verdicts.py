"""Verdicts in model text: one word or its contrary, read strictly."""

import re

NEAR = 60  # characters before the word in which a negation counts

_NEGATION = re.compile(r"\b(?:not|never|no|hardly|isn't|aren't|wasn't|cannot be)\W+(?:\w+\W+){0,2}$", re.IGNORECASE)


def read_verdict(text: str, word: str) -> bool | None:
    """Whether a text says `word` (such as "SATISFACTORY") or its contrary; `None` if it says neither.

    The contrary is the word with `UN` or `IN` before it, a negation before it, or a question mark behind it. The first
    line with the word counts in any case of letters, later ones where the word is in capitals. Everything that is said
    must agree: one contrary makes the verdict `False`.
    """
    said: list[bool] = []
    pattern = re.compile(rf"\b(un|in)?{re.escape(word)}\b\W{{0,3}}", re.IGNORECASE)
    for line in text.splitlines():
        for found in pattern.finditer(line):
            if said and not found[0].strip("?!.,:;*_ ").isupper():
                continue
            against = found[1] or "?" in found[0] or _NEGATION.search(line[max(found.start() - NEAR, 0) : found.start()])
            said.append(not against)
    return all(said) if said else None
