"""An intent without an outcome: made again, looked up, asked about, told to the model, or the end of the run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    AllowAll,
    ConfigError,
    Deny,
    ReActEngine,
    Result,
    Runtime,
    Suspend,
    Tool,
    ToolContext,
    tool,
)
from loopwright.errors import UnknownRun
from loopwright.events import Entry, ToolFinished, UnknownOutcomeResolved
from loopwright.gates import Action, InstantGate, PolicyState
from loopwright.testing import ScriptedProvider, call, crashed
from loopwright.tools import CallCompleted, CallNotExecuted, OutcomeUnknown

PAID: list[str] = []
Lookup = Callable[[ToolContext[Any]], Any]


@pytest.fixture(autouse=True)
def _nobody_paid() -> None:
    PAID.clear()


def payment(lookup: Lookup | None = None, effect: Any = "write") -> Tool:
    @tool(effect=effect, lookup=lookup)
    async def pay(ctx: ToolContext[Any], amount: int) -> str:
        """Pay."""
        PAID.append(f"{amount} {ctx.idempotency_key}")
        return f"paid {amount}"

    return pay


async def begun(pay: Tool) -> list[Entry]:
    """The journal of a run that died when its payment had begun."""
    parts = Runtime(ScriptedProvider([call("pay", amount=5), "done"]), tools=[pay])
    await ReActEngine(parts).run("Pay.", run_id="r")
    entries = parts.journal.read("r")
    PAID.clear()
    return entries[: cut_after(entries, "tool_started")]


async def taken_up(pay: Tool, **options: Any) -> Runtime:
    entries = await begun(pay)
    return Runtime(
        ScriptedProvider(["done"]),
        tools=[pay],
        journal=crashed(entries, len(entries)),
        **options,
    )


def told(parts: Runtime) -> list[tuple[str, str]]:
    events = [entry.event for entry in parts.journal.read("r")]
    return [
        (event.status, event.content)
        for event in events
        if isinstance(event, ToolFinished)
    ]


def resolved(parts: Runtime) -> list[tuple[str, str, str]]:
    events = [entry.event for entry in parts.journal.read("r")]
    return [
        (event.by, event.verdict, event.result)
        for event in events
        if isinstance(event, UnknownOutcomeResolved)
    ]


def answering(value: Any) -> Lookup:
    async def look(ctx: ToolContext[Any]) -> Any:
        PAID.append(f"looked up {ctx.idempotency_key} {dict(ctx.arguments)}")
        if isinstance(value, BaseException):
            raise value
        return value

    return look


LOOKED = "looked up r:0#0 {'amount': 5}"


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_repeatable_call_is_made_again_with_the_same_key_and_no_lookup(
    effect: Any,
):
    parts = await taken_up(payment(answering(CallCompleted("no")), effect))
    await ReActEngine(parts).resume("r")

    assert (PAID, told(parts)) == (["5 r:0#0"], [("ok", "paid 5")])


async def test_a_payment_that_its_tool_finds_is_not_made_again():
    parts = await taken_up(payment(answering(CallCompleted("paid 5 before"))))
    result = await ReActEngine(parts).resume("r")

    assert (PAID, told(parts), result.answer) == (
        [LOOKED],
        [("ok", "paid 5 before")],
        "done",
    )
    assert resolved(parts) == [("lookup", "done", "paid 5 before")]


async def test_a_payment_that_its_tool_knows_was_not_made_is_made_with_the_same_key():
    parts = await taken_up(payment(answering(CallNotExecuted())))
    await ReActEngine(parts).resume("r")

    assert (PAID, told(parts)) == ([LOOKED, "5 r:0#0"], [("ok", "paid 5")])


@pytest.mark.parametrize(
    "found",
    [OutcomeUnknown(), None, "paid", OSError("the bank is closed"), SystemExit(1)],
)
async def test_a_look_up_without_a_clear_word_leaves_it_unknown(found: Any):
    parts = await taken_up(payment(answering(found)))
    await ReActEngine(parts).resume("r")

    assert PAID == [LOOKED]
    assert [status for status, _ in told(parts)] == ["unknown"]
    assert resolved(parts) == [("lookup", "unknown", "")]


async def test_a_look_up_that_hangs_is_left_after_the_time_of_its_tool():
    async def hang(ctx: ToolContext[Any]) -> Any:
        await asyncio.sleep(60)

    @tool(lookup=hang, timeout=0.01)
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    parts = await taken_up(pay)
    await ReActEngine(parts).resume("r")

    assert [status for status, _ in told(parts)] == ["unknown"]


async def test_a_look_up_may_be_a_plain_function():
    parts = await taken_up(
        payment(lambda ctx: CallCompleted(f"found {ctx.idempotency_key}"))
    )
    await ReActEngine(parts).resume("r")

    assert told(parts) == [("ok", "found r:0#0")]


async def test_a_look_up_that_was_interrupted_too_is_made_again():
    """Every crash between the look-up and the outcome: one payment at most, and the same end."""
    pay = payment(answering(CallNotExecuted()))
    parts = await taken_up(pay)
    await ReActEngine(parts).resume("r")
    entries = parts.journal.read("r")
    for cut in range(cut_after(entries, "tool_started"), len(entries)):
        PAID.clear()
        kept = entries[:cut]
        again = Runtime(
            ScriptedProvider(["done"]), tools=[pay], journal=crashed(entries, cut)
        )
        if any(entry.kind == "model_replied" and entry.key == "1" for entry in kept):
            continue
        await ReActEngine(again).resume("r")
        finished = any(entry.kind == "tool_finished" for entry in kept)
        assert ([] if finished else [LOOKED, "5 r:0#0"]) == PAID, f"cut after {cut}"
        assert told(again) == [("ok", "paid 5")]


async def test_a_run_told_to_ask_waits_until_somebody_says_what_happened():
    parts = await taken_up(payment(answering(OutcomeUnknown())), on_unknown="ask")

    waiting = await ReActEngine(parts).resume("r")
    [question] = waiting.pending
    assert (waiting.status, waiting.stop_reason) == ("waiting", "unknown_outcome")
    assert (question.key, question.about, question.tool, dict(question.arguments)) == (
        "0#0",
        "doubt",
        "pay",
        {"amount": 5},
    )

    await parts.resolve("r", "0#0", CallCompleted("paid, says the bank"))
    result = await parts.resume("r")

    assert (result.answer, told(parts)) == ("done", [("ok", "paid, says the bank")])
    assert [line for line in PAID if line != LOOKED] == []


async def test_a_person_may_say_that_it_was_not_done_and_that_counts_for_one_attempt_only():
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    await parts.resolve("r", "0#0", CallNotExecuted())
    result = await parts.resume("r")
    assert (PAID, result.answer) == (["5 r:0#0"], "done")

    again = died(parts, "doubt_resolved")  # when the payment was made again
    PAID.clear()

    waiting = await ReActEngine(again).resume("r")

    assert (PAID, waiting.status) == ([], "waiting")


def died(parts: Runtime, kind: str) -> Runtime:
    """The next process: the last one died after an entry of that kind, and what people had said is there."""
    entries = parts.journal.read("r")
    journal = crashed(
        entries, cut_after(entries, kind, sum(entry.kind == kind for entry in entries))
    )
    for command in parts.journal.inbox("r"):
        journal.send("r", command.kind, command.body)
    return Runtime(
        ScriptedProvider(["done"]), tools=parts.tools, journal=journal, on_unknown="ask"
    )


async def test_an_answer_given_twice_allows_one_payment_and_the_next_needs_a_question():
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    for payments in range(1, 4):
        await parts.resolve("r", "0#0", CallNotExecuted())
        await parts.resolve("r", "0#0", CallNotExecuted())  # somebody clicks twice
        assert (await parts.resume("r")).answer == "done"
        assert ["5 r:0#0"] * payments == PAID

        parts = died(parts, "doubt_resolved")  # the payment was made, or was not
        waiting = await parts.resume("r")
        assert ([question.key for question in waiting.pending], len(PAID)) == (
            ["0#0"],
            payments,
        )


async def test_the_last_of_several_answers_to_a_question_counts():
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    await parts.resolve("r", "0#0", CallNotExecuted())
    await parts.resolve("r", "0#0", CallCompleted("paid after all, says the bank"))
    await parts.resume("r")

    assert (PAID, told(parts)) == ([], [("ok", "paid after all, says the bank")])


@pytest.mark.parametrize(
    ("said", "status"), [(CallCompleted("paid"), "ok"), (OutcomeUnknown(), "unknown")]
)
async def test_what_a_person_said_is_not_asked_for_again_after_a_crash(
    said: Any, status: str
):
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    await parts.resolve("r", "0#0", said)
    await parts.resume("r")

    again = died(parts, "doubt_resolved")
    result = await again.resume("r")

    assert (result.answer, PAID, [event[0] for event in told(again)]) == (
        "done",
        [],
        [status],
    )
    assert resolved(again) == resolved(parts)


async def test_what_the_run_does_not_ask_about_cannot_be_answered():
    parts = await taken_up(payment(), on_unknown="ask")
    with pytest.raises(
        ConfigError,
        match="does not ask about the outcome of '0#0'; it asks about no call",
    ):
        await parts.resolve("r", "0#0", CallNotExecuted())  # not yet

    await ReActEngine(parts).resume("r")
    with pytest.raises(
        ConfigError,
        match="does not ask about the outcome of '0#1'; it asks about '0#0'",
    ):
        await parts.resolve("r", "0#1", CallNotExecuted())

    await parts.resolve("r", "0#0", CallCompleted("paid"))
    await parts.resume("r")
    with pytest.raises(ConfigError, match="it asks about no call"):
        await parts.resolve("r", "0#0", CallNotExecuted())  # the run has ended
    assert len(parts.journal.inbox("r")) == 1


async def test_a_question_that_was_never_answered_ends_with_its_run():
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    telling = Runtime(
        ScriptedProvider(["done"]), tools=[payment()], journal=parts.journal
    )
    assert (await ReActEngine(telling).resume("r")).answer == "done"

    with pytest.raises(ConfigError, match="it asks about no call"):
        await parts.resolve("r", "0#0", CallNotExecuted())


async def test_a_question_for_approval_is_not_answered_by_a_resolution():
    parts = Runtime(
        ScriptedProvider([call("pay", amount=5)]),
        tools=[payment(effect="destructive")],
        approver=Suspend(),
    )
    waiting = await ReActEngine(parts).run("Pay.", run_id="r")
    assert [(question.key, question.about) for question in waiting.pending] == [
        ("0#0", "approval")
    ]

    with pytest.raises(ConfigError, match="it asks about no call"):
        await parts.resolve("r", "0#0", CallCompleted("paid"))


class PolicyOfTheDay(InstantGate):
    """Pays on some days."""

    def __init__(self, *, pays: bool) -> None:
        self.version = f"pays-{pays}"
        self._pays = pays

    def decide(self, action: Action, state: PolicyState) -> Any:
        return AllowAll().decide(action, state) if self._pays else Deny("not today")


@pytest.mark.parametrize("by", ["person", "lookup"])
async def test_a_payment_that_was_not_made_is_not_made_when_the_policy_of_now_denies_it(
    by: str,
):
    pay = payment(answering(CallNotExecuted()) if by == "lookup" else None)
    first = Runtime(
        ScriptedProvider([call("pay", amount=5), "done"]),
        tools=[pay],
        gate=PolicyOfTheDay(pays=True),
    )
    await ReActEngine(first).run("Pay.", run_id="r")
    entries = first.journal.read("r")
    PAID.clear()
    journal = crashed(entries, cut_after(entries, "tool_started"))
    parts = Runtime(
        ScriptedProvider(["done"]),
        tools=[pay],
        gate=PolicyOfTheDay(pays=False),
        journal=journal,
        on_unknown="ask",
    )
    result = await ReActEngine(parts).resume("r")
    if by == "person":
        await parts.resolve("r", "0#0", CallNotExecuted())
        result = await parts.resume("r")

    assert ([line for line in PAID if line != LOOKED], result.answer) == ([], "done")
    assert [status for status, _ in told(parts)] == ["rejected"]


@pytest.mark.parametrize(
    ("effect", "status"),
    [("read", "rejected"), ("idempotent", "unknown"), ("write", "unknown")],
)
async def test_a_call_in_doubt_whose_tool_is_gone_is_unknown_unless_it_only_read(
    effect: Any, status: str
):
    entries = await begun(payment(effect=effect))
    parts = Runtime(ScriptedProvider(["done"]), journal=crashed(entries, len(entries)))
    result = await ReActEngine(parts).resume("r")

    assert (result.answer, [ended for ended, _ in told(parts)]) == ("done", [status])


async def test_a_person_who_does_not_know_lets_the_model_be_told():
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    await parts.resolve("r", "0#0", OutcomeUnknown())
    result = await parts.resume("r")

    assert (PAID, [status for status, _ in told(parts)], result.answer) == (
        [],
        ["unknown"],
        "done",
    )


async def test_a_run_told_to_stop_ends_unless_its_tool_knows():
    parts = await taken_up(payment(answering(OutcomeUnknown())), on_unknown="stop")
    result = await ReActEngine(parts).resume("r")
    assert (result.status, result.stop_reason, PAID) == (
        "failed",
        "unknown_outcome",
        [LOOKED],
    )

    parts = await taken_up(payment(answering(CallCompleted("paid"))), on_unknown="stop")
    assert (await ReActEngine(parts).resume("r")).answer == "done"


async def test_one_call_in_doubt_does_not_hold_up_what_was_called_beside_it():
    pay = payment()

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        PAID.append("looked")
        return "seen"

    first = Runtime(
        ScriptedProvider([[call("pay", amount=5), call("look")], "done"]),
        tools=[pay, look],
    )
    await ReActEngine(first).run("Pay.", run_id="r")
    entries = first.journal.read("r")
    cut = cut_after(entries, "tool_started", 2)
    PAID.clear()
    parts = Runtime(
        ScriptedProvider(["done"]),
        tools=[pay, look],
        journal=crashed(entries, cut),
        on_unknown="ask",
    )
    waiting = await ReActEngine(parts).resume("r")
    assert (waiting.status, PAID) == ("waiting", ["looked"])

    await parts.resolve("r", "0#0", CallCompleted("paid 5"))
    result = await parts.resume("r")

    assert (result.answer, PAID) == ("done", ["looked"])
    assert [m.content for m in result.conversation.messages if m.role == "tool"] == [
        "paid 5",
        "seen",
    ]


async def test_words_that_are_no_resolution_are_refused():
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    with pytest.raises(ConfigError, match="resolution: must be CallCompleted"):
        await parts.resolve("r", "0#0", "paid")  # type: ignore[arg-type]
    with pytest.raises(UnknownRun):
        await parts.resolve("another", "0#0", CallNotExecuted())


@pytest.mark.parametrize("value", ["later", None, 3])
def test_on_unknown_takes_three_words(value: Any):
    with pytest.raises(
        ConfigError, match='on_unknown: must be "tell", "ask" or "stop"'
    ):
        Runtime(ScriptedProvider([]), on_unknown=value)


@pytest.mark.parametrize("field", ["lookup", "compensate"])
def test_what_a_tool_looks_up_or_undoes_with_is_a_function(field: str):
    with pytest.raises(ConfigError, match=f"'pay': {field} must be a function"):
        Tool("pay", "Pay.", {"type": "object"}, print, **{field: "pay"})  # type: ignore[arg-type]


def _typed(result: Awaitable[Result]) -> None:
    """Keeps the import of what the annotations above mean."""
