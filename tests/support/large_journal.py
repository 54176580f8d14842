"""A journal file of many runs, made in seconds: their rows as the journal writes them, without entries."""

import contextlib
import sqlite3
from pathlib import Path

from loopwright.journals import SQLiteJournal
from loopwright.journals.sqlite.file import JournalFile


def make_large_journal(path: Path, runs: int) -> SQLiteJournal:
    """Return a journal of `runs` runs, of which few have a rare engine, an agent, a thread or wait."""
    with JournalFile(path, "NORMAL", 5.0).writing():
        pass
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executemany(
            """INSERT INTO runs (run_id, engine, options, version, status, fence, head_seq, head_hash, created, tags,
                                 thread, agent)
               VALUES (?, ?, '{}', '1', ?, 1, 0, '', ?, ?, ?, ?)""",
            (_row(number) for number in range(runs)),
        )
        connection.executemany(
            "INSERT INTO run_tags (run_id, name, value) VALUES (?, ?, ?)",
            (
                (f"r{number}", name, value)
                for number in range(runs)
                for name, value in (("user", f"{number % 5000}"), ("tenant", "acme"))
            ),
        )
        connection.commit()
    return SQLiteJournal(path)


def _row(number: int) -> tuple[object, ...]:
    is_rare = number % 1000 == 7
    return (
        f"r{number}",
        "rare" if is_rare else "react",
        "waiting" if is_rare else "completed",
        1e9 + number,
        f'{{"user": "{number % 5000}", "tenant": "acme"}}',
        f"t{number}" if number % 2 else "",
        "clerk" if is_rare else "",
    )
