"""How events describe themselves: a line for people, and what of each field may leave the journal.

Logs, traces, metrics and timelines read these descriptions, so that a new event needs no entry in any table of theirs.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_type_hints

from pydantic_core import to_json

from .._internal import dataclasses
from ..messages import Usage

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Privacy: TypeAlias = Literal["public", "content", "tool_name"]


@dataclasses.dataclass(frozen=True)
class Exposure:
    """Where the value of a field may be shown; a field without it stays in the journal.

    Args:
        privacy: "public" values are the runtime's own: numbers, statuses, configured names. "content" was written by a
            model, a tool or a person, and is shown only where an application asks for it. A "tool_name" may have been
            invented by a model: it is public once policy has accepted the call.
        attribute: its name in traces, if it has one.
        metric: whether metrics are broken down by it too: it has few values.
        log: its name in logs where the field's own is taken; "" keeps it out of logs.
        count: whether only the length of the value is public.
    """

    privacy: Privacy
    attribute: str = ""
    metric: bool = False
    log: str | None = None
    count: bool = False


def public(
    attribute: str = "", *, metric: bool = False, log: str | None = None
) -> Exposure:
    """Declare that a value of the runtime's own may be shown everywhere."""
    return Exposure("public", attribute, metric, log)


PUBLIC = Exposure("public")
CONTENT = Exposure("content")
TOOL = public("gen_ai.tool.name", metric=True)
CALL_ID = public("gen_ai.tool.call.id")
TOOL_STATUS = public("loopwright.tool.status")
RESULT_TEXT = Exposure("content", "gen_ai.tool.call.result")
STATUS = public("loopwright.status", metric=True)
STOP_REASON = public("loopwright.stop_reason", metric=True)
PROPOSED_TOOL = Exposure("tool_name", "gen_ai.tool.name", metric=True)


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of an event that may be shown, by its `name`, and where."""

    name: str
    exposure: Exposure

    @property
    def log_name(self) -> str:
        """Return its name in logs; an empty one keeps it out of them."""
        return self.name if self.exposure.log is None else self.exposure.log


@dataclasses.dataclass(frozen=True)
class Counter:
    """A metric that counts the events of a type, with its unit; `by_engine` breaks it down by engine too."""

    name: str
    unit: str
    description: str
    by_engine: bool = False


_DEFAULTS: dict[object, tuple[tuple[str, Any], ...]] = {}
"""The fields of dataclasses with their defaults; what has none has a value that equals nothing."""


class Part:
    """A dataclass that is a part of events, and of which the journal has what says something."""


def drop_defaults(value: object) -> dict[str, Any]:
    """Return the fields of a dataclass that hold something else than their defaults, by name; of a `Part` too."""
    found, kind = vars(value), type(value)
    defaults = _DEFAULTS.get(kind)
    if defaults is None:
        fields = dataclasses.fields(cast("Any", kind))
        defaults = tuple((field.name, _find_default(field)) for field in fields)
        _DEFAULTS[kind] = defaults
    kept: dict[str, Any] = {}
    for name, default in defaults:
        held = found[name]
        if held != default:
            kept[name] = drop_defaults(held) if isinstance(held, Part) else held
    return kept


def _find_default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


class DescribedEvent:
    """The base of every event.

    Class arguments: `kind` is its name in the journal if that is not made of the class name; `heading` labels its line
    in a timeline, where "" leaves it out; `level` is that of its log line; `counter` counts it; `derived` names
    properties that are shown as fields are.
    """

    kind: ClassVar[str]
    heading: ClassVar[str]
    counter: ClassVar[Counter | None]
    derived: ClassVar[Mapping[str, Exposure]]
    is_shortened: ClassVar[bool]
    """Whether the journal has it otherwise than with all its fields."""
    _level: ClassVar[Level]

    def __init_subclass__(
        cls,
        *,
        kind: str = "",
        heading: str | None = None,
        level: Level = "debug",
        counter: Counter | None = None,
        derived: Mapping[str, Exposure] | None = None,
    ) -> None:
        cls.kind = kind or kind_of(cls)
        cls.heading = cls.kind.replace("_", " ") if heading is None else heading
        cls._level, cls.counter, cls.derived = level, counter, derived or {}
        cls.is_shortened = cls.to_stored is not DescribedEvent.to_stored

    def to_stored(self) -> Any:
        """Return what is written into the journal; what it left out is restored when that is read."""
        return self

    def restore(self) -> Any:
        """Return the event that was stored."""
        return self

    @property
    def level(self) -> Level:
        """Return the level of its line in a log."""
        return self._level

    def summary(self) -> str:
        """Return the event in one line for people; it holds content, as a model or a tool wrote it."""
        shown = [field.name for field in fields_of(type(self))]
        return ", ".join(
            f"{name}={format_value(getattr(self, name))}" for name in shown
        )

    def lines(self) -> list[tuple[str, str]]:
        """Return the heading and the text of each of its lines in a timeline; an empty text is left out."""
        return [(self.heading, self.summary())] if self.heading else []


def kind_of(event_type: type) -> str:
    """Return the name of an event type in a journal: `ModelReplied` is `model_replied`."""
    own: str = vars(event_type).get("kind", "")
    return own or re.sub(r"(?<!^)(?=[A-Z])", "_", event_type.__name__).lower()


_FIELDS: dict[type[Any], tuple[Field, ...]] = {}


def fields_of(event_type: type[DescribedEvent]) -> tuple[Field, ...]:
    """Return the fields of an event that may be shown, in their order, and its derived ones."""
    if event_type not in _FIELDS:
        _FIELDS[event_type] = _read_fields(event_type)
    return _FIELDS[event_type]


def _read_fields(event_type: type[DescribedEvent]) -> tuple[Field, ...]:
    hints = get_type_hints(event_type, include_extras=True)
    declared = {name: _exposure_of(hint) for name, hint in hints.items()}
    shown = {name: found for name, found in declared.items() if found is not None}
    shown |= event_type.derived
    return tuple(Field(name, exposure) for name, exposure in shown.items())


def _exposure_of(hint: Any) -> Exposure | None:
    metadata = getattr(hint, "__metadata__", ())
    return next((one for one in metadata if isinstance(one, Exposure)), None)


# --- parts of a summary ---


def format_value(value: object) -> str:
    """Return a JSON value on one line."""
    encoded = to_json(value, fallback=repr, inf_nan_mode="strings")
    return encoded.decode("utf-8", "replace")


def format_call(name: str, arguments: Mapping[str, object]) -> str:
    """Return a tool call in the notation of code: `add(a=1, b=2)`; control characters of its name stay in it."""
    named = {
        key if key.isidentifier() else format_value(key): format_value(value)
        for key, value in arguments.items()
    }
    return f"{name}({', '.join(f'{key}={value}' for key, value in named.items())})"


def format_count(number: int, noun: str) -> str:
    """Return `1 call` or `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_spending(usage: Usage, llm_calls: int, tool_calls: int) -> str:
    """Return what a run used: `2 model calls, 1 tool call, 120 + 40 tokens, cost 0.0012`."""
    calls = [
        format_count(llm_calls, "model call"),
        format_count(tool_calls, "tool call"),
    ]
    return ", ".join([*calls, *format_usage(usage)])


def format_usage(usage: Usage) -> list[str]:
    """Return tokens sent and received, if the provider reported them or they were estimated, and their cost."""
    found: list[str] = []
    if usage.input_tokens is not None or usage.output_tokens is not None:
        about = "about " if usage.estimated else ""
        found.append(
            f"{about}{usage.input_tokens or 0} + {usage.output_tokens or 0} tokens"
        )
    if usage.cost is not None:
        found.append(f"cost {usage.cost:.6g}")
    return found
