"""Search by vectors: short codes in memory find candidates, which are compared by the vectors in the file."""

import functools
import importlib
import math
import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from ..._internal import dataclasses
from ...errors import ConfigError, KnowledgeError, format_error
from ..base import Embedder
from .items import COLUMNS, read_item
from .search import MAX_CANDIDATES, Found, Query, conditions_of

BITS = 512
"""Of a code: on which side of so many random planes a vector is (Charikar, 2002), whatever its length."""
RESCORED = 200
"""Candidates of which the vectors themselves are compared; a smaller scope is searched exactly."""
SEED = 20_020_519
MAX_ROUNDS = 5
"""Times that candidates are looked for again, since some were superseded or forgotten meanwhile."""
_LOAD = """SELECT codes.number, code, items.scope, items.kind FROM codes JOIN items ON items.number = codes.number
           WHERE codes.number > ? ORDER BY codes.number"""


@functools.cache
def load_numpy() -> Any:
    """Return NumPy; raise `ConfigError` if it is not installed."""
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        numpy = None
    if not hasattr(numpy, "bitwise_count"):
        raise ConfigError(
            "embedder: vectors need NumPy 2 or later: pip install 'loopwright[vectors]'"
        )
    return numpy


@functools.cache
def _planes(dimensions: int) -> Any:
    """Return random planes that are the same in every version of NumPy, as its legacy generator promises."""
    numpy = load_numpy()
    drawn = numpy.random.RandomState(SEED).standard_normal((dimensions, BITS))
    return drawn.astype(numpy.float32)


@dataclasses.dataclass
class _Block:
    """The codes of the items of one scope and kind: their numbers, and which of them are gone."""

    numbers: Any
    codes: Any
    gone: Any


class Vectors:
    """The vectors of a store, made by one embedder; used by one connection at a time.

    Args:
        embedder: makes them.
        unrelated: the cosine of texts that have nothing in common, by that embedder.
    """

    def __init__(self, embedder: Embedder, unrelated: float) -> None:
        load_numpy()
        name, dimensions = _check_embedder(embedder)
        if not 0 <= unrelated < 1:
            raise ConfigError(
                f"unrelated: must be a number from 0 to below 1, got {unrelated!r}"
            )
        self._embedder, self._unrelated = embedder, unrelated
        self._dimensions = dimensions
        self.made_by = f"{name}/{dimensions}"
        self._blocks: dict[tuple[str, str], list[_Block]] = {}
        self._loaded = 0

    async def embed(self, text: str) -> Any:
        """Return the vector of a text, of length 1; raise `KnowledgeError` for one that is none."""
        numpy = load_numpy()
        try:
            given = await self._embedder.embed([text])
            vector = numpy.asarray(given, dtype=numpy.float32)
        except Exception as error:
            raise KnowledgeError(
                f"embedder {self.made_by}: gave no vectors: {format_error(error)}"
            ) from error
        if vector.shape != (1, self._dimensions):
            raise KnowledgeError(
                f"embedder {self.made_by}: must give {self._dimensions} numbers for a text, got shape {vector.shape}"
            )
        length = float(numpy.linalg.norm(vector))
        if not length or not math.isfinite(length):
            raise KnowledgeError(
                f"embedder {self.made_by}: gave a vector of length {length}"
            )
        return vector[0] / length

    def add(self, cursor: sqlite3.Cursor, number: int, vector: Any) -> None:
        """Store the vector of an item in the open transaction."""
        cursor.execute("INSERT INTO vectors VALUES (?, ?)", (number, vector.tobytes()))
        code = self._encode(vector).tobytes()
        cursor.execute("INSERT INTO codes VALUES (?, ?)", (number, code))

    def _encode(self, vector: Any) -> Any:
        numpy = load_numpy()
        return numpy.packbits(vector @ _planes(self._dimensions) > 0)

    def reset(self) -> None:
        """Drop what is kept in memory, such as codes of what was forgotten."""
        self._blocks, self._loaded = {}, 0

    def search(self, cursor: sqlite3.Cursor, query: Query, vector: Any) -> list[Found]:
        """Return the items whose vectors are nearest to one, the nearest first, but for unrelated ones."""
        self._load(cursor)
        blocks = self._choose_blocks(query)
        code = self._encode(vector).view(load_numpy().uint64)
        scores = dict[int, float]()
        for _ in range(MAX_ROUNDS):
            numbers = _find_nearest(blocks, code)
            scores = self._compare(cursor, numbers, vector)
            if len(scores) == len(numbers):
                break
            _mark_gone(blocks, set(numbers) - scores.keys())
        best = sorted(scores.items(), key=lambda one: -one[1])[:MAX_CANDIDATES]
        scores = {number: score for number, score in best if score}
        return _read_found(cursor, scores, query)

    def _load(self, cursor: sqlite3.Cursor) -> None:
        """Read the codes that came since the last search."""
        numpy = load_numpy()
        rows: dict[tuple[str, str], list[tuple[int, bytes]]] = {}
        for number, code, scope, kind in cursor.execute(_LOAD, (self._loaded,)):
            rows.setdefault((scope, kind), []).append((number, code))
            self._loaded = number
        for place, found in rows.items():
            numbers = numpy.array([number for number, _ in found])
            joined = numpy.frombuffer(b"".join(code for _, code in found), numpy.uint64)
            codes = joined.reshape(len(found), BITS // 64)
            gone = numpy.zeros(len(found), numpy.bool_)
            self._add_block(place, _Block(numbers, codes, gone))

    def _add_block(self, place: tuple[str, str], block: _Block) -> None:
        """Add a block, joined with smaller ones before it, so that a scope has few."""
        numpy, blocks = load_numpy(), self._blocks.setdefault(place, [])
        while blocks and len(blocks[-1].numbers) <= len(block.numbers):
            before = blocks.pop()
            joined = [
                numpy.concatenate([getattr(before, field), getattr(block, field)])
                for field in ("numbers", "codes", "gone")
            ]
            block = _Block(*joined)
        blocks.append(block)

    def _choose_blocks(self, query: Query) -> list[_Block]:
        return [
            block
            for (scope, kind), blocks in self._blocks.items()
            if _is_inside(scope, query.scopes)
            and (not query.kinds or kind in query.kinds)
            for block in blocks
        ]

    def _compare(
        self, cursor: sqlite3.Cursor, numbers: Sequence[int], vector: Any
    ) -> dict[int, float]:
        """Return how alike the vectors of items are to one, from 0 to 1; those that are gone are left out."""
        numpy = load_numpy()
        marks = ", ".join("?" * len(numbers))
        rows = cursor.execute(
            f"SELECT number, embedding FROM vectors WHERE number IN ({marks})",  # noqa: S608 - question marks
            tuple(map(int, numbers)),
        ).fetchall()
        if not rows:
            return {}
        joined = numpy.frombuffer(b"".join(row[1] for row in rows), numpy.float32)
        cosines = joined.reshape(len(rows), self._dimensions) @ vector
        scaled = (cosines - self._unrelated) / (1 - self._unrelated)
        clipped = numpy.clip(scaled, 0.0, 1.0).tolist()
        return {row[0]: score for row, score in zip(rows, clipped, strict=True)}


def _check_embedder(embedder: object) -> tuple[str, int]:
    """Return the name and the dimensions of an embedder; raise `ConfigError` for anything else."""
    if not isinstance(embedder, Embedder):
        raise ConfigError(
            f"embedder: needs `name`, `dimensions` and a method `embed`, got {type(embedder).__name__}"
        )
    name: Any = embedder.name
    dimensions: Any = embedder.dimensions
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"embedder: its name must say which model it is, got {name!r}"
        )
    if not isinstance(dimensions, int) or not 1 <= dimensions <= 65_536:
        raise ConfigError(
            f"embedder: its dimensions must be 1 to 65,536, got {dimensions!r}"
        )
    return name, dimensions


def _is_inside(scope: str, wanted: Collection[str]) -> bool:
    """Return whether a scope is one of those, or inside one."""
    return any(
        scope == one or (one != "" and scope.startswith(f"{one}/")) for one in wanted
    )


def _find_nearest(blocks: Sequence[_Block], code: Any) -> list[int]:
    """Return the numbers of the items whose codes differ from one in the fewest bits."""
    if not blocks:
        return []
    numpy = load_numpy()
    distances = numpy.concatenate([_count_bits(block, code) for block in blocks])
    numbers = numpy.concatenate([block.numbers for block in blocks])
    if len(numbers) > RESCORED:
        nearest = numpy.argpartition(distances, RESCORED)[:RESCORED]
        distances, numbers = distances[nearest], numbers[nearest]
    found: list[int] = numbers[distances <= BITS].tolist()
    return found


def _count_bits(block: _Block, code: Any) -> Any:
    """Return in how many bits the codes of a block differ from one; more than there are for those that are gone."""
    numpy = load_numpy()
    bits = numpy.bitwise_count(block.codes ^ code).sum(axis=1, dtype=numpy.int32)
    bits[block.gone] = BITS + 1
    return bits


def _mark_gone(blocks: Sequence[_Block], numbers: Collection[int]) -> None:
    numpy = load_numpy()
    for block in blocks:
        block.gone |= numpy.isin(block.numbers, list(numbers))


def _read_found(
    cursor: sqlite3.Cursor, scores: dict[int, float], query: Query
) -> list[Found]:
    """Return the items of these numbers, the best first; how sure an item is counts in its score."""
    places = ", ".join("?" * len(scores))
    wanted, values = conditions_of(query)
    rows = cursor.execute(
        f"SELECT number, {COLUMNS} FROM items WHERE valid_to IS NULL AND number IN ({places}) {wanted}",  # noqa: S608 - constants
        (*scores, *values),
    )
    items = [(row[0], read_item(row[1:])) for row in rows]
    found = [Found(number, item, item.score * scores[number]) for number, item in items]
    return sorted(found, key=lambda one: (-one.score, -one.number))
