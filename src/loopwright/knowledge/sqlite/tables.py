"""The tables of a knowledge store: items, the keys under which they were stored, and the index of their words."""

import sqlite3

from ...errors import KnowledgeError

APPLICATION_ID = 0x4C6F704B  # "LopK"
VERSION = 1
TABLES = (
    # `digest` names scope, kind, topic and text, so that an item which holds is there once.
    """CREATE TABLE items (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, kind TEXT NOT NULL,
        topic TEXT NOT NULL, score REAL NOT NULL, label TEXT NOT NULL, untrusted INTEGER NOT NULL,
        source_run TEXT NOT NULL, source_key TEXT NOT NULL, valid_from REAL NOT NULL, valid_to REAL,
        scope TEXT NOT NULL, digest BLOB NOT NULL)""",
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
)


def prepare(connection: sqlite3.Connection, name: str) -> None:
    """Make the tables of a new file; raise `KnowledgeError` for another program's file, or another format."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        connection.execute("BEGIN IMMEDIATE")
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    elif application != APPLICATION_ID:
        raise KnowledgeError(
            f"knowledge {name!r}: is another program's database; choose another path"
        )
    elif version != VERSION:
        raise KnowledgeError(
            f"knowledge {name!r}: has format {version}, this version reads format {VERSION}; "
            "use the version of loopwright that wrote it, or start a new file"
        )
