"""Remember the branches that were cut off, in which nothing new begins."""

import asyncio
from collections.abc import Iterable
from typing import Literal, TypeAlias

from ..._internal.own_errors import read_own_error
from ..durability.branches import BranchRecords

CallStatus: TypeAlias = Literal["timed_out", "cancelled"]


class Cuts:
    """The branches of effects that were cut off: their time was over, or the engine left them.

    Such a branch replays what it had done, and is cancelled where it comes to something
    new. So it ends at the same place as before, whatever it does with the cancellation.
    """

    def __init__(self, recorded: BranchRecords) -> None:
        self.are_any = False
        """Whether any branch was cut off, which a caller may ask before it asks about one."""
        self._statuses: dict[str, CallStatus] = {}
        self._prefixes: tuple[str, ...] = ()
        self._delivered = tuple(f"{path}." for path in recorded.delivered)
        for effect in recorded.closed:
            self.add(effect, "cancelled")
        for effect in recorded.timed_out:
            self.add(effect, "timed_out")

    def add(self, effect: str, status: CallStatus) -> None:
        """Cut off all branches of an effect; calls that are under way in them get that status."""
        self._statuses[f"{effect}."] = status
        self._prefixes, self.are_any = tuple(self._statuses), True

    def has(self, effect: str) -> bool:
        """Whether the branches of this very effect were cut off."""
        return f"{effect}." in self._statuses

    def is_cut(self, place: str) -> bool:
        """Whether a key, or the path of a scope, is inside a branch that was cut off.

        One that was given to its engine before had ended, whatever is around it.
        """
        if not place.startswith(self._prefixes):
            return False
        ended = _match(self._delivered, f"{place}.")
        return len(_match(self._prefixes, place)) > len(ended)

    def call_status(self, key: str) -> CallStatus | None:
        """Return the status of a call that was cut off; `None` if it was not."""
        return self._statuses.get(_match(self._prefixes, key))

    def exclude(self, places: Iterable[str]) -> set[str]:
        """Return the places that are in no branch that was cut off."""
        return {place for place in places if not self.is_cut(place)}

    def check(self, place: str) -> None:
        """Raise `CancelledError` at a place inside a branch that was cut off."""
        if self.is_cut(place):
            raise asyncio.CancelledError(f"{place} is in a branch that was cut off")

    def read_own_error(
        self, place: str, raised: Exception | asyncio.CancelledError
    ) -> Exception:
        """Return what code at a place raised by itself; raise a cancellation of its task or its branch."""
        if isinstance(raised, asyncio.CancelledError):
            self.check(place)
        return read_own_error(raised)


def _match(prefixes: tuple[str, ...], place: str) -> str:
    """Return the longest prefix that a place has; empty without one."""
    return max(filter(place.startswith, prefixes), key=len, default="")
