"""Which parts of a long text are read: rows of lines, the places of a word, or what comes after an offset."""

import itertools
import re
from collections.abc import Iterator

from .._internal.regex import compile_late
from ..errors import ToolError

ALL = "all"
"""The handle of everything that the run has."""
MAX_CHARACTERS = 4_000
"""The most that one call gives back."""
MAX_MATCHES = 8
AROUND = 200
"""Characters that are shown on each side of a match."""
_LINES = compile_late(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")


def select_excerpts(
    text: str, lines: str = "", find: str = "", offset: int = 0
) -> list[tuple[int, int]]:
    """Return the parts of a text that a call asks for, as rows of characters; raise `ToolError`.

    Args:
        text: what the handle stands for.
        lines: a row of lines, counted from 1; empty for all.
        find: what the parts have; empty for any.
        offset: how many characters to skip.
    """
    if find:
        return list(_find_matches(text, find))
    start, stop = _find_lines(text, lines) if lines else (0, len(text))
    start = min(start + offset, stop)
    return [(start, min(stop, start + MAX_CHARACTERS))]


def _find_lines(text: str, lines: str) -> tuple[int, int]:
    found = _LINES.fullmatch(lines)
    if found is None:
        raise ToolError(f'lines: must be a row such as "10-40", got {lines!r:.40}')
    first = int(found[1])
    last = int(found[2] or first)
    ends = [0, *(match.end() for match in re.finditer(r"\n", text)), len(text)]
    if not 0 < first <= last:
        raise ToolError(f"lines: are counted from 1, the first first, got {lines!r:.40}")  # fmt: skip
    if first >= len(ends):
        raise ToolError(f"lines: the text has {len(ends) - 1} lines, got {lines!r:.40}")
    return ends[first - 1], ends[min(last, len(ends) - 1)]


def _find_matches(text: str, find: str) -> Iterator[tuple[int, int]]:
    """Yield the places of a text, each with some characters around; places that touch are one."""
    pattern = re.compile(re.escape(find), re.IGNORECASE)
    start = stop = -1
    for match in itertools.islice(pattern.finditer(text), MAX_MATCHES):
        first = max(match.start() - AROUND, 0)
        last = min(match.end() + AROUND, len(text), first + MAX_CHARACTERS)
        if first > stop:
            if stop >= 0:
                yield start, stop
            start = first
        stop = last
    if stop >= 0:
        yield start, stop
