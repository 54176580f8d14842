"""ConnectedJournalContract: what a journal guarantees whose connection to its store may be lost."""

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ...events.entry import Entry
from ...journals.base import Journal
from ...journals.batch_claims import BatchClaimingJournal
from ..assertions import assert_equal, assert_true
from .durable_journals import DurableJournalContract
from .entries import LIVE, ME, header, write

MOMENTS: Sequence[Literal["before", "after"]] = ("before", "after")


class ConnectedJournalContract(DurableJournalContract):
    """The additional guarantees of a durable journal that tries again what a lost connection interrupted.

    Give it `lose_connection` beside `journal`.
    """

    def lose_connection(
        self, journal: Journal, moment: Literal["before", "after"]
    ) -> None:
        """Let your journal lose its connection to the store at its next commit, `before` or `after` it."""
        raise NotImplementedError(
            f"{type(self).__name__}: override lose_connection(self, journal, moment)"
        )

    def test_an_append_is_made_once_though_the_connection_is_lost(
        self, tmp_path: Path
    ) -> None:
        """Before or after its commit: the first one, one that follows, and one that releases the run."""
        for moment in MOMENTS:
            (tmp_path / moment).mkdir()
            asyncio.run(self._append_once(tmp_path / moment, moment))

    async def _append_once(
        self, folder: Path, moment: Literal["before", "after"]
    ) -> None:
        journal = self.journal(folder)
        claim = journal.create(dataclasses.replace(header(), lease=3600.0))
        entries: list[Entry] = []
        for status in (None, None, "running", "suspended"):
            self.lose_connection(journal, moment)
            entries += await write(journal, claim, b"1", b"2", status=status)
            assert_equal(
                journal.read("r1"), entries, f"entries, connection lost {moment}"
            )
        info = journal.runs()[0]
        assert_equal(
            (info.status, info.owner, info.fence),
            ("suspended", None, 1),
            f"status, owner and fence, connection lost {moment}",
        )
        assert_true(journal.verify("r1").ok, "the chain does not verify")
        await journal.close()

    def test_a_claim_and_a_renewal_are_made_once_though_the_connection_is_lost(
        self, tmp_path: Path
    ) -> None:
        """Before or after their commit; the owner can write then."""
        for moment in MOMENTS:
            (tmp_path / moment).mkdir()
            asyncio.run(self._claim_once(tmp_path / moment, moment))

    async def _claim_once(
        self, folder: Path, moment: Literal["before", "after"]
    ) -> None:
        journal = self.journal(folder)
        entries = await write(
            journal, journal.create(header()), b"1", status="suspended"
        )
        self.lose_connection(journal, moment)
        claim = await journal.claim("r1", LIVE, lease=3600.0)
        self.lose_connection(journal, moment)
        await journal.renew(claim, 3600.0)
        assert_equal(claim.fence, 2, f"the fence, connection lost {moment}")
        entries += await write(journal, claim, b"2")
        assert_equal(journal.read("r1"), entries, "the entries")
        await journal.close()

    def test_the_next_claims_are_made_once_though_the_connection_is_lost(
        self, tmp_path: Path
    ) -> None:
        """Before or after their commit, and that of their return; where the journal claims many runs in one step."""
        for moment in MOMENTS:
            (tmp_path / moment).mkdir()
            asyncio.run(self._claim_next_once(tmp_path / moment, moment))

    async def _claim_next_once(
        self, folder: Path, moment: Literal["before", "after"]
    ) -> None:
        journal = self.journal(folder)
        if isinstance(journal, BatchClaimingJournal):
            for run_id in ("r1", "r2", "r3"):
                begun = journal.create(header(run_id))
                await write(journal, begun, b"1", status="released")
            runs = journal.runs()[::-1]
            self.lose_connection(journal, moment)
            claims = await journal.batch_claims.claim_next(
                runs, [LIVE, ME], lease=3600.0
            )
            found = [(claim.run_id, claim.fence) for claim in claims]
            assert_equal(found, [("r1", 2), ("r2", 2)], f"claims, lost {moment}")
            self.lose_connection(journal, moment)
            await journal.batch_claims.return_claim(claims[0], runs[0])
            await write(journal, claims[1], b"2")
            shown = [(info.owner, info.fence) for info in journal.runs()[::-1]]
            expected = [(None, 3), (ME, 2), (None, 1)]
            assert_equal(shown, expected, f"owners and fences, lost {moment}")
        await journal.close()
