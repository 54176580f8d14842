"""Where runs are killed: interpreters that hash differently, the model that they ask, and one life after another."""

import contextlib
import dataclasses
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import kill_child
from kill_checks import Story
from kill_model import ModelServer
from kill_notes import Death, Ending, Life, Scenario
from kill_programs import KILL_PROGRAMS
from loopwright.errors import UnknownRun
from loopwright.journals import SQLiteJournal

UNHARMED = Death()
SEEDS = 1, 2


@dataclasses.dataclass(frozen=True)
class Lived:
    """How one life ended, after how many seconds, and what it told of its runs if it came to that."""

    status: int
    seconds: float
    endings: list[Ending] | None


class Interpreter:
    """A fresh interpreter with a hash seed of its own, which forks a process for each life."""

    def __init__(self, seed: int, *more: Path) -> None:
        path = os.pathsep.join(str(part) for part in (*more, *sys.path) if part)
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(seed)}
        pipe = subprocess.PIPE
        command = [sys.executable, kill_child.__file__]
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()

    def lives(self, life: Life) -> Lived:
        """One life, from its fork to its end."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the interpreter has no pipes")
        self._process.stdin.write(life.to_json() + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError(
                f"{life.folder.name}, life {life.number}: the interpreter that forks has ended"
            )
        status, seconds, said = json.loads(answer)
        if status not in (0, -signal.SIGKILL) or isinstance(said, str):
            raise AssertionError(
                f"{life.folder.name}, life {life.number}: ended with {status}:\n{said}"
            )
        return Lived(status, seconds, said if status == 0 else None)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to happen: a scenario, and when its processes die; the one after the last death lives to the end.

    With `look`, a third process looks into the journal between two lives, so that it recovers the file and not the one
    that goes on. `pause` are seconds between two lives.
    """

    scenario: Scenario
    deaths: Sequence[Death] = ()
    look: bool = False
    pause: float = 0.0


class Stage:
    """A model server, and interpreters of two hash seeds, as a context, with a folder for each story.

    Args:
        folder: an empty folder.
        more: folders that the interpreters import from too.
        lanes: how many lives may go on at the same time.
    """

    def __init__(self, folder: Path, *more: Path, lanes: int = 2) -> None:
        self._folder, self._more, self._lanes = folder, more, lanes
        self._numbers = itertools.count(1)
        self._stack = contextlib.ExitStack()
        self._free = tuple(queue.SimpleQueue[Interpreter]() for _ in SEEDS)
        self._server = ModelServer(
            {name: program.model for name, program in KILL_PROGRAMS.items()}
        )

    def __enter__(self) -> Self:
        self._stack.enter_context(self._server)
        for seed, free in zip(SEEDS, self._free, strict=True):
            for _ in range(self._lanes):
                free.put(
                    self._stack.enter_context(
                        contextlib.closing(Interpreter(seed, *self._more))
                    )
                )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def tell_all(
        self, plans: Iterable[Plan], *, max_concurrency: int | None = None
    ) -> Iterator[Story]:
        """The stories of these plans, in order; as many at the same time as there are lanes, or `max_concurrency`."""
        with ThreadPoolExecutor(max_concurrency or self._lanes) as threads:
            yield from threads.map(self.tell, plans)

    def tell(self, plan: Plan) -> Story:
        """Live through deaths, each of another interpreter's process, and on to the end; fewer if it ends before."""
        folder = self._folder / f"story-{next(self._numbers)}"
        folder.mkdir()
        lived: list[Lived] = []
        for number, death in enumerate((*plan.deaths, UNHARMED)):
            if number and plan.look:
                _look(folder, plan.scenario)
            if number and plan.pause:
                time.sleep(plan.pause)
            lived.append(
                self._live(Life(plan.scenario, folder, self._server.url, number, death))
            )
            if lived[-1].status == 0:
                break
        asked = self._server.take(folder.name)
        statuses = [one.status for one in lived]
        return Story(
            plan.scenario,
            folder,
            statuses,
            lived[-1].seconds,
            lived[-1].endings or [],
            asked,
        )

    def _live(self, life: Life) -> Lived:
        free = self._free[life.number % len(SEEDS)]
        interpreter = free.get()
        try:
            return interpreter.lives(life)
        finally:
            free.put(interpreter)


def _look(folder: Path, scenario: Scenario) -> None:
    journal = SQLiteJournal(folder / "runs.db")
    for run in scenario.runs:
        with contextlib.suppress(UnknownRun):
            assert journal.verify(run).ok
