"""The forms in which values may have been recorded when only some of their secrets were known."""

import itertools
import re
from collections.abc import Iterable
from typing import Any

from .heuristics import REDACTED

_HIDDEN = re.compile(f"((?:{re.escape(REDACTED)})+)")
MAX_SECRETS = 8
"""Of a text with more, and beyond as many forms as these have, only some forms are listed."""
MAX_FORMS = 2**MAX_SECRETS


def list_forms(plain: Any, clean: Any) -> list[Any]:
    """Return a JSON value with each choice of its secrets taken out, `MAX_FORMS` at most; `clean` is without all."""
    match plain, clean:
        case dict(), dict() if plain.keys() == clean.keys():
            chosen = _combine(list_forms(plain[name], clean[name]) for name in plain)
            return [dict(zip(plain, values, strict=True)) for values in chosen]
        case list(), list() if len(plain) == len(clean):
            return [*map(list, _combine(map(list_forms, plain, clean)))]
        case str(), str():
            return _list_text_forms(plain, clean)
        case _:
            return [plain] if plain == clean else [clean, plain]


def _list_text_forms(plain: str, clean: str) -> list[str]:
    """Return a text with each choice of its secrets; those right behind one another are taken for one."""
    first, *rest = _HIDDEN.split(clean)
    if len(rest) > 2 * MAX_SECRETS:
        return [clean, plain]
    parts: list[list[str]] = [[first]]
    position = len(first)
    for hidden, kept in zip(rest[::2], rest[1::2], strict=True):
        found = plain.find(kept, position + 1) if kept else len(plain)
        secret = plain[position:found]
        parts.append([hidden + kept, secret + kept])
        position = found + len(kept)
    forms = ["".join(chosen) for chosen in _combine(map(_drop_repeated, parts))]
    return _drop_repeated([*forms, plain])


def _drop_repeated(forms: list[str]) -> list[str]:
    return list(dict.fromkeys(forms))


def _combine(forms: Iterable[list[Any]]) -> list[tuple[Any, ...]]:
    """Return each choice of one form of each value."""
    return list(itertools.islice(itertools.product(*forms), MAX_FORMS))
