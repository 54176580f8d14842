"""Crash harness: kill a run at every barrier of its journal and resume it in another interpreter.

The run is a `Killable`, made by a class or function of a module, so that other processes can make it too. Two
interpreters with different hash seeds serve the harness: each forks one process for each job, which is fast. The first
runs and kills, the second resumes; nothing of the run has happened in the second, so a resumed run has its journal alone.
The model calls and tool executions that really happen are logged in a file beside the journal, flushed before the
process continues.
"""

import asyncio
import atexit
import contextlib
import functools
import importlib
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, get_args

from .._internal import dataclasses
from .._kernel.durability.replay import Replay
from ..engine import LoopEngine
from ..errors import ConfigError, UnknownRun
from ..events.effects import (
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    ToolFinished,
    ToolStarted,
)
from ..events.entry import Entry
from ..journals.base import Journal
from ..runtime import Runtime
from ..tools.base import ToolContext
from .assertions import assert_equal, assert_true
from .killing_journal import KillingJournal, When
from .scripted import Script, ScriptedProvider
from .warm_up import import_shared, keep_loaded, warm_up

RUN = "the-run"
ANSWERED = (ModelReplied, ModelFailed, LimitHit)
WITNESS = "LOOPWRIGHT_WITNESS"
"""Environment variable: the file in which a process logs its real model calls and tool executions."""


class Killable(Protocol):
    """A run that one process can start and another can resume.

    A method `warm_up()`, if it has one, is called once in the interpreter whose processes are killed, before it forks
    them: what it caches need not be made again in each. It may run the program. The interpreter whose processes resume
    never calls it, and only makes the program: a resumed run must find nothing in memory that a run left there.
    """

    task: str

    def journal(self, folder: Path) -> Journal:
        """Return the journal in a directory of this run alone."""
        ...

    def runtime(self, journal: Journal) -> Runtime:
        """Return the engine's runtime: a model made with `witnessed`, tools that call `witness`."""
        ...

    def engine(self, runtime: Runtime) -> LoopEngine:
        """Return the engine."""
        ...


@dataclasses.dataclass(frozen=True)
class Killed:
    """A run that was killed at a barrier and resumed: its directory, the barrier, and the side of it."""

    folder: Path
    barrier: int
    when: When


@dataclasses.dataclass(frozen=True)
class RunReport:
    """The report of a process on a run that it finished."""

    answer: str | None
    verified: bool
    llm_calls: int
    tool_calls: int

    def without_counts(self) -> "RunReport":
        """Return the report without what it says of how many calls were made."""
        return dataclasses.replace(self, llm_calls=0, tool_calls=0)


# --- the log of what really happens ---


def witness(ctx: ToolContext[Any]) -> None:
    """Log that a tool really runs; call it first in the tool. Does nothing outside the harness."""
    _log(f"tool {ctx.key} {ctx.idempotency_key}")


def witnessed(script: Script | Callable[..., Any]) -> ScriptedProvider:
    """Return a scripted provider that logs each call that reaches it; the script is a function of the request."""
    if not callable(script):
        raise ConfigError(
            "witnessed: needs a function of the request, got a list; a list starts again in every process"
        )

    def answer(request: Any) -> Any:
        _log("model")
        return script(request)

    return ScriptedProvider(answer)


def _log(line: str) -> None:
    path = os.environ.get(WITNESS)
    if path is None:
        return
    with open(path, "a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


# --- the process that dies ---


async def _work(program: Killable, folder: Path, barrier: int, when: When) -> RunReport:
    """Resume the run if the journal has it, else start it."""
    journal = KillingJournal(program.journal(folder), barrier, when)
    async with program.runtime(journal) as runtime:
        engine = program.engine(runtime)
        try:
            result = await engine.resume(RUN)
        except UnknownRun:
            result = await engine.run(program.task, run_id=RUN)
        result.raise_for_status()
        await _follow_up(runtime)
        verified = journal.verify(RUN, result.head_hash).ok
        await journal.close()
        return RunReport(result.answer, verified, result.llm_calls, result.tool_calls)


async def _follow_up(runtime: Runtime) -> None:
    """Do the follow-ups of the run, those whose process died too."""
    await runtime.drain()
    for listed in await runtime.due():
        (await runtime.resume(listed.info.run_id)).raise_for_status()


def _work_in_fork(job: dict[str, Any], descriptor: int) -> None:
    """Do a job in this process, report it or its traceback and what it imported, and exit."""
    known = set(sys.modules)
    folder = Path(job["folder"])
    os.environ[WITNESS] = str(folder / "witness")
    try:
        work = _work(make_program(job), folder, job["barrier"], job["when"])
        report: object = dataclasses.asdict(asyncio.run(work))
    except BaseException:  # noqa: BLE001 - the parent reports it in the test
        report = traceback.format_exc()
    with contextlib.suppress(BrokenPipeError):  # the interpreter was given up meanwhile
        imported = sorted(sys.modules.keys() - known)
        os.write(descriptor, json.dumps([report, imported]).encode())
    os._exit(0)


def make_program(job: dict[str, Any]) -> Killable:
    """Make the program of a job, from its module or, if it cannot be imported by name, from its file."""
    module, file = job["module"], job["file"]
    try:
        loaded = importlib.import_module(module)
    except ImportError:
        loaded = None
    if loaded is None or not Path(loaded.__file__ or "").samefile(file):
        spec = importlib.util.spec_from_file_location(module, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} cannot be loaded as a module")
        loaded = sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    make = functools.reduce(getattr, job["name"].split("."), cast("Any", loaded))
    program: Killable = make(*job["arguments"])
    return program


def serve() -> None:
    """Do the jobs that standard input names, one line of JSON each, in one fork each, in sequence.

    The reply is a line with how the fork ended (a negative signal, or 0) and its report.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is not a reply
    prepared: set[tuple[str, ...]] = set()
    warm_up()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            _prepare(job, prepared)
        except Exception:  # noqa: BLE001 - the parent reports it in the test
            print(json.dumps([1, traceback.format_exc()]), file=replies, flush=True)
            continue
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _work_in_fork(job, writing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        report, imported = json.loads(text) if text else (None, ())
        reply = json.dumps([os.waitstatus_to_exitcode(status), report])
        print(reply, file=replies, flush=True)
        import_shared(imported)


def _prepare(job: dict[str, Any], prepared: set[tuple[str, ...]]) -> None:
    """Import the program of a job once for all forks, and warm it up if it can and may; raise what its warm-up raises."""
    name = (job["module"], job["file"], job["name"], *job["arguments"])
    if name in prepared:
        return
    try:
        program = make_program(job)
    except Exception:  # noqa: BLE001 - the fork raises it again and reports it
        return
    warm_up_program = getattr(program, "warm_up", None)
    if job["may_warm_up"] and warm_up_program is not None:
        warm_up_program()
    prepared.add(name)
    keep_loaded()


# --- the process that kills and checks ---


def build_job(
    make: Callable[..., Any], arguments: Sequence[str], folder: Path, **options: object
) -> dict[str, Any]:
    """Return a job by which another process makes the program."""
    return {
        "module": make.__module__,
        "file": sys.modules[make.__module__].__file__,
        "name": make.__qualname__,
        "arguments": list(arguments),
        "folder": str(folder),
        **options,
    }


class Interpreter:
    """A fresh interpreter with a given hash seed, which forks a process for each job."""

    def __init__(self, seed: int, path: tuple[str, ...]) -> None:
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONHASHSEED": str(seed),
        }
        self._process: subprocess.Popen[str] | None = None

    def work(self, job: dict[str, Any]) -> tuple[int, Any]:
        """Do a job in one process; return how it ended and its report."""
        process, self._process = self._process or self._start(), None
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the interpreter has no pipes")
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            status, report = json.loads(process.stdout.readline())
        except BaseException:  # its reply, such as after a test's time limit, would be taken for that of the next job
            process.kill()
            raise
        self._process = process
        return status, report

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", __package__ or "loopwright.testing"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(  # noqa: S603 - this interpreter, on this package
            command, stdin=pipe, stdout=pipe, text=True, env=self._environment
        )
        atexit.register(process.communicate)
        return process


@functools.cache
def _get_interpreter(seed: int, path: tuple[str, ...]) -> Interpreter:
    return Interpreter(seed, path)


def kill_everywhere(
    make: Callable[..., Killable],
    *arguments: str,
    folder: Path,
    every: int = 1,
    racing: bool = False,
) -> Iterator[Killed]:
    """Kill a run with SIGKILL before and after every barrier, each time in a new directory, and resume it.

    Yields each killed run after it was resumed in an interpreter with another `PYTHONHASHSEED`. Raises
    `AssertionError` unless the resumed run has the answer of a run that was not killed, repeats no recorded effect, and
    writes nothing twice: a model call whose reply is recorded is not made again, and at most those in flight are.

    Args:
        make: a class or function of a module, called with `arguments` (texts) to make the run.
        folder: an empty directory; each kill gets one inside.
        every: kill at each barrier of that distance alone, to save time: 1, 4, 7 … for 3.
        racing: how many calls the run makes depends on which of its branches is faster, so its counts are compared with
            its journal and not with those of the run that was not killed.
    """
    if "<locals>" in make.__qualname__:
        raise ConfigError(
            f"make: {make.__qualname__} is inside a function, where no other process finds it; "
            "move it to the module"
        )
    harness = _Harness(make, arguments, folder, racing)
    expected = harness.run_without_kill()
    for when in get_args(When):
        for barrier in itertools.count(1, every):
            killed = harness.kill(barrier, when, expected)
            if killed is None:
                break
            harness.resume(killed, expected)
            yield killed


class _Harness:
    """Kills one program in the processes of one interpreter, and resumes it in those of another that never ran it."""

    def __init__(
        self,
        make: Callable[..., Killable],
        arguments: Sequence[str],
        folder: Path,
        racing: bool,
    ) -> None:
        path = tuple(entry for entry in sys.path if entry)
        self._first, self._second = _get_interpreter(1, path), _get_interpreter(2, path)
        self._make, self._arguments, self._folder = make, arguments, folder
        self._racing = racing

    @functools.cached_property
    def _program(self) -> Killable:
        # The child makes it first: a program that cannot be made fails there, with its traceback.
        return self._make(*self._arguments)

    def _work(
        self, interpreter: Interpreter, folder: Path, barrier: int, when: When
    ) -> tuple[int, Any]:
        # What a warm-up leaves in memory would hide from a resumed run what replay does not rebuild.
        may_warm_up = interpreter is self._first
        options = {"barrier": barrier, "when": when, "may_warm_up": may_warm_up}
        job = build_job(self._make, self._arguments, folder, **options)
        return interpreter.work(job)

    def run_without_kill(self) -> RunReport:
        """Run the program to its end and return its report."""
        folder = _make_directory(self._folder / "whole")
        report = _read_report(*self._work(self._first, folder, 0, "after"))
        assert_true(report.verified, "the journal of a whole run does not verify")
        return report

    def kill(self, barrier: int, when: When, expected: RunReport) -> Killed | None:
        """Run the program and kill it at a barrier; `None` if it ends before that barrier."""
        folder = _make_directory(self._folder / f"{when}-{barrier}")
        status, report = self._work(self._first, folder, barrier, when)
        if status == 0:
            found = _read_report(status, report)
            if self._racing:
                found, expected = found.without_counts(), expected.without_counts()
            assert_equal(found, expected, "the same run gave something else")
            return None
        task = f"the process that was to be killed {when} barrier {barrier}"
        assert_equal(status, -signal.SIGKILL, task)
        return Killed(folder, barrier, when)

    def resume(self, killed: Killed, expected: RunReport) -> None:
        """Resume a killed run in the other interpreter and check what it did."""
        before = _Snapshot.of(self._program, killed.folder)
        ended = self._work(self._second, killed.folder, 0, killed.when)
        resumed = _read_report(*ended)
        after = _Snapshot.of(self._program, killed.folder)
        when = f"killed {killed.when} barrier {killed.barrier}"
        _check_counts(after, resumed, when)
        # The model reads of an unknown outcome, and may then need another number of calls.
        if self._racing or before.is_outcome_unknown:
            resumed, expected = resumed.without_counts(), expected.without_counts()
        assert_equal(resumed, expected, when)
        _check_effects(before, after, when)


def _make_directory(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _read_report(status: int, report: Any) -> RunReport:
    if status != 0 or not isinstance(report, dict):
        raise AssertionError(f"the process ended with {status}:\n{report}")
    return RunReport(**cast("dict[str, Any]", report))


@dataclasses.dataclass(frozen=True)
class _Snapshot:
    """The entries of a run and of its follow-ups, the number of real model calls, and the run's real tool executions."""

    entries: list[Entry]
    followed: list[Entry]
    models: int
    executions: Counter[str]
    idempotency: set[tuple[str, str]]

    @classmethod
    def of(cls, program: Killable, folder: Path) -> "_Snapshot":
        """Take the snapshot of the run in a directory."""
        journal = program.journal(folder)
        read = {info.run_id: journal.read(info.run_id) for info in journal.runs()}
        entries = read.pop(RUN, [])
        followed = [entry for others in read.values() for entry in others]
        asyncio.run(journal.close())
        path = folder / "witness"
        text = path.read_text() if path.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        tools = [(line[1], line[2]) for line in lines if line[0] == "tool"]
        models = sum(line == ["model"] for line in lines)
        return cls(
            entries, followed, models, Counter(key for key, _ in tools), set(tools)
        )

    def count(self, kind: type) -> int:
        """Return how many entries have an event of a kind."""
        entries = [*self.entries, *self.followed]
        return sum(isinstance(entry.event, kind) for entry in entries)

    def find_started(self, *effects: str) -> set[str]:
        """Return the keys of the started calls with one of these effects."""
        return {
            entry.key
            for entry in self.entries
            if isinstance(entry.event, ToolStarted) and entry.event.effect in effects
        }

    def find_finished(self) -> set[str]:
        """Return the keys of the finished calls."""
        return self.find(ToolFinished)

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether a call that is not repeated had begun and had not ended."""
        return not self.find_started("write", "destructive") <= self.find_finished()

    def find(self, *kinds: type, since: int = 0) -> set[str]:
        """Return the keys of the run's events of some kinds, `since` so many entries."""
        found = self.entries[since:]
        return {entry.key for entry in found if isinstance(entry.event, kinds)}


def _check_counts(after: _Snapshot, resumed: RunReport, when: str) -> None:
    """Check that the resumed run counts the calls that are recorded, each once."""
    spent = Replay(after.entries).totals
    calls = spent.llm_calls, spent.tool_calls
    counted = resumed.llm_calls, resumed.tool_calls
    assert_equal(counted, calls, f"{when}: calls of models and tools")


def _check_effects(before: _Snapshot, after: _Snapshot, when: str) -> None:
    """Check that no recorded effect was repeated and nothing was written twice."""
    unsafe = before.find_started("write", "destructive")
    for key in before.find_finished() | unsafe:
        executions = before.executions[key]
        assert_equal(after.executions[key], executions, f"{when}: {key} ran again")
    assert_true(
        all(after.executions[key] <= 1 for key in after.find_started("write")),
        f"{when}: something was written twice: {after.executions}",
    )
    asked = after.find(ModelRequested, since=len(before.entries))
    again = asked & before.find(*ANSWERED)
    assert_equal(sorted(again), [], f"{when}: model calls that had ended, made again")
    requests = before.count(ModelRequested)
    assert_true(
        before.models <= requests,
        f"{when}: {before.models} model calls were made, {requests} are recorded",
    )
    models = after.models - before.models
    replies = after.count(ModelReplied) - before.count(ModelReplied)
    # A call that was in flight when its branch was cut off has no outcome.
    in_flight = len(after.find(ModelRequested) - after.find(*ANSWERED))
    assert_true(
        replies <= models <= replies + in_flight,
        f"{when}: {models} model calls of the resumed run, {replies} replies, {in_flight} in flight",
    )
    keys = {(key, f"{RUN}:{key}") for key in after.executions}
    assert_equal(after.idempotency, keys, f"{when}: idempotency keys")
