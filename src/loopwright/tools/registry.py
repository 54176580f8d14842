"""The registry of a runtime's tools, which validates calls to them."""

import asyncio
import difflib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeGuard, cast

from .._internal.log import logger
from ..errors import ConfigError, format_error
from ..messages import Json, JsonObject, ToolSpec
from ..providers.call_names import fit_name
from ..providers.provider_tools import ProviderTool
from ..resilience.timeouts import CodeOutcome, run_with_timeout
from .base import Tool, ToolSource, tool_from_function
from .recall import recall
from .recovery import Fallback
from .schema import ArgumentSchema, shorten

REFRESH_TIMEOUT = 10.0
"""Seconds for sources of tools, between two steps, to return their tools."""

Tools: TypeAlias = (
    Iterable[Tool | Callable[..., Any] | ToolSource | ProviderTool] | ToolSource
)
ToolSelector: TypeAlias = Callable[[Iterable[Tool]], Iterable[Tool]]


BUILT_IN = {recall.name: recall}
"""Tools that every runtime has, unless one of its own has the name."""


def is_source(given: object) -> TypeGuard[ToolSource]:
    """Whether this is a source of tools, and neither a tool nor a list.

    Python 3.11 takes 45 µs to compare a value with a protocol, and most values have no such method.
    """
    return hasattr(given, "refresh") and isinstance(given, ToolSource)


def as_items(
    tools: Tools,
) -> tuple[Tool | Callable[..., Any] | ToolSource | ProviderTool, ...]:
    """Return what is given as tools: the items of a list, or one source."""
    if is_source(tools):
        return (tools,)
    return tuple(cast("Iterable[Tool]", tools))


@functools.cache
def _build_schema(name: str) -> ArgumentSchema:
    """Return the compiled schema of a built-in tool, at its first call."""
    schema = BUILT_IN[name].schema
    return ArgumentSchema(name, schema, is_generated=False, third_party=False)


class ToolRegistry:
    """The tools of a runtime, each with its compiled schema; names are unique.

    It does not change: `refresh` returns another one.
    """

    def __init__(
        self, tools: Tools = (), *, choose: ToolSelector | None = None
    ) -> None:
        if not (isinstance(tools, Iterable) or is_source(tools)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"tools: pass a list of functions and Tool values, got {tools!r}"
            )
        given = as_items(tools)
        self.provider_tools = tuple(
            each for each in given if isinstance(each, ProviderTool)
        )
        """The tools that the provider runs by itself."""
        _check_kinds(self.provider_tools)
        self._given = tuple(
            each for each in given if not isinstance(each, ProviderTool)
        )
        self._sources = [each for each in self._given if is_source(each)]
        self.has_sources = bool(self._sources)
        """Whether some of the tools come from sources, which may list others later."""
        self._of_sources = [source.tools for source in self._sources]
        self._choose = choose
        self._tools: dict[str, Tool] = {}
        self._sent: dict[str, str] = {}  # names of tools, by those that models read
        self._schemas: dict[str, ArgumentSchema] = {}
        for each in _choose_tools(self._given, choose):
            self._add(each)
        self._check_fallbacks()
        self.by_name: Mapping[str, Tool] = {**BUILT_IN, **self._tools}
        """The tools by their names, also those that are offered only where there is something for them to do."""
        self.targets = tuple(each for each in self if each.engine or each.handoff)
        """The tools that let another engine work."""

    @functools.cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools as models read them; agents to hand off to may be defined after the tools."""
        return tuple(each.spec for each in self)

    def with_tools(self, *added: Tool) -> "ToolRegistry":
        """Return a registry with more tools."""
        given = (*self._given, *self.provider_tools, *added)
        return ToolRegistry(given, choose=self._choose)

    def without_tools(self, removed: Collection[Tool]) -> "ToolRegistry":
        """Return a registry without some of the tools that it was given."""
        kept = [each for each in self._given if not any(each is one for one in removed)]
        return ToolRegistry((*kept, *self.provider_tools), choose=self._choose)

    def _add(self, new: Tool) -> None:
        if new.name in self._tools:
            raise ConfigError(
                f"two tools are named {new.name!r}; rename one with @tool(name=...)"
            )
        sent = fit_name(new.name)
        other = self._sent.setdefault(sent, new.name)
        if other != new.name:  # the model's call of one would run the other
            raise ConfigError(
                f"tools {other!r} and {new.name!r} are both sent to models as {sent!r}; rename one with @tool(name=...)"
            )
        self._tools[new.name] = new
        self._schemas[new.name] = ArgumentSchema(
            new.name,
            new.schema,
            is_generated=new.arguments_model is not None,
            third_party=new.third_party,
        )

    def _check_fallbacks(self) -> None:
        fallbacks = [
            (each, strategy.tool)
            for each in self._tools.values()
            for strategy in each.recovery
            if isinstance(strategy, Fallback)
        ]
        for failing, name in fallbacks:
            self._check_fallback(failing, name)

    def _check_fallback(self, failing: Tool, name: str) -> None:
        other = self._tools.get(name)
        if other is None or other is failing or other.engine is not None:
            raise ConfigError(
                f"tool {failing.name!r}: recovery falls back to {name!r}, which must be another "
                f"tool of this runtime and not an engine; there are {', '.join(self._tools)}"
            )

    async def refresh(self, remaining: float | None = None) -> "ToolRegistry":
        """Return this registry, or another one if a source of tools has changed.

        Called between two steps. A source that does not answer within `REFRESH_TIMEOUT` seconds, or
        `remaining` if these are fewer, keeps its tools.
        """
        if not self._sources:
            return self
        timeout = (
            REFRESH_TIMEOUT if remaining is None else min(REFRESH_TIMEOUT, remaining)
        )
        outcomes = await asyncio.gather(
            *(run_with_timeout(source.refresh(), timeout) for source in self._sources)
        )
        for outcome in outcomes:
            _log_failure(outcome, timeout)
        if not self._has_changed(outcome.value for outcome in outcomes):
            return self
        try:
            given = (*self._given, *self.provider_tools)
            return ToolRegistry(given, choose=self._choose)
        except ConfigError as error:
            # The tool of a fallback is gone, or a name is taken.
            logger().warning("tools_not_refreshed", error=str(error))
            return self

    def _has_changed(self, tools: Iterable[object]) -> bool:
        """Whether a source returned other tools; `None` means that it did not answer."""
        pairs = zip(tools, self._of_sources, strict=True)
        return any(new is not None and new != old for new, old in pairs)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values that its tools know and must not disclose."""
        return tuple(secret for each in self for secret in each.secrets)

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, also one that is offered only where there is something for it to do."""
        return self.by_name.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def find_problem(self, name: str, arguments: Json | JsonObject) -> str | None:
        """Return the problem of a call, in words that help a model correct it; `None` without one."""
        schema = self._schemas.get(name)
        if schema is None and name not in BUILT_IN:
            return self._describe_unknown(name)
        schema = schema or _build_schema(name)
        if schema.fits_plainly(arguments):
            return None
        return schema.find_problem(arguments) or self._find_type_problem(
            name, cast("JsonObject", arguments)
        )

    def _describe_unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._tools, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"There is no tool {name!r}.{hint} Tools: {', '.join(self._tools) or 'none'}."

    def _find_type_problem(self, name: str, arguments: JsonObject) -> str | None:
        """Return a problem that a schema cannot express, such as the form of a date."""
        try:
            self.by_name[name].bind_arguments(arguments)
        except RecursionError:
            return f"The arguments of {name} are nested too deeply."
        except ValueError as error:
            return f"The arguments do not fit: {shorten(str(error))}"
        return None


def _check_kinds(tools: Iterable[ProviderTool]) -> None:
    """Raise `ConfigError` if a tool of the provider is declared twice."""
    kinds: set[str] = set()
    for each in tools:
        if each.kind in kinds:
            raise ConfigError(
                f"tools: ProviderTool({each.kind!r}) is given twice; remove one"
            )
        kinds.add(each.kind)


def _list_tools(
    given: Iterable[Tool | Callable[..., Any] | ToolSource],
) -> Iterable[Tool]:
    found: list[Tool] = []
    for each in given:
        if is_source(each):
            found.extend(map(_as_tool, each.tools))
        else:
            found.append(_as_tool(cast("Tool | Callable[..., Any]", each)))
    return found


def _choose_tools(
    given: Iterable[Tool | Callable[..., Any] | ToolSource],
    choose: ToolSelector | None,
) -> Iterable[Tool]:
    """Return the tools that a profile chooses, with those that hand the run off: the agent has these by name."""
    listed = list(_list_tools(given))
    if choose is None:
        return listed
    others = [each for each in listed if each.handoff is None]
    return [*choose(others), *(each for each in listed if each.handoff)]


def _as_tool(given: Tool | Callable[..., Any]) -> Tool:
    return given if isinstance(given, Tool) else tool_from_function(given)


def _log_failure(outcome: CodeOutcome, timeout: float) -> None:
    if outcome.error is not None:
        logger().warning("tools_not_refreshed", error=format_error(outcome.error))
    elif outcome.timed_out:
        error = f"no list within {timeout:g} s"
        logger().warning("tools_not_refreshed", error=error)
