"""Time searches in 100,000 items of knowledge, by words and, with a number of DIMENSIONS, by vectors too.

    python tests/benchmarks/bench_knowledge.py [ITEMS [DIMENSIONS]]

The vectors are random, so that no model's time is measured.
"""

import asyncio
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loopwright.knowledge import Remembered, SQLiteKnowledge
from loopwright.knowledge.sqlite.items import Items
from loopwright.knowledge.sqlite.vectors import load_numpy

ITEMS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
DIMENSIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 0
SEARCHES = 300
SOURCE = random.Random(1)
WORDS = [
    "".join(SOURCE.choice(letters) for letters in ("bcdfglmnprst", "aeiou") * 2)
    + SOURCE.choice(("nk", "rt", "st", "m"))
    + f"{number % 97}"
    + SOURCE.choice(("", "s", "ing", "ed", "er"))
    for number in range(30_000)
]
FREQUENCIES = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(WORDS))))
"""As in a language: the second word is about half as frequent as the first."""


class RandomEmbedder:
    """Gives each text a random vector."""

    name, dimensions = "random", DIMENSIONS

    def __init__(self) -> None:
        self._source = load_numpy().random.default_rng(1)

    async def embed(self, texts: Sequence[str]) -> Any:
        return [self.draw() for _ in texts]

    def draw(self) -> Any:
        drawn = self._source.standard_normal(DIMENSIONS).astype("float32")
        return drawn / load_numpy().linalg.norm(drawn)


def make_text(words: int) -> str:
    return " ".join(SOURCE.choices(WORDS, cum_weights=FREQUENCIES, k=words))


def fill(store: SQLiteKnowledge, embedder: RandomEmbedder | None) -> None:
    """Store half of the items in one scope, and the others in fifty, in one transaction."""

    def work(cursor: Any) -> None:
        items, vectors = Items(cursor), store._vectors
        for number in range(ITEMS):
            scope = "acme" if number % 2 else f"tenant{number % 100}"
            text, run = make_text(SOURCE.randint(8, 30)), f"run{number // 20}"
            item = Remembered(text, scope=scope, source_run=run)
            _, place = items.store(item, str(number), 0.0)
            if embedder is not None and vectors is not None:
                vectors.add(cursor, place, embedder.draw())

    store._write(work)


async def measure(store: SQLiteKnowledge) -> None:
    began = time.perf_counter()
    await store.search(make_text(5), scope="acme", threshold=0.1)
    print(f"first    {time.perf_counter() - began:.2f} s")
    took, used = list[float](), list[float]()
    for _ in range(SEARCHES):
        query = make_text(SOURCE.randint(3, 25))
        began, cpu = time.perf_counter(), time.process_time()
        await store.search(query, scope="acme", threshold=0.1)
        took.append(1000 * (time.perf_counter() - began))
        used.append(1000 * (time.process_time() - cpu))
    for name, values in (("search", took), ("its CPU", used)):
        p95 = statistics.quantiles(values, n=20)[-1]
        median = statistics.median(values)
        print(
            f"{name:8} median {median:6.2f} ms, p95 {p95:6.2f} ms, max {max(values):6.2f} ms"
        )
    began = time.perf_counter()
    count = await store.forget(source_run="run7")
    print(f"forget   {count} items in {time.perf_counter() - began:.2f} s")


async def main() -> None:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{ITEMS:,} items, {DIMENSIONS} dimensions; load of the machine {load}")
    with tempfile.TemporaryDirectory() as folder:
        embedder = RandomEmbedder() if DIMENSIONS else None
        store = SQLiteKnowledge(Path(folder) / "memory.db", embedder=embedder)
        fill(store, embedder)
        await measure(store)
        await store.close()


asyncio.run(main())
