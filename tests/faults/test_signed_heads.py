"""Somebody who can write the journal changes what lies behind a signed head, and each of these changes is found."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import random
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fault_sizes import figure, sized
from loopwright import ConfigError, MemoryJournal, ReActEngine, Runtime, tool
from loopwright.errors import JournalError
from loopwright.events import Entry
from loopwright.journals import SQLiteJournal, chain_hash
from loopwright.security import (
    Anchor,
    Ed25519Signer,
    KeyFile,
    PublicKey,
    SignedHeads,
    check_anchors,
    read_anchors,
)
from loopwright.testing import FakeClock, ScriptedProvider, call

TAMPERINGS = sized(300, 1_000)
RUNS = ("r1", "r2", "r3")
SIGNER = Ed25519Signer("key-1", b"1" * 32)
KEYS = KeyFile([PublicKey("key-1", SIGNER.public_key)])


@tool(effect="read")
def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


async def add_run(journal: Any, run_id: str) -> None:
    provider = ScriptedProvider([call("look", what=run_id), "blue"])
    runtime = Runtime(provider, tools=[look], journal=journal)
    await ReActEngine(runtime).run("Go.", run_id=run_id)


@dataclasses.dataclass
class Kept:
    """A journal, its anchors, and copies of both to change."""

    path: Path
    anchors: Path

    def copy(self, folder: Path) -> "Kept":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        made = Kept(folder / "runs.db", folder / "anchors.jsonl")
        shutil.copy(self.path, made.path)
        shutil.copy(self.anchors, made.anchors)
        return made

    def problems(self, number: int = 3) -> tuple[str, ...]:
        """What checking finds; an anchor that cannot be read counts too."""
        try:
            journal = SQLiteJournal(self.path)
            found = check_anchors(
                journal, read_anchors(self.anchors), KEYS, at_least=number
            )
        except (ConfigError, JournalError) as error:
            return (str(error),)
        return found.problems


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("signed")
    made = Kept(folder / "runs.db", folder / "anchors.jsonl")

    async def work() -> None:
        journal = SQLiteJournal(made.path)
        heads = SignedHeads(journal, SIGNER, made.anchors)
        for run_id in RUNS:
            await add_run(journal, run_id)
            assert heads.anchor() is not None
        assert heads.anchor() is None  # nothing is new
        await journal.close()

    asyncio.run(work())
    return made


# --- ways to change a journal behind its heads ---


def entries_of(kept: Kept, run_id: str) -> list[Entry]:
    return SQLiteJournal(kept.path).read(run_id)


def write_chain(sql: sqlite3.Connection, run_id: str, entries: list[Entry]) -> None:
    """Write entries with a chain of their own, and the head that fits them."""
    previous = ""
    sql.execute("DELETE FROM events WHERE run_id = ?", (run_id,))
    for seq, entry in enumerate(entries, 1):
        new = dataclasses.replace(entry, seq=seq)
        previous = chain_hash(previous, new)
        sql.execute(
            "INSERT INTO events (run_id, seq, key, kind, at, v, fence, body, hash) VALUES (?,?,?,?,?,?,?,?,?)",
            (
                run_id,
                seq,
                new.key,
                new.kind,
                new.at,
                new.v,
                new.fence,
                new.body,
                previous,
            ),
        )
    sql.execute(
        "UPDATE runs SET head_seq = ?, head_hash = ? WHERE run_id = ?",
        (len(entries), previous, run_id),
    )


def change_body(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    entries = entries_of(kept, run_id)
    at = source.randrange(len(entries))
    body = json.loads(entries[at].body)
    body["added"] = source.random()
    entries[at] = dataclasses.replace(entries[at], body=json.dumps(body).encode())
    write_chain(sql, run_id, entries)


def change_time(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    entries = entries_of(kept, run_id)
    at = source.randrange(len(entries))
    entries[at] = dataclasses.replace(
        entries[at], at=entries[at].at + 1 + source.random()
    )
    write_chain(sql, run_id, entries)


def change_order(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    entries = entries_of(kept, run_id)
    at = source.randrange(len(entries) - 1)
    entries[at], entries[at + 1] = entries[at + 1], entries[at]
    write_chain(sql, run_id, entries)


def leave_out(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    entries = entries_of(kept, run_id)
    del entries[source.randrange(len(entries))]
    write_chain(sql, run_id, entries)


def cut_off(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    entries = entries_of(kept, run_id)
    write_chain(sql, run_id, entries[: source.randrange(1, len(entries))])
    sql.execute("UPDATE runs SET status = 'running' WHERE run_id = ?", (run_id,))


def delete_run(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    sql.execute("DELETE FROM events WHERE run_id = ?", (run_id,))
    sql.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
    if source.random() < 0.5:  # as `delete` leaves it
        sql.execute("INSERT INTO tombstones VALUES (?, '', 'Ada', 1.0)", (run_id,))


def exchange_runs(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    other = source.choice([each for each in RUNS if each != run_id])
    entries = [dataclasses.replace(e, run_id=run_id) for e in entries_of(kept, other)]
    write_chain(sql, run_id, entries)


def change_head(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    head = "".join(source.choice("0123456789abcdef") for _ in range(64))
    sql.execute("UPDATE runs SET head_hash = ? WHERE run_id = ?", (head, run_id))


def new_journal(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    sql.execute(
        "UPDATE facts SET value = ? WHERE name = 'journal_id'",
        (source.randbytes(8).hex(),),
    )


def edit_anchors(kept: Kept, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    lines = kept.anchors.read_bytes().splitlines()
    kept.anchors.write_bytes(b"".join(line + b"\n" for line in edit(lines)))


def flip_anchor(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    content = bytearray(kept.anchors.read_bytes().rstrip())
    content[source.randrange(len(content))] ^= 1 << source.randrange(7)
    kept.anchors.write_bytes(bytes(content))


def drop_anchor(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    number = source.randrange(3)
    edit_anchors(kept, lambda lines: lines[:number] + lines[number + 1 :])


def move_anchor(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    number = source.randrange(2)
    edit_anchors(
        kept,
        lambda lines: [
            *lines[:number],
            lines[number + 1],
            lines[number],
            *lines[number + 2 :],
        ],
    )


def rewrite_anchor(
    sql: sqlite3.Connection, kept: Kept, source: random.Random, run_id: str
) -> None:
    """Rewrite a run and its head in the anchors, signed with another key or not at all."""
    change_body(sql, kept, source, run_id)
    sql.commit()
    entries = entries_of(kept, run_id)
    anchors = read_anchors(kept.anchors)
    other = Ed25519Signer("key-1", source.randbytes(32))
    made: list[Anchor] = []
    for anchor in anchors:
        heads = dict(anchor.heads)
        if run_id in heads:
            heads[run_id] = len(entries), entries[-1].hash
        new = dataclasses.replace(
            anchor, heads=heads, previous=made[-1].digest if made else ""
        )
        if source.random() < 0.7:
            signature = base64.b64encode(other.sign(new.signed)).decode()
            new = dataclasses.replace(new, signature=signature)
        made.append(new)
    kept.anchors.write_bytes(b"".join(anchor.to_line() + b"\n" for anchor in made))


WAYS = (
    change_body, change_time, change_order, leave_out, cut_off, delete_run, exchange_runs, change_head, new_journal,
    flip_anchor, drop_anchor, move_anchor, rewrite_anchor,
)  # fmt: skip


@pytest.mark.timeout(1_200)
def test_every_change_behind_a_signed_head_is_found(kept: Kept, tmp_path: Path) -> None:
    assert kept.problems() == ()
    source, counts = random.Random(31), dict.fromkeys((way.__name__ for way in WAYS), 0)
    for number in range(TAMPERINGS):
        way = WAYS[number % len(WAYS)]
        copy = kept.copy(tmp_path / "copy")
        with contextlib.closing(sqlite3.connect(copy.path)) as sql, sql:
            way(sql, copy, source, source.choice(RUNS))
        sql.close()

        assert copy.problems() != (), (way.__name__, number)
        counts[way.__name__] += 1

    figure(
        "tampering behind signed heads", f"{TAMPERINGS} of {TAMPERINGS} found: {counts}"
    )
    assert min(counts.values()) > 10


def test_what_follows_the_last_anchor_is_not_known_to_it(
    kept: Kept, tmp_path: Path
) -> None:
    """The limit of anchors: a tail that none names can be cut off."""
    copy = kept.copy(tmp_path / "copy")

    async def work() -> None:
        journal = SQLiteJournal(copy.path)
        await add_run(journal, "r4")
        await journal.close()

    asyncio.run(work())
    assert copy.problems() == ()
    with contextlib.closing(sqlite3.connect(copy.path)) as sql, sql:
        delete_run(sql, copy, random.Random(1), "r4")
    sql.close()
    assert copy.problems() == ()


def test_nothing_is_signed_that_contradicts_an_earlier_anchor(
    kept: Kept, tmp_path: Path
) -> None:
    for way in (change_body, cut_off, delete_run):
        copy = kept.copy(tmp_path / "copy")
        with contextlib.closing(sqlite3.connect(copy.path)) as sql, sql:
            way(sql, copy, random.Random(2), "r1")
        sql.close()
        heads = SignedHeads(SQLiteJournal(copy.path), SIGNER, copy.anchors)
        with pytest.raises(JournalError, match="nothing is signed"):
            heads.anchor()
        assert len(read_anchors(copy.anchors)) == 3


def test_a_deletion_that_the_application_names_is_signed(
    kept: Kept, tmp_path: Path
) -> None:
    copy = kept.copy(tmp_path / "copy")

    async def work() -> None:
        journal = SQLiteJournal(copy.path)
        heads = SignedHeads(journal, SIGNER, copy.anchors)
        heads.forget(*await journal.delete("r2"))
        assert heads.anchor() is not None
        await journal.close()

    asyncio.run(work())
    assert read_anchors(copy.anchors)[-1].deleted == ("r2",)
    assert copy.problems(4) == ()


def test_anchors_are_private_and_follow_no_link(kept: Kept, tmp_path: Path) -> None:
    assert stat.S_IMODE(kept.anchors.stat().st_mode) == 0o600
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    heads = SignedHeads(SQLiteJournal(kept.path), SIGNER, tmp_path / "link")
    with pytest.raises(OSError, match="symbolic"):
        heads.anchor()


async def test_as_an_observer_it_signs_when_runs_have_ended() -> None:
    journal, exported = MemoryJournal(), list[Anchor]()
    heads = SignedHeads(journal, SIGNER, exported.append, every=2)
    provider = ScriptedProvider(["one", "two", "three"])
    engine = ReActEngine(Runtime(provider, journal=journal, observers=[heads]))
    for run_id in RUNS:
        await engine.run("Go.", run_id=run_id)
    while not exported:  # noqa: ASYNC110 - a thread signs
        await asyncio.sleep(0.01)
    heads.anchor()

    assert set(exported[0].heads) >= {"r1"}
    assert check_anchors(journal, exported, KEYS).ok
    assert check_anchors(journal, exported, KEYS).runs == 3


# --- keys ---


def test_a_key_is_rotated_by_the_one_before_and_revoked() -> None:
    journal, exported, clock = MemoryJournal(), list[Anchor](), FakeClock()
    second = Ed25519Signer("key-2", b"2" * 32)
    keys = KEYS.rotate(SIGNER, second, clock.wall() + 10)
    asyncio.run(add_run(journal, "r1"))
    SignedHeads(journal, SIGNER, exported.append, clock=clock).anchor()
    asyncio.run(add_run(journal, "r2"))
    early = SignedHeads(
        journal, second, exported.append, known=exported, clock=clock
    ).anchor()
    assert early is not None

    report = check_anchors(journal, exported, keys)
    assert report.problems == (
        "anchor 2: the key 'key-2' did not count when it was signed",
    )
    exported.pop()
    clock.advance(20)
    SignedHeads(journal, second, exported.append, known=exported, clock=clock).anchor()
    assert check_anchors(journal, exported, keys).ok
    revoked = keys.revoke("key-2", clock.wall())
    assert not check_anchors(journal, exported, revoked).ok
    unknown = check_anchors(journal, exported, KEYS)
    assert unknown.problems == ("anchor 2: the key 'key-2' is not in the key file",)


def test_a_key_file_is_read_as_it_was_written_and_a_bad_one_is_refused(
    tmp_path: Path,
) -> None:
    second, third = (Ed25519Signer(f"key-{n}", bytes([n]) * 32) for n in (2, 3))
    keys = KEYS.rotate(SIGNER, second, 10.0).revoke("key-2", 50.0)
    keys.write(tmp_path / "keys.json")
    assert KeyFile.read(tmp_path / "keys.json").keys == keys.keys

    forged = dataclasses.replace(keys.keys[1], public_key=third.public_key)
    bad: list[tuple[list[PublicKey], str]] = [
        ([], "must not be empty"),
        (
            [PublicKey("a", "AAAA")],
            "'a': must be an Ed25519 key of 32 bytes.*got 3 bytes",
        ),
        ([*KEYS.keys, *KEYS.keys], "'key-1' is given twice"),
        (
            [*KEYS.keys, PublicKey("key-3", third.public_key)],
            "'key-3' is not signed by an earlier key",
        ),
        ([KEYS.keys[0], forged], "'key-1' did not sign it"),
    ]
    for listed, says in bad:
        with pytest.raises(ConfigError, match=says):
            KeyFile(listed)
    (tmp_path / "keys.json").write_text("{")
    with pytest.raises(ConfigError, match=r"key file '.*keys.json'"):
        KeyFile.read(tmp_path / "keys.json")
    with pytest.raises(
        ConfigError, match="private_key: must be an Ed25519 key of 32 bytes"
    ):
        Ed25519Signer("k", "c2hvcnQ=")


def test_anchors_of_another_journal_are_refused_when_they_are_loaded(
    kept: Kept, tmp_path: Path
) -> None:
    copy = kept.copy(tmp_path / "copy")
    with contextlib.closing(sqlite3.connect(copy.path)) as sql, sql:
        new_journal(sql, copy, random.Random(1), "r1")
    sql.close()
    for work in (
        lambda: SignedHeads(SQLiteJournal(copy.path), SIGNER, copy.anchors),
        lambda: check_anchors(
            SQLiteJournal(copy.path), read_anchors(copy.anchors), KEYS
        ),
    ):
        with pytest.raises(ConfigError, match="anchors: number 1 is of the journal"):
            work()
    copy.anchors.write_text('{"a": 1}\n')
    with pytest.raises(ConfigError, match="line 1 is not an anchor"):
        read_anchors(copy.anchors)
