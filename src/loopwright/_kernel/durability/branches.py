"""What a journal says of branches that end early or one by one."""

from collections.abc import Callable
from typing import Any

from ...events.branches import (
    BranchDelivered,
    BranchesClosed,
    BranchesOpened,
    TimeoutFired,
)
from ...events.effect_key import EffectKey
from ...events.entry import Entry


class BranchRecords:
    """The branches whose time was over, that were given to their engine, or that it left."""

    def __init__(self) -> None:
        self.timed_out: set[str] = set()
        """The effects whose branches were cut off by a time-out."""
        self.closed: set[str] = set()
        """The effects whose branches were cut off since the engine left them."""
        self.open: set[str] = set()
        """The effects beside whose branches the engine works; it has not left them."""
        self.delivered: set[str] = set()
        """The paths of the branches that were given to the engine."""

    def readers(self) -> dict[type[Any], Callable[[Entry, Any], None]]:
        """Return what reads each type of event."""
        return {
            TimeoutFired: self._read_timeout,
            BranchesOpened: self._read_opening,
            BranchDelivered: self._read_delivery,
            BranchesClosed: self._read_closing,
        }

    def is_detached(self, path: str) -> bool:
        """Whether the engine of a branch may have continued although that had not ended."""
        detached = self.open | self.closed | self.timed_out
        return path.rpartition(".")[0] in detached and path not in self.delivered

    def has_delivered(self, key: str) -> bool:
        """Whether a branch around an effect was given to its engine, since it had ended."""
        around = EffectKey.parse(key).around
        return any(place.text in self.delivered for place in around)

    def _read_timeout(self, entry: Entry, event: TimeoutFired) -> None:
        self.timed_out.add(EffectKey.parse(entry.key).place)

    def _read_opening(self, entry: Entry, event: BranchesOpened) -> None:
        self.open.add(EffectKey.parse(entry.key).place)

    def _read_delivery(self, entry: Entry, event: BranchDelivered) -> None:
        effect = EffectKey.parse(entry.key).path
        self.delivered.add(f"{effect}.{event.index}")

    def _read_closing(self, entry: Entry, event: BranchesClosed) -> None:
        effect = EffectKey.parse(entry.key).place
        self.closed.add(effect)
        self.open.discard(effect)

    def forget(self, key: str, event: object) -> None:
        """Forget a delivery, or that the engine left its branches: it works beside them again."""
        effect = EffectKey.parse(key).place
        if isinstance(event, BranchDelivered):
            effect = effect.rpartition(".")[0]
            self.delivered.discard(f"{effect}.{event.index}")
        self.closed.discard(effect)
        self.open.add(effect)
