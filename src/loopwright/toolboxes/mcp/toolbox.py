"""Tools of MCP servers: listed, checked, pinned, and called through one supervised connection."""

import asyncio
import collections
import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from ..._internal.log import logger
from ...errors import ConfigError, ToolError, UnknownOutcome
from ...labels import LABELS, Label
from ...messages import Effect, Json
from ...tools.base import EFFECTS, NAME, Tool, ToolContext
from ...tools.schema import ArgumentSchema
from .connection import Connection, check_installed
from .listing import (
    Answer,
    Listed,
    Lost,
    Refused,
    Unfit,
    Unreachable,
    Unreadable,
    arguments_schema,
    described,
    parts_of,
)
from .servers import HttpServer, StdioServer, named, server_of

__all__ = ["HttpServer", "McpToolbox", "StdioServer", "mcp"]

OnChange: TypeAlias = Literal["refuse", "accept"]
IDEMPOTENCY_KEY = (
    "loopwright/idempotency-key"  # in `_meta`; the SDK puts W3C's traceparent beside it
)
REST = 60.0  # seconds
AGAIN = ("read", "idempotent")  # a call with such an effect may be made a second time


@dataclasses.dataclass(frozen=True)
class _Offer:
    """A tool as it is offered to models, and the pin of what its server said of it then."""

    tool: Tool
    pin: str


class McpToolbox:
    """The tools of one MCP server, for `Runtime(tools=box.tools)` inside of `async with box`.

    What a server says is not believed. Descriptions are cleaned and cut, schemas are reduced to what is safe to check,
    results are untrusted text, and a tool whose definition changes later is refused until `accept` is called. What the
    server asks of its client (sampling, elicitation, roots) is refused.

    When the connection is lost, it is made again once for each call. The call is then repeated if it had not been sent
    or if its effect is "read" or "idempotent"; else it ends with `UnknownOutcome`.

    Args:
        server: a `StdioServer`, an `HttpServer`, or a line: a URL, or a command with its arguments.
        name: stands before the names of its tools: `files_read`; by default the program's or the host's.
        trusted: whether the server's hints decide about effects; without it every tool is "destructive", which is what
            MCP says of a tool without hints.
        effects: the effect of some tools by the server's name for them, whatever the server says.
        include: the only tools that are wanted, by the server's names for them; all if it is empty.
        exclude: tools that are not wanted.
        label: how sensitive their results are at least.
        timeout: seconds for one call, if other than the run's `tool_timeout`.
        connect_timeout: seconds to connect, and to list the tools.
        max_bytes: the longest message that is taken from the server.
        pins: what `box.pins` said another time; a tool that is not so any more, or not among them, is left out.
        on_change: whether a tool whose definition changes is refused ("refuse"), or offered anew ("accept").
    """

    def __init__(
        self,
        server: StdioServer | HttpServer | str,
        *,
        name: str | None = None,
        trusted: bool = False,
        effects: Mapping[str, Effect] | None = None,
        include: Collection[str] = (),
        exclude: Collection[str] = (),
        label: Label = "normal",
        timeout: float | None = None,
        connect_timeout: float = 30.0,
        max_bytes: int = 8_000_000,
        pins: Mapping[str, str] | None = None,
        on_change: OnChange = "refuse",
    ) -> None:
        check_installed()
        self.server = server_of(server)
        self.name = (
            name
            if name is not None
            else re.sub("[^A-Za-z0-9]+", "_", self.server.label).strip("_")[:24]
        )
        self._trusted = trusted
        self._secrets = self.server.secrets
        self._effects: Mapping[str, Effect] = dict(effects or {})
        self._include, self._exclude = (
            _names("include", include),
            _names("exclude", exclude),
        )
        self._label: Label = label
        self._timeout, self._connect_timeout, self._max_bytes = (
            timeout,
            connect_timeout,
            max_bytes,
        )
        self._pins, self._on_change = None if pins is None else dict(pins), on_change
        self._check()
        self._links: dict[asyncio.AbstractEventLoop, _Link] = {}
        self._offers: dict[str, _Offer] = {}
        self._now: dict[str, Listed] = {}
        self.doubts, self._known, self._closed = 1, 0, False
        self.left_out: Mapping[str, str] = {}
        """Tools of the server that are not offered, by its names for them, and why; without those not wanted."""

    def _check(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"name: use letters, digits, '_' or '-', got {self.name!r}"
            )
        for tool, effect in self._effects.items():
            if effect not in EFFECTS:
                raise ConfigError(
                    f"effects: {tool!r} must be one of {', '.join(EFFECTS)}, got {effect!r}"
                )
        if self._label not in LABELS:
            raise ConfigError(
                f"label: must be one of {', '.join(LABELS)}, got {self._label!r}"
            )
        if self._on_change not in ("refuse", "accept"):
            raise ConfigError(
                f'on_change: must be "refuse" or "accept", got {self._on_change!r}'
            )
        for field, value in (
            ("connect_timeout", self._connect_timeout),
            ("max_bytes", self._max_bytes),
        ):
            if not value > 0:
                raise ConfigError(f"{field}: must be greater than 0, got {value!r}")

    # --- what it has ---

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that can be called now: without those that are gone, or that changed and were not accepted."""
        self._must_know()
        return tuple(
            o.tool
            for name, o in self._offers.items()
            if name in self._now and self._now[name].pin == o.pin
        )

    @property
    def changed(self) -> tuple[str, ...]:
        """Tools whose definition is not any more what it was when they were first offered, by the server's names."""
        return tuple(
            name
            for name, o in self._offers.items()
            if name in self._now and self._now[name].pin != o.pin
        )

    @property
    def pins(self) -> dict[str, str]:
        """A hash of each tool that is offered, to be kept for another time: `McpToolbox(..., pins=...)`."""
        self._must_know()
        return {name: offer.pin for name, offer in self._offers.items()}

    @property
    def stale(self) -> bool:
        """Whether the list is to be read again: the server said so, or it was connected anew."""
        return self._known != self.doubts

    def accept(self, *names: str) -> None:
        """Offer tools that changed as they are now, all of them without names; call it when somebody has looked."""
        for name in names or self.changed:
            if name not in self.changed:
                raise ConfigError(
                    f"accept: {name!r} did not change; changed are {', '.join(self.changed) or 'none'}"
                )
            now = self._now[name]
            if self._pins is not None:
                self._pins[name] = now.pin
            del self._offers[name]
            try:
                self._offers[name] = self._offer(now)
            except Unfit as error:
                self.left_out = {**self.left_out, name: str(error)}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    async def refresh(self) -> tuple[Tool, ...]:
        """`tools`, after the list was read again if the server said that it changed: for use between two steps.

        If it cannot be read, the tools stay as they were, and for a minute only a call connects anew.
        """
        try:
            link = self._link()
            if not link.rests:
                await link.connection()
        except (Lost, Unreachable) as error:
            logger().warning("mcp_tools_not_listed", server=self.name, error=str(error))
        return self.tools

    async def look(self) -> None:
        """List the tools through a connection that ends at once; a call then makes one of its own."""
        async with self:
            pass
        self._closed = False

    # --- its connections ---

    async def __aenter__(self) -> Self:
        """Connect and list the tools. Raises `ConfigError` that says why that cannot be done."""
        self._closed = False
        try:
            await self._link().connection()
            self._must_be_there("include", self._include)
            self._must_be_there("effects", self._effects.keys())
        except (Lost, Unreachable) as error:
            await self.aclose()
            raise ConfigError(
                f"server: the MCP server {self.name!r} cannot be used: {error}"
            ) from None
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the server; one that was started has ended then."""
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the server, on every event loop that called it; calls under way are lost."""
        self._closed = True
        links = dict(self._links)
        self._links.clear()
        here = asyncio.get_running_loop()
        for loop, link in links.items():
            if loop is here:
                await link.close()
            elif loop.is_running():
                with contextlib.suppress(RuntimeError):  # it was closed in between
                    await asyncio.wrap_future(
                        asyncio.run_coroutine_threadsafe(link.close(), loop)
                    )

    def _link(self) -> "_Link":
        """The way to the server from the event loop that runs here."""
        if self._closed:
            raise Unreachable(
                "its toolbox is closed: call its tools inside of `async with`"
            )
        loop = asyncio.get_running_loop()
        if loop not in self._links:
            for over in [known for known in self._links if known.is_closed()]:
                del self._links[over]
            self._links[loop] = _Link(self)
        return self._links[loop]

    def connect(self) -> Connection:
        """A new connection, not opened yet."""
        return Connection(
            self.server,
            timeout=self._connect_timeout,
            max_bytes=self._max_bytes,
            on_change=self.doubt,
        )

    def doubt(self) -> None:
        """The list of tools may not be true any more: it is read again before the next call, or by `refresh`."""
        self.doubts += 1

    # --- its list ---

    def take(self, listed: tuple[Listed, ...], doubts: int) -> None:
        """Look at what the server lists now: new tools are offered, changed ones are kept back.

        `doubts` says how many there were when the list was asked for: a change while it is read counts. All of it is
        taken, or, if that raises, nothing.
        """
        count = collections.Counter(one.name for one in listed)
        left_out = {
            name: "the server lists it more than once"
            for name, n in count.items()
            if n > 1
        }
        before, parts = self._now.keys(), 0
        now: dict[str, Listed] = {}
        offers = dict(self._offers)
        for one in listed:
            if count[one.name] > 1 or not self._wanted(one.name):
                continue
            try:
                parts += parts_of(one, beside=parts)
                now[one.name], known = one, offers.get(one.name)
                if known is None or (
                    self._on_change == "accept" and known.pin != one.pin
                ):
                    offers.pop(one.name, None)
                    offers[one.name] = self._offer(one)
            except Unfit as error:
                left_out[one.name] = str(error)
        for name, why in left_out.items() - self.left_out.items():
            logger().warning("mcp_tool_left_out", server=self.name, tool=name, why=why)
        self._now, self._offers, self.left_out, self._known = (
            now,
            offers,
            left_out,
            doubts,
        )
        if before and (self.changed or before - now.keys()):
            logger().warning(
                "mcp_tools_changed",
                server=self.name,
                changed=list(self.changed),
                gone=sorted(before - now.keys()),
            )

    def _wanted(self, name: str) -> bool:
        return name not in self._exclude and (
            not self._include or name in self._include
        )

    def _offer(self, one: Listed) -> _Offer:
        """A tool made of what the server says. Raises `Unfit`."""
        name, pin = f"{self.name}_{one.name}", one.pin
        if self._pins is not None and self._pins.get(one.name) != pin:
            raise Unfit(
                "it is not as it was pinned"
                if one.name in self._pins
                else "it was not pinned"
            )
        if not NAME.fullmatch(name):
            raise Unfit(
                "its name has characters that no tool's name may have, or too many"
            )
        schema = arguments_schema(one)
        try:
            ArgumentSchema(name, schema, is_generated=False)
        except ConfigError as error:
            raise Unfit(str(error)) from None
        except RecursionError:
            raise Unfit("its schema is nested too deeply") from None
        effect = (
            self._effects[one.name]
            if one.name in self._effects
            else one.effect(trusted=self._trusted)
        )
        tool = Tool(
            name,
            described(one.description),
            schema,
            functools.partial(self._call, one.name, pin, effect in AGAIN),
            effect=effect,
            timeout=self._timeout,
            label=self._label,
            secrets=self._secrets,
            takes_context=True,
            third_party=True,
        )
        return _Offer(tool, pin)

    def _must_know(self) -> None:
        if self._known == 0:
            raise ConfigError(
                f"the tools of {self.name!r} are not known yet: `async with` the toolbox first"
            )

    def _must_be_there(self, field: str, names: Collection[str]) -> None:
        missing = sorted(
            set(names) - self._now.keys() - self.left_out.keys() - self._exclude
        )
        if missing:
            known = ", ".join(self._now) or "none"
            raise ConfigError(
                f"{field}: the MCP server {self.name!r} has no tool {missing[0]!r}; it has {known}"
            )

    # --- calls ---

    async def _call(
        self,
        name: str,
        pin: str,
        again: bool,
        ctx: ToolContext[Any],
        /,
        **arguments: Json,
    ) -> str:
        """Call a tool. If the connection is lost, it is made once more, and if `again` says so, the call is, too."""
        meta = {IDEMPOTENCY_KEY: ctx.idempotency_key} if ctx.idempotency_key else {}
        sent, connection = False, None
        try:
            for last in (False, True):
                try:
                    connection = await self._link().connection(after=connection)
                    self._must_stand(
                        name, pin, "The call was not made" + (" again" if sent else "")
                    )
                    return _text(await connection.call(name, arguments, meta))
                except Lost as lost:
                    sent = sent or lost.sent
                    if last or (sent and not again):
                        raise
            raise AssertionError("the second turn returns or raises")
        except Refused as error:
            kind = "" if error.code is None else f" (JSON-RPC error {error.code})"
            raise ToolError(
                f"The server {self.name} refused the call{kind}: {error}"
            ) from None
        except (Lost, Unreachable, Unreadable) as error:
            raise self._failure(
                name, error, sent=sent or isinstance(error, Unreadable), again=again
            ) from None

    def _must_stand(self, name: str, pin: str, otherwise: str) -> None:
        """Raise `ToolError`, which says `otherwise`, unless the tool is there as it was when it was offered."""
        now = self._now.get(name)
        if now is None:
            raise ToolError(
                f"The server {self.name} has no tool {name!r} any more. {otherwise}."
            )
        if now.pin != pin:
            offer = self._offers.get(name)
            cure = (
                "propose the call again"
                if offer and offer.pin == now.pin
                else "somebody has to look at it first"
            )
            raise ToolError(
                f"The server {self.name} changed what {name!r} is. {otherwise}: {cure}."
            )

    def _failure(
        self, name: str, error: Exception, *, sent: bool, again: bool
    ) -> Exception:
        if again:  # an error that a Retry is for, and that a circuit breaker counts
            return ConnectionError(
                f"the server {self.name} gave no answer to {name!r}: {error}"
            )
        if not sent:
            return ToolError(
                f"The call of {name!r} was not made, the server {self.name} has no connection: {error}"
            )
        return UnknownOutcome(
            f"it is not known whether {name!r} took effect at the server {self.name}: {error}"
        )


class _Link:
    """The one connection of an event loop to a server, made when it is needed."""

    def __init__(self, box: McpToolbox) -> None:
        self._box, self._lock = box, asyncio.Lock()
        self._connection: Connection | None = None
        self._seen = (
            0  # doubts about the list of tools that this connection has settled
        )
        self._failed = -math.inf  # when, by the loop's clock, it was tried in vain to connect, or to list the tools

    @property
    def rests(self) -> bool:
        """Whether no connection could be made a short while ago, so that only a call needs to try again."""
        return asyncio.get_running_loop().time() < self._failed + REST

    async def connection(self, after: Connection | None = None) -> Connection:
        """The connection, another one than `after`, which was lost; with a list of tools that nobody doubts.

        Raises `Unreachable`, or `Lost` if it was lost again.
        """
        async with self._lock:  # nobody calls a tool while the list is read
            known, self._failed = self._connection, asyncio.get_running_loop().time()
            if known is None or not known.alive or known is after:
                self._drop()
                known = self._box.connect()
                await known.open()
                self._connection = known
                self._box.doubt()  # what is listed now may be something else
            if self._seen != self._box.doubts:
                await self._list(known)
            self._failed = -math.inf
            return known

    async def _list(self, connection: Connection) -> None:
        doubts = self._box.doubts
        try:
            self._box.take(await connection.list(), doubts)
        except Lost:
            self._drop()
            raise
        self._seen = doubts

    def _drop(self) -> None:
        known, self._connection = self._connection, None
        if known is not None:
            known.retire()

    async def close(self) -> None:
        async with self._lock:
            known, self._connection = self._connection, None
        if known is not None:
            await known.close()


def mcp(line: str) -> list[Tool]:
    """The tools of the MCP server that a line names, like "npx -y a-server", "https://example.org/mcp", or either with
    a name for it: "files=npx -y a-server".

    They are listed through a connection that ends at once. Each event loop that calls one then gets a connection of its
    own, which ends with the loop. Raises `ConfigError` that says why the server cannot be used.
    """
    name, server = named(line)
    box = McpToolbox(server, name=name)
    # A thread of its own: that of the caller may have an event loop that runs.
    with ThreadPoolExecutor(1, "loopwright-mcp-list") as thread:
        thread.submit(asyncio.run, box.look()).result()
    return list(box.tools)


def _names(field: str, names: Collection[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise ConfigError(f"{field}: needs a list of names, got the text {names!r}")
    return frozenset(names)


def _text(answer: Answer) -> str:
    if answer.is_error:
        raise ToolError(answer.text or "The tool says that it failed, and not why.")
    return answer.text or "done"
