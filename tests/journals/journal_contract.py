"""What every journal promises, as one class of tests that each journal's own file inherits."""

import asyncio
import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopwright.errors import ConfigError, Fenced, RunBusy, UnknownRun
from loopwright.events import Entry
from loopwright.journal import Journal, RunInfo

from .entries import DEAD, LIVE, ME, follow, header, write

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


class JournalContract:
    """Give it a fixture `journal`."""

    async def test_entries_come_back_as_they_were_given(self, journal: Journal) -> None:
        claim = journal.create(header())
        entries = await write(journal, claim, b"{}", b'{"a":1}')
        entries += await write(journal, claim, b"")

        assert journal.read("r1") == entries
        assert journal.verify("r1", entries[-1].hash).ok

    async def test_several_appends_wait_for_one_barrier(self, journal: Journal) -> None:
        claim = journal.create(header())
        for number in range(600):
            journal.append(claim, follow(claim, str(number).encode()))
        await journal.barrier(claim)

        assert [entry.body for entry in journal.read("r1")] == [str(number).encode() for number in range(600)]

    async def test_a_new_run_is_listed_with_what_its_header_says(self, journal: Journal) -> None:
        claim = journal.create(dataclasses.replace(header(), parent_run="r0"))
        (entry,) = await write(journal, claim, b"{}")

        assert journal.runs() == [
            RunInfo("r1", "react", '{"max_iterations":5}', "1", "running", ME, 1, 1, entry.hash, 1_700_000_000.25, "r0")
        ]

    async def test_nothing_is_kept_of_a_run_that_has_no_entry_yet(self, journal: Journal) -> None:
        journal.create(header())

        assert journal.runs() == []
        with pytest.raises(UnknownRun, match="r1"):
            journal.read("r1")

    async def test_runs_are_listed_newest_first(self, journal: Journal) -> None:
        for run_id in ("b", "c", "a"):
            await write(journal, journal.create(header(run_id)), b"{}")

        assert [info.run_id for info in journal.runs()] == ["a", "c", "b"]

    async def test_a_taken_run_id_is_a_config_error_by_the_first_barrier(self, journal: Journal) -> None:
        first = await write(journal, journal.create(header()), b"{}")

        with pytest.raises(ConfigError, match="'r1' exists already"):
            await write(journal, journal.create(header()), b"{}")
        assert journal.read("r1") == first

    @pytest.mark.parametrize("status", ["suspended", "waiting", "completed", "failed"])
    async def test_a_status_other_than_running_frees_the_run(self, journal: Journal, status: str) -> None:
        claim = journal.create(header())
        await write(journal, claim, b"{}")
        await write(journal, claim, b"{}", status=status)

        assert [(info.status, info.owner) for info in journal.runs()] == [(status, None)]

    async def test_a_status_may_come_without_an_entry(self, journal: Journal) -> None:
        claim = journal.create(header())
        await write(journal, claim, b"{}")
        await write(journal, claim, status="running")
        await write(journal, claim, b"{}")
        assert [(info.status, info.owner, info.head_seq) for info in journal.runs()] == [("running", ME, 2)]

        await write(journal, claim, status="suspended")
        assert [(info.status, info.owner, info.head_seq) for info in journal.runs()] == [("suspended", None, 2)]

    async def test_a_claim_goes_on_where_the_last_owner_ended(self, journal: Journal) -> None:
        old = journal.create(header())
        entries = await write(journal, old, b"1", b"2", status="suspended")

        claim = await journal.claim("r1", ME)
        assert (claim.fence, claim.head_seq, claim.head_hash) == (2, 2, entries[-1].hash)
        assert [(info.status, info.owner, info.fence) for info in journal.runs()] == [("suspended", ME, 2)]

        entries += await write(journal, claim, b"3", status="running")
        assert journal.read("r1") == entries
        assert journal.verify("r1").ok

    async def test_claiming_an_unknown_run_says_so(self, journal: Journal) -> None:
        with pytest.raises(UnknownRun, match="nowhere"):
            await journal.claim("nowhere", ME)
        with pytest.raises(UnknownRun, match="nowhere"):
            journal.verify("nowhere")

    async def test_a_run_with_a_live_owner_is_busy(self, journal: Journal) -> None:
        await write(journal, journal.create(header(owner=LIVE)), b"{}")

        with pytest.raises(RunBusy, match="take_over=True"):
            await journal.claim("r1", ME)
        assert (await journal.claim("r1", ME, take_over=True)).fence == 2

    async def test_a_run_with_a_dead_owner_is_taken_up_at_once(self, journal: Journal) -> None:
        await write(journal, journal.create(header(owner=DEAD)), b"{}")

        assert (await journal.claim("r1", ME)).fence == 2

    async def test_a_worker_that_was_taken_over_is_stopped_for_good(self, journal: Journal) -> None:
        old = journal.create(header())
        entries = await write(journal, old, b"1")
        new = await journal.claim("r1", ME, take_over=True)

        for _ in range(3):
            with pytest.raises(Fenced, match="taken over"):
                await write(journal, old, b"too late")
        with pytest.raises(Fenced):
            await journal.barrier(old)
        entries += await write(journal, new, b"2")
        assert journal.read("r1") == entries

    async def test_a_barrier_with_nothing_to_wait_for_still_sees_a_take_over(self, journal: Journal) -> None:
        old = journal.create(header())
        await write(journal, old, b"1")
        await journal.barrier(old)
        await journal.claim("r1", ME, take_over=True)

        with pytest.raises(Fenced):
            await journal.barrier(old)

    async def test_one_fenced_worker_does_not_hurt_the_others(self, journal: Journal) -> None:
        claims = [journal.create(header(f"r{number}")) for number in range(10)]
        await asyncio.gather(*(write(journal, claim, b"1") for claim in claims))
        await journal.claim("r3", ME, take_over=True)

        ended = await asyncio.gather(*(write(journal, claim, b"2") for claim in claims), return_exceptions=True)
        assert [number for number, end in enumerate(ended) if isinstance(end, Fenced)] == [3]
        assert [len(journal.read(f"r{number}")) for number in range(10)] == [2, 2, 2, 1, 2, 2, 2, 2, 2, 2]

    async def test_another_head_than_the_caller_kept_is_found(self, journal: Journal) -> None:
        await write(journal, journal.create(header()), b"{}")

        assert journal.verify("r1").ok
        assert "head" in journal.verify("r1", "0" * 64).problem

    async def test_many_runs_write_at_once(self, journal: Journal) -> None:
        async def run(number: int) -> list[Entry]:
            claim = journal.create(header(f"r{number}"))
            return [entry for step in range(10) for entry in await write(journal, claim, b"%d" % step, b"more")]

        written = await asyncio.gather(*map(run, range(40)))
        assert [journal.read(f"r{number}") for number in range(40)] == written
        assert all(journal.verify(f"r{number}").ok for number in range(40))

    # One journal for all examples, each in a run of its own; and one class of tests for all journals, on purpose.
    @settings(
        max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
    )
    @given(
        bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=5),
        key=TEXTS,
        kind=TEXTS,
        at=st.floats(allow_nan=False),
        tail=TEXTS,
    )
    async def test_any_text_bytes_and_time_come_back(
        self, journal: Journal, bodies: list[bytes], key: str, kind: str, at: float, tail: str
    ) -> None:
        run_id = f"{len(journal.runs())} {tail}"
        claim = journal.create(header(run_id))
        entries = follow(claim, *bodies, key=key, kind=kind, at=at)
        journal.append(claim, entries)
        await journal.barrier(claim)

        assert journal.read(run_id) == entries
        assert journal.verify(run_id, claim.head_hash).ok
