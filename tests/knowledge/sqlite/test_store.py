"""Knowledge in a SQLite file: words, neighbouring turns, forgetting to the last byte, formats, processes."""

import asyncio
import contextlib
import multiprocessing
import os
import random
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fault_sizes import figure, sized
from loopwright import ConfigError
from loopwright.errors import KnowledgeError
from loopwright.knowledge import Forget, MemoryKnowledge, Remembered, SQLiteKnowledge
from loopwright.knowledge.sqlite.items import Items
from loopwright.testing import FakeClock
from loopwright.testing.contracts.knowledge import check_history

HISTORIES = sized(30, 10_000)
IN_ONE_FILE = 100


def fact(text: str, **options: object) -> Remembered:
    return Remembered(text, **{"scope": "acme", **options})  # type: ignore[arg-type]


async def found(store: SQLiteKnowledge, query: str, **options: object) -> list[str]:
    items = await store.search(query, scope="acme", **options)  # type: ignore[arg-type]
    return [item.text for item in items]


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


async def test_a_search_finds_other_forms_of_a_word() -> None:
    store = MemoryKnowledge()
    await store.store(fact("She was running three companies."), key="1")

    assert await found(store, "who runs a company?") == [
        "She was running three companies."
    ]


async def test_the_score_is_the_share_of_the_query_that_an_item_says() -> None:
    store = MemoryKnowledge()
    for number in range(50):
        await store.store(fact(f"filler {number} about meetings"), key=f"f{number}")
    await store.store(fact("The invoice of the violin is unpaid."), key="1")
    await store.store(fact("A violin."), key="2")

    items = await store.search("unpaid invoice violin", scope="acme", threshold=0.0)

    assert [item.text for item in items][:2] == [
        "The invoice of the violin is unpaid.",
        "A violin.",
    ]
    assert items[0].score == 1.0
    assert 0.2 < items[1].score < 0.5


async def test_a_long_item_with_all_words_is_found_among_many_short_ones() -> None:
    store = MemoryKnowledge()
    for number in range(60):
        await store.store(fact(f"{number} " + "violin " * 4), key=f"v{number}")
        await store.store(fact(f"{number} " + "invoice " * 4), key=f"i{number}")
    report = "The invoice of the violin. " + " ".join(f"w{n}" for n in range(400))
    await store.store(fact(report), key="report")
    for number in range(60):
        await store.store(fact(f"{number} " + "violin " * 3), key=f"n{number}")

    items = await store.search("violin invoice", scope="acme", limit=2)

    assert items[0].text == report
    assert items[0].score == 1.0 > items[1].score


async def test_an_old_fact_is_found_behind_thousands_of_turns_with_its_word() -> None:
    store = MemoryKnowledge()
    await store.store(fact("The violin is in the attic."), key="fact")
    for number in range(2_100):
        turn = Remembered(f"{number} violin", kind="turn", scope="acme")
        await store.store(turn, key=f"t{number}")

    assert await found(store, "violin", kinds=["fact"]) == ["The violin is in the attic."]  # fmt: skip


async def test_how_sure_an_item_is_counts_in_its_score() -> None:
    store = MemoryKnowledge()
    await store.store(fact("The ferry leaves at nine.", score=0.4), key="1")

    [item] = await store.search("when does the ferry leave", scope="acme")

    assert item.score == 0.4


async def test_a_turn_beside_one_that_matches_is_found_too() -> None:
    store = MemoryKnowledge()
    for number, text in enumerate(
        ["Which city do you want to move to?", "Lisbon, I think.", "And the weather?"]
    ):
        turn = fact(text, kind="turn", source_run="talk")
        await store.store(turn, key=str(number))
    await store.store(fact("Porto", kind="turn", source_run="another"), key="9")

    assert await found(store, "move to which city", limit=10) == [
        "Which city do you want to move to?",
        "Lisbon, I think.",
    ]


async def test_the_same_preference_twice_is_one_row(tmp_path: Path) -> None:
    store = SQLiteKnowledge(tmp_path / "k.db")
    ids = {
        await store.store(fact("I prefer metric units.", kind="preference"), key=key)
        for key in ("run-1:3#0", "run-2:1#0")
    }
    await store.close()
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "k.db")) as connection,
        connection,
    ):
        rows = connection.execute("SELECT count(*) FROM items").fetchone()

    assert (len(ids), rows) == (1, (1,))


async def test_what_is_forgotten_is_in_no_byte_of_the_files(tmp_path: Path) -> None:
    store = SQLiteKnowledge(tmp_path / "k.db")
    for number in range(200):
        await store.store(fact(f"ordinary text {number}"), key=str(number))
    await store.store(fact("the zzyzxquokka of Ada", topic="pet"), key="a")
    id = await store.store(fact("the qwertzuiop of Ada", topic="pet"), key="b")
    assert b"zzyzxquokka" in bytes_of(tmp_path)

    await store.forget(id=id)
    left = bytes_of(tmp_path)
    await store.close()

    for word in (b"zzyzxquokka", b"qwertzuiop", b"zyzxquok", b"wertzuio"):
        assert word not in left + bytes_of(tmp_path)
    assert b"ordinary text 7" in bytes_of(tmp_path)


async def test_no_copy_is_left_of_rows_that_sqlite_moved_between_pages(
    tmp_path: Path,
) -> None:
    store, source = SQLiteKnowledge(tmp_path / "k.db"), random.Random(1)
    store._read(lambda cursor: cursor.execute("PRAGMA synchronous = OFF").fetchone())
    held, gone = list[str](), list[str]()
    for number in range(2_000):
        word = f"q{source.getrandbits(48):012x}"
        kind = source.choice(("entity", "episode", "preference"))
        text, run = f"of {word} and more text here {number}", f"r{number}"
        scope, topic = f"u{number // 15}", f"ms {word}"
        item = Remembered(text, kind, topic, source_run=run, scope=scope)
        store._write(_store(item))
        held.append(word)
        if source.random() < 0.5:
            gone.append(held.pop(source.randrange(len(held))))
            store._write(_forget(f"ms {gone[-1]}"))
    await store.forget(topic=f"ms {held[0]}")  # the others went by the same statements
    left = bytes_of(tmp_path)
    await store.close()

    assert len(gone) > 900
    assert [word for word in gone if word.encode() in left] == []


def _store(item: Remembered) -> Callable[[sqlite3.Cursor], object]:
    return lambda cursor: Items(cursor).store(item, item.topic, 0.0)


def _forget(topic: str) -> Callable[[sqlite3.Cursor], object]:
    return lambda cursor: Items(cursor).forget(Forget(topic=topic))


async def test_a_store_forgets_more_often_than_its_index_may_have_levels() -> None:
    store = MemoryKnowledge()
    for number in range(1_300):
        item = fact(f"of meadow{number}", topic=f"t{number}")
        await asyncio.to_thread(store._write, _store(item))
    for number in range(1_200):
        await asyncio.to_thread(store._write, _forget(f"t{number}"))

    assert await found(store, "meadow1250") == ["of meadow1250"]
    assert await found(store, "meadow7") == []


@pytest.mark.faults
@pytest.mark.timeout(sized(120, 7200))
async def test_random_histories_leave_nothing_in_any_way(tmp_path: Path) -> None:
    count = 0
    for first in range(0, HISTORIES, IN_ONE_FILE):
        folder = tmp_path / str(first)
        folder.mkdir()
        store, gone = SQLiteKnowledge(folder / "k.db"), list[str]()
        for number in range(first, min(first + IN_ONE_FILE, HISTORIES)):
            source = random.Random(number)
            gone += await check_history(store, source, steps=20, scope=f"s{number}")
        await store.close()
        left = bytes_of(folder)
        assert [text for text in gone if text.encode() in left] == []
        count += len(gone)

    assert count > HISTORIES
    figure("knowledge", f"{HISTORIES:,} random histories, {count:,} items forgotten")


async def test_an_item_that_holds_only_until_a_time_is_not_found() -> None:
    clock = FakeClock()
    store = MemoryKnowledge(clock=clock)
    old = fact("The shop was in Oak Street.", valid_from=1.0, valid_to=2.0)
    id = await store.store(old, key="1")

    assert await found(store, "shop") == []
    assert [one.valid_to for one in await store.history(id)] == [2.0]


async def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    store = SQLiteKnowledge(path)
    await store.store(fact("x"), key="1")
    await store.close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()

    with pytest.raises(
        KnowledgeError, match="has format 9, this version reads formats up to 3"
    ):
        await SQLiteKnowledge(path).search("x", scope="acme")


async def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()

    with pytest.raises(
        KnowledgeError, match="is the database of another program or store"
    ):
        await SQLiteKnowledge(path).search("x", scope="acme")
    (tmp_path / "text").write_text("no database at all, but long enough to be one" * 99)
    with pytest.raises(KnowledgeError, match="not a database"):
        await SQLiteKnowledge(tmp_path / "text").search("x", scope="acme")


def test_a_path_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    for path, problem in (
        ("", "must name a file"),
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "k.db", "does not exist"),
    ):
        with pytest.raises(ConfigError, match=problem):
            SQLiteKnowledge(path)


async def test_the_file_is_private_and_invalid_arguments_are_refused(
    tmp_path: Path,
) -> None:
    store = SQLiteKnowledge(tmp_path / "k.db")
    await store.store(fact("x"), key="1")

    assert stat.S_IMODE((tmp_path / "k.db").stat().st_mode) == 0o600
    for options in (
        {"limit": 0}, {"limit": 101}, {"threshold": 2}, {"scope": 7}, {"kinds": "fact"}, {"tags": "old"},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=next(iter(options))):
            await store.search("x", **{"scope": "acme", **options})  # type: ignore[arg-type]
    for options, problem in (
        ({"text": ""}, "text"),
        ({"label": "top"}, "label"),
        ({"score": 3}, "score"),
    ):
        with pytest.raises(ConfigError, match=problem):
            Remembered(**{"text": "x", **options})  # type: ignore[arg-type]
    for key in ("", 5):
        with pytest.raises(ConfigError, match="key"):
            await store.store(fact("y"), key=key)  # type: ignore[arg-type]
    await store.close()
    with pytest.raises(KnowledgeError, match="is closed"):
        await store.search("x", scope="acme")


def _store_many(path: Path, name: str) -> None:
    async def work() -> None:
        store = SQLiteKnowledge(path, busy_timeout=30.0)
        for number in range(20):
            await store.store(fact(f"copper {name} {number}"), key=f"{name} {number}")
            await store.store(
                fact(f"shared {number}", topic=f"t{number}"), key=f"s{number}"
            )
        await store.close()

    asyncio.run(work())


@pytest.mark.timeout(120)
async def test_several_processes_store_into_one_file(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_store_many, args=(path, name)) for name in ("a", "b")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store = SQLiteKnowledge(path)

    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(await found(store, "copper", limit=100)) == 40
    assert len(await found(store, "shared", limit=100)) == 20
    await store.close()


async def test_a_store_that_was_forked_says_so(tmp_path: Path) -> None:
    store = SQLiteKnowledge(tmp_path / "k.db")
    store._process = os.getpid() + 1

    with pytest.raises(KnowledgeError, match="forked"):
        await store.search("x", scope="acme")


async def test_a_new_word_is_found_in_a_large_store_at_once() -> None:
    store = MemoryKnowledge()
    for number in range(1_500):
        await store.store(fact(f"common words {number}"), key=str(number))
    assert await found(store, "heliotrope") == []

    await store.store(fact("a heliotrope grows"), key="new")

    assert await found(store, "heliotrope") == ["a heliotrope grows"]
