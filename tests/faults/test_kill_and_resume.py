"""kill -9 at every barrier: a new process goes on to the same answer and repeats nothing that is recorded."""

import asyncio
import dataclasses
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from loopwright import ConfigError, Journal, LoopEngine, Run, Runtime, ToolContext, tool
from loopwright.events import Entry
from loopwright.journals import Claim, SQLiteJournal
from loopwright.knowledge import SQLiteKnowledge
from loopwright.testing import ScriptedProvider, call, kill_everywhere
from loopwright.testing.crash_harness import witness, witnessed
from programs import (
    LOOPS,
    OTHER_PROGRAMS,
    PROGRAMS,
    Program,
    look,
    program,
    put,
    run_once,
    send,
)
from third_party_package import install_third_party


@pytest.fixture(scope="module", autouse=True)
def _strangers() -> Iterator[None]:
    """The processes that are killed find a stranger's engine, which was installed from its own pyproject."""
    sys.path.insert(0, str(install_third_party()))
    yield
    sys.path.remove(str(install_third_party()))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*PROGRAMS, *OTHER_PROGRAMS])
def test_a_run_killed_at_any_barrier_resumes_in_a_new_process_to_the_same_answer(
    name: str, tmp_path: Path
) -> None:
    barriers = 0
    for killed in kill_everywhere(program, name, folder=tmp_path):
        barriers += 1
        lessons = killed.folder / "witness.lessons"
        assert (
            not lessons.exists() or len(lessons.read_text().splitlines()) <= 1
        )  # one reflection, kept once
        memory = killed.folder / "witness.memory"
        if memory.exists():
            assert asyncio.run(_remembered(memory)) == [
                "What is blue?: blue",
                "sky is blue",
            ]

        goals = killed.folder / "witness.goals"
        if goals.exists():  # each output once; that of a call may be unknown
            kept = asyncio.run(_remembered(goals, "put send look"))
            assert kept == [one for one in KEPT_OF_GOALS if one in kept]
            assert len(kept) >= len(KEPT_OF_GOALS) - 1

    assert barriers >= 2 * 4


KEPT_OF_GOALS = ["What is blue?: blue", "look: look it is blue", "put: put it put", "send: send it sent"]  # fmt: skip


async def _remembered(path: Path, words: str = "") -> list[str]:
    """All that a store holds, in the alphabet's order."""
    store = SQLiteKnowledge(path, shared=True)
    query = f"blue sky {words}"
    found = await store.search(query, threshold=0.0, limit=100)
    await store.close()
    return sorted(item.text for item in found)


# --- the check notices what it is for ---


class Lazy(SQLiteJournal):
    """Says that all is durable, and writes it at the end of the run."""

    ended = False

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Hand over."""
        super().append(claim, entries, status=status)
        self.ended = status == "completed"

    async def barrier(self, claim: Claim) -> None:
        """Wait for nothing but that."""
        if self.ended:
            await super().barrier(claim)


class HashDependent(LoopEngine):
    """Goes through a set, whose order is another in another process."""

    name = "hash-dependent"

    async def solve(self, run: Run) -> str:
        """Ask in the order of a set."""
        said = [
            await run.ask(f"What of {what}?") for what in {"sea", "sky", "sun", "moon"}
        ]
        return said[-1]


class Counting(LoopEngine):
    """Keeps beside the journal what belongs into it."""

    name = "counting"
    count: Callable[[], int]

    async def solve(self, run: Run) -> str:
        """Tell how often it was called."""
        await run.ask(run.conversation)
        return f"blue {self.count()}"


class Forgetful(LoopEngine):
    """Answers with what a tool left in the memory of the process, where replay does not put it back."""

    name = "forgetful"

    async def solve(self, run: Run) -> str:
        """Send, ask, and tell what was sent."""
        await run.call(call("send", what="card"))
        await run.ask(run.conversation)
        return f"blue {' '.join(sorted(SENT)) or 'nothing'}"


SENT = set[str]()


@tool(effect="write", name="send")
async def remembers(ctx: ToolContext[None], what: str) -> str:
    """Send, and keep in memory what was sent."""
    witness(ctx)
    SENT.add(what)
    return f"{what} sent"


@tool(effect="write", name="send")
async def sends_twice(ctx: ToolContext[None], what: str) -> str:
    """Send, and send again."""
    witness(ctx)
    witness(ctx)
    return f"{what} sent"


@tool(effect="write", name="send")
async def sends_under_another_key(ctx: ToolContext[None], what: str) -> str:
    """Send as if it were new."""
    witness(dataclasses.replace(ctx, idempotency_key="another"))
    return f"{what} sent"


SENDERS = {
    "sends twice": sends_twice,
    "own key": sends_under_another_key,
    "process memory": remembers,
}
ENGINES: dict[str, type[LoopEngine]] = {
    "hash": HashDependent,
    "process memory": Forgetful,
}


class Faulty:
    """A program in which one thing is wrong."""

    task = "What is blue?"

    def __init__(self, fault: str) -> None:
        self._fault, self._folder = fault, Path()

    def journal(self, folder: Path) -> Journal:
        self._folder = folder
        return (Lazy if self._fault == "lazy" else SQLiteJournal)(folder / "runs.db")

    def runtime(self, journal: Journal) -> Runtime:
        tools = [look, put, SENDERS.get(self._fault, send)]
        model = (
            ScriptedProvider(LOOPS)
            if self._fault == "unwitnessed"
            else witnessed(self._says)
        )
        return Runtime(model, tools=tools, journal=journal)

    def engine(self, runtime: Runtime) -> LoopEngine:
        if self._fault == "acts past the door" and (self._folder / "witness").exists():
            witness(ToolContext("the-run", "0#0", "the-run:0#0", None, None))
        if self._fault == "long":
            (self._folder / "begun").touch()
            while not (self._folder / "go").exists():
                time.sleep(0.01)
            raise ValueError("of the job before")
        if self._fault in ENGINES:
            return ENGINES[self._fault](runtime)
        return (
            Counting(runtime, count=self._count)
            if self._fault == "counting"
            else runtime.engine("react")
        )

    def _says(self, request: Any) -> Any:
        simple = (*ENGINES, "counting")
        return "blue" if self._fault in simple else LOOPS(request)

    def warm_up(self) -> None:
        """Run it as programs do that warm themselves up, which must hide nothing."""
        if self._fault == "process memory":
            run_once(self)
        if self._fault == "warm-up":
            raise RuntimeError("cannot be warmed up")

    def _count(self) -> int:
        path = self._folder / "count"
        count = json.loads(path.read_text()) + 1 if path.exists() else 1
        path.write_text(json.dumps(count))
        return count


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("hash", "ReplayDivergence"),
        ("counting", "found .*answer='blue 2'"),
        ("process memory", "found .*answer='blue nothing'"),
        ("sends twice", "something was written twice"),
        ("own key", "idempotency keys"),
        ("acts past the door", "0#0 ran again"),
        ("unwitnessed", "model calls of the resumed run"),
        ("lazy", "model calls were made, 0 are recorded"),
    ],
)
def test_the_check_notices_a_run_that_does_not_survive(
    fault: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=told):
        list(kill_everywhere(Faulty, fault, folder=tmp_path))


def test_a_program_that_no_other_process_could_make_is_refused(tmp_path: Path) -> None:
    def local() -> Program:
        return program("react")

    with pytest.raises(ConfigError, match=r"<locals>\.local is inside a function"):
        list(kill_everywhere(local, folder=tmp_path))
    with pytest.raises(ConfigError, match="witnessed: needs a function"):
        witnessed(["blue"])


def test_a_program_that_fails_shows_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="KeyError: 'nothing'"):
        list(kill_everywhere(program, "nothing", folder=tmp_path))
    with pytest.raises(AssertionError, match="RuntimeError: cannot be warmed up"):
        list(kill_everywhere(Faulty, "warm-up", folder=tmp_path / "warm-up"))


class TooLong(Exception):
    """A job was interrupted, as by the time limit of a test."""


def test_a_job_that_was_interrupted_leaves_no_reply_to_the_next_one(
    tmp_path: Path,
) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise TooLong

    folder = tmp_path / "long" / "whole"

    def wait_and_signal() -> None:
        while not (folder / "begun").exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    waiting = threading.Thread(target=wait_and_signal)
    waiting.start()
    try:
        (tmp_path / "long").mkdir()
        with pytest.raises(TooLong):
            next(kill_everywhere(Faulty, "long", folder=tmp_path / "long"))
    finally:
        waiting.join()
        signal.signal(signal.SIGUSR1, before)
        (folder / "go").touch()  # it ends, and would reply
    (tmp_path / "next").mkdir()
    killed = next(kill_everywhere(program, "tiny", folder=tmp_path / "next"))

    assert (killed.barrier, killed.when) == (1, "before")
