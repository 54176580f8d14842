"""Which shapes of secrets a text may hold, told by what costs next to nothing to look for.

Ordinary text, arguments and results have no hint of most shapes, so that their patterns need not be compiled or tried.
A text without a hint of a shape holds none of it; one with a hint mostly holds none either.
"""

import re
from collections.abc import Sequence

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
    Shape,
)

# What is left of a text to find the name of a secret right before a sign: letters that such names have, and that
# neither quotes and spaces have nor what may follow a name ("_value", "_text"). `=` counts as `:`, and w as r. So a
# "password", "passwd" or "pwd" leaves "rd:" before a sign, a "key" "ky:", a "token" "ok:", a "secret" "cr:".
_LEFT = bytes.maketrans(b"KWDYORCS=w", b"krdyorcs:r")
_DROPPED = bytes(set(range(256)) - set(b"KWDYORCS=wkdyorcs:"))
_FLAG = re.compile("--[A-Za-z]")


def hinted(text: str) -> list[Shape]:
    """The shapes that a text may hold."""
    plain = _plain(text)
    lowered = plain.lower()
    found: list[Shape] = []
    if "-" in plain:
        found.append(HYPHEN)
        if "--" in plain:
            found += _behind_hyphens(plain, lowered)
    if "_" in plain:
        found.append(UNDERSCORE)
    if ":" in plain or "=" in plain:
        found += _behind_signs(plain, lowered)
    if "earer" in lowered or "asic" in lowered:
        found.append(BEARER)
    return found + _by_letters(plain)


def hinted_at_end(text: str) -> list[Shape]:
    """The shapes of which a text may hold a beginning, over which the next space does not go."""
    plain = _plain(text)
    lowered = plain.lower()
    found = [NAMED] if _has_name(lowered) else list[Shape]()
    if "authorization" in lowered or "cookie" in lowered:
        found.append(HEADER)
    if "--" in plain:
        found += FLAG, PRIVATE_KEY
    if "earer" in lowered or "asic" in lowered:
        found.append(BEARER)
    return found


def _plain(text: str) -> str:
    """The text without what is no ASCII; no hint has any."""
    return text if text.isascii() else text.encode("ascii", "ignore").decode("ascii")


def _has_name(lowered: str) -> bool:
    """Whether a text may have the name of a secret anywhere."""
    return (
        "key" in lowered
        or "token" in lowered
        or "pass" in lowered
        or "pwd" in lowered
        or "secret" in lowered
        or "credential" in lowered
    )


def _behind_hyphens(plain: str, lowered: str) -> Sequence[Shape]:
    found = [FLAG] if _FLAG.search(plain) and _has_name(lowered) else list[Shape]()
    return [*found, PRIVATE_KEY] if "-----BEGIN" in plain else found


def _behind_signs(plain: str, lowered: str) -> Sequence[Shape]:
    found: list[Shape] = []
    left = plain.encode().translate(_LEFT, _DROPPED).decode()
    if (
        "ky:" in left
        or "ok:" in left
        or "rd:" in left
        or "cr:" in left
        or _has_rare_name(left, lowered)
    ):
        found.append(NAMED)
    if (
        "oro:" in left
        or "ook:" in left
        or ("=" in plain and _has_signature(plain, lowered))
    ):
        found.append(HEADER)  # "authorization", "cookie"
    if "@" in plain and "://" in plain:
        found.append(ADDRESS)
    if "A" in plain and ":AA" in plain:
        found.append(TELEGRAM)
    return found


def _has_rare_name(left: str, lowered: str) -> bool:
    """Whether a text may have names that are rare, or end in a letter of which something is left."""
    if "ss:" in left and ("_pass" in lowered or "-pass" in lowered):
        return True
    return "s:" in left and ("passphrase" in lowered or "base64" in lowered)


def _has_signature(plain: str, lowered: str) -> bool:
    """Whether an address in the text may hold a key or a signature."""
    return "sig" in lowered or (
        "key=" in lowered and ("?" in plain or "&" in plain or ";" in plain)
    )


def _by_letters(plain: str) -> list[Shape]:
    """The shapes that begin with letters or digits, and those inside addresses."""
    found = _in_addresses(plain) if "/" in plain else []
    if "S" in plain and ("K" in plain or "G" in plain):
        found.append(TWILIO_SENDGRID)
    if "I" in plain and "A" in plain:
        found.append(AWS_GOOGLE)
    if "J" in plain and "eyJ" in plain:
        found.append(JWT)
    if "." in plain and ("M" in plain or "N" in plain or "O" in plain):
        found.append(DISCORD_BOT)
    if "9" in plain and "ya29." in plain:
        found.append(GOOGLE_ACCESS)
    if "dapi" in plain:
        found.append(DATABRICKS)
    return found


def _in_addresses(plain: str) -> list[Shape]:
    found: list[Shape] = []
    if "1" in plain and "0" in plain and "//0" in plain:
        found.append(GOOGLE_REFRESH)
    if "hooks" in plain:
        found += SLACK_HOOK, DISCORD_HOOK
    return found
