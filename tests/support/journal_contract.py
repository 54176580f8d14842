"""The contract of a journal with any text, bytes and time that Hypothesis finds."""

import asyncio
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal_entries import follow, header
from loopwright.testing import JournalContract

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


class HypothesisContract(JournalContract):
    """What holds beside the contract's own checks."""

    # One folder for all examples, each in a run of its own; and one class of tests for all journals, on purpose.
    @settings(
        max_examples=40,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
    )
    @given(
        bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=5),
        key=TEXTS,
        kind=TEXTS,
        at=st.floats(allow_nan=False),
        tail=TEXTS,
    )
    def test_whatever_is_written_comes_back(
        self,
        tmp_path: Path,
        bodies: list[bytes],
        key: str,
        kind: str,
        at: float,
        tail: str,
    ) -> None:
        async def check() -> None:
            journal = self.journal(tmp_path)
            run_id = f"{len(journal.runs())} {tail}"
            claim = journal.create(header(run_id))
            entries = follow(claim, *bodies, key=key, kind=kind, at=at)
            journal.append(claim, entries)
            await journal.barrier(claim)

            assert journal.read(run_id) == entries
            assert journal.verify(run_id, claim.head_hash).ok
            await journal.close()

        asyncio.run(check())
