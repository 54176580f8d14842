"""The formats of a journal's file."""

from ...storage.formats import Format
from ..metrics import COUNTED

# Not `IN`: SQLite would make a table of the kinds whenever an entry is written, which costs a fifth of the append.
COUNTED_EVENTS = " OR ".join(f"kind = '{kind}'" for kind in COUNTED)
"""The condition of the entries that metrics are made of; an index serves the queries that have it word for word."""
_ADDED_COLUMNS = (
    "wake_at REAL NOT NULL DEFAULT 0",
    "app_version TEXT NOT NULL DEFAULT ''",
    "tags TEXT NOT NULL DEFAULT '{}'",
    "thread TEXT NOT NULL DEFAULT ''",
    "agent TEXT NOT NULL DEFAULT ''",
    "lease_seconds REAL",
    "lease_beat INTEGER NOT NULL DEFAULT 0",
    "boot_id TEXT NOT NULL DEFAULT ''",
    "follows TEXT",
)
"""The columns that format 2 added to the table `runs`."""
_ADDED_TABLES = (
    # In the order of the runs, so that its row numbers sort as theirs do.
    """CREATE TABLE run_tags (
        id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (run_id, name))""",
    # What is left of a deleted run: `name_hash` is the SHA-256 of its id.
    """CREATE TABLE tombstones (
        name_hash TEXT PRIMARY KEY, head_hash TEXT NOT NULL, deleted_by TEXT NOT NULL, deleted_at REAL NOT NULL)""",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "INSERT INTO facts VALUES ('journal_id', :new_id)",
)
_DEFAULTS = """0.0 AS wake_at, '' AS app_version, '{}' AS tags, '' AS thread, '' AS agent, NULL AS lease_seconds,
               0 AS lease_beat, '' AS boot_id, NULL AS follows"""

# `at` has no column type: SQLite would turn 1 into 1.0 and -0.0 into 0.0, but the entry's hash covers the exact number.
# `events.body` is a BLOB, or TEXT for a body in `blobs`, so that the two cannot be confused.
RUNS = Format(
    0x4C6F7057,  # "LopW"
    2,
    (
        f"""CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, engine TEXT NOT NULL, options TEXT NOT NULL, version TEXT NOT NULL,
        status TEXT NOT NULL, owner TEXT, fence INTEGER NOT NULL, lease_until REAL,
        head_seq INTEGER NOT NULL, head_hash TEXT NOT NULL, parent_run TEXT, fork_seq INTEGER, created NOT NULL,
        {", ".join(_ADDED_COLUMNS)})""",
        """CREATE TABLE events (
        id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL,
        at NOT NULL, v INTEGER NOT NULL, fence INTEGER NOT NULL, body BLOB NOT NULL, hash TEXT NOT NULL,
        UNIQUE (run_id, seq))""",
        "CREATE TABLE blobs (sha256 TEXT PRIMARY KEY, bytes BLOB NOT NULL)",
        *_ADDED_TABLES,
    ),
    (
        "CREATE INDEX IF NOT EXISTS runs_by_status ON runs (status)",
        "CREATE INDEX IF NOT EXISTS runs_by_engine ON runs (engine)",
        "CREATE INDEX IF NOT EXISTS runs_by_time ON runs (created)",
        "CREATE INDEX IF NOT EXISTS runs_by_thread ON runs (thread) WHERE thread != ''",
        "CREATE INDEX IF NOT EXISTS runs_by_agent ON runs (agent) WHERE agent != ''",
        "CREATE INDEX IF NOT EXISTS runs_by_follows ON runs (follows) WHERE follows IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS runs_by_parent ON runs (parent_run) WHERE parent_run IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS runs_by_wake ON runs (wake_at) WHERE wake_at > 0",
        "CREATE INDEX IF NOT EXISTS events_by_blob ON events (body) WHERE typeof(body) = 'text'",
        "CREATE INDEX IF NOT EXISTS tags_by_value ON run_tags (name, value)",
        # Holds a few entries of a run only, so other appends do not pay for it.
        f"CREATE INDEX IF NOT EXISTS events_counted ON events (run_id) WHERE {COUNTED_EVENTS}",
    ),
    {
        1: (
            *(f"ALTER TABLE runs ADD COLUMN {column}" for column in _ADDED_COLUMNS),
            *_ADDED_TABLES,
        )
    },
    {
        1: (
            f"CREATE TEMP VIEW runs AS SELECT rowid, *, {_DEFAULTS} FROM main.runs",  # noqa: S608 - constants
            "CREATE TEMP TABLE run_tags (id INTEGER, run_id TEXT, name TEXT, value TEXT)",
            "CREATE TEMP TABLE tombstones (name_hash TEXT, head_hash TEXT, deleted_by TEXT, deleted_at REAL)",
            "CREATE TEMP TABLE facts (name TEXT, value TEXT)",
        )
    },
)
