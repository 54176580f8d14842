"""A journal as this version writes it, kept for ever: `python tests/support/released_journals.py` adds it to the tests.

What stands here decides how the unfinished runs of all kept journals go on, so none of it may change: add runs instead.
"""

# ruff: noqa: ASYNC240 - this is a script

import asyncio
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from loopwright import (
    Limits,
    LoopEngine,
    ProviderError,
    ReActEngine,
    Request,
    Run,
    Runtime,
    Suspend,
    Tool,
    ToolContext,
    tool,
)
from loopwright._internal.version import __version__
from loopwright.errors import LoopwrightError
from loopwright.gates import Action, Approver
from loopwright.journals import RESUMABLE, SQLiteJournal
from loopwright.messages import Effect, ToolCall
from loopwright.testing import FakeClock, ScriptedProvider, call
from loopwright.tools import DeadLetter, Fallback

FOLDER = Path(__file__).parents[1] / "journals" / "released"
LARGE = "The sea is blue. " * 4000  # more than an entry keeps beside itself
SECONDS = 86_400.0
FOR_EVER = 1e11  # the clock of the inbox is the machine's

Line = str | ToolCall | list[ToolCall] | BaseException

TURNS: dict[str, Sequence[Line]] = {
    "What is blue?": (
        [call("look", what="sky"), call("send", what="card")],
        call("send", what="end"),
        "the sky",
    ),
    "Send a parcel.": (
        call("look", what="sky"),
        call("send", what="parcel"),
        call("look", what="sun"),
        "a parcel",
    ),
    "Burn a letter.": (
        [call("burn", what="letter"), call("look", what="sky")],
        "a letter",
    ),
    "Look at the sea.": (
        call("look", what="sea"),
        call("send", what="parcel"),
        "the sea",
    ),
    "Look for it.": (
        *([call("fail", what=f"{turn} {n}") for n in range(3)] for turn in range(2)),
        "nowhere",
    ),
    "It fails.": (ProviderError("gone"),),
    "Burn two letters.": (
        call("burn", what="letter"),
        call("look", what="sky"),
        "two letters",
        "and no third",
    ),
    "Look at what fails.": (
        [call("shaky", what="sky"), call("shaky", what="sun")],
        call("send", what="end"),
        "it went",
    ),
    "Book a trip.": (
        [call("book", what="hotel"), call("book", what="car")],
        ProviderError("gone"),
    ),
}


class Work:
    """The tools and the model of the runs; `ran` counts what was really done. A letter to `lost` never arrives."""

    def __init__(self, lost: str = "") -> None:
        self.ran: Counter[str] = Counter()
        self.sending = asyncio.Event()
        self._lost, self._busy = lost, 2

    def runtime(
        self,
        journal: SQLiteJournal,
        approver: Approver | Suspend | None = None,
        limits: Limits | None = None,
    ) -> Runtime:
        """What the runs work on."""
        tools = [
            self._tool("look", "read"),
            self._tool("send", "write"),
            self._tool("burn", "destructive"),
            fail,
        ]
        model, clock = ScriptedProvider(self._answer), FakeClock(wall=SECONDS)
        tools += [shaky, book]
        return Runtime(
            model,
            tools=tools,
            journal=journal,
            approver=approver,
            clock=clock,
            limits=limits,
        )

    def _tool(self, name: str, effect: Effect) -> Tool:
        @tool(name=name, effect=effect, max_output_chars=100_000)
        async def act(ctx: ToolContext[None], what: str) -> str:
            """Do it."""
            self.ran[ctx.key] += 1
            if name == "send" and what == self._lost:
                self.sending.set()
                await asyncio.Event().wait()
            return LARGE if what == "sea" else f"{what}: {name}"

        return act

    def _answer(self, request: Request) -> Line:
        messages = request.conversation.messages
        task = next(message.content for message in messages if message.role == "user")
        if task == "It is busy.":
            self._busy -= 1
            return (
                ProviderError("busy", retryable=True) if self._busy >= 0 else "it was"
            )
        return TURNS[task][sum(message.role == "assistant" for message in messages)]


@tool(effect="read")
async def fail(what: str) -> str:
    """Fail."""
    raise RuntimeError(f"{what} is nowhere")


@tool(effect="read", recovery=(Fallback("look"), DeadLetter()))
async def shaky(what: str) -> str:
    """Look, if it works."""
    raise RuntimeError(f"{what} is too far")


async def unbook(ctx: ToolContext[None], result: str) -> None:
    """Give it back."""


@tool(effect="write", label="sensitive", compensate=unbook)
async def book(what: str) -> str:
    """Book it."""
    return f"{what} of Ada"


class Everything(LoopEngine):
    """An engine that uses what the strategies do not."""

    name = "everything"

    async def solve(self, run: Run) -> str:
        """Note, ask, look at the clock, hand over, and do something of its own."""
        run.note({"plan": "all of it"})
        run.now()
        busy = await run.ask("It is busy.")
        with suppress(LoopwrightError):
            await run.ask("It fails.")
        await run.act(await run.gate(run.propose(call("look", what="sky"))))
        size = await run.effect("measure", _measure, into=int)
        inner = await run.delegate(ReActEngine(self.runtime), "What is blue?")
        return f"{busy}, {inner.answer}, {size}"


async def _measure() -> int:
    return 42


async def yes(action: Action, question: str) -> bool:
    """What a person says."""
    return True


def engine(name: str, runtime: Runtime) -> LoopEngine:
    """The engine that goes on with a run."""
    return Everything(runtime) if name == Everything.name else runtime.engine(name)


async def make(path: Path) -> None:
    """Work off the runs, leave some of them unfinished, and write down beside them what must come of them."""
    from programs import PROGRAMS  # for runs that are finished: it may change

    journal = SQLiteJournal(path)
    for name, program in PROGRAMS.items():
        if name in (
            "react",
            "chain-of-thought",
            "self-ask",
            "plan-execute",
            "reflexion",
            "critic",
            "tree-of-thoughts",
        ):
            await program.engine(program.runtime(journal)).run(
                program.task, run_id=name
            )
    runtime = Work().runtime(journal)
    for run_id, task in (("everything", "Do."), ("broken", "Look for it.")):
        await engine("everything" if run_id == "everything" else "react", runtime).run(
            task, run_id=run_id
        )
    await ReActEngine(Work().runtime(journal, limits=Limits(max_llm_calls=1))).run(
        "What is blue?", run_id="limited"
    )
    await ReActEngine(Work().runtime(journal, Suspend())).run(
        "Burn a letter.", run_id="waiting"
    )
    await ReActEngine(runtime).run("What is blue?", run_id="forked")
    await ReActEngine(runtime).fork("forked", at=9, new_id="fork")
    await ReActEngine(runtime).fork("forked", at=9, new_id="fork-resumed")
    await ReActEngine(Work().runtime(journal, limits=Limits(max_iterations=9))).resume(
        "fork-resumed"
    )
    await told(journal)
    await ReActEngine(runtime).run("Look at what fails.", run_id="recovered")
    await ReActEngine(runtime).fork("recovered", at=9, new_id="recovering")
    await ReActEngine(runtime).run("Book a trip.", run_id="undone", saga=True)
    await left(journal, "suspended", "Send a parcel.", cancel=True)
    await left(journal, "large", "Look at the sea.", cancel=True)
    await left(journal, "at-work", "Send a parcel.", cancel=False)
    await journal.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        # A writer makes the indexes again, and a reader does without, so they need no place in the repository.
        made = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql NOT NULL"
        for (name,) in connection.execute(made).fetchall():
            connection.execute(f"DROP INDEX {name}")
        connection.execute("VACUUM")
    await write_down(path)


async def told(journal: SQLiteJournal) -> None:
    """A run that people tell something of each kind, and one that they have told so far."""
    runtime = Work().runtime(journal, Suspend(expires=None, holds=FOR_EVER))
    hand = runtime.control("told")
    await ReActEngine(runtime).run("Burn two letters.", run_id="told")
    await hand.steer("Mind the wind.")
    await hand.add_context("It is dry.")
    await hand.follow_up("And a third?")
    await hand.override("look", {"what": "moon"})
    await hand.declassify("normal", "everybody knows")
    await hand.approve("0#0", by="Ada")
    await ReActEngine(runtime).resume("told")
    await ReActEngine(runtime).fork("told", at=12, new_id="told-so-far")


async def left(journal: SQLiteJournal, run_id: str, task: str, *, cancel: bool) -> None:
    """Work at a run until a letter is on its way, and stop; without `cancel` as a process that dies."""
    work = Work(lost="parcel")
    running = asyncio.ensure_future(
        ReActEngine(work.runtime(journal)).run(task, run_id=run_id)
    )
    await work.sending.wait()
    if not cancel:
        await journal.close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def write_down(path: Path) -> None:
    """Put `<version>.json` beside a journal: of each run its head, and how it ends if it is resumed."""
    said: dict[str, Any] = {}
    journal = SQLiteJournal(path)
    for info in journal.runs():
        said[info.run_id] = {
            "engine": info.engine,
            "head": info.head_hash,
            "entries": info.head_seq,
        }
        said[info.run_id] |= {"finished": info.status not in RESUMABLE}
    await journal.close()
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    for run_id in said:
        said[run_id] |= await resumed(copy, run_id, said[run_id]["engine"])
    for beside in (
        *path.parent.glob(f"{copy.name}*"),
        *path.parent.glob(f"{path.name}?*"),
    ):
        beside.unlink()  # what was said is in the entries, too
    path.with_suffix(".json").write_text(
        json.dumps(said, indent=1, sort_keys=True) + "\n"
    )


async def resumed(path: Path, run_id: str, name: str) -> dict[str, Any]:
    """How a run ends if it goes on with this version; what is recorded of it must not be done again."""
    journal, work = SQLiteJournal(path), Work()
    result = await engine(name, work.runtime(journal, yes)).resume(
        run_id, take_over=True
    )
    verified = journal.verify(run_id, result.head_hash).ok
    await journal.close()
    return {
        "status": result.status,
        "answer": result.answer,
        "ran": dict(work.ran),
        "verified": verified,
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    target = folder / f"{__version__}.db"
    if target.exists():
        sys.exit(
            f"{target} is there already: a journal that was released is never made again"
        )
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(make(target))
