"""`worker` and `resolve`: resume the runs that no process works on, and resolve calls with an unknown outcome."""

import asyncio
import dataclasses
import signal
import sys
from typing import Any

from .._kernel.control.commands import RESOLVE
from .._kernel.control.questions import build_resolve_body
from ..compose.composition import Composition
from ..engine import LoopEngine
from ..errors import ConfigError
from ..events.entry import Entry
from ..events.lifecycle import read_start
from ..events.run import RunFinished, RunResumed, RunStarted, RunSuspended
from ..gates.base import Approver, Suspend
from ..journals.access import read_run, send_command
from ..journals.base import Journal
from ..journals.memory import MemoryJournal
from ..resilience.circuit_breaker import CircuitBreakers
from ..result import Result
from ..runtime import Runtime
from ..security.redaction import Redactor
from ..tools.resolution import (
    CallCompleted,
    CallNotExecuted,
    OutcomeUnknown,
    Resolution,
)
from ..worker import Worker
from .config import (
    CommandOptions,
    build_limits,
    load_output_model,
    open_journal,
    resolve_journal,
)
from .config_file import find_journal, open_composition, with_journal
from .questions import format_questions
from .run import (
    Interaction,
    describe_result,
    open_services,
    rebuild_engine,
    run_and_close,
)
from .text import clean, json_text

STOPPED_BY = (signal.SIGTERM, signal.SIGINT)


class WorkerRuntime(Runtime):
    """A runtime that resumes each run under the run's own limits and options, as `resume` does."""

    def __init__(self, chosen: CommandOptions, **services: Any) -> None:
        def again(started: RunStarted) -> Runtime:
            return Runtime(
                limits=build_limits(chosen.limits, started.limits), **services
            )

        super().__init__(limits=build_limits(chosen.limits), **services)
        # The base is a frozen class, of which these are not fields.
        vars(self).update(_chosen=chosen, _again=again)

    async def _rebuild_engine(self, run_id: str) -> LoopEngine:
        """Rebuild the engine of a run on a runtime with the run's limits."""
        chosen: CommandOptions = vars(self)["_chosen"]
        started = read_start(run_id, await read_run(self.journal, run_id))
        runtime: Runtime = vars(self)["_again"](started)
        vars(runtime).update(worker_threads=self.worker_threads)
        return rebuild_engine(runtime, run_id, started, None, chosen)


def serve(
    chosen: CommandOptions,
    interaction: Interaction,
    *,
    lease: float,
    max_concurrency: int,
    poll: float,
    once: bool,
    accepts: tuple[str, ...] = (),
) -> int:
    """Resume runs until a signal, which releases those in progress; return the exit status."""
    watched = dataclasses.replace(
        interaction, quiet=True, approval=interaction.approval or "wait"
    ).watch()
    chosen = with_journal(chosen)
    with watched.capture():
        journal, output = find_journal(chosen), load_output_model(chosen.output)
        if isinstance(journal, MemoryJournal):
            raise ConfigError(
                "--journal: a worker needs a journal that outlives the processes whose runs it resumes"
            )
        log = WorkerLog(chosen, quiet=interaction.quiet)
        opened, runtime = _open_runtime(chosen, watched.approver, journal, log, lease)
        worker = Worker(
            runtime,
            outputs=[output] if output else [],
            max_concurrency=max_concurrency,
            poll=poll,
            accepts=accepts,
        )

        async def work() -> list[Result]:
            async with opened:
                if isinstance(opened, Composition):
                    await opened.add_schedules()
                return await _until_stopped(worker, log, once=once)

        results = asyncio.run(run_and_close(journal, work))
    _print_results(results, as_json=interaction.as_json)
    return 0


def _open_runtime(
    chosen: CommandOptions,
    approver: Approver | Suspend,
    journal: Journal,
    log: "WorkerLog",
    lease: float,
) -> tuple[Runtime | Composition, Runtime]:
    """Return the runtime of a worker, and what to close behind it."""
    if chosen.config is not None:
        composed = open_composition(
            chosen, approver, observers=[log], lease=lease, journal=journal
        )
        return composed, composed.runtime
    services = open_services(chosen, approver, journal)
    runtime = WorkerRuntime(
        chosen, **services, observers=[log], lease=lease, breakers=CircuitBreakers()
    )
    return runtime, runtime


def _print_results(results: list[Result], *, as_json: bool) -> None:
    for result in results:
        line = clean(f"{result.run_id}\t{result.status}")
        if as_json:
            line = json_text(describe_result(result))
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _until_stopped(
    worker: Worker, log: "WorkerLog", *, once: bool
) -> list[Result]:
    """Run a worker until it is done or a signal arrives; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    task: asyncio.Task[Any] = asyncio.ensure_future(
        worker.drain() if once else worker.serve()
    )

    def stop() -> None:
        for number in STOPPED_BY:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        task.cancel()

    for number in STOPPED_BY:
        loop.add_signal_handler(number, stop)
    log.write(
        "claiming the runs that can be resumed"
        if once
        else "claiming runs that can be resumed; Ctrl-C or SIGTERM releases them"
    )
    try:
        return await task or []
    except asyncio.CancelledError:
        return []


class WorkerLog:
    """Write a line for each run that is claimed and each that ends or waits, with its questions."""

    def __init__(self, chosen: CommandOptions, *, quiet: bool) -> None:
        self._chosen, self._quiet = chosen, quiet

    def write(self, line: str) -> None:
        """Write a line about the worker itself."""
        self._write(f"{resolve_journal(self._chosen.journal)}  {line}")

    def __call__(self, entry: Entry) -> None:
        """Write the lines about an entry."""
        match entry.event:
            case RunResumed():
                self._write(f"{entry.run_id}  claimed")
            case RunSuspended() as left:
                questions = format_questions(
                    entry.run_id, left.pending, self._chosen.journal
                )
                self._write(f"{entry.run_id}  suspended: {left.reason}", *questions)
            case RunFinished() as ended:
                self._write(f"{entry.run_id}  {ended.status}: {ended.stop_reason}")
            case _:
                pass

    def _write(self, *lines: str) -> None:
        if not self._quiet:
            sys.stderr.writelines(f"{clean(line)}\n" for line in lines)
            sys.stderr.flush()


def parse_resolution(done: str | None, not_done: bool, unknown: bool) -> Resolution:
    """Return the resolution that the options name."""
    if (done is not None) + not_done + unknown != 1:
        raise ConfigError(
            "resolution: pass exactly one of --done TEXT, --not-done and --unknown"
        )
    if done is not None:
        return CallCompleted(Redactor().redact_text(done))
    return CallNotExecuted() if not_done else OutcomeUnknown()


def send_resolution(
    run_id: str, key: str, resolution: Resolution, journal: str | None
) -> int:
    """Send the outcome of a call to the inbox of its run; return the exit status."""
    opened = open_journal(journal)
    body = build_resolve_body(run_id, opened.read(run_id), key, resolution)

    async def work() -> None:
        await send_command(opened, run_id, RESOLVE, body)

    asyncio.run(run_and_close(opened, work))
    sys.stderr.write(
        "queued; takes effect when the run is resumed, by you or by a worker\n"
    )
    return 0
