"""Code fences in model text: where they start and end, and what they hold."""

import itertools
import re

MAX_FENCES = 10_000
LINE_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"  # what ends a line for str.splitlines, hence for a reader of the text
BLANK = rf"[^\S{LINE_BREAKS}]"

_FENCES = re.compile("`{3,}+|~{3,}+")
_REST_IS_BLANK = re.compile(rf"{BLANK}*+(?:[{LINE_BREAKS}]|\Z)")


def find_fences(text: str) -> tuple[list[tuple[int, int]], int | None]:
    """Where the code fences of a text start and end, and where one starts that never closes (or the 10,000th).

    A fence is a run of three or more backticks or tildes, anywhere in a line. It closes with as long a run of the same
    kind, on the same line or at the end of a later one (CommonMark 0.31, section 4.5, and inline code).
    """
    fences: list[tuple[int, int]] = []
    if "```" not in text and "~~~" not in text:
        return fences, None
    runs = list(itertools.islice(_FENCES.finditer(text), MAX_FENCES + 1))
    opening: re.Match[str] | None = None
    line_end = -1
    for run in runs[:MAX_FENCES]:
        if opening is None:
            opening = run
            line_end = (
                line_end if run.start() < line_end else _line_end(text, run.start())
            )
        elif _closes(opening, run, line_end):
            fences.append((opening.start(), run.end()))
            opening = None
    if opening is None and len(runs) > MAX_FENCES:
        opening = runs[-1]
    return fences, opening.start() if opening else None


def _closes(opening: re.Match[str], run: re.Match[str], line_end: int) -> bool:
    same_kind = run[0].startswith(opening[0])
    return same_kind and (
        run.start() < line_end
        or _REST_IS_BLANK.match(run.string, run.end()) is not None
    )


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def read_fence(text: str, start: int = 0) -> tuple[str, int]:
    """The contents of the code fence that starts at `start`, and where it ends; ValueError if it does not close."""
    runs = itertools.islice(_FENCES.finditer(text, start), MAX_FENCES)
    opening = next(runs, None)
    if opening is None or opening.start() != start:
        raise ValueError("no code fence starts here")
    line_end = _line_end(text, start)
    for run in runs:
        if _closes(opening, run, line_end):
            return _without_language(
                text[opening.end() : run.start()], run.start() < line_end
            ), run.end()
    raise ValueError("a code fence is never closed")


def _without_language(contents: str, inline: bool) -> str:
    first, _, rest = contents.partition(" " if inline else "\n")
    language = first.strip()
    if inline:
        return rest if language.casefold() == "json" else contents
    is_name = not language or all(c.isalnum() or c in "_+.#-" for c in language)
    return rest if is_name else contents
