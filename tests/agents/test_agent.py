"""Agents: instructions in front of each request, names, and runs that are resumed by them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from loopwright import (
    ConfigError,
    Conversation,
    Limits,
    LoopEngine,
    MemoryJournal,
    ReActEngine,
    ReflexionEngine,
    Run,
    Runtime,
    Template,
    Worker,
    tool,
)
from loopwright.agents import Agent, InstructionContext
from loopwright.events import (
    ChildStarted,
    DriftNoticed,
    InstructionsSet,
    ModelRequested,
    RunStarted,
)
from loopwright.journals import RunFilter, SQLiteJournal
from loopwright.labels import Untrusted
from loopwright.observers import StructlogObserver
from loopwright.providers import Delta
from loopwright.testing import ScriptedProvider, call, crashed
from telemetry import Telemetry


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


class Reply(BaseModel):
    text: str


def runtime(*script: Any, **options: Any) -> Runtime:
    options.setdefault("tools", [look])
    return Runtime(ScriptedProvider(script), **options)


def systems(parts: Runtime) -> list[list[str]]:
    """The system messages of each request."""
    requests = parts.provider.requests  # type: ignore[attr-defined]
    return [
        [m.content for m in request.conversation if m.role == "system"]
        for request in requests
    ]


def events(parts: Runtime, kind: type[Any], run_id: str = "r") -> list[Any]:
    found = (entry.event for entry in parts.journal.read(run_id))
    return [event for event in found if isinstance(event, kind)]


# --- instructions ---


async def test_instructions_are_in_front_of_each_request_and_not_in_the_history() -> (
    None
):
    parts = runtime(call("look", what="sky"), "Blue.", "Still blue.")
    agent = parts.agent("painter", instructions="You paint.")
    first = await agent.run("Sky?")
    second = await agent.run(first.conversation.user("Sure?"))
    requests = parts.provider.requests  # type: ignore[attr-defined]

    assert systems(parts) == [["You paint."]] * 3
    assert [request.system for request in requests] == ["You paint."] * 3
    assert "system" not in {message.role for message in second.conversation}


async def test_instructions_stand_before_the_system_message_of_a_conversation() -> None:
    parts = runtime("Blue.")
    await parts.agent("painter", instructions="You paint.").run(
        "Sky?", system="Be brief."
    )

    assert systems(parts) == [["You paint.\n\nBe brief."]]


async def test_a_system_message_given_twice_replaces_the_one_before() -> None:
    parts = runtime("Blue.", "Red.", "Green.")
    engine = ReActEngine(parts)
    first = await engine.run("Sky?", system="Be brief.")
    same = await engine.run(first.conversation.user("Rose?"), system="Be brief.")
    other = await engine.run(same.conversation.user("Leaf?"), system="Be long.")

    assert systems(parts) == [["Be brief."], ["Be brief."], ["Be long."]]
    assert other.conversation.task == "Leaf?"


async def test_a_template_is_filled_from_deps() -> None:
    template = Template("You help {name} of {city}.")
    parts = runtime("Hi.", "Hi.")
    agent = parts.agent("helper", instructions=template)

    class User:
        name, city = "Ada", "London"

    await agent.run("Hello.", deps={"name": "Grace", "city": "New York"})
    await agent.run("Hello.", deps=User())

    assert systems(parts) == [
        ["You help Grace of New York."],
        ["You help Ada of London."],
    ]


async def test_a_template_is_as_untrusted_as_what_fills_it() -> None:
    agent = runtime("Hi.", "Hi.").agent("helper", instructions=Template("{name}"))
    page = Untrusted("Grace", label="sensitive")

    plain = await agent.run("Hello.", deps={"name": "Grace"})
    labelled = await agent.run("Hello.", deps={"name": page})

    assert (plain.label, plain.untrusted) == ("normal", False)
    assert (labelled.label, labelled.untrusted) == ("sensitive", True)


async def test_a_template_without_its_deps_is_refused_before_anything_runs() -> None:
    parts = runtime()
    agent = parts.agent("helper", instructions=Template("You help {name}."))

    with pytest.raises(ConfigError, match="deps: the instructions need 'name'"):
        await agent.run("Hello.", deps={"city": "London"}, run_id="r")
    with pytest.raises(ConfigError, match="deps: the instructions need 'name'"):
        agent.run_sync("Hello.")
    assert parts.journal.runs() == []


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_writes_the_instructions_from_what_the_run_is(
    is_async: bool,
) -> None:
    seen: list[InstructionContext] = []

    def write(about: InstructionContext) -> str:
        seen.append(about)
        return f"You know {about.task}"

    async def write_later(about: InstructionContext) -> str:
        await asyncio.sleep(0)
        return write(about)

    parts = runtime("Hi.")
    agent = parts.agent("helper", instructions=write_later if is_async else write)
    await agent.run("Hello.", run_id="r", deps=7)

    assert systems(parts) == [["You know Hello."]]
    assert seen == [InstructionContext("r", "helper", "Hello.", 7)]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (3, "ConfigError: instructions of 'helper': must return a text, got 3"),
        (
            OSError("no file"),
            "EngineError: instructions of 'helper': the function raised OSError: no file",
        ),
    ],
)
async def test_a_function_that_writes_no_instructions_fails_the_run(
    written: Any, problem: str
) -> None:
    def write(about: InstructionContext) -> Any:
        if isinstance(written, Exception):
            raise written
        return written

    parts = runtime()
    result = await parts.agent("helper", instructions=write).run("Hello.")

    assert result.status == "failed"
    assert f"{type(result.error).__name__}: {result.error}" == problem


async def test_a_resumed_run_sees_the_instructions_that_it_was_begun_with() -> None:
    numbers = iter(range(1_000))

    def write(about: InstructionContext) -> str:
        return f"Number {next(numbers)}."

    parts = runtime(call("look", what="sky"), "Blue.")
    await parts.agent("counter", instructions=write).run("Sky?", run_id="r")
    entries = parts.journal.read("r")
    recorded = next(e.seq for e in entries if e.kind == "instructions_set")
    for keep in range(1, len(entries)):
        journal = crashed(entries, keep)
        again = runtime(call("look", what="sky"), "Blue.", journal=journal)
        if any(e.kind == "model_replied" for e in entries[:keep]):
            again = runtime("Blue.", journal=crashed(entries, keep))
        again.agent("counter", instructions=write)
        result = await again.resume("r")
        [written] = events(again, InstructionsSet)
        asked = {text for texts in systems(again) for text in texts}

        assert result.answer == "Blue."
        assert asked <= {written.text}
        assert (written.text == "Number 0.") is (keep >= recorded)


async def test_other_words_today_are_drift_and_the_recorded_ones_are_used() -> None:
    parts = runtime(call("look", what="sky"), "Blue.")
    await parts.agent("painter", instructions="You paint.").run("Sky?", run_id="r")
    entries = parts.journal.read("r")
    replied = next(e.seq for e in entries if e.kind == "model_replied")
    again = runtime("Blue.", journal=crashed(entries, replied))
    again.agent("painter", instructions="You draw.")
    await again.resume("r")

    assert systems(again) == [["You paint."]]
    assert events(again, DriftNoticed) == [
        DriftNoticed("instructions", "You paint.", "You draw.")
    ]


async def test_a_run_begun_without_instructions_is_resumed_without() -> None:
    parts = runtime(call("look", what="sky"), "Blue.")
    await parts.agent("painter").run("Sky?", run_id="r")
    entries = parts.journal.read("r")
    replied = next(e.seq for e in entries if e.kind == "model_replied")
    again = runtime("Blue.", journal=crashed(entries, replied))
    again.agent("painter", instructions="You draw.")
    await again.resume("r")

    assert systems(again) == [[]]


async def test_fingerprints_do_not_depend_on_instructions() -> None:
    plain, instructed = runtime("Blue."), runtime("Blue.")
    await ReActEngine(plain).run("Sky?", run_id="r")
    await instructed.agent("painter", instructions="You paint.").run("Sky?", run_id="r")
    prints = [
        [(e.verb, e.fingerprint) for e in events(parts, ModelRequested)]
        for parts in (plain, instructed)
    ]

    assert prints[0] == prints[1]


async def test_untrusted_instructions_make_the_run_untrusted() -> None:
    parts = runtime("Hi.")
    text = Untrusted("A text from a page.", label="sensitive")
    result = await parts.agent("helper", instructions=text).run("Hello.", run_id="r")
    again = runtime("Hi.", journal=crashed(parts.journal.read("r"), 2))
    again.agent("helper", instructions=text)
    resumed = await again.resume("r")

    for one in (result, resumed):
        assert (one.label, one.untrusted) == ("sensitive", True)


async def test_secrets_in_instructions_reach_neither_model_nor_journal() -> None:
    parts = runtime("Hi.")
    key = "AKIAIOSFODNN7EXAMPLE"
    agent = parts.agent("helper", instructions=f"Use {key}.")
    await agent.run("Hello.", run_id="r")
    bodies = b"".join(entry.body for entry in parts.journal.read("r"))

    assert key.encode() not in bodies
    assert all(key not in text for texts in systems(parts) for text in texts)


# --- which engines have them ---


class Parent(LoopEngine):
    """Delegates its task to others, one after the other."""

    name = "parent"
    children: tuple[LoopEngine, ...] = ()

    async def solve(self, run: Run) -> str:
        answers = [
            str((await run.delegate(child, run.task)).answer) for child in self.children
        ]
        answers.append(await run.ask("Sum it up."))
        return " ".join(answers)


async def test_parts_of_an_agent_have_its_instructions_and_other_agents_their_own() -> (
    None
):
    parts = runtime("One.", "Two.", "Three.")
    painter = parts.agent("painter", instructions="You paint.")
    children = (painter.engine, ReActEngine(parts))
    boss = parts.agent("boss", engine=Parent(parts, children=children), instructions="You lead.")  # fmt: skip
    await boss.run("Sky?", run_id="r")

    assert systems(parts) == [["You paint."], ["You lead."], ["You lead."]]
    assert [e.agent for e in events(parts, ChildStarted)] == ["painter", "boss"]
    assert [e.agent for e in events(parts, InstructionsSet)] == ["boss", "painter", "boss"]  # fmt: skip


async def test_an_engine_inside_the_engine_of_an_agent_has_its_instructions() -> None:
    parts = runtime("Blue.")
    engine = ReflexionEngine(parts, evaluator=lambda trial: True)
    await parts.agent("painter", engine=engine, instructions="You paint.").run("Sky?")

    assert systems(parts) == [["You paint."]]


async def test_an_agent_as_a_tool_keeps_its_instructions() -> None:
    parts = runtime(call("painter", task="Sky?"), "Blue.", "It is blue.")
    painter = parts.agent("painter", instructions="You paint.", description="Paints.")
    boss = parts.agent("boss", instructions="You lead.", tools=[painter.as_tool()])
    result = await boss.run("Sky?")
    [spec] = parts.provider.requests[0].tools  # type: ignore[attr-defined]

    assert result.answer == "It is blue."
    assert (spec.name, spec.description) == ("painter", "Paints.")
    assert systems(parts) == [["You lead."], ["You paint."], ["You lead."]]


async def test_an_agent_has_tools_and_limits_of_its_own() -> None:
    @tool(effect="read")
    async def listen() -> str:
        """Listen."""
        return "birds"

    parts = runtime("Hi.", "Hi.")
    agent = parts.agent("hearer", tools=[listen], limits=Limits(max_llm_calls=3))
    await agent.run("Hello.", run_id="r")
    await ReActEngine(parts).run("Hello.")
    requests = parts.provider.requests  # type: ignore[attr-defined]
    [started] = events(parts, RunStarted)

    assert [[s.name for s in request.tools] for request in requests] == [
        ["listen"],
        ["look"],
    ]
    assert started.limits["max_llm_calls"] == 3


async def test_the_answer_of_an_agent_is_read_as_its_output() -> None:
    parts = runtime('{"text": "Hi."}', '{"text": "Hi."}')
    agent: Agent[Reply] = parts.agent("helper", output=Reply)
    result = await agent.run("Hello.", run_id="r")
    synchronous = await asyncio.to_thread(agent.run_sync, "Hello.")
    resumed = await parts.resume("r")

    assert result.output == synchronous.output == resumed.output == Reply(text="Hi.")


# --- names ---


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("react", "name: 'react' is the name of an engine; take another"),
        ("painter", "name: there is an agent 'painter' already; take another"),
        ("", "name: must be letters, digits, '_' and '-', at most 64, got ''"),
        ("a b", "name: must be letters, digits, '_' and '-', at most 64, got 'a b'"),
        (None, "name: must be letters, digits, '_' and '-', at most 64, got None"),
    ],
)
def test_a_name_that_is_taken_or_invalid_is_refused(name: Any, problem: str) -> None:
    parts = runtime()
    parts.agent("painter")
    with pytest.raises(ConfigError) as caught:
        parts.agent(name)

    assert str(caught.value) == problem
    assert list(parts.agents) == ["painter"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"instructions": 3}, "instructions: must be a text, a Template or a function"),
        ({"limits": 3}, r"limits: must be Limits\(...\), got 3"),
        ({"output": str}, "output: a text is what every run answers"),
        ({"output": 5}, "output: must be a type that pydantic can read"),
        ({"engine": "reakt"}, "reakt"),
    ],
)
def test_an_agent_with_a_bad_option_is_refused_by_name(
    options: dict[str, Any], problem: str
) -> None:
    parts = runtime()
    with pytest.raises(ConfigError, match=problem):
        parts.agent("painter", **options)

    assert len(parts.agents) == 0


async def test_an_alias_of_a_type_may_name_a_class_that_is_defined_later() -> None:
    alias: Any = TypeAliasType
    later = alias("later", "Later | None")
    runtime = Runtime(ScriptedProvider(['{"value": {"degrees": 21}}']))
    clerk: Agent[Any] = runtime.agent("clerk", output=later)

    class Later(BaseModel):
        degrees: int

    globals()["Later"] = Later
    try:
        result = await clerk.run("How warm is it?")
    finally:
        del globals()["Later"]

    assert result.output == Later(degrees=21)


async def test_watchers_are_told_which_agent_speaks() -> None:
    parts = runtime(call("painter", task="Sky?"), "Blue.", "It is blue.")
    painter = parts.agent("painter")
    boss = parts.agent("boss", tools=[painter.as_tool()])
    speakers: list[str] = []
    async with boss.start("Sky?", run_id="r", deltas=True) as run:
        async for item in run:
            if isinstance(item, Delta) and item.text:
                speakers.append(item.agent)
        await run.result()
    [info] = parts.journal.runs(where=RunFilter(agent="boss"))
    [started] = events(parts, RunStarted)

    assert list(dict.fromkeys(speakers)) == ["painter", "boss"]
    assert info.run_id == "r"
    assert (started.agent, started.summary()[:11]) == ("boss", "boss: react")


async def test_logs_and_spans_name_the_agent_that_an_entry_is_about() -> None:
    telemetry = Telemetry()
    watching = [StructlogObserver(), telemetry.observer]
    parts = runtime(
        call("painter", task="Sky?"), "Blue.", "It is blue.", observers=watching
    )
    painter = parts.agent("painter", instructions="You paint.")
    boss = parts.agent("boss", tools=[painter.as_tool()])
    with structlog.testing.capture_logs() as logs:
        await boss.run("Sky?", run_id="r")
    entries = parts.journal.read("r")
    replied = [e.seq for e in entries if e.kind == "model_replied"][1]
    again = runtime(
        "It is blue.",
        journal=crashed(entries, replied),
        observers=[StructlogObserver()],
    )
    again.agent("boss", tools=[again.agent("painter").as_tool()])
    with structlog.testing.capture_logs() as later:
        await again.resume("r")

    assert [log["engine"] for log in logs if log["event"] == "model_replied"] == [
        "boss",
        "painter",
        "boss",
    ]
    assert {log["engine"] for log in later if log["event"] == "model_replied"} == {
        "boss"
    }
    assert [span.name for span in telemetry.spans if "agent" in span.name] == [
        "invoke_agent boss",
        "invoke_agent painter",
    ]


# --- resume by name ---


async def test_a_run_is_resumed_in_another_process_by_the_name_of_its_agent(
    tmp_path: Path,
) -> None:
    @tool(effect="read", name="look")
    async def never_ends(what: str) -> str:
        """Look."""
        await asyncio.Event().wait()
        return what

    path = tmp_path / "runs.db"
    journal = SQLiteJournal(path)
    parts = runtime(call("look", what="sky"), journal=journal, tools=[never_ends])
    engine = ReActEngine(parts, max_iterations=7)
    agent = parts.agent(
        "painter", engine=engine, instructions="You paint.", limits=Limits(max_llm_calls=9)
    )  # fmt: skip
    handle = agent.start("Sky?", run_id="r")
    async with handle as run:
        async for entry in run:
            if entry.kind == "tool_started":
                break
        task = asyncio.ensure_future(run.result())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await journal.close()

    reopened = SQLiteJournal(path)
    other = runtime("Blue.", journal=reopened)
    with pytest.raises(ConfigError, match=r"define it with runtime.agent\('painter'"):
        await other.resume("r")
    other.agent("painter", instructions="You paint.")
    result = await other.resume("r")
    rebuilt = other.agents["painter"].rebuild(events(other, RunStarted)[0])
    await reopened.close()

    assert (result.status, result.answer) == ("completed", "Blue.")
    assert systems(other) == [["You paint."]]
    assert rebuilt.recorded_options()[0]["max_iterations"] == 7
    assert rebuilt.runtime.limits.max_llm_calls == 9


async def test_an_agent_does_not_resume_the_run_of_another() -> None:
    parts = runtime("Hi.", "Hi.")
    await parts.agent("one").run("Hello.", run_id="r")
    await ReActEngine(parts).run("Hello.", run_id="plain")
    two = parts.agent("two")
    for run_id, of in (("r", "agent 'one'"), ("plain", "no agent")):
        with pytest.raises(ConfigError) as caught:
            await two.resume(run_id)
        assert str(caught.value) == f"run {run_id!r} is of {of}, not of 'two'"


async def test_a_worker_resumes_runs_of_its_agents_and_leaves_those_of_others() -> None:
    parts = runtime(call("look", what="sky"), "Blue.")
    await parts.agent("painter", instructions="You paint.").run("Sky?", run_id="r")
    entries = parts.journal.read("r")
    replied = next(e.seq for e in entries if e.kind == "model_replied")
    journal = crashed(entries, replied, status="running")
    stranger = runtime(journal=journal, lease=30.0)
    with structlog.testing.capture_logs() as logs:
        left = await Worker(stranger, engines=[ReActEngine(stranger)]).drain()
    before = len(journal.read("r"))
    knowing = runtime("Blue.", journal=journal, lease=30.0)
    knowing.agent("painter", instructions="You paint.")
    [result] = await Worker(knowing).drain()

    assert (left, before, logs) == ([], replied, [])
    assert [info.agent for info in journal.runs()] == ["painter"]
    assert result.answer == "Blue."
    assert systems(knowing) == [["You paint."]]


async def test_agents_are_defined_before_a_worker_serves() -> None:
    parts = runtime(lease=30.0, journal=MemoryJournal())
    serving = asyncio.ensure_future(Worker(parts, poll=0.01).serve())
    await asyncio.sleep(0.05)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving

    with pytest.raises(ConfigError, match="agent 'late' comes too late"):
        parts.agent("late")


async def test_history_of_an_agent_continues_with_another() -> None:
    parts = runtime("Blue.", "Red.")
    first = await parts.agent("one", instructions="You are one.").run("Sky?")
    await parts.agent("two", instructions="You are two.").run(
        Conversation(first.conversation.messages).user("Rose?")
    )

    assert systems(parts) == [["You are one."], ["You are two."]]
