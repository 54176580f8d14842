"""What watching and streaming cost: plain, watched and streamed runs in turn in one process, beside the fake server.

    BENCH_DIR=../shared/bench python tests/benchmarks/bench_streaming.py --rounds 10

Prints CPU microseconds for each model call (user and system time of this process, all threads), and the median of the
ratios to the plain run of the same turn.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = Path(os.environ.get("BENCH_DIR", ROOT.parent / "shared" / "bench")).resolve()
sys.path[:0] = [str(Path(__file__).parent), str(BENCH)]
PORT, SESSIONS = 8398, 4


async def measure(rounds: int, turns: int) -> None:
    """Run all kinds in turn and print what they cost."""
    from contestant import build
    from tools_common import QUESTION, SYSTEM  # pyright: ignore[reportMissingImports] - of the harness

    from loopwright import Conversation

    engine = build(10, f"http://127.0.0.1:{PORT}/n{rounds}/d0/native/v1")

    async def session(kind: str) -> None:
        task = Conversation.of(QUESTION, system=SYSTEM)
        if kind == "plain":
            await engine.run(task)
            return
        async with engine.start(task, deltas=kind == "streamed") as run:
            async for _ in run:
                pass

    costs: dict[str, list[float]] = {"plain": [], "watched": [], "streamed": []}
    for _ in range(turns):
        for kind, cost in costs.items():
            before = time.process_time()
            for _ in range(SESSIONS):
                await session(kind)
            cost.append((time.process_time() - before) / SESSIONS / (rounds + 1) * 1e6)
    for kind, cost in costs.items():
        ratio = statistics.median(
            [
                mine / plain
                for mine, plain in zip(cost[2:], costs["plain"][2:], strict=True)
            ]
        )
        print(
            f"{kind:8}  {statistics.median(cost[2:]):6.0f} us a call, {ratio:.3f} of the plain run"
        )


def main() -> None:
    """Start the harness's server, measure, stop it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--turns", type=int, default=22)
    given = options.parse_args()
    server = subprocess.Popen(
        [sys.executable, str(BENCH / "server.py"), "--port", str(PORT)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert "listening" in server.stdout.readline()
        asyncio.run(measure(given.rounds, given.turns))
    finally:
        server.terminate()


main()
