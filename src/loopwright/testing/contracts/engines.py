"""EngineContract: what holds for every strategy, built-in or third-party, whatever its model replies."""

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ...engine import LoopEngine
from ...events.effects import AttemptFailed, ModelFailed, ToolStarted
from ...gates.base import Action, Decision, Deny, InstantGate, PolicyState
from ...journals.base import Journal
from ...journals.memory import MemoryJournal
from ...limits import Limits
from ...messages import Completion, Conversation, Message
from ...plugins import build_journal
from ...providers.base import Delta, Request
from ...runtime import Runtime
from ...tools.base import Tool, ToolContext, tool
from ..assertions import assert_equal, assert_true, run_in_loop
from ..crash_harness import kill_everywhere, witness, witnessed
from ..scripted import ScriptedProvider, call
from ..truncated_journal import crashed
from .fixtures import (
    RUN,
    TASK,
    Bench,
    check_chain,
    check_outcome,
    check_resumed,
    summarize,
)
from .models import DOWN, ERROR, Line, Model, babble, polite

HISTORY = (
    Message("system", "Speak of colours only."),
    Message("user", "Shall we speak of the sky?"),
    Message("assistant", "Gladly.", origin="model"),
)
MAX_CUTS = 40  # places of a run at which it is cut off and resumed


class EngineContract:
    """Subclass it in a test module as `Test…` and give it your engine; every check is a test of its own.

        class TestTinyEngine(EngineContract):
            def engine(self, runtime: Runtime) -> LoopEngine:
                return TinyEngine(runtime)

    Your engine is given a model that answers sensibly, models that say anything, and tools to look things up, to put
    them somewhere, to fail, to crash and to wipe everything. If it asks its model in words of its own, override `model`
    too. The class must stand in a module, not in a function: another process makes it again to resume a killed run.
    """

    answer = "blue"
    """A text in the answer of a sensible model."""
    task = TASK
    """The task."""

    def engine(self, runtime: Runtime) -> LoopEngine:
        """Return your engine on that runtime; it is built for each run."""
        raise NotImplementedError(
            f"{type(self).__name__}: override engine(self, runtime)"
        )

    def model(self, request: Request) -> Line:
        """Return a sensible reply to a request: a text, a call, a list of calls; equal for equal requests."""
        return polite(request)

    def tools(self) -> Sequence[Tool]:
        """Return tools that your engine needs in addition to the bench's `look`, `put`, `fail`, `crash` and `wipe`."""
        return ()

    def bench(self, model: Model | None = None, **options: Any) -> Bench:
        """Return a test bench for the engine; see `Bench`."""
        return Bench(model or self.model, more=self.tools(), task=self.task, **options)

    @property
    def models(self) -> tuple[Model, ...]:
        """A sensible model, one that replies anything, and two that do both."""
        return self.model, *(babble(seed, self.model) for seed in (0, 2, 3))

    # --- a run that another process resumes (see `Killable`) ---

    def journal(self, folder: Path) -> Journal:
        """Return the journal of the run that is killed: a SQLite file."""
        return build_journal(f"sqlite:{folder / 'runs.db'}")

    def runtime(self, journal: Journal) -> Runtime:
        """Return the runtime of the run that is killed; its `put` must not be repeated."""
        return Runtime(
            witnessed(self.model), tools=[_look, _put, *self.tools()], journal=journal
        )

    # --- the checks ---

    @run_in_loop
    async def test_it_comes_to_an_answer(self) -> None:
        """With a sensible model it completes, within the usual limits."""
        result = await self.bench(limits=Limits()).run(self.engine)

        assert_equal(
            result.status, "completed", f"{result.stop_reason}: {result.error}"
        )
        assert_true(
            self.answer in (result.answer or ""),
            f"{self.answer!r} is not in the answer {result.answer!r}",
        )

    @run_in_loop
    async def test_it_survives_any_model(self) -> None:
        """It neither raises nor runs away, whatever the model says."""
        for seed in range(20):
            await self.bench(
                babble(seed, self.model), limits=Limits(max_llm_calls=30)
            ).run(self.engine)

    @run_in_loop
    async def test_it_obeys_limits(self) -> None:
        """No limit is passed, and a run that meets one ends as `limit`, unless it had its answer before."""
        for model in self.models:
            for bound in (1, 2, 3, 5, 8):
                for limits in (
                    Limits(max_llm_calls=bound),
                    Limits(max_llm_calls=bound, best_effort=False),
                    Limits(max_tool_calls=bound - 1),
                    Limits(max_tokens=20 * bound),
                    Limits(max_iterations=bound, max_llm_calls=40),
                ):
                    await self.bench(model, limits=limits).run(self.engine)
                await self.bench(
                    model, limits=Limits(timeout=100 * bound), seconds=40
                ).run(self.engine)

    @run_in_loop
    async def test_it_turns_no_more_often_than_it_may(self) -> None:
        """A model that always calls a tool with something new meets `max_iterations`, long before any other limit."""
        numbers = itertools.count()

        def restless(request: Request) -> Line:
            may_call = request.tools and request.tool_choice == "auto"
            return (
                call("look", what=f"sky {next(numbers)}")
                if may_call
                else self.model(request)
            )

        result = await self.bench(
            restless, limits=Limits(max_iterations=3, max_llm_calls=200)
        ).run(self.engine)
        message = f"with max_iterations=3 it asked its model {result.llm_calls} times: does it loop by run.iterations()?"
        assert_true(result.stop_reason != "max_llm_calls", message)

    @run_in_loop
    async def test_it_runs_no_tool_that_is_denied(self) -> None:
        """Under a gate that denies everything, no tool starts."""
        for model in self.models:
            bench = self.bench(model, gate=Refusing(), limits=Limits(max_llm_calls=30))
            await bench.run(self.engine)

            assert_equal(bench.ran, [], "tools ran though they were denied")
            begun = [
                entry.key
                for entry in bench.entries
                if isinstance(entry.event, ToolStarted)
            ]
            assert_equal(begun, [], "tools started though they were denied")

    @run_in_loop
    async def test_it_fails_with_its_provider(self) -> None:
        """A provider that always fails ends the run as `failed`, without an answer."""
        for error in (DOWN, RuntimeError(f"a bug {ERROR}")):
            result = await self.bench(functools.partial(_always, error)).run(
                self.engine
            )

            found = (result.status, result.stop_reason, result.answer)
            assert_equal(
                found,
                ("failed", "provider_error", None),
                f"when the provider raises {type(error).__name__}",
            )

    @run_in_loop
    async def test_it_can_be_aborted(self) -> None:
        """Aborted at any model call, a run ends as `aborted`, once."""

        async def abort(run: Any, work: "asyncio.Future[Any]") -> None:
            result = await run.abort()
            await work
            assert_equal(
                (result.status, result.stop_reason),
                ("aborted", "aborted"),
                "how an aborted run ended",
            )

        for number in itertools.count(1):
            journal = await self._held_at(number, abort)
            if journal is None:
                assert_true(number > 1, "the engine never asked its model")
                return
            check_chain(journal.read(RUN))
            assert_true(
                journal.verify(RUN).ok, "the journal of an aborted run does not verify"
            )

    @run_in_loop
    async def test_it_can_be_suspended(self) -> None:
        """Cancelled by its host at any model call, a run can be resumed to the same answer."""

        async def cancel(run: Any, work: "asyncio.Future[Any]") -> None:
            work.cancel()
            await asyncio.wait((work,))
            assert_true(work.cancelled(), "the cancellation of the host was swallowed")

        whole = await self.bench().run(self.engine)
        for number in itertools.count(1):
            journal = await self._held_at(number, cancel)
            if journal is None:
                return
            assert_equal(
                journal.runs()[0].status,
                "suspended",
                "the status of a run whose host was cancelled",
            )
            bench = self.bench(journal=journal)
            result = await self.engine(bench.runtime).resume(RUN)
            check_outcome(result, bench.entries)
            assert_equal(
                summarize(result), summarize(whole), f"suspended at model call {number}"
            )

    async def _held_at(
        self, number: int, stop: Callable[[Any, "asyncio.Future[Any]"], Awaitable[None]]
    ) -> MemoryJournal | None:
        """The journal of a run that was stopped while its n-th model call was in flight; `None` if it has no n-th."""
        provider, journal = Held(self.model, number), MemoryJournal()
        runtime = Runtime(provider, tools=self.bench().runtime.tools, journal=journal)
        run = self.engine(runtime).start(self.task, run_id=RUN)
        work = asyncio.ensure_future(run.result())
        held = asyncio.ensure_future(provider.held.wait())
        await asyncio.wait((work, held), return_when=asyncio.FIRST_COMPLETED)
        if not held.done():
            held.cancel()
            await work
            return None
        await asyncio.sleep(0)
        await stop(run, work)
        return journal

    @run_in_loop
    async def test_it_gives_structured_output(self) -> None:
        """`output=` gives the answer as a model's instance."""
        result = await self.bench().run(self.engine, output=Colour)

        assert_equal(
            result.status, "completed", f"{result.stop_reason}: {result.error}"
        )
        assert_true(
            isinstance(result.output, Colour), f"the output is {result.output!r}"
        )

    @run_in_loop
    async def test_it_tells_the_same_to_who_watches(self) -> None:
        """A run with a subscriber, with its deltas, has the same result, and every entry is seen once."""
        whole, bench = await self.bench().run(self.engine), self.bench()
        async with self.engine(bench.runtime).start(
            self.task, run_id=RUN, deltas=True
        ) as run:
            items: AsyncIterator[Any] = aiter(run)
            seen = [item.seq async for item in items if not isinstance(item, Delta)]
            result = await run.result()

        assert_equal(summarize(result), summarize(whole), "a run that was watched")
        assert_equal(
            seen, [entry.seq for entry in bench.entries], "the entries that were seen"
        )

    @run_in_loop
    async def test_it_resumes_anywhere(self) -> None:
        """Cut after any entry, a run resumes to the same end and repeats nothing recorded."""
        for model in self.models:
            whole = self.bench(model, limits=_loose())
            expected = await whole.run(self.engine)
            entries = whole.entries
            step = max(len(entries) // MAX_CUTS, 1)
            for keep in sorted({*range(1, len(entries), step), len(entries)}):
                bench = self.bench(
                    model, limits=_loose(), journal=crashed(entries, keep)
                )
                result = await self.engine(bench.runtime).resume(RUN)
                check_resumed(entries[:keep], bench)
                assert_equal(
                    summarize(result),
                    summarize(expected),
                    f"cut after entry {keep} of {len(entries)}",
                )
                assert_true(
                    bench.runtime.journal.verify(RUN, result.head_hash).ok,
                    "the resumed journal does not verify",
                )

    def test_killed_at_any_barrier_it_is_resumed_by_a_new_process(
        self, tmp_path: Path
    ) -> None:
        """Killed before or after any barrier, a run is resumed by a new process with another hash seed.

        It gives the same answer, repeats no recorded effect, and writes nothing twice. The process is forked by an
        interpreter in which the engine never ran.
        """
        kills = sum(1 for _ in kill_everywhere(type(self), folder=tmp_path))

        assert_true(kills >= 2, f"the run was killed {kills} times only")

    @run_in_loop
    async def test_it_is_the_same_again(self) -> None:
        """Run twice with the same model, it says the same: no order of sets, no clock, no chance of its own."""
        for model in self.models:
            first, second = self.bench(model), self.bench(model)
            await first.run(self.engine)
            await second.run(self.engine)
            assert_equal(
                _list_messages(first),
                _list_messages(second),
                "two runs with the same model",
            )

    @run_in_loop
    async def test_it_honours_the_conversation(self) -> None:
        """Every model call is made inside what the caller gave: system message, history and task, in this order."""
        bench, history = (
            self.bench(),
            Conversation([*HISTORY, Message("user", self.task)]),
        )
        await self.engine(bench.runtime).run(history)
        for request in bench.provider.requests:
            messages = iter(request.conversation.messages)
            for given in history:
                found = any(
                    message.role == given.role and given.content in message.content
                    for message in messages
                )
                assert_true(found, f"{given.role}: {given.content!r} is missing")
            systems = [
                message
                for message in request.conversation.messages
                if message.role == "system"
            ]
            assert_equal(len(systems), 1, "system messages")

    @run_in_loop
    async def test_it_tells_no_error_as_its_answer(self) -> None:
        """Where all tools fail, crash or are denied, the answer is none of their texts."""
        for bench in (
            self.bench(broken=True),
            self.bench(gate=Refusing()),
            self.bench(broken=True, limits=Limits(max_llm_calls=2)),
            self.bench(broken=True, limits=Limits(max_llm_calls=2, best_effort=False)),
            self.bench(broken=True, limits=Limits(max_tool_calls=1)),
        ):
            result = await bench.run(self.engine)
            is_answer = result.answer is None or self.answer in result.answer
            assert_true(is_answer, f"not what the model said: {result.answer!r}")


@tool(effect="read", name="look")
async def _look(ctx: ToolContext[None], what: str) -> str:
    """Look something up."""
    witness(ctx)
    return f"{what} is blue"


@tool(effect="write", name="put")
async def _put(ctx: ToolContext[None], what: str) -> str:
    """Put something somewhere."""
    witness(ctx)
    return f"{what} is there"


class Held(ScriptedProvider):
    """Holds its n-th reply until `go` is set."""

    def __init__(self, model: Model, number: int) -> None:
        super().__init__(model)
        self.held, self.go, self._number = asyncio.Event(), asyncio.Event(), number

    async def complete(self, request: Request) -> Completion:
        """Wait, if it is the n-th call."""
        if len(self.requests) == self._number - 1:
            self.requests.append(request)
            self.held.set()
            await self.go.wait()
            self.requests.pop()
        return await super().complete(request)


class Colour(BaseModel):
    """What the contract asks for as structured output."""

    name: str
    shade: int


class Refusing(InstantGate):
    """Denies everything, with a reason that must not become an answer."""

    version = "refusing-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Deny."""
        return Deny(f"not here {ERROR}")


def _always(line: Line, request: Request) -> Line:
    return line


def _loose() -> Limits:
    """Limits of each loop alone: which branch meets one of the whole run may differ after a crash."""
    return Limits(
        max_iterations=4,
        max_llm_calls=None,
        max_tokens=None,
        timeout=None,
        max_tool_calls=None,
    )


def _list_messages(bench: Bench) -> list[tuple[str, str, bytes]]:
    """A run's entries, without how long failed calls took: the pause before another attempt is random."""
    timed = (AttemptFailed, ModelFailed)
    return [
        (e.key, e.kind, b"" if isinstance(e.event, timed) else e.body)
        for e in bench.entries
    ]
