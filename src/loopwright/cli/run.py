"""`run`, `resume` and `fork`: run engines, and show their progress."""

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from pydantic import BaseModel

from .._internal import dataclasses
from .._kernel.control.commands import APPROVE, DENY
from .._kernel.durability.fork import fork
from .._kernel.session.services import Observer
from ..agents.agent import Agent, AgentDefinition, define_agent
from ..agents.approved_turn import proceed_as_approved
from ..agents.turn_handle import TurnHandle
from ..clock import SystemClock
from ..compose.composition import Composition
from ..engine import LoopEngine
from ..errors import ConfigError, RunBusy, ThreadBusy
from ..events.entry import Entry
from ..events.lifecycle import read_start
from ..events.run import RunStarted, format_process
from ..gates.base import Approver, Suspend
from ..handle import RunHandle
from ..journals.base import Journal
from ..journals.memory import MemoryJournal
from ..messages import Conversation
from ..principals import Principal
from ..providers.base import Delta
from ..result import Result
from ..runtime import Runtime
from .approver import Approval, choose_approver
from .captured_output import capture_output
from .command_keys import open_command_signer
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
from .config_file import find_journal, open_composition, with_journal
from .exit_status import EXIT_STATUS, INTERRUPTED, report_error
from .progress import NullWatcher, PlainLines, Watcher
from .questions import format_questions
from .terminal import LiveTimeline, is_terminal
from .text import clean, json_text, readable_json

T = TypeVar("T")
DEFAULT_ENGINE = "react"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task for an engine; the text "-" is read from standard input."""

    text: str
    engine: str
    system: str | None = None
    attachments: tuple[str, ...] = ()
    run_id: str | None = None
    saga: bool = False
    thread: str | None = None
    principal: str | None = None

    @property
    def starter(self) -> Principal | None:
        """Return who has it run; `None` without a name."""
        return None if self.principal is None else Principal.parse(self.principal)

    def conversation(self) -> Conversation:
        """Return the conversation that the engine starts with."""
        try:
            text = sys.stdin.read() if self.text == "-" else self.text
            text.encode()  # bytes that are not text may arrive as lone surrogates
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
    """How a run is shown, and who approves calls."""

    quiet: bool = False
    as_json: bool = False
    approval: Approval | None = None
    debug: bool = False

    def watch(self, run_id: str = "") -> "WatchedRun":
        """Return the run to watch; the watcher depends on where standard error goes."""
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
    """A run in progress, whose events its watcher shows; it is suspended when the reader is gone."""

    def __init__(
        self, watcher: Watcher, approver: Approver | Suspend, run_id: str
    ) -> None:
        self.watcher, self.approver, self.run_id = watcher, approver, run_id
        self._task: asyncio.Task[Result] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader_is_gone = False

    def capture(self) -> AbstractContextManager[None]:
        """Send what tools and plug-ins print to the watcher, so that standard output holds the answer alone."""
        return capture_output(lambda text: self._guarded(self.watcher.printed, text))

    def execute(
        self, work: Callable[[], Awaitable[Result]], journal: Journal
    ) -> Result | None:
        """Run the work in an event loop and close the journal; return `None` if Ctrl-C suspended the run."""
        try:
            return asyncio.run(self._execute(work, journal))
        except KeyboardInterrupt:
            return None

    async def _execute(
        self, work: Callable[[], Awaitable[Result]], journal: Journal
    ) -> Result:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        try:
            with self.watcher:
                return await run_and_close(journal, work)
        except asyncio.CancelledError:
            if self._reader_is_gone:
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
        """Show something; if the reader is gone, suspend the run as an interrupt does."""
        if self._reader_is_gone:
            return
        try:
            show(what)
        except BrokenPipeError:
            self._reader_is_gone = True
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(
                    self._task.cancel
                )  # tools print from threads, too


async def run_and_close(journal: Journal, work: Callable[[], Awaitable[T]]) -> T:
    """Run the work and close the journal."""
    try:
        return await work()
    finally:
        await journal.close()


def start_run(task: Task, chosen: CommandOptions, interaction: Interaction) -> int:
    """Run an engine on a task; return the exit status."""
    watched, chosen = interaction.watch(), with_journal(chosen)
    with watched.capture():
        conversation = task.conversation()
        output = load_output_model(chosen.output)
        opened, target = _open_target(task, chosen, watched.approver)
        journal = (
            opened.runtime.journal
            if isinstance(opened, Composition)
            else opened.journal
        )

        async def work() -> Result:
            run = open_run(task, conversation, target, output)
            async with opened, run as handle:
                try:
                    async for item in handle:
                        watched.show(item)
                    return await handle.result()
                except asyncio.CancelledError:  # by Ctrl-C, or since the reader is gone
                    await handle.suspend()
                    raise

        try:
            result = watched.execute(work, journal)
        except ThreadBusy as busy:
            raise _explain_blocked(busy, task.thread, chosen) from None
    return _report(result, watched.run_id, chosen, interaction, journal)


def _open_target(
    task: Task, chosen: CommandOptions, approver: Approver | Suspend
) -> tuple[Runtime | Composition, LoopEngine | Agent[Any]]:
    """Return the engine or the agent that a task is for, and what to close behind it."""
    if chosen.config is not None:
        if task.engine != DEFAULT_ENGINE:
            raise ConfigError(
                f"--engine: {chosen.config} has the engines; name one of them, or an agent, by --agent"
            )
        composition = open_composition(chosen, approver)
        return composition, composition.choose(chosen.agent)
    runtime = make_runtime(chosen, approver, open_journal(chosen.journal))
    options = parse_engine_options(runtime, chosen.options)
    return runtime, runtime.engine(task.engine, **options)


def open_run(
    task: Task,
    conversation: Conversation,
    target: LoopEngine | Agent[Any],
    output: type[Any] | None,
) -> RunHandle[Entry | Delta, Any] | TurnHandle[Entry | Delta]:
    """Return the run of a task, or the turn of its thread; that has the system message as instructions."""
    if task.thread is None:
        return target.start(
            conversation, run_id=task.run_id, output=output, deltas=True, saga=task.saga,
            principal=task.starter,
        )  # fmt: skip
    if task.run_id is not None:
        raise ConfigError(
            f"--run-id: a turn of a thread gets its id by itself, got {task.run_id!r}; leave it out"
        )
    if isinstance(target, LoopEngine):
        nameless = AgentDefinition("", instructions=task.system or "")
        target = define_agent(target.runtime, target, nameless, {})
    elif task.system:
        raise ConfigError(f"--system: agent {target.name!r} has instructions of its own; leave it out")  # fmt: skip
    message = conversation.messages[-1]
    return target.thread(task.thread).start(
        message.content, deltas=True, output=output, attachments=message.attachments,
        saga=task.saga, principal=task.starter,
    )  # fmt: skip


def _explain_blocked(
    busy: ThreadBusy, thread: str | None, chosen: CommandOptions
) -> ThreadBusy:
    """Return the error that the last turn of a thread waits, with the command that resumes it."""
    how = f"resume it: {format_resume_command(busy.run_id, chosen)} --provider ..."
    if busy.status == "parked":
        end = f"or end it with `loopwright close {busy.run_id}`"
        how = f"find the cause, then `loopwright retry {busy.run_id}`, and {how}; {end}"
    elif busy.status != "suspended":
        how = f"decide what it waits for, then {how}"
    return ThreadBusy(f"thread {thread!r}: its last turn is {busy.status}: {how}")


def resume_run(
    run_id: str,
    chosen: CommandOptions,
    interaction: Interaction,
    *,
    engine: str | None = None,
    take_over: bool = False,
) -> int:
    """Resume a run where its journal ends; return the exit status."""
    watched, chosen = interaction.watch(run_id), with_journal(chosen)
    with watched.capture():
        output, journal = load_output_model(chosen.output), find_journal(chosen)
        entries = journal.read(run_id)
        watched.watcher.known(entries)
        started = read_start(run_id, entries)
        approver = (
            Suspend()
            if interaction.approval is None and _has_remote_approver(run_id, journal)
            else watched.approver
        )
        opened, resumed = _open_recorded(
            chosen, approver, journal, started, watched, run_id, engine
        )

        async def work() -> Result:
            async def resume() -> Result:
                return await resumed.resume(run_id, take_over=take_over, output=output)

            services = resumed if isinstance(resumed, Runtime) else resumed.runtime
            try:
                async with opened:
                    return await proceed_as_approved(services, await resume(), resume)
            except RunBusy:
                raise _explain_busy(journal, run_id) from None

        result = watched.execute(work, journal)
    return _report(result, run_id, chosen, interaction, journal)


def _open_recorded(
    chosen: CommandOptions,
    approver: Approver | Suspend,
    journal: Journal,
    started: RunStarted,
    watched: WatchedRun,
    run_id: str,
    engine: str | None,
) -> tuple[Runtime | Composition, LoopEngine | Runtime]:
    """Return what resumes a run, and what to close behind it."""
    shown = [watched.show]
    if chosen.config is not None:
        composed = open_composition(chosen, approver, observers=shown, journal=journal)
        return composed, composed.runtime
    runtime = make_runtime(chosen, approver, journal, started=started, observers=shown)
    return runtime, rebuild_engine(runtime, run_id, started, engine, chosen)


def _has_remote_approver(run_id: str, journal: Journal) -> bool:
    """Return whether a person decides about this run's calls from another process, and so about later ones too."""
    return any(command.kind in (APPROVE, DENY) for command in journal.inbox(run_id))


def rebuild_engine(
    runtime: Runtime,
    run_id: str,
    started: RunStarted,
    engine: str | None,
    chosen: CommandOptions,
) -> LoopEngine:
    """Return the engine of a run, with its recorded options and those that are given."""
    given = parse_engine_options(runtime, chosen.options)
    missing = [name for name in started.opaque if name.partition(".")[0] not in given]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: this option of run {run_id!r} is code or a live object, which a journal cannot hold; "
            f"pass it again: --option {missing[0].partition('.')[0]}=@package.module:object"
        )
    recorded = (
        restore_options(runtime, started, but=given.keys())
        if engine in (None, started.engine)
        else {}
    )
    return runtime.engine(engine or started.engine, **{**recorded, **given})


def _explain_busy(journal: Journal, run_id: str) -> RunBusy:
    """Return the error that another process runs it, with the option that takes it over."""
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
    """Return the command that resumes a run."""
    return clean(shlex.join(["loopwright", "resume", run_id, *chosen.repeat()]))


def make_runtime(
    chosen: CommandOptions,
    approver: Approver | Suspend,
    journal: Journal,
    *,
    started: RunStarted | None = None,
    observers: Sequence[Observer] = (),
) -> Runtime:
    """Return a runtime of the chosen services; a resumed run keeps its limits and is shown by an observer."""
    limits = build_limits(chosen.limits, started.limits if started else None)
    return Runtime(
        limits=limits, observers=observers, **open_services(chosen, approver, journal)
    )


def open_services(
    chosen: CommandOptions, approver: Approver | Suspend, journal: Journal
) -> dict[str, Any]:
    """Return the services that do not depend on the run, as a runtime takes them."""
    provider = open_provider(chosen)
    return {
        "provider": provider,
        "tools": open_tools(chosen.tools),
        "journal": journal,
        "gate": open_gate(chosen.gate),
        "approver": approver,
        "prices": parse_prices(chosen.price, provider),
        "on_unknown": chosen.on_unknown or "tell",
        "app_version": chosen.app_version,
        "commands": open_command_signer(),
    }


def _report(
    result: Result | None,
    run_id: str,
    chosen: CommandOptions,
    interaction: Interaction,
    journal: Journal,
) -> int:
    """Print the answer, and to standard error how the run ended and how to resume it; return the exit status."""
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
    elif result.status == "suspended" and kept:
        how = format_resume_command(run_id, chosen)
        sys.stderr.write(f"{result.error}; resume it: {how}\n")
    elif result.error is not None and result.status != "completed":
        report_error(result.error, debug=interaction.debug)
    return EXIT_STATUS[result.status]


def describe_result(result: Result) -> dict[str, object]:
    """Return a result as JSON values, for programs."""
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
    """Return the output as JSON, which it is already for a finished run without a model class."""
    output: object = result.output
    return output.model_dump(mode="json") if isinstance(output, BaseModel) else output
