"""Engines made of engines: one as a tool of another, called, gathered, delegated to, and taken up again anywhere."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    Allow,
    Completion,
    Conversation,
    Deny,
    DenyAll,
    Limits,
    LoopEngine,
    MemoryJournal,
    Modify,
    ProviderError,
    ReActEngine,
    ReplayDivergence,
    Request,
    Result,
    Run,
    Runtime,
    Suspend,
    Tool,
    ToolContext,
    Usage,
    tool,
)
from loopwright.errors import Suspended
from loopwright.events import (
    Entry,
    GateDecided,
    ModelReplied,
    ModelRequested,
    RunFinished,
    ToolFinished,
    ToolStarted,
)
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from sample_tools import RAN

UNKNOWN = "This call was interrupted"


@tool(effect="read")
async def look(ctx: ToolContext[None], what: str) -> str:
    """Look something up."""
    RAN.append(ctx.key)
    return f"{what} is blue"


@tool(effect="idempotent")
async def put(ctx: ToolContext[None], what: str) -> str:
    """Put something somewhere."""
    RAN.append(ctx.key)
    return f"{what} is there"


@tool(effect="destructive")
async def wipe(ctx: ToolContext[None]) -> str:
    """Wipe."""
    RAN.append(ctx.key)
    return "wiped"


class Gate:
    def __init__(self, decide: Callable[[Any], Any], version: str = "test-1") -> None:
        self.decide, self.version = decide, version

    async def evaluate(self, action: Any, state: Any) -> Any:
        return self.decide(action)


def turns(*lines: Any) -> Callable[[Request], Any]:
    """A model that says these lines, one a turn of the conversation, so that a resumed run is told the rest."""
    return lambda request: lines[
        sum(m.role == "assistant" for m in request.conversation.messages)
    ]


def by_task(**scripts: tuple[Any, ...]) -> Callable[[Request], Any]:
    """A model that says the lines that belong to the task, one a turn."""
    return lambda request: turns(*scripts[request.conversation.task])(request)


def made(model: Any, *tools: Tool, **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(model), tools=tools, **options)


def react(model: Any, *tools: Tool, **options: Any) -> ReActEngine:
    return ReActEngine(made(model, *tools, **options))


def told(result: Result) -> list[str]:
    """What the root's model was told by tools."""
    return [
        message.content
        for message in result.conversation.messages
        if message.role == "tool"
    ]


def facts(entries: list[Entry], kind: type[Any]) -> list[tuple[str, Any]]:
    return [
        (entry.key, entry.event) for entry in entries if isinstance(entry.event, kind)
    ]


async def yes(action: Any, question: str) -> bool:
    return True


# --- an engine as a tool ---


async def test_an_engine_is_described_as_a_tool_that_takes_a_task() -> None:
    plain = react(turns("a")).as_tool()
    named = react(turns("a")).as_tool(
        name="researcher", description="Finds things out.", effect="read"
    )

    assert (plain.name, plain.effect) == ("react", "write")
    assert (
        plain.description
        == "Alternate thought, action and observation until the model answers."
    )
    assert (named.name, named.description, named.effect) == (
        "researcher",
        "Finds things out.",
        "read",
    )
    assert named.schema["required"] == ["task"]
    assert named.schema["additionalProperties"] is False


async def test_calling_the_tool_by_hand_is_a_run_of_its_own() -> None:
    helper = react(turns("42"))

    assert await helper.as_tool()(task="What is it?") == "42"
    with pytest.raises(ProviderError, match="down"):
        await react(turns(ProviderError("down"))).as_tool()(task="What is it?")
    assert len(helper.runtime.journal.runs()) == 1


async def test_an_engine_call_is_a_child_with_its_own_model_and_the_root_s_journal() -> (
    None
):
    expert = react(turns(call("look", what="sky"), "blue, the expert says"), look)
    runtime = made(
        turns(call("ask_expert", task="What colour is the sky?"), "blue"),
        expert.as_tool(name="ask_expert"),
    )
    result = await ReActEngine(runtime).run("Sky?", run_id="r")
    entries = runtime.journal.read("r")

    assert (result.answer, result.status) == ("blue", "completed")
    assert told(result) == ["blue, the expert says"]
    assert (result.llm_calls, result.tool_calls, result.iterations) == (4, 2, 2)
    assert result.usage == Usage(40, 20)
    assert RAN == ["0.0.0#0"]
    assert [key for key, _ in facts(entries, ModelRequested)] == [
        "0",
        "0.0.0",
        "0.0.1",
        "1",
    ]
    first = expert.runtime.provider.requests[0]  # type: ignore[attr-defined]
    assert first.conversation == Conversation.of("What colour is the sky?")
    assert [spec.name for spec in first.tools] == ["look"]
    assert expert.runtime.journal.runs() == []
    assert runtime.journal.verify("r", result.head_hash).ok


class Ending(LoopEngine):
    """Ends as it is told."""

    name = "ending"
    body: Any = None

    async def solve(self, run: Run) -> str:
        return str(await self.body(run))


async def loops_on(run: Run) -> str:
    for _ in run.iterations():
        await run.ask("more")
    return "never"


async def gives_best(run: Run) -> str:
    for _ in run.iterations(1):
        await run.ask("more")
    return await run.best_answer(run.conversation)


async def is_denied(run: Run) -> str:
    for _ in range(9):
        await run.call(call("look", what="x"))
    return "never"


async def crashes(run: Run) -> str:
    raise ZeroDivisionError("1 / 0")


ENDINGS = {
    "limit": (loops_on, "helper ended as limit (max_iterations)"),
    "limit with a best answer": (
        gives_best,
        "helper ended as limit (max_iterations); its best answer: k",
    ),
    "stuck": (is_denied, "helper ended as stuck (denied)"),
    "crashed": (crashes, "helper ended as failed (engine_error)"),
}


@pytest.mark.parametrize("case", ENDINGS)
async def test_an_engine_that_does_not_complete_is_an_error_that_the_model_is_told(
    case: str,
) -> None:
    body, expected = ENDINGS[case]
    gate = DenyAll() if case == "stuck" else None
    helper = Ending(
        made(lambda request: "k", look, gate=gate, limits=Limits()), body=body
    ).as_tool(name="helper")
    runtime = made(
        turns(call("helper", task="go"), "never mind"),
        helper,
        limits=Limits(max_iterations=2),
    )
    result = await ReActEngine(runtime).run("go", run_id="r")
    [(_, finished)] = [
        f for f in facts(runtime.journal.read("r"), ToolFinished) if f[0] == "0#0"
    ]

    assert (result.answer, result.status) == ("never mind", "completed")
    assert (finished.status, finished.content) == ("error", expected)
    assert told(result) == [expected]


async def test_a_model_failure_inside_an_engine_tool_does_not_fail_the_run() -> None:
    helper = react(turns(ProviderError("it is down")))
    result = await react(
        turns(call("helper", task="go"), "without it"), helper.as_tool(name="helper")
    ).run("go")

    assert (result.answer, result.status) == ("without it", "completed")
    assert told(result) == ["helper ended as failed (provider_error)"]


async def test_a_long_answer_of_an_engine_is_capped_as_any_tool_s() -> None:
    helper = react(turns("x" * 100))
    limits = Limits(max_output_chars=10)
    result = await react(
        turns(call("react", task="go"), "ok"), helper.as_tool(), limits=limits
    ).run("go")

    assert told(result) == ["x" * 10 + "\n[cut: 100 characters, the first 10 shown]"]


@pytest.mark.parametrize(
    "arguments", [{}, {"task": 3}, {"task": "x", "more": "y"}, {"question": "x"}]
)
async def test_arguments_that_do_not_fit_start_no_child(
    arguments: dict[str, Any],
) -> None:
    helper = react(turns("never"))
    runtime = made(turns(call("react", **arguments), "I see"), helper.as_tool())
    result = await ReActEngine(runtime).run("go", run_id="r")

    assert (result.answer, result.tool_calls) == ("I see", 0)
    assert facts(runtime.journal.read("r"), ToolStarted) == []
    assert helper.runtime.provider.requests == []  # type: ignore[attr-defined]


async def test_a_gate_sees_the_call_with_its_effect_and_may_deny_it() -> None:
    seen: list[Any] = []

    def decide(action: Any) -> Any:
        seen.append((action.tool, dict(action.arguments), action.effect))
        return Deny("no research today")

    helper = react(turns("never")).as_tool(name="research", effect="read")
    runtime = made(
        turns(call("research", task="x"), "then not"), helper, gate=Gate(decide)
    )
    result = await ReActEngine(runtime).run("go", run_id="r")

    assert (result.answer, told(result)) == ("then not", ["no research today"])
    assert seen == [("research", {"task": "x"}, "read")]
    assert facts(runtime.journal.read("r"), ToolStarted) == []


async def test_a_gate_may_change_the_task() -> None:
    def decide(action: Any) -> Any:
        return (
            Modify({"task": "harmless"}, "no secrets")
            if action.arguments["task"] == "secret"
            else Allow()
        )

    helper = react(lambda request: f"about {request.conversation.task}")
    result = await react(
        turns(call("react", task="secret"), "ok"), helper.as_tool(), gate=Gate(decide)
    ).run("go")

    assert told(result) == ["about harmless"]


async def test_what_an_engine_tool_does_must_pass_its_own_gate_and_the_root_s() -> None:
    inner = Gate(
        lambda action: (
            Deny("not the sky") if action.arguments.get("what") == "sky" else Allow()
        ),
        "inner",
    )
    outer = Gate(
        lambda action: (
            Deny("not the sea") if action.arguments.get("what") == "sea" else Allow()
        ),
        "outer",
    )
    calls = [
        call("look", what="sky"),
        call("look", what="sea"),
        call("look", what="hat"),
    ]
    helper = react(turns(calls, "done"), look, gate=inner)
    runtime = made(turns(call("react", task="go"), "ok"), helper.as_tool(), gate=outer)
    await ReActEngine(runtime).run("go", run_id="r")
    entries = runtime.journal.read("r")
    finished = {
        key: (event.status, event.content)
        for key, event in facts(entries, ToolFinished)
    }
    decisions = {
        key: event.policy_version for key, event in facts(entries, GateDecided)
    }

    assert finished["0.0.0#0"] == ("denied", "not the sky")
    assert finished["0.0.0#1"] == ("denied", "not the sea")
    assert finished["0.0.0#2"] == ("ok", "hat is blue")
    assert decisions["0#0"] == "outer"
    assert decisions["0.0.0#0"] == "inner+outer"


async def test_several_engines_and_tools_of_one_turn_work_at_the_same_time() -> None:
    both = asyncio.Barrier(2)

    def waiting(request: Request) -> Any:
        return "met"

    class Meeting(ScriptedProvider):
        async def complete(self, request: Request) -> Completion:
            await asyncio.wait_for(both.wait(), 60)
            return await super().complete(request)

    one, two = (
        ReActEngine(Runtime(Meeting(waiting))).as_tool(name=name)
        for name in ("one", "two")
    )
    turn = [call("one", task="a"), call("look", what="sky"), call("two", task="b")]
    result = await react(turns(turn, "ok"), one, two, look).run("go")

    assert told(result) == ["met", "sky is blue", "met"]
    assert (result.llm_calls, result.tool_calls) == (4, 3)


async def test_an_engine_tool_takes_no_slot_that_its_own_tools_need() -> None:
    helper = react(turns(call("look", what="sky"), "found"), look)
    nested = react(
        turns([call("react", task="a"), call("react", task="b")], "all found"),
        helper.as_tool(),
    )
    turn = [call("nested", task="c"), call("look", what="sea")]
    limits = Limits(max_concurrent_tools=1)
    engine = react(
        turns(turn, "ok"), nested.as_tool(name="nested"), look, limits=limits
    )
    result = await asyncio.wait_for(engine.run("go"), 60)

    assert (result.answer, told(result)) == ("ok", ["all found", "sea is blue"])
    assert sorted(RAN) == ["0#1", "0.0.0.0.0#0", "0.0.0.1.0#0"]


async def test_the_same_engine_at_work_twice_keeps_its_turns_apart() -> None:
    model = by_task(
        a=(call("look", what="a"), "a1"),
        b=(call("look", what="b"), call("look", what="bb"), "b1"),
    )
    helper = react(model, look).as_tool(name="helper")
    result = await react(
        turns([call("helper", task="a"), call("helper", task="b")], "ok"), helper
    ).run("go")

    assert told(result) == ["a1", "b1"]
    assert sorted(RAN) == ["0.0.0#0", "0.1.0#0", "0.1.1#0"]


# --- limits, time, abort, waiting ---


async def test_a_limit_reached_inside_an_engine_tool_ends_the_run_with_its_reserve() -> (
    None
):
    helper = react(
        lambda request: call("look", what=str(len(request.conversation))), look
    )
    runtime = made(
        turns(call("react", task="go"), "best"),
        helper.as_tool(),
        limits=Limits(max_llm_calls=4),
    )
    result = await ReActEngine(runtime).run("go", run_id="r")
    entries = runtime.journal.read("r")

    assert (result.status, result.stop_reason, result.answer, result.llm_calls) == (
        "limit",
        "max_llm_calls",
        "best",
        4,
    )
    assert len(helper.runtime.provider.requests) == 2  # type: ignore[attr-defined]
    assert len(facts(entries, RunFinished)) == 1


async def test_tool_calls_of_an_engine_tool_count_for_the_run() -> None:
    helper = react(
        lambda request: call("look", what=str(len(request.conversation))), look
    )
    runtime = made(
        turns(call("react", task="go"), "best"),
        helper.as_tool(),
        limits=Limits(max_tool_calls=3),
    )
    result = await ReActEngine(runtime).run("go", run_id="r")

    assert (result.status, result.stop_reason, result.tool_calls) == (
        "limit",
        "max_tool_calls",
        3,
    )
    assert len(RAN) == 2


async def test_an_engine_tool_is_refused_once_where_no_tool_call_is_left_and_stays_so() -> (
    None
):
    def runtime(most: int, journal: MemoryJournal | None = None) -> Runtime:
        turn = [call("react", task="a"), call("react", task="b")]
        return made(
            turns(turn, "best"),
            helper.as_tool(),
            journal=journal,
            limits=Limits(max_tool_calls=most),
        )

    helper = react(turns("never"))
    first = runtime(0)
    result = await ReActEngine(first).run("go", run_id="r")
    entries = first.journal.read("r")
    journal = crashed(entries, cut_after(entries, "limit_hit"))
    raised = await runtime(9, journal).resume("r")

    for ended in (result, raised):
        assert (ended.status, ended.stop_reason, ended.answer, ended.tool_calls) == (
            "limit",
            "max_tool_calls",
            "best",
            0,
        )
    assert [entry.key for entry in entries if entry.kind == "limit_hit"] == ["0#0"]
    assert facts(journal.read("r"), ToolFinished) == []
    assert helper.runtime.provider.requests == []  # type: ignore[attr-defined]


async def test_no_engine_starts_on_a_permit_of_another_policy() -> None:
    gate = Gate(lambda action: Allow())

    class Changing(MemoryJournal):
        async def barrier(self, claim: Any) -> None:
            await super().barrier(claim)
            if self.read("r")[-1].kind == "tool_started":
                gate.version = "test-2"

    helper = react(turns("never"))
    await react(
        turns(call("react", task="a"), "ok"),
        helper.as_tool(),
        gate=gate,
        journal=Changing(),
    ).run("go", run_id="r")

    assert helper.runtime.provider.requests == []  # type: ignore[attr-defined]


async def test_the_call_of_an_engine_is_durable_before_the_engine_starts() -> None:
    kept: list[str] = []

    async def body(run: Run) -> str:
        kept.extend(entry.kind for entry in runtime.journal.read("r"))
        return "found"

    helper = Ending(made([]), body=body).as_tool(name="helper")
    runtime = made(turns(call("helper", task="go"), "ok"), helper)
    await ReActEngine(runtime).run("go", run_id="r")

    assert kept == [
        "run_started",
        "model_requested",
        "model_replied",
        "gate_decided",
        "tool_started",
    ]


async def test_what_engine_tools_use_counts_for_the_engines_around_them() -> None:
    expert = react(turns(call("look", what="sky"), "found"), look).as_tool()
    middle = react(turns(call("react", task="x"), "told"), expert)
    seen: list[Result] = []

    async def body(run: Run) -> str:
        seen.append(await run.delegate(middle, "go"))
        return "ok"

    result = await Ending(made([]), body=body).run("go")

    assert [(one.llm_calls, one.tool_calls, one.usage) for one in (*seen, result)] == [
        (4, 2, Usage(40, 20))
    ] * 2


async def test_an_engine_that_swallows_the_waiting_of_its_tool_waits_all_the_same() -> (
    None
):
    helper = react(turns(call("wipe"), "wiped"), wipe, approver=Suspend()).as_tool()

    async def body(run: Run) -> str:
        with contextlib.suppress(Suspended):
            await run.call(call("react", task="go"))
        return "never"

    result = await Ending(made([], helper), body=body).run("go")

    assert (result.status, [question.key for question in result.pending]) == (
        "waiting",
        ["0.0.0#0"],
    )


async def test_an_engine_tool_is_timed_by_the_run_s_clock_and_not_as_one_tool_call() -> (
    None
):
    clock = FakeClock()

    def slow(request: Request) -> Any:
        clock.advance(50)
        return turns(call("look", what="1"), call("look", what="2"), "found")(request)

    def ask(limits: Limits) -> Any:
        helper = react(slow, look).as_tool()
        return react(
            turns(call("react", task="go"), "ok"), helper, limits=limits, clock=clock
        ).run("go")

    whole = await ask(Limits(timeout=300, tool_timeout=30))
    cut = await ask(Limits(timeout=90, tool_timeout=30))

    assert (whole.answer, told(whole)) == ("ok", ["found"])
    assert (cut.status, cut.stop_reason, cut.answer) == ("limit", "timeout", None)


class Held(ScriptedProvider):
    """Says nothing until it is let go."""

    def __init__(self, *lines: Any) -> None:
        super().__init__(turns(*lines))
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        self.asked.set()
        await self.go.wait()
        return await super().complete(request)


async def test_an_abort_while_an_engine_tool_is_at_work_ends_the_run_once() -> None:
    held = Held("never")
    helper = ReActEngine(Runtime(held)).as_tool()
    runtime = made(
        turns([call("react", task="a"), call("look", what="sky")], "never"),
        helper,
        look,
    )
    async with ReActEngine(runtime).start("go", run_id="r") as run:
        await held.asked.wait()
        result = await run.abort()
    entries = runtime.journal.read("r")

    assert (result.status, result.answer) == ("aborted", None)
    assert [entry.kind for entry in entries].count("run_finished") == 1
    assert entries[-1].kind == "run_finished"
    assert runtime.journal.verify("r", result.head_hash).ok


async def test_a_host_cancelled_during_an_engine_tool_leaves_a_resumable_run() -> None:
    held, journal = Held("found"), MemoryJournal()
    helper = ReActEngine(Runtime(held)).as_tool()
    turn = [call("react", task="a"), call("put", what="cup")]
    work = asyncio.create_task(
        react(turns(turn, "ok"), helper, put, journal=journal).run("go", run_id="r")
    )
    await held.asked.wait()
    await asyncio.sleep(0.01)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    held.go.set()
    result = await made(turns(turn, "ok"), helper, put, journal=journal).resume("r")

    assert (result.answer, told(result)) == ("ok", ["found", "cup is there"])
    assert (result.llm_calls, result.tool_calls, RAN) == (3, 2, ["0#1"])


async def test_a_question_inside_an_engine_tool_suspends_the_run_until_its_answer() -> (
    None
):
    journal = MemoryJournal()
    turn = [
        call("helper", task="a"),
        call("look", what="sky"),
        call("helper", task="b"),
    ]

    def runtime(approver: Any) -> Runtime:
        helper = react(
            by_task(a=(call("wipe"), "a wiped"), b=("b",)), wipe, approver=approver
        ).as_tool(name="helper")
        return made(turns(turn, "ok"), helper, look, journal=journal, approver=approver)

    waiting = await ReActEngine(runtime(Suspend())).run("go", run_id="r")
    assert (waiting.status, waiting.stop_reason) == ("waiting", "approval")
    assert [(question.tool, question.key) for question in waiting.pending] == [
        ("wipe", "0.0.0#0")
    ]
    assert RAN == ["0#1"]

    still = await runtime(Suspend()).resume("r")
    assert (still.status, len(still.pending)) == ("waiting", 1)
    result = await runtime(yes).resume("r")

    assert (result.answer, told(result)) == ("ok", ["a wiped", "sky is blue", "b"])
    assert RAN == ["0#1", "0.0.0#0"]
    assert (result.llm_calls, result.tool_calls) == (5, 4)


async def test_all_questions_of_engine_tools_that_work_at_once_are_pending() -> None:
    helper = react(turns(call("wipe"), "wiped"), wipe, approver=Suspend()).as_tool(
        name="helper"
    )
    turn = [call("helper", task="a"), call("helper", task="b")]
    result = await react(turns(turn, "ok"), helper, approver=Suspend()).run("go")

    assert [question.key for question in result.pending] == ["0.0.0#0", "0.1.0#0"]


async def test_a_call_of_an_engine_may_itself_wait_for_a_person() -> None:
    journal = MemoryJournal()

    def runtime(approver: Any) -> Runtime:
        helper = react(turns("found")).as_tool(effect="destructive")
        return made(
            turns(call("react", task="a"), "ok"),
            helper,
            journal=journal,
            approver=approver,
        )

    waiting = await ReActEngine(runtime(Suspend())).run("go", run_id="r")
    result = await runtime(yes).resume("r")

    assert [(q.tool, q.arguments) for q in waiting.pending] == [
        ("react", {"task": "a"})
    ]
    assert (result.answer, told(result)) == ("ok", ["found"])


# --- a crash anywhere ---


class Manager(LoopEngine):
    """Gathers branches that delegate, call engines as tools, and act, all in one run."""

    name = "manager"
    nested: Any = None
    max_concurrency: int | None = None

    async def solve(self, run: Run) -> str:
        async def delegates(inner: Run) -> str:
            return str((await inner.delegate(self.nested, "b")).answer)

        async def calls(inner: Run) -> str:
            seen = await inner.call(call("expert", task="c"))
            return f"{seen.content} {await inner.ask('sum up')}"

        async def acts(inner: Run) -> str:
            return (await inner.call(call("put", what="cup"))).content

        run.note({"branches": 3})
        found = await run.gather(
            delegates, calls, acts, max_concurrency=self.max_concurrency
        )
        await run.permit("announce", {"what": " ".join(found)})
        return " / ".join([*found, await run.ask("and now?")])


class Shop:
    """Everything that a composed run needs, made again for each process."""

    def __init__(self, journal: MemoryJournal | None = None, **options: Any) -> None:
        expert_model = by_task(
            a=([call("look", what="a1"), call("put", what="a2")], "A"),
            c=(call("look", what="c"), "C"),
        )
        self.expert = react(expert_model, look, put)
        nested_model = by_task(
            b=(
                [call("expert", task="a"), call("look", what="b")],
                call("put", what="b"),
                "B",
            )
        )
        self.nested = react(
            nested_model, self.expert.as_tool(name="expert", effect="read"), look, put
        )
        self.runtime = made(
            self.model, self.expert.as_tool(name="expert"), self.nested.as_tool(name="nested"), look, put,
            journal=journal, **options,
        )  # fmt: skip

    @staticmethod
    def model(request: Request) -> Any:
        if request.conversation.task == "go":
            return turns(
                [
                    call("expert", task="a"),
                    call("nested", task="b"),
                    call("look", what="x"),
                ],
                "all done",
            )(request)
        return f"said {request.conversation.task}"

    @property
    def asked(self) -> int:
        runtimes = (self.runtime, self.expert.runtime, self.nested.runtime)
        return sum(len(r.provider.requests) for r in runtimes)  # type: ignore[attr-defined]


ROOTS: dict[str, Callable[[Shop], LoopEngine]] = {
    "two engine tools beside a tool": lambda shop: ReActEngine(shop.runtime),
    "engine tools in a child in a branch": lambda shop: Manager(
        shop.runtime, nested=shop.nested
    ),
    "branches one by one": lambda shop: Manager(
        shop.runtime, nested=shop.nested, max_concurrency=1
    ),
}


def check_resumed(
    entries: list[Entry], keep: int, shop: Shop, after: list[Entry]
) -> None:
    """Nothing that is recorded among the first `keep` entries was done again."""
    before = entries[:keep]
    replied = len(facts(before, ModelReplied))
    finished = {key for key, event in facts(before, ToolFinished)}

    assert shop.asked == len(facts(after, ModelReplied)) - replied
    assert finished.isdisjoint(RAN)
    assert len(set(RAN)) == len(RAN)
    assert [
        event.status
        for _, event in facts(after, ToolFinished)
        if event.status == "unknown"
    ] == []
    assert len({key for key, _ in facts(after, ToolStarted)}) == len(
        facts(after, ToolStarted)
    )


@pytest.mark.parametrize("root", ROOTS)
async def test_a_composed_run_cut_after_any_entry_resumes_and_repeats_nothing(
    root: str,
) -> None:
    shop = Shop()
    whole = await ROOTS[root](shop).run("go", run_id="r")
    entries = shop.runtime.journal.read("r")
    assert whole.status == "completed"

    for keep in range(1, len(entries) + 1):
        RAN.clear()
        again = Shop(crashed(entries, keep))
        result = await ROOTS[root](again).resume("r")
        assert dataclasses.replace(result, head_hash=whole.head_hash) == whole, keep
        assert again.runtime.journal.verify("r", result.head_hash).ok
        check_resumed(entries, keep, again, again.runtime.journal.read("r"))


@pytest.mark.parametrize("root", ROOTS)
async def test_a_composed_run_that_crashes_twice_still_ends_the_same(root: str) -> None:
    shop = Shop()
    whole = await ROOTS[root](shop).run("go", run_id="r")
    entries = shop.runtime.journal.read("r")

    for keep in range(1, len(entries), 7):
        second = Shop(crashed(entries, keep))
        await ROOTS[root](second).resume("r")
        later = second.runtime.journal.read("r")
        for keep_again in range(keep + 1, len(later), 5):
            RAN.clear()
            third = Shop(crashed(later, keep_again))
            result = await ROOTS[root](third).resume("r")
            assert dataclasses.replace(result, head_hash=whole.head_hash) == whole, (
                keep,
                keep_again,
            )
            check_resumed(later, keep_again, third, third.runtime.journal.read("r"))


async def test_an_interrupted_engine_tool_is_replayed_and_never_unknown() -> None:
    shop = Shop()
    await ReActEngine(shop.runtime).run("go", run_id="r")
    entries = shop.runtime.journal.read("r")
    keep = cut_after(entries, "tool_started")
    again = Shop(crashed(entries, keep), on_unknown="stop")
    result = await again.runtime.resume("r")

    assert (result.answer, result.status) == ("all done", "completed")


async def test_budget_that_engine_tools_spent_survives_a_resume() -> None:
    def runtime(journal: MemoryJournal | None) -> Runtime:
        helper = react(
            lambda request: call("look", what=str(len(request.conversation))), look
        ).as_tool()
        limits = Limits(max_llm_calls=8, max_tool_calls=5)
        return made(
            turns(call("react", task="go"), "best"),
            helper,
            journal=journal,
            limits=limits,
        )

    first = runtime(None)
    whole = await ReActEngine(first).run("go", run_id="r")
    entries = first.journal.read("r")
    assert (whole.status, whole.stop_reason, whole.answer) == (
        "limit",
        "max_tool_calls",
        "best",
    )

    for keep in range(1, len(entries) + 1):
        RAN.clear()
        result = await runtime(crashed(entries, keep)).resume("r")
        assert (
            dataclasses.replace(result, head_hash=whole.head_hash, error=whole.error)
            == whole
        ), keep


async def test_a_child_that_lost_what_it_did_under_a_recorded_result_is_divergence() -> (
    None
):
    """The result of the call is there, but its code now does something else in between."""
    first = made(turns(call("react", task="go"), "ok"), react(turns("found")).as_tool())
    await ReActEngine(first).run("go", run_id="r")
    entries = first.journal.read("r")
    other = react(turns(call("look", what="sky"), "found"), look)

    async def body(run: Run) -> str:
        await run.ask("first something else")
        return "found"

    changed = Ending(other.runtime, body=body).as_tool(name="react")
    journal = crashed(entries, cut_after(entries, "tool_finished"))
    with pytest.raises(ReplayDivergence, match=r"0\.0\.0"):
        await made(
            turns(call("react", task="go"), "ok"), changed, journal=journal
        ).resume("r")


async def test_an_engine_in_place_of_a_plain_tool_is_divergence_and_starts_nothing() -> (
    None
):
    @tool(name="react", effect="read")
    async def plain(task: str) -> str:
        """Answer."""
        return "found"

    first = made(turns(call("react", task="go"), "ok"), plain)
    await ReActEngine(first).run("go", run_id="r")
    entries = first.journal.read("r")
    helper = react(turns("found"))
    journal = crashed(entries, cut_after(entries, "tool_finished"))
    with pytest.raises(ReplayDivergence):
        await made(
            turns(call("react", task="go"), "ok"), helper.as_tool(), journal=journal
        ).resume("r")

    assert helper.runtime.provider.requests == []  # type: ignore[attr-defined]


async def test_an_interrupted_engine_call_with_another_task_is_divergence() -> None:
    def engine(task: str, journal: MemoryJournal | None = None) -> Ending:
        async def body(run: Run) -> str:
            return (await run.call(call("react", task=task))).content

        return Ending(made([], helper.as_tool(), journal=journal), body=body)

    helper = react(turns("found"))
    first = engine("one")
    await first.run("go", run_id="r")
    entries = [
        e
        for e in first.runtime.journal.read("r")
        if e.kind in ("run_started", "tool_started")
    ]

    assert (await engine("one", crashed(entries, 2)).resume("r")).answer == "found"
    with pytest.raises(ReplayDivergence):
        await engine("two", crashed(entries, 2)).resume("r")
    assert len(helper.runtime.provider.requests) == 2  # type: ignore[attr-defined]


async def test_an_engine_call_with_an_outcome_is_not_begun_again() -> None:
    helper = react(turns("found"))
    root = made(turns(call("react", task="go"), "ok"), helper.as_tool())
    await ReActEngine(root).run("go", run_id="r")
    entries = [
        e
        for e in root.journal.read("r")
        if e.kind not in ("tool_started", "run_finished")
    ]
    journal = crashed(entries, len(entries))
    again = await ReActEngine(
        made(turns(call("react", task="go"), "ok"), helper.as_tool(), journal=journal)
    ).resume("r")

    assert (again.answer, told(again)) == ("ok", ["found"])
    assert len(helper.runtime.provider.requests) == 1  # type: ignore[attr-defined]
