"""The tools of an MCP server as they are offered to models: chosen, pinned, and kept back if they change."""

import collections
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from ..._internal import dataclasses
from ..._internal.log import logger
from ...errors import ConfigError, ToolError
from ...labels import LABELS, Label
from ...messages import Effect
from ...tools.base import EFFECTS, NAME, Tool
from ...tools.schema import ArgumentSchema
from .errors import UnsuitableTool
from .listing import ListedTool, clean_description, count_parts, reduce_schema

OnChange: TypeAlias = Literal["refuse", "accept"]
REPEATABLE = ("read", "idempotent")
"""A call with such an effect may be made a second time."""
MakeFunction: TypeAlias = Callable[[str, str, bool], Callable[..., Any]]
"""Makes the function of a tool, given its name, its pin, and whether a call may be repeated."""


@dataclasses.dataclass(frozen=True)
class OfferOptions:
    """The options of `McpToolbox` about its tools."""

    name: str
    trusted: bool
    effects: Mapping[str, Effect]
    include: frozenset[str]
    exclude: frozenset[str]
    label: Label
    timeout: float | None
    secrets: tuple[str, ...]
    pins: Mapping[str, str] | None
    on_change: OnChange
    outbound: bool = True

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"name: use letters, digits, '_' or '-', got {self.name!r}"
            )
        for tool, effect in self.effects.items():
            if effect not in EFFECTS:
                raise ConfigError(
                    f"effects: {tool!r} must be one of {', '.join(EFFECTS)}, got {effect!r}"
                )
        if self.label not in LABELS:
            raise ConfigError(
                f"label: must be one of {', '.join(LABELS)}, got {self.label!r}"
            )
        if self.on_change not in get_args(OnChange):
            raise ConfigError(
                f'on_change: must be "refuse" or "accept", got {self.on_change!r}'
            )

    def wants(self, name: str) -> bool:
        """Whether a tool of the server is to be offered."""
        is_included = not self.include or name in self.include
        return is_included and name not in self.exclude


@dataclasses.dataclass(frozen=True)
class Offer:
    """A tool as it is offered to models, and the pin of its definition at that time."""

    tool: Tool
    pin: str


class ToolOffers:
    """The offered tools of one server, beside the definitions that it lists now."""

    def __init__(self, options: OfferOptions, make_function: MakeFunction) -> None:
        self._options, self._make_function = options, make_function
        self._pins = None if options.pins is None else dict(options.pins)
        self._offers: dict[str, Offer] = {}
        self._now: dict[str, ListedTool] = {}
        self.left_out: Mapping[str, str] = {}

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that are as they were offered."""
        return tuple(
            offer.tool
            for name, offer in self._offers.items()
            if self._current_pin(name) == offer.pin
        )

    @property
    def changed(self) -> tuple[str, ...]:
        """Return the names of tools whose definition differs from the offered one."""
        return tuple(
            name
            for name, offer in self._offers.items()
            if self._current_pin(name) not in (None, offer.pin)
        )

    @property
    def pins(self) -> dict[str, str]:
        """Return the pin of each offered tool."""
        return {name: offer.pin for name, offer in self._offers.items()}

    def _current_pin(self, name: str) -> str | None:
        now = self._now.get(name)
        return None if now is None else now.pin

    def accept(self, names: Sequence[str]) -> None:
        """Offer changed tools as they are now, all of them without names."""
        for name in names or self.changed:
            if name not in self.changed:
                changed = ", ".join(self.changed) or "none"
                raise ConfigError(
                    f"accept: {name!r} did not change; changed are {changed}"
                )
            now = self._now[name]
            if self._pins is not None:
                self._pins[name] = now.pin
            del self._offers[name]
            try:
                self._offers[name] = self._make_offer(now)
            except UnsuitableTool as error:
                self.left_out = {**self.left_out, name: str(error)}

    def update(self, listed: Sequence[ListedTool]) -> None:
        """Use the list of the server: offer new tools, keep changed ones back.

        All of it is used, or, if this raises, nothing.
        """
        counts = collections.Counter(one.name for one in listed)
        left_out = {
            name: "the server lists it more than once"
            for name, count in counts.items()
            if count > 1
        }
        now: dict[str, ListedTool] = {}
        offers, parts = dict(self._offers), 0
        for one in listed:
            if one.name in left_out or not self._options.wants(one.name):
                continue
            try:
                parts += count_parts(one, beside=parts)
                now[one.name] = one
                self._update_offer(offers, one)
            except UnsuitableTool as error:
                left_out[one.name] = str(error)
        self._log_left_out(left_out)
        before = self._now.keys()
        self._now, self._offers, self.left_out = now, offers, left_out
        self._log_changes(before)

    def _update_offer(self, offers: dict[str, Offer], one: ListedTool) -> None:
        known = offers.get(one.name)
        accepts_changes = self._options.on_change == "accept"
        if known is None or (accepts_changes and known.pin != one.pin):
            offers.pop(one.name, None)
            offers[one.name] = self._make_offer(one)

    def _log_left_out(self, left_out: Mapping[str, str]) -> None:
        server = self._options.name
        for name, why in left_out.items() - self.left_out.items():
            logger().warning("mcp_tool_left_out", server=server, tool=name, why=why)

    def _log_changes(self, before: Collection[str]) -> None:
        gone = sorted(set(before) - self._now.keys())
        if before and (self.changed or gone):
            logger().warning(
                "mcp_tools_changed",
                server=self._options.name,
                changed=list(self.changed),
                gone=gone,
            )

    def _make_offer(self, one: ListedTool) -> Offer:
        """Make a tool of a definition. Raises `UnsuitableTool`."""
        options, name = self._options, f"{self._options.name}_{one.name}"
        self._check_pin(one)
        if not NAME.fullmatch(name):
            raise UnsuitableTool(
                "its name has characters that no tool's name may have, or too many"
            )
        schema = reduce_schema(one)
        try:
            ArgumentSchema(name, schema, is_generated=False)
        except ConfigError as error:
            raise UnsuitableTool(str(error)) from None
        except RecursionError:
            raise UnsuitableTool("its schema is nested too deeply") from None
        effect = options.effects.get(one.name) or one.effect(trusted=options.trusted)
        tool = Tool(
            name,
            clean_description(one.description),
            schema,
            self._make_function(one.name, one.pin, effect in REPEATABLE),
            effect=effect,
            timeout=options.timeout,
            label=options.label,
            secrets=options.secrets,
            takes_context=True,
            third_party=True,
            outbound=options.outbound,
            source=f"mcp:{options.name}",
        )
        return Offer(tool, one.pin)

    def _check_pin(self, one: ListedTool) -> None:
        if self._pins is None or self._pins.get(one.name) == one.pin:
            return
        if one.name in self._pins:
            raise UnsuitableTool("its definition differs from its pin")
        raise UnsuitableTool("it was not pinned")

    def check_names(self, field: str, names: Collection[str]) -> None:
        """Raise `ConfigError` for a name that the server does not list."""
        known = {*self._now, *self.left_out, *self._options.exclude}
        missing = sorted(set(names) - known)
        if missing:
            listed = ", ".join(self._now) or "none"
            raise ConfigError(
                f"{field}: the MCP server {self._options.name!r} has no tool {missing[0]!r}; it has {listed}"
            )

    def check_unchanged(self, name: str, pin: str, consequence: str) -> None:
        """Raise `ToolError` with the consequence, unless the tool is as it was when it was offered."""
        server, now = self._options.name, self._current_pin(name)
        if now is None:
            raise ToolError(
                f"The server {server} has no tool {name!r} any more. {consequence}."
            )
        if now != pin:
            offer = self._offers.get(name)
            is_offered = offer is not None and offer.pin == now
            cure = (
                "propose the call again"
                if is_offered
                else "a person has to review it first"
            )
            raise ToolError(
                f"The server {server} changed what {name!r} is. {consequence}: {cure}."
            )
