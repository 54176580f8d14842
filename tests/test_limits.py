"""Limits: reaching one is an outcome with what there is so far, and no engine gets past it."""

import asyncio
import itertools
from typing import Any

import pytest

from conversations import tool_messages
from journal_positions import cut_after
from loopwright import (
    Completion,
    ConfigError,
    LimitReached,
    Limits,
    LoopEngine,
    ProviderError,
    ReActEngine,
    Result,
    Run,
    Runtime,
    ToolCall,
    Usage,
    tool,
)
from loopwright.errors import Stuck
from loopwright.events import LimitHit, RunFinished
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from virtual_time import in_virtual_time


@tool(effect="read", repeatable=True)
async def look(what: str) -> str:
    """Look something up."""
    return f"{what} is blue"


def turns(count: int) -> list[Any]:
    return [call("look", what=f"thing {n}") for n in range(count)]


def looks(count: int) -> Completion:
    """Return a reply with so many calls."""
    return Completion(
        calls=tuple(ToolCall("look", {"what": f"thing {n}"}) for n in range(count))
    )


async def limited(
    script: list[Any], limits: Limits, **options: Any
) -> tuple[Result, ScriptedProvider, Runtime]:
    provider = ScriptedProvider(script)
    runtime = Runtime(provider, tools=[look], limits=limits, **options)
    return await ReActEngine(runtime).run("Go."), provider, runtime


# --- what is no limit ---


@pytest.mark.parametrize("value", [0, -1, "many", "15", True])
@pytest.mark.parametrize(
    "field",
    ["max_iterations", "max_llm_calls", "max_tokens", "timeout", "tool_timeout", "model_timeout", "max_concurrent_tools",
     "max_output_chars", "context_tokens", "max_calls_per_turn"],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"Limits: {field}: .*got {value!r}"):
        Limits(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tool_calls", -1), ("max_cost", -0.01), ("timeout", float("nan")), ("max_cost", "1.5"), ("max_cost", True),
     ("timeout", float("inf")), ("max_cost", float("inf")), ("max_tool_calls", 2.0),
     ("best_effort", "no"), ("best_effort", 0)],
)  # fmt: skip
def test_a_limit_below_nothing_or_of_another_type_is_refused_by_name(
    field: str, value: Any
) -> None:
    with pytest.raises(ConfigError, match=f"Limits: {field}"):
        Limits(**{field: value})


def test_nothing_at_all_is_a_limit_for_tools_and_cost() -> None:
    assert (Limits(max_tool_calls=0).max_tool_calls, Limits(max_cost=0).max_cost) == (
        0,
        0,
    )


def test_an_unknown_limit_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError,
        match=r"max_steps: Limits has no such option .*max_iterations, max_llm_calls",
    ):
        Limits(max_steps=3)  # type: ignore[call-arg]


def test_every_limit_can_be_lifted() -> None:
    lifted = Limits(
        max_iterations=None, max_llm_calls=None, max_tool_calls=None, max_tokens=None, max_cost=None, timeout=None,
        tool_timeout=None, max_concurrent_tools=None, max_output_chars=None, context_tokens=None,
    )  # fmt: skip

    result = ReActEngine(
        Runtime(ScriptedProvider([*turns(30), "done"]), tools=[look], limits=lifted)
    ).run_sync("Go.")

    assert (result.status, result.iterations) == ("completed", 31)


def test_the_defaults_are_those_of_the_design() -> None:
    assert Limits() == Limits(
        max_iterations=25, max_llm_calls=60, max_tool_calls=200, max_tokens=100_000, max_cost=None, timeout=300,
        tool_timeout=30, max_concurrent_tools=5, max_output_chars=50_000, context_tokens=None, best_effort=True,
    )  # fmt: skip


# --- each limit is an outcome ---


@pytest.mark.parametrize(
    ("limits", "llm_calls", "tool_calls"),
    [
        (Limits(max_iterations=2), 3, 2),
        (Limits(max_llm_calls=3), 3, 2),
        (Limits(max_tool_calls=2), 4, 2),
        (Limits(max_tokens=30), 3, 2),
    ],
    ids=["max_iterations", "max_llm_calls", "max_tool_calls", "max_tokens"],
)
async def test_a_limit_ends_the_run_with_the_best_answer_and_all_that_was_said(
    limits: Limits, llm_calls: int, tool_calls: int, request: pytest.FixtureRequest
) -> None:
    reason = request.node.callspec.id

    number = itertools.count()

    def script(asked: Any) -> Any:
        return (
            "As far as I know: blue."
            if asked.tool_choice == "none"
            else call("look", what=f"thing {next(number)}")
        )

    provider = ScriptedProvider(script)
    runtime = Runtime(provider, tools=[look], limits=limits)
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        reason,
        "As far as I know: blue.",
    )
    assert (result.llm_calls, result.tool_calls, len(provider.requests)) == (
        llm_calls,
        tool_calls,
        llm_calls,
    )
    assert result.usage == Usage(10 * llm_calls, 5 * llm_calls)
    assert tool_messages(result) == ["thing 0 is blue", "thing 1 is blue"]
    assert isinstance(result.error, LimitReached)
    assert result.error.limit == reason
    with pytest.raises(LimitReached):
        result.raise_for_status()
    entries = runtime.journal.read(result.run_id)
    assert [e.event.limit for e in entries if isinstance(e.event, LimitHit)] == [reason]
    last = entries[-1].event
    assert isinstance(last, RunFinished)
    assert (last.status, last.stop_reason, last.answer) == (
        "limit",
        reason,
        result.answer,
    )


async def test_the_best_answer_is_asked_for_without_tools_and_with_all_that_was_found() -> (
    None
):
    result, provider, _ = await limited([*turns(2), "blue"], Limits(max_iterations=2))

    last = provider.requests[-1]
    assert (result.answer, last.tool_choice) == ("blue", "none")
    assert [m.content for m in last.conversation if m.role == "tool"] == tool_messages(
        result
    )
    assert last.conversation.messages[-1].content.startswith(
        "There are no more steps left."
    )


async def test_the_run_s_time_is_a_limit_without_a_best_answer() -> None:
    clock = FakeClock()

    def slowly(request: Any) -> Any:
        clock.advance(61)
        return call("look", what="sky")

    result, provider, _ = await limited([slowly], Limits(timeout=60), clock=clock)

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "timeout",
        None,
    )
    assert len(provider.requests) == 1


async def test_a_model_that_answers_too_late_is_cut_off() -> None:
    class Slow(ScriptedProvider):
        async def complete(self, request: Any) -> Completion:
            await asyncio.sleep(30)
            return await super().complete(request)

    result = await ReActEngine(
        Runtime(Slow(["late"]), limits=Limits(timeout=0.05))
    ).run("Go.")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "timeout",
        None,
    )


async def test_cost_is_a_limit_without_a_best_answer() -> None:
    dear = Completion(
        calls=(call("look", what="sky"),),
        finish_reason="tool_calls",
        usage=Usage(10, 5, cost=0.02),
    )
    result, provider, _ = await limited([dear, dear], Limits(max_cost=0.04))

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_cost",
        None,
    )
    assert (len(provider.requests), result.usage.cost) == (2, pytest.approx(0.04))


async def test_nothing_to_spend_means_no_call() -> None:
    result, provider, _ = await limited([], Limits(max_cost=0))

    assert (result.status, result.stop_reason, provider.requests) == (
        "limit",
        "max_cost",
        [],
    )


async def test_best_effort_can_be_turned_off() -> None:
    result, provider, _ = await limited(
        turns(2), Limits(max_iterations=2, best_effort=False)
    )

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        None,
    )
    assert (len(provider.requests), tool_messages(result)) == (
        2,
        ["thing 0 is blue", "thing 1 is blue"],
    )


async def test_without_best_effort_no_call_is_held_back() -> None:
    result, provider, _ = await limited(
        [*turns(1), "done"], Limits(max_llm_calls=2, best_effort=False)
    )

    assert (result.status, result.answer, len(provider.requests)) == (
        "completed",
        "done",
        2,
    )


async def test_one_model_call_leaves_none_for_a_best_answer() -> None:
    result, provider, _ = await limited(turns(1), Limits(max_llm_calls=1))

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_llm_calls",
        None,
    )
    assert len(provider.requests) == 1


async def test_one_model_call_is_enough_for_an_answer() -> None:
    result, _, _ = await limited(["done"], Limits(max_llm_calls=1))

    assert (result.status, result.answer) == ("completed", "done")


@pytest.mark.parametrize(
    "line",
    [
        ProviderError("down", status=500),
        call("look", what="more"),
        Completion("?", problem="cannot be read"),
    ],
    ids=["an error", "a call", "unreadable"],
)
async def test_a_best_answer_that_fails_leaves_the_outcome_as_it_was(line: Any) -> None:
    result, _, _ = await limited([*turns(2), line], Limits(max_iterations=2))

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        None,
    )
    assert isinstance(result.error, LimitReached)


@pytest.mark.parametrize(
    "line",
    [ProviderError("down", status=500), call("look", what="more")],
    ids=["an error", "a call"],
)
async def test_the_same_holds_when_the_engine_asked_for_it(line: Any) -> None:
    provider = ScriptedProvider([*turns(2), line])
    result = await ReActEngine(Runtime(provider, tools=[look]), max_iterations=2).run(
        "Go."
    )

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        None,
    )


# --- an engine's own number of turns ---


async def test_an_engine_that_used_its_own_turns_ends_as_limit_with_its_best_answer() -> (
    None
):
    provider = ScriptedProvider([*turns(2), "blue"])
    result = await ReActEngine(Runtime(provider, tools=[look]), max_iterations=2).run(
        "Go."
    )

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        "blue",
    )
    assert (result.iterations, result.llm_calls, provider.requests[-1].tool_choice) == (
        2,
        3,
        "none",
    )
    with pytest.raises(LimitReached):
        result.raise_for_status()


async def test_an_engine_s_own_turns_cannot_exceed_the_run_s() -> None:
    provider = ScriptedProvider([*turns(2), "blue"])
    runtime = Runtime(provider, tools=[look], limits=Limits(max_iterations=2))
    result = await ReActEngine(runtime, max_iterations=10).run("Go.")

    assert (result.status, result.iterations, result.answer) == ("limit", 2, "blue")


async def test_no_best_answer_is_asked_for_by_an_engine_where_best_effort_is_off() -> (
    None
):
    provider = ScriptedProvider([*turns(1), "blue"])
    runtime = Runtime(provider, tools=[look], limits=Limits(best_effort=False))
    result = await ReActEngine(runtime, max_iterations=1).run("Go.")

    assert (result.status, result.answer, len(provider.requests)) == ("limit", None, 1)


async def test_a_best_answer_for_an_engine_is_within_max_llm_calls() -> None:
    provider = ScriptedProvider([*turns(1), "blue"])
    runtime = Runtime(provider, tools=[look], limits=Limits(max_llm_calls=1))
    result = await ReActEngine(runtime, max_iterations=1).run("Go.")

    assert (result.status, result.answer, len(provider.requests)) == ("limit", None, 1)


class Insists(LoopEngine):
    """Asks for its best answer again and again."""

    name = "insists"

    async def solve(self, run: Run) -> str:
        answer = ""
        for _ in range(10):
            answer = await run.best_answer(run.conversation)
        return answer


async def test_there_is_one_reserved_call_and_no_more() -> None:
    provider = ScriptedProvider(lambda request: "again")
    result = await Insists(Runtime(provider, limits=Limits(max_llm_calls=3))).run("Go.")

    assert len(provider.requests) <= 3
    assert result.status == "limit"


# --- no way past a limit ---


class Swallows(LoopEngine):
    """Swallows every signal and goes on."""

    name = "swallows"
    verbs: int = 3

    async def solve(self, run: Run) -> str:
        met: list[str] = []
        conversation = run.conversation
        for _ in range(self.verbs):
            try:
                proposal = await run.reason(conversation)
                observations = await run.act(await run.gate(proposal))
                conversation = conversation.observe(proposal, observations)
            except LimitReached as signal:
                met.append(signal.limit)
        try:
            await run.ask("Anything?")
        except LimitReached as signal:
            met.append(f"ask {signal.limit}")
        try:
            run.propose(call("look", what="sky"))
        except LimitReached as signal:
            met.append(f"propose {signal.limit}")
        return ", ".join(met)


@pytest.mark.parametrize("field", ["max_llm_calls", "max_tool_calls", "max_tokens"])
async def test_an_engine_that_swallows_a_limit_reaches_it_again_with_its_text_as_answer(
    field: str,
) -> None:
    limits = Limits(
        **{field: {"max_llm_calls": 2, "max_tool_calls": 1, "max_tokens": 15}[field]}
    )
    provider = ScriptedProvider(turns(2))
    result = await Swallows(Runtime(provider, tools=[look], limits=limits)).run("Go.")

    assert (result.status, result.stop_reason) == ("limit", field)
    assert result.answer == f"{field}, {field}, ask {field}, propose {field}"
    assert isinstance(result.error, LimitReached)


async def test_an_engine_that_swallows_the_end_of_its_iterations_meets_it_again() -> (
    None
):
    class Loops(LoopEngine):
        name = "loops"

        async def solve(self, run: Run) -> str:
            for _ in range(3):
                try:
                    for _ in run.iterations():
                        run.note({"turn": 1})
                except LimitReached:
                    continue
            try:
                await run.ask("More?")
            except LimitReached:
                return "met it again"
            return "got past it"

    result = await Loops(
        Runtime(ScriptedProvider(["never"]), limits=Limits(max_iterations=2))
    ).run("Go.")

    assert (result.status, result.answer) == ("limit", "met it again")


async def test_an_engine_with_a_bare_except_is_limited_too() -> None:
    class Hides(LoopEngine):
        name = "hides"

        async def solve(self, run: Run) -> str:
            for _ in range(20):
                try:
                    await run.ask("Again?")
                except Exception:  # noqa: BLE001 - this engine is the fault under test
                    continue
            return "I am done"

    provider = ScriptedProvider(lambda request: "yes")
    result = await Hides(Runtime(provider, limits=Limits(max_llm_calls=4))).run("Go.")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_llm_calls",
        "I am done",
    )
    assert len(provider.requests) == 3


async def test_a_stuck_run_that_is_swallowed_stays_stuck() -> None:
    @tool
    async def same() -> str:
        """Do the same."""
        return "same"

    class Deaf(LoopEngine):
        name = "deaf"

        async def solve(self, run: Run) -> str:
            conversation = run.conversation
            for _ in range(9):
                try:
                    proposal = await run.reason(conversation)
                    conversation = conversation.observe(
                        proposal, await run.act(await run.gate(proposal))
                    )
                except Stuck:
                    continue
            return "whatever"

    provider = ScriptedProvider(lambda request: call("same"))
    result = await Deaf(Runtime(provider, tools=[same])).run("Go.")

    assert (result.status, result.stop_reason, result.answer) == (
        "stuck",
        "repeated_action",
        "whatever",
    )
    assert len(provider.requests) == 5


# --- what counts ---


async def test_attempts_that_fail_take_no_place() -> None:
    down = ProviderError("down", status=503, retryable=True)
    limits = Limits(max_llm_calls=1, best_effort=False)
    result, provider, _ = await limited([down, down, "done"], limits, clock=FakeClock())

    assert (result.status, result.llm_calls, len(provider.requests)) == (
        "completed",
        1,
        3,
    )


@in_virtual_time
async def test_a_model_that_does_not_answer_in_its_time_is_asked_again() -> None:
    class Slow(ScriptedProvider):
        async def complete(self, request: Any) -> Completion:
            reply = await super().complete(request)
            await asyncio.sleep(0 if len(self.requests) == 2 else 30)
            return reply

    provider = Slow(["late", "in time"])
    limits = Limits(model_timeout=0.05)
    result = await ReActEngine(Runtime(provider, limits=limits)).run("Go.")

    assert (result.status, result.answer, provider.requests[0].timeout) == (
        "completed",
        "in time",
        0.05,
    )


async def test_branches_share_the_budget() -> None:
    class Branches(LoopEngine):
        name = "branches"

        async def solve(self, run: Run) -> str:
            async def ask(branch: Run) -> str:
                return await branch.ask("One?")

            return " ".join(await run.gather(*[ask] * 10))

    provider = ScriptedProvider(lambda request: "yes")
    result = await Branches(Runtime(provider, limits=Limits(max_llm_calls=4))).run(
        "Go."
    )

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_llm_calls",
        "yes",
    )
    assert (len(provider.requests), result.llm_calls) == (4, 4)


async def test_tool_calls_at_the_same_time_share_the_budget() -> None:
    ran: list[str] = []

    @tool
    async def send(what: str) -> str:
        """Send."""
        ran.append(what)
        await asyncio.sleep(0)
        return "sent"

    turn = [call("send", what=what) for what in "abcdef"]
    provider = ScriptedProvider([turn, "done"])
    result = await ReActEngine(
        Runtime(provider, tools=[send], limits=Limits(max_tool_calls=3))
    ).run("Go.")

    assert (result.status, result.stop_reason) == ("limit", "max_tool_calls")
    assert (ran, result.tool_calls) == (["a", "b", "c"], 3)


async def test_a_child_engine_spends_the_same_budget() -> None:
    class Parent(LoopEngine):
        name = "parent"

        async def solve(self, run: Run) -> str:
            child = await run.delegate(ReActEngine(self.runtime), run.task)
            return f"{child.status} {child.stop_reason} {child.answer}"

    provider = ScriptedProvider([*turns(3), "best"])
    result = await Parent(
        Runtime(provider, tools=[look], limits=Limits(max_llm_calls=4))
    ).run("Go.")

    assert (result.status, result.answer) == ("limit", "limit max_llm_calls None")
    assert len(provider.requests) == 3


async def test_usage_that_a_provider_does_not_tell_counts_as_an_estimate() -> None:
    silent = Completion("done", answer="done")
    result, _, _ = await limited([silent], Limits())

    assert result.usage.estimated
    assert (result.usage.input_tokens or 0) > 0
    assert (result.usage.output_tokens or 0) > 0


async def test_an_estimate_reaches_the_limit_of_tokens_too() -> None:
    silent = Completion(
        calls=(call("look", what="x" * 400),), finish_reason="tool_calls"
    )
    result, _, _ = await limited([silent, silent, "blue"], Limits(max_tokens=150))

    assert (result.status, result.stop_reason) == ("limit", "max_tokens")
    assert result.usage.estimated


async def test_spent_budget_survives_a_crash() -> None:
    limits = Limits(max_llm_calls=4)
    before = Runtime(ScriptedProvider([*turns(3), "blue"]), tools=[look], limits=limits)
    entries = before.journal.read((await ReActEngine(before).run("Go.")).run_id)

    journal = crashed(entries, cut_after(entries, "tool_finished", 2))
    provider = ScriptedProvider([call("look", what="more"), "blue"])
    after = Runtime(provider, tools=[look], limits=limits, journal=journal)
    result = await ReActEngine(after).resume(entries[0].run_id)

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_llm_calls",
        "blue",
    )
    assert (result.llm_calls, result.usage, len(provider.requests)) == (
        4,
        Usage(40, 20),
        2,
    )


async def test_calls_of_one_turn_beyond_the_limit_are_rejected_and_may_come_again() -> (
    None
):
    first = looks(4)
    script = [first, call("look", what="thing 3"), "done"]
    result, _, _ = await limited(script, Limits(max_calls_per_turn=3))

    told = tool_messages(result)
    assert told[:3] == [f"thing {n} is blue" for n in range(3)]
    assert told[3] == (
        "At most 3 calls are made in one turn; propose this one again if it is still wanted."
    )
    assert told[4:] == ["thing 3 is blue"]
    assert result.answer == "done"


async def test_without_a_limit_of_a_turn_all_its_calls_are_made() -> None:
    many = looks(70)
    bounded, _, _ = await limited([many, "done"], Limits())
    free, _, _ = await limited([many, "done"], Limits(max_calls_per_turn=None))

    blue = [
        sum("is blue" in text for text in tool_messages(r)) for r in (bounded, free)
    ]
    assert blue == [50, 70]
