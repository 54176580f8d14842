"""Findings: the places in a text that match a pattern or a registered value, and what is put in
their place.
"""

import functools
import re
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from .heuristics import REDACTED

# Where a text may be cut: spaces, and the letters of languages that are written without them.
GAPS = r"\s\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\ufe30-\uffef"


class Finding(NamedTuple):
    """A match from `begin` to `end`, and the secret in it; a match without one has a secret of no
    length.
    """

    begin: int
    end: int
    secret_start: int
    secret_end: int

    @property
    def is_secret(self) -> bool:
        """Whether the match holds a secret."""
        return self.secret_start < self.secret_end


def replace_secrets(text: str, secrets: Iterable[Finding], begin: int, end: int) -> str:
    """Return `text[begin:end]` with the placeholder for each secret; secrets that overlap become
    one placeholder.
    """
    kept: list[str] = []
    position = begin
    for start, stop in _merge_overlaps(secrets):
        kept += text[position:start], REDACTED
        position = stop
    kept.append(text[position:end])
    return "".join(kept)


def _merge_overlaps(secrets: Iterable[Finding]) -> list[tuple[int, int]]:
    """Return the spans of the secrets in order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    last_end = 0
    for secret in sorted(secrets, key=attrgetter("secret_start")):
        if secret.secret_start < last_end:
            last_end = max(last_end, secret.secret_end)
            merged[-1] = merged[-1][0], last_end
        else:
            last_end = secret.secret_end
            merged.append((secret.secret_start, last_end))
    return merged


@functools.cache
def _compile_gap() -> "re.Pattern[str]":
    return re.compile(f"[{GAPS}]")


def find_gap(text: str) -> "re.Match[str] | None":
    """Return the first place where a text may be cut between words."""
    return _compile_gap().search(text)
