"""What the hooks of a recorded run did, by place and stage."""

from collections import defaultdict

from ...events.entry import Entry
from ...events.hooks import HookRan
from .effects import Readers


class HookRecords:
    """What hooks did, in the order of the entries."""

    def __init__(self) -> None:
        self._records: dict[str, list[HookRan]] = defaultdict(list)

    def readers(self) -> Readers:
        """Return what reads each type of event."""
        return {HookRan: self._read}

    def _read(self, entry: Entry, event: HookRan) -> None:
        self._records[entry.key].append(event)

    def find(self, key: str, stage: str) -> list[HookRan]:
        """Return what hooks did at a stage of an effect."""
        if key not in self._records:
            return []
        return [one for one in self._records[key] if one.stage == stage]

    def forget(self, key: str) -> None:
        """Forget what hooks did at an effect, which begins again."""
        self._records.pop(key, None)
