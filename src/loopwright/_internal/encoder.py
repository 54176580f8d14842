"""Canonical JSON, and values whose encoded forms are cached."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import JsonValue

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: object) -> bytes:
    """Return the canonical bytes of a JSON value: sorted keys, no spaces, ASCII; raise ValueError
    for NaN and non-JSON.
    """
    try:
        return _CANONICAL.encode(value).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def hash_arguments(arguments: Mapping[str, JsonValue]) -> str:
    """Return the SHA-256 (hex) of a call's canonical arguments; "" if they are not JSON."""
    try:
        return hashlib.sha256(_CANONICAL.encode(arguments).encode()).hexdigest()
    except (ValueError, TypeError, RecursionError):
        return ""


EntryMark: TypeAlias = tuple[str, str]
"""The run, and the entry of it, that a message is made of."""


def mark_entry(value: object, entry: EntryMark | None) -> None:
    """Note which entry a frozen value is made of; a changed copy of it has no such note."""
    if entry is not None:
        value.__dict__["entry"] = entry


def mark_entries(values: Sequence[object], entries: Iterable[EntryMark | None]) -> None:
    """Note which entry each of several frozen values is made of."""
    for value, entry in zip(values, entries, strict=True):
        mark_entry(value, entry)


def find_code(entry: EntryMark | None, run_id: str) -> str:
    """Return the code of an entry if that is one of a run; empty for an entry of another run, and for none."""
    return entry[1] if entry is not None and entry[0] == run_id else ""


class Encodable:
    """Caches the encoded forms of an immutable value, so that each wire format is written once."""

    def encoded(self, encoder: Callable[[Any], bytes]) -> bytes:
        """Return what `encoder` makes of this value; it is called the first time only."""
        kept: dict[object, bytes] = self.__dict__.setdefault("_encoded", {})
        found = kept.get(encoder)
        if found is None:
            found = kept[encoder] = encoder(self)
        return found


def hash_each(
    arguments: Mapping[str, JsonValue], names: Iterable[str]
) -> dict[str, str]:
    """Return a digest (32 hex digits) of each of some arguments, by which those of two calls are compared."""
    return {name: hash_arguments({"": arguments[name]})[:32] for name in names}
