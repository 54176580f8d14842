"""Which runs are free, whatever wall clocks show: on one machine by its clock, elsewhere by what is seen of the lease."""

import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from journal_entries import DEAD, LIVE, ME, header, write
from loopwright.clock import ClockReading, SystemClock
from loopwright.errors import ConfigError, RunBusy
from loopwright.journals import (
    Lease,
    LeaseWatch,
    MemoryJournal,
    Owner,
    RunInfo,
    ensure_claimable,
    find_ending,
    is_orphaned,
)
from loopwright.journals import claims as claims_module

HOUR, DAY = 3600.0, 86_400.0
LEASE = 30.0
AWAY = "another-host|1|1|away"


class MachineClock:
    """The clocks of a machine, each of which a test moves."""

    def __init__(self, boot_id: str, *, uptime: float, wall: float = 1e9) -> None:
        self.boot_id = boot_id
        self.awake = self.up = uptime
        self.shown = wall

    def monotonic(self) -> float:
        return self.awake

    def boot(self) -> float:
        return self.up

    def wall(self) -> float:
        return self.shown

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.awake += seconds
        self.sleep_machine(seconds)

    def sleep_machine(self, seconds: float) -> None:
        """Let time pass while the machine sleeps."""
        self.up += seconds
        self.shown += seconds


@pytest.fixture
def here() -> MachineClock:
    return MachineClock("here", uptime=5000.0)


@pytest.fixture
def there() -> MachineClock:
    """Another machine, whose wall clock is an hour ahead."""
    return MachineClock("there", uptime=70.0, wall=1e9 + HOUR)


def leased(clock: MachineClock, owner: str = AWAY) -> RunInfo:
    """A run whose lease begins now on a machine."""
    info = RunInfo("r1", "react", "{}", "1", "running", owner, 1, 0, "", 1e9)
    return renewed(info, clock)


def renewed(info: RunInfo, clock: MachineClock) -> RunInfo:
    return replace(info, **Lease.begin(LEASE, ClockReading.take(clock)).fields)


@pytest.mark.parametrize("step", [-DAY, -HOUR, 0.0, HOUR, DAY])
def test_on_one_machine_a_lease_ends_by_the_clock_of_its_boot(
    here: MachineClock, step: float
) -> None:
    watch, info = LeaseWatch(here), leased(here)
    here.shown += step
    here.advance(LEASE)
    assert not is_orphaned(info, watch)
    with pytest.raises(RunBusy, match=r"in 0\.0 s, unless it renews its lease"):
        ensure_claimable(info, False, watch)
    here.advance(0.001)

    assert is_orphaned(info, LeaseWatch(here))
    ensure_claimable(info, False, watch)


def test_a_lease_ends_while_the_machine_sleeps(here: MachineClock) -> None:
    info = leased(here)
    here.sleep_machine(LEASE + 1)

    assert is_orphaned(info, LeaseWatch(here))


@pytest.mark.parametrize("step", [-DAY, -HOUR, 0.0, HOUR, DAY])
def test_elsewhere_a_lease_ends_when_it_was_seen_unrenewed_for_its_length(
    here: MachineClock, there: MachineClock, step: float
) -> None:
    watch, info = LeaseWatch(here), leased(there)
    here.advance(100 * LEASE)  # what was not seen does not count
    assert not is_orphaned(info, watch)
    here.shown += step
    here.advance(LEASE)
    assert not is_orphaned(info, watch)
    here.advance(0.001)

    assert is_orphaned(info, watch)
    assert not is_orphaned(info, LeaseWatch(here))


def test_elsewhere_a_renewal_and_a_new_owner_are_seen(
    here: MachineClock, there: MachineClock
) -> None:
    watch, info = LeaseWatch(here), leased(there)
    for _ in range(10):
        for clock in (here, there):
            clock.advance(0.9 * LEASE)
        assert not is_orphaned(info, watch)
        info = renewed(info, there)
        assert not is_orphaned(info, watch)
    here.advance(0.9 * LEASE)
    info = replace(info, fence=2, owner="another-host|1|1|next")
    assert not is_orphaned(info, watch)
    here.advance(0.9 * LEASE)
    assert not is_orphaned(info, watch)
    here.advance(0.2 * LEASE)

    assert is_orphaned(info, watch)


async def test_elsewhere_a_claim_that_is_returned_does_not_begin_the_wait_anew(
    here: MachineClock, there: MachineClock
) -> None:
    journal, watch = MemoryJournal(clock=there), LeaseWatch(here)
    claim = journal.create(replace(header("r1"), owner=AWAY, lease=LEASE))
    await write(journal, claim)
    seen = [watch.compute_left(journal.runs()[0])]
    for machine in (here, there):
        machine.advance(LEASE + 1)
    listed = journal.runs()[0]
    [early] = await journal.batch_claims.claim_next([listed], [LIVE], lease=LEASE)
    await journal.batch_claims.return_claim(early, listed)
    returned = journal.runs()[0]
    seen.append(watch.compute_left(returned))

    assert (returned.owner, returned.fence) == (listed.owner, listed.fence + 2)
    assert seen == [LEASE, -1.0]


def test_the_pids_of_another_machine_of_the_same_name_say_nothing(
    here: MachineClock, there: MachineClock
) -> None:
    for owner in (DEAD, ME):
        assert is_orphaned(leased(here, owner), LeaseWatch(here))
        assert find_ending(leased(here, owner), LeaseWatch(here)) == "died"
        assert not is_orphaned(leased(there, owner), LeaseWatch(here))
        assert find_ending(leased(there, owner), LeaseWatch(here)) == "lost"
    assert not is_orphaned(leased(here, LIVE), LeaseWatch(here))


def test_a_machine_that_does_not_tell_its_boot_compares_with_none() -> None:
    clock = MachineClock("", uptime=10.0)
    watch, info = LeaseWatch(clock), leased(clock)
    assert not is_orphaned(info, watch)
    clock.advance(LEASE)
    assert not is_orphaned(info, watch)
    clock.advance(0.001)

    assert is_orphaned(info, watch)
    assert is_orphaned(leased(clock, DEAD), watch)


def test_the_lease_of_an_earlier_version_ends_by_the_wall_clock(
    here: MachineClock,
) -> None:
    watch = LeaseWatch(here)
    info = replace(leased(here), lease_seconds=None, lease_beat=0, boot_id="")
    here.shown += LEASE
    assert not is_orphaned(info, watch)
    here.shown += 0.001

    assert is_orphaned(info, watch)


def test_a_watch_forgets_what_it_saw_first(
    here: MachineClock, there: MachineClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_module, "MAX_WATCHED", 2)
    watch = LeaseWatch(here)
    infos = [replace(leased(there), run_id=f"r{number}") for number in range(3)]
    assert not any(is_orphaned(info, watch) for info in infos)
    here.advance(LEASE + 1)

    assert [is_orphaned(info, watch) for info in reversed(infos)] == [True, True, False]


async def test_a_claim_and_a_renewal_move_the_beat_to_the_own_boot(
    here: MachineClock, there: MachineClock
) -> None:
    journal = MemoryJournal(clock=there)
    await write(journal, journal.create(replace(header(), lease=LEASE)), b"{}")
    journal._clock = here
    claim = await journal.claim("r1", AWAY, take_over=True, lease=LEASE)
    info = journal.runs()[0]
    assert (info.boot_id, info.lease_beat) == ("here", 5000_000_000)
    here.advance(1.5)
    await journal.renew(claim, LEASE)

    assert journal.runs()[0].lease_beat == 5001_500_000


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_lease_that_cannot_be_is_named(here: MachineClock, seconds: float) -> None:
    with pytest.raises(ConfigError, match="lease: must be seconds above 0"):
        Lease.begin(seconds, ClockReading.take(here))


def test_the_system_clock_knows_its_boot() -> None:
    own = ClockReading.take(SystemClock())

    assert own.boot_id == ClockReading.take(SystemClock()).boot_id
    assert Owner.parse(ME).host.startswith(socket.gethostname())
    if own.boot_id:
        info = replace(
            RunInfo("r1", "react", "{}", "1", "running", AWAY, 1, 0, "", 1e9),
            **Lease.begin(LEASE, own).fields,
        )
        assert 0 < LeaseWatch(SystemClock()).compute_left(info) <= LEASE


def test_a_time_namespace_has_clocks_of_its_own() -> None:
    alone = ["unshare", "--user", "--map-root-user", "--time", "--boottime", "1000000", "--fork"]  # fmt: skip
    tells = [
        sys.executable,
        "-c",
        "from loopwright.clock import SystemClock as C; print(C().boot_id, C().boot())",
    ]
    try:
        inside = subprocess.run(
            [*alone, *tells], check=True, capture_output=True, text=True
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no time namespace can be made here")
    own = ClockReading.take(SystemClock())

    assert float(inside[1]) > own.boot + 900_000
    assert inside[0] != own.boot_id
    assert inside[0].partition("/")[0] == own.boot_id.partition("/")[0]
