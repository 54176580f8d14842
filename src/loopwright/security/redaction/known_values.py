"""Registered secrets: where their values stand in a text, in any of their encodings."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ..._internal.regex import compile_late
from ...errors import ConfigError
from .encodings import encode_variants
from .findings import Finding, find_gap
from .heuristics import REDACTED

MIN_SECRET_LENGTH = 6  # characters; a shorter value is a part of ordinary words

_PLAIN_LETTERS = compile_late("[A-Za-z0-9]+")


class KnownValues:
    """Registered secrets in their encodings.

    Args:
        secrets: the values, of 6 characters or more each.

    Raises `ConfigError` for a value that is too short, or is a part of the placeholder.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        if isinstance(secrets, str):
            raise ConfigError("secrets: give a list of texts, not one text")
        self.secrets = tuple(
            _check_secret(place, secret) for place, secret in enumerate(secrets)
        )
        roots: dict[str, str] = {}
        for secret in self.secrets:
            variants = encode_variants(secret)
            roots |= {one: _get_root(secret, one) for one in variants}
        self._encodings = sorted(
            (one for one in roots if one not in REDACTED), key=_longest_first
        )
        self._by_root: defaultdict[str, list[str]] = defaultdict(list)
        for encoding in self._encodings:
            self._by_root[roots[encoding]].append(encoding)
        self._with_gaps = [one for one in self._encodings if find_gap(one)]

    def __contains__(self, text: str) -> bool:
        return text in self._encodings

    @property
    def max_length(self) -> int:
        """Length of the longest encoding."""
        return max(map(len, self._encodings), default=0)

    def find(self, text: str, start: int) -> list[Finding]:
        """Return all occurrences from `start` on."""
        found: list[Finding] = []
        for root, encodings in self._by_root.items():
            if root in text:
                for encoding in encodings:
                    found += _find_occurrences(encoding, text, start)
        return found

    def find_opening(self, text: str, start: int) -> int:
        """Return where an occurrence may begin that continues over the next space; the end of the
        text without one.
        """
        if not self._with_gaps:
            return len(text)
        openings = (_find_opening(one, text, start) for one in self._with_gaps)
        return min(openings)


def _longest_first(text: str) -> tuple[int, str]:
    return -len(text), text


def _get_root(secret: str, encoding: str) -> str:
    """Return what to look for before an encoding: letters that nearly all encodings share, or else
    the whole.
    """
    root = max(_PLAIN_LETTERS.findall(secret), key=len, default=secret)
    return root if root in encoding else encoding


def _find_occurrences(encoding: str, text: str, start: int) -> Iterator[Finding]:
    position = text.find(encoding, start)
    while position >= 0:
        end = position + len(encoding)
        yield Finding(position, end, position, end)
        position = text.find(encoding, end)


def _find_opening(encoding: str, text: str, start: int) -> int:
    """Return where at the end of a text an incomplete occurrence begins; the end of the text
    without one.
    """
    first = encoding[0]
    position = text.find(first, max(start, len(text) - len(encoding) + 1))
    while position >= 0 and not encoding.startswith(text[position:]):
        position = text.find(first, position + 1)
    return position if position >= 0 else len(text)


def _check_secret(place: int, secret: object) -> str:
    if not isinstance(secret, str) or len(secret) < MIN_SECRET_LENGTH:
        raise ConfigError(
            f"secrets[{place}]: give a text of {MIN_SECRET_LENGTH} characters or more, "
            "since ordinary words hold shorter ones"
        )
    if secret in REDACTED or REDACTED in secret:
        raise ConfigError(
            f"secrets[{place}]: {REDACTED} is what secrets are replaced with, so it cannot be one"
        )
    return secret
