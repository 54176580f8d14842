"""What happens in the turn of a message, for the one who watches it."""

import asyncio
from typing import Any

from ..events.entry import Entry
from ..handle import RunHandle
from ..providers.base import Delta


class TurnItems:
    """Collects the entries of a turn, each once, and on request the chunks of replies.

    A turn may change its process while it is watched; then its entries come from the journal.
    """

    def __init__(self, *, deltas: bool) -> None:
        self.deltas = deltas
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        """Of items; `None` is the end."""
        self.begun = asyncio.Event()
        """Set once the message has its turn."""
        self.run_id = ""
        self.handle: RunHandle[Any, Any] | None = None
        """The handle of the turn, while this process works on it for the message."""
        self._seen = 0

    def enter(self, run_id: str, handle: RunHandle[Any, Any] | None = None) -> None:
        """Note which run is the turn."""
        if run_id != self.run_id:
            self.run_id, self._seen = run_id, 0
        self.handle = handle
        self.begun.set()

    def put(self, item: Entry | Delta) -> None:
        """Add an item of the turn."""
        if isinstance(item, Entry):
            if item.seq <= self._seen:
                return
            self._seen = item.seq
        elif not self.deltas:
            return
        self.queue.put_nowait(item)

    def end(self) -> None:
        """Note that no item follows."""
        self.handle = None
        self.queue.put_nowait(None)
