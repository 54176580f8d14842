"""Working memory: compressed when it is due and long, people's words kept, the same again on resume."""

from typing import Any

import pytest

from function_engine import FunctionEngine
from loopwright import ConfigError, MemoryJournal, Request, Run, Runtime
from loopwright.engines import WorkingMemory
from loopwright.testing import ScriptedProvider, crashed

SHORT = "short notes"


def answer(request: Request) -> str:
    prompt = str(request.conversation.messages[-1].content)
    return SHORT if prompt.startswith("Shorten these notes") else f"about {len(prompt)}"


def engine(body: Any, journal: MemoryJournal | None = None, model: Any = answer) -> Any:
    return FunctionEngine(Runtime(ScriptedProvider(model), journal=journal), body=body)


async def work(run: Run) -> object:
    """Seven iterations, each with a question that holds the memory and a note of 100 characters."""
    notes = WorkingMemory(every=3, above=150, limit=1_000).open(run)
    notes.add_person("Use metric units, always.")
    for number in run.iterations(7):
        notes.add(f"{number} {await run.ask(f'Go on. {notes.text}')} ".ljust(100, "x"))
        await notes.end_iteration()
    return notes.text


async def test_notes_are_compressed_when_due_and_people_are_quoted() -> None:
    started = engine(work, MemoryJournal())
    result = await started.run("go", run_id="r")
    purposes = [
        e.event.purpose
        for e in started.runtime.journal.read("r")
        if e.kind == "model_requested"
    ]

    assert purposes.count("memory") == 2
    assert [i for i, purpose in enumerate(purposes) if purpose == "memory"] == [3, 7]
    lines = str(result.answer).splitlines()
    assert lines[:2] == ["Use metric units, always.", SHORT]
    assert lines[2].startswith("7 about")
    assert result.fact("MemorySnapshot")["iterations"] == 6


async def test_a_run_cut_after_any_entry_has_the_same_memory() -> None:
    whole = engine(work, MemoryJournal())
    result = await whole.run("go", run_id="r")
    entries = whole.runtime.journal.read("r")

    for keep in range(1, len(entries)):
        resumed = await engine(work, crashed(entries, keep)).resume("r")
        assert resumed.answer == result.answer
        assert resumed.facts == result.facts


async def test_short_notes_are_left_and_a_longer_or_empty_summary_is_not_taken() -> (
    None
):
    async def short(run: Run) -> object:
        notes = WorkingMemory(every=1, above=50, limit=100).open(run)
        notes.add("brief")
        await notes.end_iteration()
        return notes.text

    async def long(run: Run) -> object:
        notes = WorkingMemory(every=1, above=50, limit=100).open(run)
        notes.add("y" * 60)
        await notes.end_iteration()
        return notes.text

    assert (await engine(short, model=["never asked"]).run("go")).answer == "brief"
    for summary in ("z" * 90, "", " \n"):
        answers = engine(long, model=lambda request, text=summary: text)
        assert (await answers.run("go")).answer == "y" * 60


async def test_notes_that_stay_too_long_lose_the_oldest() -> None:
    async def body(run: Run) -> object:
        notes = WorkingMemory(every=5, above=50, limit=100).open(run)
        notes.add_person("p" * 300)
        for number in range(4):
            notes.add(f"{number}" * 40)
            await notes.end_iteration()
        return notes.text

    text = str((await engine(body).run("go")).answer)

    assert text.startswith("p" * 300)
    assert "[earlier notes were left out]" in text
    assert "3" * 40 in text
    assert "0" not in text
    assert len(text) <= 300 + 1 + 100


def test_settings_that_make_no_sense_are_refused() -> None:
    given: list[tuple[dict[str, Any], str]] = [
        ({"every": 0}, "every"),
        ({"every": "3"}, "every"),
        ({"limit": True}, "limit"),
        ({"above": 9, "limit": 8}, "above"),
    ]
    for options, name in given:
        with pytest.raises(ConfigError, match=name):
            WorkingMemory(**options)
