"""Random edits of random programs: new code that cannot replay a run does nothing, and the old code continues it.

Each program runs to its end; its journal is cut at random places, and edited code resumes the run there. Where it
diverges, nothing was paid and no model was asked, the journal has the resume and the suspension and nothing else, and
the old code completes the run.
"""

import asyncio
import dataclasses
import random
import zlib
from collections import Counter

import pytest

from fault_sizes import figure, sized
from loopwright import MemoryJournal, Request, Runtime, tool
from loopwright.errors import ReplayDivergence
from loopwright.events import Entry, RunResumed, RunSuspended, ToolStarted
from loopwright.testing import ScriptedProvider, crashed
from random_programs import (
    Program,
    Stepping,
    digest,
    edit_program,
    make_program,
    patch_program,
)

PROGRAMS = sized(120, 1000)
CUTS = sized(5, 12)  # of each program
PARTS = 4
SEED = 20261124
MAX_TURNS = 12
"""How many turns of the event loop a tool takes at most, so that branches are cut anywhere."""
PAID: list[str] = []


@tool(effect="write")
async def pay(what: str) -> str:
    """Pay, and take a while."""
    PAID.append(what)
    await wait_for_others(what)
    return f"{what} paid"


@tool(effect="read")
async def look(what: str) -> str:
    """Look, and take a while."""
    await wait_for_others(what)
    return f"{what} is blue"


async def wait_for_others(what: str) -> None:
    """Let other branches run for some turns of the loop, how many depends on the text."""
    for _ in range(zlib.crc32(what.encode()) % MAX_TURNS):
        await asyncio.sleep(0)


def answer(request: Request) -> str:
    return digest(request.conversation.messages[-1].content)


@dataclasses.dataclass
class Execution:
    """What one process did with a run."""

    status: str
    answer: str | None
    paid: int
    asked: int


async def execute(program: Program, journal: MemoryJournal, *, new: bool) -> Execution:
    """Run a program on a journal to its end or to its divergence."""
    provider = ScriptedProvider(answer)
    engine = Stepping(
        Runtime(provider, tools=[pay, look], journal=journal), program=program
    )
    before = len(PAID)
    try:
        result = await (engine.run("Go.", run_id="r") if new else engine.resume("r"))
        status, found = str(result.status), result.answer
    except ReplayDivergence as error:
        status, found = "diverged", str(error)
    return Execution(status, found, len(PAID) - before, len(provider.requests))


def has_unknown_outcome(entries: list[Entry]) -> bool:
    """Whether the process died in the middle of a payment: the model reads that, so the answer differs."""
    started = {e.key for e in entries if isinstance(e.event, ToolStarted)}
    return bool(started - {e.key for e in entries if e.kind == "tool_finished"})


async def check_program(seed: int, counts: Counter[str]) -> None:
    source = random.Random(seed)
    old = make_program(source)
    journal = MemoryJournal()
    whole = await execute(old, journal, new=True)
    assert whole.status == "completed", seed
    entries = journal.read("r")
    for _ in range(CUTS):
        new = old
        for _ in range(source.choice((1, 1, 2, 3))):
            new = edit_program(source, new)
        keep = source.randrange(1, len(entries))
        await check_cut(f"{seed} at {keep}", (old, new), entries[:keep], whole, counts)
    counts["programs"] += 1


async def check_cut(
    name: str,
    programs: tuple[Program, Program],
    entries: list[Entry],
    whole: Execution,
    counts: Counter[str],
) -> None:
    old, new = programs
    keep = len(entries)
    cut = crashed(entries, keep)
    resumed = await execute(new, cut, new=False)
    counts["resumes"] += 1
    counts[resumed.status] += 1
    if resumed.status != "diverged":
        assert resumed.status == "completed", name
        return
    added = [type(entry.event) for entry in cut.read("r")[keep:]]
    problem = f"{name}: {resumed.answer}\n{old}\n{new}"
    assert (resumed.paid, resumed.asked) == (0, 0), problem
    assert added == [RunResumed, RunSuspended], problem
    continued = await execute(old, cut, new=False)
    counts["resumes"] += 1
    assert continued.status == "completed", f"{problem}\n{continued.answer}"
    if not has_unknown_outcome(entries):
        assert continued.answer == whole.answer, problem


@pytest.mark.parametrize("part", range(PARTS))
async def test_code_that_diverges_does_nothing_and_old_code_continues(
    part: int,
) -> None:
    counts: Counter[str] = Counter()
    for number in range(part, PROGRAMS, PARTS):
        await check_program(SEED + number, counts)

    figure(
        f"code changes, part {part}",
        f"{counts['programs']} programs, {counts['resumes']} resumes, {counts['diverged']} diverged, "
        "0 payments and 0 model calls before a divergence, all continued by the old code",
    )
    assert counts["diverged"] > counts["programs"]


@pytest.mark.parametrize("part", range(PARTS))
async def test_new_code_behind_a_patch_resumes_every_run(part: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(part, PROGRAMS, PARTS):
        await check_patch(SEED + number, counts)

    figure(
        f"patched code, part {part}",
        f"{counts['programs']} programs, {counts['resumes']} resumes, 0 diverged",
    )


async def check_patch(seed: int, counts: Counter[str]) -> None:
    """Resume a run of old code with patched code, and that again, wherever they were cut."""
    source = random.Random(seed)
    old = make_program(source)
    journal = MemoryJournal()
    await execute(old, journal, new=True)
    entries = journal.read("r")
    for _ in range(CUTS):
        new = patch_program(source, old)
        cut = crashed(entries, source.randrange(1, len(entries)))
        first = await execute(new, cut, new=False)
        assert first.status == "completed", f"{seed}: {first.answer}\n{old}\n{new}"
        longer = cut.read("r")
        again = crashed(longer, source.randrange(1, len(longer)))
        second = await execute(new, again, new=False)
        assert second.status == "completed", f"{seed}: {second.answer}\n{old}\n{new}"
        counts["resumes"] += 2
    counts["programs"] += 1
