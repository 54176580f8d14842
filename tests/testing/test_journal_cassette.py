"""A journal turned into a cassette: the same run again, with no model, whatever the engine."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Completion,
    ConfigError,
    Limits,
    LoopEngine,
    MemoryJournal,
    Provider,
    ProviderError,
    ReActEngine,
    ReplayDivergence,
    Request,
    Run,
    Runtime,
    available_engines,
    tool,
)
from loopwright.errors import ContextTooLong, UnknownRun
from loopwright.journals import SQLiteJournal
from loopwright.providers import Capabilities
from loopwright.testing import (
    FakeClock,
    ReplayingProvider,
    ScriptedProvider,
    call,
    cassette_from_journal,
    crashed,
)
from loopwright.testing.contracts.models import Model, babble, polite
from needed_options import NEEDED
from programs import PROGRAMS

JSON = Capabilities(json_schema=True)
DONE: list[str] = []


@tool(effect="write")
async def look(what: str) -> str:
    """Look something up."""
    DONE.append(what)
    return f"{what} is blue"


@tool(effect="write")
async def put(what: str) -> str:
    """Put something somewhere."""
    DONE.append(what)
    return f"{what} is there"


def runtime(provider: Provider, **options: Any) -> Runtime:
    return Runtime(provider, tools=[look, put], clock=FakeClock(), **options)


async def again(
    path: Path, engine: Callable[[Provider], LoopEngine], run_id: str = "r"
) -> Any:
    """The run from its cassette: answer, status and usage, and what was not asked for."""
    replaying = ReplayingProvider(path)
    result = await engine(replaying).run("What colour is the sky?", run_id=run_id)
    assert replaying.misses == []
    return (
        result.answer,
        result.status,
        result.stop_reason,
        result.usage,
        replaying.left,
    )


@pytest.mark.parametrize(
    "model",
    [polite, babble(1), babble(2), babble(3), babble(6)],
    ids=["polite", "babble 1", "babble 2", "babble 3", "babble 6"],
)
@pytest.mark.parametrize("name", available_engines())
async def test_a_run_of_every_engine_replays_from_its_journal_alone(
    tmp_path: Path, name: str, model: Model
) -> None:
    limits = Limits(
        max_iterations=4, max_llm_calls=None, max_tokens=None
    )  # which branch meets a common limit may vary

    def engine(provider: Provider) -> LoopEngine:
        return runtime(provider, limits=limits).engine(name, **NEEDED.get(name, {}))

    journal = MemoryJournal()
    recorded = runtime(ScriptedProvider(model), limits=limits, journal=journal).engine(
        name, **NEEDED.get(name, {})
    )
    result = await recorded.run("What colour is the sky?", run_id="r")
    DONE.clear()
    await cassette_from_journal(journal, "r", tmp_path / "c", engine, capabilities=JSON)

    assert DONE == []
    assert await again(tmp_path / "c", engine) == (
        result.answer,
        result.status,
        result.stop_reason,
        result.usage,
        0,
    )


@pytest.mark.parametrize(
    "name", [name for name in PROGRAMS if name not in ("tiny", "react-as-tool")]
)
async def test_a_run_with_all_that_an_engine_can_do_is_retold_without_doing_it(
    tmp_path: Path, name: str
) -> None:
    program = PROGRAMS[name]
    journal = MemoryJournal()
    result = await program.engine(program.runtime(journal)).run(
        program.task, run_id="r"
    )

    def engine(provider: Provider) -> LoopEngine:
        made = Runtime(
            provider, tools=program.tools, approver=program.approver, gate=program.gate
        )
        return program.engine(made)

    await cassette_from_journal(journal, "r", tmp_path / "c", engine, capabilities=JSON)
    replaying = ReplayingProvider(tmp_path / "c")
    retold = await engine(replaying).run(program.task, run_id="r")

    assert (retold.answer, retold.usage, replaying.left) == (
        result.answer,
        result.usage,
        0,
    )


async def test_engines_inside_engines_with_models_of_their_own_are_retold(
    tmp_path: Path,
) -> None:
    def engine(outer: Provider, inner: Provider) -> LoopEngine:
        asked = ReActEngine(Runtime(inner, tools=[look])).as_tool(
            name="ask", description="Ask."
        )
        return ReActEngine(Runtime(outer, tools=[asked], journal=journal))

    journal = MemoryJournal()
    lines = [call("ask", task="a"), "blue"]
    big, small = (
        ScriptedProvider(lines, model="big"),
        ScriptedProvider([call("look", what="x"), "ok"], model="small"),
    )
    await engine(big, small).run("Sky?", run_id="r")
    source, journal = journal, MemoryJournal()
    await cassette_from_journal(
        source, "r", tmp_path / "c", lambda model: engine(model, model)
    )
    journal = MemoryJournal()
    models = [
        ReplayingProvider(tmp_path / "c", model=name) for name in ("big", "small")
    ]

    assert (await engine(*models).run("Sky?", run_id="r")).answer == "blue"


async def test_a_journal_on_disk_is_only_read(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    await ReActEngine(runtime(ScriptedProvider(["blue"]), journal=journal)).run(
        "Sky?", run_id="r"
    )
    before = journal.runs(), journal.read("r")
    await cassette_from_journal(
        journal, "r", tmp_path / "c", lambda model: ReActEngine(runtime(model))
    )

    assert (journal.runs(), journal.read("r")) == before
    await journal.close()


async def test_the_smaller_request_after_a_too_long_one_is_retold(
    tmp_path: Path,
) -> None:
    journal = MemoryJournal()
    long = "look " * 4000
    script = [
        call("look", what=long),
        call("look", what=long),
        ContextTooLong("too long"),
        "blue",
    ]
    result = await ReActEngine(runtime(ScriptedProvider(script), journal=journal)).run(
        "What colour is the sky?"
    )

    def engine(provider: Provider) -> LoopEngine:
        return ReActEngine(runtime(provider))

    await cassette_from_journal(journal, result.run_id, tmp_path / "c", engine)

    retold = await engine(ReplayingProvider(tmp_path / "c")).run(
        "What colour is the sky?", run_id="r"
    )
    assert (
        (retold.answer, retold.llm_calls)
        == (result.answer, result.llm_calls)
        == ("blue", 3)
    )


async def test_a_long_result_is_retold_in_another_run_whose_fences_have_another_boundary(
    tmp_path: Path,
) -> None:
    journal = MemoryJournal()
    script = [call("look", what="the sky\n" * 40), "blue"]
    whole = Runtime(
        ScriptedProvider(script), tools=[look], journal=journal
    )  # with the clock of the machine
    result = await ReActEngine(whole).run("What colour is the sky?")
    assert "=== " in result.conversation.messages[-2].content

    def engine(provider: Provider) -> LoopEngine:
        return ReActEngine(Runtime(provider, tools=[look]))

    await cassette_from_journal(journal, result.run_id, tmp_path / "c", engine)

    retold = await engine(ReplayingProvider(tmp_path / "c")).run(
        "What colour is the sky?"
    )
    assert retold.answer == "blue"
    assert (
        retold.conversation.messages[-2].content
        != result.conversation.messages[-2].content
    )


async def test_a_run_that_failed_is_retold_as_a_failure_that_is_not_tried_again(
    tmp_path: Path,
) -> None:
    journal = MemoryJournal()
    down = ProviderError("down", status=503, retryable=True)
    await ReActEngine(runtime(ScriptedProvider([down] * 3), journal=journal)).run(
        "What colour is the sky?", run_id="r"
    )

    def engine(provider: Provider) -> LoopEngine:
        return ReActEngine(runtime(provider))

    await cassette_from_journal(journal, "r", tmp_path / "c", engine)

    assert (await again(tmp_path / "c", engine))[:3] == (
        None,
        "failed",
        "provider_error",
    )


class Asks(LoopEngine):
    """Asks twice, the second time what it is told to, and does something of its own."""

    name = "asks"
    second: str = "And then?"
    third: str | None = None
    again: bool = False
    last: bool = False

    async def solve(self, run: Run) -> str:
        async def price() -> int:
            DONE.append("price")
            return 3

        first = await run.ask(run.conversation)
        cost = await run.effect("price", price, into=int)
        if self.again:
            await run.effect("price again", price, into=int)
        said = await run.ask(
            run.conversation.user(
                f"{first} {cost} {self.second} {run.random.random()} {run.now()}"
            )
        )
        if self.last:
            await run.effect("price at last", price, into=int)
        return await run.ask(self.third) if self.third else said


async def test_effects_chance_and_clock_answer_from_the_journal(tmp_path: Path) -> None:
    journal = MemoryJournal()
    await Asks(runtime(ScriptedProvider(["a", "b"]), journal=journal)).run(
        "Go.", run_id="r"
    )
    DONE.clear()
    await cassette_from_journal(
        journal, "r", tmp_path / "c", lambda model: Asks(runtime(model))
    )

    assert DONE == []
    assert ReplayingProvider(tmp_path / "c").left == 2


@pytest.mark.parametrize(
    "changed",
    [{"second": "What?"}, {"third": "More?"}, {"again": True}, {"last": True}],
)
async def test_another_engine_than_the_one_that_was_recorded_is_noticed(
    tmp_path: Path, changed: Any
) -> None:
    journal = MemoryJournal()
    await Asks(runtime(ScriptedProvider(["a", "b"]), journal=journal)).run(
        "Go.", run_id="r"
    )
    DONE.clear()

    with pytest.raises(ReplayDivergence):
        await cassette_from_journal(
            journal, "r", tmp_path / "c", lambda model: Asks(runtime(model), **changed)
        )
    assert DONE == []


class Silent(ScriptedProvider):
    """Never answers."""

    async def complete(self, request: Request) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError("nobody lets it go")


async def test_a_run_that_has_not_ended_or_is_unknown_is_refused(
    tmp_path: Path,
) -> None:
    async def retell(journal: MemoryJournal, run_id: str) -> None:
        await cassette_from_journal(
            journal, run_id, tmp_path / "c", lambda model: ReActEngine(runtime(model))
        )

    journal = MemoryJournal()
    await (
        ReActEngine(runtime(Silent([]), journal=journal))
        .start("Sky?", run_id="r")
        .abort()
    )

    with pytest.raises(ConfigError, match="run 'r' was aborted"):
        await retell(journal, "r")
    with pytest.raises(ConfigError, match="run 'r' has not ended: resume it first"):
        await retell(crashed(journal.read("r"), 1), "r")
    with pytest.raises(UnknownRun, match="nowhere"):
        await retell(journal, "nowhere")
    assert not (tmp_path / "c").exists()


async def test_a_fork_replays_under_the_id_of_the_run_that_was_forked_first(
    tmp_path: Path,
) -> None:
    class Dicing(LoopEngine):
        """Asks with a number and an id of the run."""

        name = "dicing"

        async def solve(self, run: Run) -> str:
            first = await run.ask(f"Which of {run.random.randrange(10**9)}?")
            return first + await run.ask(f"And of {run.new_id()}?")

    def dicing(provider: Provider) -> LoopEngine:
        return Dicing(Runtime(provider))

    model = ScriptedProvider(["one", "two", "another two"])
    happened = Dicing(Runtime(model))
    await happened.run("What colour is the sky?", run_id="first")
    journal = happened.runtime.journal
    replied = next(
        entry.seq for entry in journal.read("first") if entry.kind == "model_replied"
    )
    fork = await happened.fork("first", at=replied)
    result = await happened.resume(fork)
    await cassette_from_journal(journal, fork, tmp_path / "c", dicing)

    replayed = await dicing(ReplayingProvider(tmp_path / "c")).run(
        "What colour is the sky?", run_id="first"
    )
    assert (result.answer, replayed.answer) == ("oneanother two", "oneanother two")
    under_its_own = await dicing(ReplayingProvider(tmp_path / "c")).run(
        "What colour is the sky?", run_id=fork
    )
    assert "CassetteMiss" in str(under_its_own.error)
