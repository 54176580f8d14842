"""Files of `loopwright.compose`: what they build, what is recorded of it, and what of them is refused."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from loopwright import ConfigError, ReActEngine, ReflexionEngine, Suspend
from loopwright.compose import Composition, load
from loopwright.engines import (
    AdaptiveBreak,
    DirectorCriticEngine,
    HumanCritic,
    LlmCritic,
)
from loopwright.errors import KnowledgeError
from loopwright.gates import AllOf
from loopwright.journals import SQLiteJournal
from loopwright.providers import FallbackProvider
from loopwright.testing import ScriptedProvider
from loopwright.tools import Retry
from loopwright.worker import Worker

KEY = "tbk-93kd02jd83hd7w6s"
WHOLE = """\
[runtime]
agent = "support"
provider = "main"
journal = "runs.db"
toolboxes = ["desk"]
gates = ["ask", "default"]
app_version = "7"
progress = { repeats = 4, then = "abort" }
retry = { max_attempts = 3 }

[limits]
max_llm_calls = 40

[providers.main]
provider = "scripted"
model = "large"
api_key = "env:DESK_KEY"
sampling = { temperature = 0.2, stop = ["END"] }
price = { input = 0.4, output = 1.6 }

[providers.spare]
provider = "scripted"

[providers.safe]
provider = "fallback"
members = ["main", "spare"]
cool_down = 5

[toolboxes.desk]
toolbox = "desk"

[toolboxes.own]
object = "scripted_compose:look"

[toolboxes.some]
object = "scripted_compose:desk"
names = ["look"]

[gates.ask]
gate = "approval"
effects = ["destructive"]

[engines.careful]
engine = "reflexion"
max_episodes = 2
actor = { engine = "react", max_iterations = 8 }

[pipelines.planned]
engine = "plan-execute"
planner = "safe"

[agents.support]
engine = "careful"
instructions = "Help, and say {nothing} secret."
description = "for customers"
toolboxes = ["some"]
limits = { max_iterations = 10 }
handoffs = ["billing"]
output = "scripted_compose:City"

[agents.billing]
"""
SMALL = """\
[providers.main]
provider = "scripted"
[toolboxes.desk]
toolbox = "desk"
"""
Compose = Callable[[str], Composition]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that the file names."""
    monkeypatch.setenv("DESK_KEY", KEY)


def test_whole_file_builds_what_it_describes(compose: Compose) -> None:
    found = compose(WHOLE)
    runtime, support = found.runtime, found.agents["support"]
    scripted = __import__("scripted_compose")

    assert [*runtime.providers] == ["main", "spare", "safe"]
    assert isinstance(runtime.providers["safe"], FallbackProvider)
    assert runtime.provider is runtime.providers["main"]
    assert scripted.SEEN["api_key"] == KEY
    assert scripted.SEEN["sampling"].stop == ("END",)
    assert [tool.name for tool in runtime.tools] == ["look", "burn"]
    assert isinstance(runtime.gate, AllOf)
    assert (runtime.app_version, runtime.limits.max_llm_calls) == ("7", 40)
    assert (runtime.progress.repeats, runtime.progress.then) == (4, "abort")
    assert runtime.default_recovery == (Retry(max_attempts=3),)
    own = support.engine.runtime
    assert [tool.name for tool in own.tools] == ["look", "transfer_to_billing"]
    assert (own.limits.max_llm_calls, own.limits.max_iterations) == (40, 10)
    assert (support.output, support.description) == (scripted.City, "for customers")
    assert found.choose() is support
    assert found.choose("planned").name == "plan-execute"


def test_nested_engines_of_a_file_record_the_same_options_as_from_python(
    compose: Compose,
) -> None:
    found = compose(WHOLE)
    runtime, engine = found.runtime, found.agents["support"].engine
    actor = ReActEngine(runtime, max_iterations=8)
    same = runtime.agent(
        "same", engine=ReflexionEngine(runtime, actor=actor, max_episodes=2)
    )

    assert engine.recorded_options() == same.engine.recorded_options()
    assert engine.recorded_options()[1] == ()
    # The actor is a part of the agent: it has the agent's tools, not all of the runtime.
    assert isinstance(engine, ReflexionEngine)
    assert engine.actor is not None
    assert engine.actor.runtime is engine.runtime


async def test_run_of_a_file_is_resumed_by_a_worker_of_the_same_file(
    compose: Compose,
) -> None:
    text = f'[runtime]\njournal = "runs.db"\n{SMALL}[agents.clerk]\nengine = {{ engine = "react", max_iterations = 4 }}\n'
    compose(text)
    async with load("agents.toml", approver=Suspend()) as first:
        waiting = await first.agents["clerk"].run("burn it", run_id="one")
        await first.runtime.control("one").approve(waiting.pending[0].id)
    async with load("agents.toml", approver=Suspend(), lease=30.0) as second:
        (ended,) = await Worker(second.runtime).drain()

    assert waiting.status == "waiting"
    assert (ended.run_id, ended.answer) == ("one", "Done: desk burnt")
    assert __import__("scripted_compose").CLOSED == ["plain", "plain"]


async def test_pipeline_of_a_file_runs_its_parts_in_their_order(
    compose: Compose,
) -> None:
    text = f"""\
{SMALL}
[pipelines.report]
engine = "chain"
steps = [{{ engine = "react", max_iterations = 3 }}, "writer", "Sum up {{input}}."]
[agents.author]
engine = "report"
toolboxes = []
[agents.writer]
"""
    replies = ["facts", "a text", "a line"]
    (Path.cwd() / "agents.toml").write_text(text)
    model = ScriptedProvider(replies * 2)
    async with load("agents.toml", providers={"main": model}) as found:  # fmt: skip
        direct = await found.engines["report"].run("Go.")
        ended = await found.agents["author"].run("Go.", run_id="one")
        started = found.runtime.journal.read("one")[0].event

    assert (direct.answer, ended.answer) == ("a line", "a line")
    # All parts are data, so that a worker of the file can resume the run.
    assert started.opaque == ()  # type: ignore[union-attr]
    (first, *_) = started.options["steps"]  # type: ignore[union-attr, misc]
    assert first["options"]["max_iterations"] == 3  # type: ignore[index, call-overload]


async def test_schedules_of_a_file_are_put_into_its_journal(compose: Compose) -> None:
    table = '[schedules.report]\ntask = "look at sales"\ncron = "0 9 * * 1-5"\nzone = "Europe/Lisbon"\n'
    text = f'[runtime]\njournal = "runs.db"\n{SMALL}[agents.clerk]\n{table}'
    async with compose(text) as found:
        await found.add_schedules()
        await found.add_schedules()
        (schedule,) = await found.runtime.schedules.list()

    assert (schedule.name, schedule.agent, schedule.cron) == ("report", "clerk", "0 9 * * 1-5")  # fmt: skip
    with pytest.raises(ConfigError, match=r"schedules.report: .*cron"):
        await compose(text.replace("0 9 * * 1-5", "61 * * * *")).add_schedules()


async def test_secret_of_a_variable_is_in_no_journal(
    compose: Compose, folder: Path
) -> None:
    async with compose(f"{WHOLE}toolboxes = ['own']\n") as found:
        result = await found.agents["billing"].run("look at it", run_id="one")

    assert result.answer == "Done: desk: a key [redacted]"
    assert KEY.encode() not in (folder / "runs.db").read_bytes()
    started = SQLiteJournal("runs.db").read("one")[0]
    assert started.event.agent == "billing"  # type: ignore[attr-defined]


async def test_follow_ups_of_a_file_have_options(
    compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "https://example.com/a-secret-path")
    text = """\
[runtime]
journal = "runs.db"
knowledge = "sqlite:known.db"
after = ["critique"]
[agents.clerk]
after = [{ follow_up = "deliver", to = [{ kind = "note" }] }]
[agents.porter]
after = [{ follow_up = "deliver", to = [{ url = "env:HOOK", format = "discord" }] }]
"""
    async with compose(f"{text}{SMALL}") as found:
        ended = await found.agents["clerk"].run("look", tags={"user": "ada"})
        await found.runtime.drain()
        notes = await found.runtime.knowledge.store.search(
            "done", scope="ada", threshold=0
        )  # type: ignore[union-attr]
        (planned,) = found.agents["porter"].engine.runtime.after

    assert [(note.kind, note.text) for note in notes] == [("note", ended.answer)]
    # A journal has the name of the variable alone, and another process rebuilds the follow-up from it.
    assert planned.options["to"][0]["url"] == "env:HOOK"  # type: ignore[index, call-overload]
    assert planned.opaque == ()


async def test_agents_of_a_file_have_stores_of_their_own_or_none(
    compose: Compose, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER", "sqlite:ledger.db")
    text = """\
[runtime]
knowledge = "sqlite:known.db"
[agents.porter]
[agents.billing]
knowledge = "env:LEDGER"
[agents.clerk]
knowledge = { knowledge = "sqlite", path = "known.db" }
[agents.baker]
knowledge = "sqlite:ledger.db"
[agents.visitor]
knowledge = ""
"""
    async with compose(f"{text}{SMALL}") as found:
        bridges = {name: agent.engine.runtime.knowledge for name, agent in found.agents.items()}  # fmt: skip
        known = {name: one.store for name, one in bridges.items() if one is not None}
        tools = found.agents["visitor"].engine.runtime.tools
        await known["billing"].search("rent", scope="ada")

    assert set(known) == {"porter", "billing", "clerk", "baker"}
    assert known["billing"] is known["baker"]
    assert known["porter"] is found.runtime.knowledge.store  # type: ignore[union-attr]
    assert len({id(one) for one in known.values()}) == 3
    assert (folder / "ledger.db").is_file()
    assert "recall_knowledge" not in {tool.name for tool in tools}
    for store in known.values():
        with pytest.raises(KnowledgeError, match="is closed"):
            await store.search("rent", scope="ada")
    with pytest.raises(ConfigError, match=r"agents.a.knowledge: knowledge: there is no 'paper'"):  # fmt: skip
        compose(f"[agents.a]\nknowledge = 'paper:x'\n{SMALL}")


def test_critics_of_a_file_record_the_same_options_as_from_python(
    compose: Compose,
) -> None:
    table = """\
[engines.reviewed]
engine = "director-critic"
mode = "rubric"
rubric = { clarity = 0.5, truth = 0.5 }
critic = { kind = "human", expires = 3600, fallback = { kind = "llm", provider = "main" } }
convergence = { kind = "adaptive-break", min = 1, max = 4 }
"""
    found = compose(f"{SMALL}{table}")
    critic = HumanCritic(expires=3600, fallback=LlmCritic(provider="main"))
    same = DirectorCriticEngine(
        found.runtime,
        critic=critic,
        mode="rubric",
        rubric={"clarity": 0.5, "truth": 0.5},
        convergence=AdaptiveBreak(min=1, max=4),
    )

    assert found.engines["reviewed"].recorded_options() == same.recorded_options()
    assert found.engines["reviewed"].critic == critic  # type: ignore[attr-defined]


AFTER = "[agents.a]\nafter = [{follow_up = "
CRITIC = "[engines.e]\nengine = 'director-critic'\n"
LLAMA = "[providers.x]\nprovider = 'ollama'\nmodel = 'm'\n"
CLAUDE = (
    "[providers.x]\nprovider = 'anthropic'\nmodel = 'm'\napi_key = 'env:DESK_KEY'\n"
)
BAD = [
    ("[runtme]", 'runtme: there is no such key; did you mean runtime?'),
    ("[runtime]\nprovder = 'x'", "runtime.provder: there is no such key; did you mean provider"),
    ("[agents.a]\ninstruction = 'x'", "agents.a.instruction: there is no such key; did you mean instructions?"),
    ("[agents.a]\ninstructions = 3", "agents.a.instructions: Input should be a valid string, got 3"),
    ("[agents.a]\nhandoffs = ['b', 3]", "agents.a.handoffs.1: Input should be a valid string, got 3"),
    ("[limits]\nmax_iteration = 3", "limits.max_iteration: there is no such limit; did you mean max_iterations"),
    ("[agents.a]\nlimits = {max_iteration = 3}", "agents.a.limits.max_iteration: there is no such limit; did you mean"),
    ("[limits]\nmax_iterations = 0", "limits: Limits: max_iterations: Input should be greater"),
    ("[agents.a]\nengine = 'recat'", "agents.a.engine: there is no engine 'recat'"),
    ("[agents.a]\nengine = {max_iterations = 3}", 'agents.a.engine.engine: name what is installed, like engine = "..."'),
    ("[agents.a]\nengine = {engine = 'react', max_iteration = 3}", "agents.a.engine.max_iteration: react has no such"),
    ("[agents.a]\nengine = {engine = 'react', max_iterations = 'x'}", "agents.a.engine: ReActEngine: max_iterations: Input"),
    ("[engines.e]\nengine = 'reflexion'\nactor = {engine = 'react', max_step = 1}", "engines.e.actor.max_step: react"),
    ("[engines.e]\nengine = 'reflexion'\nactor = {engine = 'e'}", "one may be a part of itself"),
    ("[engines.react]\nengine = 'react'", "engines.react: 'react' is the name of an installed engine"),
    ("[engines.e]\nengine = 'react'\n[pipelines.e]\nengine = 'react'", "pipelines.e: engines.e has the name already"),
    ("[engines.e]\nengine = 'react'\n[agents.a]\nengine = {engine = 'e', max_iterations = 3}", "agents.a.engine: engines.e"),
    ("[engines.e]\nengine = 'plan-execute'\nplanner = 'big'", "engines.e: planner: 'big' is not among"),
    ("[engines.e]\nengine = 'react'\nhooks = ['nothing']", "engines.e: hooks: there is no 'nothing'"),
    ("[agents.a]\nhandoffs = ['b']", "agents.a.handoffs: there is no agent 'b'; there are a"),
    ("[agents.a]\ntoolboxes = ['dsk']", "agents.a.toolboxes: there is no toolbox 'dsk'; did you mean desk?"),
    ("[agents.a]\noutput = 'scripted_compose:Town'", "agents.a.output: 'scripted_compose:Town' cannot be loaded"),
    ("[agents.a]\nafter = ['nothing']", "agents.a.after: followups: there is no 'nothing'"),
    ("[agents.a]\nafter = [{follow_up = 'critic'}]", "agents.a.after.0: followups: there is no 'critic'"),
    ("[agents.a]\nafter = [{follow_up = 'critique', hostile = 1}]", "agents.a.after.0.hostile: critique has no such"),
    (f"{AFTER}'deliver', to = [{{urll = 'https://a.b'}}]}}]", "to.0.Webhook.urll: there is no such option"),
    (f"{AFTER}'deliver', to = [{{url = 'env:NOT_SET'}}]}}]", "agents.a.after.0: url: the variable NOT_SET"),
    (f"{AFTER}'memories', memory_folder = 'env:DESK_KEY'}}]", "agents.a.after.0.memory_folder: env: stands for"),
    ("[pipelines.p]\nengine = 'chain'\nsteps = ['wrter']\n[agents.writer]", "pipelines.p: steps.1: must be an agent of"),
    ("[agents.a]\nengine = {engine = 'team', agents = ['b']}", "agents.a.engine: agents.1: must be an agent of the runtime"),
    ("[agents.a]\nengine = {engine = 'chain', steps = ['a']}", "a would work for itself in a > a"),
    (f"{CRITIC}critic = {{expires = 3}}", "engines.e: DirectorCriticEngine: critic: needs the key 'kind'"),
    (f"{CRITIC}critic = {{kind = 'human', expire = 3}}", "critic.human.expire: there is no such option"),
    (f"{CRITIC}mode = 'rubric'\nrubric = {{a = 0.5}}", "engines.e: rubric: the weights must add up to 1"),
    ("[agents.react]", "agents.react: name: 'react' is the name of an engine"),
    ("[toolboxes.x]\ntoolbox = 'filesystem'\nrot = '.'", "toolboxes.x.rot: there is no such key; did you mean root?"),
    ("[toolboxes.x]\ntoolbox = 'filesystem'\nroot = '.'\nwrite = 'yes'", "toolboxes.x.write: Input should be a valid bool"),
    ("[toolboxes.x]\ntoolbox = 'filesystem'\nroot = 'gone'", "toolboxes.x: root: "),
    ("[toolboxes.x]\ntoolbox = 'web'\ntransport = 'x'", "toolboxes.x.transport: is code, which no file holds"),
    ("[toolboxes.x]\ntoolbox = 'nothing'", "toolboxes.x: toolboxes: there is no 'nothing'"),
    ("[providers.x]\nprovider = 'openrouter'\nmodel = 'm'\nkey = 'x'", "providers.x.key: there is no such key; did you"),
    ("[providers.x]\nprovider = 'openrouter'\nmodel = 'm'\napi_key = 'env:NOT_SET'", "api_key: the variable NOT_SET is"),
    ("[providers.x]\nprovider = 'openrouter'\nmodel = 'm'\napi_key = 'env:'", "providers.x.api_key: must be"),
    (f"[providers.x]\nprovider = 'openrouter'\nmodel = 'm'\napi_key = '{KEY}'", "providers.x.api_key: holds a secret"),
    (f"[agents.a]\ninstructions = 'The password={KEY}'", "agents.a.instructions: holds a secret"),
    ("[agents.a]\ninstructions = 'env:DESK_KEY'", "agents.a.instructions: env: stands for a variable in providers"),
    ("[providers.x]\nprovider = 'fallback'\nmembers = ['main', 'mani']", "providers.x.members: there is no provider 'mani'"),
    ("[providers.x]\nprovider = 'scripted'\nprice = {input = -1, output = 1}", "providers.x.price: Price: input must be"),
    ("[providers.x]\nobject = 'scripted_compose:gone'", "providers.x.object: 'scripted_compose:gone' cannot be loaded"),
    ("[providers.x]\nobject = 'scripted_compose:look'", "providers.x.object: must be a provider, which has name, model"),
    ("[providers.x]\nobject = 'scripted_compose:Scripted'", "providers.x.object: must be a provider, which has name"),
    ("[providers.x]\nobject = 'scripted_compose:scripted'\nmodle = 'm'", "providers.x.modle: there is no such key; did"),
    (f"{LLAMA}sampling = {{temprature = 1}}", "providers.x.sampling.temprature: there is no such key; correct its name"),
    (f"{LLAMA}sampling = {{temperature = 'hot'}}", "providers.x.sampling.temperature: Input should be a valid number, got"),
    (f"{LLAMA}sampling = {{effort = 'huge'}}", "providers.x.sampling.effort: Input should be 'none', 'minimal'"),
    (f"{CLAUDE}thinking = 'much'", "thinking: Input should be a valid integer, or Input should be 'adaptive'"),
    ("[gates.g]\ngate = 'deny-all'", "gates.g: no call is decided by it; add 'g' to runtime.gates"),
    ("[runtime]\ngates = ['cedr']", "runtime.gates: there is no gate 'cedr'; did you mean cedar?"),
    ("[runtime]\nprovider = 'main'\non_unknown = 'guess'", "runtime.on_unknown: Input should be 'tell', 'ask' or 'stop'"),
    ("[runtime]\nagent = 'b'\n[agents.a]", "runtime.agent: agent: the file has no 'b'"),
    ("[runtime]\nafter = ['nothing']", "runtime.after: followups: there is no 'nothing'"),
    ("[runtime.progress]\nrepeat = 3", "runtime.progress.repeat: there is no such key; did you mean repeats?"),
    ("[runtime.progress]\nthen = 'stop'", "runtime.progress.then: Input should be 'answer', 'abort' or 'ask'"),
    ("[runtime.progress]\nrepeats = 1", "runtime.progress: ProgressRules: repeats: Input should be greater"),
    ("[runtime.retry]\nmax_attempts = 0", "runtime.retry: "),
    ("[schedules.s]\ntask = 'x'\n[agents.a]", "schedules.s.cron: is required"),
    ("[schedules.s]\ntask = 'x'\ncron = '* * * * *'\nagent = 'b'\n[agents.a]", "schedules.s.agent: agent: the file"),
    ("[schedules.s]\ntask = 'x'\ncrn = '* * * * *'\n[agents.a]", "schedules.s.crn: there is no such key; did you mean"),
    ("a = ", "is not TOML: "),
]  # fmt: skip


def test_provider_may_be_an_object_of_ones_own_code(compose: Compose) -> None:
    found = compose("""\
[runtime]
provider = "own"

[providers.own]
object = "scripted_compose:READY"

[providers.made]
object = "scripted_compose:scripted"
model = "large"
""")

    assert found.runtime.provider is __import__("scripted_compose").READY
    assert found.runtime.providers["made"].model == "large"
    assert ReActEngine(found.runtime).run_sync("Hello.").answer == "Here."


@pytest.mark.parametrize(("text", "problem"), BAD, ids=range(len(BAD)))
def test_wrong_key_is_refused_by_its_path(
    compose: Compose, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        compose(f"{text}\n{SMALL}" if text != "a = " else text)

    assert str(refused.value).startswith("agents.toml: ")
    assert problem in str(refused.value)
    assert KEY not in str(refused.value)


def test_file_without_a_model_or_that_is_missing_says_so(compose: Compose) -> None:
    with pytest.raises(ConfigError, match=r"agents.toml: providers: name the model"):
        compose("[agents.a]\n")
    with pytest.raises(ConfigError, match=r"gone.toml: cannot be read"):
        load("gone.toml")
    two = f"{SMALL}[agents.a]\n[agents.b]\n"
    with pytest.raises(ConfigError, match=r"agent: name one of a, b"):
        compose(two).choose()
    assert compose(f'[runtime]\nprovider = "scripted:x"\n{SMALL}').runtime.provider.model == "x"  # fmt: skip


def test_a_journal_of_a_file_is_encrypted_with_its_key_file(
    compose: Compose, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = WHOLE.replace('"runs.db"', '{ journal = "sqlite", path = "runs.db", keys = "keys.toml" }')  # fmt: skip
    monkeypatch.setenv("JOURNAL_KEY", "A" * 43 + "=")
    keys = folder / "keys.toml"
    keys.write_text('current = "one"\n[keys]\none = "env:JOURNAL_KEY"\n')
    runtime = compose(file).runtime
    run_id = ReActEngine(runtime).run_sync("Where is the quagmire?").run_id

    assert b"quagmire" not in (folder / "runs.db-wal").read_bytes()
    assert b"quagmire" in runtime.journal.read(run_id)[0].payload
    keys.unlink()
    with pytest.raises(ConfigError, match=r"runtime.journal.keys: key file 'keys.toml': No such file"):  # fmt: skip
        compose(file)


def test_secrets_of_a_file_are_those_of_its_runtime(
    compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghx-1234567890")
    runtime = compose(WHOLE + '\n[secrets]\ngithub = "env:GITHUB_TOKEN"\n').runtime

    assert runtime.secrets.get("github") == "ghx-1234567890"
    assert runtime.redactor.redact_text("a ghx-1234567890") == "a [redacted]"
    with pytest.raises(ConfigError, match="secrets: 'github': the source must be env:NAME"):  # fmt: skip
        compose(WHOLE + '\n[secrets]\ngithub = "ghx-1234567890"\n')


def test_programs_of_a_file_are_confined_or_refused(compose: Compose) -> None:
    box = (
        WHOLE
        + '\n[toolboxes.programs]\ntoolbox = "shell"\ncommands = ["true"]\nsandbox = "SANDBOX"\n'
    )

    with pytest.raises(ConfigError, match=r'toolboxes.programs: sandbox: must be "bubblewrap"'):  # fmt: skip
        compose(box.replace("SANDBOX", "chroot"))
    with contextlib.suppress(ConfigError):  # where bwrap is missing
        compose(box.replace("SANDBOX", "bubblewrap"))
