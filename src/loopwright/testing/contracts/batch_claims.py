"""Checks of a journal that claims the next of many runs in one step."""

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ...errors import Fenced
from ...journals.base import Claim, Journal, RunInfo
from ...journals.batch_claims import BatchClaimingJournal
from ..assertions import assert_equal, assert_true, expect_error
from .entries import DEAD, LIVE, ME, header, until_over, with_journal, write


class BatchClaimChecks:
    """The checks of `JournalContract` that workers rely on where a journal claims many runs in one step."""

    def journal(self, folder: Path) -> Journal:
        """Your journal in that folder."""
        raise NotImplementedError

    @with_journal
    async def test_the_next_runs_are_claimed_and_any_that_is_not_free_is_passed_over(
        self, journal: Journal
    ) -> None:
        """One that is at work, that is gone, or that continued since it was listed."""
        if not isinstance(journal, BatchClaimingJournal):
            return
        await write(journal, journal.create(header("busy", LIVE)), b"1")
        for name in ("moved", "one", "two", "rest"):
            await _release(journal, name)
        listed = _list(journal)
        gone = dataclasses.replace(listed["one"], run_id="gone")
        moved = await journal.claim("moved", ME)
        await write(journal, moved, b"2", status="released")
        names = ("busy", "moved", "one", "two", "rest")
        runs = [gone, *(listed[name] for name in names)]
        claims = await journal.batch_claims.claim_next(runs, _owners(2), lease=100.0)

        found = [(one.run_id, one.fence, one.head_seq, one.after) for one in claims]
        expected = [("one", 2, 1, "left"), ("two", 2, 1, "left")]
        assert_equal(found, expected, "the claims")
        after = _list(journal)
        for claim, owner in zip(claims, _owners(2), strict=True):
            info = after[claim.run_id]
            shown = info.status, info.owner, info.lease_seconds, info.head_hash
            assert_equal(
                shown, ("running", owner, 100.0, claim.head_hash), claim.run_id
            )
            await write(journal, claim, b"2")
            assert_true(journal.verify(claim.run_id).ok, "the chain does not verify")
        for name in ("busy", "rest"):
            assert_equal(after[name], listed[name], f"the run {name}")

    @with_journal
    async def test_of_workers_that_claim_the_next_runs_at_once_each_gets_others(
        self, journal: Journal
    ) -> None:
        """All of them look at the same list."""
        if not isinstance(journal, BatchClaimingJournal):
            return
        for number in range(12):
            await _release(journal, f"r{number:02}")
        runs = list(_list(journal).values())
        claimed: Sequence[Sequence[Claim]] = await asyncio.gather(
            *(
                journal.batch_claims.claim_next(runs, _owners(4, f"worker{number}"))
                for number in range(4)
            )
        )
        names = [claim.run_id for claims in claimed for claim in claims]
        assert_equal(sorted(names), sorted(info.run_id for info in runs), "the runs")

    @with_journal
    async def test_a_claim_that_is_returned_leaves_no_trace(
        self, journal: Journal
    ) -> None:
        """The run is listed as it was, with another fence; who had the claim cannot write, and the next one can."""
        if not isinstance(journal, BatchClaimingJournal):
            return
        claim = journal.create(header("asleep"))
        claim.wake_at = 1_800_000_000.5
        await write(journal, claim, b"1", status="suspended")
        await write(journal, journal.create(header("dead", DEAD)), b"1")
        for name, ending in (("asleep", "left"), ("dead", "died")):
            before = _list(journal)[name]
            entries = journal.read(name)
            [claim] = await journal.batch_claims.claim_next([before], [ME], lease=100.0)
            await journal.batch_claims.return_claim(claim, before)
            returned = _list(journal)[name]

            assert_true(returned.fence > claim.fence, "the fence did not grow")
            assert_equal(
                dataclasses.replace(returned, fence=before.fence), before, "the run"
            )
            assert_equal(journal.read(name), entries, "the entries")
            with expect_error(Fenced, "writing under a claim that was returned"):
                await write(journal, claim, b"late")
            [claim] = await journal.batch_claims.claim_next([returned], [ME])
            assert_equal(claim.after, ending, "how the work before ended")
            await write(journal, claim, b"2")
            assert_true(journal.verify(name).ok, "the chain does not verify")

    @with_journal
    async def test_a_claim_that_another_owner_has_is_not_returned(
        self, journal: Journal
    ) -> None:
        """Neither is one under which something was written."""
        if not isinstance(journal, BatchClaimingJournal):
            return
        for name in ("lost", "begun"):
            await _release(journal, name)
        listed = _list(journal)
        runs = [listed["lost"], listed["begun"]]
        lost, begun = await journal.batch_claims.claim_next(
            runs, _owners(2), lease=0.05
        )
        await write(journal, begun, b"2")
        await until_over(0.05)
        await journal.claim("lost", LIVE)
        before = _list(journal)
        await journal.batch_claims.return_claim(lost, listed["lost"])
        await journal.batch_claims.return_claim(begun, listed["begun"])

        assert_equal(_list(journal), before, "the runs")


async def _release(journal: Journal, run_id: str) -> None:
    """Store a run that no process works on."""
    await write(journal, journal.create(header(run_id)), b"1", status="released")


def _list(journal: Journal) -> dict[str, RunInfo]:
    return {info.run_id: info for info in journal.runs(unfinished=True)}


def _owners(count: int, name: str = "me") -> list[str]:
    return [f"{ME}-{name}-{number}" for number in range(count)]
