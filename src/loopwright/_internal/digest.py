"""Short texts that stand for longer values, to record and to compare."""

import hashlib

from pydantic_core import to_json

MAX_NAMES = 400
"""Characters of a list of names that is recorded as it stands; of a longer one, its length and hash are."""


def shorten_names(names: list[str]) -> list[str] | str:
    """Return names, or how many there are with their hash."""
    if len(", ".join(names)) <= MAX_NAMES:
        return names
    return f"{len(names)} names, {digest(names)}"


def digest(value: object) -> str:
    """Return 16 hex characters of the SHA-256 of a value that is JSON."""
    return hashlib.sha256(to_json(value)).hexdigest()[:16]


def format_names(value: object) -> str:
    """Return a recorded list of names, or a text, for people."""
    if isinstance(value, list):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    return "none" if value is None else str(value)
