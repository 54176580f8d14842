"""DurableJournalContract: what a journal guarantees that survives the process."""

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ...engine import LoopEngine
from ...engines.react import ReActEngine
from ...errors import Fenced
from ...events.entry import Entry
from ...journals.base import Journal
from ...providers.base import Request
from ...runtime import Runtime
from ...tools.base import ToolContext, tool
from ..assertions import assert_equal, assert_true, expect_error
from ..crash_harness import kill_everywhere, witness, witnessed
from ..scripted import call
from .entries import AWAY, LIVE, ME, follow, header, one_writes, until_over, write
from .journals import JournalContract
from .models import Line
from .subprocess_checks import visit_journal


@tool(effect="read", name="look")
async def _look(ctx: ToolContext[None], what: str) -> str:
    """Look something up."""
    witness(ctx)
    return f"{what} is blue"


@tool(effect="write", name="send")
async def _send(ctx: ToolContext[None], what: str) -> str:
    """Send something."""
    witness(ctx)
    return f"{what} sent"


TURNS: Sequence[Line] = (
    [call("look", what="sky"), call("send", what="card")],
    call("send", what="end"),
    "blue",
)


def _turn(request: Request) -> Line:
    return TURNS[
        sum(message.role == "assistant" for message in request.conversation.messages)
    ]


class DurableJournalContract(JournalContract):
    """The additional guarantees of a journal that survives the process that wrote it."""

    task = "What is blue?"

    def runtime(self, journal: Journal) -> Runtime:
        """Return the runtime of the run that is killed."""
        return Runtime(witnessed(_turn), tools=[_look, _send], journal=journal)

    def engine(self, runtime: Runtime) -> LoopEngine:
        """Return the engine of the run that is killed."""
        return ReActEngine(runtime)

    def test_what_a_barrier_returned_for_is_there_for_another_reader(
        self, tmp_path: Path
    ) -> None:
        """A second journal in the same directory sees it while the first is open, and after it was closed."""
        asyncio.run(self._open_twice(tmp_path))

    async def _open_twice(self, folder: Path) -> None:
        journal = self.journal(folder)
        claim = journal.create(header())
        entries = await write(journal, claim, b"1", b"2")
        beside = self.journal(folder)
        assert_equal(beside.read("r1"), entries, "what another reader sees")
        assert_equal(beside.runs(), journal.runs(), "the runs that another reader sees")
        await beside.close()
        entries += await write(journal, claim, b"3", status="suspended")
        listed = journal.runs()
        await journal.close()

        again = self.journal(folder)
        assert_equal(again.read("r1"), entries, "what is there when it is opened again")
        assert_equal(again.runs(), listed, "the runs when it is opened again")
        assert_true(
            again.verify("r1", entries[-1].hash).ok,
            "the chain does not verify when it is opened again",
        )
        entries += await write(again, await again.claim("r1", ME), b"4")
        assert_equal(
            again.read("r1"), entries, "what was written when it was opened again"
        )
        await again.close()

    def test_closing_makes_queued_entries_durable(self, tmp_path: Path) -> None:
        """Also without a barrier."""

        async def append() -> list[Entry]:
            journal = self.journal(tmp_path)
            claim = journal.create(header())
            entries = follow(claim, b"1", b"2")
            journal.append(claim, entries)
            await journal.close()
            return entries

        entries = asyncio.run(append())
        journal = self.journal(tmp_path)
        assert_equal(journal.read("r1"), entries, "the entries")
        asyncio.run(journal.close())

    def test_a_take_over_from_another_journal_object_fences_this_one(
        self, tmp_path: Path
    ) -> None:
        """As from another process."""
        asyncio.run(self._take_over(tmp_path))

    async def _take_over(self, folder: Path) -> None:
        journal, beside = self.journal(folder), self.journal(folder)
        old = journal.create(header())
        entries = await write(journal, old, b"1")
        new = await beside.claim("r1", ME, take_over=True)
        entries += await write(beside, new, b"2")
        with expect_error(Fenced, "writing after another journal object took over"):
            await write(journal, old, b"too late")
        assert_equal(journal.read("r1"), entries, "the entries")
        await journal.close()
        await beside.close()

    def test_of_journal_objects_that_claim_one_run_one_writes(
        self, tmp_path: Path
    ) -> None:
        """As from several processes."""
        asyncio.run(self._claim_concurrently(tmp_path))

    async def _claim_concurrently(self, folder: Path) -> None:
        journals = [self.journal(folder) for _ in range(4)]
        entries = await write(
            journals[0], journals[0].create(header()), b"1", status="suspended"
        )
        await one_writes(journals, "r1", LIVE, entries)
        for journal in journals:
            await journal.close()

    def test_another_process_sees_leases_and_commands(self, tmp_path: Path) -> None:
        """It claims only the run whose lease is over, reads the command, and the commands it sends arrive."""
        asyncio.run(self._share(tmp_path))

    async def _share(self, folder: Path) -> None:
        journal = self.journal(folder)
        held = journal.create(dataclasses.replace(header("held", AWAY), lease=3600.0))
        left = journal.create(dataclasses.replace(header("left", AWAY), lease=0.05))
        await asyncio.gather(write(journal, held, b"{}"), write(journal, left, b"{}"))
        first = journal.send("held", "steer", {"text": "left"})
        await until_over(0.05)

        seen = await asyncio.to_thread(
            visit_journal, type(self), folder, ("held", "left")
        )

        commands = journal.inbox("held")
        assert_equal(
            seen.claimed,
            {"held": None, "left": 2},
            "the fences that another process got",
        )
        assert_equal(
            seen.read, [first], "the numbers of the commands that another process read"
        )
        assert_equal(
            [command.number for command in commands],
            [first, *seen.sent],
            "the commands that arrived",
        )
        assert_equal(
            commands[-1].body, {"n": len(seen.sent)}, "the last command that arrived"
        )
        await write(journal, held, b"still mine")
        with expect_error(Fenced, "writing after another process took over"):
            await write(journal, left, b"too late")
        await journal.close()

    def test_a_run_killed_at_any_barrier_is_resumed_by_a_new_process(
        self, tmp_path: Path
    ) -> None:
        """Killed by SIGKILL before and after every barrier: what was durable is there, and nothing is done twice."""
        kills = sum(1 for _ in kill_everywhere(type(self), folder=tmp_path))

        assert_true(
            kills >= 2 * 4,
            f"the run was killed {kills} times only: does the journal wait for all barriers?",
        )
