"""`StreamRedactor`, which removes secrets from a text that comes in chunks."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol

from .findings import Finding, find_gap, replace_secrets
from .heuristics import REDACTED

_CONTEXT = 64  # characters that the patterns look back at, at most


class SecretFinder(Protocol):
    """What a stream needs of a redactor."""

    @property
    def max_length(self) -> int:
        """Characters: no finding is longer."""
        ...

    def find(self, text: str, start: int) -> list[Finding]:
        """Return all matches from `start` on."""
        ...

    def find_opening(self, text: str, start: int) -> int:
        """Return where the first match may begin that continues over the next space."""
        ...


class StreamRedactor:
    """Removes secrets from a text that comes in chunks.

    Its output is, put together, what `Redactor.redact_text` makes of the whole text. It holds back
    the last word, and whatever may yet become a secret: a name that waits for its value, a key that
    has not ended. That is some kB at most; only registered values that overlap over and over hold
    more, and become placeholders at once.
    """

    def __init__(self, finder: SecretFinder) -> None:
        self._finder = finder
        self._text = ""  # released text that patterns look back at, and the held text
        self._released = 0  # how much of `_text` was released
        self._next_search = (
            0  # length of `_text` from which another search may change anything
        )

    def feed(self, chunk: str) -> str:
        """Take a chunk; return the text that can be released by now."""
        self._text += chunk
        if len(self._text) < self._next_search:
            return ""
        is_too_long = len(self._text) - self._released > 3 * self._finder.max_length
        if is_too_long or find_gap(chunk):
            return self._release(is_last=False)
        return ""

    def end(self) -> str:
        """Return the rest; the stream is new after it."""
        rest = self._release(is_last=True)
        self._text, self._released, self._next_search = "", 0, 0
        return rest

    def _release(self, *, is_last: bool) -> str:
        text, released = self._text, self._released
        max_length = self._finder.max_length
        found = self._finder.find(text, released)
        cut = len(text) if is_last else self._find_cut(text, found)
        if len(text) - cut > 4 * max_length:
            cut, shown = len(text) - max_length, REDACTED
        else:
            secrets = [one for one in found if one.is_secret and one.secret_end <= cut]
            shown = text[released:cut]
            if secrets:
                shown = replace_secrets(text, secrets, released, cut)
        begin = max(0, cut - _CONTEXT)
        self._text, self._released = text[begin:], cut - begin
        held = len(text) - cut
        # search again only after some more text, so that a long wait costs no more than a short one
        self._next_search = len(self._text) + held // 8
        return shown

    def _find_cut(self, text: str, found: Sequence[Finding]) -> int:
        """Return up to where nothing can change any more, whatever follows."""
        cut = _find_last_word(text, self._released, len(text))
        opening = self._finder.find_opening(text, self._released)
        if found or opening < cut:
            cut = _move_before(found, min(cut, opening), len(text))
            word = _find_last_word(text, self._released, cut)
            # a name is released as a whole, if it can be
            if _move_before(found, word, len(text)) == word:
                cut = word
        max_length = self._finder.max_length
        if len(text) - cut <= 2 * max_length:
            return cut
        return _move_before(found, len(text) - max_length, len(text) + 1)


def _move_before(found: Sequence[Finding], cut: int, end: int) -> int:
    """Return the last position up to `cut` that no match goes over; a match that reaches `end` may
    continue.
    """
    for match in sorted(found, key=attrgetter("end"), reverse=True):
        if match.end <= cut and match.end < end:
            break
        cut = min(cut, match.begin)
    return cut


def _find_last_word(text: str, start: int, end: int) -> int:
    """Return where the last word of `text[start:end]` begins: behind its last gap."""
    if text[end - 1 : end] == " ":
        return max(start, end)
    gap = find_gap(text[start:end][::-1])
    return end - gap.start() if gap else start
