"""Regular expressions that are compiled at their first use, so that an import does not pay for them."""

import re
from typing import Any, cast


class _LatePattern:
    """Stands for a pattern: its methods are looked up once, and are then its own attributes."""

    def __init__(self, source: str, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._source, self._flags), name)
        vars(self)[name] = found
        return found


def compile_late(source: str, flags: int = 0) -> "re.Pattern[str]":
    """Return what can be used as `re.compile` of these would be, and fails at first use where that would fail."""
    return cast("re.Pattern[str]", _LatePattern(source, flags))
