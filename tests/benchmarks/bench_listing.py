"""Time the first page of 100,000 runs: `python tests/benchmarks/bench_listing.py [RUNS]`."""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from large_journal import make_large_journal
from loopwright.journals import RunFilter

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
PAGES = {
    "all runs": RunFilter(),
    "status=waiting": RunFilter(status="waiting"),
    "engine=rare": RunFilter(engine="rare"),
    "engine=react": RunFilter(engine="react"),
    "agent=clerk": RunFilter(agent="clerk"),
    "thread=t7": RunFilter(thread="t7"),
    "tag user=42": RunFilter(tags={"user": "42"}),
    "tag tenant=acme": RunFilter(tags={"tenant": "acme"}),
    "40 seconds": RunFilter(since=1e9 + RUNS / 2, until=1e9 + RUNS / 2 + 40),
    "text, found nowhere": RunFilter(text="nowhere"),
}

with tempfile.TemporaryDirectory() as folder:
    journal = make_large_journal(Path(folder) / "runs.db", RUNS)
    for name, where in PAGES.items():
        took: list[float] = []
        for _ in range(20):
            began = time.perf_counter()
            journal.runs(where=where, limit=50)
            took.append(time.perf_counter() - began)
        print(
            f"{name:22} {statistics.median(took) * 1000:7.2f} ms, at most {max(took) * 1000:.2f} ms"
        )
    began = time.perf_counter()
    journal.count_runs()
    print(f"{'count by status':22} {(time.perf_counter() - began) * 1000:7.2f} ms")
