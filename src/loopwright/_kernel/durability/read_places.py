"""What was read where in a run: a branch is as sensitive as what it read, and not as what others read meanwhile."""

from ...events.effect_key import EffectKey
from ...labels import LABELS, Label, highest

CLEAN: tuple[Label, bool] = ("public", False)


class ReadPlaces:
    """How sensitive what each scope has read is, by its path, and whether any of it came from outside."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Label, bool]] = {}
        self._branches: set[str] = set()

    def note(self, key: str, label: Label, untrusted: bool) -> None:
        """Note that something was read at a key; what has no place was read by all."""
        path = EffectKey.parse(key).path
        known, was_untrusted = self._read.get(path, CLEAN)
        if label != known:
            known = highest((known, label))
        self._read[path] = known, was_untrusted or untrusted

    def open(self, path: str) -> None:
        """Note that a branch begins, beside those that begin with it."""
        self._branches.add(path)

    def lower(self, label: Label, *, trusted: bool) -> None:
        """Lower what was read so far to a label, and let it count as trusted."""
        lowest = LABELS.index(label)
        self._read = {
            path: (LABELS[min(LABELS.index(known), lowest)], untrusted and not trusted)
            for path, (known, untrusted) in self._read.items()
        }

    def at(self, path: str) -> tuple[Label, bool]:
        """Return what counts in a scope: all but what branches beside it have read."""
        counting = [
            read
            for place, read in self._read.items()
            if not self._is_beside(place, path)
        ]
        label = highest(("public", *(label for label, _ in counting)))
        return label, any(untrusted for _, untrusted in counting)

    def _is_beside(self, path: str, other: str) -> bool:
        """Whether two scopes are in different branches that began together."""
        if not self._branches:
            return False
        one, two = path.split("."), other.split(".")
        shared = next(
            (n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None
        )
        if shared is None:
            return False
        places = {".".join(one[: shared + 1]), ".".join(two[: shared + 1])}
        return places <= self._branches
