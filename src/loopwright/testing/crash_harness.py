"""Real crashes: a run is killed at every barrier of its journal, and another interpreter goes on with it.

Whoever is tried gives a `Killable`, made by a class or a function of a module, so that other processes can make it too.
Two interpreters that hash differently serve: each forks one process for each piece of work, which is quick. What the
model and the tools really do is witnessed in a file beside the journal, flushed before the process goes on.
"""

import asyncio
import atexit
import contextlib
import dataclasses
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
from typing import Any, Literal, Protocol, TypeAlias, cast

from ..engine import LoopEngine
from ..errors import ConfigError, UnknownRun
from ..events.effects import ModelReplied, ModelRequested, ToolFinished, ToolStarted
from ..events.entry import Entry
from ..journals.base import Claim, Command, Journal, RunHeader, RunInfo, Verification
from ..messages import JsonObject
from ..runtime import Runtime
from ..tools.base import ToolContext
from .assertions import holds, same
from .scripted import Script, ScriptedProvider

When: TypeAlias = Literal["before", "after"]

RUN = "the-run"
WITNESS = (
    "LOOPWRIGHT_WITNESS"  # names the file in which a process notes what it really does
)


class Killable(Protocol):
    """A run that one process can begin and another go on with."""

    task: str

    def journal(self, folder: Path) -> Journal:
        """The journal, in a folder that is the run's own."""
        ...

    def runtime(self, journal: Journal) -> Runtime:
        """What the engine runs on: a model made with `witnessed`, tools that call `witness`."""
        ...

    def engine(self, runtime: Runtime) -> LoopEngine:
        """The engine."""
        ...


@dataclasses.dataclass(frozen=True)
class Killed:
    """A run that was killed at a barrier and resumed: its folder, and at which barrier, before or after it."""

    folder: Path
    barrier: int
    when: When


@dataclasses.dataclass(frozen=True)
class Ending:
    """What a process tells of a run that it brought to its end."""

    answer: str | None
    verified: bool
    llm_calls: int
    tool_calls: int


# --- what a run does, witnessed ---


def witness(ctx: ToolContext[Any]) -> None:
    """Note in a tool that it really runs, before it does anything; nothing where no run is being killed."""
    _note(f"tool {ctx.key} {ctx.idempotency_key}")


def witnessed(script: Script | Callable[..., Any]) -> ScriptedProvider:
    """A scripted provider that notes each call that really reaches it; use a function of the request."""
    if not callable(script):
        raise ConfigError(
            "witnessed: pass a function of the request: a list begins anew in every process"
        )

    def answer(request: Any) -> Any:
        _note("model")
        return script(request)

    return ScriptedProvider(answer)


def _note(line: str) -> None:
    path = os.environ.get(WITNESS)
    if path is None:
        return
    with open(path, "a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


# --- the process that dies ---


class Mortal:
    """A journal whose process dies before or after a chosen barrier; 0 is none."""

    def __init__(self, journal: Journal, barrier: int, when: When) -> None:
        self._journal, self._left, self._when = journal, barrier, when

    async def barrier(self, claim: Claim) -> None:
        """Die, if it is the one."""
        self._left -= 1
        doomed = self._left == 0
        if doomed and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await self._journal.barrier(claim)
        if doomed:
            os.kill(os.getpid(), signal.SIGKILL)

    def create(self, header: RunHeader) -> Claim:
        """The claim to a new run."""
        return self._journal.create(header)

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Take a run up."""
        return await self._journal.claim(
            run_id, owner, take_over=take_over, lease=lease
        )

    async def renew(self, claim: Claim, lease: float) -> None:
        """Put the end of a lease off."""
        await self._journal.renew(claim, lease)

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Hand over entries."""
        self._journal.append(claim, entries, status=status)

    def read(self, run_id: str) -> list[Entry]:
        """All entries of a run."""
        return self._journal.read(run_id)

    def runs(self, *, unfinished: bool = False) -> list[RunInfo]:
        """All runs, or those that have not ended."""
        return self._journal.runs(unfinished=unfinished)

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain."""
        return self._journal.verify(run_id, head)

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox."""
        return self._journal.send(run_id, kind, body)

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """The commands to a run."""
        return self._journal.inbox(run_id, after)

    def inbox_mark(self) -> object:
        """What changes with the inbox."""
        return self._journal.inbox_mark()

    async def close(self) -> None:
        """Let go of it."""
        await self._journal.close()


async def _work(program: Killable, folder: Path, barrier: int, when: When) -> Ending:
    """Begin the run, or go on with it if the journal has it."""
    journal = Mortal(program.journal(folder), barrier, when)
    async with program.runtime(journal) as runtime:
        engine = program.engine(runtime)
        try:
            result = await engine.resume(RUN)
        except UnknownRun:
            result = await engine.run(program.task, run_id=RUN)
        result.raise_for_status()
        verified = journal.verify(RUN, result.head_hash).ok
        await journal.close()
        return Ending(result.answer, verified, result.llm_calls, result.tool_calls)


def _child(job: dict[str, Any], answers: int) -> None:
    """One process's work; what it comes to goes to `answers`, an error as a traceback."""
    folder = Path(job["folder"])
    os.environ[WITNESS] = str(folder / "witness")
    try:
        program = _made(job)
        said: object = dataclasses.asdict(
            asyncio.run(_work(program, folder, job["barrier"], job["when"]))
        )
    except BaseException:  # noqa: BLE001 - the parent tells the test
        said = traceback.format_exc()
    os.write(answers, json.dumps(said).encode())
    os._exit(0)


def _made(job: dict[str, Any]) -> Killable:
    """Make the program, from its module or, where that cannot be imported by name, from its file."""
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
    made: Killable = functools.reduce(
        getattr, job["name"].split("."), cast("Any", loaded)
    )(*job["arguments"])
    return made


def serve() -> None:
    """Do each piece of work that standard input names, a line of JSON each, in a fork of its own, one after the other.

    The answer is a line too: how the fork ended (a negative signal, or 0), and what it told.
    """
    answers_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is no answer
    for line in sys.stdin:
        job = json.loads(line)
        with contextlib.suppress(Exception):  # the fork meets it again, and tells of it
            _made(job)  # imported once, for all forks
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _child(job, writing)
        os.close(writing)
        with os.fdopen(reading) as told:
            said = told.read()
        _, status = os.waitpid(pid, 0)
        print(
            json.dumps([os.waitstatus_to_exitcode(status), said]),
            file=answers_to,
            flush=True,
        )


# --- the process that watches ---


class Interpreter:
    """A fresh interpreter with a hash seed of its own, which forks a process for each piece of work."""

    def __init__(self, seed: int, path: tuple[str, ...]) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONHASHSEED": str(seed),
        }
        command = [sys.executable, "-m", __package__ or "loopwright.testing"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, on this package
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )
        atexit.register(self._process.communicate)

    def work(
        self, make: Callable[..., Killable], arguments: Sequence[str], killed: Killed
    ) -> tuple[int, Any]:
        """One process's work on a run: how it ended, and what it told."""
        module = sys.modules[make.__module__]
        job = {
            "module": make.__module__,
            "file": module.__file__,
            "name": make.__qualname__,
            "arguments": list(arguments),
            "folder": str(killed.folder),
            "barrier": killed.barrier,
            "when": killed.when,
        }
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the interpreter has no pipes")
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        status, said = json.loads(self._process.stdout.readline())
        return status, json.loads(said) if said else None


@functools.cache
def _interpreter(seed: int, path: tuple[str, ...]) -> Interpreter:
    return Interpreter(seed, path)


def kill_everywhere(
    make: Callable[..., Killable], *arguments: str, folder: Path
) -> Iterator[Killed]:
    """Kill a run with SIGKILL before and after every barrier, each time in a new folder, and resume it elsewhere.

    Gives each killed run after it was resumed, in an interpreter with another `PYTHONHASHSEED`. Raises `AssertionError`
    unless the resumed run has the answer of one that nobody killed, repeats no recorded effect, and writes nothing
    twice.

    Args:
        make: a class or function of a module, called with `arguments` (texts) to make the run.
        folder: an empty folder; each kill has one of its own inside.
    """
    if "<locals>" in make.__qualname__:
        raise ConfigError(
            f"make: {make.__qualname__} is inside a function, where no other process finds it"
        )
    path = tuple(part for part in sys.path if part)
    first, second = _interpreter(1, path), _interpreter(2, path)
    whole = Killed(_new(folder / "whole"), 0, "after")
    expected = _ended(*first.work(make, arguments, whole))
    holds(expected.verified, "the journal of a whole run does not verify")
    program = make(*arguments)
    for when in ("before", "after"):
        for barrier in itertools.count(1):
            killed = Killed(_new(folder / f"{when}-{barrier}"), barrier, when)
            status, said = first.work(make, arguments, killed)
            if status == 0:
                same(_ended(status, said), expected, "the same run gave something else")
                break
            same(
                status,
                -signal.SIGKILL,
                f"the process that was to be killed {when} barrier {barrier}",
            )
            before = _Seen.of(program, killed.folder)
            resumed = _ended(
                *second.work(make, arguments, dataclasses.replace(killed, barrier=0))
            )
            _check(
                before,
                _Seen.of(program, killed.folder),
                resumed,
                expected,
                f"killed {when} barrier {barrier}",
            )
            yield killed


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _ended(status: int, said: Any) -> Ending:
    if status != 0 or not isinstance(said, dict):
        raise AssertionError(f"the process ended with {status}:\n{said}")
    return Ending(**cast("dict[str, Any]", said))


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What there is of a run: its entries, the model calls that were really made, the tools that really ran."""

    entries: list[Entry]
    models: int
    ran: Counter[str]
    idempotency: set[tuple[str, str]]

    @classmethod
    def of(cls, program: Killable, folder: Path) -> "_Seen":
        journal = program.journal(folder)
        try:
            entries = journal.read(RUN)
        except UnknownRun:
            entries = []
        asyncio.run(journal.close())
        path = folder / "witness"
        lines = (
            [line.split() for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )
        tools = [(line[1], line[2]) for line in lines if line[0] == "tool"]
        return cls(
            entries,
            sum(line == ["model"] for line in lines),
            Counter(key for key, _ in tools),
            set(tools),
        )


def _check(
    before: _Seen, after: _Seen, resumed: Ending, expected: Ending, when: str
) -> None:
    """The same answer, nothing recorded repeated, nothing written twice."""
    finished = {e.key for e in before.entries if isinstance(e.event, ToolFinished)}
    started = {
        e.key: e.event for e in before.entries if isinstance(e.event, ToolStarted)
    }
    held = {
        key
        for key, event in started.items()
        if event.effect in ("write", "destructive")
    }
    if held - finished:  # the model is told that nobody knows, and may go another way
        same((resumed.answer, resumed.verified), (expected.answer, True), when)
    else:
        same(resumed, expected, when)
    for key in finished | held:
        same(after.ran[key], before.ran[key], f"{when}: {key} ran again")
    writes = [
        e.key
        for e in after.entries
        if isinstance(e.event, ToolStarted) and e.event.effect == "write"
    ]
    holds(
        all(after.ran[key] <= 1 for key in writes),
        f"{when}: something was written twice: {after.ran}",
    )
    asked = sum(isinstance(e.event, ModelRequested) for e in before.entries)
    holds(
        before.models <= asked,
        f"{when}: {before.models} model calls were made, {asked} are recorded",
    )
    replies = [
        sum(isinstance(e.event, ModelReplied) for e in seen.entries)
        for seen in (before, after)
    ]
    same(
        after.models - before.models,
        replies[1] - replies[0],
        f"{when}: model calls of the resumed run",
    )
    same(
        after.idempotency,
        {(key, f"{RUN}:{key}") for key in after.ran},
        f"{when}: idempotency keys",
    )
