"""How a 135-million-parameter model fares with goals over three skills: how many end completed, and with what is asked for.

Run it with `python tests/benchmarks/local_goals.py` (some minutes); `-v` prints every reply and fact, `--limit 3` takes the
first three goals.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loopwright import LoopEngine, Result
from loopwright.agents import Agent
from loopwright.compose import load
from loopwright.events import Event, FactNoted, ModelReplied, ToolFinished

EXAMPLES = Path(__file__).parents[2] / "examples"
FILE = EXAMPLES / "small_model_goals.toml"
GOALS = [
    ("What is the capital of Japan?", "Tokyo"),
    ("How many people live in Lima?", "10,092,000"),
    ("How many people live in the capital of Japan?", "14,178,000"),
    ("Which is larger, 17 or 23?", "23"),
    ("Find out how many people live in Oslo.", "717,000"),
    ("Look up the capital of Kenya.", "Nairobi"),
    ("Do more people live in Paris or in Rome?", "2,747,000"),
    ("Tell me the capital of Egypt and how many people live there.", "10,203,000"),
    ("How many people live in the capital of Poland?", "1,862,000"),
    ("Compare the capital of Spain with the capital of Greece by people.", "3,332,000"),
]  # fmt: skip


def print_event(event: Event) -> None:
    """Print what is worth reading of a run."""
    match event:
        case ModelReplied(completion=reply, seconds=seconds):
            print(f"    reply [{seconds:.1f} s] {reply.text!r}", flush=True)
        case FactNoted(name=name, value=value):
            print(f"    {name} {value!r}")
        case ToolFinished(tool=name, content=content):
            print(f"    {name} -> {content}")
        case _:
            pass


async def reach(engine: LoopEngine | Agent[Any], goal: str, verbose: bool) -> Result:
    """Return the result of the goal cycle."""
    async with engine.start(goal) as run:
        async for entry in run:
            if verbose:
                print_event(entry.event)
        return await run.result()


async def measure(goals: Iterable[tuple[str, str]], verbose: bool) -> None:
    """Print how each goal ended, and the counts."""
    sys.path.insert(0, str(EXAMPLES))
    engine = load(FILE).choose()
    completed = right = total = 0
    for goal, wanted in goals:
        began = time.perf_counter()
        result = await reach(engine, goal, verbose)
        seconds = time.perf_counter() - began
        total += 1
        completed += result.status == "completed"
        is_right = result.status == "completed" and wanted in (result.answer or "")
        right += is_right
        print(
            f"{'right' if is_right else '-':6} {result.status:10} {result.stop_reason:16} {result.llm_calls:3} calls "
            f"{seconds:5.1f} s  {goal}  ->  {result.answer!r:.120}",
            flush=True,
        )
    print(f"{total} goals: {completed} completed, {right} with what was asked for")


def main() -> None:
    """Measure the goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--limit", type=int, default=len(GOALS))
    given = parser.parse_args()
    asyncio.run(measure(GOALS[: given.limit], given.verbose))


if __name__ == "__main__":
    main()
