"""Tools of MCP servers: listed, checked, pinned, and called through one supervised connection."""

import asyncio
import contextlib
import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from ..._internal.log import logger
from ...attachments import Attachment
from ...errors import ConfigError, ToolError, UnknownOutcome
from ...labels import Label
from ...messages import Effect, Json
from ...tools.base import Tool, ToolContext
from ..option_checks import check_positive
from .connection import Connection, check_installed
from .errors import CallRefused, ConnectionLost, ServerUnreachable, UnreadableAnswer
from .link import Link
from .listing import Answer, ListedTool
from .offers import OfferOptions, OnChange, ToolOffers
from .servers import HttpServer, StdioServer, parse_server, split_name

__all__ = ["HttpServer", "McpToolbox", "StdioServer", "mcp"]

IDEMPOTENCY_KEY = "loopwright/idempotency-key"
"""The key in `_meta`; the SDK adds W3C's traceparent."""


class McpToolbox:
    """The tools of one MCP server, for `Runtime(tools=box.tools)` inside of `async with box`.

    The server is not trusted. Descriptions are cleaned and cut, schemas are reduced to keywords that
    are safe to check, results are untrusted text, and a tool whose definition changes later is refused
    until `accept` is called. Requests of the server to its client (sampling, elicitation, roots) are
    refused.

    If the connection is lost, each call connects once more. The call is then repeated if it had not
    been sent or if its effect is "read" or "idempotent"; otherwise it ends with `UnknownOutcome`.

    Args:
        server: a `StdioServer`, an `HttpServer`, or a line: a URL, or a command with its arguments.
        name: the prefix of its tools' names: `files_read`; by default the program's or the host's.
        trusted: whether the server's hints decide about effects; by default every tool is
            "destructive", which is MCP's default for a tool without hints.
        effects: the effect of tools by the server's name for them, regardless of its hints.
        include: the only tools to offer, by the server's names for them; all if it is empty.
        exclude: tools that are not offered.
        label: the least sensitivity of their results.
        timeout: seconds for one call, if other than the run's `tool_timeout`.
        connect_timeout: seconds to connect, and to list the tools.
        max_bytes: the longest message that is accepted from the server.
        pins: an earlier value of `box.pins`; a tool that differs from its pin, or has none, is left
            out.
        on_change: whether a tool whose definition changes is refused ("refuse"), or offered anew
            ("accept").
        outbound: whether data leaves by calls of its tools, which is true of a server unless you know
            better: of one that works on files of this machine, say.
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
        outbound: bool = True,
    ) -> None:
        check_installed()
        self.server = parse_server(server)
        self.name = _default_name(self.server) if name is None else name
        self._options = OfferOptions(
            name=self.name,
            trusted=trusted,
            effects=dict(effects or {}),
            include=_check_names("include", include),
            exclude=_check_names("exclude", exclude),
            label=label,
            timeout=timeout,
            secrets=self.server.secrets,
            pins=pins,
            on_change=on_change,
            outbound=outbound,
        )
        check_positive(connect_timeout=connect_timeout, max_bytes=max_bytes)
        self._connect_timeout, self._max_bytes = connect_timeout, max_bytes
        self._offers = ToolOffers(self._options, self._make_function)
        self._links: dict[asyncio.AbstractEventLoop, Link] = {}
        self.list_changes, self._listed, self._closed = 1, 0, False

    # --- its tools ---

    @property
    def left_out(self) -> Mapping[str, str]:
        """Return the wanted tools that are not offered, by the server's names, with the reasons."""
        return self._offers.left_out

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that can be called now.

        Those that are gone, or that changed and were not accepted, are left out.
        """
        self._check_listed()
        return self._offers.tools

    @property
    def changed(self) -> tuple[str, ...]:
        """Return the tools whose definition differs from the offered one, by the server's names."""
        return self._offers.changed

    @property
    def pins(self) -> dict[str, str]:
        """Return a hash of each offered tool, to be kept for `McpToolbox(..., pins=...)`."""
        self._check_listed()
        return self._offers.pins

    @property
    def stale(self) -> bool:
        """Whether the list must be read again: the server said so, or it was connected anew."""
        return self._listed != self.list_changes

    def accept(self, *names: str) -> None:
        """Offer changed tools as they are now, all of them without names.

        Call it after a person has reviewed them.
        """
        self._offers.accept(names)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    async def refresh(self) -> tuple[Tool, ...]:
        """Return `tools`, after reading the list again if it may have changed.

        If it cannot be read, the tools stay as they were, and for a minute only a call connects again.
        """
        try:
            link = self._link()
            if not link.is_pausing:
                await link.connection()
        except (ConnectionLost, ServerUnreachable) as error:
            logger().warning("mcp_tools_not_listed", server=self.name, error=str(error))
        return self.tools

    async def list_once(self) -> None:
        """List the tools through a connection that ends at once; a call then makes another one."""
        async with self:
            pass
        self._closed = False

    def take(self, listed: tuple[ListedTool, ...], list_changes: int) -> None:
        """Use a list of tools that was requested after so many changes.

        A change that happened while the list was read makes it stale again.
        """
        self._offers.update(listed)
        self._listed = list_changes

    def _check_listed(self) -> None:
        if self._listed == 0:
            raise ConfigError(
                f"the tools of {self.name!r} are not known yet; use `async with` on the toolbox first"
            )

    # --- its connections ---

    async def __aenter__(self) -> Self:
        """Connect and list the tools. Raises `ConfigError` if that cannot be done."""
        self._closed = False
        try:
            await self._link().connection()
            self._offers.check_names("include", self._options.include)
            self._offers.check_names("effects", self._options.effects.keys())
        except (ConnectionLost, ServerUnreachable) as error:
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
        """Close the connections; a server that was started has ended then."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of every event loop; calls in progress are lost."""
        self._closed = True
        links = dict(self._links)
        self._links.clear()
        here = asyncio.get_running_loop()
        for loop, link in links.items():
            if loop is here:
                await link.close()
            elif loop.is_running():
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                    await asyncio.wrap_future(
                        asyncio.run_coroutine_threadsafe(link.close(), loop)
                    )

    def _link(self) -> Link:
        """Return the link of the running event loop to the server."""
        if self._closed:
            raise ServerUnreachable(
                "its toolbox is closed: call its tools inside of `async with`"
            )
        loop = asyncio.get_running_loop()
        if loop not in self._links:
            for closed in [known for known in self._links if known.is_closed()]:
                del self._links[closed]
            self._links[loop] = Link(self)
        return self._links[loop]

    def connect(self) -> Connection:
        """Return a new connection, not yet opened."""
        return Connection(
            self.server,
            timeout=self._connect_timeout,
            max_bytes=self._max_bytes,
            on_change=self.mark_changed,
        )

    def mark_changed(self) -> None:
        """Note that the list of tools may have changed.

        It is read again before the next call, or by `refresh`.
        """
        self.list_changes += 1

    # --- calls ---

    def _make_function(
        self, name: str, pin: str, is_repeatable: bool
    ) -> Callable[..., Any]:
        return functools.partial(self._call, name, pin, is_repeatable)

    async def _call(
        self,
        name: str,
        pin: str,
        is_repeatable: bool,
        ctx: ToolContext[Any],
        /,
        **arguments: Json,
    ) -> str | list[str | Attachment]:
        """Call a tool.

        After the loss of a connection, connect once more, and repeat the call if it is repeatable.
        """
        meta = {IDEMPOTENCY_KEY: ctx.idempotency_key} if ctx.idempotency_key else {}
        sent, connection = False, None
        try:
            for is_last in (False, True):
                try:
                    connection = await self._link().connection(after=connection)
                    again = " again" if sent else ""
                    self._offers.check_unchanged(
                        name, pin, f"The call was not made{again}"
                    )
                    return _read_result(await connection.call(name, arguments, meta))
                except ConnectionLost as lost:
                    sent = sent or lost.sent
                    if is_last or (sent and not is_repeatable):
                        raise
            raise AssertionError("the second turn returns or raises")
        except CallRefused as error:
            kind = "" if error.code is None else f" (JSON-RPC error {error.code})"
            raise ToolError(
                f"The server {self.name} refused the call{kind}: {error}"
            ) from None
        except UnreadableAnswer as error:
            raise self._failure(name, error, is_repeatable, sent=True) from None
        except (ConnectionLost, ServerUnreachable) as error:
            raise self._failure(name, error, is_repeatable, sent=sent) from None

    def _failure(
        self, name: str, error: Exception, is_repeatable: bool, *, sent: bool
    ) -> Exception:
        if is_repeatable:  # an error for `Retry`, which a circuit breaker counts
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


def mcp(line: str) -> list[Tool]:
    """Return the tools of the MCP server that a line names.

    That is "npx -y a-server" or "https://example.org/mcp", or either with a name for it:
    "files=npx -y a-server". The tools are listed through a connection that ends at once. Each event
    loop that calls one then gets a connection, which ends with the loop. Raises `ConfigError` if the
    server cannot be used.
    """
    name, server = split_name(line)
    box = McpToolbox(server, name=name)
    # In another thread, since that of the caller may have a running event loop.
    with ThreadPoolExecutor(1, "loopwright-mcp-list") as thread:
        thread.submit(asyncio.run, box.list_once()).result()
    return list(box.tools)


def _default_name(server: StdioServer | HttpServer) -> str:
    return re.sub("[^A-Za-z0-9]+", "_", server.label).strip("_")[:24]


def _check_names(field: str, names: Collection[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise ConfigError(f"{field}: needs a list of names, got the text {names!r}")
    return frozenset(names)


def _read_result(answer: Answer) -> "str | list[str | Attachment]":
    if answer.is_error:
        raise ToolError(answer.text or "The tool says that it failed, and not why.")
    if not answer.attachments:
        return answer.text or "done"
    texts = [answer.text] if answer.text else []
    return [*texts, *answer.attachments]
