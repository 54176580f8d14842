"""Somebody changes a journal with SQL: every column of every table, whole rows, the tail, the chain with its head."""

import contextlib
import dataclasses
import itertools
import math
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from damaged_journals import Made, judged, made
from fault_sizes import figure, sized
from loopwright.events import Entry
from loopwright.journals import SQLiteJournal, chain_hash

# What a run's entries cannot tell: the order of rows, how long a claim holds, and who made it if no entry followed.
FREE = {
    ("events", "id"),
    *(
        ("runs", name)
        for name in ("lease_until", "lease_seconds", "lease_beat", "boot_id", "follows")
    ),
}
OF_RUNS = ("runs", "events", "blobs")
OF_A_CLAIM = {("runs", "owner"), ("runs", "fence")}
STATUSES = ("completed", "failed", "waiting", "suspended", "running", "stuck")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(tmp_path_factory.mktemp("made"))


@pytest.fixture
def path(kept: Made, tmp_path: Path) -> Path:
    return kept.put(tmp_path / "copy")


@pytest.fixture
def sql(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield connection


def columns(sql: sqlite3.Connection) -> list[tuple[str, str]]:
    """The tables that hold runs with all their columns; the others find runs or say that one is gone."""
    tables = [
        name
        for (name,) in sql.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        )
    ]
    return [
        (table, row[1])
        for table in tables
        for row in sql.execute(f"PRAGMA table_info({table})")
        if table in OF_RUNS
    ]


def others(value: object) -> Sequence[object]:
    """What could stand in a value's place: near it, of another type, nothing."""
    match value:
        case bool():
            return ()
        case int():
            return (value + 1, value - 1, -value, 0, value + 0.5, f"{value}!", None)
        case float():
            return (
                math.nextafter(value, math.inf),
                -value,
                int(value),
                f"{value}!",
                None,
            )
        case str():
            near = (
                f"{value} ",
                value[:-1],
                value.upper(),
                value[::-1],
                value.encode(),
                "",
                0,
                None,
            )
            return (*near, *STATUSES) if value in STATUSES else near
        case bytes():
            return (
                value[:-1],
                value + b" ",
                value.swapcase(),
                value.decode("utf-8", "replace"),
                b"",
                0,
                None,
            )
        case _:
            return (0, 1, "vm|1|1|somebody", "", b"", 1.5)


def tampered(
    sql: sqlite3.Connection, table: str, column: str, row: int
) -> Iterator[str]:
    """Change one value in all these ways, each undone before the next; gives what stood there."""
    stored = f"SELECT {column}, typeof({column}) FROM {table} WHERE rowid = ?"
    before = sql.execute(stored, (row,)).fetchone()
    for other in others(before[0]):
        moved = other if column == "id" and isinstance(other, int) else row
        try:
            sql.execute(
                f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (other, row)
            )
        except (
            sqlite3.IntegrityError
        ):  # a column that must hold something, or what is there only once
            continue
        if (
            sql.execute(stored, (moved,)).fetchone() != before
        ):  # SQLite reads '5!' as text, but 5.0 as 5
            yield f"{before[0]!r:.60} -> {other!r:.60}"
        sql.execute(
            f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (before[0], moved)
        )


def concerned(sql: sqlite3.Connection, table: str, row: int) -> str:
    """The run that a row belongs to."""
    by = "SELECT run_id FROM events JOIN blobs ON body = 'sha256:' || sha256 WHERE blobs.rowid = ?"
    (run_id,) = sql.execute(
        by if table == "blobs" else f"SELECT run_id FROM {table} WHERE rowid = ?",
        (row,),
    ).fetchone()
    return str(run_id)


def test_every_change_to_any_column_is_found(
    kept: Made, path: Path, sql: sqlite3.Connection
) -> None:
    chance, tried, missed = random.Random(3), Counter[str](), list[str]()
    for table, column in columns(sql):
        rows = [number for (number,) in sql.execute(f"SELECT rowid FROM {table}")]
        for row in (
            rows if table != "events" else chance.sample(rows, sized(6, len(rows)))
        ):
            run_id = concerned(sql, table, row)
            for change in tampered(sql, table, column, row):
                found = judged(path, run_id, kept)
                covered = (table, column) not in FREE and (
                    (table, column) not in OF_A_CLAIM or run_id != "open"
                )
                tried[table] += covered
                if covered and found == "whole" and not raised(table, column, change):
                    missed.append(f"{run_id}: {table}.{column}: {change}")

    assert missed == []
    assert len(tried) == 3
    figure(
        "values changed with SQL",
        f"{tried.total()} in every column of {len(tried)} tables, all of them found",
    )


def raised(table: str, column: str, change: str) -> bool:
    """Whether a fence was raised, and with it the owner made free: what a claim does that writes nothing."""
    before, _, after = change.partition(" -> ")
    return (
        (table, column) == ("runs", "fence")
        and after.isdigit()
        and int(after) > int(before)
    )


def test_what_only_a_claim_can_tell_changes_no_entry(
    kept: Made, path: Path, sql: sqlite3.Connection
) -> None:
    """A fence that was raised is a claim that wrote nothing; an owner that was changed is one that may be at work."""
    for table, column in FREE | OF_A_CLAIM:
        for (row,) in sql.execute(
            f"SELECT rowid FROM {table} WHERE run_id = 'open'"
        ).fetchall():
            for _ in tampered(sql, table, column, row):
                assert judged(path, "open", kept) in ("whole", "found")


def test_rows_that_are_swapped_or_moved_are_found(
    kept: Made, path: Path, sql: sqlite3.Connection
) -> None:
    names = ["run_id", "seq", "key", "kind", "at", "v", "fence", "body", "hash"]
    rows = sql.execute(
        "SELECT id FROM events WHERE run_id = 'plain' ORDER BY seq"
    ).fetchall()
    for (one,), (other,) in itertools.islice(
        itertools.combinations(rows, 2), sized(10, 1000)
    ):
        for column in ("body", "hash", "at", "body, hash", ", ".join(names[2:])):
            differ = swap(sql, column, one, other)
            assert judged(path, "plain", kept) == ("found" if differ else "whole")
            swap(sql, column, one, other)

    sql.execute("UPDATE events SET run_id = 'third' WHERE run_id = 'plain'")
    sql.execute("UPDATE runs SET run_id = 'third' WHERE run_id = 'plain'")
    assert judged(path, "plain", kept) == "found"
    assert not SQLiteJournal(path).verify("third").ok


def swap(sql: sqlite3.Connection, names: str, one: int, other: int) -> bool:
    """Let two rows of `events` change these columns; gives whether they held different values."""
    first, second = (
        sql.execute(f"SELECT {names} FROM events WHERE id = ?", (row,)).fetchone()
        for row in (one, other)
    )
    setting = ", ".join(f"{name} = ?" for name in names.split(", "))
    sql.execute(f"UPDATE events SET {setting} WHERE id = ?", (*second, one))
    sql.execute(f"UPDATE events SET {setting} WHERE id = ?", (*first, other))
    return bool(first != second)


@pytest.mark.parametrize("lost", range(1, 8))
def test_a_tail_cut_off_with_its_head_is_found_by_the_head_that_the_caller_kept(
    kept: Made, path: Path, sql: sqlite3.Connection, lost: int
) -> None:
    for run_id, entries in kept.entries.items():
        left = entries[:-lost]
        sql.execute(
            "DELETE FROM events WHERE run_id = ? AND seq > ?", (run_id, len(left))
        )
        move_head(sql, left)
        sql.execute("UPDATE runs SET status = 'running' WHERE run_id = ?", (run_id,))

        assert judged(path, run_id, kept) in ("cut", "found")
        assert not SQLiteJournal(path).verify(run_id, kept.infos[run_id].head_hash).ok


@pytest.mark.parametrize(
    "changed",
    [{"body": b"{}"}, {"key": "9"}, {"at": 1.5}, {"fence": 9}, {"kind": "fact_noted"}],
)
def test_a_chain_that_was_written_anew_is_found_by_the_head_that_the_caller_kept(
    kept: Made, path: Path, sql: sqlite3.Connection, changed: dict[str, object]
) -> None:
    for run_id, entries in kept.entries.items():
        forged = forge(entries, 4, changed)
        for entry in forged:
            values = (
                entry.key,
                entry.kind,
                entry.at,
                entry.fence,
                entry.hash,
                run_id,
                entry.seq,
            )
            sql.execute(
                "UPDATE events SET key=?, kind=?, at=?, fence=?, hash=? WHERE run_id=? AND seq=?",
                values,
            )
        sql.execute(
            "UPDATE events SET body = ? WHERE run_id = ? AND seq = 4",
            (forged[3].body, run_id),
        )
        move_head(sql, forged)

        assert not SQLiteJournal(path).verify(run_id, kept.infos[run_id].head_hash).ok
        if "fence" not in changed:
            assert (
                SQLiteJournal(path).verify(run_id).ok
            )  # who keeps no head cannot know


def forge(
    entries: Sequence[Entry], seq: int, changed: dict[str, object]
) -> list[Entry]:
    """The entries with one of them changed, and a chain that fits."""
    forged: list[Entry] = []
    for entry in entries:
        bare = Entry(
            **{**dataclasses.asdict(entry), **(changed if entry.seq == seq else {})}
        )
        hashed = chain_hash(forged[-1].hash if forged else "", bare)
        forged.append(dataclasses.replace(bare, hash=hashed))
    return forged


def move_head(sql: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    """Let a run's row say that it ends where these entries end."""
    head = entries[-1]
    values = (head.seq, head.hash, head.run_id)
    sql.execute("UPDATE runs SET head_seq = ?, head_hash = ? WHERE run_id = ?", values)


def test_a_journal_put_in_the_place_of_a_newer_one_is_found(
    kept: Made, tmp_path: Path
) -> None:
    """An older copy of the whole file is a shorter run, or none: the head that the caller kept tells."""
    path = kept.put(tmp_path / "older")
    Path(f"{path}-wal").unlink()

    assert {run_id: judged(path, run_id, kept) for run_id in kept.infos} == {
        "plain": "whole", "large": "whole", "another": "found", "open": "found",
    }  # fmt: skip
