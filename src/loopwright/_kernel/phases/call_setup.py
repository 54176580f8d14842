"""What a model call is made with, as a journal keeps it: limits and settings, and a reply that is Unicode text."""

import functools
import hashlib
import json

from pydantic import TypeAdapter

from ..._internal import dataclasses
from ...limits import Limits
from ...messages import Completion, JsonObject, ToolSpec, canonical_json
from ...providers.base import Sampling
from ...security.redaction import Redactor

ADDED = ("max_depth", "max_handoffs")
"""The limits that early journals do not know."""


def select_specs(
    specs: tuple[ToolSpec, ...], offered: frozenset[str]
) -> tuple[ToolSpec, ...]:
    """Return the tools that are offered."""
    return tuple(spec for spec in specs if spec.name in offered)


def clean_settings(settings: JsonObject, redactor: Redactor) -> JsonObject:
    """Return settings as they are recorded, without secrets."""
    clean = redactor.redact_value(settings)
    return clean if isinstance(clean, dict) else {}


def list_limits(limits: Limits) -> dict[str, object]:
    """Return the limits as journals know them: those added later only where they are set."""
    listed = dataclasses.asdict(limits)  # pyright: ignore[reportArgumentType] - a pydantic dataclass
    unset = [name for name in ADDED if listed[name] == getattr(Limits(), name)]
    return {name: value for name, value in listed.items() if name not in unset}


def list_settings(sampling: Sampling) -> dict[str, object]:
    """Return the settings as journals know them: the first five always, those added later where they are set."""
    settings = dataclasses.asdict(sampling)
    del settings["required"]
    added = tuple(settings)[5:]
    return {
        name: value
        for name, value in settings.items()
        if name not in added or value is not None
    }


def shorten(value: object) -> str:
    """Return a hash of a value, short enough to be read."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:12]


@functools.cache
def _build_completion_reader() -> TypeAdapter[Completion]:
    """Build the reader of completions once: it takes milliseconds."""
    return TypeAdapter(Completion)


def without_surrogates(completion: Completion) -> Completion:
    """Return the completion with a question mark for every lone surrogate."""
    text = json.dumps(dataclasses.asdict(completion), ensure_ascii=False)
    valid = text.encode("utf-8", "replace")
    return _build_completion_reader().validate_json(valid)
