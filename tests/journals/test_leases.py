"""Leases to the second: a clock that the test moves, for both journals."""

import asyncio
import contextlib
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from journal_entries import DEAD, LIVE, ME, follow, header, write
from loopwright import ReActEngine, Runtime, tool
from loopwright.clock import Clock
from loopwright.errors import Fenced, JournalError, RunBusy
from loopwright.journals import (
    Claim,
    Journal,
    LeaseWatch,
    MemoryJournal,
    Owner,
    RunInfo,
    SQLiteJournal,
    ensure_claimable,
    is_orphaned,
)
from loopwright.testing import FakeClock, ScriptedProvider, call
from virtual_time import LoopClock, in_virtual_time

NOW = 1_700_000_000.0
AWAY = "another-host|1|1|away"
ELSEWHERE = str(
    Owner(f"{socket.gethostname()}/1", 2**22 + 1, "1", "elsewhere")
)  # in another PID namespace
EARLIER = str(
    Owner(socket.gethostname(), 2**22 + 1, "1", "earlier")
)  # as earlier versions wrote it
# As earlier versions wrote it: without the length of a lease, whose end is judged by the wall clock.
INFO = RunInfo("r1", "react", "{}", "1", "running", AWAY, 1, 0, "", NOW)
WATCH = LeaseWatch(FakeClock(wall=NOW))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall=NOW)


@pytest.fixture(params=["memory", "sqlite"])
async def journal(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Journal]:
    memory = request.param == "memory"
    journal: Journal = (
        MemoryJournal(clock=clock)
        if memory
        else SQLiteJournal(tmp_path / "runs.db", clock=clock)
    )
    yield journal
    await journal.close()


async def test_a_lease_is_over_only_when_its_last_moment_has_passed(
    journal: Journal, clock: FakeClock
) -> None:
    await write(journal, journal.create(replace(header(owner=LIVE), lease=30.0)), b"{}")
    clock.advance(30.0)
    with pytest.raises(
        RunBusy,
        match=r"until 2023-11-14 22:13:50 UTC, in 0\.0 s, unless it renews its lease",
    ):
        await journal.claim("r1", ME)
    clock.advance(0.001)

    assert (await journal.claim("r1", ME, lease=5.0)).lease_until == NOW + 35.001
    assert [info.lease_until for info in journal.runs()] == [NOW + 35.001]


async def test_the_lease_of_a_new_run_begins_with_its_first_entries(
    journal: Journal, clock: FakeClock
) -> None:
    claim = journal.create(replace(header(), lease=30.0))
    assert claim.lease_until == NOW + 30.0
    clock.advance(100.0)
    await journal.renew(claim, 5.0)  # there is nothing yet that could be renewed
    await write(journal, claim, b"{}")

    assert claim.lease_until == NOW + 130.0
    assert [info.lease_until for info in journal.runs()] == [NOW + 130.0]


async def test_a_lease_that_is_over_is_renewed_while_nobody_took_the_run(
    journal: Journal, clock: FakeClock
) -> None:
    claim = journal.create(replace(header(), lease=1.0))
    await write(journal, claim, b"{}")
    clock.advance(60.0)
    await journal.renew(claim, 1.0)

    assert claim.lease_until == NOW + 61.0
    assert not is_orphaned(replace(journal.runs()[0], owner=AWAY), LeaseWatch(clock))


@pytest.mark.parametrize(
    ("info", "is_orphan"),
    [
        (INFO, False),
        (replace(INFO, lease_until=NOW), False),
        (replace(INFO, lease_until=NOW - 0.001), True),
        (replace(INFO, lease_until=NOW - 1, status="waiting"), False),
        (replace(INFO, owner=DEAD, lease_until=NOW + 60), True),
        (replace(INFO, owner=LIVE), False),
        (replace(INFO, owner=LIVE, lease_until=NOW - 1), True),
        (replace(INFO, owner=None), True),
        (replace(INFO, owner=ELSEWHERE, lease_until=NOW + 60), False),
        (replace(INFO, owner=ELSEWHERE, lease_until=NOW - 1), True),
        (replace(INFO, owner=ELSEWHERE), True),
        (replace(INFO, owner=EARLIER, lease_until=NOW + 60), True),
        (replace(INFO, owner="somebody"), False),
        (replace(INFO, owner="somebody", lease_until=NOW - 1), True),
        (replace(INFO, owner=DEAD, status="completed"), False),
    ],
)
def test_an_orphan_is_a_running_run_that_nobody_can_be_at_work_on(
    info: RunInfo, is_orphan: bool
) -> None:
    assert is_orphaned(info, WATCH) is is_orphan


def test_an_end_beyond_all_dates_can_be_shown() -> None:
    with pytest.raises(RunBusy, match="until 9999-12-31 23:59:59 UTC"):
        ensure_claimable(replace(INFO, lease_until=1e300), False, WATCH)


async def test_a_run_of_another_container_with_this_host_name_keeps_its_lease(
    journal: Journal, clock: FakeClock
) -> None:
    await write(
        journal, journal.create(replace(header(owner=ELSEWHERE), lease=30.0)), b"{}"
    )
    with pytest.raises(RunBusy, match=r"in 30\.0 s, unless it renews its lease"):
        await journal.claim("r1", ME)
    clock.advance(30.001)

    assert (await journal.claim("r1", ME)).fence == 2


def test_a_process_of_another_container_is_left_alone_while_it_has_a_lease() -> None:
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    tells = [
        sys.executable,
        "-c",
        "from loopwright.journals.owner import Owner; print(Owner.of_this_process('it'))",
    ]
    try:
        inside = subprocess.run(
            [*alone, *tells], check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no PID namespace can be made here")
    with pytest.raises(RunBusy):
        ensure_claimable(
            replace(INFO, owner=inside, lease_until=NOW + 60), False, WATCH
        )
    ensure_claimable(
        replace(INFO, owner=inside), False, WATCH
    )  # it has ended, as far as anybody can tell


async def test_a_renewal_that_fails_leaves_the_claim_as_it_was(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "runs.db"
    journal = SQLiteJournal(path, busy_timeout=0.1, retry_timeout=0.2, clock=clock)
    claim = journal.create(replace(header(), lease=30.0))
    await write(journal, claim, b"1")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(JournalError, match="locked"):
            await journal.renew(claim, 60.0)

    assert claim.lease_until == NOW + 30.0
    await write(journal, claim, b"2")
    await journal.renew(claim, 60.0)
    assert claim.lease_until == NOW + 60.0
    await journal.close()


async def test_what_waits_for_the_writer_is_refused_with_the_renewal(
    tmp_path: Path,
) -> None:
    mine, other = (SQLiteJournal(tmp_path / "runs.db") for _ in range(2))
    claim = mine.create(replace(header(), lease=30.0))
    await write(mine, claim, b"1")
    await other.claim("r1", ME, take_over=True)
    mine.append(claim, follow(claim, b"2"))
    ended = await asyncio.gather(
        mine.renew(claim, 60.0), mine.barrier(claim), return_exceptions=True
    )

    assert [type(end) for end in ended] == [Fenced, Fenced]
    assert [entry.body for entry in other.read("r1")] == [b"1"]
    await mine.close()
    await other.close()


async def test_unfinished_runs_are_found_by_an_index_also_in_an_older_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    first = SQLiteJournal(path)
    await write(first, first.create(header("ended")), b"{}", status="completed")
    await write(first, first.create(header("running")), b"{}")
    await first.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP INDEX runs_by_status")
    again = SQLiteJournal(path)
    without = [info.run_id for info in again.runs(unfinished=True)]
    await write(again, again.create(header("waiting")), b"{}", status="waiting")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM runs WHERE status IN ('running', 'suspended', 'waiting')"
        ).fetchall()

    assert without == ["running"]
    assert [info.run_id for info in again.runs(unfinished=True)] == [
        "waiting",
        "running",
    ]
    assert "runs_by_status" in plan[0][3]
    await again.close()


class FailingOnce(MemoryJournal):
    """A journal whose first renewal fails with an error of its driver."""

    def __init__(self, error: BaseException, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._error, self.renewals = error, 0

    async def renew(self, claim: Claim, lease: float) -> None:
        """Fail the first time."""
        self.renewals += 1
        if self.renewals == 1:
            raise self._error
        await super().renew(claim, lease)


@pytest.mark.parametrize("error", [OSError("reset"), asyncio.CancelledError()])
@in_virtual_time
async def test_a_lease_is_renewed_again_after_an_error_of_the_driver(
    error: BaseException,
) -> None:
    clock = LoopClock()
    journal = FailingOnce(error, clock)

    @tool(effect="read")
    async def wait() -> str:
        """Work for longer than two leases."""
        await asyncio.sleep(25)
        return "done"

    model = ScriptedProvider([call("wait"), "Done."])
    runtime = Runtime(model, tools=[wait], journal=journal, clock=clock, lease=10)
    result = await ReActEngine(runtime).run("Go.")

    assert result.answer == "Done."
    assert journal.renewals == 7
