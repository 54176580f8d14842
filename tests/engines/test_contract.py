"""The contract of an engine, for all that are built in and one that a stranger might write; and what breaks it."""

import asyncio
import importlib.util
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fault_sizes import sized
from loopwright import (
    ChainOfThoughtEngine,
    Completion,
    ConfigError,
    Conversation,
    CriticEngine,
    DenyAll,
    Limits,
    LoopEngine,
    PlanExecuteEngine,
    ProviderError,
    ReActEngine,
    ReflexionEngine,
    Request,
    Run,
    Runtime,
    SelfAskEngine,
    ToolContext,
    TreeOfThoughtsEngine,
    Usage,
    available_engines,
    tool,
)
from loopwright.engines import (
    AdaptiveBreak,
    ChainEngine,
    DirectorCriticEngine,
    GoalCycleEngine,
    MapReduceEngine,
)
from loopwright.journals import MemoryJournal
from loopwright.providers import Capabilities, TextTools
from loopwright.testing import EngineContract, ScriptedProvider, call
from loopwright.testing.contracts.fixtures import Bench, Factory
from loopwright.testing.contracts.models import DOWN, ERROR, FRAGMENTS, calls_of, polite
from needed_options import NEEDED

STRANGER = (
    Path(__file__).parents[1] / "third_party" / "src" / "acme_loops" / "engines.py"
)


def stranger() -> type[LoopEngine]:
    """The engine of the third-party package, from its source; the package has the contract in its own tests."""
    spec = importlib.util.spec_from_file_location(
        "acme_engines_under_contract", STRANGER
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TinyEngine


class Composed(LoopEngine):
    """A stranger's engine that uses the whole door: branches, children, calls of its own, notes, effects, leave."""

    name = "composed"

    async def solve(self, run: Run) -> str:
        async def delegates(inner: Run) -> str:
            return str(
                (
                    await inner.delegate(
                        ReActEngine(self.runtime, max_iterations=2), run.conversation
                    )
                ).status
            )

        async def looks(inner: Run) -> str:
            return (
                await inner.call(call("look", what=inner.random.choice("abc")))
            ).status

        async def asks(inner: Run) -> str:
            inner.note({"at": inner.now().isoformat(), "id": inner.new_id()})
            return await inner.ask(run.conversation.user("Which colour?"))

        async def price() -> int:
            return 3

        found = await run.gather(delegates, looks, asks, looks, max_concurrency=2)
        run.note(found)
        await run.effect("price", price, into=int)
        await run.permit("announce", {"what": found[2]})
        return await run.ask(run.conversation.user(f"Sum up: {found[2]}"))


class OfABuiltIn(EngineContract):
    """The contract of an engine by its name."""

    name = ""

    def engine(self, runtime: Runtime) -> LoopEngine:
        return runtime.engine(self.name, **NEEDED.get(self.name, {}))

    def warm_up(self) -> None:
        """Fill the caches of the library, in an interpreter that forks, by a run that no other finds."""
        asyncio.run(self._run_once())

    async def _run_once(self) -> None:
        async with self.runtime(MemoryJournal()) as runtime:
            result = await self.engine(runtime).run(self.task, run_id="warm-up")
            result.raise_for_status()


for _name in available_engines():
    _title = f"Test{_name.title().replace('-', '')}"
    globals()[_title] = type(
        _title, (OfABuiltIn,), {"name": _name, "__module__": __name__}
    )


class TestAComposedEngine(EngineContract):
    def engine(self, runtime: Runtime) -> LoopEngine:
        return Composed(runtime)


class Of(EngineContract):
    """The contract of what a function makes."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory

    def engine(self, runtime: Runtime) -> LoopEngine:
        return self._factory(runtime)

    def check(self, name: str) -> None:
        """One of its tests: "resumes anywhere" is `test_it_resumes_anywhere`."""
        getattr(self, f"test_it_{name.replace(' ', '_')}")()


FACTORIES: dict[str, Factory] = {
    **{
        name: OfABuiltIn.engine.__get__(type(name, (OfABuiltIn,), {"name": name})())
        for name in available_engines()
    },
    "a stranger's": stranger(),
    "a composed one": Composed,
}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Thousands of tools crash here on purpose; nobody wants to read of each."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )
    yield
    structlog.reset_defaults()


OTHERWISE: dict[
    str, Factory
] = {  # what the options of the built-in engines change most
    "self-ask, an engine searches": lambda runtime: SelfAskEngine(
        runtime, search=ReActEngine(runtime, max_iterations=2), max_follow_ups=3
    ),
    "self-ask, one by one": lambda runtime: SelfAskEngine(
        runtime, max_concurrency=1, search="put"
    ),
    "chain-of-thought, a vote": lambda runtime: ChainOfThoughtEngine(
        runtime,
        samples=5,
        wave=2,
        min_agreement=0.9,
        fallback=ReActEngine(runtime, max_iterations=3),
    ),
    "tree-of-thoughts, depth first": lambda runtime: TreeOfThoughtsEngine(
        runtime, search="depth-first", max_visits=6, prune_below=3
    ),
    "tree-of-thoughts, ballots": lambda runtime: TreeOfThoughtsEngine(
        runtime,
        evaluate="vote",
        n_evaluations=3,
        select="sample",
        generate="propose",
        n_proposals=2,
    ),
    "reflexion, all that was": lambda runtime: ReflexionEngine(
        runtime, strategy="both", actor=ReActEngine(runtime, max_iterations=2)
    ),
    "plan-execute, approved": lambda runtime: PlanExecuteEngine(
        runtime,
        approve_plan=True,
        max_replans=2,
        max_step_iterations=2,
        max_concurrency=1,
    ),
    "chain, of engines": lambda runtime: ChainEngine(
        runtime,
        steps=(ReActEngine(runtime), "Sum up: {input}", ReActEngine(runtime)),
    ),
    "director-critic, of a rubric": lambda runtime: DirectorCriticEngine(
        runtime,
        director=ReActEngine(runtime, max_iterations=2),
        mode="rubric",
        rubric={"truth": 0.6, "form": 0.4},
        convergence=AdaptiveBreak(2, 4, 0.1),
    ),
    "map-reduce, of engines": lambda runtime: MapReduceEngine(
        runtime,
        items=("sky", "sea"),
        map=ReActEngine(runtime, max_iterations=2),
        reduce=ReActEngine(runtime, max_iterations=2),
        reduce_width=2,
        max_concurrency=2,
    ),
    "goal-cycle, impatient": lambda runtime: GoalCycleEngine(
        runtime,
        compress_every=1,
        compress_above=1,
        max_step_attempts=1,
        on_exhausted="abort",
    ),
    "critic, of another's draft": lambda runtime: CriticEngine(
        runtime, drafter=ReActEngine(runtime, max_iterations=2), max_critique_rounds=3
    ),
}


@pytest.mark.faults
@pytest.mark.parametrize(
    "check",
    ["survives any model", "can be suspended", "resumes anywhere", "is the same again"],
)
@pytest.mark.parametrize("engine", OTHERWISE)
def test_the_built_in_engines_keep_the_contract_with_other_options(
    engine: str, check: str
) -> None:
    Of(OTHERWISE[engine]).check(check)


# --- any model at all ---

USAGE = st.sampled_from([Usage(10, 5), Usage(), Usage(100_000, 1)])
TEXT = st.one_of(
    st.builds(
        lambda parts, gap: gap.join(parts),
        st.lists(st.sampled_from(FRAGMENTS), max_size=8),
        st.sampled_from("\n "),
    ),
    st.text(max_size=40),
)
ERRORS = st.sampled_from(
    [
        DOWN,
        ProviderError(f"later {ERROR}", retryable=True),
        RuntimeError(f"a bug {ERROR}"),
    ]
)
CALLS = st.builds(lambda seed: calls_of(random.Random(seed)), st.integers(0, 500))
LINES = st.one_of(
    TEXT,
    TEXT,
    st.just(polite),
    CALLS,
    st.builds(
        lambda text, usage: Completion(text, answer=text, usage=usage), TEXT, USAGE
    ),
    st.builds(lambda text: Completion(text, answer=text, finish_reason="length"), TEXT),
    st.builds(lambda text: Completion(text, problem="it cannot be read"), TEXT),
    st.builds(
        lambda text, calls, usage: Completion(
            text, tuple(calls), thought=text, usage=usage
        ),
        TEXT,
        CALLS,
        USAGE,
    ),
    ERRORS,
)
LIMITS = st.one_of(
    st.just(Limits(max_llm_calls=30)),
    st.builds(
        Limits,
        max_llm_calls=st.integers(1, 12),
        max_tool_calls=st.integers(0, 4),
        max_iterations=st.integers(1, 4),
        max_tokens=st.sampled_from([1, 50, 500, None]),
        timeout=st.sampled_from([1.0, 70.0, None]),
        best_effort=st.booleans(),
    ),
)


def saying(lines: list[Any]) -> Callable[[Request], Any]:
    """A model that says the lines again and again."""
    said = 0

    def model(request: Request) -> Any:
        nonlocal said
        line = lines[said % len(lines)]
        said += 1
        return line(request) if callable(line) else line

    return model


@pytest.mark.faults
@pytest.mark.parametrize("engine", FACTORIES)
@settings(max_examples=sized(50, 150), suppress_health_check=list(HealthCheck))
@given(
    st.lists(LINES, min_size=1, max_size=8),
    LIMITS,
    st.sampled_from([None, None, None, "react", "react-bracket", "json"]),
    st.booleans(),
)
def test_no_model_however_mad_makes_an_engine_break_the_contract(
    engine: str, lines: list[Any], limits: Limits, dialect: str | None, denied: bool
) -> None:
    """It raises nothing, passes no limit, does nothing ungated, and ends once."""
    bench = Bench(
        saying(lines),
        limits=limits,
        wrap=dialect and (lambda provider: TextTools(provider, dialect)),
        gate=DenyAll() if denied else None,
        seconds=20,
    )
    asyncio.run(bench.run(FACTORIES[engine]))

    assert not (denied and bench.ran)


# --- the contract notices what it is for ---


class Naughty(LoopEngine):
    """Does what an engine must not do."""

    name = "naughty"
    body: Any = None

    async def solve(self, run: Run) -> str:
        return await self.body(self, run)


async def reads_numbers(self: LoopEngine, run: Run) -> str:
    return f"blue {float(await run.ask(run.conversation)):g}"


async def never_ends(self: LoopEngine, run: Run) -> str:
    for _ in run.iterations():
        await run.reason(run.conversation, tools=False)
    return "never"


async def gives_what_came(self: LoopEngine, run: Run) -> str:
    proposal = await run.reason(run.conversation)
    observations = await run.act(await run.gate(proposal))
    return proposal.answer if proposal.answer is not None else observations[0].content


async def passes_the_door(self: LoopEngine, run: Run) -> str:
    return (
        await self.runtime.provider.complete(Request(run.conversation))
    ).text or "blue"


async def runs_tools_itself(self: LoopEngine, run: Run) -> str:
    tool = self.runtime.tools.get("look")
    assert tool is not None
    await tool(ToolContext(run.run_id, "mine", "mine", None, None), what="sky")
    return await run.ask(run.conversation)


async def swallows_failures(self: LoopEngine, run: Run) -> str:
    try:
        return await run.ask(run.conversation)
    except ProviderError as error:
        return f"It did not work: {error}"


async def rolls_dice(self: LoopEngine, run: Run) -> str:
    await run.ask(run.conversation)
    return await run.ask(run.conversation.user(f"And {random.random()}?"))


async def counts_its_runs(self: LoopEngine, run: Run) -> str:
    COUNTED.append(run.run_id)
    await run.ask(run.conversation)
    return f"blue {len(COUNTED)}"


async def forgets_the_system(self: LoopEngine, run: Run) -> str:
    return await run.ask(Conversation.of(run.task))


async def ignores_cancellation(self: LoopEngine, run: Run) -> str:
    try:
        return await run.ask(run.conversation)
    except asyncio.CancelledError:
        return "I was not told to stop"


COUNTED: list[str] = []
NAUGHTY = [
    (reads_numbers, "comes to an answer"),
    (reads_numbers, "survives any model"),
    (never_ends, "comes to an answer"),
    (gives_what_came, "tells no error as its answer"),
    (passes_the_door, "survives any model"),
    (passes_the_door, "obeys limits"),
    (passes_the_door, "fails with its provider"),
    (runs_tools_itself, "survives any model"),
    (runs_tools_itself, "runs no tool that is denied"),
    (swallows_failures, "fails with its provider"),
    (rolls_dice, "is the same again"),
    (counts_its_runs, "resumes anywhere"),
    (counts_its_runs, "can be suspended"),
    (forgets_the_system, "honours the conversation"),
    (ignores_cancellation, "can be suspended"),
]


@pytest.mark.parametrize(
    ("body", "check"), NAUGHTY, ids=lambda value: getattr(value, "__name__", value)
)
def test_the_contract_notices_an_engine_that_breaks_it(body: Any, check: str) -> None:
    with pytest.raises(AssertionError):
        Of(lambda runtime: Naughty(runtime, body=body)).check(check)


# --- engines in engines ---


def test_an_engine_inside_another_needs_a_provider_that_can_call_its_tools() -> None:
    @tool(effect="read")
    async def look(what: str) -> str:
        """Look something up."""
        return what

    outer = Runtime(ScriptedProvider([]))
    inner = ReActEngine(
        Runtime(
            ScriptedProvider([], capabilities=Capabilities(native_tools=False)),
            tools=[look],
        )
    )
    told = r"provider 'scripted' has no native tool calls: wrap it, Runtime\(TextTools\(provider\), ...\)"

    for nested in (
        lambda: ReflexionEngine(outer, actor=inner, evaluator=lambda _: True),
        lambda: PlanExecuteEngine(outer, executor=inner),
        lambda: CriticEngine(outer, drafter=inner),
        lambda: SelfAskEngine(outer, search=inner),
        lambda: ChainOfThoughtEngine(outer, fallback=inner),
        lambda: ReActEngine(outer, fallback=inner),
    ):
        with pytest.raises(ConfigError, match=told):
            nested()
