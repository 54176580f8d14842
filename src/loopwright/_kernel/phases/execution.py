"""Execution: one process's work on a run, from the start of its engine to its closing entry."""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NoReturn, TypeVar, cast

from ..._internal import dataclasses
from ...errors import (
    Aborted,
    AskFailed,
    Fenced,
    InvalidOutput,
    JournalError,
    LoopwrightError,
    ReplayDivergence,
    Suspended,
)
from ...events.entry import Entry
from ...events.run import Question, RunFinished, RunSuspended, SuspendReason
from ...journals.recorded_messages import RENDERER, answer_code
from ...messages import Conversation, Json, Message, mark_entry
from ...providers.base import Sampling
from ...result import Result, RunOutcome, build_outcome
from ..durability.history import describe_end, offer_conversation
from ..session.cancellation import finish_despite_cancellation
from ..session.session import STATUS_OF_SUSPENDED, SUSPEND_REASON
from .cycle import Cycle
from .due_runs import plan_due_runs
from .hooked_texts import hook_answer
from .human import permit_answer, take_follow_up
from .output_type import OutputType, is_document
from .reason import settle
from .saga import (
    Compensation,
    find_registries,
    needs_compensation,
    restore_outcome,
)
from .structured_output import ask_document

T = TypeVar("T")


class Execution:
    """Executes a run: solve, output, policy about the answer, compensation, closing entry.

    Args:
        cycle: the phases of the root scope.
        output: the model class of the answer, if one is wanted.
        solve: lets the engine solve, and returns how it ended.
    """

    def __init__(
        self,
        cycle: Cycle,
        output: OutputType[Any] | None,
        solve: Callable[[], Awaitable[RunOutcome]],
    ) -> None:
        self._agents, self._session = cycle.succession, cycle.session
        self._start = cycle.conversation
        self._session.begin(cycle.conversation)
        self._output, self._solve = output, solve
        self._refused = ""  # the JSON of the answer that did not fit the output
        self._session.read_answer = None if output is None else output.read
        if output is not None and self._session.revision >= 1:
            self._session.answer_schema = output.as_schema()
        self.is_closing = False
        """Whether the engine has ended: an abort comes too late."""
        self.due: tuple[str, ...] = ()
        """The ids of the runs that are due after this one."""

    @property
    def _cycle(self) -> Cycle:
        """Return the phases of the agent at work, which is another one after a handoff."""
        return self._agents.active

    async def run(self, cancelled: asyncio.CancelledError | None = None) -> Result[Any]:
        """Return the result; suspend the run if this task is cancelled, or its code diverged.

        `cancelled` is what arrived before this could begin: nothing is solved then.
        """
        try:
            if cancelled is not None:
                raise cancelled
            outcome, output = await self._finish_solving()
        except asyncio.CancelledError as error:
            outcome, output = await self._stop_or_abort(error), None
        except ReplayDivergence as error:
            outcome, output = await self._diverge_or_abort(error), None
        outcome, output = self._override_ending(outcome, output)
        self.is_closing = True
        if needs_compensation(self._session, outcome):
            try:
                outcome = await self._compensate(outcome)
            except asyncio.CancelledError as error:  # a resumed run continues it
                await self._interrupt(error)
        return await self._close(outcome, output)

    async def _stop_or_abort(self, cancelled: asyncio.CancelledError) -> RunOutcome:
        """Return the outcome of a run that is being aborted; stop where its task was cancelled from outside."""
        signals = self._session.signals
        if not signals.aborting or isinstance(signals.fatal, Fenced):
            await self._interrupt(cancelled)
        return self._abort()

    async def _diverge_or_abort(self, diverged: ReplayDivergence) -> RunOutcome:
        """Return the outcome of an aborted run, which ends without its replay; raise the divergence of any other.

        A saga must know what the run did.
        """
        session = self._session
        if session.saga or not session.command_log.aborting:
            await self._suspend("diverged")
            raise diverged
        return self._abort()

    def _override_ending(
        self, outcome: RunOutcome, output: Any
    ) -> tuple[RunOutcome, Any]:
        """Return how the run ends: as before it was undone, as aborted or stopped, or as its engine ended."""
        session, begun = self._session, self._session.replay.recoveries.undo
        if begun is not None:
            return restore_outcome(begun), None
        if session.signals.aborting or session.command_log.aborting:
            return self._abort(outcome.answer), None
        if outcome.is_paused and session.command_log.stopping:
            # Another branch stopped; whom this one waits for could not make it continue.
            return self._stop(session.intake.stop_signal()), None
        return outcome, output

    async def _finish_solving(self) -> tuple[RunOutcome, Any]:
        """Let the engine solve until people have no more to say; return its outcome and output."""
        session = self._session
        if not session.is_new:
            # That it was resumed must be known if this process dies of it. An error meets the first effect.
            with contextlib.suppress(LoopwrightError):
                await session.writer.barrier()
        if session.replay.recoveries.undo is not None:
            await self._replay_for_undo()
            return restore_outcome(session.replay.recoveries.undo), None
        if session.command_log.aborting:  # sent while no process worked on the run
            session.intake.stop_signal()
        while True:
            outcome, output = await self._solve(), None
            if outcome.status != "completed":
                break
            outcome, output = await self._read_output(outcome)
            is_complete = outcome.status == "completed"
            if is_complete and take_follow_up(self._cycle, outcome.answer or ""):
                continue  # it was sent while the output was made
            break
        if outcome.is_paused:
            session.replay_end.abandon()
        else:
            session.replay_end.finish()
        return await self._permit_answer(outcome, output)

    async def _replay_for_undo(self) -> None:
        """Let an engine that had ended replay its calls, which are to be undone."""
        signals = self._session.signals
        signals.stick(Aborted("the run has ended"))
        try:
            await self._solve()
        except ReplayDivergence:  # the journal has what is to be undone, in any case
            signals.fatal = None

    async def _read_output(self, outcome: RunOutcome) -> tuple[RunOutcome, Any]:
        """Return the answer as the output model; if it is not one, the model is asked for it."""
        self._refused = ""
        if self._output is None or outcome.answer is None:
            return outcome, None
        try:
            return outcome, self._output.read(outcome.answer)
        except ValueError:
            answered = self._cycle.latest.assistant(outcome.answer, origin="model")
            asked = answered.user("Give that answer as JSON.")
        try:
            value, document = await self._ask_for_output(asked, self._output)
            return self._correct(outcome, document), value
        except AskFailed as error:
            return build_outcome(InvalidOutput(str(error)), outcome.answer), None
        except (Fenced, ReplayDivergence):
            raise
        except LoopwrightError as error:
            return build_outcome(error, outcome.answer), None

    async def _ask_for_output(
        self, asked: Conversation, output: OutputType[T]
    ) -> tuple[T, str]:
        settled = functools.partial(settle, self._cycle)
        provider = self._cycle.services.provider
        with self._cycle.scope.enter("ask"):
            return await ask_document(
                settled, asked, output, Sampling(), provider, "output"
            )

    def _correct(self, outcome: RunOutcome, document: str) -> RunOutcome:
        """Return the outcome with the JSON that fits the output in place of JSON that does not; words stay."""
        refused = outcome.answer or ""
        if self._session.revision < 4 or not is_document(refused):
            return outcome
        self._refused = refused
        return dataclasses.replace(outcome, answer=document)

    async def _permit_answer(
        self, outcome: RunOutcome, output: Any
    ) -> tuple[RunOutcome, Any]:
        """Return the outcome as hooks leave it and gates permit it; an answer that they changed is read again."""
        outcome, output = await self._hook_answer(outcome, output)
        try:
            dumped = self._dump(output)
        except Exception as error:  # noqa: BLE001 - its serializers are third-party code
            invalid = InvalidOutput(
                f"output: the value cannot be written as JSON: {error}"
            )
            return build_outcome(invalid, outcome.answer), None
        permitted = await permit_answer(self._cycle, outcome, dumped)
        if self._output is None or permitted.answer == outcome.answer:
            return permitted, output
        if permitted.answer is None:
            return permitted, None
        try:
            output = self._output.read(permitted.answer)
            self._dump(output)
        except Exception as error:  # noqa: BLE001 - as above
            invalid = InvalidOutput(f"the gate changed the answer: {error}")
            return build_outcome(invalid, permitted.answer), None
        return permitted, output

    async def _hook_answer(
        self, outcome: RunOutcome, output: Any
    ) -> tuple[RunOutcome, Any]:
        """Return the outcome with the answer as hooks left it, which fits the output."""
        check = None if self._output is None or output is None else self._output.read
        try:
            hooked = await hook_answer(self._cycle, outcome, check)
        except (Fenced, ReplayDivergence):
            raise
        except LoopwrightError as error:  # they ended the run, and it gives no answer
            return build_outcome(error), None
        if hooked.answer is None or outcome.answer is None:
            return hooked, output
        answers = self._refused or outcome.answer, outcome.answer
        self._session.held.answer(answers, hooked.answer)
        if check is not None and hooked.answer != outcome.answer:
            output = check(hooked.answer)
        return hooked, output

    def _abort(self, answer: str | None = None) -> RunOutcome:
        """Return the outcome of an aborted run, with what it offered."""
        return self._stop(Aborted(self._session.signals.abort_text), answer)

    def _stop(self, error: LoopwrightError, answer: str | None = None) -> RunOutcome:
        """Return the outcome of a run that a person ended, with what it offered unless a gate must see answers."""
        if answer is None and not self._cycle.clearance.judges_answers:
            answer = self._cycle.offered
        return build_outcome(error, answer)

    async def _interrupt(self, cancelled: asyncio.CancelledError) -> NoReturn:
        """Stop, since the host cancelled this task or another worker took the run over."""
        fatal = self._session.signals.fatal
        if isinstance(fatal, Fenced):
            raise fatal from None
        await self._suspend(SUSPEND_REASON.get())
        raise cancelled

    async def _suspend(
        self, reason: Literal["cancelled", "diverged", "released"]
    ) -> None:
        """Leave the run so that it can be resumed."""
        writer, waited = self._session.writer, self._session.active.take_waited()
        # A worker leaves a run that its code cannot replay to workers with other code.
        released = (reason, SUSPEND_REASON.get()) == ("diverged", "released")
        writer.close(RunSuspended(reason, waited=waited, released=released))
        status = "released" if released else STATUS_OF_SUSPENDED[reason]
        cancelled: asyncio.CancelledError | None = None
        with contextlib.suppress(JournalError):  # then the owner's end releases it
            cancelled = await finish_despite_cancellation(
                lambda: writer.barrier(status)
            )
        if cancelled is not None:
            raise cancelled

    async def _compensate(self, outcome: RunOutcome) -> RunOutcome:
        engines = [cycle.engine for cycle in self._agents.all]
        registries = find_registries(*engines)
        saga = Compensation(self._session, registries, self._cycle.permit_undo)
        try:
            return await saga.undo_calls(outcome)
        except Fenced:
            raise
        except JournalError as failure:
            return build_outcome(failure, outcome.answer)

    async def _close(self, outcome: RunOutcome, output: Any) -> Result[Any]:
        """Write the closing entry, and return the result."""
        session, budget = self._session, self._session.budget
        redactor = session.services.redactor
        read = session.sensitivity
        conversation = session.prompts.clean_end(self._agents.whole, redactor, read)
        if outcome.answer is not None:
            conversation = self._add_answer(conversation, outcome.answer)
        ended: Entry | None = None
        pending: tuple[Question, ...] = ()
        if outcome.is_paused:
            pending = tuple(map(session.secrets.clean_question, session.pending))
            session.writer.close(self._suspended(outcome, pending))
        elif isinstance(outcome.error, JournalError):
            session.writer.fail(outcome.error)
        else:
            finished = self._finished(outcome, output, conversation)
            ended = session.writer.close(finished)
            self.due = plan_due_runs(session, outcome.status, conversation)
        try:
            # A cancellation that comes now comes too late.
            await finish_despite_cancellation(
                lambda: session.writer.barrier(outcome.status)
            )
        except Fenced:
            raise
        except JournalError as failure:
            outcome, output, ended = build_outcome(failure, outcome.answer), None, None
            self.due = ()
        if ended is not None:
            journal = session.services.journal
            start = session.requests.get_given()
            conversation = offer_conversation(journal, ended, start, conversation)
        turns, head_hash = self._agents.turns, session.writer.claim.head_hash
        return Result(
            outcome.answer, outcome.status, outcome.stop_reason, budget.usage, turns, session.run_id,
            outcome.error, pending, head_hash, output, conversation, budget.llm_calls, budget.tool_calls,
            session.facts_below(), read.label, read.untrusted, len(session.requests.trimmed),
        )  # fmt: skip

    def _add_answer(self, conversation: Conversation, answer: str) -> Conversation:
        """Return the conversation with the answer at its end, which a reply has if a model gave it."""
        session, read = self._session, self._session.sensitivity
        message = Message(
            "assistant",
            answer,
            origin="model",
            label=read.label,
            untrusted=read.untrusted,
        )
        key = session.answers.get(answer, "")
        mark_entry(message, (session.run_id, answer_code(key)))
        known = conversation.with_provenance(read.label, untrusted=read.untrusted)
        return known.add(message)

    def _suspended(
        self, outcome: RunOutcome, pending: tuple[Question, ...]
    ) -> RunSuspended:
        waited = self._session.active.take_waited()
        wake_at = outcome.error.wake_at if isinstance(outcome.error, Suspended) else 0.0
        reason: SuspendReason = "waiting"
        if outcome.status == "suspended":
            reason = cast("SuspendReason", outcome.stop_reason)
        return RunSuspended(reason, pending, waited, wake_at=wake_at)

    def _finished(
        self, outcome: RunOutcome, output: Any, conversation: Conversation
    ) -> RunFinished:
        session, turns = self._session, self._agents.turns
        budget = session.budget
        kept, added = describe_end(session.run_id, self._start, conversation)
        return RunFinished(
            outcome.status, outcome.stop_reason, outcome.answer, self._dump(output), outcome.record_error(),
            budget.usage, budget.llm_calls, budget.tool_calls, turns, (),
            session.sensitivity.label, session.sensitivity.untrusted, added, kept,
            session.answers.get(outcome.answer or "", ""), RENDERER, self._cycle.services.agent_name,
            len(session.requests.trimmed),
        )  # fmt: skip

    def _dump(self, output: Any) -> Json:
        if self._output is None or output is None:
            return None
        return self._output.dump(output)
