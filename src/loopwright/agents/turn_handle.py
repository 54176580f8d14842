"""TurnHandle: a message to a thread, whose turn is watched and controlled."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from .._kernel.control.run_control import Control, RunControl
from .._kernel.session.cancellation import wait_despite_cancellation
from .._kernel.session.services import Services
from ..clock import Clock
from ..errors import PhaseError
from ..journals.base import Journal
from ..messages import Json
from ..result import Result
from ..security.redaction import Redactor
from ..security.signed_commands import CommandSigner
from .turn_items import TurnItems

Item = TypeVar("Item")


class TurnHandle(Control, Generic[Item]):
    """A message to a thread, whose turn is watched: `async with thread.start("...", deltas=True) as turn`.

    Iterate over it for the journal entries of the turn as they happen, and for the deltas of the models' replies too with
    `deltas=True`; control the turn as any run; `await turn.result()`. The turn is the next one, or the one that the message
    answers a question of or guides, in whichever process that is at work. Leaving the block before the end aborts a turn
    of this process, unless its `on_disconnect` is "continue", and cancels a message that still waits.
    """

    def __init__(
        self,
        services: Services,
        send: Callable[[TurnItems], Coroutine[Any, Any, Result[Any]]],
        *,
        deltas: bool,
    ) -> None:
        self._services, self._send_message = services, send
        self._items = TurnItems(deltas=deltas)
        self._task: asyncio.Task[Result[Any]] | None = None

    @property
    def run_id(self) -> str:
        """The turn as a run; raises `PhaseError` before the message has its turn."""
        if not self._items.run_id:
            raise PhaseError(
                "run_id: the message has no turn yet; enter `async with` before"
            )
        return self._items.run_id

    @property
    def _journal(self) -> Journal:
        return self._services.journal

    @property
    def _redactor(self) -> Redactor:
        return self._services.redactor

    @property
    def _clock(self) -> Clock:
        return self._services.clock

    @property
    def _signer(self) -> CommandSigner | None:
        return self._services.command_signer

    async def _send(self, kind: str, body: Mapping[str, Json]) -> int:
        """Put a command into the inbox; a turn of this process receives it at once."""
        handle = self._items.handle
        if handle is not None:
            return await handle._send(kind, body)  # pyright: ignore[reportPrivateUsage] - another control
        return await super()._send(kind, body)

    async def __aenter__(self) -> Self:
        """Send the message, and wait until it has its turn; raise the error if it gets none."""
        task = self._start()
        begun = asyncio.ensure_future(self._items.begun.wait())
        try:
            await asyncio.wait((task, begun), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._disconnect(task)
            raise
        finally:
            begun.cancel()
        if task.done() and not self._items.run_id:
            self._items.enter(task.result().run_id)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the turn."""
        task = self._start()
        if not task.done():
            await self._disconnect(task)
        elif error is None and not task.cancelled():
            task.result()

    async def __aiter__(self) -> AsyncIterator[Item]:
        """Every entry of the turn from now on, each once; deltas on request."""
        if self._task is None:
            raise PhaseError("iterate inside `async with thread.start(text) as turn`")
        queue = self._items.queue
        while (item := await queue.get()) is not None:
            yield item
        queue.put_nowait(None)  # so that a later iteration ends, too

    async def result(self) -> Result[Any]:
        """Wait for the end of the turn. Cancelling this leaves it, as leaving the block does."""
        task = self._start()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await self._disconnect(task)
            raise

    async def abort(self) -> Result[Any]:
        """Stop the turn at once; it ends as `aborted` with what it has."""
        handle = self._items.handle
        if handle is None:
            services = self._services
            await RunControl(
                services.journal, services.redactor, self.run_id, services.clock, services.command_signer
            ).abort()  # fmt: skip
        else:
            await handle.abort()
        return await self.result()

    async def suspend(self) -> None:
        """Stop the turn at once, if this process works on it, so that it can be resumed."""
        handle = self._items.handle
        if handle is not None:
            await handle.suspend()

    def _start(self) -> asyncio.Task[Result[Any]]:
        if self._task is None:
            sending = self._send_message(self._items)
            task = self._task = asyncio.create_task(sending)
            task.add_done_callback(self._end)
        return self._task

    def _end(self, task: asyncio.Task[Result[Any]]) -> None:
        self._items.end()
        if not task.cancelled():
            task.exception()  # seen: `result` raises it

    async def _disconnect(self, task: asyncio.Task[Result[Any]]) -> None:
        task.cancel()
        cancelled = await wait_despite_cancellation(task)
        if cancelled is not None:
            raise cancelled
