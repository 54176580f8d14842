"""Items of a knowledge store in one SQLite connection: store, supersede, list and forget them."""

import dataclasses
import hashlib
import json
import secrets
import sqlite3
from typing import Any

from ...labels import Label, highest
from ..base import MAX_MARKS, Forget, Relation, Remembered

COLUMNS = "id, text, kind, topic, score, label, untrusted, source_run, source_key, valid_from, valid_to, scope, marks"
NO_MARKS = "{}"
MAX_LEVELS = 100
"""Levels of the index of words after which it is built anew; below 128, they are byte 4 of its structure record."""
INSERT = f"INSERT INTO items ({COLUMNS}, digest) VALUES ({', '.join('?' * 14)})"  # noqa: S608 - constants


def read_item(row: tuple[Any, ...]) -> Remembered:
    """Return the item of a row of `COLUMNS`."""
    (id, text, kind, topic, score, label, untrusted, run, key, start, end, scope, marks) = row  # fmt: skip
    return Remembered(
        text, kind, topic, score, label, bool(untrusted), run, key, start, end, scope, id, *read_marks(marks)
    )  # fmt: skip


def write_marks(item: Remembered) -> str:
    """Return category, tags and relations of an item as they are stored."""
    marks = {
        "category": item.category,
        "tags": list(dict.fromkeys(item.tags)),
        "relations": [[one.kind, one.target] for one in dict.fromkeys(item.relations)],
    }
    return json.dumps({name: mark for name, mark in marks.items() if mark})


def read_marks(stored: str) -> tuple[str, tuple[str, ...], tuple[Relation, ...]]:
    """Return category, tags and relations."""
    if stored == NO_MARKS:
        return "", (), ()
    marks = json.loads(stored)
    relations = (Relation(kind, target) for kind, target in marks.get("relations", ()))
    return marks.get("category", ""), tuple(marks.get("tags", ())), tuple(relations)


def _merge_marks(before: str, item: Remembered) -> str:
    """Return the marks of an item that is stored again: those of both, of too many the newest."""
    category, tags, relations = read_marks(before)
    merged = dataclasses.replace(
        item, category=item.category or category,
        tags=tuple(dict.fromkeys((*item.tags, *tags)))[:MAX_MARKS],
        relations=tuple(dict.fromkeys((*item.relations, *relations)))[:MAX_MARKS],
    )  # fmt: skip
    return write_marks(merged)


def scope_tokens(scope: str) -> str:
    """Return a word for a scope and for each one around it, which the index can look for."""
    parts = scope.split("/") if scope else []
    around = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return " ".join(map(scope_token, around or [""]))


def scope_token(scope: str) -> str:
    """Return the word by which the index finds a scope; its digits have no stem but themselves."""
    number = int.from_bytes(hashlib.sha256(scope.encode()).digest()[:8], "big")
    return f"scope{number}"


def hash_key(key: str) -> bytes:
    """Return what is kept of the key under which an item was stored."""
    return hashlib.sha256(key.encode()).digest()


def _digest(item: Remembered) -> bytes:
    parts = (item.scope, item.kind, item.topic, item.text.strip())
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()


class Items:
    """Writes items; the caller holds a transaction."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def store(self, item: Remembered, key: str, now: float) -> tuple[str, int]:
        """Store an item under a key; return its id, and its number if it is new, else 0."""
        hashed = hash_key(key)
        known = self._cursor.execute(
            "SELECT id FROM keys WHERE key_hash = ?", (hashed,)
        ).fetchone()
        if known is not None:
            return known[0], 0
        id, number = self._find_same(item), 0
        if not id:
            id = secrets.token_hex(8)
            number = self._insert(dataclasses.replace(item, id=id), now)
        self._cursor.execute("INSERT INTO keys VALUES (?, ?)", (hashed, id))
        return id, number

    def has_key(self, key: str) -> bool:
        """Return whether something was stored under a key before."""
        found = self._cursor.execute(
            "SELECT 1 FROM keys WHERE key_hash = ?", (hash_key(key),)
        )
        return found.fetchone() is not None

    def _find_same(self, item: Remembered) -> str:
        """Return the id of the same item, now as sensitive and untrusted as both; empty if there is none."""
        found = self._cursor.execute(
            "SELECT id, label, untrusted, marks FROM items WHERE digest = ? AND valid_to IS NULL",
            (_digest(item),),
        ).fetchone()
        if found is None:
            return ""
        id, before, untrusted, marks = found
        label: Label = highest((before, item.label))
        self._cursor.execute(
            "UPDATE items SET label = ?, untrusted = ?, score = max(score, ?), marks = ? WHERE id = ?",
            (
                label,
                untrusted or item.untrusted,
                item.score,
                _merge_marks(marks, item),
                id,
            ),
        )
        return str(id)

    def _insert(self, item: Remembered, now: float) -> int:
        start = now if item.valid_from is None else item.valid_from
        if item.topic and item.valid_to is None:
            self._supersede(item, start)
        self._cursor.execute(
            INSERT,
            (
                item.id, item.text, item.kind, item.topic, item.score, item.label, item.untrusted, item.source_run,
                item.source_key, start, item.valid_to, item.scope, write_marks(item), _digest(item),
            ),
        )  # fmt: skip
        number = self._cursor.lastrowid or 0
        if item.valid_to is None:
            self._cursor.execute(
                "INSERT INTO words (rowid, text, scopes) VALUES (?, ?, ?)",
                (number, item.text, scope_tokens(item.scope)),
            )
        return number

    def _supersede(self, item: Remembered, now: float) -> None:
        """End the item of the same scope, kind and topic, which searches no longer find."""
        for (number,) in self._cursor.execute(
            "SELECT number FROM items WHERE scope = ? AND kind = ? AND topic = ? AND valid_to IS NULL",
            (item.scope, item.kind, item.topic),
        ).fetchall():
            self._cursor.execute(
                "UPDATE items SET valid_to = ? WHERE number = ?", (now, number)
            )
            self._remove_from_search(number)

    def _remove_from_search(self, number: int) -> None:
        """Remove an item from what searches look into."""
        self._cursor.execute("DELETE FROM words WHERE rowid = ?", (number,))
        self._cursor.execute("DELETE FROM vectors WHERE number = ?", (number,))
        self._cursor.execute("DELETE FROM codes WHERE number = ?", (number,))

    def history(self, id: str) -> list[Remembered]:
        """Return all versions of an item, the oldest first."""
        rows = self._cursor.execute(
            f"SELECT {COLUMNS} FROM items WHERE number IN ({_VERSIONS}) ORDER BY number",  # noqa: S608 - constants
            {"id": id},
        )
        return [read_item(row) for row in rows]

    def forget(self, where: Forget) -> int:
        """Remove items from every table; return how many."""
        conditions, values = _conditions(where)
        numbers = self._cursor.execute(
            f"SELECT number, id FROM items WHERE {conditions}",  # noqa: S608 - constants
            values,
        ).fetchall()
        for number, id in numbers:
            self._remove_from_search(number)
            self._cursor.execute("DELETE FROM items WHERE number = ?", (number,))
            self._cursor.execute("UPDATE keys SET id = '' WHERE id = ?", (id,))
        if numbers:
            self._merge_index()
        return len(numbers)

    def _merge_index(self) -> None:
        """Remove deleted words from the index: FTS5 only marks them until its segments are merged into one.

        Each merge adds a level, and an index with 2,000 of them cannot be read any more: a new one has few.
        """
        (structure,) = self._cursor.execute(
            "SELECT block FROM words_data WHERE id = 10"
        ).fetchone()
        way = "rebuild" if structure[4] >= MAX_LEVELS else "optimize"
        self._cursor.execute("INSERT INTO words (words) VALUES (?)", (way,))


_VERSIONS = """SELECT other.number FROM items AS one JOIN items AS other
    ON one.number = other.number
    OR one.topic != '' AND one.topic = other.topic AND one.scope = other.scope AND one.kind = other.kind
    WHERE one.id = :id"""


def _conditions(where: Forget) -> tuple[str, dict[str, str]]:
    """Return the SQL condition of what to forget, and its values."""
    scope = where.scope.strip("/")
    known = {
        f"number IN ({_VERSIONS})": where.id,
        "(scope = :scope OR substr(scope, 1, length(:scope) + 1) = :scope || '/')": scope,
        "kind = :kind": where.kind,
        "topic = :topic": where.topic,
        "source_run = :source_run": where.source_run,
    }
    conditions = " AND ".join(text for text, value in known.items() if value)
    values = dataclasses.asdict(where) | {"scope": scope}
    return conditions, values
