"""Terms: the words of a text that a search looks for, and their stems."""

import functools
import re
import sqlite3
import threading
from collections.abc import Container

MAX_TERMS = 15
"""The words of a query that count; the others are left out."""
WORD = re.compile(r"\w+")
STOP_WORDS = frozenset(
    WORD.findall(
        """a about after all also am an and any are as at be because been before being but by can could did do does doing for
    from had has have having he her here him his how i if in into is it its just me my no not of on or our out own
    she should so some such than that the their them then there these they this those to too under until up us very was
    we were what when where which while who whom why will with would you your"""
    )
)
"""English words that say nothing about what a text is about."""


def read_terms(text: str, limit: int = MAX_TERMS) -> list[str]:
    """Return the first different words of a text in lower case, without stop words unless there are no others."""
    words = list(dict.fromkeys(WORD.findall(text.lower())))
    content = [word for word in words if word not in STOP_WORDS]
    return (content or words)[:limit]


def beginning_of(word: str) -> str:
    """Return the letters of a word that its stem begins with, too."""
    return word[:2]


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
