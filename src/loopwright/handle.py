"""RunHandle: a run at work, to watch, to stop and to wait for."""

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ._internal.log import logger
from ._kernel.control.run_control import Control
from ._kernel.phases.engine_run import drive, open_cycle
from ._kernel.phases.execution import Execution
from ._kernel.phases.output_type import OutputType
from ._kernel.session.cancellation import (
    CancellableStart,
    finish_despite_cancellation,
    wait_despite_cancellation,
)
from ._kernel.session.session import SUSPEND_REASON, Session
from ._kernel.session.unwatched_runs import OnDisconnect
from .clock import Clock
from .errors import Fenced, JournalError, PhaseError, format_error
from .events.entry import Entry
from .journals.base import Journal
from .messages import Conversation, Json
from .result import Output, Result
from .run import Run, Strategy
from .security.redaction import Redactor
from .security.signed_commands import CommandSigner

Item = TypeVar("Item")
ABORTED = "the run was aborted"
UNWATCHED = "the run was aborted: its watcher went away"


class RunHandle(Control, Generic[Item, Output]):
    """A run at work: iterate over it for its journal entries as they happen, steer it, abort it, await its result.

    What a person tells it counts here and now; of a run that waits or that another process works on, take
    `runtime.control(run_id)`. Iterating gives entries, and deltas of the models' replies too if it was started with
    `deltas=True`.

    A watcher that leaves the `async with` block while the run is at work, by `break` or an error, or because the task or the
    generator around it is cancelled or closed, ends the run, or lets it continue, as `on_disconnect` says.
    """

    def __init__(
        self,
        engine: Strategy,
        session: Session,
        conversation: Conversation,
        output: OutputType[Any] | None,
        on_disconnect: OnDisconnect | None = None,
        *,
        deltas: bool = False,
        result: Result[Output] | None = None,
    ) -> None:
        self._session, self._deltas, self._recorded = session, deltas, result
        self._on_disconnect = on_disconnect
        self._watcher: asyncio.Task[Any] | None = None
        """The task whose `async with` block it is."""
        session.streams = deltas and on_disconnect == "continue"
        cycle = open_cycle(Run, session, engine, conversation)
        solve = functools.partial(drive, Run, cycle, is_root=True)
        self._execution = Execution(cycle, output, solve)
        self._items: asyncio.Queue[Any] | None = None  # of items; `None` is the end
        self._task: asyncio.Task[Result[Output]] | None = None
        self._keeper: asyncio.Task[None] | None = None
        session.intake.on_abort = self._interrupt

    @property
    def run_id(self) -> str:
        """The run's name in the journal."""
        return self._session.run_id

    @property
    def _journal(self) -> Journal:
        return self._session.services.journal

    @property
    def _redactor(self) -> Redactor:
        return self._session.services.redactor

    @property
    def _signer(self) -> CommandSigner | None:
        return self._session.services.command_signer

    @property
    def _clock(self) -> Clock:
        return self._session.services.clock

    async def _send(self, kind: str, body: Mapping[str, Json]) -> int:
        """Put a command into the inbox, and receive it at once."""
        await self._in_journal()
        number = await super()._send(kind, body)
        if self._task is not None and not self._task.done():
            await self._session.intake.listen()
        return number

    async def _entries(self) -> list[Entry]:
        await self._in_journal()
        return await super()._entries()

    async def _in_journal(self) -> None:
        """Wait until the journal has the run, or it ends without."""
        stored = asyncio.ensure_future(self._session.writer.stored.wait())
        try:
            ended = self._start()
            await asyncio.wait((stored, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stored.cancel()

    async def __aenter__(self) -> Self:
        """Start the work; a run that is resumed is at work already."""
        self._watcher = asyncio.current_task()
        if self._items is None:
            items = self._items = asyncio.Queue()
            self._session.writer.watchers.append(items.put_nowait)
            if self._deltas:
                self._session.feed.delta_watchers.append(items.put_nowait)
            self._start().add_done_callback(self._end_items)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Go away: abort the run if it is still at work, or let it continue without a watcher."""
        self._stop_watching()
        task = self._task
        if task is None or task.done():
            return
        await self._disconnect(task)
        if error is None and task.done() and not task.cancelled():
            task.result()

    async def _disconnect(self, task: asyncio.Task[Result[Output]]) -> None:
        """Do with a run whose watcher goes away what was chosen."""
        if self._on_disconnect == "continue":
            self._session.services.unwatched.add(task, self.run_id)
            return
        abort = functools.partial(self._stop, task, UNWATCHED)
        # In a task of its own: a web framework cancels each wait of a handler whose client went away.
        cancelled = await finish_despite_cancellation(abort)
        if cancelled is not None:
            raise cancelled

    def _stop_watching(self) -> None:
        """Collect no more items: without a reader they would pile up."""
        if self._items is not None:
            with contextlib.suppress(ValueError):
                self._session.writer.watchers.remove(self._items.put_nowait)
            self._stop_deltas(self._items)

    def _stop_deltas(self, items: asyncio.Queue[Any]) -> None:
        with contextlib.suppress(ValueError):
            self._session.feed.delta_watchers.remove(items.put_nowait)

    async def __aiter__(self) -> AsyncIterator[Item]:
        """Every entry of the run's journal that this process writes, from the first to the last; deltas on request."""
        if self._items is None:
            raise PhaseError("iterate inside `async with engine.start(task) as run`")
        try:
            while (item := await self._items.get()) is not None:
                yield item
            self._items.put_nowait(None)  # so that a later iteration ends, too
        finally:
            self._stop_deltas(self._items)

    async def result(self) -> Result[Output]:
        """Wait for the end.

        If this is cancelled, the watcher goes away, as when it leaves the block; in a task without the block, the run is
        suspended unless `on_disconnect` is given, so that it can be resumed.
        """
        task = self._start()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            is_watcher = asyncio.current_task() is self._watcher
            if not is_watcher and self._on_disconnect is None:
                await self.suspend()
            elif not task.done():
                await self._disconnect(task)
            raise

    async def suspend(self) -> None:
        """Stop at once, so that the run can be resumed: what is in flight is cancelled."""
        task = self._start()
        if not task.done():
            task.cancel()
            cancelled = await wait_despite_cancellation(task)
            if cancelled is not None:
                raise cancelled

    async def abort(self) -> Result[Output]:
        """Stop at once: what is in flight is cancelled, the run ends as `aborted` with what it has."""
        task = self._start()
        await self._stop(task, ABORTED)
        return task.result()

    async def _stop(self, task: asyncio.Task[Result[Output]], text: str) -> None:
        """Abort the run, and wait for its end."""
        # A task that never took its first step could not write its closing entry.
        await asyncio.sleep(0)
        self._interrupt(text)
        cancelled = await wait_despite_cancellation(task)
        if cancelled is not None:
            raise cancelled

    def _interrupt(self, text: str = ABORTED) -> None:
        """Cancel what is in flight: the run ends as aborted."""
        task, signals = self._task, self._session.signals
        if task is None or task.done():
            return
        if self._execution.is_closing or signals.aborting:
            return
        signals.abort(text)
        task.cancel()

    def _start(self) -> asyncio.Task[Result[Output]]:
        if self._task is None and self._recorded is not None:
            self._task = asyncio.ensure_future(_return(self._recorded))
        elif self._task is None:
            self._session.start()
            context = contextvars.copy_context()
            if self._on_disconnect == "continue":
                # No caller waits for it: if its process stops, another one is to continue it.
                context.run(SUSPEND_REASON.set, "released")
            loop = asyncio.get_running_loop()
            work = CancellableStart(self._execution.run)
            self._task = loop.create_task(work, context=context)
            self._task.add_done_callback(self._ended)
            lease = self._session.services.lease
            if lease is not None:
                renewals = self._renew_lease(self._task, lease)
                self._keeper = asyncio.ensure_future(renewals)
        return self._task

    async def _renew_lease(self, task: asyncio.Task[Any], lease: float) -> None:
        """Renew the lease while the run is at work; cancel it if another worker took it over."""
        renew = self._session.services.renewals.renew
        while True:
            await asyncio.sleep(lease / 3)
            try:
                await self._session.writer.renew(renew)
            except Fenced:
                task.cancel()
                return
            except JournalError as error:
                # The journal may recover; nothing new begins once the lease has ended.
                problem = format_error(error)
                logger().warning("lease_not_renewed", run_id=self.run_id, error=problem)

    def _ended(self, task: asyncio.Task[Result[Output]]) -> None:
        self._session.stop()
        start_due = self._session.services.start_due
        if start_due is not None and self._execution.due:
            start_due(self._execution.due)
        if self._keeper is not None:
            self._keeper.cancel()
        if not task.cancelled():
            task.exception()  # seen: `result` and `abort` raise it

    def _end_items(self, task: asyncio.Task[Result[Output]]) -> None:
        if self._items is not None:
            self._items.put_nowait(None)


async def _return(recorded: Result[Output]) -> Result[Output]:
    return recorded
