"""Code fences in model text: their positions and their contents."""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from .._internal.regex import compile_late

MAX_FENCES = 10_000
LINE_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"  # the line ends that `str.splitlines` knows, for regex classes
BLANK = rf"[^\S{LINE_BREAKS}]"
FENCE_STARTS = ("```", "~~~")

Span: TypeAlias = tuple[int, int]

_FENCE_RUN = compile_late("`{3,}+|~{3,}+")
_REST_IS_BLANK = compile_late(rf"{BLANK}*+(?:[{LINE_BREAKS}]|\Z)")


class _OpenFence:
    """The run of backticks or tildes that opens a code fence.

    Args:
        run: the match of the run.
        line_end: where the line of the run ends.
    """

    def __init__(self, run: re.Match[str], line_end: int) -> None:
        self.run = run
        self.line_end = line_end
        self.start = run.start()
        self._delimiter = run[0]

    def is_closed_by(self, run: re.Match[str]) -> bool:
        """Return whether a later run closes the fence."""
        if not run[0].startswith(self._delimiter):
            return False
        if run.start() < self.line_end:
            return True
        return _REST_IS_BLANK.match(run.string, run.end()) is not None


def find_fences(text: str) -> tuple[list[Span], int | None]:
    """Return the spans of the code fences, and where one starts that never closes (or the
    10,000th).

    A fence is a run of three or more backticks or tildes, anywhere in a line. It closes with as
    long a run of the same kind, on the same line or at the end of a later one (CommonMark 0.31,
    section 4.5, and inline code).
    """
    spans: list[Span] = []
    if not any(start in text for start in FENCE_STARTS):
        return spans, None
    runs = list(itertools.islice(_FENCE_RUN.finditer(text), MAX_FENCES + 1))
    opening: _OpenFence | None = None
    line_end = -1
    for run in runs[:MAX_FENCES]:
        if opening is None:
            if run.start() >= line_end:  # else the end of this line is known already
                line_end = _find_line_end(text, run.start())
            opening = _OpenFence(run, line_end)
        elif opening.is_closed_by(run):
            spans.append((opening.start, run.end()))
            opening = None
    if opening is not None:
        return spans, opening.start
    return spans, runs[MAX_FENCES].start() if len(runs) > MAX_FENCES else None


class FenceCursor:
    """Answers whether ascending positions are inside code fences, in one pass over the spans of the
    fences.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._next = 0

    def contains(self, position: int) -> bool:
        """Return whether a position, not before the one asked for last, is inside a fence."""
        spans = self._spans
        while self._next < len(spans) and spans[self._next][1] <= position:
            self._next += 1
        return self._next < len(spans) and spans[self._next][0] <= position


def iterate_fence_contents(text: str) -> Iterator[str]:
    """Iterate over the contents of the closed code fences of a text."""
    spans, _ = find_fences(text)
    for start, _ in spans:
        yield read_fence(text, start)[0]


def _find_line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def read_fence(text: str, start: int = 0) -> tuple[str, int]:
    """Return the contents of the code fence at `start`, and where it ends; raise ValueError if it
    does not close.
    """
    runs = itertools.islice(_FENCE_RUN.finditer(text, start), MAX_FENCES)
    first = next(runs, None)
    if first is None or first.start() != start:
        raise ValueError("no code fence starts here")
    opening = _OpenFence(first, _find_line_end(text, start))
    for run in runs:
        if opening.is_closed_by(run):
            contents = text[first.end() : run.start()]
            if run.start() < opening.line_end:
                return _strip_inline_language(contents), run.end()
            return _strip_language_line(contents), run.end()
    raise ValueError("a code fence is never closed")


def _strip_inline_language(contents: str) -> str:
    """Return the contents of a fence on one line without the word `json` before them."""
    first_word, _, rest = contents.partition(" ")
    return rest if first_word.strip().casefold() == "json" else contents


def _strip_language_line(contents: str) -> str:
    """Return the contents of a fence of several lines without the line that names the language."""
    first_line, _, rest = contents.partition("\n")
    return rest if _is_language_name(first_line.strip()) else contents


def _is_language_name(text: str) -> bool:
    return all(char.isalnum() or char in "_+.#-" for char in text)
