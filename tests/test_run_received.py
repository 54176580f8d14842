"""What people sent and what earlier turns noted, as data for an engine: once, and the same when a run is resumed."""

import dataclasses
from typing import Any

import pytest

from function_engine import FunctionEngine
from loopwright import ConfigError, MemoryJournal, Run, Runtime, tool
from loopwright.testing import ScriptedProvider, crashed


@tool(effect="write", trusted=True)
async def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


@dataclasses.dataclass(frozen=True)
class Goal:
    """A fact."""

    text: str


def build(body: Any, *script: Any, journal: MemoryJournal | None = None) -> Any:
    runtime = Runtime(ScriptedProvider(script), tools=[look], journal=journal)
    return FunctionEngine(runtime, body=body)


async def test_commands_are_received_once_as_data_and_not_given_to_models() -> None:
    handles: list[Any] = []

    async def body(run: Run) -> str:
        await run.ask("First?")
        if handles:
            await handles[0].steer("Be brief.")
            await handles[0].add_context("It is winter.")
            await handles[0].override("look", {"what": "sky"})
        taken = [await run.received(), await run.received()]
        await run.ask("Second?")
        commands = [one for group in taken for one in group]
        said = [one.body.get("text", one.body.get("tool")) for one in commands]
        return " ".join(f"{one.kind}:{text}" for one, text in zip(commands, said, strict=True))  # fmt: skip

    engine = build(body, "a", "b")
    handles.append(engine.start("Go.", run_id="r"))
    result = await handles[0].result()
    expected = "steer:Be brief. add_context:It is winter. override:look"

    assert result.answer == expected
    second = engine.runtime.provider.requests[1].conversation
    assert [message.content for message in second] == ["Second?"]
    assert result.tool_calls == 0
    entries = engine.runtime.journal.read("r")
    received = next(e.seq for e in entries if e.kind == "effect_finished")
    handles.clear()
    for keep in range(received, len(entries)):
        asked = sum(entry.kind == "model_replied" for entry in entries[:keep])
        again = build(body, *"ab"[asked:], journal=crashed(entries, keep))
        assert (await again.resume("r")).answer == expected


async def test_kinds_that_are_not_wanted_go_their_usual_way() -> None:
    handles: list[Any] = []

    async def body(run: Run) -> str:
        await run.ask("First?")
        await handles[0].steer("Be brief.")
        await handles[0].add_context("It is winter.")
        taken = await run.received(kinds=("add_context",))
        await run.ask("Second?")
        return str([one.kind for one in taken])

    engine = build(body, "a", "b")
    handles.append(engine.start("Go.", run_id="r"))
    result = await handles[0].result()
    second = engine.runtime.provider.requests[1].conversation

    assert result.answer == "['add_context']"
    assert any("Be brief." in message.content for message in second)
    assert not any("winter" in message.content for message in second)


async def test_an_unknown_kind_is_refused() -> None:
    async def body(run: Run) -> str:
        return str(await run.received(kinds=("abort",)))

    result = await build(body).run("Go.")

    assert isinstance(result.error, ConfigError)
    assert "kinds: must be some of steer, add_context, override" in str(result.error)


async def test_facts_of_earlier_turns_are_read_as_they_were_recorded() -> None:
    async def body(run: Run) -> str:
        known = await run.thread_facts(Goal)
        run.note(Goal(f"goal {len(known) + 1}"))
        await run.ask("Go on?")
        return " ".join(fact.text for fact in known) or "none"

    engine = build(body, "a", "b", "c")
    answers = [
        (await engine.run("Go.", run_id=f"r{turn}", thread="ada")).answer
        for turn in range(3)
    ]
    other = build(body, "d", journal=engine.runtime.journal)
    alone = await other.run("Go.", thread="bob")

    assert answers == ["none", "goal 1", "goal 1 goal 2"]
    assert alone.answer == "none"
    entries = engine.runtime.journal.read("r2")
    cut = next(entry.seq for entry in entries if entry.kind == "model_requested")
    # The other turns are gone: what was read is recorded.
    again = build(body, "c", journal=crashed(entries, cut))
    assert (await again.resume("r2")).answer == "goal 1 goal 2"


async def test_the_last_facts_are_those_of_the_newest_turns() -> None:
    async def body(run: Run) -> str:
        known = await run.thread_facts(Goal, last=2)
        run.note(Goal(f"{run.task} a"))
        run.note(Goal(f"{run.task} b"))
        await run.ask("Go on?")
        return ", ".join(fact.text for fact in known)

    engine = build(body, *"abc")
    answers = [
        (await engine.run(str(turn), run_id=f"r{turn}", thread="ada")).answer
        for turn in range(3)
    ]

    assert answers == ["", "0 a, 0 b", "1 a, 1 b"]
    wrong = await build(lambda run: run.thread_facts(Goal, last=0)).run("Go.")
    assert "last: must be at least 1, got 0" in str(wrong.error)


async def test_a_run_without_a_thread_has_no_facts_of_one() -> None:
    async def body(run: Run) -> str:
        return str(await run.thread_facts(Goal))

    assert (await build(body).run("Go.")).answer == "()"
    with pytest.raises(ConfigError):
        await build(body).resume("none")
