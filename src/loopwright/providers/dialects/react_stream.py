"""Streaming in the ReAct dialect: thoughts, and the answer behind its marker."""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from ..._internal.regex import compile_late
from ...parsing.fences import LINE_BREAKS, MAX_FENCES
from ...parsing.react_text import EXTENDED_TOKENIZER, MIN_CUT_STOP_WORD, NO_ACTION
from ...parsing.tokenizer import MAX_TOKENS, Token
from ..base import Delta
from .streaming import StreamStripper

Section: TypeAlias = Literal["opening", "thought", "answer", "hidden"]
SECTIONS: dict[str, Section] = {"thought": "thought", "answer": "answer"}

MAX_MARKER = 11  # letters, in "final answer" and "observation"
COLONS = (":", "\uff1a")

_LINES = compile_late(rf"[^{LINE_BREAKS}]*+[{LINE_BREAKS}]|[^{LINE_BREAKS}]++")
_BREAK = compile_late(rf"[{LINE_BREAKS}]\Z")
_FENCES = compile_late("`{3,}+|~{3,}+")
_NO_FENCES = str.maketrans("`~", "''")
_FIRST_CHARACTERS = {*"*_#", *"taofs", *"TAOFS"}


class ReActStreamParser:
    """Parses line by line, and shows a line before its end as soon as it can no longer become a marker.

    Text before the first marker is held back until there is one, since without a marker it may be the answer. Hidden
    are what follows an action or an invented observation, and an answer in brackets, which is not an answer before its
    bracket closes.
    """

    def __init__(self) -> None:
        self._section: Section = "opening"
        self._opening: list[str] = []
        # Lines that may be the start of "Observation", which is dropped at the end of a reply.
        self._cut: list[str] = []
        self._stripper = StreamStripper()
        self._has_thought = self._is_next = self._is_over = False
        self._tokens = 0
        self._fences = FenceTracker()
        self._line = Line(may_be_marker=True)

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the thoughts and the text of the answer that are certain now."""
        for chunk in _LINES.findall(text):
            if self._is_over:
                return
            yield from self._read(chunk, ends=_BREAK.search(chunk) is not None)

    def _read(self, chunk: str, *, ends: bool) -> Iterator[Delta]:
        line = self._line
        was_certain = line.is_certain
        line.add(chunk, ends=ends)
        if was_certain:
            yield from self._show(chunk)
        elif line.is_certain:
            yield from self._read_certain(line, ends=ends)
        if ends:
            self._end_line(line)

    def _read_certain(self, line: "Line", *, ends: bool) -> Iterator[Delta]:
        """Read a line of which it just became certain whether it begins with a marker."""
        if line.token is not None:
            yield from self._read_marker(line.token, line.text)
        elif self._may_be_cut(line.text, ends=ends):
            self._cut.append(line.text)
        else:
            yield from self._show(line.text)

    def _end_line(self, line: "Line") -> None:
        if line.token is not None and line.token.kind == "action":
            self._is_over = self._is_over or not _is_no_action(line.text, line.token)
        self._fences.read(line.text)
        has_room = self._tokens < MAX_TOKENS
        self._line = Line(may_be_marker=has_room and not self._fences.is_open)

    def _may_be_cut(self, text: str, *, ends: bool) -> bool:
        """Return whether a line may be what a server left of "Observation" when it cut the reply there."""
        word = text.strip().strip(" \t*#").casefold()
        if self._cut and not word:
            return True
        is_long = ends and len(word) >= MIN_CUT_STOP_WORD
        return is_long and "observation".startswith(word)

    def _read_marker(self, token: Token, text: str) -> Iterator[Delta]:
        in_answer = self._section == "answer"
        if token.kind == "result":
            if in_answer:  # it is not a marker where there is a final answer
                yield from self._show(text)
                return
        else:
            self._tokens += 1
        if in_answer or token.kind == "observation":
            self._is_over = True
            return
        yield from self._begin_section(token, text)

    def _begin_section(self, token: Token, text: str) -> Iterator[Delta]:
        # Lines before a marker are not the last ones, so they are not dropped.
        cut, self._cut = "".join(self._cut), []
        yield from self._show(cut)
        if self._section == "opening":
            self._section = "thought"
            yield from self._show("".join(self._opening))
        self._section = SECTIONS.get(token.kind, "hidden")
        self._stripper, self._is_next = StreamStripper(token.markup), self._has_thought
        yield from self._show(text[token.value_start :])

    def _show(self, text: str) -> Iterator[Delta]:
        if self._cut and text.strip():
            text, self._cut = "".join([*self._cut, text]), []
        if self._section == "opening":
            self._opening.append(text)
        if self._section in {"opening", "hidden"}:
            return
        certain = self._stripper.feed(text)
        if not certain:
            return
        if self._section == "answer":
            yield Delta(text=certain)
            return
        yield Delta(reasoning=f"\n{certain}" if self._is_next else certain)
        self._has_thought, self._is_next = True, False


def _is_no_action(text: str, token: Token) -> bool:
    """Return whether a whole line says that there is no action, as `Action: None` does."""
    if token.markup or not text.endswith("\n"):
        return False
    return text[token.value_start :].strip().strip(" \r.").casefold() in NO_ACTION


class Line:
    """A line that arrives in chunks.

    `is_certain` says whether it is known if the line begins with a marker; `token` is that marker.
    """

    def __init__(self, *, may_be_marker: bool) -> None:
        self._may_be_marker = may_be_marker
        self._chunks: list[str] = []
        self._letters = 0
        self._has_begun = self._has_colon = False
        self.token: Token | None = None
        self.is_certain = False

    @property
    def text(self) -> str:
        """What has arrived of it."""
        return "".join(self._chunks)

    def add(self, chunk: str, *, ends: bool) -> None:
        """Add a chunk; the last one ends with the line."""
        self._chunks.append(chunk)
        if self.is_certain:
            return
        self._has_colon = self._has_colon or any(colon in chunk for colon in COLONS)
        if ends or self._has_colon:
            self._find_marker(ends=ends)
        else:
            self._rule_out_marker(chunk)

    def _find_marker(self, *, ends: bool) -> None:
        text = self.text
        tokens = EXTENDED_TOKENIZER.tokenize(text.translate(_NO_FENCES)).tokens
        token = tokens[0] if tokens else None
        # A star behind the colon may still belong to the marker.
        is_whole = token is None or len(text) > token.value_start
        self.is_certain = ends or is_whole
        if self.is_certain and self._may_be_marker:
            self.token = token

    def _rule_out_marker(self, chunk: str) -> None:
        """Find out by the first characters whether the line can still become a marker."""
        self._letters += sum(map(str.isalpha, chunk))
        self.is_certain = self._letters > MAX_MARKER
        first = chunk.lstrip()[:1]
        if first and not self._has_begun:
            self._has_begun = True
            is_other = first.isascii() and first not in _FIRST_CHARACTERS
            self.is_certain = self.is_certain or is_other


class FenceTracker:
    """Follows the code fences of a text line by line, as `find_fences` finds them in the whole."""

    def __init__(self) -> None:
        self._opening = ""
        self._is_on_line = False  # whether the fence was opened on the current line
        self._fences = 0

    @property
    def is_open(self) -> bool:
        """Whether the next line begins inside a fence."""
        return self._opening != "" or self._fences > MAX_FENCES

    def read(self, line: str) -> None:
        """Read the next line, or its end."""
        for fence in _FENCES.finditer(line):
            self._fences += 1
            if not self._opening:
                self._opening, self._is_on_line = fence[0], True
            elif self._closes(fence, line):
                self._opening = ""
        self._is_on_line = self._is_on_line and not line.endswith("\n")

    def _closes(self, fence: re.Match[str], line: str) -> bool:
        if not fence[0].startswith(self._opening):
            return False
        return self._is_on_line or not line[fence.end() :].strip()
