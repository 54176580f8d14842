"""Record the options of an engine as JSON, and those of the engines inside it."""

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from ...messages import Json
from ...prompts import find_changes
from ...providers.base import Sampling

OPEN: Mapping[str, object] = {"sampling": Sampling(), "hooks": (), "model": None}
"""The options of every engine, which are recorded where they are set."""


def record_options(engine: Any) -> tuple[dict[str, Json], tuple[str, ...]]:
    """Return options as JSON, and the names of those that are code or live objects."""
    recorded = _RecordedOptions(engine)
    for field in dataclasses.fields(engine):
        value = getattr(engine, field.name)
        is_unset = field.name in OPEN and value == OPEN[field.name]
        if field.name != "runtime" and not is_unset:
            recorded.add(field, value)
    return recorded.options, tuple(recorded.opaque)


class _RecordedOptions:
    """The options of one engine, as far as they are recorded."""

    def __init__(self, engine: Any) -> None:
        self._runtime = engine.runtime
        self.options: dict[str, Json] = {}
        self.opaque: list[str] = []

    def add(self, field: dataclasses.Field[Any], value: Any) -> None:
        """Record an option, or that it cannot be."""
        given = value.options if isinstance(value, Sampling) else value
        try:
            plain = self._encode(field.name, find_changes(field, given))
            option: Json = {field.name: plain}
            # What cannot be recorded cannot be rebuilt.
            if self._runtime.redactor.redact_value(option) is not option:
                raise PydanticSerializationError("a secret")
            self.options[field.name] = plain
        except PydanticSerializationError:
            self.opaque.append(field.name)

    def _encode(self, name: str, value: Any) -> Json:
        if hasattr(value, "recorded_options"):
            return self._encode_engine(name, value)
        if isinstance(value, tuple):
            parts = cast("tuple[Any, ...]", value)  # type: ignore[redundant-cast] # for basedpyright
            return [
                self._encode(f"{name}.{place}", each)
                for place, each in enumerate(parts, 1)
            ]
        encoded: Json = to_jsonable_python(value)
        return encoded

    def _encode_engine(self, name: str, engine: Any) -> Json:
        options, hidden = engine.recorded_options()
        self.opaque += [f"{name}.{option}" for option in hidden]
        if engine.runtime is not self._runtime:
            self.opaque.append(f"{name}.runtime")
        return {"engine": engine.name, "options": options}
