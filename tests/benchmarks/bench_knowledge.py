"""Time searches in 100,000 items of knowledge: `python tests/benchmarks/bench_knowledge.py [ITEMS]`."""

import asyncio
import itertools
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from loopwright.knowledge import Remembered, SQLiteKnowledge
from loopwright.knowledge.sqlite.items import Items

ITEMS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
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


def make_text(words: int) -> str:
    return " ".join(SOURCE.choices(WORDS, cum_weights=FREQUENCIES, k=words))


def fill(store: SQLiteKnowledge) -> None:
    """Store half of the items in one scope, and the others in fifty, in one transaction."""

    def work(cursor: object) -> None:
        items = Items(cursor)  # type: ignore[arg-type]
        for number in range(ITEMS):
            scope = "acme" if number % 2 else f"tenant{number % 100}"
            text, run = make_text(SOURCE.randint(8, 30)), f"run{number // 20}"
            item = Remembered(text, scope=scope, source_run=run)
            items.store(item, str(number), 0.0)

    store._write(work)


async def measure(store: SQLiteKnowledge) -> None:
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
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteKnowledge(Path(folder) / "memory.db")
        fill(store)
        await measure(store)
        await store.close()


asyncio.run(main())
