"""Tokenizer of a protocol, such as `Action:`, at line starts and outside code fences; what stands in brackets."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .fences import BLANK, LINE_BREAKS, find_fences

MAX_BRACKETS = 10_000
MAX_TOKENS = 10_000

_BRACKETS = re.compile(r"[\[\]]")


class Token(NamedTuple):
    """A marker: its kind, where its line and its value start, and the markup that it opens and leaves open."""

    kind: str
    start: int
    value_start: int
    markup: str = ""


@dataclasses.dataclass(frozen=True)
class TokenizedText:
    """The markers of a text in order; none is read from `unread` on, where a code fence starts that never closes.

    More than 10,000 markers or fences are not read either.
    """

    tokens: tuple[Token, ...]
    unread_start: int | None = None


def find_value_end(text: str, tokens: Sequence[Token], index: int) -> int:
    """Where the value of a marker ends: at the next marker, or with the text."""
    return tokens[index + 1].start if index + 1 < len(tokens) else len(text)


def read_value(text: str, tokens: Sequence[Token], index: int) -> str:
    """What stands between a marker and the next one, without the markup that the marker leaves open."""
    token = tokens[index]
    value = text[token.value_start : find_value_end(text, tokens, index)].strip()
    return value.removesuffix(token.markup).rstrip() if token.markup else value


class Tokenizer:
    """Finds a protocol's markers, such as `Action:` or `**Action 3:**`, in a text.

    Args:
        words: kind of marker → its words: `{"input": "action input"}`.

    A marker stands at the start of a line and outside code fences, in any case, bold or as a heading, with a number
    behind it or not, its words parted by blanks, hyphens, underscores or nothing. In the middle of a line it is prose.
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        longest_first = sorted(words.items(), key=lambda item: -len(item[1].split()))
        gap = rf"(?:{BLANK}|[_-])*+"
        kinds = "|".join(
            f"(?P<{kind}>{gap.join(map(re.escape, phrase.split()))})"
            for kind, phrase in longest_first
        )
        letters = {
            letter
            for phrase in words.values()
            for letter in (phrase[0].lower(), phrase[0].upper())
        }
        first = re.escape("".join(sorted(letters)))
        # The break before the line is part of the match, since a search for a set of characters skips the rest fastest.
        self._pattern = re.compile(
            rf"[{LINE_BREAKS}]{BLANK}*+(?=[*_#{first}])(?:#{{1,6}}+{BLANK}*+)?+(?P<markup>\*{{1,3}}+|_{{1,3}}+)?"
            rf"(?:(?<=\*\*){BLANK}*+)?+"  # "** Action:**", while a single star and a blank are a bullet
            rf"(?:{kinds}){BLANK}*+(?:#?\d{{1,4}}+)?+{BLANK}*+"
            rf"(?(markup)[*_]{{0,3}}+){BLANK}*+[:\uff1a](?(markup)[*_]{{0,3}}+)",
            re.IGNORECASE,
        )

    def tokenize(self, text: str) -> TokenizedText:
        """Every marker of `text` that is no prose and not inside a code fence."""
        fences, unread = find_fences(text)
        tokens: list[Token] = []
        upcoming = 0
        for found in self._pattern.finditer("\n" + text):
            start = found.start()
            while upcoming < len(fences) and fences[upcoming][1] <= start:
                upcoming += 1
            if unread is not None and unread <= start:
                break
            if upcoming < len(fences) and fences[upcoming][0] < start:
                continue
            if len(tokens) == MAX_TOKENS:
                return TokenizedText(tuple(tokens), start)
            tokens.append(_build_token(found))
        return TokenizedText(tuple(tokens), unread)

    def quote(self, text: str) -> str:
        """`text` with each line that starts like a marker quoted (`> Action: …`), so that none is read as one."""
        return self._pattern.sub(
            lambda found: f"{found[0][0]}> {found[0][1:]}", "\n" + text
        )[1:]


def _build_token(found: re.Match[str]) -> Token:
    """The marker of a match in the text with a line break put before it, so that places there are one too high."""
    kind, markup = found.lastgroup or "", found["markup"] or ""
    closed = not markup or markup in found[0][found.end(kind) - found.start() :]
    return Token(kind, found.start(), found.end() - 1, "" if closed else markup)


def find_closing_bracket(text: str, start: int) -> int | None:
    """Where the `[` at `start` closes, counting the brackets in between; `None` if it does not.

    Quotes mean nothing: what stands in such brackets is plain text, in which an apostrophe is an apostrophe.
    """
    depth = 0
    for found in itertools.islice(_BRACKETS.finditer(text, start), MAX_BRACKETS):
        depth += 1 if found[0] == "[" else -1
        if depth == 0:
            return found.start()
    return None
