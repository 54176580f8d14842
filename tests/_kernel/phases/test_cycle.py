"""The door at run time: phases in order, values that cannot be forged, one verb at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from function_engine import FunctionEngine
from loopwright import (
    Cleared,
    Completion,
    Conversation,
    Limits,
    Message,
    Observation,
    Permit,
    Proposal,
    Request,
    Result,
    Run,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.errors import PhaseError
from loopwright.testing import FakeClock, ScriptedProvider, call
from sample_tools import RAN


@tool(effect="write")
async def pay(amount: int) -> str:
    """Pay."""
    RAN.append({"amount": amount})
    return "paid"


Body = Callable[[Run], Awaitable[str]]


async def through(body: Body, script: Any = None, **options: Any) -> Result:
    script = script if script is not None else [call("pay", amount=1), "done"]
    return await FunctionEngine(
        Runtime(ScriptedProvider(script), tools=[pay], **options), body=body
    ).run("go")


async def raised_by(body: Body, **options: Any) -> PhaseError:
    result = await through(body, **options)
    assert (result.status, result.stop_reason) == ("failed", "engine_error")
    assert isinstance(result.error, PhaseError)
    assert result.answer is None
    return result.error


async def test_acting_twice_on_one_cleared_is_refused_and_the_tool_ran_once() -> None:
    async def body(run: Run) -> str:
        cleared = await run.gate(await run.reason(run.conversation))
        await run.act(cleared)
        await run.act(cleared)
        return "never"

    assert "acted on already" in str(await raised_by(body))
    assert RAN == [{"amount": 1}]


async def test_an_expired_permit_is_refused() -> None:
    clock = FakeClock()

    async def body(run: Run) -> str:
        cleared = await run.gate(await run.reason(run.conversation))
        clock.advance(61)
        await run.act(cleared)
        return "never"

    assert "expired" in str(await raised_by(body, clock=clock))
    assert RAN == []


async def test_a_permit_that_is_a_minute_old_still_holds() -> None:
    clock = FakeClock()

    async def body(run: Run) -> str:
        cleared = await run.gate(await run.reason(run.conversation))
        clock.advance(59)
        return (await run.act(cleared))[0].content

    assert (await through(body, clock=clock)).answer == "paid"


@tool(effect="write")
async def pay_out(amount: int) -> str:
    """Pay another account."""
    RAN.append({"out": amount})
    return "paid out"


OTHER_CALL = ToolCall("pay_out", {"amount": 1}, "c")
LARGER_CALL = ToolCall("pay", {"amount": 1_000_000}, "c")
WRONG_NAME = "the permit of pay is not for pay_out: gate a new proposal"
CHANGED = (
    "the arguments of pay were changed after the gate: let a gate return Modify instead"
)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("call", OTHER_CALL, WRONG_NAME),
        ("unredacted", OTHER_CALL, WRONG_NAME),
        ("tool", pay_out, WRONG_NAME),
        ("tool_name", "other", "the permit of other is not for pay: gate a new proposal"),
        ("call", LARGER_CALL, CHANGED),
        ("unredacted", LARGER_CALL, CHANGED),
        ("expires", -1.0, "the permit of pay has expired: act right after the gate"),
    ],
)  # fmt: skip
async def test_permit_that_differs_from_what_was_decided_runs_nothing(
    field: str, value: object, message: str
) -> None:
    async def body(run: Run) -> str:
        cleared = await run.gate(await run.reason(run.conversation))
        vars(cleared.permits[0])[field] = value
        await run.act(cleared)
        return "never"

    clock = FakeClock(wall=1_700_000_000.0)
    assert str(await raised_by(body, clock=clock)) == message
    assert RAN == []


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("policy_version", "old", "the policy changed since pay was allowed: gate a new proposal"),
        ("approved_until", 1_700_000_000.0, "the approval of pay has expired"),
        ("approved_until", 0.5, "the approval of pay has expired"),
    ],
)  # fmt: skip
async def test_permit_whose_policy_or_approval_is_over_makes_no_call(
    field: str, value: object, reason: str
) -> None:
    async def body(run: Run) -> str:
        cleared = await run.gate(await run.reason(run.conversation))
        vars(cleared.permits[0])[field] = value
        return (await run.act(cleared))[0].content

    result = await through(body, clock=FakeClock(wall=1_700_000_000.0))
    assert result.answer == (
        f"pay was not run, propose it again if it is still wanted: {reason}"
    )
    assert RAN == []


async def test_a_permit_of_just_a_minute_still_holds() -> None:
    clock = FakeClock()

    async def body(run: Run) -> str:
        cleared = await run.gate(await run.reason(run.conversation))
        clock.advance(60)
        return (await run.act(cleared))[0].content

    assert (await through(body, clock=clock)).answer == "paid"


async def test_arguments_altered_after_the_gate_are_refused() -> None:
    async def body(run: Run) -> str:
        cleared = await run.gate(await run.reason(run.conversation))
        arguments: Any = cleared.permits[0].call.arguments
        arguments["amount"] = 1_000_000
        await run.act(cleared)
        return "never"

    assert "changed after the gate" in str(await raised_by(body))
    assert RAN == []


async def test_the_call_runs_as_decided_although_the_gate_changes_its_arguments_later() -> (
    None
):
    kept: list[Any] = []

    class Sly:
        async def evaluate(self, action: Any, state: Any) -> Any:
            from loopwright import Allow

            kept.append(action.arguments)
            return Allow()

    async def body(run: Run) -> str:
        cleared = await run.gate(await run.reason(run.conversation))
        kept[0]["amount"] = 1_000_000
        return (await run.act(cleared))[0].content

    assert (await through(body, gate=Sly())).answer == "paid"
    assert RAN == [{"amount": 1}]


@pytest.mark.parametrize("kind", [Cleared, Proposal, Permit])
def test_phase_values_cannot_be_made_by_hand(kind: Any) -> None:
    with pytest.raises(PhaseError, match="cannot be made by hand"):
        kind()
    with pytest.raises(PhaseError, match="cannot be made by hand"):
        kind(object())


async def test_a_used_permit_runs_nothing_even_inside_the_latest_cleared() -> None:
    async def body(run: Run) -> str:
        first = await run.gate(run.propose(call("pay", amount=1)))
        await run.act(first)
        latest = await run.gate(run.propose(call("pay", amount=2)))
        vars(latest)["decisions"] = first.decisions
        await run.act(latest)
        return "paid twice"

    error = await raised_by(body)

    assert (
        str(error)
        == "the permit of pay was used or is not of this run: gate a new proposal"
    )
    assert RAN == [{"amount": 1}]


async def test_a_forged_cleared_is_not_acted_on() -> None:
    async def body(run: Run) -> str:
        cleared = await run.gate(await run.reason(run.conversation))
        forged: Any = Cleared.issue(
            decisions=cleared.decisions, key=cleared.key, issuer=cleared.issuer
        )
        await run.act(forged)
        return "never"

    await raised_by(body)
    assert RAN == []


async def test_a_permit_that_runs_out_while_its_call_waits_for_a_place_is_not_used() -> (
    None
):
    clock = FakeClock()

    @tool(effect="write")
    async def slow(n: int) -> str:
        """Take a minute and more."""
        RAN.append({"n": n})
        clock.advance(70)
        return "done"

    async def body(run: Run) -> str:
        proposal = run.propose(call("slow", n=1), call("slow", n=2))
        return " | ".join(o.content for o in await run.act(await run.gate(proposal)))

    limits = Limits(max_concurrent_tools=1)
    runtime = Runtime(ScriptedProvider([]), tools=[slow], clock=clock, limits=limits)
    result = await FunctionEngine(runtime, body=body).run("go")

    assert RAN == [{"n": 1}]
    assert (result.answer or "").startswith(
        "done | slow was not run, propose it again if it is still wanted"
    )


async def test_skipping_the_gate_names_the_cure() -> None:
    async def body(run: Run) -> str:
        proposal: Any = await run.reason(run.conversation)
        await run.act(proposal)
        return "never"

    assert "run.gate(proposal)" in str(await raised_by(body))


async def test_gating_a_conversation_names_the_cure() -> None:
    async def body(run: Run) -> str:
        conversation: Any = run.conversation
        await run.gate(conversation)
        return "never"

    assert "run.reason(conversation)" in str(await raised_by(body))


async def test_a_proposal_is_gated_once() -> None:
    async def body(run: Run) -> str:
        proposal = await run.reason(run.conversation)
        await run.gate(proposal)
        await run.gate(proposal)
        return "never"

    assert "gated already" in str(await raised_by(body))


async def test_an_older_proposal_is_not_gated() -> None:
    async def body(run: Run) -> str:
        first = await run.reason(run.conversation)
        await run.reason(run.conversation)
        await run.gate(first)
        return "never"

    await raised_by(body)


async def test_a_proposal_of_another_scope_is_not_gated() -> None:
    async def body(run: Run) -> str:
        async def branch(inner: Run) -> Proposal:
            return await inner.reason(inner.conversation)

        (proposal,) = await run.gather(branch)
        await run.gate(proposal)
        return "never"

    await raised_by(body)


async def test_two_verbs_in_flight_in_one_scope_are_refused() -> None:
    async def body(run: Run) -> str:
        await asyncio.gather(run.ask("one"), run.ask("two"))
        return "never"

    class Slow(ScriptedProvider):
        async def complete(self, request: Request) -> Completion:
            await asyncio.sleep(0.01)
            return await super().complete(request)

    result = await FunctionEngine(Runtime(Slow(["one", "two"])), body=body).run("go")
    assert isinstance(result.error, PhaseError)
    assert "ask is in flight" in str(result.error)
    assert "run.gather" in str(result.error)


async def test_a_turn_without_calls_may_pass_gate_and_act() -> None:
    async def body(run: Run) -> str:
        observations = await run.act(await run.gate(run.propose()))
        return f"{len(observations)} observations"

    assert (await through(body)).answer == "0 observations"


async def test_an_engine_can_propose_calls_of_its_own_and_they_pass_the_same_gate() -> (
    None
):
    async def body(run: Run) -> str:
        proposal = run.propose(ToolCall("pay", {"amount": 7}), thought="I pay")
        observations = await run.act(await run.gate(proposal))
        return run.conversation.observe(proposal, observations).messages[-1].content

    assert (await through(body)).answer == "paid"
    assert RAN == [{"amount": 7}]


def test_phase_values_are_read_only() -> None:
    proposal = Proposal.issue(
        thought="", calls=(), answer="x", delivered=(), key="0", issuer=None
    )

    with pytest.raises(PhaseError, match="read-only"):
        proposal.answer = "y"


def test_observe_wants_one_observation_for_each_call_in_call_order() -> None:
    a, b = ToolCall("f", {}, "a"), ToolCall("f", {}, "b")
    proposal = Proposal.issue(
        thought="t", calls=(a, b), answer=None, delivered=(), key="0", issuer=None
    )
    conversation = Conversation.of("go")
    seen = [Observation(a, "ok", "1"), Observation(b, "ok", "2")]

    assert [m.content for m in conversation.observe(proposal, seen).messages] == [
        "go",
        "t",
        "1",
        "2",
    ]
    for wrong in (seen[:1], seen[::-1], [*seen, seen[0]], []):
        with pytest.raises(PhaseError, match="exactly their own observations"):
            conversation.observe(proposal, wrong)


def test_a_conversation_keeps_every_call_with_its_result() -> None:
    asking = Message("assistant", "", (ToolCall("f", {}, "a"),))
    result = Message("tool", "1", call_id="a")

    assert len(Conversation([asking, result])) == 2
    for wrong in (
        [asking],
        [result],
        [asking, Message("user", "?"), result],
        [asking, result, result],
    ):
        with pytest.raises(PhaseError):
            Conversation(wrong)
