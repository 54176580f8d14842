"""What ends a run ends it the same when it is resumed: limits, waiting, failed effects, aborts, dead journals."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from function_engine import FunctionEngine
from journal_positions import cut_after
from loopwright import (
    Allow,
    AllowAll,
    Ask,
    ConfigError,
    Deny,
    DenyAll,
    LimitReached,
    Limits,
    MemoryJournal,
    Modify,
    ProviderError,
    ReActEngine,
    ReplayDivergence,
    Result,
    Run,
    RunBusy,
    Runtime,
    Suspend,
    tool,
)
from loopwright.errors import Denied, EngineError, PhaseError
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from sample_tools import RAN, wipe


@tool(effect="write")
async def send(what: str) -> str:
    """Send."""
    RAN.append(what)
    return "sent"


def parts(script: Any = (), **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(script), tools=[send, wipe], **options)


async def whole(
    body: Any, script: Any = (), **options: Any
) -> tuple[Result, list[Any]]:
    runtime = parts(script, **options)
    result = await FunctionEngine(runtime, body=body).run("go", run_id="r")
    return result, runtime.journal.read("r")


async def resumed(
    body: Any, entries: list[Any], keep: int, script: Any = (), **options: Any
) -> Result:
    return await FunctionEngine(
        parts(script, journal=crashed(entries, keep), **options), body=body
    ).resume("r")


# --- limits and branches ---


async def asks(inner: Run) -> str:
    said: list[str] = []
    try:
        for number in range(9):
            said.append(await inner.ask(f"{number}"))
    except LimitReached:
        said.append("limit")
    return " ".join(said)


async def test_a_limit_that_branches_met_is_met_at_the_same_places_again() -> None:
    async def body(run: Run) -> str:
        return str(await run.gather(asks, asks))

    limits = Limits(max_llm_calls=6)
    result, entries = await whole(
        body, lambda request: f"k{request.conversation.task}", limits=limits
    )
    again = await resumed(body, entries, len(entries) - 1, (), limits=limits)

    assert result.status == "limit"
    assert (again.answer, again.status, again.llm_calls) == (
        result.answer,
        "limit",
        result.llm_calls,
    )


async def test_nothing_new_starts_behind_a_recorded_limit() -> None:
    async def body(run: Run) -> str:
        reached = asyncio.Event()

        async def asking(inner: Run) -> str:
            said = await asks(inner)
            reached.set()
            return said

        async def sending(inner: Run) -> str:
            await reached.wait()
            try:
                await inner.act(
                    await inner.gate(inner.propose(call("send", what="late")))
                )
            except LimitReached:
                return "not sent"
            return "sent"

        return str(await run.gather(asking, sending))

    limits = Limits(max_llm_calls=3)
    result, entries = await whole(body, lambda request: "k", limits=limits)
    assert "not sent" in (result.answer or "")
    again = await resumed(
        body, entries, len(entries) - 1, lambda request: "k", limits=limits
    )

    assert (again.answer, RAN) == (result.answer, [])


async def test_an_iteration_limit_of_one_branch_is_not_its_siblings_affair() -> None:
    async def loops(inner: Run) -> str:
        turns = 0
        try:
            for turns in inner.iterations():  # noqa: B007 - the last number is what is wanted
                await inner.ask("more")
        except LimitReached:
            return f"{turns} turns"
        return "never"

    async def body(run: Run) -> str:
        return str(await run.gather(loops, loops))

    result, entries = await whole(
        body, lambda request: "k", limits=Limits(max_iterations=3)
    )
    again = await resumed(
        body, entries, len(entries) - 1, limits=Limits(max_iterations=3)
    )

    assert result.answer == again.answer == "['3 turns', '3 turns']"


async def test_an_engine_that_catches_the_limit_may_still_ask_for_its_best_answer() -> (
    None
):
    async def body(run: Run) -> str:
        try:
            for _ in run.iterations():
                await run.ask("more")
        except LimitReached:
            return await run.best_answer(run.conversation)
        return "never"

    result, _ = await whole(
        body, ["a", "b", "the best"], limits=Limits(max_iterations=2)
    )

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        "the best",
    )


async def test_no_tool_starts_after_the_run_was_told_to_stop_at_an_unknown_outcome() -> (
    None
):
    async def body(run: Run) -> str:
        await run.act(
            await run.gate(run.propose(call("send", what="1"), call("send", what="2")))
        )
        return "never"

    _, entries = await whole(body, limits=Limits(max_concurrent_tools=1))
    RAN.clear()
    result = await resumed(
        body, entries, cut_after(entries, "tool_started"), on_unknown="stop"
    )

    assert (result.stop_reason, RAN) == ("unknown_outcome", [])


# --- waiting ---


async def test_a_branch_that_swallows_its_waiting_does_not_lose_the_question() -> None:
    async def waits(inner: Run) -> str:
        try:
            await inner.act(await inner.gate(inner.propose(call("wipe"))))
        except Exception:  # noqa: BLE001 - an engine that swallows what it should not
            return "swallowed"
        return "never"

    async def body(run: Run) -> str:
        return str(await run.gather(waits))

    result, _ = await whole(body, approver=Suspend())

    assert (result.status, [q.tool for q in result.pending]) == ("waiting", ["wipe"])


async def test_the_time_that_a_person_took_is_no_active_time_after_a_resume_either() -> (
    None
):
    clock = FakeClock()

    async def slow(action: Any, question: str) -> bool:
        clock.advance(400)
        return True

    async def body(run: Run) -> str:
        await run.act(await run.gate(run.propose(call("wipe"))))
        return await run.ask("and?")

    _, entries = await whole(body, ["a"], approver=slow, clock=clock)
    result = await resumed(
        body,
        entries,
        cut_after(entries, "tool_finished"),
        ["a"],
        approver=slow,
        clock=clock,
    )

    assert result.status == "completed"


# --- delegation and the engine's own effects ---


class Gate:
    def __init__(self, decide: Any, version: str = "test-1") -> None:
        self.decide, self.version = decide, version

    async def evaluate(self, action: Any, state: Any) -> Any:
        return self.decide(action)


async def test_a_delegation_is_asked_of_both_gates_and_cannot_be_modified() -> None:
    async def body(run: Run) -> str:
        return str((await run.delegate(ReActEngine(child), "secret")).answer)

    child = parts(["a"], gate=DenyAll())
    denied, _ = await whole(body)
    child = parts(["a"])
    changed, _ = await whole(
        body,
        gate=Gate(
            lambda a: Modify({"engine": "react", "task": "harmless"}, "no secrets")
        ),
    )

    for result in (denied, changed):
        assert (result.status, result.stop_reason, type(result.error)) == (
            "failed",
            "denied",
            Denied,
        )


async def test_what_the_parent_s_gate_asks_is_answered_by_the_parent_s_approver() -> (
    None
):
    asked: list[str] = []

    async def yes(action: Any, question: str) -> bool:
        return True

    async def no(action: Any, question: str) -> bool:
        asked.append(action.tool)
        return False

    async def body(run: Run) -> str:
        return str((await run.delegate(ReActEngine(child), "go")).answer)

    child = parts([call("wipe"), "done"], gate=AllowAll(), approver=yes)
    gate = Gate(lambda action: Ask("sure?") if action.tool == "wipe" else Allow())
    result, _ = await whole(body, gate=gate, approver=no)

    assert (result.answer, asked, RAN) == ("done", ["wipe"], [])


async def test_a_delegation_that_has_begun_is_not_gated_again() -> None:
    async def body(run: Run) -> str:
        return str((await run.delegate(ReActEngine(parts(["a"])), "go")).answer)

    _, entries = await whole(body)
    strict = Gate(lambda action: Deny("not any more"), "test-2")
    result = await resumed(
        body, entries, cut_after(entries, "child_finished"), gate=strict
    )

    assert result.status == "completed"


class Typed(BaseModel):
    n: int


EFFECTS: dict[str, tuple[Any, Any]] = {
    "crashes": (int, lambda: 1 // 0),
    "does not fit": (Typed, lambda: "text"),
    "cannot be written": (bytes, lambda: b"\xff"),
}


@pytest.mark.parametrize("case", EFFECTS)
async def test_an_effect_that_fails_is_not_done_again_and_fails_the_same(
    case: str,
) -> None:
    into, value = EFFECTS[case]

    async def work() -> Any:
        RAN.append("worked")
        return value()

    async def body(run: Run) -> str:
        try:
            await run.effect("work", work, into=into)
        except (ConfigError, EngineError) as error:
            return f"{type(error).__name__}: {error} {await run.ask('and?')}"
        return "never"

    result, entries = await whole(body, ["a"])
    again = await resumed(body, entries, cut_after(entries, "model_requested"), ["a"])

    assert result.status == "completed"
    assert result.answer == again.answer
    assert RAN == ["worked"]


async def test_a_denied_effect_is_an_outcome() -> None:
    async def body(run: Run) -> str:
        async def work() -> int:
            return 1

        try:
            await run.effect("work", work, into=int)
        except Denied as error:
            return f"{error} {await run.ask('and?')}"
        return "never"

    result, entries = await whole(body, ["a"], gate=DenyAll())
    again = await resumed(
        body, entries, cut_after(entries, "model_requested"), ["a"], gate=AllowAll()
    )

    assert result.answer == again.answer == "work: no tool may run here a"


async def test_an_effect_has_no_more_than_the_run_s_time() -> None:
    async def body(run: Run) -> str:
        async def work() -> int:
            await asyncio.sleep(60)
            return 1

        return str(await run.effect("work", work, into=int))

    result, _ = await whole(body, limits=Limits(timeout=0.05))

    assert (result.status, result.stop_reason) == ("limit", "timeout")


# --- what is recorded stays what it was ---


async def test_a_replayed_error_still_says_what_it_said() -> None:
    class Mine(ProviderError):
        pass

    async def body(run: Run) -> str:
        try:
            await run.ask("one")
        except ProviderError as error:
            return f"{error} {error.status} {error.retryable} {await run.ask('two')}"
        return "never"

    result, entries = await whole(body, [Mine("gone", status=410), "a"])
    again = await resumed(
        body, entries, cut_after(entries, "model_requested", 2), ["a"]
    )

    assert result.answer == again.answer == "gone 410 False a"


async def test_a_tool_that_changes_its_arguments_changes_nothing_else() -> None:
    @tool(effect="read")
    async def sort(record: dict[str, Any]) -> str:
        """Sort."""
        record["tags"].sort()
        return ",".join(record["tags"])

    script: Any = [call("sort", record={"tags": ["b", "a"]}), "done"]
    runtime = Runtime(ScriptedProvider(script), tools=[sort])
    result = await ReActEngine(runtime).run("go", run_id="r")
    entries = runtime.journal.read("r")
    again = Runtime(
        ScriptedProvider([]), tools=[sort], journal=crashed(entries, len(entries) - 1)
    )

    assert (await again.resume("r")).answer == result.answer == "done"
    assert result.conversation.messages[1].calls[0].arguments == {
        "record": {"tags": ["b", "a"]}
    }


@pytest.mark.parametrize("verb", ["gather", "delegate", "act"])
async def test_new_code_may_not_act_where_or_before_something_else_is_recorded(
    verb: str,
) -> None:
    async def sending(inner: Run) -> str:
        await inner.act(await inner.gate(inner.propose(call("send", what="new"))))
        return "sent"

    async def old(run: Run) -> str:
        await run.gather(ReadOnly.branch)
        return await run.ask("one") + await run.ask("two")

    async def new(run: Run) -> str:
        if verb == "act":
            await run.gather(sending)
        else:
            await run.gather(ReadOnly.branch)
        if verb == "gather":
            await run.gather(sending)
        elif verb == "delegate":
            await run.delegate(FunctionEngine(parts(), body=sending), "go")
        return await run.ask("one") + await run.ask("two")

    class ReadOnly:
        @staticmethod
        async def branch(inner: Run) -> str:
            return "nothing"

    _, entries = await whole(old, ["a", "b"])
    with pytest.raises(ReplayDivergence):
        await resumed(new, entries, len(entries) - 1, ["a", "b"])
    assert RAN == []


class Weather(BaseModel):
    degrees: int


async def test_a_crash_while_the_answer_is_put_into_form_is_no_divergence() -> None:
    runtime = parts(["seven", '{"degrees": 7}'])
    result = await ReActEngine(runtime).run("go", run_id="r", output=Weather)
    entries = runtime.journal.read("r")
    again = parts([], journal=crashed(entries, len(entries) - 1))

    assert (
        (await again.resume("r", output=Weather)).output
        == result.output
        == Weather(degrees=7)
    )


async def test_results_of_children_count_what_the_child_used_also_after_a_resume() -> (
    None
):
    async def body(run: Run) -> str:
        await run.ask("own")
        child = await run.delegate(
            ReActEngine(parts([call("send", what="x"), "done"])), "go"
        )
        return f"{child.llm_calls} {child.tool_calls} {child.usage.total_tokens} {await run.ask('own')}"

    result, entries = await whole(body, ["a", "b"])
    again = await resumed(body, entries, cut_after(entries, "child_finished"), ["b"])

    assert result.answer == again.answer == "2 1 30 b"


# --- handles and races ---


async def test_a_run_that_is_aborted_at_once_still_has_its_closing_entry() -> None:
    runtime = parts(["a"])
    async with ReActEngine(runtime).start("go", run_id="r"):
        pass

    assert runtime.journal.read("r")[-1].kind == "run_finished"


async def test_an_engine_that_swallows_everything_does_not_survive_an_abort() -> None:
    entered = asyncio.Event()

    async def body(run: Run) -> str:
        async def work() -> int:
            entered.set()
            await asyncio.sleep(60)
            return 1

        try:
            await run.effect("work", work, into=int)
        except BaseException:  # noqa: BLE001 - an engine that swallows what it should not
            return await run.ask("go on")
        return "never"

    runtime = parts(["never"])
    async with FunctionEngine(runtime, body=body).start("go") as handle:
        await entered.wait()
        result = await handle.abort()

    assert (result.status, runtime.provider.requests) == ("aborted", [])  # type: ignore[attr-defined]


async def test_a_host_that_is_cancelled_while_it_watches_aborts_the_run() -> None:
    entered = asyncio.Event()

    async def body(run: Run) -> str:
        async def work() -> int:
            entered.set()
            await asyncio.sleep(60)
            return 1

        return str(await run.effect("work", work, into=int))

    runtime = parts([])

    async def host() -> None:
        async with FunctionEngine(runtime, body=body).start("go", run_id="r") as handle:
            async for _ in handle:
                pass

    task = asyncio.ensure_future(host())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert runtime.journal.runs()[0].status == "aborted"


async def test_of_concurrent_resumes_one_works_and_the_others_raise_busy() -> None:
    _, entries = await whole(asks_once, ["a"])
    runtime = parts(["a", "a", "a"], journal=crashed(entries, 1))
    engine = FunctionEngine(runtime, body=asks_once)
    ended = await asyncio.gather(
        *(engine.resume("r") for _ in range(3)), return_exceptions=True
    )

    assert sorted(type(e).__name__ for e in ended) == [
        "Result",
        RunBusy.__name__,
        RunBusy.__name__,
    ]
    assert len(runtime.provider.requests) == 1  # type: ignore[attr-defined]


async def asks_once(run: Run) -> str:
    return await run.ask("one")


async def test_a_branch_is_over_when_its_gather_is() -> None:
    kept: list[Run] = []

    async def keeps(inner: Run) -> str:
        kept.append(inner)
        return ""

    async def body(run: Run) -> str:
        await run.gather(keeps)
        return await kept[0].ask("still here?")

    result, _ = await whole(body, ["never"])

    assert isinstance(result.error, PhaseError)


async def test_the_best_effort_call_at_a_dead_journal_is_a_journal_error() -> None:
    class Dying(MemoryJournal):
        count = 0

        async def barrier(self, claim: Any) -> None:
            self.count += 1
            if self.count == 3:
                raise OSError("disk full")
            await super().barrier(claim)

    async def body(run: Run) -> str:
        for _ in run.iterations():
            await run.ask("more")
        return "never"

    result, _ = await whole(
        body, ["a", "b", "best"], journal=Dying(), limits=Limits(max_iterations=2)
    )

    assert (result.status, result.stop_reason) == ("failed", "journal_error")


# --- found later ---


async def test_a_caught_denial_of_a_delegation_does_not_keep_the_run_from_being_resumed() -> (
    None
):
    async def body(run: Run) -> str:
        try:
            await run.delegate(ReActEngine(parts([])), "go")
        except Denied as error:
            return f"{error} {await run.ask('and?')}"
        return "never"

    strict = Gate(
        lambda action: Deny("alone, please") if action.tool == "delegate" else Allow()
    )
    result, entries = await whole(body, ["a"], gate=strict)
    again = await resumed(body, entries, len(entries) - 1, gate=AllowAll())

    assert result.answer == again.answer == "delegate: alone, please a"


async def test_another_run_s_limit_inside_an_effect_does_not_end_this_run() -> None:
    async def body(run: Run) -> str:
        async def work() -> int:
            raise LimitReached("max_llm_calls")

        try:
            await run.effect("inner", work, into=int)
        except EngineError as error:
            return str(error)
        return "never"

    result, _ = await whole(body)

    assert (result.status, "LimitReached" in (result.answer or "")) == (
        "completed",
        True,
    )


async def test_on_unknown_stop_still_stops_when_the_unknown_outcome_is_recorded() -> (
    None
):
    async def body(run: Run) -> str:
        observations = await run.act(
            await run.gate(run.propose(call("send", what="1")))
        )
        return observations[0].status

    _, entries = await whole(body)
    told = await resumed(body, entries, cut_after(entries, "tool_started"))
    assert told.answer == "unknown"
    journal = crashed(entries, cut_after(entries, "tool_started"))
    await FunctionEngine(parts(journal=journal), body=body).resume("r")
    recorded = journal.read("r")
    result = await resumed(
        body, recorded, cut_after(recorded, "tool_finished"), on_unknown="stop"
    )

    assert result.stop_reason == "unknown_outcome"


async def test_an_approver_that_keeps_the_arguments_as_they_are_allows_the_call() -> (
    None
):
    async def edits(action: Any, question: str) -> Modify:
        return Modify(dict(action.arguments), "as it is")

    async def body(run: Run) -> str:
        return (await run.act(await run.gate(run.propose(call("wipe")))))[0].content

    result, _ = await whole(body, approver=edits)

    assert (result.answer, RAN) == ("gone", ["wiped"])


async def test_permits_live_from_when_the_whole_proposal_is_decided() -> None:
    clock = FakeClock()

    async def slow(action: Any, question: str) -> bool:
        clock.advance(90)
        return True

    async def busy(inner: Run) -> str:
        async def work() -> int:
            await asyncio.sleep(0.02)
            return 1

        return str(await inner.effect("work", work, into=int))

    async def asked(inner: Run) -> str:
        proposal = inner.propose(call("send", what="x"), call("wipe"))
        return " ".join(o.content for o in await inner.act(await inner.gate(proposal)))

    async def body(run: Run) -> str:
        return str(await run.gather(busy, asked))

    result, _ = await whole(body, approver=slow, clock=clock)

    assert result.answer == "['1', 'sent gone']"


async def test_an_abort_is_what_an_aborted_run_reports_although_the_engine_swallowed_it() -> (
    None
):
    entered = asyncio.Event()

    async def body(run: Run) -> str:
        async def work() -> int:
            entered.set()
            await asyncio.sleep(60)
            return 1

        try:
            await run.effect("work", work, into=int)
        except asyncio.CancelledError:
            return "I go on"
        return "never"

    async with FunctionEngine(parts(), body=body).start("go") as handle:
        await entered.wait()
        result = await handle.abort()

    assert (result.status, result.answer, type(result.error).__name__) == (
        "aborted",
        "I go on",
        "Aborted",
    )


async def test_no_call_starts_when_the_barrier_of_its_sibling_failed() -> None:
    class Flaky(MemoryJournal):
        count = 0

        async def barrier(self, claim: Any) -> None:
            self.count += 1
            this = self.count
            await asyncio.sleep(0.01 * this)
            if this == 1:
                raise OSError("disk full")
            await super().barrier(claim)

    async def body(run: Run) -> str:
        await run.act(
            await run.gate(run.propose(call("send", what="1"), call("send", what="2")))
        )
        return "never"

    result, _ = await whole(body, journal=Flaky())

    assert (result.stop_reason, RAN) == ("journal_error", [])


async def test_a_policy_that_changed_since_the_gate_is_noticed_at_the_call() -> None:
    gate = Gate(lambda action: Allow())

    async def body(run: Run) -> str:
        cleared = await run.gate(run.propose(call("send", what="x")))
        gate.version = "test-2"
        [observation] = await run.act(cleared)
        return f"{observation.status}: {observation.content}"

    result, _ = await whole(body, gate=gate)

    assert str(result.answer).startswith(
        "rejected: send was not run, propose it again if it is still wanted: the policy"
    )
    assert RAN == []


async def test_a_child_that_has_ended_does_nothing_more() -> None:
    async def old(run: Run) -> str:
        return await run.ask("one")

    async def new(run: Run) -> str:
        said = await run.ask("one")
        await run.act(await run.gate(run.propose(call("send", what="new"))))
        return said

    def body(child: Any) -> Any:
        async def delegates(run: Run) -> str:
            return str(
                (
                    await run.delegate(FunctionEngine(parts(["a"]), body=child), "go")
                ).answer
            )

        return delegates

    _, entries = await whole(body(old))
    with pytest.raises(ReplayDivergence):
        await resumed(body(new), entries, cut_after(entries, "child_finished"))
    assert RAN == []


async def test_a_cancellation_that_comes_while_the_run_closes_comes_too_late() -> None:
    closing = asyncio.Event()

    class Slow(MemoryJournal):
        async def barrier(self, claim: Any) -> None:
            if claim.head_seq and self.runs()[0].status == "completed":
                closing.set()
                await asyncio.sleep(0.02)
            await super().barrier(claim)

    runtime = parts(["a"], journal=Slow())
    before = asyncio.all_tasks()
    run = asyncio.ensure_future(ReActEngine(runtime).run("go", run_id="r"))
    await closing.wait()
    for task in asyncio.all_tasks() - before - {run}:
        if "_work" in repr(task.get_coro()):
            task.cancel()

    assert (await run).status == "completed"
    assert runtime.journal.runs()[0].status == "completed"
