"""The option `model` of every engine: which of the runtime's providers is its own model."""

import dataclasses
from pathlib import Path

import pytest

from loopwright import ConfigError, MemoryJournal, ReActEngine, Runtime, tool
from loopwright.agents import SettingsEditor
from loopwright.engines.critic import CriticEngine
from loopwright.events import RunStarted
from loopwright.principals import Principal
from loopwright.settings import SQLiteSettings
from loopwright.testing import ScriptedProvider, call


def test_an_engine_and_those_in_it_use_the_model_that_it_names() -> None:
    heavy = ScriptedProvider(["A draft.", "It holds.\nVerdict: VERIFIED"])
    main, journal = ScriptedProvider([]), MemoryJournal()
    runtime = Runtime(main, providers={"heavy": heavy}, journal=journal)
    drafter = ReActEngine(runtime)
    engine = CriticEngine(
        runtime, drafter=drafter, without_tools="critique", model="heavy"
    )
    result = engine.run_sync("Write.", run_id="r")

    started = journal.read("r")[0].event
    assert (result.answer, len(heavy.requests), main.requests) == ("A draft.", 2, [])
    assert isinstance(started, RunStarted)
    assert started.options["model"] == "heavy"


def test_an_engine_without_a_model_records_none() -> None:
    journal = MemoryJournal()
    runtime = Runtime(ScriptedProvider(["Done."]), journal=journal)
    ReActEngine(runtime).run_sync("Go.", run_id="r")

    started = journal.read("r")[0].event
    assert isinstance(started, RunStarted)
    assert "model" not in started.options


def test_an_engine_that_is_a_tool_uses_its_own_model() -> None:
    heavy = ScriptedProvider(["Found."])
    main = ScriptedProvider([call("find", task="lamps"), "Done."])
    runtime = Runtime(main, providers={"heavy": heavy})
    finder = ReActEngine(runtime, model="heavy").as_tool(name="find")
    other = Runtime(main, tools=[finder])
    result = ReActEngine(other).run_sync("Go.")

    assert (result.answer, len(heavy.requests), len(main.requests)) == ("Done.", 1, 2)


async def test_a_setting_chooses_the_model_of_the_runs_that_begin(
    tmp_path: Path,
) -> None:
    heavy, settings = ScriptedProvider(["Done."]), SQLiteSettings(tmp_path / "s.db")
    runtime = Runtime(
        ScriptedProvider([]), providers={"heavy": heavy}, settings=settings
    )
    editor = SettingsEditor(runtime, Principal("ann", roles=("admin",)))
    await editor.set("engine.react.model", "heavy")
    result = await ReActEngine(runtime).run("Go.")

    assert result.answer == "Done."


def test_a_model_that_the_runtime_does_not_have_is_refused() -> None:
    runtime = Runtime(ScriptedProvider([]), providers={"light": ScriptedProvider([])})
    with pytest.raises(ConfigError, match=r"model: 'heavy' is not among .* has light"):
        ReActEngine(runtime, model="heavy")


@tool(effect="read")
def look() -> str:
    """Look."""
    return "a lamp"


def without_tool_calls() -> ScriptedProvider:
    plain = ScriptedProvider([])
    plain.capabilities = dataclasses.replace(plain.capabilities, native_tools=False)
    return plain


def test_whether_an_engine_can_call_tools_is_judged_by_the_model_that_it_names() -> (
    None
):
    heavy = ScriptedProvider([])
    plain = Runtime(without_tool_calls(), providers={"heavy": heavy}, tools=[look])
    ReActEngine(plain, model="heavy").as_tool(name="find")
    CriticEngine(plain, drafter=ReActEngine(plain, model="heavy"))
    CriticEngine(plain, drafter=ReActEngine(plain), model="heavy")
    able = Runtime(heavy, providers={"plain": without_tool_calls()}, tools=[look])
    named = ReActEngine(able, model="plain")

    for build in (
        lambda: named.as_tool(name="find"),
        lambda: CriticEngine(able, drafter=named),
        lambda: CriticEngine(able, drafter=ReActEngine(able), model="plain"),
    ):
        with pytest.raises(ConfigError, match="has no native tool calls"):
            build()
