"""A lease as a journal stores it: how long it is, and when it was last renewed by which clock."""

import math
from typing import Any

from .._internal import dataclasses
from ..clock import ClockReading
from ..errors import ConfigError

_BEATS_A_SECOND = 1_000_000


@dataclasses.dataclass(frozen=True)
class Lease:
    """The lease of a run: the fields of `RunInfo` that a claim and each renewal set.

    Args:
        lease_until: its end by the owner's wall clock, which is shown to people and decides nothing.
        lease_seconds: its length.
        lease_beat: when it was given, in microseconds of the boot clock of the owner's machine; it grows with each
            renewal.
        boot_id: the boot of that machine.
    """

    lease_until: float | None = None
    lease_seconds: float | None = None
    lease_beat: int = 0
    boot_id: str = ""

    @classmethod
    def begin(cls, seconds: float | None, now: ClockReading) -> "Lease":
        """Return a lease that is given now, or none; raise `ConfigError` for an invalid duration."""
        beat = math.ceil(now.boot * _BEATS_A_SECOND)
        if seconds is None:
            return cls(None, None, beat, now.boot_id)
        if not 0 < seconds < math.inf:
            raise ConfigError(f"lease: must be seconds above 0, got {seconds!r}")
        return cls(now.wall + seconds, seconds, beat, now.boot_id)

    @property
    def boot_end(self) -> float:
        """Return the end by the boot clock of the owner's machine, in seconds; infinite without a lease."""
        if self.lease_seconds is None:
            return math.inf
        return self.lease_beat / _BEATS_A_SECOND + self.lease_seconds

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of `RunInfo` to store."""
        return dataclasses.asdict(self)
