"""List what may be set of the agents and engines of a runtime, with the values that the code has."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic_core import to_jsonable_python

from .._internal import dataclasses
from .._internal.options import Options
from .._kernel.session.services import Services
from ..engine import LoopEngine
from ..errors import ConfigError
from ..events.describe import drop_defaults
from ..messages import Json
from ..plugins import available_engines, load_engine_class
from ..prompts import PromptSet
from ..providers.base import Sampling
from ..settings.names import Part
from .setting_checks import NOT_LIMITS, OF_CODE_ALONE


@dataclasses.dataclass(frozen=True)
class KnownSetting:
    """A setting that may be written.

    Args:
        name: its name, such as `agent.support.limits.max_llm_calls`.
        part: what of the agent or engine it is.
        code: the value that the code has, without secrets.
        placeholders: of a prompt, the names that its text may have in braces.
    """

    name: str
    part: Part
    code: Json
    placeholders: tuple[str, ...] = ()


def list_known(runtime: Services) -> Mapping[str, tuple[KnownSetting, ...]]:
    """Return what may be set, by `agent.NAME` and `engine.NAME`; an engine that cannot be built is left out."""
    found: dict[str, tuple[KnownSetting, ...]] = {}
    for name, agent in runtime.agents.items():
        place = f"agent.{name}"
        found[place] = tuple(_list_settings(agent.engine, place))
    for name in sorted(available_engines()):
        try:
            engine = load_engine_class(name)(runtime)
        except (ConfigError, TypeError):  # it needs options that only code can give
            continue
        place = f"engine.{name}"
        found[place] = tuple(_list_settings(engine, place))
    return found


def _list_settings(engine: LoopEngine, place: str) -> Iterator[KnownSetting]:
    """Iterate over the settings of an engine, those that are changed most often first."""
    of_code = engine.runtime.instructions
    is_text = isinstance(of_code, (str, type(None)))
    if place.startswith("agent.") and is_text:
        yield _build(engine, f"{place}.instructions", "instructions", of_code or "")
    yield KnownSetting(f"{place}.enabled", "enabled", True)
    for limit, value in vars(engine.runtime.limits).items():
        if limit not in NOT_LIMITS:
            yield _build(engine, f"{place}.limits.{limit}", "limits", value)
    yield from _list_options(engine, place)


def _list_options(engine: LoopEngine, place: str) -> Iterator[KnownSetting]:
    """Iterate over the prompts of an engine, and its options."""
    for field in dataclasses.fields(engine):
        value = getattr(engine, field.name)
        if isinstance(value, PromptSet):
            yield from _list_prompts(engine, place, value)
        elif field.name not in OF_CODE_ALONE and not _is_code(value):
            yield _build(engine, f"{place}.{field.name}", "option", value)


def _list_prompts(
    engine: LoopEngine, place: str, prompts: PromptSet
) -> Iterator[KnownSetting]:
    for prompt, template in prompts.items():
        names = tuple(sorted(template.names))
        full = f"{place}.prompts.{prompt}"
        yield _build(engine, full, "prompts", template.text, names)


def _is_code(value: object) -> bool:
    """Whether an option is an engine, or holds some, which the code alone chooses."""
    is_several = isinstance(value, tuple)
    parts = cast("tuple[object, ...]", value) if is_several else (value,)
    return any(isinstance(part, Options) or callable(part) for part in parts)


def _build(
    engine: LoopEngine,
    name: str,
    part: Part,
    value: Any,
    placeholders: tuple[str, ...] = (),
) -> KnownSetting:
    # A sampling is written with the fields that say something.
    stated = drop_defaults(value) if isinstance(value, Sampling) else value
    shown: Any = to_jsonable_python(stated, fallback=repr)
    found: Any = engine.runtime.redactor.redact_value({"value": shown})
    return KnownSetting(name, part, found["value"], placeholders)
