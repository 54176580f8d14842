"""Remember the branches that were cut off, in which nothing new begins."""

import asyncio
from collections.abc import Iterable


class Cuts:
    """The branches of effects that were cut off: their time was over.

    Such a branch replays what it had done, and is cancelled where it comes to something
    new. So it ends at the same place as before, whatever it does with the cancellation.
    """

    def __init__(self, effects: Iterable[str]) -> None:
        self._prefixes: tuple[str, ...] = ()
        for key in effects:
            self.add(key)

    def add(self, effect: str) -> None:
        """Cut off all branches of an effect."""
        self._prefixes = (*self._prefixes, f"{effect}.")

    def has(self, effect: str) -> bool:
        """Whether the branches of this very effect were cut off."""
        return f"{effect}." in self._prefixes

    def is_cut(self, place: str) -> bool:
        """Whether a key, or the path of a scope, is inside a branch that was cut off."""
        return place.startswith(self._prefixes)

    def exclude(self, places: Iterable[str]) -> set[str]:
        """Return the places that are in no branch that was cut off."""
        return {place for place in places if not self.is_cut(place)}

    def check(self, place: str) -> None:
        """Raise `CancelledError` at a place inside a branch that was cut off."""
        if self.is_cut(place):
            raise asyncio.CancelledError(f"{place} is in a branch that was cut off")
