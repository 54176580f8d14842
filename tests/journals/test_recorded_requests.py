"""`Journal.request` gives back what was sent to the runtime's provider, for every model call."""

import asyncio
import contextlib
import dataclasses
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from kill_notes import Notes
from kill_programs import ENDLESS, KILL_PROGRAMS, tools_of
from loopwright import (
    ChainOfThoughtEngine,
    ConfigError,
    CriticEngine,
    Journal,
    Limits,
    LoopEngine,
    MemoryJournal,
    PlanExecuteEngine,
    ReActEngine,
    ReflexionEngine,
    Run,
    Runtime,
    SelfAskEngine,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright.engines import TurnEngine
from loopwright.errors import ContextTooLong, ProviderError
from loopwright.events import Entry, ModelRequested, RunStarted, encode_event
from loopwright.journals import RunHeader, SQLiteJournal
from loopwright.journals.owner import Owner
from loopwright.messages import Completion, Conversation
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider, call, crashed

TEXT = "The quick brown fox jumps over the lazy dog. "


@tool(effect="read")
def look(what: str) -> str:
    """Look something up."""
    return f"first line of {what}\n{TEXT * 10}"


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: Any, tmp_path: Path) -> Journal:
    return (
        MemoryJournal()
        if request.param == "memory"
        else SQLiteJournal(tmp_path / "runs.db")
    )


async def list_recorded(journal: Any, run_id: str) -> list[Request]:
    """The requests of all attempts of a run, in the order of their first entries."""
    requests: list[Request] = []
    for key in list_calls(journal.read(run_id)):
        attempt = 0
        while True:
            try:
                requests.append(await journal.request(run_id, key, attempt))
            except ConfigError:
                break
            attempt += 1
    return requests


def list_calls(entries: list[Entry]) -> list[str]:
    keys = [one.key for one in entries if isinstance(one.event, ModelRequested)]
    return list(dict.fromkeys(keys))


def assert_same(recorded: list[Request], sent: list[Request]) -> None:
    """Each request that was sent is recorded, and no other one; calls of branches mix."""
    left = list(sent)
    for request in recorded:
        assert request in left, f"nothing like it was sent: {request!r}"
        left.remove(request)
    assert left == []


@pytest.mark.parametrize("name", sorted({*KILL_PROGRAMS} - {"tiny", *ENDLESS}))
async def test_each_call_of_a_program_is_given_back_wherever_it_was_cut(
    name: str, tmp_path: Path
) -> None:
    program = KILL_PROGRAMS[name]
    sent: list[Request] = []

    def model(request: Request) -> Any:
        sent.append(request)
        return program.model(request)

    async def drive(journal: Journal, run_id: str | None) -> None:
        runtime = Runtime(
            ScriptedProvider(model),
            tools=tools_of(program),
            journal=journal,
            gate=program.gate,
            approver=program.approver,
            limits=Limits(max_llm_calls=12),
        )
        engine, deps = program.engine(runtime), Notes(tmp_path, 0)
        if run_id is None:
            await engine.run(program.task, run_id="r", deps=deps)
        else:
            await engine.resume(run_id, deps=deps)

    whole = MemoryJournal()
    await drive(whole, None)
    entries = whole.read("r")
    assert_same(await list_recorded(whole, "r"), sent)
    for cut in range(2, len(entries), max(len(entries) // 6, 1)):
        journal = await cut_off(entries, cut)
        sent.clear()
        await drive(journal, "r")
        recorded = await list_recorded(journal, "r")
        for request in sent:
            assert request in recorded
        assert journal.verify("r").ok


async def cut_off(entries: list[Entry], cut: int) -> MemoryJournal:
    """A journal with the first entries of a run, whose process died."""
    journal, started = MemoryJournal(), entries[0].event
    assert isinstance(started, RunStarted)
    owner = Owner.of_this_process("dead")
    options = to_json(started.options).decode()
    header = RunHeader("r", started.engine, options, started.version, str(owner), started.created)  # fmt: skip
    journal.append(journal.create(header), entries[:cut])
    return journal


def any_reply(request: Request) -> Any:
    """A reply that every engine can read somehow."""
    turns = sum(message.role == "assistant" for message in request.conversation)
    if request.tool_choice == "auto" and request.tools and turns == 0:
        return call("look", what="a")
    return "Thought: it is easy.\nSo the final answer is: 42"


ENGINES: dict[str, Any] = {
    "react": ReActEngine,
    "plan-execute": PlanExecuteEngine,
    "reflexion": ReflexionEngine,
    "self-ask": SelfAskEngine,
    "chain-of-thought": ChainOfThoughtEngine,
    "critic": CriticEngine,
    "tree-of-thoughts": TreeOfThoughtsEngine,
    "turn": TurnEngine,
}


@pytest.mark.parametrize("name", ENGINES)
async def test_each_call_of_an_engine_is_given_back(
    name: str, journal: Journal
) -> None:
    model = ScriptedProvider(any_reply)
    runtime = Runtime(
        model, tools=[look], journal=journal, limits=Limits(max_llm_calls=12)
    )
    options = {"critic": {"tool": "look"}, "self-ask": {"tool": "look"}}.get(name, {})
    engine = build(name, runtime, options)
    await engine.run("How much is six times seven?", run_id="r")

    assert len(model.requests) >= 1
    assert_same(await list_recorded(journal, "r"), model.requests)
    assert journal.verify("r").ok


def build(name: str, runtime: Runtime, options: dict[str, Any]) -> LoopEngine:
    try:
        return ENGINES[name](runtime, **options)  # type: ignore[no-any-return]
    except (TypeError, ConfigError):
        return ENGINES[name](runtime)  # type: ignore[no-any-return]


async def test_a_call_after_a_shortened_context_is_given_back(journal: Journal) -> None:
    script = [call("look", what=str(number)) for number in range(9)]
    model = ScriptedProvider([*script, "Done."])
    limits = Limits(context_tokens=1_000)
    runtime = Runtime(model, tools=[look], journal=journal, limits=limits)
    await ReActEngine(runtime).run("Look at all of them.", run_id="r")
    intents = [one.event for one in journal.read("r") if one.kind == "model_requested"]
    records = [one.request for one in intents if isinstance(one, ModelRequested)]

    assert_same(await list_recorded(journal, "r"), model.requests)
    assert any(record is not None and record.left_out for record in records)
    assert any(record is not None and record.masked for record in records)


async def test_a_compaction_records_what_it_sent(journal: Journal) -> None:
    too_long = ContextTooLong("too long", status=400)
    script = [call("look", what=str(number)) for number in range(6)]
    model = ScriptedProvider([*script, too_long, "Done."])
    runtime = Runtime(model, tools=[look], journal=journal)
    await ReActEngine(runtime).run("Look at all of them.", run_id="r")
    last = await journal.request("r", "6")  # type: ignore[attr-defined]
    before = await journal.request("r", "6", 0)  # type: ignore[attr-defined]

    assert (before, last) == tuple(model.requests[-2:])
    assert last.conversation.size < before.conversation.size


async def test_a_retried_call_has_an_attempt_for_each_try(journal: Journal) -> None:
    busy = ProviderError("busy", status=503, retryable=True)
    model = ScriptedProvider([busy, "Done."])
    await ReActEngine(Runtime(model, journal=journal)).run("Go.", run_id="r")

    assert await list_recorded(journal, "r") == model.requests
    with pytest.raises(ConfigError, match="2 attempts"):
        await journal.request("r", "0", 2)  # type: ignore[attr-defined]


async def test_a_chat_gives_back_the_history_that_was_sent(journal: Journal) -> None:
    model = ScriptedProvider(["One.", "Two.", "Three."])
    engine = ReActEngine(Runtime(model, journal=journal))
    conversation = Conversation()
    for number in range(3):
        asked = conversation.user(f"Question {number}?")
        result = await engine.run(asked, run_id=f"turn-{number}")
        conversation = result.conversation

    for number in range(3):
        recorded = await list_recorded(journal, f"turn-{number}")
        assert recorded == [model.requests[number]]


class Planner(LoopEngine):
    """Asks for a plan in words that hold a key."""

    name = "planner"
    secret: str = ""

    async def solve(self, run: Run) -> str:
        """Ask twice."""
        plan = await run.ask(f"Plan with {self.secret}.", purpose="plan")
        return await run.ask(f"Do {plan} with {self.secret}.")


async def test_a_key_in_a_prompt_reaches_neither_provider_nor_journal(
    journal: Journal,
) -> None:
    key = "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9" * 3
    model = ScriptedProvider(["a plan", "done"])
    runtime = Runtime(model, journal=journal)
    await Planner(runtime, secret=key).run("Go.", run_id="r")
    sent = [text for one in model.requests for text in map(str, one.conversation)]

    assert not any(key in text for text in sent)
    assert not any(key.encode() in entry.body for entry in journal.read("r"))
    assert_same(await list_recorded(journal, "r"), model.requests)
    again = Planner(Runtime(ScriptedProvider([]), journal=journal), secret=key)
    assert (await again.resume("r")).answer == "done"


class Stopping(ScriptedProvider):
    """A provider that does not answer its second call."""

    def __init__(self, *script: Any) -> None:
        super().__init__(script)
        self.is_asked = asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        if self.requests:
            self.requests.append(request)
            self.is_asked.set()
            await asyncio.Event().wait()
        return await super().complete(request)


async def test_a_call_in_doubt_is_recorded_as_it_is_sent_again(
    journal: Journal,
) -> None:
    model = Stopping(call("look", what="a"))
    engine = ReActEngine(Runtime(model, tools=[look], journal=journal))
    task = asyncio.ensure_future(engine.run("Look at a.", run_id="r"))
    await model.is_asked.wait()
    before = await journal.request("r", "1")  # type: ignore[attr-defined]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert before == model.requests[1]

    @tool(effect="read")
    def other(what: str) -> str:
        """Look elsewhere."""
        return what

    again = ScriptedProvider(["Done."])
    runtime = Runtime(again, tools=[look, other], journal=journal)
    result = await ReActEngine(runtime).resume("r")

    assert result.answer == "Done."
    assert (await journal.request("r", "1")) == again.requests[0]  # type: ignore[attr-defined]
    assert (await journal.request("r", "1", 0)) == before  # type: ignore[attr-defined]
    assert result.llm_calls == 2


async def test_the_tools_are_stored_once_for_all_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = SQLiteJournal(path)
    tools = [dataclasses.replace(look, name=f"look{number}") for number in range(20)]
    engine = ReActEngine(
        Runtime(ScriptedProvider(["1", "2", "3"]), tools=tools, journal=journal)
    )
    for number in range(3):
        await engine.run("Go.", run_id=f"r{number}")
    await journal.close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        (blobs,) = connection.execute("SELECT count(*) FROM blobs").fetchone()

    assert blobs == 1
    for number in range(3):
        assert (await journal.request(f"r{number}", "0")).tools[0].name == "look0"


async def test_fifty_turns_grow_by_less_than_a_third(tmp_path: Path) -> None:
    journal = MemoryJournal()
    script = [call("look", what=str(number)) for number in range(50)]
    runtime = Runtime(
        ScriptedProvider([*script, "Done."]),
        tools=[look],
        journal=journal,
        limits=Limits(max_iterations=60, context_tokens=100_000),
    )
    await ReActEngine(runtime).run("Look.", run_id="r")
    total = own = 0
    for entry in journal.read("r"):
        total += len(entry.body)
        event = entry.event
        if entry.kind == "content_stored":
            own += len(entry.body)
        elif isinstance(event, ModelRequested) and event.request is not None:
            bare = dataclasses.replace(event, request=None)
            own += len(entry.body) - len(encode_event(bare))

    assert total / (total - own) <= 1.3


async def test_request_behind_a_thousand_others_is_compared_when_a_run_is_resumed() -> None:  # fmt: skip
    """Each request continues the one before it, more often than Python's stack is deep."""
    count = sys.getrecursionlimit() + 20

    class Counting(LoopEngine):
        name = "counting"

        async def solve(self, run: Run) -> str:
            return [await run.ask(f"{n}?") for n in range(count)][-1]

    journal = MemoryJournal()
    endless = Limits(max_llm_calls=None, max_tokens=None, timeout=None)
    before = Runtime(ScriptedProvider(["Yes."] * count), journal=journal, limits=endless)  # fmt: skip
    await Counting(before).run("Go.", run_id="run")
    entries = journal.read("run")
    cut = crashed(entries, len(entries) - 2)
    provider = ScriptedProvider(["Yes."])

    result = await Counting(Runtime(provider, journal=cut, limits=endless)).resume("run")  # fmt: skip

    assert result.status == "completed"
    asked = [e.key for e in cut.read("run") if e.kind == "model_requested"]
    assert asked.count(f"{count - 1}") == 1, "it is the request that was recorded"
