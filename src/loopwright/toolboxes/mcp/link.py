"""The connection of one event loop to an MCP server, made when it is needed and again after a loss."""

import asyncio
import math
from typing import Protocol

from .connection import Connection
from .errors import ConnectionLost
from .listing import ListedTool

RETRY_PAUSE = 60.0
"""Seconds after a failure in which only a call connects again."""


class LinkOwner(Protocol):
    """The toolbox of a link, as the link uses it."""

    list_changes: int
    """How often the list of tools may have changed."""

    def connect(self) -> Connection:
        """Return a new connection, not yet opened."""
        ...

    def mark_changed(self) -> None:
        """Note that the list of tools may have changed."""
        ...

    def take(self, listed: tuple[ListedTool, ...], list_changes: int) -> None:
        """Use a list of tools that was requested after so many changes."""
        ...


class Link:
    """The one connection of an event loop to a server."""

    def __init__(self, owner: LinkOwner) -> None:
        self._owner, self._lock = owner, asyncio.Lock()
        self._connection: Connection | None = None
        # The number of changes of the list that this connection has read.
        self._seen = 0
        # When, by the loop's clock, connecting or listing failed last.
        self._failed = -math.inf

    @property
    def is_pausing(self) -> bool:
        """Whether connecting failed recently, so that only a call needs to try again."""
        return asyncio.get_running_loop().time() < self._failed + RETRY_PAUSE

    async def connection(self, after: Connection | None = None) -> Connection:
        """Return the connection, with a current list of tools; not `after`, which was lost.

        Raises `ServerUnreachable`, or `ConnectionLost` if it was lost again.
        """
        async with self._lock:  # no tool is called while the list is read
            self._failed = asyncio.get_running_loop().time()
            known = self._connection
            if known is None or not known.is_alive or known is after:
                known = await self._connect()
            if self._seen != self._owner.list_changes:
                await self._list(known)
            self._failed = -math.inf
            return known

    async def _connect(self) -> Connection:
        self._drop()
        connection = self._owner.connect()
        await connection.open()
        self._connection = connection
        self._owner.mark_changed()  # the server may list other tools now
        return connection

    async def _list(self, connection: Connection) -> None:
        changes = self._owner.list_changes
        try:
            self._owner.take(await connection.list(), changes)
        except ConnectionLost:
            self._drop()
            raise
        self._seen = changes

    def _drop(self) -> None:
        known, self._connection = self._connection, None
        if known is not None:
            known.retire()

    async def close(self) -> None:
        """Close the connection."""
        async with self._lock:
            known, self._connection = self._connection, None
        if known is not None:
            await known.close()
