"""JournalContract: what every journal guarantees."""

import asyncio
import dataclasses
import random
from collections.abc import Sequence
from typing import Any

from ...errors import ConfigError, Fenced, JournalError, RunBusy, UnknownRun
from ...events.entry import Entry
from ...journals.base import EarlierRunGone, Journal, RunInfo
from ..assertions import assert_equal, assert_true, expect_error
from .batch_claims import BatchClaimChecks
from .entries import (
    DEAD,
    LIVE,
    ME,
    follow,
    header,
    one_writes,
    with_journal,
    write,
)
from .follow_ups import FollowUpChecks
from .workers import WorkerChecks

TEXTS = ("", "a", "ünï ☃ 🌍", "a|b'\"\\", "../../etc", "x" * 5000)
"""Ids, keys and kinds: printable text, so that a store which keeps no NUL can have them as they are."""


class JournalContract(WorkerChecks, BatchClaimChecks, FollowUpChecks):
    """Subclass it in a test module as `Test…` and give it your journal; every check is a test of its own.

        class TestMyJournal(JournalContract):
            def journal(self, folder: Path) -> Journal:
                return MyJournal(folder / "runs")

    A journal that survives the process uses `DurableJournalContract`.
    """

    # --- entries ---

    @with_journal
    async def test_entries_come_back_as_they_were_given(self, journal: Journal) -> None:
        """Bodies are bytes of any kind, and the chain verifies."""
        claim = journal.create(header())
        entries = await write(journal, claim, b"{}", b'{"a":1}')
        entries += await write(journal, claim, b"", bytes(range(256)))

        assert_equal(journal.read("r1"), entries, "the entries")
        assert_true(
            journal.verify("r1", entries[-1].hash).ok, "the chain does not verify"
        )

    @with_journal
    async def test_any_text_and_time_come_back(self, journal: Journal) -> None:
        """Keys, kinds and run ids of any printable text, times and bodies of any content."""
        source = random.Random(1)  # noqa: S311 - the same every time
        for number in range(30):
            run_id = f"{number} {source.choice(TEXTS)[:100]}"
            claim = journal.create(header(run_id))
            bodies = [
                source.randbytes(source.choice((0, 1, 200, 70_000))) for _ in range(3)
            ]
            at = source.choice((0.0, -1.5, 1e300, source.random(), float("inf")))
            entries = follow(
                claim,
                *bodies,
                key=source.choice(TEXTS),
                kind=source.choice(TEXTS),
                at=at,
            )
            journal.append(claim, entries)
            await journal.barrier(claim)

            assert_equal(journal.read(run_id), entries, f"run {run_id!r}")
            assert_true(
                journal.verify(run_id, claim.head_hash).ok,
                f"run {run_id!r} does not verify",
            )

    @with_journal
    async def test_several_appends_wait_for_one_barrier(self, journal: Journal) -> None:
        """`append` only queues; one barrier makes all entries durable, in order."""
        claim = journal.create(header())
        for number in range(600):
            journal.append(claim, follow(claim, str(number).encode()))
        await journal.barrier(claim)

        assert_equal(
            [entry.body for entry in journal.read("r1")],
            [str(number).encode() for number in range(600)],
            "bodies",
        )

    @with_journal
    async def test_what_is_read_is_a_copy(self, journal: Journal) -> None:
        """A reader that changes its list changes nothing."""
        entries = await write(journal, journal.create(header()), b"{}")
        journal.read("r1").clear()
        journal.runs().clear()

        assert_equal(journal.read("r1"), entries, "the entries")
        assert_equal(len(journal.runs()), 1, "runs")

    @with_journal
    async def test_many_runs_write_at_once(self, journal: Journal) -> None:
        """Runs of one process do not mix."""

        async def run(number: int) -> list[Entry]:
            claim = journal.create(header(f"r{number}"))
            return [
                entry
                for step in range(10)
                for entry in await write(journal, claim, b"%d" % step, b"more")
            ]

        written = await asyncio.gather(*map(run, range(40)))
        assert_equal(
            [journal.read(f"r{number}") for number in range(40)],
            written,
            "the entries of 40 runs",
        )
        assert_true(
            all(journal.verify(f"r{number}").ok for number in range(40)),
            "a chain does not verify",
        )

    # --- runs ---

    @with_journal
    async def test_a_new_run_is_listed_with_what_its_header_says(
        self, journal: Journal
    ) -> None:
        """Engine, options, version, owner, time, origin, and what the application said of it."""
        listed: dict[str, Any] = {
            "parent_run": "r0",
            "fork_seq": 7,
            "app_version": "2026.11",
            "tags": {"user": "42", "ünï": "☃"},
            "thread": "a thread",
            "agent": "an agent",
            "follows": "r0",
        }
        claim = journal.create(dataclasses.replace(header(), **listed))
        (entry,) = await write(journal, claim, b"{}")

        info = RunInfo(
            "r1",
            "react",
            '{"max_iterations":5}',
            "1",
            "running",
            ME,
            1,
            1,
            entry.hash,
            1_700_000_000.25,
            **listed,
        )
        assert_equal(journal.runs(), [info], "the list of runs")

    @with_journal
    async def test_nothing_is_kept_of_a_run_that_has_no_entry_yet(
        self, journal: Journal
    ) -> None:
        """`create` alone writes nothing; reading an unknown run is `UnknownRun` naming it."""
        journal.create(header())

        assert_equal(journal.runs(), [], "the list of runs")
        with expect_error(UnknownRun, "reading a run without entries", saying="r1"):
            journal.read("r1")

    @with_journal
    async def test_a_run_that_continues_one_that_is_gone_is_refused(
        self, journal: Journal
    ) -> None:
        """With `EarlierRunGone`, before anything is stored; one that is there is continued."""
        (first,) = await write(journal, journal.create(header("r0")), b"{}")
        entries = {"r0": (1, "other"), "gone": (1, first.hash)}
        for earlier, entry in entries.items():
            wrong = dataclasses.replace(header(), follows=earlier, follows_entry=entry)
            with expect_error(EarlierRunGone, "a run that continues none"):
                await write(journal, journal.create(wrong), b"{}")
        assert_equal([info.run_id for info in journal.runs()], ["r0"], "the runs")

        right = dataclasses.replace(
            header(), follows="r0", follows_entry=(1, first.hash)
        )
        await write(journal, journal.create(right), b"{}")
        assert_equal(journal.runs()[0].follows, "r0", "what the run continues")

    @with_journal
    async def test_runs_are_listed_newest_first(self, journal: Journal) -> None:
        """In the order of their first entries."""
        for run_id in ("b", "c", "a"):
            await write(journal, journal.create(header(run_id)), b"{}")

        assert_equal(
            [info.run_id for info in journal.runs()],
            ["a", "c", "b"],
            "the list of runs",
        )

    @with_journal
    async def test_a_taken_run_id_is_a_config_error_by_the_first_barrier(
        self, journal: Journal
    ) -> None:
        """And the run that has the id stays as it was."""
        first = await write(journal, journal.create(header()), b"{}")

        listed = journal.runs()

        with expect_error(ConfigError, "a second run of the same id"):
            await write(
                journal,
                journal.create(dataclasses.replace(header(), engine="another")),
                b"another",
            )
        assert_equal(journal.read("r1"), first, "the entries of the first run")
        assert_equal(journal.runs(), listed, "the list of runs")

    @with_journal
    async def test_of_two_new_runs_with_one_id_the_first_to_write_has_it(
        self, journal: Journal
    ) -> None:
        """Both were created before either wrote; the other is refused by its barrier, and the first continues."""
        first, second = (
            journal.create(header()),
            journal.create(dataclasses.replace(header(), engine="another")),
        )
        entries = await write(journal, first, b"first")
        with expect_error(ConfigError, "a second run of the same id"):
            await write(journal, second, b"second")
        entries += await write(journal, first, b"more")

        assert_equal(journal.read("r1"), entries, "the entries of the first run")
        assert_equal(
            [info.engine for info in journal.runs()],
            ["react"],
            "the engines of the runs",
        )

    @with_journal
    async def test_a_status_other_than_running_frees_the_run(
        self, journal: Journal
    ) -> None:
        """It has no owner any more."""
        for status in ("suspended", "waiting", "completed", "failed"):
            claim = journal.create(header(status))
            await write(journal, claim, b"{}")
            await write(journal, claim, b"{}", status=status)

            assert_equal(
                (journal.runs()[0].status, journal.runs()[0].owner),
                (status, None),
                "status and owner",
            )

    @with_journal
    async def test_a_suspended_run_keeps_when_it_wants_to_wake(
        self, journal: Journal
    ) -> None:
        """Until it is claimed: then it is at work."""
        claim = journal.create(header())
        await write(journal, claim, b"{}")
        claim.wake_at = 1_800_000_000.5
        await write(journal, claim, b"{}", status="suspended")
        assert_equal(journal.runs()[0].wake_at, 1_800_000_000.5, "when it wakes")

        await journal.claim("r1", ME)
        assert_equal(journal.runs()[0].wake_at, 0.0, "when a run at work wakes")

    @with_journal
    async def test_a_claim_says_how_the_work_before_it_ended(
        self, journal: Journal
    ) -> None:
        """In `Claim.after`, or nothing: a worker parks a run whose processes died."""
        await write(journal, journal.create(header()), b"{}", status="suspended")
        for owner, ending in ((LIVE, "left"), (ME, "lost"), (LIVE, "died")):
            claim = await journal.claim("r1", owner, take_over=True)
            if claim.after:
                assert_equal(claim.after, ending, f"the ending before {owner}")

    @with_journal
    async def test_a_status_may_come_without_an_entry(self, journal: Journal) -> None:
        """`append(claim, [], status=…)` changes the status alone."""
        claim = journal.create(header())
        await write(journal, claim, b"{}")
        await write(journal, claim, status="running")
        await write(journal, claim, b"{}")
        assert_equal(_state(journal), ("running", ME, 2), "status, owner and head")

        await write(journal, claim, status="suspended")
        assert_equal(_state(journal), ("suspended", None, 2), "status, owner and head")

    # --- claims ---

    @with_journal
    async def test_a_claim_continues_at_the_head_of_the_last_owner(
        self, journal: Journal
    ) -> None:
        """It has the next fence and the head of the chain."""
        old = journal.create(header())
        entries = await write(journal, old, b"1", b"2", status="suspended")

        claim = await journal.claim("r1", ME)
        assert_equal(
            (claim.fence, claim.head_seq, claim.head_hash),
            (2, 2, entries[-1].hash),
            "the claim",
        )
        assert_equal(
            (*_state(journal), journal.runs()[0].fence),
            ("running", ME, 2, 2),
            "the run",
        )

        entries += await write(journal, claim, b"3", status="running")
        assert_equal(journal.read("r1"), entries, "the entries")
        assert_true(journal.verify("r1").ok, "the chain does not verify")

    @with_journal
    async def test_an_unknown_run_is_named(self, journal: Journal) -> None:
        """Claiming or verifying it is `UnknownRun`."""
        with expect_error(UnknownRun, "claiming an unknown run", saying="nowhere"):
            await journal.claim("nowhere", ME)
        with expect_error(UnknownRun, "verifying an unknown run", saying="nowhere"):
            journal.verify("nowhere")

    @with_journal
    async def test_a_run_with_a_live_owner_is_busy(self, journal: Journal) -> None:
        """Unless it is taken over."""
        await write(journal, journal.create(header(owner=LIVE)), b"{}")

        with expect_error(RunBusy, "claiming a run with a live owner"):
            await journal.claim("r1", ME)
        assert_equal(
            (await journal.claim("r1", ME, take_over=True)).fence,
            2,
            "the fence of who took over",
        )

    @with_journal
    async def test_a_run_with_a_dead_owner_is_claimed_immediately(
        self, journal: Journal
    ) -> None:
        """A claim does not wait for the lease of a process that ended."""
        await write(journal, journal.create(header(owner=DEAD)), b"{}")

        assert_equal((await journal.claim("r1", ME)).fence, 2, "the fence")

    @with_journal
    async def test_of_several_that_claim_one_run_one_writes_it(
        self, journal: Journal
    ) -> None:
        """At the same moment, they are refused as `RunBusy`, or have fences of their own: the highest one counts."""
        for run_id, owner in (("alive", LIVE), ("gone", ME)):
            entries = await write(
                journal, journal.create(header(run_id)), b"1", status="suspended"
            )
            await one_writes([journal] * 5, run_id, owner, entries)

    @with_journal
    async def test_a_worker_that_was_taken_over_is_stopped_for_good(
        self, journal: Journal
    ) -> None:
        """What it writes is refused as `Fenced`, by the barrier at the latest, and never kept."""
        old = journal.create(header())
        entries = await write(journal, old, b"1")
        new = await journal.claim("r1", ME, take_over=True)

        for _ in range(3):
            with expect_error(Fenced, "writing after a take-over"):
                await write(journal, old, b"too late")
        with expect_error(Fenced, "a barrier after a take-over"):
            await journal.barrier(old)
        entries += await write(journal, new, b"2")
        assert_equal(journal.read("r1"), entries, "the entries")

    @with_journal
    async def test_a_barrier_with_nothing_to_wait_for_still_sees_a_take_over(
        self, journal: Journal
    ) -> None:
        """A worker learns of it before its next side effect."""
        old = journal.create(header())
        await write(journal, old, b"1")
        await journal.barrier(old)
        await journal.claim("r1", ME, take_over=True)

        with expect_error(Fenced, "a barrier after a take-over"):
            await journal.barrier(old)

    @with_journal
    async def test_one_fenced_worker_does_not_hurt_the_others(
        self, journal: Journal
    ) -> None:
        """Even if they write in the same moment."""
        claims = [journal.create(header(f"r{number}")) for number in range(10)]
        await asyncio.gather(*(write(journal, claim, b"1") for claim in claims))
        await journal.claim("r3", ME, take_over=True)

        ended = await asyncio.gather(
            *(write(journal, claim, b"2") for claim in claims), return_exceptions=True
        )
        assert_equal(
            [number for number, end in enumerate(ended) if isinstance(end, Fenced)],
            [3],
            "the fenced",
        )
        kept = [len(journal.read(f"r{number}")) for number in range(10)]
        assert_equal(kept, [2, 2, 2, 1, 2, 2, 2, 2, 2, 2], "entries of each run")

    # --- verification ---

    @with_journal
    async def test_another_head_than_the_caller_kept_is_found(
        self, journal: Journal
    ) -> None:
        """So a cut tail is found."""
        await write(journal, journal.create(header()), b"{}")

        assert_true(journal.verify("r1").ok, "the chain does not verify")
        assert_true(
            "head" in journal.verify("r1", "0" * 64).problem,
            "another head is not noticed",
        )

    @with_journal
    async def test_an_entry_that_does_not_fit_the_chain_is_found(
        self, journal: Journal
    ) -> None:
        """A changed body, a wrong number, another run's entry: `append` refuses them, or `verify` finds them."""
        changes: Sequence[dict[str, Any]] = (
            {"body": b"changed"}, {"at": 2.5}, {"kind": "run_finished"}, {"key": "9"}, {"seq": 3}, {"run_id": "other"},
        )  # fmt: skip
        for number, change in enumerate(changes):
            claim = journal.create(header(f"r{number}"))
            await write(journal, claim, b"{}")
            (entry,) = follow(claim, b"true")
            try:
                journal.append(claim, [dataclasses.replace(entry, **change)])
                await journal.barrier(claim)
            except JournalError:
                continue
            found = journal.verify(f"r{number}")
            assert_equal(found.ok, False, f"an entry with another {next(iter(change))}")
            if (
                "run_id" not in change
            ):  # which may be filed under the other run, and missing in this one
                assert_equal(
                    found.seq, 2, f"where an entry has another {next(iter(change))}"
                )


def _state(journal: Journal) -> tuple[str, str | None, int]:
    info = journal.runs()[0]
    return info.status, info.owner, info.head_seq
