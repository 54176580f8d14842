"""Tokens of a protocol, such as the marker `Action:`, at line starts and outside code fences; and
matching brackets.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .._internal import dataclasses
from .._internal.regex import compile_late
from .fences import BLANK, LINE_BREAKS, FenceCursor, find_fences

MAX_BRACKETS = 10_000
MAX_TOKENS = 10_000

_BRACKETS = compile_late(r"[\[\]]")


class Token(NamedTuple):
    """A marker in a text: its kind, where its line and its value start, and the markup that it
    leaves open.
    """

    kind: str
    start: int
    value_start: int
    markup: str = ""


@dataclasses.dataclass(frozen=True)
class TokenizedText:
    """The tokens of a text in order.

    Nothing is read from `unread_start` on: a code fence starts there that never closes, or there
    were more than 10,000 tokens or fences before.
    """

    tokens: tuple[Token, ...]
    unread_start: int | None = None


def find_value_end(text: str, tokens: Sequence[Token], index: int) -> int:
    """Return where the value of a token ends: at the next token, or with the text."""
    following = index + 1
    return tokens[following].start if following < len(tokens) else len(text)


def read_value(text: str, tokens: Sequence[Token], index: int) -> str:
    """Return the text between a token and the next one, without the markup that the token leaves
    open.
    """
    token = tokens[index]
    value = text[token.value_start : find_value_end(text, tokens, index)].strip()
    return value.removesuffix(token.markup).rstrip() if token.markup else value


class Tokenizer:
    """Finds the markers of a protocol, such as `Action:` or `**Action 3:**`, in a text.

    A marker stands at the start of a line and outside code fences, in any case, bold or as a
    heading, with a number behind it or not, its words separated by blanks, hyphens, underscores or
    nothing. In the middle of a line it is prose.

    Args:
        phrases: the words of each kind of marker: `{"input": "action input"}`.
    """

    def __init__(self, phrases: Mapping[str, str]) -> None:
        kinds = "|".join(_build_kind_patterns(phrases))
        initials = "".join(sorted({phrase[0] for phrase in phrases.values()}))
        first = re.escape(initials.lower() + initials.upper())
        # The break before the line is part of the match, since a search for a set of characters skips the rest fastest.
        self._pattern = compile_late(
            rf"[{LINE_BREAKS}]{BLANK}*+(?=[*_#{first}])(?:#{{1,6}}+{BLANK}*+)?+(?P<markup>\*{{1,3}}+|_{{1,3}}+)?"
            rf"(?:(?<=\*\*){BLANK}*+)?+"  # "** Action:**", while a single star and a blank are a bullet
            rf"(?:{kinds}){BLANK}*+(?:#?\d{{1,4}}+)?+{BLANK}*+"
            rf"(?(markup)[*_]{{0,3}}+){BLANK}*+[:\uff1a](?(markup)[*_]{{0,3}}+)",
            re.IGNORECASE,
        )

    def tokenize(self, text: str) -> TokenizedText:
        """Return the tokens of a text that are not prose and not inside a code fence."""
        spans, unread_start = find_fences(text)
        fences = FenceCursor(spans)
        limit = len(text) if unread_start is None else unread_start
        tokens: list[Token] = []
        for found in self._pattern.finditer("\n" + text):
            start = found.start()
            if start >= limit:
                break
            if fences.contains(start):
                continue
            if len(tokens) == MAX_TOKENS:
                return TokenizedText(tuple(tokens), start)
            tokens.append(_build_token(found))
        return TokenizedText(tuple(tokens), unread_start)

    def quote(self, text: str) -> str:
        """Return the text with `> ` before each line that starts like a marker, so that none is
        read as one.
        """
        quoted = self._pattern.sub(_quote_line, "\n" + text)
        return quoted[1:]


def _build_kind_patterns(phrases: Mapping[str, str]) -> list[str]:
    """Return a named group for each kind of marker, those with most words first."""
    gap = rf"(?:{BLANK}|[_-])*+"
    patterns: list[str] = []
    for kind, phrase in sorted(phrases.items(), key=_count_words, reverse=True):
        words = gap.join(map(re.escape, phrase.split()))
        patterns.append(f"(?P<{kind}>{words})")
    return patterns


def _count_words(item: tuple[str, str]) -> int:
    _, phrase = item
    return len(phrase.split())


def _quote_line(found: re.Match[str]) -> str:
    line_break, line = found[0][0], found[0][1:]
    return f"{line_break}> {line}"


def _build_token(found: re.Match[str]) -> Token:
    """Return the token of a match in the text with a line break put before it, so that positions
    are one too high.
    """
    kind, markup = found.lastgroup or "", found["markup"] or ""
    behind_words = found[0][found.end(kind) - found.start() :]
    is_markup_closed = markup in behind_words
    open_markup = "" if is_markup_closed else markup
    return Token(kind, found.start(), found.end() - 1, open_markup)


def find_closing_bracket(text: str, start: int) -> int | None:
    """Return where the `[` at `start` closes, counting the brackets in between; `None` if it does
    not.

    Quotes mean nothing: what stands in such brackets is plain text, in which an apostrophe is an
    apostrophe.
    """
    depth = 0
    for found in itertools.islice(_BRACKETS.finditer(text, start), MAX_BRACKETS):
        depth += 1 if found[0] == "[" else -1
        if depth == 0:
            return found.start()
    return None
