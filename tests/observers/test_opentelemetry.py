"""Traces: a run's spans form the tree of what it did, each told once, and nothing of it hurts the run."""

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from journal_positions import cut_after
from loopwright import (
    Allow,
    Ask,
    Completion,
    ConfigError,
    Conversation,
    DenyAll,
    Limits,
    LoopEngine,
    MemoryJournal,
    Modify,
    PlanExecuteEngine,
    ProviderError,
    ReActEngine,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    ToolError,
    Usage,
    tool,
)
from loopwright.events import Entry
from loopwright.gates import ApprovalGate
from loopwright.journals import SQLiteJournal
from loopwright.observers import OpenTelemetryObserver
from loopwright.providers import Request, Sampling
from loopwright.security import SecretStore
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from loopwright.tools import ToolContext
from programs import PROGRAMS, Program
from sample_tools import look
from telemetry import Telemetry, attributes, events, everything_said, place
from virtual_time import LoopClock, in_virtual_time

SECRET = "xyzzy-4711"


@tool(effect="write")
async def put(what: str) -> str:
    """Put."""
    return f"put {what}"


@tool(effect="read")
async def broken(what: str) -> str:
    """Break."""
    raise ToolError(f"no {what}")


def runtime(script: Any, told: Telemetry, **parts: Any) -> Runtime:
    """A runtime whose clock stands still and whose runs are told."""
    parts.setdefault("clock", FakeClock())
    return Runtime(ScriptedProvider(script), observers=[told.observer], **parts)


class Parent(LoopEngine):
    """Lets a child work, and asks once itself."""

    name = "parent"
    child: LoopEngine

    async def solve(self, run: Run) -> str:
        found = await run.delegate(self.child, "Look at the sky.")
        return await run.ask(f"Say it: {found.answer}", purpose="answer")


class Branching(LoopEngine):
    """Asks twice at once, as long as it is let."""

    name = "branching"

    async def solve(self, run: Run) -> str:
        async def asks(branch: Run) -> str:
            return await branch.ask("Which?")

        return " ".join(await run.gather(asks, asks))


class Working(LoopEngine):
    """Has an effect of its own."""

    name = "working"

    async def solve(self, run: Run) -> str:
        async def price() -> int:
            return 3

        return str(await run.effect("price", price, into=int))


# --- the tree ---


async def test_a_run_is_a_tree_of_the_model_calls_and_tools_in_it() -> None:
    told = Telemetry()
    script = [[call("look", what="sky"), call("put", what="cup")], "blue"]

    await ReActEngine(runtime(script, told, tools=[look, put])).run(
        "Which colour?", run_id="r"
    )

    assert told.tree() == [
        "invoke_agent react",
        "  chat script",
        "  execute_tool look",
        "  execute_tool put",
        "  chat script",
    ]
    assert [(span.name, span.kind) for span in told.spans] == [
        ("invoke_agent react", SpanKind.INTERNAL),
        ("chat script", SpanKind.CLIENT),
        ("execute_tool look", SpanKind.INTERNAL),
        ("execute_tool put", SpanKind.INTERNAL),
        ("chat script", SpanKind.CLIENT),
    ]
    assert [span.status.status_code for span in told.spans] == [StatusCode.UNSET] * 5


async def test_spans_carry_the_attributes_of_the_conventions() -> None:
    told = Telemetry()
    reply = Completion(
        "", (call("look", what="sky"),), finish_reason="tool_calls", model="script-2025-01-01",
        usage=Usage(100, 20, cached_tokens=60, cache_write_tokens=10, reasoning_tokens=5, cost=0.25),
    )  # fmt: skip

    await ReActEngine(runtime([reply, "blue"], told, tools=[look])).run(
        "Which?", run_id="r"
    )

    run, asked, looked, _ = told.spans
    assert attributes(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "react",
        "gen_ai.conversation.id": "r",
        "gen_ai.usage.input_tokens": 110,
        "gen_ai.usage.output_tokens": 25,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "loopwright.cost": 0.25,
        "loopwright.status": "completed",
        "loopwright.stop_reason": "answered",
        "loopwright.iterations": 2,
        "loopwright.trimmed": 0,
    }
    assert attributes(asked) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "script",
        "gen_ai.response.model": "script-2025-01-01",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.conversation.id": "r",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "loopwright.cost": 0.25,
        "loopwright.key": "0",
        "loopwright.verb": "reason",
        "loopwright.iteration": 1,
    }
    assert attributes(looked) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_0_0",
        "gen_ai.conversation.id": "r",
        "loopwright.key": "0#0",
        "loopwright.tool.effect": "read",
        "loopwright.tool.status": "ok",
    }


async def test_sampling_is_told_with_the_request() -> None:
    told = Telemetry()
    sampling = Sampling(temperature=0.5, stop=("END",), max_tokens=9, top_p=0.9, seed=7)

    class Sampled(LoopEngine):
        name = "sampled"

        async def solve(self, run: Run) -> str:
            return await run.ask("Say.", sampling=sampling, purpose="answer")

    await Sampled(runtime(["so"], told)).run("go")

    found = attributes(told.span("chat script"))
    assert {name: value for name, value in found.items() if ".request." in name} == {
        "gen_ai.request.model": "script",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.seed": 7,
    }
    assert found["loopwright.purpose"] == "answer"


async def test_spans_begin_and_end_when_their_entries_say() -> None:
    told, clock = Telemetry(), FakeClock(wall=1_700_000_000.0)

    @tool(effect="read")
    async def slow() -> str:
        """Take two seconds."""
        clock.advance(2)
        return "done"

    def answer(_: Request) -> Any:
        clock.advance(1)
        return call("slow")

    await ReActEngine(runtime([answer, "done"], told, tools=[slow], clock=clock)).run(
        "go"
    )

    start = 1_700_000_000 * 10**9
    assert [
        (s.name, (s.start_time or 0) - start, (s.end_time or 0) - start)
        for s in told.spans
    ] == [
        ("invoke_agent react", 0, 3 * 10**9),
        ("chat script", 0, 10**9),
        ("execute_tool slow", 10**9, 3 * 10**9),
        ("chat script", 3 * 10**9, 3 * 10**9),
    ]


async def test_what_decides_about_sampling_is_there_when_a_span_begins() -> None:
    seen: dict[str, dict[str, Any]] = {}

    class Sampler(type(ALWAYS_OFF)):  # type: ignore[misc]
        def should_sample(
            self, parent_context: Any, trace_id: Any, name: str, *args: Any, **more: Any
        ) -> Any:
            kind, attributes = args[0], args[1] if len(args) > 1 else more["attributes"]
            assert kind is not None
            seen[name] = dict(attributes)
            return super().should_sample(parent_context, trace_id, name, *args, **more)

    observer = OpenTelemetryObserver(
        tracer_provider=TracerProvider(
            sampler=Sampler(ALWAYS_OFF._decision), shutdown_on_exit=False
        )
    )
    provider = ScriptedProvider([call("look", what="sky"), "blue"])
    await ReActEngine(Runtime(provider, tools=[look], observers=[observer])).run("go")

    assert seen["chat script"].items() >= {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "scripted", "gen_ai.request.model": "script",
    }.items()  # fmt: skip
    assert seen["execute_tool look"]["gen_ai.tool.name"] == "look"
    assert seen["invoke_agent react"]["gen_ai.agent.name"] == "react"


async def test_a_plan_is_a_span_around_the_call_that_plans_and_tools_are_beside_it() -> (
    None
):
    told = Telemetry()
    plan = 'Plan: Look at the sky.\n#E1 = look[{"what": "sky"}]'

    await PlanExecuteEngine(runtime([plan, "blue"], told, tools=[look])).run(
        "Which?", run_id="r"
    )

    assert told.tree() == [
        "invoke_agent plan-execute",
        "  plan plan-execute",
        "    chat script",
        "  execute_tool look",
        "  chat script",
    ]
    assert attributes(told.span("plan plan-execute")) == {
        "gen_ai.operation.name": "plan",
        "gen_ai.agent.name": "plan-execute",
        "gen_ai.conversation.id": "r",
        "loopwright.key": "0",
    }


async def test_a_child_engine_is_a_span_of_its_own() -> None:
    told = Telemetry()
    parts = runtime(
        [call("look", what="sky"), "blue", "It is blue."], told, tools=[look]
    )

    await Parent(parts, child=ReActEngine(parts)).run("Which?")

    assert told.tree() == [
        "invoke_agent parent",
        "  invoke_agent react",
        "    chat script",
        "    execute_tool look",
        "    chat script",
        "  chat script",
    ]
    assert (
        events(told.span("invoke_agent parent"))[0][1]["gen_ai.tool.name"] == "delegate"
    )
    assert [name for name, _ in events(told.span("invoke_agent react"))] == [
        "loopwright.gate_decided"
    ]
    child = attributes(told.span("invoke_agent react"))
    assert (child["loopwright.status"], child["loopwright.stop_reason"]) == (
        "completed",
        "answered",
    )


async def test_an_engine_that_answers_a_call_is_a_span_below_the_call() -> None:
    told = Telemetry()
    inner = ReActEngine(runtime([call("look", what="sky"), "blue"], told, tools=[look]))
    outer = [[call("research", task="Which colour?"), call("look", what="sea")], "blue"]

    parts = runtime(outer, told, tools=[inner.as_tool(name="research"), look])
    await ReActEngine(parts).run("Which?")

    assert told.tree() == [
        "invoke_agent react",
        "  chat script",
        "  execute_tool research",
        "    invoke_agent research",
        "      chat script",
        "      execute_tool look",
        "      chat script",
        "  execute_tool look",
        "  chat script",
    ]


async def test_branches_have_their_calls_below_the_engine_that_made_them() -> None:
    told = Telemetry()

    await Branching(runtime(lambda _: "blue", told)).run("go")

    assert told.tree() == ["invoke_agent branching", "  chat script", "  chat script"]
    assert [attributes(span)["loopwright.key"] for span in told.spans[1:]] == [
        "0.0.0",
        "0.1.0",
    ]


async def test_an_effect_of_the_engines_own_is_a_span() -> None:
    told = Telemetry()

    await Working(runtime([], told)).run("go")

    assert told.tree() == ["invoke_agent working", "  effect price"]


async def test_the_trace_goes_on_from_the_callers_span_and_tools_see_theirs() -> None:
    told = Telemetry()
    tracer = told.tracers.get_tracer("application")

    @tool(effect="read")
    async def traced(what: str) -> str:
        """Work asynchronously."""
        with tracer.start_as_current_span("own async"):
            return what

    @tool(effect="read")
    def threaded(what: str) -> str:
        """Work in a thread."""
        with tracer.start_as_current_span("own thread"):
            return what

    script = [
        [call("traced", what="a"), call("threaded", what="b")],
        call("traced", what="c"),
        "done",
    ]
    with tracer.start_as_current_span("request") as request:
        await ReActEngine(runtime(script, told, tools=[traced, threaded])).run("go")
        assert trace.get_current_span() is request

    assert sorted(told.tree()) == sorted([
        "request",
        "  invoke_agent react",
        "    chat script",
        "    execute_tool traced",
        "      own async",
        "    execute_tool threaded",
        "      own thread",
        "    chat script",
        "    execute_tool traced",
        "      own async",
        "    chat script",
    ])  # fmt: skip
    assert told.tree()[0] == "request"


async def test_between_its_verbs_an_engine_sees_the_callers_span() -> None:
    told = Telemetry()
    tracer = told.tracers.get_tracer("application")

    class Traced(LoopEngine):
        name = "traced"

        async def solve(self, run: Run) -> str:
            said = await run.ask("?")
            seen = await run.call(call("look", what=said))
            with tracer.start_as_current_span("own"):
                return seen.content

    with tracer.start_as_current_span("request"):
        await Traced(runtime(["sky"], told, tools=[look])).run("go")

    own, request = told.span("own"), told.span("request")
    assert own.parent is not None
    assert request.context is not None
    assert own.parent.span_id == request.context.span_id


def test_a_synchronous_caller_has_the_run_in_its_trace_too() -> None:
    told = Telemetry()

    with told.tracers.get_tracer("application").start_as_current_span("request"):
        ReActEngine(runtime(["blue"], told)).run_sync("go")

    assert told.tree() == ["request", "  invoke_agent react", "    chat script"]


async def test_concurrent_runs_do_not_mix() -> None:
    told = Telemetry()
    runs = runtime(
        lambda r: "blue" if len(r.conversation) > 2 else call("look", what="sky"),
        told,
        tools=[look],
    )

    await asyncio.gather(
        *(ReActEngine(runs).run("go", run_id=f"r{number}") for number in range(20))
    )

    lines = [
        "invoke_agent react",
        "  chat script",
        "  execute_tool look",
        "  chat script",
    ]
    assert told.tree() == lines * 20
    for span in told.spans:
        parents = [
            s
            for s in told.spans
            if span.parent and s.context and s.context.span_id == span.parent.span_id
        ]
        assert [attributes(s)["gen_ai.conversation.id"] for s in parents] == (
            [] if span.parent is None else [attributes(span)["gen_ai.conversation.id"]]
        )


# --- what does not go well ---


async def test_a_denied_call_is_an_event_and_no_span() -> None:
    told = Telemetry()

    await ReActEngine(
        runtime([call("put", what="cup"), "no"], told, tools=[put], gate=DenyAll())
    ).run("go")

    assert told.tree() == ["invoke_agent react", "  chat script", "  chat script"]
    assert events(told.span("invoke_agent react")) == [
        (
            "loopwright.gate_decided",
            {
                "gen_ai.tool.name": "put",
                "gen_ai.tool.call.id": "call_0_0",
                "loopwright.verdict": "deny",
                "loopwright.policy_version": "deny-all-1",
                "loopwright.key": "0#0",
            },
        ),
    ]


async def test_a_tool_that_fails_ends_its_span_with_the_error() -> None:
    told = Telemetry()

    await ReActEngine(
        runtime([call("broken", what="cup"), "no"], told, tools=[broken])
    ).run("go")

    assert told.tree() == [
        "invoke_agent react",
        "  chat script",
        "  execute_tool broken !tool_error",
        "  chat script",
    ]
    failed = told.span("execute_tool broken")
    assert (failed.status.status_code, failed.status.description) == (
        StatusCode.ERROR,
        None,
    )


async def test_a_model_that_fails_for_good_ends_call_and_run_with_its_error() -> None:
    told = Telemetry()
    down = [ProviderError(f"down {SECRET}", status=503) for _ in range(2)]
    down.append(ProviderError(f"no such model {SECRET}", status=404))

    result = await ReActEngine(runtime(down, told)).run("go")

    assert result.status == "failed"
    assert told.tree() == ["invoke_agent react !404", "  chat script !404"]
    attempts = events(told.span("chat script"))
    assert [name for name, _ in attempts] == ["loopwright.attempt_failed"] * 2
    assert [(a["error.type"], a["loopwright.attempt"]) for _, a in attempts] == [
        ("503", 1),
        ("503", 2),
    ]
    assert [span.status.status_code for span in told.spans] == [StatusCode.ERROR] * 2


async def test_an_error_without_a_status_goes_by_its_class() -> None:
    told = Telemetry()

    await ReActEngine(runtime([ProviderError("no")], told)).run("go")

    assert told.tree() == [
        "invoke_agent react !ProviderError",
        "  chat script !ProviderError",
    ]


async def test_a_limit_is_an_event_and_the_runs_stop_reason_but_no_error() -> None:
    told = Telemetry()
    limits = Limits(max_llm_calls=2)

    await ReActEngine(
        runtime([call("look", what="sky"), "blue"], told, tools=[look], limits=limits)
    ).run("go")

    assert told.tree() == [
        "invoke_agent react",
        "  chat script",
        "  execute_tool look",
        "  chat script",
    ]
    run = told.span("invoke_agent react")
    assert (
        "loopwright.limit_hit",
        {"loopwright.limit": "max_llm_calls", "loopwright.key": "1"},
    ) in events(run)
    assert attributes(run)["loopwright.status"] == "limit"
    assert attributes(run)["loopwright.stop_reason"] == "max_llm_calls"


@in_virtual_time
async def test_a_model_call_that_time_ran_out_on_ends_with_that_error() -> None:
    told = Telemetry()

    async def forever() -> None:
        await asyncio.Event().wait()

    class Silent(ScriptedProvider):
        async def complete(self, request: Request) -> Completion:
            await forever()
            raise AssertionError

    parts = Runtime(
        Silent([]),
        observers=[told.observer],
        limits=Limits(timeout=0.05),
        clock=LoopClock(),
    )
    await ReActEngine(parts).run("go")

    assert told.tree() == ["invoke_agent react", "  chat script !timeout"]


async def test_an_abort_ends_what_is_in_flight_with_an_error() -> None:
    told, at_work = Telemetry(), asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        at_work.set()
        await asyncio.Event().wait()
        return "never"

    async with ReActEngine(runtime([call("wait")], told, tools=[wait])).start(
        "go"
    ) as run:
        await at_work.wait()
        await run.abort()

    assert told.tree() == [
        "invoke_agent react",
        "  chat script",
        "  execute_tool wait !cancelled",
    ]
    assert attributes(told.span("invoke_agent react"))["loopwright.status"] == "aborted"


async def test_a_cancelled_host_leaves_no_span_open() -> None:
    told, at_work = Telemetry(), asyncio.Event()

    def model(_: Request) -> str:
        at_work.set()
        return "never"

    class Slow(ScriptedProvider):
        async def complete(self, request: Request) -> Completion:
            model(request)
            await asyncio.Event().wait()
            raise AssertionError

    task = asyncio.ensure_future(
        ReActEngine(Runtime(Slow([]), observers=[told.observer])).run("go")
    )
    await at_work.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert told.tree() == ["invoke_agent react", "  chat script !cancelled"]
    run = attributes(told.span("invoke_agent react"))
    assert (run["loopwright.status"], run["loopwright.stop_reason"]) == (
        "suspended",
        "cancelled",
    )


async def test_a_breaker_that_opens_is_an_event() -> None:
    told = Telemetry()
    parts = runtime(
        [*(ProviderError("down", status=500) for _ in range(6)), "up again"], told
    )
    await ReActEngine(parts).run("go")
    changes = [
        event
        for span in told.spans
        for event in events(span)
        if event[0] == "loopwright.breaker_changed"
    ]
    assert changes[0] == (
        "loopwright.breaker_changed",
        {
            "loopwright.breaker.name": "scripted/script",
            "loopwright.breaker.before": "closed",
            "loopwright.breaker.after": "open",
            "loopwright.key": "",
        },
    )
    assert [change["loopwright.breaker.after"] for _, change in changes] == [
        "open",
        "half-open",
        "open",
        "half-open",
        "closed",
    ]


# --- resume ---


def lines(request: Request) -> Any:
    """Looks, puts, answers: by what it has seen, as a model does."""
    seen = sum(message.role == "tool" for message in request.conversation.messages)
    return (call("look", what="sky"), call("put", what="cup"), "done")[seen]


async def recorded() -> list[Entry]:
    """A whole run's entries."""
    parts = Runtime(ScriptedProvider(lines), tools=[look, put], clock=FakeClock())
    await ReActEngine(parts).run("go", run_id="r")
    return parts.journal.read("r")


async def test_what_a_resumed_run_has_recorded_is_not_told_again() -> None:
    told, entries = Telemetry(), await recorded()
    journal = crashed(entries, cut_after(entries, "tool_finished"))

    await ReActEngine(runtime(lines, told, tools=[look, put], journal=journal)).resume(
        "r"
    )

    assert told.tree() == [
        "invoke_agent react",
        "  chat script",
        "  execute_tool put",
        "  chat script",
    ]
    assert attributes(told.spans[0])["loopwright.resumed"] is True
    assert told.count("loopwright.model.calls") == {(): 2}
    assert told.count("loopwright.tool.calls", "gen_ai.tool.name") == {"put": 1}


async def test_a_run_cut_anywhere_reports_each_effect_once_at_most_and_closes_its_spans() -> (
    None
):
    entries = await recorded()
    outcomes = {"model_replied": "chat", "tool_finished": "execute_tool"}

    for keep in range(1, len(entries)):
        told = Telemetry()
        parts = runtime(lines, told, tools=[look, put], journal=crashed(entries, keep))
        await ReActEngine(parts).resume("r")
        fresh = parts.journal.read("r")[keep:]

        # A write in doubt becomes `unknown`: nothing ran, and there is nothing to tell.
        ran = [
            e
            for e in fresh
            if e.kind in outcomes and getattr(e.event, "status", "ok") != "unknown"
        ]
        named = [span.name.split()[0] for span in told.spans[1:]]
        assert named == [outcomes[entry.kind] for entry in ran]
        assert (told.observer.followed, told.open) == (0, 0)


def of(program: Program, told: Telemetry, journal: MemoryJournal) -> Runtime:
    """What a program runs on, observed."""
    provider, observers = ScriptedProvider(program.model), [told.observer]
    return Runtime(
        provider,
        tools=program.tools,
        approver=program.approver,
        gate=program.gate,
        journal=journal,
        observers=observers,
    )


def told_of(entries: list[Entry]) -> list[str]:
    """The keys of what happened in entries and is worth a span; not what was refused or is in doubt."""
    outcomes = [
        e
        for e in entries
        if e.kind in ("model_replied", "model_failed", "tool_finished")
    ]
    started = {e.key for e in entries if e.kind == "tool_started"}
    ran = ("ok", "error", "timed_out")
    return sorted(
        e.key
        for e in outcomes
        if e.key in started or getattr(e.event, "status", "ok") in ran
    )


@pytest.mark.parametrize(
    "name", [name for name in PROGRAMS if name not in ("tiny", "react-as-tool")]
)
async def test_whatever_an_engine_does_its_calls_are_spans_once_and_none_stays_open(
    name: str,
) -> None:
    program, told, journal = PROGRAMS[name], Telemetry(), MemoryJournal()
    await program.engine(of(program, told, journal)).run(program.task, run_id="r")
    entries = journal.read("r")

    for keep in range(0, len(entries), 3):
        if keep:
            told, journal = Telemetry(), crashed(entries, keep)
            await program.engine(of(program, told, journal)).resume("r")
        spans = [
            span
            for span in told.spans
            if span.name.startswith(("chat", "execute_tool"))
        ]

        assert sorted(place(span) for span in spans) == told_of(
            journal.read("r")[keep:]
        )
        assert (told.observer.followed, told.open) == (0, 0)


async def test_a_call_in_doubt_that_is_made_again_is_a_span_although_it_began_elsewhere() -> (
    None
):
    told, entries = Telemetry(), await recorded()
    journal = crashed(entries, cut_after(entries, "tool_started"))

    await ReActEngine(runtime(lines, told, tools=[look, put], journal=journal)).resume(
        "r"
    )

    assert told.tree()[1:] == [
        "  execute_tool look",
        "  chat script",
        "  execute_tool put",
        "  chat script",
    ]


async def test_what_began_elsewhere_took_as_long_as_its_outcome_says() -> None:
    clock = FakeClock()

    @tool(effect="read")
    async def slow() -> str:
        """Take two seconds."""
        clock.advance(2)
        return "done"

    def model(request: Request) -> Any:
        clock.advance(1)
        return "done" if len(request.conversation) > 2 else call("slow")

    whole = Runtime(ScriptedProvider(model), tools=[slow], clock=clock)
    await ReActEngine(whole).run("go", run_id="r")
    entries = whole.journal.read("r")

    for kind, name, seconds in (
        ("model_requested", "chat", 1),
        ("tool_started", "execute_tool slow", 2),
    ):
        told, journal = Telemetry(), crashed(entries, cut_after(entries, kind))
        await ReActEngine(
            runtime(model, told, tools=[slow], clock=clock, journal=journal)
        ).resume("r")

        span = told.spans[1]
        assert (span.name, (span.end_time or 0) - (span.start_time or 0)) == (
            name,
            seconds * 10**9,
        )


async def test_a_run_that_waits_for_a_decision_has_ended_its_spans_and_goes_on_in_new_ones() -> (
    None
):
    told, journal = Telemetry(), MemoryJournal()

    class Asking:
        version = "asking"
        allowed = False

        async def evaluate(self, action: Any, state: Any) -> Any:
            return Allow() if self.allowed else Ask("May it?")

    gate = Asking()
    parts = runtime(
        lines, told, tools=[look, put], journal=journal, gate=gate, approver=Suspend()
    )
    waiting = await ReActEngine(parts).run("go", run_id="r")
    first = told.tree()
    gate.allowed = True
    result = await ReActEngine(parts).resume("r")

    assert (waiting.status, result.status) == ("waiting", "completed")
    assert first == ["invoke_agent react", "  chat script"]
    run = attributes(told.spans[0])
    assert (run["loopwright.status"], run["loopwright.stop_reason"]) == (
        "suspended",
        "waiting",
    )
    assert [line for line in told.tree() if "chat" in line] == ["  chat script"] * 3
    assert (told.observer.followed, told.open) == (0, 0)


async def test_a_call_answered_by_an_engine_that_waits_has_not_failed() -> None:
    told = Telemetry()

    class Asking:
        version = "asking"

        async def evaluate(self, action: Any, state: Any) -> Any:
            return Ask("May it?")

    inner = ReActEngine(
        runtime(lines, told, tools=[look, put], gate=Asking(), approver=Suspend())
    )
    parts = runtime(
        [call("research", task="Which?")], told, tools=[inner.as_tool(name="research")]
    )
    result = await ReActEngine(parts).run("go")

    assert result.status == "waiting"
    assert told.tree() == [
        "invoke_agent react",
        "  chat script",
        "  execute_tool research",
        "    invoke_agent research",
        "      chat script",
    ]


# --- nothing is kept, nothing is hurt, nothing is said ---


@pytest.mark.faults
async def test_after_a_thousand_runs_nothing_is_kept() -> None:
    observer = OpenTelemetryObserver(
        tracer_provider=TracerProvider(shutdown_on_exit=False),
        meter_provider=MeterProvider(shutdown_on_exit=False),
    )
    limits = Limits(max_llm_calls=2, best_effort=False)
    parts = Runtime(
        ScriptedProvider(lines), tools=[look, put], observers=[observer], limits=limits
    )

    for _ in range(1000):
        await ReActEngine(parts).run("go")

    assert observer.followed == 0
    assert observer._spans._open == {}


async def test_a_run_that_never_ends_is_dropped_for_newer_ones() -> None:
    told = Telemetry(max_runs=2)
    parts = runtime(lambda _: "blue", told)
    begun, *_, ended = await recorded()
    for name in ("lost", "other"):
        told.observer(dataclasses.replace(begun, run_id=name))
    await ReActEngine(parts).run("go", run_id="third")
    await ReActEngine(parts).run("go", run_id="fourth")

    assert told.tree()[0] == "invoke_agent react !lost"
    assert told.observer.followed == 1
    for name in ("lost", "other"):
        told.observer(dataclasses.replace(ended, run_id=name))
    assert (told.observer.followed, told.open) == (0, 0)
    assert told.count("loopwright.runs", "loopwright.status") == {
        "completed": 3,
        "lost": 1,
    }


async def test_a_run_taken_up_again_in_the_same_process_ends_what_was_left_of_it() -> (
    None
):
    told = Telemetry()
    entries = await recorded()
    for entry in entries[: cut_after(entries, "tool_started")]:
        told.observer(entry)
    journal = crashed(entries, cut_after(entries, "tool_started"))

    await ReActEngine(runtime(lines, told, tools=[look, put], journal=journal)).resume(
        "r"
    )

    assert told.tree()[:3] == [
        "invoke_agent react !lost",
        "  chat script",
        "  execute_tool look !lost",
    ]
    assert (told.observer.followed, told.open) == (0, 0)


async def test_entries_of_a_run_whose_beginning_was_not_seen_are_ignored() -> None:
    told = Telemetry()

    for entry in (await recorded())[1:]:
        told.observer(entry)

    assert (told.spans, told.measured(), told.observer.followed) == ([], {}, 0)


class BrokenTracers(trace.TracerProvider):
    """Tracing that raises in every span."""

    class Tracer(trace.NoOpTracer):
        def start_span(self, name: str, *args: Any, **more: Any) -> trace.Span:
            raise RuntimeError("no span today")

    def get_tracer(self, *args: Any, **more: Any) -> trace.Tracer:
        return self.Tracer()


class FailingSpans(trace.TracerProvider):
    """Tracing whose spans raise as soon as they are used."""

    class Span(trace.NonRecordingSpan):
        def set_attributes(self, *_: Any) -> None:
            raise RuntimeError("no attributes today")

        def end(self, *_: Any) -> None:
            raise RuntimeError("no end today")

    class Tracer(trace.NoOpTracer):
        def start_span(self, name: str, *args: Any, **more: Any) -> trace.Span:
            return FailingSpans.Span(trace.INVALID_SPAN_CONTEXT)

    def get_tracer(self, *args: Any, **more: Any) -> trace.Tracer:
        return self.Tracer()


@pytest.mark.parametrize(
    "tracers", [BrokenTracers(), FailingSpans()], ids=["no span begins", "no span ends"]
)
async def test_broken_tracing_hurts_neither_the_run_nor_the_metrics(
    tracers: Any, capsys: Any
) -> None:
    told = Telemetry(tracer_provider=tracers)
    parts = runtime(lines, told, tools=[look, put])

    result = await ReActEngine(parts).run("go")

    assert (result.answer, result.status) == ("done", "completed")
    assert told.count("loopwright.runs", "loopwright.status") == {"completed": 1}
    assert told.count("loopwright.tool.calls", "gen_ai.tool.name") == {
        "look": 1,
        "put": 1,
    }
    assert (told.observer.followed, told.open) == (0, 0)
    assert "observer_failed" in capsys.readouterr().err


async def test_broken_metrics_hurt_neither_the_run_nor_its_spans(capsys: Any) -> None:
    told = Telemetry()
    told.observer._measures._counters.clear()

    result = await ReActEngine(runtime(lines, told, tools=[look, put])).run("go")

    assert result.answer == "done"
    assert len(told.tree()) == 6
    assert "observer_failed" in capsys.readouterr().err


async def test_without_an_sdk_nothing_happens() -> None:
    observer = OpenTelemetryObserver()

    result = await ReActEngine(
        Runtime(ScriptedProvider(lines), tools=[look, put], observers=[observer])
    ).run("go")

    assert result.answer == "done"
    assert observer.followed == 0


def secretive() -> list[Any]:
    """A conversation in which every text is secret."""
    return [
        Completion(
            f"I think {SECRET}",
            (call("look", what=SECRET), call(f"no {SECRET}", a=SECRET), call("look", **{SECRET: 1})),
            finish_reason="tool_calls", usage=Usage(1, 1), thought=SECRET,
        ),
        call("broken", what=SECRET),
        ProviderError(f"bad {SECRET}", status=500, retryable=True),
        ProviderError(f"bad {SECRET}", status=500, retryable=True),
        f"answer {SECRET}",
    ]  # fmt: skip


async def test_without_content_no_text_of_anybody_is_told() -> None:
    told = Telemetry()
    parts = runtime(secretive(), told, tools=[look, broken])

    result = await ReActEngine(parts).run(f"task {SECRET}", system=f"system {SECRET}")
    await ReActEngine(runtime([ProviderError(f"bad {SECRET}")], told)).run(
        f"task {SECRET}"
    )

    assert result.answer == f"answer {SECRET}"
    assert SECRET not in everything_said(told.spans)
    assert SECRET not in str(told.measured())
    names = [
        a["gen_ai.tool.name"]
        for s in told.spans
        for n, a in events(s)
        if n == "loopwright.gate_decided"
    ]
    assert names == ["look", "_OTHER", "_OTHER", "broken"]


async def test_content_is_recorded_by_the_names_of_the_conventions() -> None:
    told = Telemetry(content=True)
    parts = runtime(
        [call("look", what="sky"), call("broken", what="sea"), "It is blue."],
        told,
        tools=[look, broken],
    )
    asked = Conversation.of("Which colour?", system="Be brief.")

    await ReActEngine(parts).run(asked)

    run = attributes(told.span("invoke_agent react"))
    assert (
        run["gen_ai.system_instructions"] == '[{"type":"text","content":"Be brief."}]'
    )
    assert run["gen_ai.input.messages"] == (
        '[{"role":"user","parts":[{"type":"text","content":"Which colour?"}]}]'
    )
    assert run["gen_ai.output.messages"] == (
        '[{"role":"assistant","parts":[{"type":"text","content":"It is blue."}],"finish_reason":"stop"}]'
    )
    looked = attributes(told.span("execute_tool look"))
    assert looked["gen_ai.tool.call.arguments"] == '{"what":"sky"}'
    assert looked["gen_ai.tool.call.result"] == "sky is blue"
    said = next(span for span in told.spans if span.name == "chat script")
    assert attributes(said)["gen_ai.output.messages"] == (
        '[{"role":"assistant","parts":[{"type":"tool_call","id":"","name":"look","arguments":{"what":"sky"}}],'
        '"finish_reason":"tool_calls"}]'
    )
    failed: ReadableSpan = told.span("execute_tool broken")
    assert failed.status.description == "no sea"


async def test_chat_spans_carry_what_was_sent_also_of_a_resumed_run(
    tmp_path: Path,
) -> None:
    first, secret = Telemetry(content=True), "sk-live-1234567890abcdef1234"
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "runs.db", clock=clock)
    parts: dict[str, Any] = {
        "tools": [look], "journal": journal, "gate": ApprovalGate(["look"]), "clock": clock,
    }  # fmt: skip
    asked = Conversation.of(f"Which colour? {secret}", system="Be brief.")
    script = [call("look", what="sky")]
    waiting = await ReActEngine(
        runtime(script, first, approver=Suspend(), **parts)
    ).run(asked, run_id="r")
    later = Telemetry(content=True)
    resumed = runtime(["It is blue."], later, approver=Suspend(), **parts)
    await resumed.control("r").approve(waiting.pending[0].id)
    result = await ReActEngine(resumed).resume("r")

    def sent(telemetry: Telemetry) -> list[Any]:
        found = attributes(telemetry.span("chat script"))
        assert json.loads(str(found["gen_ai.system_instructions"])) == [
            {"type": "text", "content": "Be brief."}
        ]
        [offered] = json.loads(str(found["gen_ai.tool.definitions"]))
        assert (offered["name"], offered["type"]) == ("look", "function")
        assert offered["parameters"]["properties"].keys() == {"what"}
        return list(json.loads(str(found["gen_ai.input.messages"])))

    [question] = sent(first)
    assert result.answer == "It is blue."
    assert question["parts"][0]["content"].startswith("Which colour? ")
    assert secret not in everything_said(first.spans)
    assert [one["role"] for one in sent(later)] == ["user", "assistant", "tool"]
    assert sent(later)[0] == question
    assert sent(later)[1]["parts"][0]["name"] == "look"
    assert "sky is blue" in sent(later)[2]["parts"][0]["result"]
    request = await journal.request("r", "1")
    assert [one.role for one in request.conversation.messages[1:]] == [
        one["role"] for one in sent(later)
    ]
    await journal.close()


async def test_requests_are_shown_for_each_sample_and_nowhere_without_content() -> None:
    class Sampled(LoopEngine):
        name = "sampled"

        async def solve(self, run: Run) -> str:
            replies = await run.samples(run.conversation, 3)
            return " ".join(one.answer or "" for one in replies)

    seen: list[tuple[str, int, str]] = []

    class Failing:
        def __call__(self, entry: Entry) -> None:
            pass

        def observe_request(
            self, run_id: str, keys: Sequence[str], request: Request
        ) -> None:
            seen.append((run_id, len(keys), request.conversation.messages[-1].content))
            raise ValueError("of a third party")

    told, plain = Telemetry(content=True), Telemetry()
    provider = ScriptedProvider(lambda request: "7")
    observers = [Failing(), told.observer, plain.observer]
    engine = Sampled(Runtime(provider, observers=observers))
    result = await engine.run("Guess.", run_id="r")

    assert result.answer == "7 7 7"
    chats = [attributes(one) for one in told.spans if one.name.startswith("chat")]
    wanted = '[{"role":"user","parts":[{"type":"text","content":"Guess."}]}]'
    assert [one["gen_ai.input.messages"] for one in chats] == [wanted] * 3
    assert "Guess." not in everything_said(plain.spans)
    assert sum(number for _, number, _ in seen) == 3
    assert {(run, text) for run, _, text in seen} == {("r", "Guess.")}


async def test_a_secret_that_the_run_learnt_is_sent_and_in_no_span() -> None:
    kept = ["first-of-its-kind"]

    @tool(effect="read")
    def rotate(ctx: ToolContext[None]) -> str:
        """Rotate the key."""
        return f"{len(ctx.secrets.get('key'))} characters"

    class Careless(LoopEngine):
        name = "careless"

        async def solve(self, run: Run) -> str:
            kept[:] = ["second-of-its-kind"]
            await run.call(ToolCall("rotate", {}))
            return await run.ask(f"Is {kept[0]} a good key?")

    told = Telemetry(content=True)
    provider = ScriptedProvider(["No."])
    store = SecretStore({"key": lambda: kept[0]})
    parts = Runtime(provider, tools=[rotate], observers=[told.observer], secrets=store)
    await Careless(parts).run("Go.")

    [sent] = provider.requests
    assert sent.conversation.messages[-1].content == "Is second-of-its-kind a good key?"
    asked = str(attributes(told.span("chat script"))["gen_ai.input.messages"])
    assert "a good key?" in asked
    assert "second-of-its-kind" not in everything_said(told.spans)


async def test_with_content_the_arguments_are_those_that_policy_allowed() -> None:
    class Changing:
        version = "changing"

        async def evaluate(self, action: Any, state: Any) -> Any:
            return (
                Modify({"what": "sea"}, "the sky is off limits")
                if action.arguments["what"] == "sky"
                else Allow()
            )

    told = Telemetry(content=True)
    parts = runtime(
        [call("look", what="sky"), "blue"], told, tools=[look], gate=Changing()
    )

    await ReActEngine(parts).run("go")

    assert (
        attributes(told.span("execute_tool look"))["gen_ai.tool.call.arguments"]
        == '{"what":"sea"}'
    )


# --- being without it ---


def test_without_opentelemetry_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import loopwright.observers\n"
        "from loopwright.observers import StructlogObserver\n"
        "try:\n"
        "    from loopwright.observers import OpenTelemetryObserver\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(source)},
    )

    assert (done.stderr, done.stdout.strip()) == (
        "",
        "ConfigError OpenTelemetryObserver needs opentelemetry-api: pip install 'loopwright[otel]'",
    )


def test_importing_the_observers_loads_neither_package() -> None:
    code = "import sys, loopwright.observers; print([m for m in ('opentelemetry', 'structlog') if m in sys.modules])"
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(source)},
    )

    assert done.stdout.strip() == "[]"


def test_room_for_no_run_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^max_runs must be at least 1, got 0$"):
        OpenTelemetryObserver(max_runs=0)


def test_a_child_that_fails_ends_its_span_with_its_error() -> None:
    told = Telemetry()
    parts = runtime([ProviderError("no"), "so"], told)

    Parent(parts, child=ReActEngine(parts)).run_sync("go")

    assert told.tree() == [
        "invoke_agent parent",
        "  invoke_agent react !ProviderError",
        "    chat script !ProviderError",
        "  chat script",
    ]
