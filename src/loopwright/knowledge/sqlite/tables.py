"""The tables of a knowledge store: items, the keys under which they were stored, and the index of their words."""

import sqlite3

from ...errors import KnowledgeError
from ...storage.formats import Format
from ...storage.kind import FileKind

APPLICATION_ID = 0x4C6F704B  # "LopK"
VERSION = 3
_ADDED = (
    # What the file is made with, such as the embedder of its vectors.
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # Of items that hold. The codes are apart, since all of them are read at the first search.
    "CREATE TABLE vectors (number INTEGER PRIMARY KEY, embedding BLOB NOT NULL)",
    "CREATE TABLE codes (number INTEGER PRIMARY KEY, code BLOB NOT NULL)",
)
"""The tables that format 2 added."""
_MARKED = ("ALTER TABLE items ADD COLUMN marks TEXT NOT NULL DEFAULT '{}'",)
"""The column that format 3 added."""
TABLES = (
    # `marks` are category, tags and relations, as JSON.
    # `digest` names scope, kind, topic and text, so that an item which holds is there once.
    """CREATE TABLE items (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, kind TEXT NOT NULL,
        topic TEXT NOT NULL, score REAL NOT NULL, label TEXT NOT NULL, untrusted INTEGER NOT NULL,
        source_run TEXT NOT NULL, source_key TEXT NOT NULL, valid_from REAL NOT NULL, valid_to REAL,
        scope TEXT NOT NULL, digest BLOB NOT NULL, marks TEXT NOT NULL DEFAULT '{}')""",
    "CREATE UNIQUE INDEX items_by_digest ON items (digest) WHERE valid_to IS NULL",
    "CREATE INDEX items_by_topic ON items (scope, kind, topic) WHERE topic != ''",
    "CREATE INDEX items_by_run ON items (source_run, number) WHERE source_run != ''",
    "CREATE INDEX items_by_scope ON items (scope)",
    # A key is kept as a hash, also when its item is forgotten: storing it again must not bring the item back.
    "CREATE TABLE keys (key_hash BLOB PRIMARY KEY, id TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX keys_by_id ON keys (id) WHERE id != ''",
    # Of items that hold. `scopes` has a token for the item's scope and for each one around it.
    "CREATE VIRTUAL TABLE words USING fts5(text, scopes, tokenize = 'porter unicode61', columnsize = 1)",
    "CREATE VIRTUAL TABLE word_counts USING fts5vocab(words, 'row')",
    *_ADDED,
)


FORMAT = Format(APPLICATION_ID, VERSION, TABLES, steps={1: _ADDED, 2: _MARKED})
KNOWLEDGE = FileKind(
    "knowledge", "SQLiteKnowledge", KnowledgeError, "MemoryKnowledge()", "knowledge.db"
)


def check_made_by(cursor: sqlite3.Cursor, name: str, made_by: str) -> None:
    """Note which embedder a file has, empty for none; raise `KnowledgeError` if it has another."""
    (has_items,) = cursor.execute("SELECT EXISTS (SELECT 1 FROM items)").fetchone()
    if made_by and not has_items:
        cursor.execute("INSERT OR IGNORE INTO facts VALUES ('embedder', ?)", (made_by,))
    known = cursor.execute("SELECT value FROM facts WHERE name = 'embedder'")
    row = known.fetchone()
    found = "" if row is None else str(row[0])
    if found != made_by:
        raise KnowledgeError(
            f"knowledge {name!r}: its vectors are by the embedder {found or 'none'!r}, got {made_by or 'none'!r}; "
            "pass the embedder that it was made with, or store its items in a new file"
        )
