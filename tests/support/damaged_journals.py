"""A journal of real runs, its files as they lay on disk, and what can be said of a damaged copy of them."""

# ruff: noqa: ASYNC240 - the files of a test are small, and its event loop has nothing else to do

import asyncio
import dataclasses
import functools
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from loopwright import Limits, ReActEngine, Request, Runtime, ToolContext, tool
from loopwright.errors import JournalError, UnknownRun
from loopwright.events import Entry
from loopwright.journals import Command, RunInfo, SQLiteJournal
from loopwright.messages import ToolCall
from loopwright.testing import ScriptedProvider, call

Found: TypeAlias = Literal["whole", "cut", "found", "misread"]

LARGE = "The sea is blue. " * 4500  # more than an entry keeps beside itself
ENDINGS = ("", "-wal", "-shm", ".inbox")
COVERED = (
    "run_id", "engine", "options", "version", "status", "head_seq", "head_hash", "created", "parent_run", "fork_seq",
    "wake_at", "app_version", "tags", "thread", "agent",
)  # fmt: skip
FRAME = struct.Struct(
    ">II16x"
)  # of a write-ahead log: the page, and how many pages there are where a commit ends


class Work:
    """The tools and the model of the runs; `ran` counts the calls that really reached a tool."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.working = asyncio.Event()

    def runtime(self, journal: SQLiteJournal) -> Runtime:
        """What the runs work on."""

        @tool(effect="read")
        async def look(ctx: ToolContext[None], what: str) -> str:
            """Look."""
            self.ran[ctx.key] += 1
            return LARGE if what == "sea" else f"{what} is blue"

        @tool(effect="write")
        async def send(ctx: ToolContext[None], what: str) -> str:
            """Send."""
            self.ran[ctx.key] += 1
            if what == "parcel" and not self.working.is_set():
                self.working.set()
                await asyncio.Event().wait()
            return f"{what} sent"

        limits = Limits(max_output_chars=100_000)
        return Runtime(
            ScriptedProvider(_answer),
            tools=[look, send],
            journal=journal,
            limits=limits,
        )


def _answer(request: Request) -> str | ToolCall | list[ToolCall]:
    messages = request.conversation.messages
    turns: dict[str, Sequence[str | ToolCall | list[ToolCall]]] = {
        "What is blue?": (
            [call("look", what="sky"), call("send", what="card")],
            call("send", what="end"),
            "the sky",
        ),
        "What is large?": (
            call("look", what="sea"),
            call("send", what="card"),
            "the sea",
        ),
        "What is open?": (
            call("look", what="sky"),
            call("send", what="parcel"),
            call("look", what="sun"),
            "a parcel",
        ),
    }
    task = next(message.content for message in messages if message.role == "user")
    return turns[task][sum(message.role == "assistant" for message in messages)]


@dataclasses.dataclass(frozen=True)
class Made:
    """The files of a journal by their endings, and what its callers kept: all entries, and what it said of the runs."""

    files: dict[str, bytes]
    entries: dict[str, list[Entry]]
    infos: dict[str, RunInfo]
    commands: dict[str, list[Command]]

    def put(self, folder: Path, **changed: bytes) -> Path:
        """Lay a copy into an empty folder; `db` and `wal` replace those files. Gives its path."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        path = folder / "runs.db"
        for ending, content in self.files.items():
            if ending != "-shm":  # belongs to the processes that have the file open
                Path(f"{path}{ending}").write_bytes(
                    changed.get(ending.strip("-.") or "db", content)
                )
        return path

    def commits(self) -> list[int]:
        """The sizes that the write-ahead log had after each transaction, from the first."""
        log = self.files["-wal"]
        (page,) = struct.unpack_from(">I", log, 8)
        starts = range(32, len(log), 24 + page)
        return [
            start + 24 + page for start in starts if FRAME.unpack_from(log, start)[1]
        ]


@functools.cache
def made(folder: Path) -> Made:
    """Work off runs in a folder: three that ended, one of them a fork and one large, and one that is at work.

    The older ones lie in the file, the last two in the log beside it, as a power cut would leave them.
    """
    return asyncio.run(_make(folder / "runs.db"))


async def _make(path: Path) -> Made:
    journal = SQLiteJournal(path)
    work = Work()
    engine = ReActEngine(work.runtime(journal))
    await engine.run("What is blue?", run_id="plain")
    await engine.run("What is large?", run_id="large")
    await journal.close()
    journal = SQLiteJournal(path)
    work = Work()
    engine = ReActEngine(work.runtime(journal))
    await engine.fork("plain", at=9, new_id="another")
    await engine.resume("another")
    going = asyncio.ensure_future(engine.run("What is open?", run_id="open"))
    await work.working.wait()
    kept = {ending: Path(f"{path}{ending}") for ending in ENDINGS}
    files = {
        ending: file.read_bytes() for ending, file in kept.items() if file.exists()
    }
    for number in range(5):
        journal.send(
            "open", "answer", {"question": "0#0", "text": f"the {number}th answer" * 40}
        )
    files[".inbox"] = Path(f"{path}.inbox").read_bytes()
    infos = {info.run_id: info for info in journal.runs()}
    entries = {run_id: journal.read(run_id) for run_id in infos}
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    await journal.close()
    commands = {run_id: journal.inbox(run_id) for run_id in infos}
    return Made(files, entries, infos, commands)


def judged(path: Path, run_id: str, kept: Made) -> Found:
    """What a caller who kept the head hash of a run learns of it in a damaged copy; any wrong state is raised.

    "whole": it verifies and all is as it was. "cut": it is a shorter run, which the head hash tells. "found": `verify`
    or an error says that it is damaged. "misread": `verify` says so, but `read` hands out other entries.
    """
    journal, entries, info = (
        SQLiteJournal(path, busy_timeout=0.5),
        kept.entries[run_id],
        kept.infos[run_id],
    )
    try:
        verified = journal.verify(run_id, info.head_hash)
        if verified.ok:
            listed = next(
                (found for found in journal.runs() if found.run_id == run_id), None
            )
            same = listed is not None and all(
                getattr(listed, name) == getattr(info, name) for name in COVERED
            )
            assert same, f"run {run_id} verifies with another row: {listed}"
            assert journal.read(run_id) == entries, (
                f"run {run_id} verifies with other entries"
            )
            return "whole"
        alone, read = journal.verify(run_id), journal.read(run_id)
    except (JournalError, UnknownRun):
        return "found"
    shorter = read == entries[: len(read)]
    assert shorter or not alone.ok, f"run {run_id} has another chain that verifies"
    return "cut" if alone.ok else "found" if shorter else "misread"


def heard(path: Path, run_id: str, kept: Made) -> Found:
    """What comes of the commands that people sent to a run: all, the first ones, some with a damage, an error."""
    try:
        commands = SQLiteJournal(path, busy_timeout=0.5).inbox(run_id)
    except (JournalError, UnknownRun):
        return "found"
    sent = kept.commands[run_id]
    if any(command.damage for command in commands):
        others = [command for command in commands if not command.damage]
        assert all(command in sent for command in others), (
            f"run {run_id} is told other commands: {others}"
        )
        return "found"
    assert commands == sent[: len(commands)], (
        f"run {run_id} is told other commands: {commands}"
    )
    return "whole" if commands == sent else "cut"


def tally(path: Path, kept: Made) -> Counter[str]:
    """What is found of all runs of a damaged copy, and of the commands to one that is at work."""
    return Counter(
        [
            *(judged(path, run_id, kept) for run_id in kept.infos),
            heard(path, "open", kept),
        ]
    )


def worst(found: Counter[str]) -> str:
    """One word for a copy: the worst that was found of a run."""
    return next(word for word in ("misread", "found", "cut", "whole") if found[word])


def bisect(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest number from `low` to `high` for which something holds."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
