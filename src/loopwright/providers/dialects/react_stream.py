"""Tells a reply in the ReAct dialect while it comes: thoughts, and the answer behind its marker."""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from ...parsing.fences import LINE_BREAKS, MAX_FENCES
from ...parsing.react_text import EXTENDED_TOKENIZER, MIN_CUT_STOP_WORD, NO_ACTION
from ...parsing.tokenizer import MAX_TOKENS, Token
from ..base import Delta
from .streaming import Trimmed

Telling: TypeAlias = Literal["opening", "thought", "answer", "nothing"]

LONGEST_MARKER = 11  # letters, in "final answer" and "observation"

_LINES = re.compile(rf"[^{LINE_BREAKS}]*+[{LINE_BREAKS}]|[^{LINE_BREAKS}]++")
_BREAK = re.compile(rf"[{LINE_BREAKS}]\Z")
_FENCES = re.compile("`{3,}+|~{3,}+")
_NO_FENCES = str.maketrans("`~", "''")
_FIRST_LETTERS = {*"*_#", *"taofs", *"TAOFS"}


class ReActWatch:
    """Reads line by line; a line is told before its end as soon as it can no longer become a marker.

    Words before the first marker are held back until there is one, since without any they may be the answer. Nothing is
    told behind an action, behind a self-written observation, or of an answer in brackets, which is none before its
    bracket closes.
    """

    def __init__(self) -> None:
        self._telling: Telling = "opening"
        self._opening: list[str] = []
        self._cut: list[
            str
        ] = []  # lines that are dropped if they are the last: the beginning of "Observation"
        self._trimmed = Trimmed()
        self._has_thought = self._is_next = self._is_over = False
        self._tokens = 0
        self._fences = Fences()
        self._line = Line(may_be_marker=True)

    def feed(self, text: str) -> Iterator[Delta]:
        """The thoughts and the words of the answer that are certain now."""
        for piece in _LINES.findall(text):
            if self._is_over:
                return
            yield from self._take(piece, ends=_BREAK.search(piece) is not None)

    def _take(self, piece: str, *, ends: bool) -> Iterator[Delta]:
        line = self._line
        certain = line.is_certain
        line.add(piece, ends=ends)
        if certain:
            yield from self._tell(piece)
        elif line.is_certain and line.token is None:
            yield from self._take_plain(line.text, ends=ends)
        elif line.is_certain and line.token is not None:
            yield from self._take_marker(line.token, line.text)
        if ends:
            self._end_line(line)

    def _end_line(self, line: "Line") -> None:
        text = line.text
        if line.token is not None and line.token.kind == "action" and not self._is_over:
            value = text[line.token.value_start :].strip().strip(" \r.").casefold()
            self._is_over = not (
                text.endswith("\n") and not line.token.markup and value in NO_ACTION
            )
        self._fences.read(text)
        self._line = Line(
            may_be_marker=not self._fences.is_open and self._tokens < MAX_TOKENS
        )

    def _take_plain(self, text: str, *, ends: bool) -> Iterator[Delta]:
        word = text.strip().strip(" \t*#").casefold()
        may_be_cut = (
            ends and len(word) >= MIN_CUT_STOP_WORD and "observation".startswith(word)
        )
        if may_be_cut or (self._cut and not word):
            self._cut.append(text)
        else:
            yield from self._tell(text)

    def _take_marker(self, token: Token, text: str) -> Iterator[Delta]:
        if token.kind == "result" and self._telling == "answer":
            yield from self._tell(text)  # no marker where there is a final answer
            return
        self._tokens += token.kind != "result"
        if token.kind == "observation" or self._telling == "answer":
            self._is_over = True
            return
        cut, self._cut = (
            "".join(self._cut),
            [],
        )  # lines behind which there is a marker are the last no more
        yield from self._tell(cut)
        if self._telling == "opening":
            self._telling = "thought"
            yield from self._tell("".join(self._opening))
        self._telling = (
            "thought"
            if token.kind == "thought"
            else "answer"
            if token.kind == "answer"
            else "nothing"
        )
        self._trimmed, self._is_next = Trimmed(token.markup), self._has_thought
        yield from self._tell(text[token.value_start :])

    def _tell(self, text: str) -> Iterator[Delta]:
        if self._cut and text.strip():
            text, self._cut = "".join([*self._cut, text]), []
        if self._telling == "opening":
            self._opening.append(text)
        if self._telling not in ("answer", "thought"):
            return
        words = self._trimmed.feed(text)
        if words and self._telling == "answer":
            yield Delta(text=words)
        elif words:
            yield Delta(reasoning=f"\n{words}" if self._is_next else words)
            self._has_thought, self._is_next = True, False


class Line:
    """One line as it comes.

    `is_certain` says that it is known whether it begins with a marker; `token` is that marker.
    """

    def __init__(self, *, may_be_marker: bool) -> None:
        self._may_be_marker = may_be_marker
        self._parts: list[str] = []
        self._letters = 0
        self._has_begun = self._has_colon = False
        self.token: Token | None = None
        self.is_certain = False

    @property
    def text(self) -> str:
        """What has come of it."""
        return "".join(self._parts)

    def add(self, piece: str, *, ends: bool) -> None:
        """Take the next piece; the last one ends with the line."""
        self._parts.append(piece)
        if self.is_certain:
            return
        self._has_colon = self._has_colon or ":" in piece or "\uff1a" in piece
        if ends or self._has_colon:
            self._look_for_marker(ends=ends)
        else:
            self._look_for_words(piece)

    def _look_for_marker(self, *, ends: bool) -> None:
        text = self.text
        tokens = EXTENDED_TOKENIZER.tokenize(text.translate(_NO_FENCES)).tokens
        token = tokens[0] if tokens else None
        self.is_certain = (
            ends or token is None or len(text) > token.value_start
        )  # a star behind the colon may be the marker's
        if self.is_certain and self._may_be_marker:
            self.token = token

    def _look_for_words(self, piece: str) -> None:
        first = "" if self._has_begun else piece.lstrip()[:1]
        self._has_begun = self._has_begun or first != ""
        self._letters += sum(letter.isalpha() for letter in piece)
        begins_otherwise = (
            first != "" and first.isascii() and first not in _FIRST_LETTERS
        )
        self.is_certain = begins_otherwise or self._letters > LONGEST_MARKER


class Fences:
    """Follows the code fences of a text line by line, as `find_fences` finds them in the whole."""

    def __init__(self) -> None:
        self._opening = ""
        self._on_this_line = False
        self._runs = 0

    @property
    def is_open(self) -> bool:
        """Whether the next line begins inside of one."""
        return self._opening != "" or self._runs > MAX_FENCES

    def read(self, line: str) -> None:
        """Read on, to the end of a line."""
        for run in _FENCES.finditer(line):
            self._runs += 1
            if not self._opening:
                self._opening, self._on_this_line = run[0], True
            elif run[0].startswith(self._opening) and (
                self._on_this_line or not line[run.end() :].strip()
            ):
                self._opening = ""
        self._on_this_line = self._on_this_line and not line.endswith("\n")
