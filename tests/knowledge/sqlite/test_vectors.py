"""Search by vectors beside words: joined by rank, forgotten to the last byte, of one embedder each file."""

import asyncio
import contextlib
import multiprocessing
import random
import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from embedders import FixedEmbedder, WordEmbedder
from fault_sizes import figure, sized
from loopwright import ConfigError
from loopwright.errors import KnowledgeError
from loopwright.knowledge import Knowledge, MemoryKnowledge, Remembered, SQLiteKnowledge
from loopwright.knowledge.sqlite.fusion import fuse
from loopwright.knowledge.sqlite.search import Found
from loopwright.knowledge.sqlite.vectors import RESCORED
from loopwright.testing import KnowledgeContract
from loopwright.testing.contracts.knowledge import check_history

HISTORIES = sized(20, 10_000)
IN_ONE_FILE = 100


def fact(text: str, **options: Any) -> Remembered:
    return Remembered(text, **{"scope": "acme", **options})


async def found(store: Knowledge, query: str, **options: Any) -> list[str]:
    given: dict[str, Any] = {"scope": "acme", **options}
    return [item.text for item in await store.search(query, **given)]


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


def packed(vector: list[float]) -> bytes:
    """A part of a vector as it is stored."""
    return struct.pack(f"<{len(vector)}f", *vector)[:48]


class TestSQLiteKnowledgeWithVectors(KnowledgeContract):
    finds_related = True

    def knowledge(self, folder: Path, *, shared: bool = False) -> Knowledge:
        path = folder / "memory.db"
        return SQLiteKnowledge(path, shared=shared, embedder=WordEmbedder())


class TestMemoryKnowledgeWithVectors(KnowledgeContract):
    finds_related = True

    def knowledge(self, folder: Path, *, shared: bool = False) -> Knowledge:
        return MemoryKnowledge(shared=shared, embedder=WordEmbedder())


async def test_what_has_no_word_of_the_query_is_found_by_its_vector() -> None:
    with_vectors = MemoryKnowledge(embedder=WordEmbedder())
    by_words = MemoryKnowledge()
    for store in with_vectors, by_words:
        await store.store(fact("physician wanted"), key="1")
        await store.store(fact("stamps for sale"), key="2")

    assert await found(with_vectors, "doctor") == ["physician wanted"]
    assert await found(by_words, "doctor") == []


async def test_what_both_find_comes_first() -> None:
    store = MemoryKnowledge(embedder=WordEmbedder())
    texts = ("doctor wanted", "physician needed", "stamps wanted")
    for text in texts:
        await store.store(fact(text), key=text)

    items = await store.search("doctor wanted", scope="acme", threshold=0.1)

    assert items[0].text == "doctor wanted"
    assert items[0].score == 1.0
    assert {item.text for item in items} == set(texts)


def test_ranks_are_joined_by_their_reciprocals() -> None:
    def one(number: int, score: float) -> Found:
        return Found(number, fact(f"item {number}"), score)

    words = [one(1, 0.9), one(2, 0.5), one(3, 0.4)]
    vectors = [one(3, 0.8), one(1, 0.7), one(4, 0.2)]

    fused = fuse([words, vectors], threshold=0.3)
    assert [(found.number, found.score) for found in fused] == [
        (1, 0.9),  # 1/61 + 1/62
        (3, 0.8),  # 1/63 + 1/61
        (2, 0.5),  # 1/62
    ]
    assert [found.number for found in fuse([words, vectors], 0.0)] == [1, 3, 2, 4]


async def test_how_sure_an_item_is_and_what_is_unrelated_count_in_its_score() -> None:
    embedder = WordEmbedder()
    store = MemoryKnowledge(embedder=embedder, unrelated=0.5)
    await store.store(fact("physician", score=0.5), key="1")
    await store.store(fact("physician and barber"), key="2")

    [sure, half] = await store.search("doctor", scope="acme", threshold=0.0)

    cosine = sum(
        a * b
        for a, b in zip(embedder.vector("doctor"), embedder.vector("physician and barber"), strict=True)
    )  # fmt: skip
    assert {sure.text, half.text} == {"physician", "physician and barber"}
    scores = {item.text: item.score for item in (sure, half)}
    assert scores["physician"] == 0.5
    assert scores["physician and barber"] == pytest.approx(
        (cosine - 0.5) / 0.5, abs=1e-3
    )


@pytest.mark.faults
async def test_a_larger_scope_than_is_compared_exactly_finds_its_nearest() -> None:
    embedder, source = WordEmbedder(), random.Random(3)
    store = MemoryKnowledge(embedder=embedder)
    words = [f"w{number}" for number in range(400)]
    texts = [" ".join(source.sample(words, 6)) for _ in range(10 * RESCORED)]
    for number, text in enumerate(texts):
        await store.store(fact(text), key=str(number))
    hits = 0
    for text in texts[:100]:
        query = " ".join(f"v{word}" for word in text.split())  # no common word
        vector = embedder.vector(text)
        embedder.vector = lambda _, kept=vector: kept  # type: ignore[method-assign,misc]
        hits += (await found(store, query, threshold=0.0))[:1] == [text]
        del embedder.vector

    assert hits == 100


async def test_a_search_sees_what_comes_is_superseded_and_goes() -> None:
    store = MemoryKnowledge(embedder=WordEmbedder())
    await store.store(fact("physician in Oslo", topic="t"), key="1")
    assert await found(store, "doctor") == ["physician in Oslo"]
    await store.store(fact("physician in Rome", topic="t"), key="2")
    assert await found(store, "doctor") == ["physician in Rome"]
    id = await store.store(fact("automobile"), key="3")
    assert await found(store, "car") == ["automobile"]
    await store.forget(id=id)
    assert await found(store, "car") == []
    assert await found(store, "doctor", kinds=["other"]) == []
    assert await found(store, "doctor", scope="acme/x") == []


@pytest.mark.faults
async def test_more_gone_items_than_are_compared_hide_none_that_holds(
    tmp_path: Path,
) -> None:
    first, second = (
        SQLiteKnowledge(tmp_path / "k.db", embedder=WordEmbedder()) for _ in range(2)
    )
    for number in range(RESCORED + 50):
        await first.store(
            fact("physician", kind=f"k{number}", topic="x"), key=f"{number}"
        )
    await first.store(fact("some physician of old", kind="last"), key="last")
    assert await found(second, "doctor")
    for number in range(RESCORED + 50):
        await first.forget(kind=f"k{number}")

    assert await found(second, "doctor") == ["some physician of old"]
    for store in first, second:
        await store.close()


async def test_a_key_that_is_known_costs_no_embedding() -> None:
    embedder = WordEmbedder()
    store = MemoryKnowledge(embedder=embedder)
    for _ in range(3):
        await store.store(fact("a physician"), key="1")
    await store.store(fact("it was a barber", valid_from=1.0, valid_to=2.0), key="2")

    assert embedder.texts == ["a physician"]


async def test_a_vector_that_is_forgotten_is_in_no_byte_of_the_files(
    tmp_path: Path,
) -> None:
    embedder = WordEmbedder()
    store = SQLiteKnowledge(tmp_path / "k.db", embedder=embedder)
    for number in range(100):
        await store.store(fact(f"ordinary text {number}"), key=str(number))
    await store.store(fact("zzyzxquokka one", topic="pet"), key="a")
    id = await store.store(fact("zzyzxquokka two", topic="pet"), key="b")
    kept, gone = (packed(embedder.vector(t)) for t in ("ordinary text 7", "zzyzxquokka two"))  # fmt: skip
    assert kept in bytes_of(tmp_path)
    assert gone in bytes_of(tmp_path)

    await store.forget(id=id)
    left = bytes_of(tmp_path)
    await store.close()

    assert gone not in left
    assert packed(embedder.vector("zzyzxquokka one")) not in left
    assert b"zzyzxquokka" not in left
    assert kept in left
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "k.db")) as connection,
        connection,
    ):
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("items", "vectors", "codes")
        ]
    connection.close()
    assert counts == [100, 100, 100]


@pytest.mark.faults
@pytest.mark.timeout(sized(120, 7200))
async def test_random_histories_leave_no_text_and_no_vector(tmp_path: Path) -> None:
    count, embedder = 0, WordEmbedder(24)
    for first in range(0, HISTORIES, IN_ONE_FILE):
        folder = tmp_path / str(first)
        folder.mkdir()
        store = SQLiteKnowledge(folder / "k.db", embedder=embedder, unrelated=0.95)
        gone = list[str]()
        for number in range(first, min(first + IN_ONE_FILE, HISTORIES)):
            source = random.Random(number)
            gone += await check_history(
                store, source, steps=20, scope=f"s{number}", finds_related=True
            )
        await store.close()
        left = bytes_of(folder)
        assert [text for text in gone if text.encode() in left] == []
        assert [text for text in gone if packed(embedder.vector(text)) in left] == []
        count += len(gone)

    assert count > HISTORIES
    figure("vectors", f"{HISTORIES:,} random histories, {count:,} items forgotten")


async def test_a_file_keeps_to_one_embedder(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    store = SQLiteKnowledge(path, embedder=WordEmbedder(8))
    await store.store(fact("x"), key="1")
    await store.close()

    others = (None, WordEmbedder(8, "words-2"), WordEmbedder(9))
    for other in others:
        got = "none" if other is None else f"{other.name}/{other.dimensions}"
        with pytest.raises(
            KnowledgeError, match=f"by the embedder 'words-1/8', got '{got}'"
        ):
            await SQLiteKnowledge(path, embedder=other).search("x", scope="acme")
    plain = SQLiteKnowledge(tmp_path / "plain.db")
    await plain.store(fact("x"), key="1")
    await plain.close()
    with pytest.raises(KnowledgeError, match="by the embedder 'none', got 'words-1/8'"):
        await SQLiteKnowledge(tmp_path / "plain.db", embedder=WordEmbedder(8)).store(fact("y"), key="2")  # fmt: skip
    again = SQLiteKnowledge(path, embedder=WordEmbedder(8))
    assert await found(again, "x") == ["x"]
    await again.close()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_of_an_older_format_is_read_and_gets_what_is_new(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "k.db"
    store = SQLiteKnowledge(path)
    await store.store(fact("a lantern"), key="1")
    await store.close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE items DROP COLUMN marks")  # format 3 has it
        for table in ("facts", "vectors", "codes")[: 3 * (version == 1)]:
            connection.execute(f"DROP TABLE {table}")
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()

    older = SQLiteKnowledge(path)
    assert await found(older, "lantern") == ["a lantern"]
    await older.store(fact("a lamp", category="light", tags=("old",)), key="2")
    [lamp] = await older.search("lamp", scope="acme", tags=("old",))
    assert lamp.category == "light"
    assert await older.forget(scope="acme") == 2
    await older.close()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([[1.0, 2.0]], "must give 3 numbers for a text, got shape"),
        ([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], "must give 3 numbers"),
        ([[0.0, 0.0, 0.0]], "a vector of length 0"),
        ([[float("nan"), 0.0, 0.0]], "a vector of length nan"),
        ([["a", "b", "c"]], "gave no vectors"),
        (None, "must give 3 numbers|gave no vectors"),
    ],
)
async def test_what_is_no_vector_is_refused_and_nothing_is_stored(
    given: Any, problem: str
) -> None:
    embedder: Any = FixedEmbedder(given)
    store = MemoryKnowledge(embedder=embedder)

    with pytest.raises(KnowledgeError, match=problem):
        await store.store(fact("a lantern"), key="1")
    with pytest.raises(KnowledgeError, match=problem):
        await store.search("lantern", scope="acme")
    embedder.given = [[1.0, 2.0, 2.0]]
    assert await found(store, "lantern") == []


async def test_an_embedder_that_fails_is_an_error_of_knowledge_with_its_cause() -> None:
    class Away(FixedEmbedder):
        async def embed(self, texts: Sequence[str]) -> Any:
            raise ConnectionError("the service is away")

    store = MemoryKnowledge(embedder=Away([]))

    with pytest.raises(KnowledgeError, match="fixed/3: gave no vectors: the service"):
        await store.store(fact("a lantern"), key="1")
    with pytest.raises(KnowledgeError, match="the service is away") as raised:
        await store.search("lantern", scope="acme")
    assert isinstance(raised.value.__cause__, ConnectionError)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"embedder": "openai"}, "embedder: needs `name`, `dimensions`"),
        ({"embedder": WordEmbedder(0)}, "its dimensions must be 1 to 65,536, got 0"),
        ({"embedder": WordEmbedder(3, "")}, "its name must say which model it is"),
        ({"embedder": WordEmbedder(3), "unrelated": 1.0}, "unrelated: must be"),
    ],
)
def test_what_is_no_embedder_is_refused(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        MemoryKnowledge(**options)


def _store_many(path: Path, name: str) -> None:
    async def work() -> None:
        store = SQLiteKnowledge(path, busy_timeout=30.0, embedder=WordEmbedder())
        for number in range(20):
            await store.store(fact(f"copper {name} {number}"), key=f"{name} {number}")
        await store.close()

    asyncio.run(work())


@pytest.mark.timeout(120)
async def test_several_processes_make_and_fill_one_file(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_store_many, args=(path, name)) for name in ("a", "b")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store = SQLiteKnowledge(path, embedder=WordEmbedder())

    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(await found(store, "copper", limit=100, threshold=0.1)) == 40
    await store.close()
