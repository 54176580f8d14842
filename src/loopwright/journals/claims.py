"""Which runs may be claimed: those whose owner is gone, or has not renewed its lease for the whole of it."""

import datetime
import math
import threading

from ..clock import Clock, ClockReading
from ..errors import JournalError, RunBusy
from ..events.run import Ending
from .base import RESUMABLE, Journal, RunInfo
from .leases import Lease
from .owner import Owner

MAX_DATE = 253_402_300_799  # the last second of the year 9999, wall clock
MAX_WATCHED = 100_000
"""Leases of other machines that a watch remembers; of more, the first are watched anew."""


class LeaseWatch:
    """Judges leases by the clock of this process, and remembers since when it has seen each of them unrenewed.

    A lease that was given on this boot ends by the clock of the boot. Of any other it is only seen that it is renewed:
    it is over when it was not renewed for its whole length, by the monotonic clock of this process. What wall clocks
    show does not matter, except for a lease without a length, which is of an earlier version. Threads may share it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], tuple[tuple[object, ...], float]] = {}

    def compute_left(self, info: RunInfo) -> float:
        """Return for how many seconds the lease of a run still holds, as far as it can be known; infinite without one."""
        if info.lease_until is None:
            return math.inf
        now = ClockReading.take(self._clock)
        if info.lease_seconds is None:
            return info.lease_until - now.wall
        if self.can_compare_clock(info):
            lease = Lease(None, info.lease_seconds, info.lease_beat)
            return lease.boot_end - now.boot
        return self._find_change(info, now) + info.lease_seconds - now.monotonic

    def can_compare_clock(self, info: RunInfo) -> bool:
        """Return whether the lease of a run was given on this boot, so that this process knows when it ends."""
        own = ClockReading.take(self._clock).boot_id
        return own != "" and info.boot_id == own

    def can_compare_pid(self, info: RunInfo, owner: Owner) -> bool:
        """Return whether the pid of a run's owner is one of this machine, since it was started."""
        boot_ids = info.boot_id, ClockReading.take(self._clock).boot_id
        is_same = "" in boot_ids or boot_ids[0] == boot_ids[1]
        return is_same and owner.has_comparable_pid

    def _find_change(self, info: RunInfo, now: ClockReading) -> float:
        """Return since when the lease is not renewed, by the monotonic clock of this process."""
        key = now.boot_id, info.run_id
        # Not the fence: it rises also where a claim is returned, which leaves the lease as it was.
        mark = info.owner, info.boot_id, info.lease_beat
        with self._lock:
            known = self._seen.get(key)
            if known is None or known[0] != mark:
                known = self._seen[key] = mark, now.monotonic
            if len(self._seen) > MAX_WATCHED:
                del self._seen[next(iter(self._seen))]
        return known[1]


def get_watch(journal: Journal, clock: Clock) -> LeaseWatch:
    """Return the watch by which a journal judges claims, or one with this clock if it has none to share."""
    found: object = getattr(journal, "lease_watch", None)
    return found if isinstance(found, LeaseWatch) else LeaseWatch(clock)


def ensure_claimable(info: RunInfo, take_over: bool, watch: LeaseWatch) -> None:
    """Raise `RunBusy` if a run's owner may still be at work, and `JournalError` if its owner cannot be read."""
    try:
        if take_over or _has_no_live_owner(info, watch):
            return
    except (ValueError, OverflowError) as error:
        raise JournalError(
            f"run {info.run_id!r} has an owner that cannot be read, {info.owner!r}: resume or close it with take_over=True"
        ) from error
    end = ""
    if info.lease_until is not None:
        until = datetime.datetime.fromtimestamp(
            min(info.lease_until, MAX_DATE), datetime.UTC
        )
        left = watch.compute_left(info)
        end = f" until {until:%Y-%m-%d %H:%M:%S} UTC, in {left:.1f} s, unless it renews its lease"
    raise RunBusy(
        f"run {info.run_id!r} is being worked on by {info.owner}{end}: wait for it, "
        "or pass take_over=True to fence it off"
    )


def get_claimed_status(info: RunInfo) -> str:
    """Return the status of a run after a claim: `running`, unless it has ended."""
    return "running" if info.status in RESUMABLE else info.status


def is_orphaned(info: RunInfo, watch: LeaseWatch) -> bool:
    """Return whether a run is `running` without a live owner."""
    return info.status == "running" and is_claimable(info, watch)


def is_claimable(info: RunInfo, watch: LeaseWatch) -> bool:
    """Return whether a run has no owner who may be at work, as far as its owner can be read."""
    try:
        return _has_no_live_owner(info, watch)
    except (ValueError, OverflowError):
        return False  # the owner is unreadable: an operator has to decide


def _has_no_live_owner(info: RunInfo, watch: LeaseWatch) -> bool:
    """Return whether a run has no owner, or one that is dead or whose lease is over."""
    if info.owner is None or watch.compute_left(info) < 0:
        return True
    owner = Owner.parse(info.owner)
    if info.lease_until is not None and not watch.can_compare_pid(info, owner):
        return False  # only the lease says whether the owner is alive
    return not owner.is_alive


def find_ending(info: RunInfo, watch: LeaseWatch) -> Ending:
    """Return how the earlier owner's work ended, before the run is claimed again.

    That a process `died` is only said where it is known: its pid is comparable and gone. An owner that may still be
    alive, whose lease is over or that is fenced off on purpose, has `lost` the run.
    """
    if info.status != "running" or info.owner is None:
        return "left"
    try:
        owner = Owner.parse(info.owner)
    except ValueError:
        return "lost"
    is_known = info.lease_until is None or watch.can_compare_pid(info, owner)
    return "died" if is_known and not owner.is_alive else "lost"
