"""Checks of a journal that stores follow-ups: those that are due become durable with the end of their run."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import ConfigError, Fenced
from ...followups.base import EndedRun, FollowUp
from ...journals.base import Claim, Journal, NewRun
from ...journals.capabilities import FollowUpJournal
from ...run import Run
from ...runtime import Runtime
from ..assertions import assert_equal, assert_true, expect_error
from ..scripted import ScriptedProvider
from .entries import ME, follow, header, with_journal, write


class _Nothing(FollowUp):
    """A follow-up that does nothing."""

    name = "nothing"

    async def follow(self, run: Run, ended: EndedRun) -> str:
        """Do nothing."""
        return ended.run_id


def due_run(run_id: str = "due", follows: str = "r1") -> NewRun:
    """A run that is due after another."""
    begun = dataclasses.replace(header(run_id), follows=follows)
    return NewRun(begun, tuple(follow(Claim(run_id, 1), b"1", b"2")))


def end(
    journal: Journal, claim: Claim, *due: NewRun, status: str = "completed"
) -> None:
    """Append the end of a run with what is due after it."""
    keeps: Any = journal
    keeps.append_end(claim, follow(claim, b"end"), status=status, due=due)


class FollowUpChecks:
    """The checks of `JournalContract` that follow-ups rely on, where a journal can store them."""

    def journal(self, folder: Path) -> Journal:
        """Your journal in that folder."""
        raise NotImplementedError

    @with_journal
    async def test_a_journal_that_stores_no_follow_ups_is_named(
        self, journal: Journal
    ) -> None:
        """A runtime with follow-ups refuses it; any other uses it."""
        model = ScriptedProvider(["yes"])
        Runtime(model, journal=journal)
        if _can_store(journal):
            Runtime(model, journal=journal, after=[_Nothing()])
            return
        with expect_error(ConfigError, "follow-ups would be lost"):
            Runtime(model, journal=journal, after=[_Nothing()])

    @with_journal
    async def test_what_is_due_is_stored_released_with_the_end(
        self, journal: Journal
    ) -> None:
        """It is listed without an owner, with its entries, and any process may claim it."""
        if not _can_store(journal):
            return
        claim = journal.create(header())
        await write(journal, claim, b"1")
        new = due_run()
        end(journal, claim, new, due_run("other"))
        await journal.barrier(claim)

        assert_equal(_statuses(journal), EXPECTED, "the runs")
        listed = {info.run_id: info for info in journal.runs(unfinished=True)}["due"]
        assert_equal((listed.owner, listed.follows), (None, "r1"), "owner, follows")
        assert_equal(journal.read("due"), list(new.entries), "the entries")
        assert_true(journal.verify("due", new.entries[-1].hash).ok, "it is damaged")
        again = await journal.claim("due", ME)
        assert_equal((again.fence, again.head_seq), (2, 2), "fence and head")

    @with_journal
    async def test_of_an_end_that_is_fenced_nothing_is_due(
        self, journal: Journal
    ) -> None:
        """All of it is stored or nothing."""
        if not _can_store(journal):
            return
        old = journal.create(header())
        await write(journal, old, b"1")
        await journal.claim("r1", ME, take_over=True)
        with expect_error(Fenced, "an end after a take-over was stored"):
            end(journal, old, due_run())
            await journal.barrier(old)
        assert_equal(_statuses(journal), {"r1": "running"}, "the runs")

    @with_journal
    async def test_what_is_due_under_a_taken_id_is_left_out(
        self, journal: Journal
    ) -> None:
        """A run that ends twice is followed once, and its second end is stored."""
        if not _can_store(journal):
            return
        claim = journal.create(header())
        end(journal, claim, due_run(), status="failed")
        await journal.barrier(claim)
        first: Sequence[Any] = journal.read("due")
        again = await journal.claim("r1", ME)
        later = due_run()
        end(journal, again, dataclasses.replace(later, entries=later.entries[:1]))
        await journal.barrier(again)

        assert_equal(journal.read("due"), first, "the entries of what was due first")
        assert_equal(
            _statuses(journal), {"r1": "completed", "due": "released"}, "the runs"
        )


EXPECTED = {"r1": "completed", "due": "released", "other": "released"}


def _can_store(journal: object) -> bool:
    return isinstance(journal, FollowUpJournal)


def _statuses(journal: Journal) -> dict[str, str]:
    return {info.run_id: info.status for info in journal.runs()}
