"""A thread that no longer fits: each turn continues the cut and the summary of the turn before, in any process."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from loopwright import Limits, MemoryJournal, Request, Runtime, tool
from loopwright.agents import Agent, InstructionContext, Thread
from loopwright.errors import ContextTooLong
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider, call, crashed

TURNS = 60


@tool(effect="read", trusted=True)
async def look(n: int) -> str:
    """Look something up."""
    return f"The code of {n} is {n * 111}. " + "x" * 1_500


class Model:
    """Answers, and writes summaries when asked to."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.summaries = 0

    def __call__(self, request: Request) -> Any:
        if request.conversation.messages[-1].content.startswith("Summarize"):
            self.summaries += 1
            return '{"done": ["the first turns"]}'
        self.requests.append(request)
        return "word " * 40


def open_thread(
    path: Path,
    model: Any,
    context: str,
    instructions: Any = "Be kind.",
    tokens: int = 1_500,
) -> tuple[Runtime, Thread[None]]:
    runtime = Runtime(
        ScriptedProvider(model), journal=SQLiteJournal(path), context=context,
        limits=Limits(context_tokens=tokens), tools=[look],
    )  # fmt: skip
    return runtime, runtime.agent("clerk", instructions=instructions).thread("ada")


def say_the_turn(context: InstructionContext) -> str:
    """Write other words for each turn."""
    return f"Be kind. Now it is {context.task}."


@pytest.mark.parametrize(
    ("processes", "instructions"),
    [
        (1, "Be kind."),
        pytest.param(TURNS // 3, "Be kind.", marks=pytest.mark.faults),
        (1, say_the_turn),
        pytest.param(TURNS, say_the_turn, marks=pytest.mark.faults),
    ],
)
async def test_summaries_of_a_thread_are_as_few_as_those_of_a_run(
    tmp_path: Path, processes: int, instructions: Any
) -> None:
    model, turns = Model(), TURNS // processes
    for process in range(processes):
        runtime, thread = open_thread(
            tmp_path / "runs.db", model, "anchored", instructions
        )
        for number in range(process * turns, (process + 1) * turns):
            await thread.run(f"message {number}")
        await runtime.journal.close()

    whole = len(model.requests[-1].conversation)
    assert whole < TURNS
    assert 1 <= model.summaries <= TURNS // 6
    last = [m.content for m in model.requests[-1].conversation]
    assert any("the first turns" in content for content in last)
    if instructions is say_the_turn:
        assert last[0] == f"Be kind. Now it is message {TURNS - 1}."


async def test_a_cut_of_a_thread_holds_for_the_turns_after_it(tmp_path: Path) -> None:
    model = Model()
    runtime, thread = open_thread(tmp_path / "runs.db", model, "masking")
    for number in range(TURNS):
        await thread.run(f"message {number}")
    await runtime.journal.close()

    starts = [
        [m.content for m in request.conversation][:4] for request in model.requests
    ]
    changes = sum(one != other for one, other in itertools.pairwise(starts))
    assert len(model.requests[-1].conversation) < TURNS
    assert changes <= TURNS // 4


class Looker:
    """Looks something up in each turn, and reads again what a mask of the first turn names when asked to."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        *_, last = request.conversation.messages
        if last.role == "tool":
            return last.content[:80]
        if last.content == "again":
            return call("recall", handle=find_masks(request)[0][1])
        return call("look", n=int(last.content.split()[1]))


def find_masks(request: Request) -> list[tuple[int, str]]:
    """The masks of a request: the place and the handle of each."""
    found = enumerate(m.content for m in request.conversation)
    return [(at, text.split('"')[1]) for at, text in found if "read it with" in text]


@pytest.mark.parametrize("processes", [1, 16])
async def test_masks_of_a_thread_are_the_same_in_each_turn(
    tmp_path: Path, processes: int
) -> None:
    model = Looker()
    texts = [f"message {number}" for number in range(1, 16)] + ["again"]
    for begin in range(0, 16, 16 // processes):
        runtime, thread = open_thread(
            tmp_path / "runs.db", model, "masking", tokens=4_000
        )
        for text in texts[begin : begin + 16 // processes]:
            result = await thread.run(text)
        await runtime.journal.close()

    masks = [find_masks(request) for request in model.requests]
    shown = [dict(found) for found in masks if found]
    assert len(shown) > 8
    turn, _, code = masks[-1][0][1].partition("/")
    assert (len(shown[-1]) > 3, int(turn) < 12, code) == (True, True, "0#0")
    for before, after in itertools.pairwise(shown):
        if after.keys() >= before.keys():
            assert before.items() <= after.items()
    assert f"The code of {turn} is {int(turn) * 111}." in str(result.answer)


class SmallModel(Model):
    """Refuses what is longer than its context, which nobody was told of."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __call__(self, request: Request) -> Any:
        size = sum(len(message.content) for message in request.conversation)
        if size > 3_000:
            return ContextTooLong("the context is 3,000 characters long")
        reply = super().__call__(request)
        self.sizes.append(size)
        return reply


def open_clerk(journal: MemoryJournal, model: Model, context: str) -> Agent[None]:
    """A clerk as a new process has one."""
    limits = Limits(context_tokens=32_000)
    provider = ScriptedProvider(model)
    return Runtime(provider, journal=journal, context=context, limits=limits).agent(
        "clerk"
    )


@pytest.mark.parametrize("context", ["masking", "anchored", "window"])
async def test_thread_continues_beyond_a_context_that_is_smaller_than_known(
    context: str,
) -> None:
    journal, model = MemoryJournal(), SmallModel()
    for number in range(20):
        thread = open_clerk(journal, model, context).thread("ada")
        result = await thread.run(f"{number} " + "z" * 400)
        assert (number, result.status) == (number, "completed")

    grown = [two for one, two in itertools.pairwise(model.sizes[8:]) if two > one]
    assert len(grown) >= 7  # a cut stays, and is made anew only where that has no room
    assert max(model.sizes[8:]) > 2_000


async def test_refused_turn_whose_process_died_anywhere_is_answered_alike() -> None:
    journal = MemoryJournal()
    thread = open_clerk(journal, SmallModel(), "masking").thread("ada")
    for number in range(10):
        ended = await thread.run(f"{number} " + "z" * 400)
    entries = journal.read(ended.run_id)
    assert [entry.kind for entry in entries].count("attempt_failed") == 2
    for keep in range(1, len(entries)):
        copied = MemoryJournal()
        for info in reversed(journal.runs()):
            if info.run_id != ended.run_id:
                whole = journal.read(info.run_id)
                crashed(whole, len(whole), copied)
        clerk = open_clerk(crashed(entries, keep, copied), SmallModel(), "masking")
        again = await clerk.resume(ended.run_id)

        assert (keep, again.status, again.answer) == (keep, "completed", ended.answer)
