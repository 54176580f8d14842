"""CPU time of a journal step (4 entries, 2 barriers), for one run alone and for 32 at once."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from loopwright.events import Entry
from loopwright.journals import (
    Claim,
    Journal,
    MemoryJournal,
    RunHeader,
    SQLiteJournal,
    chain_hash,
)
from loopwright.storage.file import Synchronous

MODES: tuple[Synchronous, ...] = ("FULL", "NORMAL")
BODY = b'{"text":"' + b"x" * 280 + b'"}'


def follow(claim: Claim, count: int) -> list[Entry]:
    """The next entries of a run, as the kernel makes them."""
    entries: list[Entry] = []
    for _ in range(count):
        seq = claim.head_seq + 1
        bare = Entry(
            claim.run_id,
            seq,
            f"0#{seq}",
            "model_replied",
            1.5e9 + seq,
            1,
            claim.fence,
            BODY,
            "",
        )
        claim.head_seq, claim.head_hash = seq, chain_hash(claim.head_hash, bare)
        fields = (
            bare.run_id,
            seq,
            bare.key,
            bare.kind,
            bare.at,
            bare.v,
            bare.fence,
            BODY,
            claim.head_hash,
        )
        entries.append(Entry(*fields))
    return entries


async def write(journal: Journal, run_id: str, steps: int) -> None:
    """One run of so many steps."""
    claim = journal.create(RunHeader(run_id, "bench", "{}", "1", "here|1|1|t", 1.5e9))
    for _ in range(steps):
        journal.append(claim, follow(claim, 3))
        await journal.barrier(claim)
        journal.append(claim, follow(claim, 1))
        await journal.barrier(claim)


async def measure(journal: Journal, writers: int, steps: int) -> tuple[float, float]:
    """CPU and wall microseconds for one step, after a short warm-up."""
    await write(journal, "warm-up", 5)
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(write(journal, f"run-{i}", steps) for i in range(writers)))
    count = writers * steps / 1e6
    figures = (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count
    await journal.close()
    return figures


def main(folder: Path) -> None:
    """Print a line for each case."""
    for writers, steps in ((1, 1000), (32, 60)):
        memory, _ = asyncio.run(measure(MemoryJournal(), writers, steps))
        for mode in MODES:
            journal = SQLiteJournal(folder / f"{mode}-{writers}.db", synchronous=mode)
            cpu, wall = asyncio.run(measure(journal, writers, steps))
            print(
                f"{writers:2} writers, synchronous={mode:6}: {cpu:5.0f} us CPU, {wall:5.0f} us wall a step; "
                f"of that CPU {memory:3.0f} us are the entries"
            )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(
        dir=sys.argv[1] if len(sys.argv) > 1 else None
    ) as made:
        main(Path(made))
