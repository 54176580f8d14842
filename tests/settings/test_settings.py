"""Settings: written in versions by admins, checked against the code, read by runs as they begin, and kept by them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    ConfigError,
    LoopEngine,
    ReActEngine,
    ReflexionEngine,
    Request,
    Run,
    Runtime,
    tool,
)
from loopwright.agents import SettingsEditor
from loopwright.engines import (
    ChainEngine,
    DirectorCriticEngine,
    FixedRounds,
    TreeOfThoughtsEngine,
)
from loopwright.errors import Denied, SettingsError
from loopwright.gates import Action, Allow, Ask, Deny, PolicyState
from loopwright.journals import SQLiteJournal
from loopwright.limits import Limits
from loopwright.messages import Json
from loopwright.principals import Principal
from loopwright.providers import Sampling
from loopwright.settings import MemorySettings, Settings, SQLiteSettings
from loopwright.settings.configured_engine import configure
from loopwright.testing import FakeClock, ScriptedProvider, call

ADA = Principal("ada", "acme", ("admin",))
Open = Callable[[], Settings]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """A store of each kind."""
    sqlite = request.param == "sqlite"
    return SQLiteSettings(tmp_path / "settings.db") if sqlite else MemorySettings()


def runtime(store: Settings, *replies: Any, **services: Any) -> Runtime:
    """A runtime with settings."""
    return Runtime(ScriptedProvider(list(replies)), settings=store, **services)


def read_instructions(request: Request) -> str:
    """What stands in front of a request."""
    return request.system or ""


def started(runtime: Runtime, run_id: str) -> Any:
    """The first entry of a run."""
    return runtime.journal.read(run_id)[0].event


async def test_settings_are_versions_with_who_and_when(store: Settings) -> None:
    clock = FakeClock()
    editor = SettingsEditor(runtime(store, clock=clock), ADA)
    assert (await editor.read()).version == 0

    first = await editor.set("engine.react.max_iterations", 4, reason="too slow")
    at = clock.wall()
    second = await editor.write({"engine.react.max_iterations": 6, "engine.critic.enabled": False})  # fmt: skip
    third = await editor.set("engine.react.max_iterations", None)
    now = await editor.read()
    changes = await editor.history("engine.react.max_iterations")

    assert (first, second, third) == (1, 2, 3)
    assert (now.version, now.values) == (3, {"engine.critic.enabled": False})
    assert [(one.version, one.before, one.value) for one in changes] == [
        (1, None, 4),
        (2, 4, 6),
        (3, 6, None),
    ]
    assert (changes[0].by, changes[0].at, changes[0].reason) == (
        "ada@acme",
        at,
        "too slow",
    )

    assert await editor.revert(1) == 4
    assert (await editor.read()).values == {"engine.react.max_iterations": 4}
    assert (await editor.history())[-1].reason == "as in version 1"
    with pytest.raises(ConfigError, match=r"version: must be 0 to 4, got 9"):
        await editor.revert(9)


def test_writer_that_has_not_read_the_last_version_is_refused(store: Settings) -> None:
    store.write({"engine.react.enabled": True}, by="ada", at=1.0)

    with pytest.raises(SettingsError, match=r"version is 1, got expected=0"):
        store.write({"engine.react.enabled": False}, by="bob", at=2.0, expected=0)
    assert store.read().values == {"engine.react.enabled": True}


async def test_run_reads_settings_as_it_begins_and_keeps_them(tmp_path: Path) -> None:
    store = SQLiteSettings(tmp_path / "settings.db")
    services = runtime(store, "one", "two", limits=Limits(max_llm_calls=20))
    agent = services.agent("clerk", instructions="Be long.")
    editor = SettingsEditor(services, ADA)
    await editor.write(
        {
            "engine.react.max_iterations": 7,
            "engine.react.limits.max_llm_calls": 9,
            "agent.clerk.max_iterations": 5,
            "agent.clerk.instructions": "Be short.",
        }
    )
    await agent.run("Hello.", run_id="first")
    await editor.set("agent.clerk.instructions", "")
    await agent.run("Hello.", run_id="second")

    first, second = started(services, "first"), started(services, "second")
    assert first.settings.version == 1
    assert first.settings.values["agent.clerk.instructions"] == "Be short."
    assert (first.options["max_iterations"], first.limits["max_llm_calls"]) == (5, 9)
    requests = services.provider.requests  # type: ignore[attr-defined]
    words = [read_instructions(one) for one in requests]
    assert words == ["Be short.", "Be long."]
    assert second.settings.version == 2


async def test_resumed_run_keeps_the_values_that_it_read(tmp_path: Path) -> None:
    store = SQLiteSettings(tmp_path / "settings.db")

    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    def build(*replies: Any) -> Runtime:
        journal = SQLiteJournal(tmp_path / "runs.db")
        return runtime(store, *replies, journal=journal, tools=[look])

    def define(services: Runtime) -> Any:
        actor = ReActEngine(services)
        engine = ReflexionEngine(services, actor=actor, max_episodes=1)
        return services.agent("clerk", engine=engine, instructions="Be long.")

    before = build(call("look"), RuntimeError("the process dies"))
    agent = define(before)
    editor = SettingsEditor(before, ADA)
    await editor.write(
        {
            "agent.clerk.instructions": "Be short.",
            "engine.react.max_iterations": 3,
            "engine.reflexion.memory": 2,
        }
    )
    async with agent.start("Hello.", run_id="one") as handle:
        async for entry in handle:
            if entry.kind == "tool_finished":
                await handle.suspend()
    await editor.write(
        {
            "agent.clerk.instructions": "Be rude.",
            "engine.react.max_iterations": 1,
            "engine.reflexion.enabled": False,
        }
    )

    after = build("done", "SATISFACTORY")
    define(after)
    result = await after.resume("one")

    assert (result.status, result.answer, result.error) == ("completed", "done", None)
    request, _ = after.provider.requests  # type: ignore[attr-defined]
    assert read_instructions(request) == "Be short."
    entries = after.journal.read("one")
    assert not [one.event for one in entries if one.kind == "drift_noticed"]
    (child,) = [one.event for one in entries if one.kind == "child_started"]
    assert child.options["max_iterations"] == 3  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"turns the engine 'reflexion' off"):
        await after.agents["clerk"].run("Hello.")


async def test_next_turn_of_a_thread_reads_the_settings_anew() -> None:
    store = MemorySettings()
    services = runtime(store, "one", "two")
    thread = services.agent("clerk", instructions="Be long.").thread("ada")
    await thread.run("Hello.")
    store.write({"agent.clerk.instructions": "Be short."}, by="ada", at=1.0)
    await thread.run("And?")

    requests = services.provider.requests  # type: ignore[attr-defined]
    assert [one.system for one in requests] == ["Be long.", "Be short."]


class Two(LoopEngine):
    """Delegates to an engine twice, with another version of the settings between."""

    name = "two"
    inner: ReActEngine
    between: Any = None

    async def solve(self, run: Run) -> str:
        """Delegate."""
        first = await run.delegate(self.inner, "one")
        self.between()
        second = await run.delegate(self.inner, "two")
        return f"{first.answer} {second.answer}"


async def test_children_have_the_settings_of_their_root() -> None:
    store = MemorySettings()
    services = runtime(store, "one", "two")
    store.write({"engine.react.max_iterations": 3}, by="ada", at=1.0)

    def change() -> None:
        store.write({"engine.react.max_iterations": 9}, by="ada", at=2.0)

    engine = Two(services, inner=ReActEngine(services), between=change)
    result = await engine.run("Go.", run_id="one")

    assert result.answer == "one two"
    entries = services.journal.read("one")
    children = [one.event for one in entries if one.kind == "child_started"]
    assert [one.options["max_iterations"] for one in children] == [3, 3]  # type: ignore[attr-defined]


async def test_engine_that_is_a_tool_has_the_settings_of_the_run() -> None:
    store, inner = MemorySettings(), ScriptedProvider(["inner"])
    helper = ReActEngine(Runtime(inner)).as_tool(name="helper")
    services = runtime(store, call("helper", task="Help."), "Done.", tools=[helper])
    store.write({"engine.react.sampling": {"temperature": 0.3}}, by="ada", at=1.0)

    result = await ReActEngine(services).run("Go.")

    assert result.answer == "Done."
    assert inner.requests[0].sampling.temperature == 0.3


async def test_agent_that_a_run_is_handed_off_to_has_the_settings_of_the_root() -> None:
    store = MemorySettings()
    services = runtime(store, call("transfer_to_b"), "Hello.")
    first = services.agent("a", handoffs=["b"])
    services.agent("b", instructions="Be long.")
    store.write({"agent.b.instructions": "Be short."}, by="ada", at=1.0)

    await first.run("Hello.", run_id="one")

    requests = services.provider.requests  # type: ignore[attr-defined]
    assert [read_instructions(one) for one in requests] == ["", "Be short."]


WRONG = [
    ("gate", 1, "name: must be engine.NAME.OPTION"),
    ("runtime.gate", "x", "gates, approvers, hooks"),
    ("provider.main.base_url", "http://x", "gates, approvers, hooks"),
    ("engine.react.hooks", [], "engine.react.hooks: no such option"),
    ("engine.react.runtime", 1, "engine.react.runtime: no such option"),
    ("engine.react.sampling", {"extra_headers": {"a": "b"}}, "extra_headers and extra_body are code alone"),
    ("engine.recat.enabled", True, "engine.recat.enabled: engines: there is no 'recat'"),
    ("agent.b.enabled", True, "there is no agent 'b'; there are a"),
    ("engine.react.enabled", "no", "must be true or false, got 'no'"),
    ("engine.react.max_iteration", 3, "no such option"),
    ("engine.react.max_iterations", "many", "max_iterations"),
    ("engine.react.max_iterations", 0, "max_iterations"),
    ("engine.react.limits.max_llm_calls", 21, "must be at most 20, the limit of the code, got 21"),
    ("engine.react.limits.max_llm_calls", "x", "max_llm_calls: Input should be a valid integer"),
    ("engine.react.limits.best_effort", True, "there is no such limit"),
    ("engine.react.prompts.thought_alone", "Say {nothing}.", "there is no placeholder {nothing}"),
    ("engine.react.prompts.other", "Say.", "react has no prompt 'other'"),
    ("engine.plan-execute.planner", "heavy", "planner: 'heavy' is not among"),
    ("engine.reflexion.actor", {"engine": "react"}, "engine.reflexion.actor"),
    ("engine.chain.stepz", [], "engine.chain.stepz: no such option"),
    ("engine.chain.steps", [], "engine.chain.steps: ChainEngine: steps: Tuple should have at least 1 item"),
    ("engine.chain.steps", ["Sum {x} up."], "engine.chain.steps: steps.1: a prompt has {input}"),
    ("engine.chain.prompts.step", "{input}", "the placeholder {number} is missing"),
    ("engine.chain.prompts.other", "Say.", "chain has no prompt 'other'"),
    ("engine.chain.sampling", {"temperature": "hot"}, "engine.chain.sampling: ChainEngine: sampling.temperature"),
    ("engine.chain.limits.max_llm_calls", 21, "must be at most 20, the limit of the code, got 21"),
    ("agent.a.instructions", 3, "agent.a.instructions: must be a text, got 3"),
    ("agent.a.instructions", "password=tbk-93kd02jd83hd7w6s", "holds a secret"),
    ("agent.a.instructions", "x" * 20_001, "has more than 20,000 characters"),
    ("agent.code.instructions", "x", "are a template or a function"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "problem"), WRONG, ids=range(len(WRONG)))
async def test_setting_that_the_code_does_not_take_is_refused(
    name: str, value: Any, problem: str
) -> None:
    store = MemorySettings()
    services = runtime(store, limits=Limits(max_llm_calls=20))
    services.agent("a")
    if "code" in name:
        services.agent("code", instructions=lambda context: "x")

    with pytest.raises(ConfigError) as refused:
        await SettingsEditor(services, ADA).set(name, value)
    assert problem in str(refused.value)
    assert store.read().version == 0


@pytest.mark.parametrize("is_used", [False, True])
async def test_engine_that_needs_an_option_has_settings(is_used: bool) -> None:
    store = MemorySettings()
    services = runtime(store, "Hello.", "Bye.", limits=Limits(max_llm_calls=20))
    chain = ChainEngine(services, steps=("Say {input}.",))
    if is_used:
        services.agent("a", engine=chain)
    editor = SettingsEditor(services, ADA)
    await editor.set("engine.chain.limits.max_llm_calls", 3)
    await editor.set("engine.chain.prompts.step", "{number}/{total}: {input}")
    await editor.set("engine.chain.steps", ["Say {input}.", "Repeat {input}"])

    result = await chain.run("Hello", run_id="one")
    await editor.set("engine.chain.enabled", False)

    assert (result.answer, result.llm_calls) == ("Bye.", 2)
    assert started(services, "one").limits["max_llm_calls"] == 3
    with pytest.raises(ConfigError, match=r"turns the engine 'chain' off"):
        await chain.run("Hello")


async def test_stored_limit_is_never_above_that_of_the_code() -> None:
    store = MemorySettings()
    store.write({"engine.react.limits.max_llm_calls": 50}, by="ada", at=1.0)
    services = runtime(store, "Hello.", limits=Limits(max_llm_calls=20))

    await ReActEngine(services).run("Hello.", run_id="one")

    assert started(services, "one").limits["max_llm_calls"] == 20


class Watching:
    """A gate that keeps what it was asked."""

    timeout = 1.0

    def __init__(self, decision: Any) -> None:
        self.decision, self.asked = decision, list[tuple[Action, PolicyState]]()

    async def evaluate(self, action: Action, state: PolicyState) -> Any:
        """Decide."""
        self.asked.append((action, state))
        return self.decision


async def test_write_is_an_action_of_an_admin_that_the_gate_allows() -> None:
    store, gate = MemorySettings(), Watching(Allow())
    services = runtime(store, gate=gate)
    editor = SettingsEditor(services, ADA)

    await editor.set("engine.react.max_iterations", 4)

    ((action, state),) = gate.asked
    assert (action.tool, action.arguments) == ("settings:set", {"engine.react.max_iterations": 4})  # fmt: skip
    assert (action.principal, state.principal) == (ADA, ADA)
    with pytest.raises(Denied, match=r"bob may not write them"):
        await SettingsEditor(services, Principal("bob", roles=("user",))).set("engine.react.max_iterations", 9)  # fmt: skip
    for decision, problem in [
        (Deny("not today"), "denies 'settings:set': not today"),
        (Ask("Really?"), "asks about 'settings:set'"),
        (None, "no decision"),
    ]:
        gate.decision = decision
        with pytest.raises(Denied, match=problem):
            await editor.revert(0)
    assert store.read().values == {"engine.react.max_iterations": 4}


async def test_runtime_without_settings_says_so_and_records_nothing() -> None:
    services = Runtime(ScriptedProvider(["Hello."]))
    await ReActEngine(services).run("Hello.", run_id="one")

    assert started(services, "one").settings is None
    with pytest.raises(ConfigError, match=r"settings: this runtime has none"):
        SettingsEditor(services, ADA)


def test_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.db"
    path.write_bytes(b"no database at all, but text of some length" * 40)

    with pytest.raises(SettingsError, match=r"settings '.*settings.db'"):
        SQLiteSettings(path).read()


async def test_numbers_that_an_earlier_version_stored_otherwise_still_count() -> None:
    store = MemorySettings()
    stored: dict[str, Json] = {
        "engine.react.limits.max_llm_calls": 5.0, "engine.react.max_iterations": "3",
    }  # fmt: skip
    store.write(stored, by="ada", at=1.0)
    services = runtime(store, "yes")
    result = await ReActEngine(services).run("Is it?", run_id="r1")

    assert result.status == "completed"
    configured = configure(ReActEngine(services), store.read())
    limits = configured.runtime.limits
    assert (configured.max_iterations, limits.max_llm_calls) == (3, 5)
    assert type(limits.max_llm_calls) is int
    store.write({"engine.react.max_iterations": "many"}, by="ada", at=2.0)
    with pytest.raises(ConfigError, match="settings of version 2 do not fit"):
        configure(ReActEngine(services), store.read())


@pytest.mark.parametrize(
    ("engine", "option", "value", "expected"),
    [
        (DirectorCriticEngine, "convergence", {"kind": "fixed-rounds", "rounds": "2"}, FixedRounds(2)),
        (TreeOfThoughtsEngine, "labels", {"sure": "1", "no": 0}, {"sure": 1.0, "no": 0.0}),
        (ReActEngine, "sampling", {"top_p": "0.5", "max_tokens": 9.0}, Sampling(top_p=0.5, max_tokens=9)),
    ],
)  # fmt: skip
async def test_numbers_inside_of_stored_values_count_as_they_did(
    engine: Any, option: str, value: Json, expected: object
) -> None:
    store = MemorySettings()
    name = f"engine.{engine.name}.{option}"
    store.write({name: value}, by="ada", at=1.0)
    configured = configure(engine(runtime(store)), store.read())

    assert getattr(configured, option) == expected
    with pytest.raises(ConfigError, match=option):
        await SettingsEditor(runtime(store), ADA).write(
            {name: value}, reason="as before"
        )


@pytest.mark.parametrize(
    "value", [{"kind": "fixed-rounds", "rounds": "many"}, {"kind": "fixed-rounds", "rounds": "0"}]
)  # fmt: skip
async def test_a_stored_value_that_never_fitted_is_refused_by_its_version(
    value: Json,
) -> None:
    store = MemorySettings()
    store.write({"engine.director-critic.convergence": value}, by="ada", at=1.0)
    with pytest.raises(ConfigError, match="settings of version 1 do not fit"):
        configure(DirectorCriticEngine(runtime(store)), store.read())
