"""Check a setting before it is written: its name, its type, and that no code, secret or higher limit is in it."""

from collections.abc import Callable
from typing import Any

from .._internal import dataclasses
from .._internal.options import Options, check_some, list_needed
from .._kernel.session.services import Services
from ..engine import LoopEngine
from ..errors import ConfigError
from ..events.run_settings import RunSettings
from ..limits import Limits
from ..messages import Json
from ..plugins import load_engine_class
from ..settings.configured_engine import configure, override_prompt, rebind
from ..settings.names import OF_CODE, SettingName

MAX_VALUE = 20_000  # characters of a value
OF_CODE_ALONE = ("runtime", "hooks")
"""Options of engines that no setting changes."""
NOT_LIMITS = ("best_effort",)
HEADERS = ("extra_headers", "extra_body")
"""Settings of model calls that may hold keys."""


def check_setting(runtime: Services, full: str, value: Json) -> None:
    """Raise `ConfigError` for a setting that the code does not take, or that is code alone."""
    name = SettingName.parse(full)
    found = {full: value}
    if runtime.redactor.redact_value(found) is not found:
        raise ConfigError(
            f"{full}: holds a secret, which every run would record; leave it out"
        )
    if len(str(value)) > MAX_VALUE:
        raise ConfigError(f"{full}: has more than {MAX_VALUE:,} characters; shorten it")
    if value is None:
        return
    if name.part == "enabled" and not isinstance(value, bool):
        raise ConfigError(f"{full}: must be true or false, got {value!r:.80}")
    subject = _find_subject(runtime, name, full, value)
    if name.part in CHECKS:
        CHECKS[name.part](subject, name, full, value)
        try:
            subject.configure(name, full, value)
        except ConfigError as error:
            problem = str(error).removeprefix(f"{full}: ")
            raise ConfigError(f"{full}: {problem}") from None


@dataclasses.dataclass(frozen=True)
class _Subject:
    """What a setting is about: the class of an engine, its services, and one such engine.

    There is no engine (`None`) of a class that needs options which nothing here says.
    """

    kind: type[LoopEngine]
    services: Services
    engine: LoopEngine | None

    def configure(self, name: SettingName, full: str, value: Json) -> None:
        """Raise `ConfigError` where the engine cannot be had with the setting."""
        if self.engine is not None:
            configure(self.engine, RunSettings(0, {full: value}))
        elif name.part == "prompts":
            override_prompt(self.kind, {}, full, name.field, str(value))
        elif name.part == "option":
            check_some(self.kind, self.services, **{name.field: value})


def _find_subject(
    runtime: Services, name: SettingName, full: str, value: Json
) -> _Subject:
    """Return what a setting is about; raise `ConfigError` for an engine or an agent that is not there."""
    if name.kind == "agent":
        if name.owner not in runtime.agents:
            known = ", ".join(runtime.agents) or "none"
            raise ConfigError(
                f"{full}: there is no agent {name.owner!r}; there are {known}"
            )
        engine: LoopEngine = runtime.agents[name.owner].engine
        return _Subject(type(engine), engine.runtime, engine)
    try:
        kind = load_engine_class(name.owner)
        return _Subject(kind, runtime, _build(kind, runtime, name, value))
    except ConfigError as error:
        raise ConfigError(f"{full}: {error}") from None


def _build(
    kind: type[LoopEngine], runtime: Services, name: SettingName, value: Json
) -> LoopEngine | None:
    """Return an engine of a class: with its defaults, one that an agent has, or one that needs the setting alone."""
    needed = list_needed(kind)
    if not needed:
        return kind(runtime)
    for agent in runtime.agents.values():
        if type(agent.engine) is kind:
            found: LoopEngine = rebind(agent.engine, runtime)
            return found
    if needed == [name.field] and name.part == "option":
        given: Any = {name.field: value}
        return kind(runtime, **given)
    return None


def _check_text(subject: _Subject, name: SettingName, full: str, value: Json) -> None:
    """Raise `ConfigError` unless a text is given, and one is replaced."""
    if not isinstance(value, str):
        raise ConfigError(f"{full}: must be a text, got {value!r:.80}")
    of_code = subject.services.instructions
    if name.part == "instructions" and not isinstance(of_code, (str, type(None))):
        raise ConfigError(
            f"{full}: the instructions of the code are a template or a function; make them a text first"
        )


def _check_limit(subject: _Subject, name: SettingName, full: str, value: Any) -> None:
    """Raise `ConfigError` for a limit that is none, or that is above the code's."""
    limits = subject.services.limits
    known = [one for one in vars(limits) if one not in NOT_LIMITS]
    if name.field not in known:
        raise ConfigError(
            f"{full}: there is no such limit; there are {', '.join(known)}"
        )
    try:
        Limits(**{name.field: value})
    except ConfigError as error:
        raise ConfigError(f"{full}: {error}") from None
    own = getattr(limits, name.field)
    if own is not None and value > own:
        raise ConfigError(
            f"{full}: must be at most {own}, the limit of the code, got {value!r}"
        )


def _check_option(subject: _Subject, name: SettingName, full: str, value: Json) -> None:
    """Raise `ConfigError` for an option that is not there, or that is code alone."""
    fields = [field.name for field in dataclasses.fields(subject.kind)]
    known = [one for one in fields if one not in OF_CODE_ALONE]
    if name.field not in known:
        raise ConfigError(
            f"{full}: no such option, there are {', '.join(known)}; {OF_CODE}"
        )
    if isinstance(getattr(subject.engine, name.field, None), Options):
        raise ConfigError(f"{full}: is an engine, which the code chooses")
    if isinstance(value, dict) and not value.keys().isdisjoint(HEADERS):
        raise ConfigError(f"{full}: {' and '.join(HEADERS)} are code alone")


CHECKS: dict[str, Callable[[_Subject, SettingName, str, Json], None]] = {
    "instructions": _check_text,
    "prompts": _check_text,
    "limits": _check_limit,
    "option": _check_option,
}
"""What is checked of a setting besides its name, by its part."""
