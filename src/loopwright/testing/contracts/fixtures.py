"""A place where an engine is tried: tools that note where they ran, a model that notes what it was asked."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_args

from ...engine import LoopEngine
from ...errors import ToolError
from ...events.effects import (
    AttemptFailed,
    GateDecided,
    ModelReplied,
    ModelRequested,
    ToolFinished,
    ToolStarted,
)
from ...events.entry import Entry
from ...events.run import RunFinished, Status, StopReason
from ...gates.base import PolicyGate
from ...journals.base import Journal
from ...limits import Limits
from ...messages import Effect, Usage
from ...providers.base import Provider, Request
from ...result import Result
from ...runtime import Runtime
from ...tools.base import Tool, ToolContext, tool
from ..assertions import assert_equal, assert_true
from ..clock import FakeClock
from ..scripted import ScriptedProvider
from .models import ERROR, Line, Model

Factory: TypeAlias = Callable[[Runtime], LoopEngine]

RUN = "the-run"
TASK = "What colour is the sky over the town where the painter of the Night Watch was born?"

EFFECTS: dict[str, Effect] = {
    "look": "read",
    "put": "idempotent",
    "fail": "read",
    "crash": "read",
    "wipe": "destructive",
}
"""The tools of each bench."""
_TOOLS: dict[str, Tool] = {}


def make_tool(function: Callable[..., Any]) -> Tool:
    """Make a tool of a bench's own function; all benches share its schema, which takes most of the time of one."""
    name = function.__name__
    if name not in _TOOLS:
        _TOOLS[name] = tool(effect=EFFECTS[name])(function)
    return dataclasses.replace(_TOOLS[name], function=function)


class Bench:
    """A runtime with tools that note where they really ran, and a model that notes what it was really asked.

    Args:
        model: what the model says.
        limits: of the run; `None` is a small set that no engine needs.
        gate: `None` is the default gate: it allows everything but what is destructive.
        journal: where a run is resumed from; `None` is a new one in memory.
        seconds: how long a model call takes.
        wrap: makes the provider that the engine sees of the scripted one, such as one of a text dialect.
        broken: no tool works.
        more: tools beside `look`, `put`, `fail`, `crash` and `wipe`.
        task: what the engine is asked.
    """

    def __init__(
        self,
        model: Model,
        *,
        limits: Limits | None = None,
        gate: PolicyGate | None = None,
        journal: Journal | None = None,
        seconds: float = 0.0,
        wrap: Callable[[Provider], Provider] | None = None,
        broken: bool = False,
        more: Sequence[Tool] = (),
        task: str = TASK,
    ) -> None:
        self.clock, self.ran, self.broken, self.task = (
            FakeClock(),
            list[str](),
            broken,
            task,
        )
        self.limits = limits or Limits(max_llm_calls=300, max_tokens=None, timeout=None)

        def timed(request: Request) -> Line:
            self.clock.advance(seconds)
            return model(request)

        self.provider = ScriptedProvider(timed)
        provider: Provider = self.provider if wrap is None else wrap(self.provider)
        tools = [*self._tools(), *more]
        self.runtime = Runtime(
            provider,
            tools=tools,
            limits=self.limits,
            gate=gate,
            journal=journal,
            clock=self.clock,
        )

    def _tools(self) -> list[Tool]:
        async def look(ctx: ToolContext[None], what: str) -> str:
            """Look something up."""
            self._note(ctx)
            return f"{what} is blue"

        async def put(ctx: ToolContext[None], what: str) -> str:
            """Put something somewhere."""
            self._note(ctx)
            return f"{what} is there"

        async def fail(ctx: ToolContext[None]) -> str:
            """Fail."""
            self.ran.append(ctx.key)
            raise ToolError(f"it does not work {ERROR}")

        async def crash(ctx: ToolContext[None]) -> str:
            """Crash."""
            self.ran.append(ctx.key)
            raise RuntimeError(f"a bug {ERROR}")

        async def wipe(ctx: ToolContext[None]) -> str:
            """Wipe everything."""
            self.ran.append(ctx.key)
            return f"wiped {ERROR}"

        return [make_tool(one) for one in (look, put, fail, crash, wipe)]

    def _note(self, ctx: ToolContext[None]) -> None:
        self.ran.append(ctx.key)
        if self.broken:
            raise ToolError(f"it is broken {ERROR}")

    async def run(self, factory: Factory, **options: Any) -> Result:
        """Run the engine and check everything that must hold for any run."""
        result = await factory(self.runtime).run(self.task, run_id=RUN, **options)
        asked = len(self.provider.requests)
        failed = [
            entry for entry in self.entries if isinstance(entry.event, AttemptFailed)
        ]
        await self.check(factory, result)
        assert_true(
            len(self.provider.requests) == asked,
            "resuming a finished run asked its model",
        )
        recorded = result.llm_calls + len(failed)
        assert_true(
            asked <= recorded,
            f"{asked} model calls were made, {recorded} are recorded",
        )
        return result

    @property
    def entries(self) -> list[Entry]:
        """The entries of the run."""
        return self.runtime.journal.read(RUN)

    async def check(self, factory: Factory, result: Result) -> None:
        """Check what holds for every run that has ended."""
        entries = self.entries
        check_chain(entries)
        check_outcome(result, entries)
        check_gated(entries, self.ran)
        check_budget(entries, self.limits)
        assert_true(
            self.runtime.journal.verify(RUN, result.head_hash).ok,
            "the hash chain does not verify",
        )
        if result.status == "suspended":
            return
        again = await factory(self.runtime).resume(RUN)
        assert_equal(
            (again.answer, again.status, again.stop_reason),
            (result.answer, result.status, result.stop_reason),
            "resuming a finished run gave another result",
        )


# --- what holds for every run ---


def check_chain(entries: Sequence[Entry]) -> None:
    """Check for one start, one end, no gap, and one outcome for each effect."""
    kinds = [entry.kind for entry in entries]
    assert_equal(
        [entry.seq for entry in entries],
        list(range(1, len(entries) + 1)),
        "the sequence has gaps",
    )
    assert_equal(
        (kinds[0], kinds.count("run_started")), ("run_started", 1), "the beginning"
    )
    last = "run_suspended" if "run_finished" not in kinds else "run_finished"
    assert_equal(kinds[-1], last, "the last entry")
    assert_equal(kinds.count(last), 1, "terminal entries")
    for intent, outcome in (
        (ModelRequested, ModelReplied),
        (ToolStarted, ToolFinished),
    ):
        begun = [entry.key for entry in entries if isinstance(entry.event, intent)]
        ended = [entry.key for entry in entries if isinstance(entry.event, outcome)]
        assert_true(len(set(ended)) == len(ended), f"two outcomes: {ended}")
        if outcome is ModelReplied:
            assert_true(set(ended) <= set(begun), "a reply without a request")


def check_outcome(result: Result, entries: Sequence[Entry]) -> None:
    """Check status, stop reason, answer and usage of a result."""
    assert_true(result.status in get_args(Status), f"status {result.status!r}")
    has_ended = entries[-1].kind == "run_finished"
    assert_equal(has_ended, result.status != "suspended", "whether the run has ended")
    assert_true(
        result.stop_reason in get_args(StopReason),
        f"stop reason {result.stop_reason!r}",
    )
    cause = None if result.error is None else result.error.__cause__
    assert_true(
        result.stop_reason != "engine_error",
        f"the engine raised: {result.error!r} {cause!r}",
    )
    assert_equal(
        result.status == "completed",
        result.stop_reason == "answered",
        "completed means answered",
    )
    if result.status == "completed":
        assert_true(result.answer is not None, "a completed run has no answer")
        assert_equal(result.error, None, "a completed run has an error")
    if result.answer is not None:
        assert_true(
            ERROR not in result.answer,
            f"an error text is the answer: {result.answer!r}",
        )
    last = entries[-1].event
    recorded = last.answer if isinstance(last, RunFinished) else None
    assert_equal(recorded, result.answer, "the recorded answer")
    replies = [
        entry.event.completion.usage
        for entry in entries
        if isinstance(entry.event, ModelReplied)
    ]
    assert_equal(
        result.usage, sum(replies, Usage()), "the usage is not the sum of the replies'"
    )


def check_gated(entries: Sequence[Entry], ran: Sequence[str]) -> None:
    """Check that every tool was allowed before with the same arguments, and that none ran twice."""
    allowed: dict[str, str] = {}
    begun: set[str] = set()
    for entry in entries:
        if isinstance(entry.event, GateDecided) and entry.event.verdict in (
            "allow",
            "modify",
        ):
            allowed[entry.key] = entry.event.arguments_hash
        if isinstance(entry.event, ToolStarted):
            assert_true(
                allowed.get(entry.key) == entry.event.arguments_hash,
                f"{entry.event.tool} started ungated",
            )
            begun.add(entry.key)
    assert_true(set(ran) <= begun, f"tools ran without an intent: {set(ran) - begun}")
    assert_true(len(set(ran)) == len(ran), f"tools ran twice: {list(ran)}")


def check_budget(entries: Sequence[Entry], limits: Limits) -> None:
    """Check that no call started past a limit; only one reserved call may exceed that of the tokens.

    An attempt that failed takes no place among the calls: only its call does, once.
    """
    calls, tools, reserved, spent, asked = 0, 0, 0, Usage(), set[str]()
    for entry in entries:
        event = entry.event
        tools += isinstance(event, ToolStarted)
        spent += event.completion.usage if isinstance(event, ModelReplied) else Usage()
        if not isinstance(event, ModelRequested) or entry.key in asked:
            continue
        asked.add(entry.key)
        calls += 1
        past = limits.max_tokens is not None and spent.total_tokens >= limits.max_tokens
        reserved += past
        assert_true(
            not past or (event.verb == "best_answer" and reserved == 1),
            "a call began past max_tokens",
        )
        late = limits.timeout is not None and entry.at - entries[0].at >= limits.timeout
        assert_true(not late, "a call began when the run's time was over")
    assert_true(
        limits.max_llm_calls is None or calls <= limits.max_llm_calls,
        f"{calls} model calls",
    )
    assert_true(
        limits.max_tool_calls is None or tools <= limits.max_tool_calls,
        f"{tools} tool calls",
    )


def check_resumed(before: Sequence[Entry], bench: Bench) -> None:
    """Check that no effect with an outcome was repeated."""
    replied = {entry.key for entry in before if isinstance(entry.event, ModelReplied)}
    finished = {entry.key for entry in before if isinstance(entry.event, ToolFinished)}
    after = [entry for entry in bench.entries if entry.seq > len(before)]
    asked = {
        entry.key
        for entry in after
        if isinstance(entry.event, (ModelRequested, ModelReplied))
    }
    assert_true(
        not asked & replied, f"recorded replies were asked for again: {asked & replied}"
    )
    assert_true(
        finished.isdisjoint(bench.ran), f"repeated: {finished & set(bench.ran)}"
    )
    assert_true(len(set(bench.ran)) == len(bench.ran), f"tools ran twice: {bench.ran}")
    unknown = [
        e.key
        for e in after
        if isinstance(e.event, ToolFinished) and e.event.status == "unknown"
    ]
    assert_equal(
        unknown, [], "calls whose outcome is unknown, though all tools may be repeated"
    )


def summarize(result: Result) -> tuple[object, ...]:
    """Return what must be the same however often a run was interrupted."""
    return (
        result.answer,
        result.status,
        result.stop_reason,
        result.llm_calls,
        result.tool_calls,
        result.usage,
    )
