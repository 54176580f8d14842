"""`run`, `resume` and `fork`: work that goes into a journal, watched while it happens."""

import asyncio
import dataclasses
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from pydantic import BaseModel

from .._kernel.control.commands import APPROVE, DENY
from .._kernel.durability.fork import fork
from .._kernel.session.services import Observer
from ..clock import SystemClock
from ..engine import LoopEngine
from ..errors import ConfigError, RunBusy
from ..events.entry import Entry
from ..events.lifecycle import read_start
from ..events.run import RunStarted, format_process
from ..gates.base import Approver, Suspend
from ..journals.base import Journal
from ..journals.memory import MemoryJournal
from ..messages import Conversation
from ..providers.base import Delta
from ..result import Result
from ..runtime import Runtime
from .approver import Approval, choose_approver
from .captured_output import capture_output
from .config import (
    CommandOptions,
    build_limits,
    load_attachments,
    load_output_model,
    open_gate,
    open_journal,
    open_provider,
    open_tools,
    parse_engine_options,
    parse_prices,
    restore_options,
)
from .exit_status import EXIT_STATUS, INTERRUPTED, report_error
from .progress import NullWatcher, PlainLines, Watcher
from .questions import format_questions
from .terminal import LiveTimeline, is_terminal
from .text import clean, json_text, readable_json

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked of which engine; the text "-" is read from standard input."""

    text: str
    engine: str
    system: str | None = None
    attachments: tuple[str, ...] = ()
    run_id: str | None = None
    saga: bool = False

    def conversation(self) -> Conversation:
        """The task as the engine gets it."""
        try:
            text = sys.stdin.read() if self.text == "-" else self.text
            text.encode()  # bytes that are no text may come as half pairs
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            raise ConfigError(
                f"question: is not UTF-8 text: {error.reason} at position {error.start}"
            ) from None
        if not text.strip():
            raise ConfigError("question: is empty; pass the task to do")
        return Conversation.of(
            text, system=self.system, attachments=load_attachments(self.attachments)
        )


@dataclasses.dataclass(frozen=True)
class Interaction:
    """How a run is shown, and who is asked."""

    quiet: bool = False
    as_json: bool = False
    approval: Approval | None = None
    debug: bool = False

    def watched(self, run_id: str = "") -> "WatchedRun":
        """Where the run is worked on: who watches depends on where standard error goes."""
        watcher: Watcher
        if self.quiet:
            watcher = NullWatcher(sys.stderr)
        else:
            watcher = (
                LiveTimeline(sys.stderr)
                if is_terminal(sys.stderr)
                else PlainLines(sys.stderr)
            )
        return WatchedRun(watcher, choose_approver(self.approval, watcher), run_id)


class WatchedRun:
    """Where one run is worked on: passes what happens to its watcher, and ends the work if nobody watches any more."""

    def __init__(
        self, watcher: Watcher, approver: Approver | Suspend, run_id: str
    ) -> None:
        self.watcher, self.approver, self.run_id = watcher, approver, run_id
        self._task: asyncio.Task[Result] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unread = False

    def set(self) -> AbstractContextManager[None]:
        """What tools and plug-ins print goes to the watcher, so that the answer is alone on standard output."""
        return capture_output(lambda text: self._guarded(self.watcher.printed, text))

    def play(
        self, work: Callable[[], Awaitable[Result]], journal: Journal
    ) -> Result | None:
        """Do the work in an event loop of its own and close the journal; `None` if Ctrl-C has suspended the run."""
        try:
            return asyncio.run(self._play(work, journal))
        except KeyboardInterrupt:
            return None

    async def _play(
        self, work: Callable[[], Awaitable[Result]], journal: Journal
    ) -> Result:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        try:
            with self.watcher:
                return await run_and_close(journal, work)
        except asyncio.CancelledError:
            if self._unread:
                raise BrokenPipeError from None
            raise

    def show(self, item: Entry | Delta) -> None:
        """Show an entry or a delta."""
        if isinstance(item, Entry):
            self.run_id = item.run_id
            self._guarded(self.watcher.entry, item)
        else:
            self._guarded(self.watcher.delta, item)

    def _guarded(self, show: Callable[[T], None], what: T) -> None:
        """Show something; where the reader is gone, the run is suspended as by an interrupt."""
        if self._unread:
            return
        try:
            show(what)
        except BrokenPipeError:
            self._unread = True
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(
                    self._task.cancel
                )  # tools print from threads, too


async def run_and_close(journal: Journal, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work and close the journal."""
    try:
        return await work()
    finally:
        await journal.close()


def start_run(
    question: Question, chosen: CommandOptions, interaction: Interaction
) -> int:
    """Put a question to an engine; gives the exit status."""
    watched = interaction.watched()
    with watched.set():
        task, output, journal = (
            question.conversation(),
            load_output_model(chosen.output),
            open_journal(chosen.journal),
        )
        runtime = make_runtime(chosen, watched.approver, journal)
        engine = runtime.engine(
            question.engine, **parse_engine_options(runtime, chosen.options)
        )

        async def work() -> Result:
            run = engine.start(
                task,
                run_id=question.run_id,
                output=output,
                saga=question.saga,
                deltas=True,
            )
            async with runtime, run as handle:
                async for item in handle:
                    watched.show(item)
                return await handle.result()

        result = watched.play(work, journal)
    return _told(result, watched.run_id, chosen, interaction, journal)


def resume_run(
    run_id: str,
    chosen: CommandOptions,
    interaction: Interaction,
    *,
    engine: str | None = None,
    take_over: bool = False,
) -> int:
    """Go on with a run where its journal ends; gives the exit status."""
    watched = interaction.watched(run_id)
    with watched.set():
        output, journal = load_output_model(chosen.output), open_journal(chosen.journal)
        entries = journal.read(run_id)
        watched.watcher.known(entries)
        started = read_start(run_id, entries)
        approver = (
            Suspend()
            if interaction.approval is None and _has_remote_approver(run_id, journal)
            else watched.approver
        )
        runtime = make_runtime(
            chosen, approver, journal, started=started, observers=[watched.show]
        )
        built = rebuild_engine(runtime, run_id, started, engine, chosen)

        async def work() -> Result:
            try:
                async with runtime:
                    return await built.resume(
                        run_id, take_over=take_over, output=output
                    )
            except RunBusy:
                raise _explain_busy(journal, run_id) from None

        result = watched.play(work, journal)
    return _told(result, run_id, chosen, interaction, journal)


def _has_remote_approver(run_id: str, journal: Journal) -> bool:
    """Whether somebody approves or denies this run's calls from outside, and so decides about those to come, too."""
    return any(command.kind in (APPROVE, DENY) for command in journal.inbox(run_id))


def rebuild_engine(
    runtime: Runtime,
    run_id: str,
    started: RunStarted,
    engine: str | None,
    chosen: CommandOptions,
) -> LoopEngine:
    """The engine that a run was begun with: its recorded options, and those that are given."""
    given = parse_engine_options(runtime, chosen.options)
    missing = [name for name in started.opaque if name.partition(".")[0] not in given]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: this option of run {run_id!r} is code or a live object, which no journal holds: "
            f"give it again, --option {missing[0].partition('.')[0]}=@package.module:object"
        )
    recorded = (
        restore_options(runtime, started, but=given.keys())
        if engine in (None, started.engine)
        else {}
    )
    return runtime.engine(engine or started.engine, **{**recorded, **given})


def _explain_busy(journal: Journal, run_id: str) -> RunBusy:
    """Who works on the run, and the option of this command that is the way out."""
    owner = next((info.owner for info in journal.runs() if info.run_id == run_id), None)
    who = format_process(owner) if owner else "another process"
    return RunBusy(
        f"run {run_id!r} is running in {who}: wait for it to end, or take it over with --take-over"
    )


def copy_to_fork(
    run_id: str, at: int, new_id: str | None, chosen: CommandOptions
) -> int:
    """Fork a run after one of its entries, and print the new run's id."""
    journal = open_journal(chosen.journal)

    forked = asyncio.run(
        run_and_close(
            journal,
            lambda: fork(journal, run_id, at=at, clock=SystemClock(), new_id=new_id),
        )
    )
    sys.stdout.write(clean(forked) + "\n")
    sys.stdout.flush()
    sys.stderr.write(
        f"resume it: {format_resume_command(forked, chosen)} --provider ...\n"
    )
    return 0


def format_resume_command(run_id: str, chosen: CommandOptions) -> str:
    """What to type to go on with a run."""
    return clean(shlex.join(["loopwright", "resume", run_id, *chosen.again()]))


def make_runtime(
    chosen: CommandOptions,
    approver: Approver | Suspend,
    journal: Journal,
    *,
    started: RunStarted | None = None,
    observers: Sequence[Observer] = (),
) -> Runtime:
    """The parts that were chosen; a run that goes on keeps its limits, and is watched by an observer."""
    limits = build_limits(chosen.limits, started.limits if started else None)
    return Runtime(
        limits=limits, observers=observers, **open_services(chosen, approver, journal)
    )


def open_services(
    chosen: CommandOptions, approver: Approver | Suspend, journal: Journal
) -> dict[str, Any]:
    """The parts that do not depend on the run, as a runtime takes them."""
    provider = open_provider(chosen)
    return {
        "provider": provider,
        "tools": open_tools(chosen.tools),
        "journal": journal,
        "gate": open_gate(chosen.gate),
        "approver": approver,
        "prices": parse_prices(chosen.price, provider),
        "on_unknown": chosen.on_unknown or "tell",
    }


def _told(
    result: Result | None,
    run_id: str,
    chosen: CommandOptions,
    interaction: Interaction,
    journal: Journal,
) -> int:
    """Write the answer to standard output, and to standard error how it ended and how to go on; the exit status."""
    kept = not isinstance(journal, MemoryJournal)
    if result is None:
        how = (
            f"; resume it: {format_resume_command(run_id, chosen)}"
            if run_id and kept
            else ""
        )
        sys.stderr.write(f"interrupted{how}\n")
        return INTERRUPTED
    if interaction.as_json:
        sys.stdout.write(json_text(describe_result(result), indent=2) + "\n")
    elif result.output is not None:
        sys.stdout.write(readable_json(_output(result)) + "\n")
    elif result.answer is not None:
        sys.stdout.write(clean(result.answer) + "\n")
    sys.stdout.flush()
    if result.status == "waiting" and kept:
        sys.stderr.writelines(
            f"{line}\n"
            for line in format_questions(run_id, result.pending, chosen.journal)
        )
        sys.stderr.write(
            f"waiting for a decision; resume it: {format_resume_command(run_id, chosen)}\n"
        )
    elif result.error is not None and result.status != "completed":
        report_error(result.error, debug=interaction.debug)
    return EXIT_STATUS[result.status]


def describe_result(result: Result) -> dict[str, object]:
    """A result for programs."""
    error = result.error
    return {
        "run_id": result.run_id,
        "status": result.status,
        "stop_reason": result.stop_reason,
        "answer": result.answer,
        "output": _output(result),
        "error": None
        if error is None
        else {"type": type(error).__name__, "message": str(error)},
        "pending": result.pending,
        "iterations": result.iterations,
        "llm_calls": result.llm_calls,
        "tool_calls": result.tool_calls,
        "usage": result.usage,
        "facts": result.facts,
        "head_hash": result.head_hash,
    }


def _output(result: Result) -> object:
    """The output as JSON; that of a finished run is recorded as such, and stays so where no model is given."""
    output: object = result.output
    return output.model_dump(mode="json") if isinstance(output, BaseModel) else output
