"""References of a plan's steps to the results of other steps: `$1`, `${1}`, `#E1`."""

import re
from collections.abc import Callable, Collection, Mapping

from ..._internal.regex import compile_late

CONTEXT = 20  # characters before and behind a `$5` that may say that it is an amount

# After `$`: no letter (`$5M`), no decimals (`$1.50`, `$1,000`), no word of magnitude. `${1}` and `#E1` are never money.
REFERENCE = compile_late(
    r"\$\{(\d{1,4})\}|#E(\d{1,4})(?!\w)"
    r"|(?<![\w$\\])\$(?P<plain>\d{1,4}+)(?!\w|\.\d|,\d{3}(?!\d)|\s(?:thousand|million|billion|trillion|dollars?)\b)",
    re.IGNORECASE,
)
_MONEY_BEFORE = compile_late(
    r"\b(?:under|below|above|than|at least|at most|up to|worth|costs?|pays?|spends?)\s*\Z",
    re.IGNORECASE,
)
_STEP_MENTION = compile_late(  # "the result of step 1"
    r"\b(?:step|task)[ _]?#?(\d{1,4})\b", re.IGNORECASE
)
_PLACEHOLDER = compile_late(  # `{step1}`, `{{E1}}`, `$step1`, `<result of step 1>`: meant as references, but not read so
    r"\{[ \t]*+(?:step|task|result|output|E)[ _]?(\d{1,4})[^{}\n]{0,20}\}|\$\{?(?:step|task|E)_?(\d{1,4})\b\}?"
    r"|\b(?:results?|outputs?|answers?|values?) (?:of|from) (?:step|task) ?#?(\d{1,4})\b",
    re.IGNORECASE,
)
_BEFORE_VALUE = "\"'([{,=+*/-"
_BEHIND_VALUE = "\"')]},+*/-"


def find_references(
    text: str, own: int, known: Collection[int], *, prose: bool
) -> tuple[int, ...]:
    """Return the ids of the results that the text of step `own` refers to, in order: `$1`, `${1}`,
    `#E1`.

    `$5` can be an amount of money. In a call it is a reference if there is a step 5, and if there
    is none (so that it is dangling) where it is a value by itself. In prose it is a reference if it
    names an earlier step, unless a word such as "under" stands before it. An ambiguous one is a
    reference if there are others beside it.
    """
    certain: list[int] = []
    ambiguous: list[int] = []
    for match in REFERENCE.finditer(text):
        number = get_reference_number(match)
        if match["plain"] is None:
            certain.append(number)
        elif prose and _MONEY_BEFORE.search(_get_text_before(match)):
            continue
        elif _is_certain(match, own, known, prose=prose):
            certain.append(number)
        else:
            ambiguous.append(number)
    return tuple(dict.fromkeys(certain + ambiguous)) if certain else ()


def _is_certain(
    match: re.Match[str], own: int, known: Collection[int], *, prose: bool
) -> bool:
    """Return whether `$5` is a reference whatever else the text holds."""
    number = get_reference_number(match)
    if prose:
        return number in known and number < own
    return number in known or _is_whole_value(match)


def get_reference_number(match: re.Match[str]) -> int:
    """Return the id of the step that a match of `REFERENCE` refers to."""
    return int(match[1] or match[2] or match["plain"])


def find_step_mentions(text: str, own: int, known: Collection[int]) -> tuple[int, ...]:
    """Return the earlier steps that a text names in words: `step 1`."""
    mentioned = dict.fromkeys(map(int, _STEP_MENTION.findall(text)))
    return tuple(number for number in mentioned if number in known and number < own)


def find_placeholder(text: str, own: int) -> str:
    """Return what looks like a reference to a step before `own` but is not one, or an empty text."""
    for found in _PLACEHOLDER.finditer(text):
        digits = found[1] or found[2] or found[3]
        if int(digits) < own:
            return found[0]
    return ""


def insert_results(text: str, results: Mapping[int, str]) -> str:
    """Return the text with each reference to one of `results` replaced; inserted text is not
    searched again.
    """
    return REFERENCE.sub(_build_replacement(results), text)


def _build_replacement(results: Mapping[int, str]) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        return results.get(get_reference_number(match), match[0])

    return replace


def _get_text_before(match: re.Match[str]) -> str:
    return match.string[max(match.start() - CONTEXT, 0) : match.start()]


def _is_whole_value(match: re.Match[str]) -> bool:
    """Return whether only brackets, quotes, signs or nothing stand beside a reference."""
    behind = match.string[match.end() : match.end() + CONTEXT]
    last_before = _get_text_before(match).rstrip()[-1:]
    first_behind = behind.lstrip()[:1]
    # an empty text is in any text: a reference may stand at either end
    return last_before in _BEFORE_VALUE and first_behind in _BEHIND_VALUE
