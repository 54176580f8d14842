"""How much work a regular expression may be: its wildcards and counted repeats, none of which is inside another."""

import re

from ..errors import ConfigError

_COUNT = re.compile(r"\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}")
_ESCAPE = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|.)", re.DOTALL)
_CLASS_ESCAPES = frozenset("pPdDsSwW")


class _Scan:
    """A pass over an expression that was compiled already, so it is well-formed."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._place = pattern, 0
        self._groups = [False]  # whether each open group holds a counted repeat
        self._is_repeated = False  # whether the last atom does
        self.weight = 0

    def run(self) -> int:
        """Return the weight; raise `ConfigError` for a counted repeat inside another."""
        while self._place < len(self._pattern):
            self._place += self._step(self._pattern[self._place])
        return self.weight

    def _step(self, character: str) -> int:
        """Read one part, and return its length."""
        count = _COUNT.match(self._pattern, self._place)
        if count is not None:
            self._count(max(int(number) for number in count.groups() if number))
            return len(count[0])
        if character in "?*+|":
            self.weight += 1  # a repeat keeps the atom before it
            return 1
        if character == ")":
            inner = self._groups.pop() if len(self._groups) > 1 else False
            self._groups[-1] = self._groups[-1] or inner
            self._is_repeated = inner
            return 1
        self._is_repeated = False
        return self._step_atom(character)

    def _step_atom(self, character: str) -> int:
        if character == "(":
            self._groups.append(False)
        elif character == "\\":
            escape = _ESCAPE.match(self._pattern, self._place)
            self.weight += self._pattern[self._place + 1] in _CLASS_ESCAPES
            return len(escape[0]) if escape else 1
        elif character == "[":
            self.weight += 1
            return self._skip_class()
        else:
            self.weight += character == "."
        return 1

    def _skip_class(self) -> int:
        """Return the length of a character class, which may hold others."""
        depth, place = 0, self._place
        while place < len(self._pattern):
            character = self._pattern[place]
            depth += (character == "[") - (character == "]")
            place += 2 if character == "\\" else 1
            is_literal = self._pattern[place - 1 : place + 1] in ("[]", "^]")
            if depth == 1 and is_literal and place <= self._place + 2:
                place += 1  # a bracket that stands first is a character
            if depth == 0:
                break
        return place - self._place

    def _count(self, count: int) -> None:
        if count > 1:
            if self._is_repeated:
                raise ConfigError(
                    f"{self._pattern!r} has a counted repeat inside another, which multiply; "
                    "write one of them, or use max_length"
                )
            self._is_repeated = self._groups[-1] = True
        self.weight += count


def measure_expression(pattern: str) -> int:
    """Return the weight of an expression: the states of its automaton, roughly, but for its letters.

    Raises `ConfigError` for a counted repeat inside another one, such as `(a{1,9}b){1,9}`.
    """
    return _Scan(pattern).run()
