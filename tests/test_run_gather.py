"""What an engine is written with: branches so many at a time, calls of its own, plain questions, and leave to go on."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from function_engine import FunctionEngine
from journal_positions import cut_after
from loopwright import (
    Allow,
    AllowAll,
    Ask,
    Completion,
    ConfigError,
    Deny,
    DenyAll,
    LimitReached,
    Limits,
    LoopEngine,
    MemoryJournal,
    Modify,
    Observation,
    ReActEngine,
    ReplayDivergence,
    Request,
    Result,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    ToolSpec,
    tool,
)
from loopwright.errors import AskFailed, Denied, PhaseError
from loopwright.events import (
    BranchFinished,
    BranchStarted,
    EffectFinished,
    Entry,
    GateDecided,
)
from loopwright.testing import ScriptedProvider, call, crashed
from sample_tools import RAN, wipe
from virtual_time import in_virtual_time


@tool(effect="write")
async def send(what: str) -> str:
    """Send."""
    RAN.append(what)
    return f"{what} sent"


Body = Callable[[Run], Awaitable[object]]


def parts(script: Any = (), **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(script), tools=[send, wipe], **options)


async def whole(
    body: Body, script: Any = (), **options: Any
) -> tuple[Result, list[Entry]]:
    runtime = parts(script, **options)
    result = await FunctionEngine(runtime, body=body).run("go", run_id="r")
    return result, runtime.journal.read("r")


async def resumed(
    body: Body, entries: list[Entry], keep: int, script: Any = (), **options: Any
) -> Result:
    return await FunctionEngine(
        parts(script, journal=crashed(entries, keep), **options), body=body
    ).resume("r")


class Gate:
    def __init__(self, decide: Callable[[Any], Any], version: str = "test-1") -> None:
        self.decide, self.version = decide, version

    async def evaluate(self, action: Any, state: Any) -> Any:
        return self.decide(action)


# --- so many branches at once ---


class Counting(ScriptedProvider):
    """Notes how many calls are under way at a time, and in which order they came."""

    def __init__(self) -> None:
        super().__init__(lambda request: f"k{request.conversation.task}")
        self.now, self.most, self.order = 0, 0, []  # type: tuple[int, int, list[str]]

    async def complete(self, request: Request) -> Completion:
        self.order.append(request.conversation.task)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(
            0.001 * (5 - int(request.conversation.task))
        )  # the later, the faster
        self.now -= 1
        return await super().complete(request)


@pytest.mark.parametrize(
    ("max_concurrency", "most"), [(None, 5), (1, 1), (2, 2), (5, 5), (99, 5)]
)
@in_virtual_time
async def test_branches_start_in_order_within_the_limit_and_results_keep_it(
    max_concurrency: int | None, most: int
) -> None:
    async def body(run: Run) -> object:
        works = [
            lambda inner, number=number: inner.ask(str(number)) for number in range(5)
        ]
        return await run.gather(*works, max_concurrency=max_concurrency)

    provider = Counting()
    result = await FunctionEngine(Runtime(provider), body=body).run("go")

    assert result.answer == "['k0', 'k1', 'k2', 'k3', 'k4']"
    assert provider.most == most
    assert provider.order == ["0", "1", "2", "3", "4"]


async def test_a_gather_of_nothing_is_nothing() -> None:
    async def body(run: Run) -> object:
        return await run.gather(), await run.gather(max_concurrency=3)

    assert (await whole(body))[0].answer == "([], [])"


@pytest.mark.parametrize("max_concurrency", [0, -1])
async def test_max_concurrency_must_be_at_least_one(max_concurrency: int) -> None:
    async def body(run: Run) -> object:
        return await run.gather(
            lambda inner: inner.ask("?"), max_concurrency=max_concurrency
        )

    result, _ = await whole(body)

    assert isinstance(result.error, ConfigError)
    assert "max_concurrency must be at least 1" in str(result.error)


async def test_sequential_branches_all_run_before_the_first_exception_is_raised() -> (
    None
):
    async def fails(inner: Run) -> str:
        raise ValueError(await inner.ask("fail"))

    async def body(run: Run) -> object:
        try:
            return await run.gather(
                fails, fails, lambda inner: inner.ask("work"), max_concurrency=1
            )
        except ValueError as error:
            return f"raised {error}"

    result, entries = await whole(body, ["first", "second", "third"])

    assert result.answer == "raised first"
    assert [entry.key for entry in entries if entry.kind == "model_replied"] == [
        "0.0.0",
        "0.1.0",
        "0.2.0",
    ]


async def test_a_branch_that_waits_gives_its_place_to_the_next() -> None:
    async def waits(inner: Run) -> str:
        return (await inner.call(call("wipe"))).content

    async def body(run: Run) -> object:
        return await run.gather(
            waits, lambda inner: inner.ask("?"), waits, max_concurrency=1
        )

    async def yes(action: Any, question: str) -> bool:
        return True

    journal = MemoryJournal()
    waiting = await FunctionEngine(
        parts(["a"], approver=Suspend(), journal=journal), body=body
    ).run("go", run_id="r")
    result = await FunctionEngine(
        parts([], approver=yes, journal=journal), body=body
    ).resume("r")

    assert [question.key for question in waiting.pending] == ["0.0.0#0", "0.2.0#0"]
    assert result.answer == "['gone', 'a', 'gone']"


async def test_a_run_may_be_resumed_with_another_number_at_once() -> None:
    def gathers(max_concurrency: int | None) -> Body:
        async def twice(inner: Run) -> str:
            return (
                await inner.ask("1")
                + (await inner.call(call("send", what=await inner.ask("2")))).content
            )

        async def body(run: Run) -> object:
            return await run.gather(*[twice] * 3, max_concurrency=max_concurrency)

        return body

    model: Callable[[Request], str] = lambda request: f"k{request.conversation.task}"  # noqa: E731
    expected, entries = await whole(gathers(2), model)
    for keep in range(1, len(entries) + 1):
        for max_concurrency in (1, None):
            result = await resumed(gathers(max_concurrency), entries, keep, model)
            answers = (result.answer or "").replace(
                "This call was interrupted and it is not known whether it took effect. Do not assume that it did or "
                "did not: check before you rely on it, and do not simply repeat it.",
                "k2 sent",
            )
            assert answers == expected.answer, (keep, max_concurrency)


async def test_a_limit_stops_the_branches_that_have_not_begun() -> None:
    async def body(run: Run) -> object:
        return await run.gather(*[lambda inner: inner.ask("?")] * 9, max_concurrency=2)

    result, entries = await whole(
        body, lambda request: "k", limits=Limits(max_llm_calls=4)
    )

    assert (result.status, result.stop_reason, result.llm_calls) == (
        "limit",
        "max_llm_calls",
        4,
    )
    assert sum(entry.kind == "limit_hit" for entry in entries) == 1


# --- a call of the engine's own ---


async def test_a_call_is_proposed_gated_and_made_in_one() -> None:
    async def body(run: Run) -> object:
        first = await run.call(call("send", what="card"))
        second = await run.call(call("send", wat="card"))
        third = await run.call(ToolCall("sned", {}, "mine"))
        return [first, second, third]

    seen: list[Observation] = []

    async def keeps(run: Run) -> object:
        seen.extend(await body(run))  # type: ignore[arg-type]
        return "done"

    result, entries = await whole(keeps)

    assert [(o.status, o.call.name, o.call.id) for o in seen] == [
        ("ok", "send", "call_0_0"),
        ("rejected", "send", "call_1_0"),
        ("rejected", "sned", "mine"),
    ]
    assert seen[0].content == "card sent"
    assert (result.tool_calls, RAN) == (1, ["card"])
    assert [entry.kind for entry in entries].count("calls_proposed") == 3


async def test_a_denied_call_is_an_observation_and_the_third_time_the_end() -> None:
    told: list[str] = []

    async def body(run: Run) -> object:
        for _ in range(5):
            told.append((await run.call(call("send", what="card"))).status)
        return "never"

    result, _ = await whole(body, gate=DenyAll())

    assert (result.status, result.stop_reason, told, RAN) == (
        "stuck",
        "denied",
        ["denied", "denied"],
        [],
    )


async def test_a_call_that_was_made_is_not_made_again() -> None:
    async def body(run: Run) -> object:
        seen = await run.call(call("send", what="card"))
        return f"{seen.content}, {await run.ask('and?')}"

    result, entries = await whole(body, ["good"])
    again = await resumed(body, entries, cut_after(entries, "tool_finished"), ["good"])

    assert (again.answer, again.llm_calls, again.tool_calls) == (result.answer, 1, 1)
    assert RAN == ["card"]


async def test_an_engine_is_told_what_its_tools_are() -> None:
    seen: list[tuple[ToolSpec, ...]] = []

    async def body(run: Run) -> object:
        async def branch(inner: Run) -> str:
            seen.append(inner.tools)
            return ""

        seen.append(run.tools)
        await run.gather(branch)
        await run.delegate(
            FunctionEngine(Runtime(ScriptedProvider([])), body=branch), "child"
        )
        return "done"

    await whole(body)

    assert seen == [(send.spec, wipe.spec), (send.spec, wipe.spec), ()]


# --- plain questions ---

CUT = Completion("half an ans", answer="half an ans", finish_reason="length")
UNUSABLE = {
    "cut": (CUT, "half an ans", True, "the reply reached the limit of output tokens"),
    "cut and marked by its provider": (
        dataclasses.replace(CUT, answer=None, problem="it was cut"), "half an ans", True, "it was cut",
    ),
    "cut before a word": (Completion("", answer="", finish_reason="length"), "", True, "limit of output tokens"),
    "unreadable": (Completion("{", problem="no JSON"), "{", False, "no JSON"),
    "a call": (call("send", what="x"), "", False, "it called a tool instead of answering"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNUSABLE)
async def test_a_reply_that_cannot_be_used_is_never_returned_as_text_now_or_on_replay(
    case: str,
) -> None:
    line, text, cut, message = UNUSABLE[case]
    caught: list[AskFailed] = []

    async def body(run: Run) -> object:
        try:
            return await run.ask("what?", again=False)
        except AskFailed as error:
            caught.append(error)
        return await run.ask("again?")

    result, entries = await whole(body, [line, "whole"])
    again = await resumed(body, entries, cut_after(entries, "model_replied"), ["whole"])

    assert result.answer == again.answer == "whole"
    for error in caught:
        assert (error.text, error.cut) == (text, cut)
        assert message in str(error)
    assert len(caught) == 2


async def test_an_engine_that_does_not_catch_it_ends_without_an_answer() -> None:
    async def body(run: Run) -> object:
        return await run.ask("what?")

    result, _ = await whole(body, [CUT, CUT])

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "invalid_output",
        None,
    )


# --- leave to go on ---


class Planning(LoopEngine):
    """Has policy decide about its plan before it asks a model anything."""

    name = "planning"
    plan: str = "one, two"

    async def solve(self, run: Run) -> str:
        try:
            await run.permit("plan", {"steps": self.plan})
        except Denied as error:
            return f"{error}; {await run.ask('what else?')}"
        return await run.ask("go on")


def planning(
    gate: Any, script: Any, journal: MemoryJournal | None = None, **options: Any
) -> Planning:
    approver = options.pop("approver", None)
    return Planning(
        parts(script, gate=gate, journal=journal, approver=approver), **options
    )


async def test_a_gate_sees_what_the_engine_wants_to_do_and_nothing_runs() -> None:
    seen: list[Any] = []

    def decide(action: Any) -> Any:
        seen.append(
            (action.tool, dict(action.arguments), action.effect, action.call_id)
        )
        return Allow()

    engine = planning(Gate(decide), ["done"])
    result = await engine.run("go", run_id="r")
    entries = engine.runtime.journal.read("r")

    assert (result.answer, result.tool_calls) == ("done", 0)
    assert seen == [("plan", {"steps": "one, two"}, "write", "plan_0")]
    assert [(e.key, e.kind) for e in entries[1:3]] == [
        ("0#0", "gate_decided"),
        ("0", "effect_finished"),
    ]


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        (DenyAll(), "plan: no tool may run here"),
        (
            Gate(lambda action: Modify({"steps": "none"}, "too much")),
            "plan: the policy wants other arguments",
        ),
        (
            Gate(lambda action: Ask("sure?")),
            "plan: plan was not run: it needs a person's approval",
        ),
        (Gate(lambda action: 1 / 0), "plan: the policy gate failed"),
    ],
)
async def test_a_gate_that_does_not_allow_it_denies_it_the_same_on_replay(
    gate: Any, told: str
) -> None:
    engine = planning(gate, ["nothing"])
    result = await engine.run("go", run_id="r")
    entries = engine.runtime.journal.read("r")
    assert result.answer is not None
    assert result.answer.startswith(told)
    assert result.answer.endswith("; nothing")

    for keep in range(3, len(entries) + 1):  # from the recorded denial on
        again = await planning(AllowAll(), ["nothing"], crashed(entries, keep)).resume(
            "r"
        )
        assert (again.answer, again.status) == (result.answer, "completed"), keep


async def test_an_engine_that_does_not_catch_the_denial_ends_as_denied() -> None:
    async def body(run: Run) -> object:
        return await run.permit("plan", {})

    result, _ = await whole(body, gate=DenyAll())

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "denied",
        None,
    )


async def test_a_plan_may_wait_for_a_person_who_allows_it_or_not() -> None:
    answers: list[tuple[str, str]] = []

    def says(verdict: bool) -> Any:
        async def approve(action: Any, question: str) -> bool:
            answers.append((action.tool, question))
            return verdict

        return approve

    gate = Gate(lambda action: Ask("is this plan good?"))
    for verdict, expected in (
        (True, "done"),
        (False, "plan: a person refused it; done"),
    ):
        journal = MemoryJournal()
        waiting = await planning(gate, [], journal, approver=Suspend()).run(
            "go", run_id="r"
        )
        assert (waiting.status, waiting.llm_calls) == ("waiting", 0)
        assert [(q.key, q.tool, q.text, q.arguments) for q in waiting.pending] == [
            ("0#0", "plan", "is this plan good?", {"steps": "one, two"})
        ]
        result = await planning(gate, ["done"], journal, approver=says(verdict)).resume(
            "r"
        )
        assert (result.answer, result.status) == (expected, "completed")
    assert answers == [("plan", "is this plan good?")] * 2


async def test_leave_that_was_given_is_not_asked_for_again() -> None:
    asked: list[str] = []

    def decide(action: Any) -> Any:
        asked.append(action.tool)
        return Allow()

    engine = planning(Gate(decide), ["done"])
    await engine.run("go", run_id="r")
    entries = engine.runtime.journal.read("r")
    for keep in range(2, len(entries) + 1):
        result = await planning(Gate(decide), ["done"], crashed(entries, keep)).resume(
            "r"
        )
        assert result.answer == "done"
    assert asked == ["plan"]


async def test_leave_without_its_outcome_is_asked_for_again_under_another_policy() -> (
    None
):
    engine = planning(Gate(lambda action: Allow()), ["done"])
    await engine.run("go", run_id="r")
    entries = engine.runtime.journal.read("r")
    strict = Gate(lambda action: Deny("not any more"), "test-2")
    decided, done = (
        cut_after(entries, "gate_decided"),
        cut_after(entries, "effect_finished"),
    )
    asked_again = await planning(strict, ["done"], crashed(entries, decided)).resume(
        "r"
    )
    not_asked = await planning(strict, ["done"], crashed(entries, done)).resume("r")

    assert (asked_again.answer, not_asked.answer) == (
        "plan: not any more; done",
        "done",
    )


@pytest.mark.parametrize("kind", ["gate_decided", "effect_finished", "model_replied"])
async def test_another_plan_at_the_same_place_is_divergence(kind: str) -> None:
    engine = planning(AllowAll(), ["done"])
    await engine.run("go", run_id="r")
    entries = engine.runtime.journal.read("r")
    journal = crashed(entries, cut_after(entries, kind))
    with pytest.raises(ReplayDivergence, match="plan with other arguments"):
        await planning(AllowAll(), ["done"], journal, plan="three").resume("r")


async def test_a_plan_is_decided_by_the_gates_of_the_child_and_of_the_root() -> None:
    async def body(run: Run) -> object:
        return (await run.delegate(planning(inner, ["else"]), "go")).answer

    no_plans = Gate(
        lambda action: Deny("no plans") if action.tool == "plan" else Allow()
    )
    inner: Any = no_plans
    first, entries = await whole(body)
    inner = AllowAll()
    second, _ = await whole(body, gate=no_plans)
    third, _ = await whole(body)

    assert [result.answer for result in (first, second, third)] == [
        "plan: no plans; else"
    ] * 2 + ["else"]
    assert [e.key for e in entries if isinstance(e.event, EffectFinished)] == ["0.0"]
    assert [e.key for e in entries if isinstance(e.event, GateDecided)] == [
        "0#0",
        "0.0#0",
    ]


async def test_two_concurrent_verbs_are_refused_for_permit_too() -> None:
    class Slow(Gate):
        async def evaluate(self, action: Any, state: Any) -> Any:
            await asyncio.sleep(0)
            return Allow()

    async def body(run: Run) -> object:
        return await asyncio.gather(run.permit("a", {}), run.permit("b", {}))

    result, _ = await whole(body, gate=Slow(lambda action: Allow()))

    assert isinstance(result.error, PhaseError)


async def test_leave_is_not_given_behind_a_limit() -> None:
    async def body(run: Run) -> object:
        await run.ask("the last")
        with contextlib.suppress(LimitReached):
            await run.ask("too much")
        await run.permit("plan", {})
        return "never"

    result, entries = await whole(body, ["a", "best"], limits=Limits(max_tokens=1))

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_tokens",
        "best",
    )
    assert not any(isinstance(e.event, GateDecided) for e in entries)


async def test_a_waiting_plan_in_a_branch_does_not_hold_up_its_sibling() -> None:
    async def plans(inner: Run) -> str:
        await inner.permit("plan", {"n": 1})
        return "planned"

    async def body(run: Run) -> object:
        return await run.gather(plans, lambda inner: inner.ask("?"))

    gate = Gate(lambda action: Ask("sure?"))
    result, entries = await whole(body, ["worked"], gate=gate, approver=Suspend())

    assert (result.status, [q.key for q in result.pending]) == ("waiting", ["0.0.0#0"])
    assert [e.key for e in entries if e.kind == "model_replied"] == ["0.1.0"]


async def test_react_alone_asks_no_permit() -> None:
    result = await ReActEngine(parts(["a"], gate=DenyAll())).run("go")

    assert result.answer == "a"


# --- branches with names ---


def named(*names: str, fails: bool = False) -> Body:
    async def body(run: Run) -> object:
        async def work(branch: Run) -> str:
            await branch.call(ToolCall("send", {"what": branch.new_id()[:4]}))
            if fails:
                raise Denied("not this one")
            return "done"

        return await run.gather(work, work, names=names or None)

    return body


def branch_lines(entries: list[Entry]) -> list[tuple[str, str]]:
    events = [(entry.key, entry.event) for entry in entries]
    return [
        (key, event.summary())
        for key, event in events
        if isinstance(event, (BranchStarted, BranchFinished))
    ]


async def test_branches_with_names_say_when_they_begin_and_end() -> None:
    gate = AllowAll()
    result, entries = await whole(named("north", "south"), gate=gate)

    assert result.status == "completed"
    assert branch_lines(entries) == [
        ("begun:0.0", "north began"),
        ("begun:0.1", "south began"),
        ("ended:0.0", "north ended"),
        ("ended:0.1", "south ended"),
    ]
    for keep in range(
        2, len(entries)
    ):  # each is recorded once, wherever a process dies
        journal = crashed(entries, keep)
        runtime = parts(gate=gate, journal=journal)
        again = await FunctionEngine(runtime, body=named("north", "south")).resume("r")
        assert again.answer == result.answer
        assert sorted(branch_lines(journal.read("r"))) == sorted(branch_lines(entries))


async def test_branches_without_names_leave_the_entries_that_they_left_before() -> None:
    _, plain = await whole(named(), gate=AllowAll())
    _, entries = await whole(named("north", "south"), gate=AllowAll())

    def others(entries: list[Entry]) -> list[tuple[str, str]]:
        return [
            (one.key, one.kind)
            for one in entries
            if not isinstance(one.event, (BranchStarted, BranchFinished))
        ]

    assert branch_lines(plain) == []
    assert others(entries) == others(plain)


async def test_a_branch_that_fails_ends_with_its_error_and_one_that_waits_does_not() -> (
    None
):
    result, entries = await whole(named("north", "south", fails=True), gate=AllowAll())
    assert result.status == "failed"
    assert branch_lines(entries)[2:] == [
        ("ended:0.0", "north raised Denied"),
        ("ended:0.1", "south raised Denied"),
    ]

    async def asks(run: Run) -> object:
        return await run.gather(
            lambda branch: branch.ask_user("Which?"), names=["east"]
        )

    runtime = parts()
    engine = FunctionEngine(runtime, body=asks)
    await engine.run("go", run_id="r")
    assert branch_lines(runtime.journal.read("r")) == [("begun:0.0", "east began")]
    await runtime.control("r").answer("this")
    assert (await engine.resume("r")).answer == "['this']"
    assert branch_lines(runtime.journal.read("r"))[1:] == [("ended:0.0", "east ended")]


async def test_later_branches_of_a_name_are_watched_for_loops_together() -> None:
    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        return f"{what} is blue"

    async def work(branch: Run) -> str:
        proposal = await branch.reason(branch.conversation)
        [observation] = await branch.act(await branch.gate(proposal))
        return observation.status

    def body(names: list[str]) -> Body:
        async def waves(run: Run) -> object:
            found = [await run.gather(work, names=[name]) for name in names]
            return [status for statuses in found for status in statuses]

        return waves

    def make(names: list[str], journal: Any = None) -> FunctionEngine:
        model = ScriptedProvider(lambda request: call("look", what="sky"))
        parts = Runtime(model, tools=[look], journal=journal)
        return FunctionEngine(parts, body=body(names))

    apart = await make(["a", "b", "c", "d"]).run("Look.")
    engine = make(["a", "a", "b", "a", "a"])
    result = await engine.run("Look.", run_id="r")
    entries = engine.runtime.journal.read("r")

    assert apart.answer == "['ok', 'ok', 'ok', 'ok']"
    # the third one of the name is followed by a nudge, and the fourth is blocked
    assert result.answer == "['ok', 'ok', 'ok', 'ok', 'rejected']"
    asked = engine.runtime.provider.requests[-1].conversation.messages
    assert "same arguments 3 times" in asked[-1].content
    for keep in range(1, len(entries), 2):
        again = make(["a", "a", "b", "a", "a"], crashed(entries, keep))
        assert (await again.resume("r")).answer == result.answer


@pytest.mark.parametrize("names", [["north"], "ab", [1, 2]], ids=str)
async def test_names_that_are_not_one_text_for_each_work_are_refused(
    names: Any,
) -> None:
    async def body(run: Run) -> object:
        async def work(branch: Run) -> str:
            return "never"

        return await run.gather(work, work, names=names)

    result, entries = await whole(body)

    assert isinstance(result.error, ConfigError)
    assert "names: must be a text for each of the 2 works" in str(result.error)
    assert branch_lines(entries) == []
