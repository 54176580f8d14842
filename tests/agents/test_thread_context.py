"""A thread that no longer fits: each turn continues the cut and the summary of the turn before, in any process."""

import itertools
from pathlib import Path

import pytest

from loopwright import Limits, Request, Runtime
from loopwright.agents import Thread
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider

TURNS = 60


class Model:
    """Answers, and writes summaries when asked to."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.summaries = 0

    def __call__(self, request: Request) -> str:
        if request.conversation.messages[-1].content.startswith("Summarize"):
            self.summaries += 1
            return '{"done": ["the first turns"]}'
        self.requests.append(request)
        return "word " * 40


def open_thread(path: Path, model: Model, context: str) -> tuple[Runtime, Thread[None]]:
    runtime = Runtime(
        ScriptedProvider(model), journal=SQLiteJournal(path), context=context,
        limits=Limits(context_tokens=1_500),
    )  # fmt: skip
    return runtime, runtime.agent("clerk", instructions="Be kind.").thread("ada")


@pytest.mark.parametrize("processes", [1, TURNS])
async def test_summaries_of_a_thread_are_as_few_as_those_of_a_run(
    tmp_path: Path, processes: int
) -> None:
    model, turns = Model(), TURNS // processes
    for process in range(processes):
        runtime, thread = open_thread(tmp_path / "runs.db", model, "anchored")
        for number in range(process * turns, (process + 1) * turns):
            await thread.run(f"message {number}")
        await runtime.journal.close()

    whole = len(model.requests[-1].conversation)
    assert whole < TURNS
    assert 1 <= model.summaries <= TURNS // 6
    last = [m.content for m in model.requests[-1].conversation]
    assert any("the first turns" in content for content in last)


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
