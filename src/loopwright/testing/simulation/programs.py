"""Random programs: strategies of all verbs of `Run`, and the built-in engines, drawn by a seed."""

import json
import random
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeAlias

from pydantic import BaseModel

from ..._internal import dataclasses
from ...engine import LoopEngine
from ...engines.chain_of_thought import ChainOfThoughtEngine
from ...engines.critic import CriticEngine
from ...engines.plan_execute import PlanExecuteEngine
from ...engines.react import ReActEngine
from ...engines.reflexion import ReflexionEngine
from ...engines.self_ask import SelfAskEngine
from ...engines.tree_of_thoughts import TreeOfThoughtsEngine
from ...errors import AskFailed, Denied, ProviderError, TimedOut, Unreadable
from ...limits import Limits
from ...messages import Conversation, ToolCall
from ...run import Run
from ...runtime import Runtime

Factory: TypeAlias = Callable[[Runtime], LoopEngine]

MAX_DEPTH = 2
TOOLS = ("look", "put", "send", "mail")


class Grade(BaseModel):
    """What a judge of a drawn program answers."""

    score: int
    reason: str


class DrawnEngine(LoopEngine):
    """A strategy whose verbs a seed decides; it depends on what the verbs return, and from nothing else."""

    name: ClassVar[str] = "drawn"
    seed: int = 0
    effects: Any = None
    """Called with the run and a name for each effect of the engine's own."""
    release: int = 1
    """The second release of the code asks one thing more in each scope, unless the first had begun it."""
    reads: Any = None
    """Called with the run and a name for each lookup; returns a text that is never the same."""

    async def solve(self, run: Run) -> str:
        """Do the drawn steps, and answer with what they gave."""
        source = random.Random(self.seed)  # noqa: S311 - a program, not a secret
        words = await do_steps(Place(self, run, source, 0, _name_root(run)))
        run.offer("all is done")
        return " ".join(words)[:400] or "nothing"


def _name_root(run: Run) -> str:
    """Return a name that no other round of the run has: a message that follows begins one more."""
    messages = run.conversation.messages
    if len(messages) == 1:
        return "root1"
    return f"root{len(messages)}-{zlib.crc32(messages[-1].content.encode()):08x}"


@dataclasses.dataclass(frozen=True)
class Place:
    """A place in a random program: its scope, its source of choices, its depth and a unique name."""

    engine: DrawnEngine
    run: Run
    source: random.Random
    depth: int
    name: str

    @property
    def prompt(self) -> str:
        """A text that only this place says."""
        return f"{self.run.run_id} {self.name}"

    def inside(self, name: str, seed: int, *, run: Run | None = None) -> "Place":
        """Return a place in this one; with a `run` it is a branch."""
        return Place(
            self.engine,
            run or self.run,
            random.Random(seed),  # noqa: S311 - as above
            self.depth + (run is not None),
            f"{self.name}.{name}",
        )


async def do_steps(place: Place) -> list[str]:
    """Do a few steps, one after the other, and return what each gave."""
    words: list[str] = []
    if place.engine.release > 1 and place.run.patched("more"):
        words.append(await _try(place.inside("more", 0), _ask))
    for number in range(place.source.randint(1, 5)):
        step, seed = place.source.choice(STEPS), place.source.randrange(1 << 30)
        words.append(await _try(place.inside(str(number), seed), step))
    return words


async def _try(place: Place, step: "Drawn") -> str:
    """Do a step; return what it gave, or the name of an error that an engine may catch."""
    try:
        return await step(place)
    except (AskFailed, Denied, ProviderError, TimedOut, Unreadable) as error:
        return type(error).__name__


async def _ask(place: Place) -> str:
    return await place.run.ask(f"{place.prompt}: say a word", purpose="word")


async def _grade(place: Place) -> str:
    grade = await place.run.ask(f"{place.prompt}: grade it", into=Grade)
    return str(grade.score)


async def _loop(place: Place) -> str:
    run, conversation = place.run, Conversation.of(f"{place.prompt}: look around")
    for _ in run.iterations(place.source.randint(1, 3)):
        proposal = await run.reason(conversation)
        if proposal.answer is not None:
            return proposal.answer
        observations = await run.act(await run.gate(proposal))
        conversation = conversation.observe(proposal, observations)
    return await run.best_answer(conversation)


async def _call(place: Place) -> str:
    made = ToolCall(place.source.choice(TOOLS), {"what": place.name})
    observation = await place.run.call(made, thought="as drawn")
    return f"{observation.status}:{observation.content}"


async def _gather(place: Place) -> str:
    if place.depth >= MAX_DEPTH:
        return await _ask(place)
    seeds = [place.source.randrange(1 << 30) for _ in range(place.source.randint(2, 4))]
    bound = place.source.choice((None, None, 1, 2))

    def branch(index: int) -> Callable[[Run], Awaitable[list[str]]]:
        return lambda run: do_steps(place.inside(f"b{index}", seeds[index], run=run))

    works = [branch(index) for index in range(len(seeds))]
    words = await place.run.gather(*works, max_concurrency=bound)
    return "|".join(" ".join(branch_words) for branch_words in words)


async def _delegate(place: Place) -> str:
    runtime = place.engine.runtime
    child: LoopEngine = place.source.choice(CHILDREN)(runtime)
    result = await place.run.delegate(child, f"{place.prompt}: what is blue?")
    return f"{result.status}:{result.answer}"


async def _ask_user(place: Place) -> str:
    return await place.run.ask_user(f"{place.name}: which one?")


async def _effect(place: Place) -> str:
    return await _do_own(place, "own")


async def _do_own(place: Place, effect: str) -> str:
    async def work() -> str:
        if place.engine.effects is not None:
            await place.engine.effects(place.run.run_id, place.name)
        return f"done {place.name}"

    return await place.run.effect(effect, work, into=str)


async def _lookup(place: Place) -> str:
    """Read something, and do an effect that is named after it: one read anew would have another name."""
    engine, run = place.engine, place.run

    async def read() -> str:
        return str(await engine.reads(run.run_id, place.name))

    if engine.reads is None:
        return await _effect(place)
    found = await run.lookup("read", read, into=str)
    return await _do_own(place, f"use {found}")


async def _sleep(place: Place) -> str:
    await place.run.sleep(place.source.choice((0.1, 5.0, 65.0, 200.0)))
    return "slept"


async def _timeout(place: Place) -> str:
    if place.depth >= MAX_DEPTH:
        return await _ask(place)
    seconds = place.source.choice((0.2, 1.0, 3.0, 10.0, 100.0))
    seed = place.source.randrange(1 << 30)

    def work(run: Run) -> Awaitable[list[str]]:
        return do_steps(place.inside("t", seed, run=run))

    return " ".join(await place.run.timeout(seconds, work))


async def _as_completed(place: Place) -> str:
    """Take the outcomes of works one by one; work in between, begin more, leave early."""
    if place.depth >= MAX_DEPTH:
        return await _ask(place)
    source, words = place.source, list[str]()
    seeds = [source.randrange(1 << 30) for _ in range(source.randint(1, 4))]
    more, stop = source.randint(0, 2), source.choice((1, 2, 9, 9))
    bound = source.choice((None, None, 1, 2))

    def work(index: int) -> Callable[[Run], Awaitable[list[str]]]:
        seed = seeds[index % len(seeds)]
        return lambda run: do_steps(place.inside(f"c{index}", seed, run=run))

    works = [work(index) for index in range(len(seeds))]
    async with place.run.as_completed(*works, max_concurrency=bound) as done:
        async for one in done:
            error = type(one.error).__name__
            words.append(f"{one.index} {error if one.error else ' '.join(one.value)}")
            if len(words) == stop:
                break
            between = place.inside(f"d{len(words)}", one.index)
            words.append(await source.choice((_side, _ask, _call, _sleep))(between))
            if len(words) <= 2 * more:
                done.start(work(len(seeds) + len(words)))
    return "|".join(words)


async def _permit(place: Place) -> str:
    await place.run.permit("plan", {"what": place.name})
    return "permitted"


async def _side(place: Place) -> str:
    run = place.run
    run.note({"at": place.name, "time": run.now().isoformat(), "id": run.new_id()})
    return str(run.random.randrange(100))


Drawn: TypeAlias = Callable[[Place], Awaitable[str]]
STEPS: tuple[Drawn, ...] = (
    _ask, _ask, _grade, _loop, _loop, _call, _call, _call, _gather, _gather, _delegate, _ask_user, _effect, _lookup,
    _lookup, _permit, _side, _sleep, _timeout, _timeout, _as_completed, _as_completed,
)  # fmt: skip
CHILDREN: tuple[Any, ...] = (ReActEngine, ChainOfThoughtEngine)
BUILT_IN: tuple[Factory, ...] = (
    ReActEngine,
    lambda runtime: ChainOfThoughtEngine(runtime, samples=3),
    CriticEngine,
    lambda runtime: PlanExecuteEngine(runtime, approve_plan=True),
    ReflexionEngine,
    lambda runtime: SelfAskEngine(runtime, search="look"),
    lambda runtime: TreeOfThoughtsEngine(runtime, generate="propose"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Program:
    """An engine at work, as a world runs it."""

    engine: Factory
    limits: Limits
    politeness: float
    """The share of model calls that are answered sensibly; the others say anything."""
    saga: bool = False
    streams: bool = False
    """Whether who starts the run watches the replies as they come."""
    recovers: bool = False
    """Whether its tools declare how their failures are recovered."""


def draw_program(source: random.Random, engine: Factory | None) -> Program:
    """Return a program: of the engine that was given, or of any."""
    seed = source.randrange(1 << 30)
    if engine is None:
        engine = source.choice((_drawn(seed), _drawn(seed), source.choice(BUILT_IN)))
    return Program(
        engine,
        draw_limits(source),
        source.choice((1.0, 1.0, 0.9, 0.6)),
        source.random() < 0.2,
        source.random() < 0.25,
        source.random() < 0.3,
    )


def _drawn(seed: int) -> Factory:
    return lambda runtime: DrawnEngine(runtime, seed=seed)


def draw_limits(source: random.Random) -> Limits:
    """Return limits: most of them leave room, some are narrow enough for branches to race to them."""
    if source.random() < 0.6:
        return Limits()
    return Limits(
        max_llm_calls=source.randint(2, 12),
        max_tool_calls=source.randint(0, 6),
        max_iterations=source.randint(1, 5),
        timeout=source.choice((20.0, 120.0, 300.0)),
        tool_timeout=source.choice((2.0, 30.0)),
        max_concurrent_tools=source.choice((1, 2, 5)),
        best_effort=source.random() < 0.7,
    )


def describe_call(arguments: object) -> str:
    """Return arguments as a text that is equal for equal ones."""
    return json.dumps(arguments, sort_keys=True, default=str)
