"""Plans as numbered lines (LLMCompiler, prose) or bullets: from lines to drafts of steps."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..fences import FenceCursor, find_fences, iterate_fence_contents
from .drafts import Draft

MAX_STEP_NUMBER = 99  # a higher number at the start of a line is a year or the like

_STEP = re.compile(
    r"[ \t]*+(?:[-*+\u2022][ \t]++)?+(?:#{1,6}+[ \t]*+)?+(?P<markup>\*{1,3}+|_{1,3}+)?+[ \t]*+"
    r"(?P<word>(?:step|task)[ \t]*+#?)?+(?P<id>\d{1,4}+)(?P<closed>\*{1,3}+|_{1,3}+)?+"
    r"(?:[.):]|(?(word)[ \t]*+[-\u2013\u2014]|(?!)))(?!\d)(?P<closed_behind>\*{1,3}+|_{1,3}+)?+[ \t]*+(?P<body>.*)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"[ \t]*+[-*+\u2022][ \t]++(?:\[[ xX]?\][ \t]++)?+(?P<body>.*)")
_THOUGHT = re.compile(
    r"[ \t]*+[*_]{0,3}thought[ \t]*+\d{0,4}[*_]{0,3}:[*_]{0,3}[ \t]*+(?P<thought>.*)",
    re.IGNORECASE,
)


class _Line(NamedTuple):
    """A line without blanks at its end, and whether it begins inside a code fence."""

    text: str
    is_fenced: bool

    @property
    def indent(self) -> int:
        """Number of blanks that the line begins with."""
        return len(self.text) - len(self.text.lstrip())

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the match of the line; none inside a code fence."""
        return None if self.is_fenced else pattern.match(self.text)


def read_lists(text: str, first: int) -> list[Draft]:
    """Return the steps of the list in a text, numbered or else bulleted, outside code fences or
    else inside them.

    Raises ValueError unless numbers count up from `first` or 1.
    """
    drafts = _read_list(list(_iterate_lines(text)), first)
    return drafts or _read_list(list(_iterate_fenced_lines(text)), first)


def _read_list(lines: Sequence[_Line], first: int) -> list[Draft]:
    return _read_numbered(lines, first) or _read_bullets(lines, first)


def _iterate_lines(text: str) -> Iterator[_Line]:
    spans, unread_start = find_fences(text)
    fences = FenceCursor(spans)
    unread = len(text) if unread_start is None else unread_start
    position = 0
    for line in text.splitlines(keepends=True):
        is_fenced = fences.contains(position) or position >= unread
        yield _Line(line.rstrip(), is_fenced)
        position += len(line)


def _iterate_fenced_lines(text: str) -> Iterator[_Line]:
    for contents in iterate_fence_contents(text):
        for line in contents.splitlines():
            yield _Line(line, is_fenced=False)


def _read_numbered(lines: Sequence[_Line], first: int) -> list[Draft]:
    drafts: list[Draft] = []
    thought = ""
    for line, step in _match_items(lines, _match_step):
        if step is not None:
            _check_number(int(step["id"]), drafts, first)
            drafts.append(Draft(int(step["id"]), _read_body(step), thought))
            thought = ""
            continue
        spoken = line.match(_THOUGHT)
        if spoken is not None:
            thought = spoken["thought"].strip()
        elif drafts:
            drafts[-1].add_line(line.text, is_fenced=line.is_fenced)
    return drafts


def _read_bullets(lines: Sequence[_Line], first: int) -> list[Draft]:
    drafts: list[Draft] = []
    for line, bullet in _match_items(lines, _match_bullet):
        if bullet is not None:
            drafts.append(Draft(first + len(drafts), bullet["body"].strip()))
        elif drafts:
            drafts[-1].add_line(line.text, is_fenced=line.is_fenced)
    return drafts


def _match_items(
    lines: Sequence[_Line], match: Callable[[_Line], re.Match[str] | None]
) -> Iterator[tuple[_Line, re.Match[str] | None]]:
    """Yield each line with its match as an item of the outer list: indented no more than its first item."""
    outer: int | None = None
    for line in lines:
        item = match(line)
        if item is not None and outer is None:
            outer = line.indent
        is_outer = outer is not None and line.indent <= outer
        yield line, item if is_outer else None


def _match_step(line: _Line) -> re.Match[str] | None:
    """Return the match of a line that begins with the number of a step."""
    step = line.match(_STEP)
    if step is None or int(step["id"]) > MAX_STEP_NUMBER:
        return None
    return step


def _match_bullet(line: _Line) -> re.Match[str] | None:
    return line.match(_BULLET)


def _check_number(number: int, drafts: Sequence[Draft], first: int) -> None:
    if drafts:
        last = drafts[-1].id
        expected, found = {last + 1}, f"{last} is followed by {number}"
    else:
        expected, found = {first, 1}, f"the first is {number}"
    if number not in expected:
        raise ValueError(
            f"The steps must be numbered one by one from {first} on, in one list, but {found}."
        )


def _read_body(step: re.Match[str]) -> str:
    """Return a step's text without the markup that its number opened and left open."""
    markup, body = step["markup"], step["body"].strip()
    is_closed = step["closed"] or step["closed_behind"]
    if not markup or is_closed:
        return body
    return body.replace(markup, "", 1).strip()
