"""The services of a file: its providers, toolboxes and gates, and where runs and knowledge are stored."""

import contextlib
import dataclasses
import pkgutil
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, cast

from ..errors import ConfigError
from ..events.payloads import Codec
from ..followups.base import FollowUp
from ..followups.registry import load_follow_up_class
from ..gates.all_of import AllOf
from ..gates.base import PolicyGate
from ..journals.base import Journal
from ..knowledge.base import Knowledge
from ..limits import Limits
from ..plugins import (
    build_gate,
    build_journal,
    build_knowledge,
    build_provider,
    plugin,
    plugins,
)
from ..providers.base import Provider
from ..providers.dialects.text_tools import TextTools
from ..providers.fallback import FallbackProvider
from ..providers.prices import Price
from ..providers.tiers import TIERS, Tiers
from ..security.aes_codec import AESCodec
from ..settings.base import Settings
from ..tools.registry import ToolRegistry
from .factories import build_plugin, call_with, take_name
from .file import FileTables, Values, suggest
from .secrets import Environment

FALLBACK = "fallback"
MEMBERS = ("name", "model", "capabilities", "complete")
"""What each provider has."""
SQLITE_SETTINGS = "loopwright.settings.sqlite:SQLiteSettings"
"""Imported where a file names settings: a page of help needs no SQLite."""


class Providers:
    """The providers of a file by name, each built where it is first needed, and their prices."""

    def __init__(
        self,
        tables: Mapping[str, Values],
        environment: Environment,
        given: Mapping[str, Provider],
    ) -> None:
        self._tables, self._environment, self._given = tables, environment, given
        self._built: dict[str, Provider] = {}
        self._open: list[str] = []
        self._own: Provider | None = None
        self.prices: dict[str, Price] = {}
        for name in given:
            if name not in tables:
                raise ConfigError(
                    f"providers.{name}: is passed for a table that is not there; {suggest(name, tables)}"
                )
        for name in tables:
            self.get(name)

    @property
    def opened(self) -> tuple[Provider, ...]:
        """All that were built, to close them."""
        own = () if self._own is None else (self._own,)
        built = (one for name, one in self._built.items() if name not in self._given)
        return (*built, *own)

    @property
    def named(self) -> Mapping[str, Provider]:
        """All of them; under the names of tiers, each tier that is missing is served by another."""
        if self._built and self._built.keys() <= set(TIERS):
            return Tiers(**self._built)
        return dict(self._built)

    def choose(self, name: str) -> Provider:
        """Return the provider of the runtime: of that name, "provider:model", or the only one there is."""
        if name in self._tables:
            return self.get(name)
        if name:
            with at("runtime.provider"):
                built = _add_dialect(build_provider(name), None, "runtime.provider")
            self._own = built
            return built
        if len(self._tables) == 1:
            return self.get(*self._tables)
        raise ConfigError(
            f"runtime.provider: name one of {', '.join(self._tables)}, or 'provider:model', got ''"
            if self._tables
            else 'providers: name the model, like [providers.main] with provider = "openai" and model = "gpt-4.1-mini"'
        )

    def get(self, name: str) -> Provider:
        """Return the provider of a table, built at its first use."""
        if name in self._given:
            self._built[name] = self._given[name]
        if name in self._built:
            return self._built[name]
        place = f"providers.{name}"
        if name in self._open:
            raise ConfigError(f"{place}: is made of itself, by {' and '.join(self._open)}")  # fmt: skip
        self._open.append(name)
        table = self._environment.fill(self._tables[name], place)
        price, dialect = table.pop("price", None), table.pop("dialect", None)
        built = self._build(table, place)
        self._built[name] = built = _add_dialect(built, dialect, place)
        if price is not None:
            found = call_with(Price, _check_table(price, f"{place}.price"), f"{place}.price")  # fmt: skip
            self.prices[built.model] = found
        self._open.remove(name)
        return built

    def _build(self, table: Values, place: str) -> Provider:
        """Return an installed provider, members that stand in for one another, or the provider of `object`."""
        if "object" in table and "provider" not in table:
            return _check_provider(_load_own(table, place), f"{place}.object")
        kind, options = take_name(table, "provider", place)
        if kind == FALLBACK:
            return self._fall_back(options, place)
        return cast("Provider", build_plugin("providers", kind, options, place))

    def _fall_back(self, options: Values, place: str) -> FallbackProvider:
        members = options.pop("members", None)
        known = [name for name in self._tables if f"providers.{name}" != place]
        if not isinstance(members, list) or not members:
            raise ConfigError(
                f"{place}.members: name other providers of the file, in order, got {members!r:.60}"
            )
        names = cast("Sequence[Any]", members)
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"{place}.members: there is no provider {name!r}; {suggest(str(name), known)}"
                )
        providers = [self.get(name) for name in names]

        def build(cool_down: float = 30.0) -> FallbackProvider:
            return FallbackProvider(*providers, cool_down=cool_down)

        built: FallbackProvider = call_with(build, options, place)
        return built


def _check_provider(built: Any, place: str) -> Provider:
    """Return what was loaded; raise `ConfigError` if it lacks a member of a provider."""
    missing = [name for name in MEMBERS if not hasattr(built, name)]
    if missing or isinstance(built, type):
        raise ConfigError(f"{place}: must be a provider, which has {', '.join(MEMBERS)}, got {built!r:.60}")  # fmt: skip
    return cast("Provider", built)


def _load_own(table: Values, place: str) -> Any:
    """Return what the code of the file's owner has under the name `object`; with options it is called to make it."""
    name, options = take_name(table, "object", place)
    found = load_object(name, f"{place}.object")
    return call_with(found, options, place) if options else found


def _add_dialect(provider: Provider, dialect: object, place: str) -> Provider:
    """Return a provider behind a dialect, if one is named or if it has no native tool calls."""
    if dialect is None and provider.capabilities.native_tools:
        return provider
    with at(f"{place}.dialect"):
        return TextTools(provider, cast("str", dialect or "auto"))


def build_toolboxes(tables: FileTables, environment: Environment) -> dict[str, list[Any]]:  # fmt: skip
    """Return the tools of each toolbox of a file."""
    return {
        name: _build_toolbox(
            environment.fill(table, f"toolboxes.{name}"), f"toolboxes.{name}"
        )
        for name, table in tables.toolboxes.items()
    }


def _build_toolbox(table: Values, place: str) -> list[Any]:
    """Return the tools of an installed toolbox, or of `object`: a function, a `Tool`, a source, a list of those.

    With options, the object is called to make them.
    """
    if "object" in table and "toolbox" not in table:
        built = _load_own(table, place)
    else:
        name, options = take_name(table, "toolbox", place)
        built = build_plugin("toolboxes", name, options, place)
    several = list(cast("Sequence[Any]", built)) if isinstance(built, (list, tuple)) else [built]  # fmt: skip
    with at(place):
        ToolRegistry(several)
    return several


def choose_tools(
    names: Sequence[str], toolboxes: Mapping[str, list[Any]], place: str
) -> list[Any]:
    """Return the tools of some toolboxes of the file; raise `ConfigError` for one that it does not have."""
    for name in names:
        if name not in toolboxes:
            raise ConfigError(f"{place}: there is no toolbox {name!r}; {suggest(name, toolboxes)}")  # fmt: skip
    return [tool for name in names for tool in toolboxes[name]]


def build_gates(tables: FileTables, environment: Environment) -> PolicyGate | None:
    """Return the gates that all must allow a call as one; `None` for the default gate."""
    unused = [name for name in tables.gates if name not in tables.runtime.gates]
    if unused:
        # A gate that is not asked would look like a protection.
        raise ConfigError(f"gates.{unused[0]}: no call is decided by it; add {unused[0]!r} to runtime.gates")  # fmt: skip
    found = [_build_gate(name, tables.gates, environment) for name in tables.runtime.gates]  # fmt: skip
    if not found:
        return None
    return found[0] if len(found) == 1 else AllOf(*found)


def _build_gate(
    name: str, tables: Mapping[str, Values], environment: Environment
) -> PolicyGate:
    if name not in tables:
        known = [*tables, *plugins("gates")]
        if name.partition(":")[0] not in known:
            raise ConfigError(f"runtime.gates: there is no gate {name!r}; {suggest(name, known)}")  # fmt: skip
        with at("runtime.gates"):
            return build_gate(name)
    place = f"gates.{name}"
    kind, options = take_name(environment.fill(tables[name], place), "gate", place)
    built: PolicyGate = build_plugin("gates", kind, options, place)
    if not callable(getattr(built, "evaluate", None)):
        raise ConfigError(f"{place}: {kind!r} gave {built!r:.60}, which has no method evaluate")  # fmt: skip
    return built


def open_journal(
    given: str | Values, environment: Environment, codec: Codec | None = None
) -> Journal | None:
    """Return the journal of a file; `None` if it names none. A key file that the file names goes before `codec`."""
    place = "runtime.journal"
    if isinstance(given, str):
        with at(place):
            return (
                build_journal(environment.fill(given, place), codec) if given else None
            )
    name, options = take_name(environment.fill(given, place), "journal", place)
    keys = options.pop("keys", None)
    codec = codec if keys is None else _read_keys(keys, f"{place}.keys")
    live = {} if codec is None else {"codec": codec}
    built: Journal = build_plugin("journals", name, options, place, live)
    return built


def _read_keys(keys: object, place: str) -> Codec:
    """Return the codec of a key file."""
    if not isinstance(keys, str):
        raise ConfigError(f"{place}: must be the path of a key file, got {keys!r:.60}")
    with at(place):
        return AESCodec.from_file(keys)


class KnowledgeStores:
    """Opens the stores of knowledge that a file names; a store that is named alike in several places is one.

    Args:
        environment: the variables that options name.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._opened: dict[str, Knowledge] = {}

    @property
    def opened(self) -> tuple[Knowledge, ...]:
        """The stores, to be closed."""
        return tuple(self._opened.values())

    def open(self, given: str | Values, place: str) -> Knowledge | None:
        """Return the store that a key of the file names; `None` if it names none."""
        if not given:
            return None
        filled = self._environment.fill(given, place)
        known = repr(filled)
        if known not in self._opened:
            self._opened[known] = _build_knowledge(filled, place)
        return self._opened[known]


def _build_knowledge(given: str | Values, place: str) -> Knowledge:
    if isinstance(given, str):
        with at(place):
            return build_knowledge(given)
    name, options = take_name(given, "knowledge", place)
    built: Knowledge = build_plugin("knowledge", name, options, place)
    return built


def open_settings(given: str, environment: Environment) -> Settings | None:
    """Return the settings of a file; `None` if it names none."""
    place = "runtime.settings"
    if not given:
        return None
    open_file: Callable[[str], Settings] = pkgutil.resolve_name(SQLITE_SETTINGS)
    with at(place):
        return open_file(environment.fill(given, place))


def build_limits(shared: Values, own: Values, place: str) -> Limits:
    """Return the limits of the file with those that an agent changes."""
    known = Limits.__annotations__
    for name in own or shared:
        if name not in known:
            raise ConfigError(f"{place}.{name}: there is no such limit; {suggest(name, known)}")  # fmt: skip
    with at(place):
        return Limits(**{**shared, **own})


def load_object(spec: str, place: str) -> Any:
    """Return the object that "package.module:object" names; raise `ConfigError` if it cannot be imported."""
    module, colon, name = spec.partition(":")
    if not (colon and module and name):
        raise ConfigError(f"{place}: write package.module:object, got {spec!r:.60}")
    try:
        return pkgutil.resolve_name(spec)
    except (Exception, SystemExit) as error:  # importing runs third-party code
        problem = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{place}: {spec!r} cannot be loaded: {problem}") from error


def build_follow_ups(given: Sequence[str | Values], place: str) -> list[str | FollowUp]:
    """Return follow-ups of a file, built from tables; raise `ConfigError`, with the path, for one that is not installed."""
    return [_build_follow_up(one, place, number) for number, one in enumerate(given)]


def _build_follow_up(given: str | Values, place: str, number: int) -> str | FollowUp:
    if isinstance(given, str):
        with at(place):
            plugin("followups", given)
        return given
    own = f"{place}.{number}"
    name, options = take_name(given, "follow_up", own)
    with at(own):
        kind = load_follow_up_class(name)
    known = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType] - pydantic's
    for option in options:
        if option not in known:
            raise ConfigError(f"{own}.{option}: {name} has no such option; {suggest(option, known)}")  # fmt: skip
    with at(own):
        return kind(**options)


def _check_table(value: Any, place: str) -> Values:
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: must be a table, got {value!r:.60}")
    return cast("Values", value)


@contextlib.contextmanager
def at(place: str) -> Generator[None]:
    """Put the path of a table in front of the text of an error."""
    try:
        yield
    except ConfigError as error:
        if str(error).startswith(place):
            raise
        raise ConfigError(f"{place}: {error}") from error
