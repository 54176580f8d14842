"""RunHandle: a run at work, to watch, to stop and to wait for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, cast

from pydantic import BaseModel

from ._internal.log import logger
from ._kernel.control.run_control import Control
from ._kernel.phases.human import permit_answer, take_follow_up
from ._kernel.phases.saga import (
    Compensation,
    find_registries,
    needs_compensation,
    restore_outcome,
)
from ._kernel.phases.structured_output import read_model
from ._kernel.session.cancellation import (
    finish_despite_cancellation,
    wait_despite_cancellation,
)
from ._kernel.session.session import SUSPEND_REASON, Session
from .clock import Clock
from .errors import (
    Aborted,
    AskFailed,
    Fenced,
    InvalidOutput,
    JournalError,
    LoopwrightError,
    PhaseError,
    ReplayDivergence,
    format_error,
)
from .events.entry import Entry
from .events.run import ErrorRecord, RunFinished, RunSuspended
from .journals.base import Journal
from .messages import Conversation, Json
from .result import Output, Result, RunOutcome, build_outcome
from .run import Run, Strategy, drive, open_cycle
from .security.redaction import Redactor

Item = TypeVar("Item")


class RunHandle(Control, Generic[Item, Output]):
    """A run at work: iterate over it for its journal entries as they happen, steer it, abort it, await its result.

    What a person tells it counts here and now; of a run that waits or that another process works on, take
    `runtime.control(run_id)`. Iterating gives entries, and deltas of the models' replies too if it was started with
    `deltas=True`.
    """

    def __init__(
        self,
        engine: Strategy,
        session: Session,
        conversation: Conversation,
        output: type[BaseModel] | None,
        *,
        deltas: bool = False,
    ) -> None:
        self._engine, self._session, self._output, self._deltas = (
            engine,
            session,
            output,
            deltas,
        )
        self._cycle = open_cycle(session, engine, conversation)
        self._items: asyncio.Queue[Any] | None = None  # of items; `None` is the end
        self._task: asyncio.Task[Result[Output]] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False
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
    def _clock(self) -> Clock:
        return self._session.services.clock

    async def _send(self, kind: str, body: Mapping[str, Json]) -> None:
        """Put a command into the inbox, and hear it at once."""
        await self._in_journal()
        await super()._send(kind, body)
        if self._task is not None and not self._task.done():
            await self._session.intake.listen()

    async def _entries(self) -> list[Entry]:
        await self._in_journal()
        return await super()._entries()

    async def _in_journal(self) -> None:
        """Wait until the journal has the run; one that ends before has nothing to be told."""
        kept, task = (
            asyncio.ensure_future(self._session.writer.stored.wait()),
            self._start(),
        )
        try:
            await asyncio.wait((kept, task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            kept.cancel()

    async def __aenter__(self) -> Self:
        """Start the work."""
        items = self._items = asyncio.Queue()
        self._session.writer.watchers.append(items.put_nowait)
        if self._deltas:
            self._session.delta_watchers.append(items.put_nowait)
        self._task = self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Abort the run if it is still at work; a host that is cancelled suspends it instead."""
        if self._task is None or self._task.done():
            return
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            self._task.cancel()
            await wait_despite_cancellation(self._task)
        else:
            await self.abort()

    async def __aiter__(self) -> AsyncIterator[Item]:
        """Every entry of the run's journal that this process writes, from the first to the last; deltas on request."""
        if self._items is None:
            raise PhaseError("iterate inside `async with engine.start(task) as run`")
        try:
            while (item := await self._items.get()) is not None:
                yield item
            self._items.put_nowait(None)  # so that who comes later finds the end too
        finally:
            if self._deltas:  # who does not read any more would have them pile up
                self._deltas = False
                self._session.delta_watchers.remove(self._items.put_nowait)

    async def result(self) -> Result[Output]:
        """Wait for the end. Cancelling this suspends the run, so that it can be resumed."""
        task = self._start()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                task.cancel()
                await wait_despite_cancellation(task)
            raise

    async def abort(self) -> Result[Output]:
        """Stop at once: what is in flight is cancelled, the run ends as `aborted` with what it has."""
        task = self._start()
        await asyncio.sleep(
            0
        )  # a task that never took its first step could not write its closing entry
        self._interrupt()
        cancelled = await wait_despite_cancellation(task)
        if cancelled is not None:
            raise cancelled
        return task.result()

    def _interrupt(self) -> None:
        """Cancel what is in flight: the run ends as aborted."""
        task = self._task
        if (
            task is not None
            and not task.done()
            and not self._closing
            and not self._session.signals.aborting
        ):
            self._session.signals.stick(Aborted("the run was aborted"))
            self._session.signals.aborting = True
            task.cancel()

    def _start(self) -> asyncio.Task[Result[Output]]:
        if self._task is None:
            self._session.start()
            self._task = asyncio.ensure_future(self._work())
            self._task.add_done_callback(self._ended)
            if self._session.services.lease is not None:
                self._keeper = asyncio.ensure_future(
                    self._keep(self._task, self._session.services.lease)
                )
        return self._task

    async def _keep(self, task: asyncio.Task[Any], lease: float) -> None:
        """Renew the lease while the run is at work; stop at once if another worker took the run over."""
        while True:
            await asyncio.sleep(lease / 3)
            try:
                await self._session.writer.renew()
            except Fenced:
                task.cancel()
                return
            except JournalError as error:  # nothing new begins once the lease is over; until then it may come back
                logger().warning(
                    "lease_not_renewed", run_id=self.run_id, error=format_error(error)
                )

    def _ended(self, task: asyncio.Task[Result[Output]]) -> None:
        self._session.stop()
        if self._keeper is not None:
            self._keeper.cancel()
        if self._items is not None:
            self._items.put_nowait(None)
        if not task.cancelled():
            task.exception()  # seen: `result` and `abort` raise it

    async def _work(self) -> Result[Output]:
        session = self._session
        output: Any = None
        try:
            outcome, output = await self._solve()
        except asyncio.CancelledError as error:
            if not session.signals.aborting or isinstance(
                session.signals.fatal, Fenced
            ):
                await self._leave(error)
            outcome = self._aborted()
        except ReplayDivergence:
            if (
                session.saga or not session.command_log.aborting
            ):  # a saga has to know what it did
                await self._suspend("diverged")
                raise
            outcome = self._aborted()
        outcome, output = self._ending(outcome, output)
        self._closing = True
        if needs_compensation(session, outcome):
            try:
                outcome = await self._undo(outcome)
            except (
                asyncio.CancelledError
            ) as error:  # it goes on when the run is resumed
                await self._leave(error)
        return await self._close(outcome, output)

    async def _leave(self, cancelled: asyncio.CancelledError) -> NoReturn:
        """Stop, since this task is cancelled: by its host, which may resume the run, or because it was taken over."""
        if isinstance(self._session.signals.fatal, Fenced):
            raise self._session.signals.fatal from None
        await self._suspend(SUSPEND_REASON.get())
        raise cancelled

    def _ending(self, outcome: RunOutcome, output: Any) -> tuple[RunOutcome, Any]:
        """How the run ends: as it did before it was undone, or as aborted, also if the engine swallowed that."""
        session = self._session
        if session.replay.recoveries.undo is not None:
            return restore_outcome(session.replay.recoveries.undo), None
        if session.signals.aborting or session.command_log.aborting:
            return self._aborted(outcome.answer), None
        return outcome, output

    def _aborted(self, answer: str | None = None) -> RunOutcome:
        """The end of an aborted run; what it had to offer is no answer where a gate would have had to see it."""
        offered = None if self._cycle.clearance.judges_answers else self._cycle.offered
        return build_outcome(
            Aborted("the run was aborted"), offered if answer is None else answer
        )

    async def _solve(self) -> tuple[RunOutcome, Any]:
        """The engine's outcome, and its answer as the output model if one is asked for."""
        if self._session.replay.recoveries.undo is not None:
            await self._go_through()
            return restore_outcome(self._session.replay.recoveries.undo), None
        if (
            self._session.command_log.aborting
        ):  # somebody said so while nobody worked on the run: nothing new begins
            self._session.intake.stop_signal()
        while (
            outcome := await drive(self._engine, self._cycle, is_root=True)
        ).status == "completed":
            outcome, output = await self._structured(outcome)
            if outcome.status == "completed" and take_follow_up(
                self._cycle, outcome.answer or ""
            ):
                continue  # somebody said more while the output was made
            self._session.signals.check_unused()
            return await self._permitted(outcome, output)
        return await self._permitted(outcome, None)

    async def _go_through(self) -> None:
        """Have an engine that had ended read in the journal what it did, with which tools and in which words."""
        self._session.signals.stick(Aborted("the run has ended"))
        try:
            await drive(self._engine, self._cycle, is_root=True)
        except ReplayDivergence:  # what is to be undone is in the journal all the same
            self._session.signals.fatal = None

    async def _permitted(
        self, outcome: RunOutcome, output: BaseModel | None
    ) -> tuple[RunOutcome, Any]:
        """The outcome as far as gates let the answer out; an answer that they changed is read again."""
        shown = (
            None if output is None else output.model_dump(mode="json", round_trip=True)
        )
        permitted = await permit_answer(self._cycle, outcome, shown)
        if self._output is None or permitted.answer == outcome.answer:
            return permitted, output
        try:
            return permitted, None if permitted.answer is None else read_model(
                permitted.answer, self._output
            )
        except ValueError as error:
            return build_outcome(
                InvalidOutput(f"the gate changed the answer: {error}"), permitted.answer
            ), None

    async def _suspend(
        self, reason: Literal["cancelled", "diverged", "released"]
    ) -> None:
        """Leave the run so that it can be resumed."""
        self._session.writer.close(
            RunSuspended(reason, waited=self._session.active.take_waited())
        )
        status = "released" if reason == "released" else "suspended"
        cancelled: asyncio.CancelledError | None = None
        with contextlib.suppress(JournalError):  # then the owner's end frees it
            cancelled = await finish_despite_cancellation(
                lambda: self._session.writer.barrier(status)
            )
        if cancelled is not None:
            raise cancelled

    async def _structured(self, outcome: RunOutcome) -> tuple[RunOutcome, Any]:
        """The answer as the output model; the model is asked to write it so if it did not."""
        if self._output is None or outcome.answer is None:
            return outcome, None
        try:
            return outcome, read_model(outcome.answer, self._output)
        except ValueError:
            asked = self._cycle.latest.assistant(outcome.answer, origin="model").user(
                "Give that answer as JSON."
            )
        try:
            return outcome, await Run(self._cycle).ask(
                asked, into=self._output, purpose="output"
            )
        except AskFailed as error:
            return build_outcome(InvalidOutput(str(error)), outcome.answer), None
        except (Fenced, ReplayDivergence):
            raise
        except LoopwrightError as error:
            return build_outcome(error, outcome.answer), None

    async def _undo(self, outcome: RunOutcome) -> RunOutcome:
        try:
            return await Compensation(
                self._session, find_registries(self._engine), self._cycle.permit_undo
            ).undo_calls(outcome)
        except Fenced:
            raise
        except JournalError as failure:
            return build_outcome(failure, outcome.answer)

    async def _close(
        self, outcome: RunOutcome, output: BaseModel | None
    ) -> Result[Output]:
        """Write the closing entry and give the result."""
        session, budget = self._session, self._session.budget
        conversation = self._cycle.latest
        if outcome.answer is not None:
            conversation = conversation.assistant(outcome.answer, origin="model")
        waiting = outcome.status == "waiting"
        pending = tuple(session.pending) if waiting else ()
        if waiting:
            session.writer.close(
                RunSuspended("waiting", pending, session.active.take_waited())
            )
        elif not isinstance(outcome.error, JournalError):
            session.writer.close(RunFinished(
                outcome.status, outcome.stop_reason, outcome.answer,
                None if output is None else output.model_dump(mode="json", round_trip=True),
                None if outcome.error is None else ErrorRecord.of(outcome.error),
                budget.usage, budget.llm_calls, budget.tool_calls, self._cycle.scope.turns, conversation.messages,
            ))  # fmt: skip
        try:
            await finish_despite_cancellation(
                lambda: session.writer.barrier(outcome.status)
            )  # a cancellation that comes now comes too late
        except Fenced:
            raise
        except JournalError as failure:
            outcome, output = build_outcome(failure, outcome.answer), None
        return Result(
            outcome.answer, outcome.status, outcome.stop_reason, budget.usage, self._cycle.scope.turns, session.run_id,
            outcome.error, pending, session.writer.claim.head_hash, cast("Output", output), conversation, budget.llm_calls,
            budget.tool_calls, session.facts_below(),
        )  # fmt: skip
