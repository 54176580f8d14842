"""The calls of a run that did not succeed, which models are to remember longest."""

import itertools

from ..._internal import dataclasses
from ...events.effects import ToolFinished

FAILED = ("error", "timed_out", "unknown")
MAX_TEXT = 200
"""Characters of an error that are kept for a line."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """A call that did not succeed: its tool, and what the model was told."""

    tool: str
    text: str


class Failures:
    """The failed calls of one run, by their keys."""

    def __init__(self) -> None:
        self._by_key: dict[str, Failure] = {}

    def note(self, key: str, finished: ToolFinished) -> None:
        """Note how a call failed."""
        text = " ".join(finished.content[: 2 * MAX_TEXT].split())
        self._by_key[key] = Failure(finished.tool, text[:MAX_TEXT])

    def list_newest(self, count: int) -> list[Failure]:
        """Return the newest failures, each once, the oldest of them first."""
        recent = itertools.islice(reversed(self._by_key.values()), 4 * count)
        newest = list(dict.fromkeys(recent))[:count]
        return newest[::-1]

    def __contains__(self, key: object) -> bool:
        return key in self._by_key
