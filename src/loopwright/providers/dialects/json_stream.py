"""Tells a reply in the JSON dialect while it comes: the thought, and the answer's string as it is written."""

import json
import re
from collections.abc import Callable, Iterator

from ..base import Delta
from .streaming import Trimmed

LONGEST_ESCAPE = len("\\ud83d\\ude00")

# Whole letters and whole escapes; the halves of a pair stay together.
_LETTERS = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})++"
)
_BLANK = re.compile(r"[ \t\r\n]*+")


class JsonWatch:
    """Reads the first JSON object of a reply as far as its values are strings; anything else ends the telling.

    Args:
        is_answer: whether an action of that name ends with an answer.
    """

    def __init__(self, is_answer: Callable[[str], bool]) -> None:
        self._is_answer = is_answer
        self._wanted = "{"  # the letters of the structure that may come next; none inside of a string
        self._rest = self._before = ""
        self._key = ""
        self._reads_key = True
        self._string: list[str] = []
        self._has_answer = self._is_over = False
        self._answer = Trimmed()

    def feed(self, text: str) -> Iterator[Delta]:
        """The words of the thought and of the answer that have come."""
        text, self._rest = self._rest + text, ""
        position = 0
        while position < len(text) and not self._is_over:
            if self._wanted:
                position = self._take_structure(text, position)
                continue
            letters = _LETTERS.match(text, position)
            if letters is None:
                position = self._take_end(text, position)
            else:
                yield from self._take_letters(str(json.loads(f'"{letters[0]}"')))
                position = letters.end()

    def _take_structure(self, text: str, position: int) -> int:
        if self._wanted == "{":
            return self._take_opening(text)
        blank = _BLANK.match(text, position)
        position = blank.end() if blank is not None else position
        if position == len(text):
            return position
        letter = text[position]
        self._is_over = letter not in self._wanted or letter == "}"
        self._reads_key = letter == "," or (self._reads_key and letter != ":")
        self._wanted = {",": '"', ":": '"'}.get(letter, "")
        return position + 1

    def _take_opening(self, text: str) -> int:
        start = text.find("{")
        before = text[start - 1] if start > 0 else self._before
        self._before = text[-1]
        if start < 0:
            return len(text)
        self._is_over = before == "`"  # then the object is only an example
        self._wanted = '"'
        return start + 1

    def _take_letters(self, words: str) -> Iterator[Delta]:
        if self._reads_key or self._key == "action":
            self._string.append(words)
        elif self._key == "thought":
            yield Delta(reasoning=words)
        else:
            said = self._answer.feed(words)
            yield from [Delta(text=said)] if said else []

    def _take_end(self, text: str, position: int) -> int:
        """Where the structure goes on behind a string; what may be half an escape waits for the rest."""
        if text[position] != '"':
            self._rest = text[position:]
            self._is_over = self._rest[0] != "\\" or len(self._rest) >= LONGEST_ESCAPE
            return len(text)
        said, self._string = "".join(self._string), []
        if self._reads_key:
            self._key, self._wanted = said, ":"
            self._is_over = not self._is_known(said)
        else:
            self._wanted = ",}"
            if self._key == "action":
                self._has_answer = self._is_answer(said)
        return position + 1

    def _is_known(self, key: str) -> bool:
        """Whether the value of a key can be told: an answer only once the action is known."""
        return key in ("thought", "action") or (
            key in ("action_input", "answer") and self._has_answer
        )
