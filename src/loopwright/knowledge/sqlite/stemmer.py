"""Stemmer: reduces words to their stems, by the tokenizer that indexes the items."""

import functools
import sqlite3
import threading
from collections.abc import Container

from ..terms import WORD, beginning_of


class Stemmer:
    """Reduces words to their stems by the tokenizer of FTS5, the same that indexes the items (porter, unicode61)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.executescript(
            """CREATE VIRTUAL TABLE words USING fts5(word, tokenize = 'porter unicode61');
            CREATE VIRTUAL TABLE stems USING fts5vocab(words, 'row');"""
        )
        self.stem = functools.lru_cache(maxsize=20_000)(self._stem)

    def common_stems(self, text: str, beginnings: Container[str]) -> set[str]:
        """Return the stems of the words of a text that begin as one of the words that are looked for.

        `beginnings` are their first letters (`beginning_of`), which stemming keeps: most words need no stemmer.
        """
        words = set(WORD.findall(text.lower()))
        near = [word for word in words if beginning_of(word) in beginnings]
        return {stem for word in near for stem in self.stem(word)}

    def _stem(self, word: str) -> tuple[str, ...]:
        """Return the stem of a word; the tokenizer may see several words in it, or none."""
        with self._lock:
            self._connection.execute("INSERT INTO words VALUES (?)", (word,))
            found = self._connection.execute("SELECT term FROM stems").fetchall()
            self._connection.execute("DELETE FROM words")
        return tuple(stem for (stem,) in found)


@functools.cache
def shared_stemmer() -> Stemmer:
    """Return the stemmer of this process."""
    return Stemmer()
