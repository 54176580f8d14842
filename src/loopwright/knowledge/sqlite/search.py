"""Search of a knowledge store: candidates by the index of words, scored by how much of the query they say."""

import math
import sqlite3
from collections.abc import Mapping
from typing import Any

from ..._internal import dataclasses
from ..base import Remembered
from ..terms import beginning_of, read_terms
from .items import COLUMNS, read_item, scope_token
from .stemmer import Stemmer

MAX_CANDIDATES = 40
"""Items that are scored: those with the words of the query that say most."""
MAX_SCANNED = 2_000
"""Entries of the index that a search reads, about: common words are left out where rarer ones have so many."""
OF_ITEMS = ", ".join(f"items.{name}" for name in COLUMNS.split(", "))
STALE_AFTER, MAX_COUNTS = 1_000, 20_000
NEIGHBOUR_SHARE = 0.6
"""Of the score of a turn, what the turn before it and the one after it get: an answer rarely has the question's words."""
TURN = "turn"


@dataclasses.dataclass(frozen=True)
class Query:
    """What to search for."""

    text: str
    kinds: frozenset[str]
    limit: int
    threshold: float
    scopes: tuple[str, ...]
    category: str = ""
    tags: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Found:
    """An item that matches, its number, and how well."""

    number: int
    item: Remembered
    score: float


class Counts:
    """How many items have a stem; large counts are kept until the store has grown, since a count reads the items."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._total = 0

    def renew(self, cursor: sqlite3.Cursor) -> None:
        """Forget counts that are too old, and note how many items there are, about."""
        (total,) = cursor.execute("SELECT max(number) FROM items").fetchone()
        has_grown = (total or 0) - self._total >= max(STALE_AFTER, self._total // 50)
        if has_grown or self._total < STALE_AFTER or len(self._known) > MAX_COUNTS:
            self._known, self._total = {}, total or 0

    def weigh(self, count: int) -> float:
        """Return the weight of a word that so many items have: the fewer, the more it says."""
        return math.log(1 + (self._total + 1) / (count + 0.5))

    def count(self, cursor: sqlite3.Cursor, stem: str) -> int:
        """Return how many items have a stem."""
        known = self._known.get(stem)
        if known is not None:
            return known
        found = cursor.execute(
            "SELECT doc FROM word_counts WHERE term = ?", (stem,)
        ).fetchone()
        count = 0 if found is None else int(found[0])
        if count > STALE_AFTER // 10:
            self._known[stem] = count
        return count


class WordSearch:
    """Searches by words in one connection."""

    def __init__(
        self, cursor: sqlite3.Cursor, stemmer: Stemmer, counts: "Counts"
    ) -> None:
        self._cursor, self._stemmer, self._counts = cursor, stemmer, counts

    def search(self, query: Query) -> list[Found]:
        """Return the items that match, the best first, whatever their score."""
        weights, words = self._weigh(query.text)
        if not words:
            return []
        beginnings = {beginning_of(word) for word in read_terms(query.text)}
        found = {
            number: Found(number, item, self._score(item, weights, beginnings))
            for number, item in self._find_candidates(words, query)
        }
        self._add_neighbours(found, query)
        return sorted(found.values(), key=lambda one: (-one.score, -one.number))

    def _weigh(self, text: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return the weight of each stem of a query, and of the words to look up."""
        self._counts.renew(self._cursor)
        weights: dict[str, float] = {}
        counts: dict[tuple[str, ...], tuple[int, str]] = {}
        for word in read_terms(text):
            stems = self._stemmer.stem(word)
            found = [self._counts.count(self._cursor, stem) for stem in stems]
            weights |= zip(stems, map(self._counts.weigh, found), strict=True)
            counts[stems] = min(found, default=0), word
        looked_up, scanned = dict[str, float](), 0
        for stems, (count, word) in sorted(counts.items(), key=lambda one: one[1]):
            if count and (not looked_up or scanned + count <= MAX_SCANNED):
                looked_up[word] = sum(weights[stem] for stem in stems)
                scanned += count
        return weights, looked_up

    def _find_candidates(
        self, words: Mapping[str, float], query: Query
    ) -> list[tuple[int, Remembered]]:
        """Return the items whose words weigh most, as their scores do; the newest of equal ones.

        FTS5's own rank would count the items of the scope for each search, which took longer than all else.
        """
        scopes = " OR ".join(map(scope_token, query.scopes))
        quoted = {f'text : "{word}"': weight for word, weight in words.items()}
        match = f"(scopes : ({scopes})) AND ({' OR '.join(quoted)})"
        if len(words) == 1:
            return self._find_newest(match, query)
        within = self._find_numbers(match)
        found = dict.fromkeys(within, 0.0)
        for match, weight in quoted.items():
            for number in self._find_numbers(match):
                if number in found:
                    found[number] += weight
        ranked = sorted(found, key=lambda number: (-found[number], -number))
        return self._read_items(ranked, query)

    def _find_newest(self, match: str, query: Query) -> list[tuple[int, Remembered]]:
        """Return the newest items that a query wants, however many newer ones it does not want."""
        wanted, values = conditions_of(query)
        rows = self._cursor.execute(
            f"""SELECT number, {OF_ITEMS} FROM words CROSS JOIN items ON items.number = words.rowid
            WHERE words MATCH ? {wanted} ORDER BY words.rowid DESC LIMIT ?""",  # noqa: S608 - constants
            (match, *values, MAX_CANDIDATES),
        )
        return [(row[0], read_item(row[1:])) for row in rows]

    def _find_numbers(self, match: str) -> list[int]:
        """Return the numbers of the items that the index has for an expression, the newest first."""
        rows = self._cursor.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?",
            (match, MAX_SCANNED),
        )
        return [number for (number,) in rows]

    def _read_items(
        self, ranked: list[int], query: Query
    ) -> list[tuple[int, Remembered]]:
        """Return the first of ranked items that a query wants."""
        wanted, values = conditions_of(query)
        candidates: list[tuple[int, Remembered]] = []
        for start in range(0, len(ranked), MAX_CANDIDATES):
            numbers = ranked[start : start + MAX_CANDIDATES]
            rows = self._cursor.execute(
                f"""SELECT number, {COLUMNS} FROM items WHERE number IN ({", ".join("?" * len(numbers))}) {wanted}""",  # noqa: S608 - constants
                (*numbers, *values),
            )
            read = {row[0]: read_item(row[1:]) for row in rows}
            candidates += [(number, read[number]) for number in numbers if number in read]  # fmt: skip
            if len(candidates) >= MAX_CANDIDATES:
                break
        return candidates[:MAX_CANDIDATES]

    def _score(
        self, item: Remembered, weights: Mapping[str, float], beginnings: set[str]
    ) -> float:
        """Return how well an item matches, from 0 to 1, times how sure it is.

        That is the share of the query that it says, by weight; of a long query, whose words
        no item has all, one word that few items have counts a half, two of them two thirds.
        """
        stems = self._stemmer.common_stems(item.text, beginnings)
        matched = sum(weight for stem, weight in weights.items() if stem in stems)
        rarest = self._counts.weigh(1)
        return item.score * max(
            matched / sum(weights.values()), matched / (matched + rarest)
        )

    def _add_neighbours(self, found: dict[int, Found], query: Query) -> None:
        """Add the turns beside those that were found."""
        if query.category or query.tags:
            return
        turns = [one for one in found.values() if one.item.kind == TURN]
        for turn in turns:
            for number, item in self._neighbours(turn):
                score = NEIGHBOUR_SHARE * turn.score
                known = found.get(number)
                if known is None or known.score < score:
                    found[number] = Found(number, item, score)

    def _neighbours(self, turn: Found) -> list[tuple[int, Remembered]]:
        """Return the turns before and after one, of the same run and scope."""
        near = list[tuple[int, Remembered]]()
        for sign, order in (("<", "DESC"), (">", "ASC")):
            rows = self._cursor.execute(
                f"""SELECT number, {COLUMNS} FROM items WHERE source_run = ? AND source_run != '' AND number {sign} ?
                AND kind = ? AND scope = ? AND valid_to IS NULL ORDER BY number {order} LIMIT 1""",  # noqa: S608
                (turn.item.source_run, turn.number, TURN, turn.item.scope),
            )
            near += [(row[0], read_item(row[1:])) for row in rows]
        return near


def conditions_of(query: Query) -> tuple[str, list[Any]]:
    """Return the SQL conditions of kinds, category and tags, each behind an AND, and their values."""
    conditions, values = list[str](), list[Any]()
    if query.kinds:
        conditions.append(f"AND items.kind IN ({', '.join('?' * len(query.kinds))})")
        values += sorted(query.kinds)
    if query.category:
        conditions.append("AND json_extract(items.marks, '$.category') = ?")
        values.append(query.category)
    for tag in sorted(query.tags):
        conditions.append(
            "AND EXISTS (SELECT 1 FROM json_each(items.marks, '$.tags') WHERE value = ?)"
        )
        values.append(tag)
    return " ".join(conditions), values
