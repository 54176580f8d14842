"""Streaming in the JSON dialect: the thought, and the answer's string as it is written."""

import json
from collections.abc import Callable, Iterator

from ..._internal.regex import compile_late
from ..base import Delta
from .streaming import StreamStripper

MAX_ESCAPE = len("\\ud83d\\ude00")
ALWAYS_SHOWN = frozenset({"thought", "action"})
ANSWER_KEYS = frozenset({"action_input", "answer"})

# Whole characters and whole escapes; the halves of a surrogate pair stay together.
_CHARACTERS = compile_late(
    r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})++"
)
_BLANK = compile_late(r"[ \t\r\n]*+")


class JsonStreamParser:
    """Parses the first JSON object of a reply as far as its values are strings; anything else ends the stream.

    Args:
        is_answer: whether an action of that name carries the answer.
    """

    def __init__(self, is_answer: Callable[[str], bool]) -> None:
        self._is_answer = is_answer
        self._expected = "{"  # structural characters that may follow; empty in a string
        self._rest = self._before = ""
        self._key = ""
        self._is_in_key = True
        self._string: list[str] = []
        self._has_answer = self._is_over = False
        self._answer = StreamStripper()

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the characters of the thought and of the answer that have arrived."""
        text, self._rest = self._rest + text, ""
        position = 0
        while position < len(text) and not self._is_over:
            if self._expected:
                position = self._read_structure(text, position)
                continue
            found = _CHARACTERS.match(text, position)
            if found is None:
                position = self._end_string(text, position)
            else:
                yield from self._read_characters(str(json.loads(f'"{found[0]}"')))
                position = found.end()

    def _read_structure(self, text: str, position: int) -> int:
        if self._expected == "{":
            return self._find_object(text)
        blank = _BLANK.match(text, position)
        if blank is not None:
            position = blank.end()
        if position == len(text):
            return position
        character = text[position]
        if character not in self._expected or character == "}":
            self._is_over = True
        if character in ",:":
            self._is_in_key = character == ","
            self._expected = '"'
        else:
            self._expected = ""
        return position + 1

    def _find_object(self, text: str) -> int:
        start = text.find("{")
        before = text[start - 1] if start > 0 else self._before
        self._before = text[-1]
        if start < 0:
            return len(text)
        self._is_over = before == "`"  # JSON behind a backtick is an example
        self._expected = '"'
        return start + 1

    def _read_characters(self, text: str) -> Iterator[Delta]:
        if self._is_in_key or self._key == "action":
            self._string.append(text)
            return
        if self._key == "thought":
            yield Delta(reasoning=text)
            return
        answer = self._answer.feed(text)
        if answer:
            yield Delta(text=answer)

    def _end_string(self, text: str, position: int) -> int:
        """Return where the structure continues behind a string; a partial escape waits for the rest."""
        if text[position] != '"':
            self._rest = text[position:]
            self._is_over = self._rest[0] != "\\" or len(self._rest) >= MAX_ESCAPE
            return len(text)
        string, self._string = "".join(self._string), []
        if self._is_in_key:
            self._key, self._expected = string, ":"
            self._is_over = not self._can_show(string)
            return position + 1
        self._expected = ",}"
        if self._key == "action":
            self._has_answer = self._is_answer(string)
        return position + 1

    def _can_show(self, key: str) -> bool:
        """Return whether the value of a key can be shown: the answer only if the action is known."""
        return key in ALWAYS_SHOWN or (self._has_answer and key in ANSWER_KEYS)
