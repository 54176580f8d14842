"""Prefilter: which patterns of secrets a text may match, by substrings that cost next to nothing to
look for.

Ordinary text, arguments and results hold no hint of most patterns, so that these need not be
compiled or tried. A text without a hint of a pattern never matches it; a text with a hint mostly
does not match either.
"""

from collections.abc import Iterable

from ..._internal.regex import compile_late
from .patterns import (
    ADDRESS,
    AWS_GOOGLE,
    BEARER,
    DATABRICKS,
    DISCORD_BOT,
    DISCORD_HOOK,
    FLAG,
    GOOGLE_ACCESS,
    GOOGLE_REFRESH,
    HEADER,
    HYPHEN,
    JWT,
    NAMED,
    PRIVATE_KEY,
    SLACK_HOOK,
    TELEGRAM,
    TWILIO_SENDGRID,
    UNDERSCORE,
    SecretPattern,
)
from .vendors import HINTS, LOWER_HINTS, OPEN_VENDORS, VENDORS

# What is kept of a text to find the name of a secret right before a sign: letters that such names have, and that
# neither quotes and spaces have nor what may follow a name ("_value", "_text"). `=` counts as `:`, and w as r. So a
# "password", "passwd" or "pwd" leaves "rd:" before a sign, a "key" "ky:", a "token" "ok:", a "secret" "cr:".
_KEPT = bytes.maketrans(b"KWDYORCS=w", b"krdyorcs:r")
_DROPPED = bytes(set(range(256)) - set(b"KWDYORCS=wkdyorcs:"))
_SKELETONS_OF_NAMES = ("ky:", "ok:", "rd:", "cr:")
_SKELETONS_OF_HEADERS = ("oro:", "ook:")  # "authorization", "cookie"

_NAMES = ("key", "token", "pass", "pwd", "secret", "credential")
_HEADERS = ("authorization", "cookie")
_QUERY_SEPARATORS = ("?", "&", ";")
_FLAG_START = compile_late("--[A-Za-z]")


def select_patterns(text: str) -> list[SecretPattern]:
    """Return the patterns that a text may match."""
    ascii_text = _get_ascii(text)
    lowered = ascii_text.lower()
    selected: list[SecretPattern] = []
    if "-" in ascii_text:
        selected += _select_by_hyphens(ascii_text, lowered)
    if ":" in ascii_text or "=" in ascii_text:
        selected += _select_by_signs(ascii_text, lowered)
    if "earer" in lowered or "asic" in lowered:
        selected.append(BEARER)
    selected += _select_vendors(ascii_text, lowered)
    return selected + _select_by_prefixes(ascii_text)


def select_open_patterns(text: str) -> list[SecretPattern]:
    """Return the patterns that the end of a text may be the beginning of, and that continue over
    the next space.
    """
    ascii_text = _get_ascii(text)
    lowered = ascii_text.lower()
    selected: list[SecretPattern] = []
    if _has_any(lowered, _NAMES):
        selected.append(NAMED)
    if _has_any(lowered, _HEADERS):
        selected.append(HEADER)
    if "--" in ascii_text:
        selected += FLAG, PRIVATE_KEY
    if "earer" in lowered or "asic" in lowered:
        selected.append(BEARER)
    return [*selected, *OPEN_VENDORS]


def _get_ascii(text: str) -> str:
    """Return the text without what is not ASCII, which no hint has."""
    return text if text.isascii() else text.encode("ascii", "ignore").decode("ascii")


def _has_any(text: str, hints: Iterable[str]) -> bool:
    for hint in hints:  # a loop takes half the time of `any` with a generator  # noqa: SIM110
        if hint in text:
            return True
    return False


def _select_by_hyphens(ascii_text: str, lowered: str) -> list[SecretPattern]:
    """Return the patterns for tokens, flags and private keys in a text with a hyphen."""
    selected = [HYPHEN]
    if "--" not in ascii_text:
        return selected
    if _FLAG_START.search(ascii_text) and _has_any(lowered, _NAMES):
        selected.append(FLAG)
    if "-----BEGIN" in ascii_text:
        selected.append(PRIVATE_KEY)
    return selected


def _select_by_signs(ascii_text: str, lowered: str) -> list[SecretPattern]:
    """Return the patterns for names and headers with values, in a text with `:` or `=`."""
    selected: list[SecretPattern] = []
    skeleton = ascii_text.encode().translate(_KEPT, _DROPPED).decode()
    if _has_any(skeleton, _SKELETONS_OF_NAMES) or _has_rare_name(skeleton, lowered):
        selected.append(NAMED)
    if _has_any(skeleton, _SKELETONS_OF_HEADERS) or _has_signature(ascii_text, lowered):
        selected.append(HEADER)
    if "@" in ascii_text and "://" in ascii_text:
        selected.append(ADDRESS)
    return selected


def _select_vendors(ascii_text: str, lowered: str) -> Iterable[SecretPattern]:
    """Return the patterns of vendors' tokens of which a text, given in lower case too, has a hint."""
    hints = [*filter(ascii_text.__contains__, HINTS)]
    lower_hints = [*filter(lowered.__contains__, LOWER_HINTS)]
    if not hints and not lower_hints:
        return ()
    places = set[int]().union(*map(HINTS.__getitem__, hints))
    places.update(*map(LOWER_HINTS.__getitem__, lower_hints))
    return map(VENDORS.__getitem__, sorted(places))


def _select_by_prefixes(ascii_text: str) -> list[SecretPattern]:
    """Return the patterns for tokens that are recognised by their prefix, and those inside
    addresses.
    """
    selected: list[SecretPattern] = []
    if "/" in ascii_text:
        selected += _select_by_slashes(ascii_text)
    if "A" in ascii_text or "S" in ascii_text:
        selected += _select_by_capitals(ascii_text)
    if "_" in ascii_text:
        selected.append(UNDERSCORE)
    # one rare letter is found, or missed, much faster than a word
    if "J" in ascii_text and "eyJ" in ascii_text:
        selected.append(JWT)
    if "9" in ascii_text and "ya29." in ascii_text:
        selected.append(GOOGLE_ACCESS)
    if "dapi" in ascii_text:
        selected.append(DATABRICKS)
    if "." in ascii_text and _has_any(ascii_text, "MNO"):
        selected.append(DISCORD_BOT)
    return selected


def _select_by_slashes(ascii_text: str) -> list[SecretPattern]:
    """Return the patterns for tokens in paths and URLs."""
    selected: list[SecretPattern] = []
    if "1//0" in ascii_text:
        selected.append(GOOGLE_REFRESH)
    if "hooks" in ascii_text:
        selected += SLACK_HOOK, DISCORD_HOOK
    return selected


def _select_by_capitals(ascii_text: str) -> list[SecretPattern]:
    """Return the patterns for tokens that begin with certain capitals."""
    selected: list[SecretPattern] = []
    if "S" in ascii_text and _has_any(ascii_text, "KG"):
        selected.append(TWILIO_SENDGRID)
    if "A" in ascii_text and "I" in ascii_text:
        selected.append(AWS_GOOGLE)
    if ":AA" in ascii_text:
        selected.append(TELEGRAM)
    return selected


def _has_rare_name(skeleton: str, lowered: str) -> bool:
    """Return whether a text may have names that are rare, or that end in a letter of which
    something is kept.
    """
    if "s:" not in skeleton:
        return False
    if "ss:" in skeleton and _has_any(lowered, ("_pass", "-pass")):
        return True
    return _has_any(lowered, ("passphrase", "base64"))


def _has_signature(ascii_text: str, lowered: str) -> bool:
    """Return whether an address in the text may hold a key or a signature."""
    if "=" not in ascii_text:
        return False
    if "sig" in lowered:
        return True
    return "key=" in lowered and _has_any(ascii_text, _QUERY_SEPARATORS)
