"""An intent without an outcome: made again, looked up, asked about, told to the model, or the end of the run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loopwright import ConfigError, ReActEngine, Result, Runtime, Tool, ToolContext, UnknownRun, tool
from loopwright.doubt import Done, NotDone, Unknown
from loopwright.events import DoubtResolved, Entry, ToolFinished
from loopwright.testing import ScriptedProvider, call
from redrive import crashed, upto

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
    return entries[: upto(entries, "tool_started")]


async def taken_up(pay: Tool, **options: Any) -> Runtime:
    entries = await begun(pay)
    return Runtime(ScriptedProvider(["done"]), tools=[pay], journal=crashed(entries, len(entries)), **options)


def told(parts: Runtime) -> list[tuple[str, str]]:
    events = [entry.event for entry in parts.journal.read("r")]
    return [(event.status, event.content) for event in events if isinstance(event, ToolFinished)]


def resolved(parts: Runtime) -> list[tuple[str, str, str]]:
    events = [entry.event for entry in parts.journal.read("r")]
    return [(event.by, event.verdict, event.result) for event in events if isinstance(event, DoubtResolved)]


def answering(value: Any) -> Lookup:
    async def look(ctx: ToolContext[Any]) -> Any:
        PAID.append(f"looked up {ctx.idempotency_key} {dict(ctx.arguments)}")
        if isinstance(value, BaseException):
            raise value
        return value

    return look


LOOKED = "looked up r:0#0 {'amount': 5}"


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_what_may_be_repeated_is_made_again_with_the_same_key_and_looked_up_by_nobody(effect: Any):
    parts = await taken_up(payment(answering(Done("no")), effect))
    await ReActEngine(parts).resume("r")

    assert (PAID, told(parts)) == (["5 r:0#0"], [("ok", "paid 5")])


async def test_a_payment_that_its_tool_finds_is_not_made_again():
    parts = await taken_up(payment(answering(Done("paid 5 before"))))
    result = await ReActEngine(parts).resume("r")

    assert (PAID, told(parts), result.answer) == ([LOOKED], [("ok", "paid 5 before")], "done")
    assert resolved(parts) == [("lookup", "done", "paid 5 before")]


async def test_a_payment_that_its_tool_knows_was_not_made_is_made_with_the_same_key():
    parts = await taken_up(payment(answering(NotDone())))
    await ReActEngine(parts).resume("r")

    assert (PAID, told(parts)) == ([LOOKED, "5 r:0#0"], [("ok", "paid 5")])


@pytest.mark.parametrize("found", [Unknown(), None, "paid", OSError("the bank is closed"), SystemExit(1)])
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
    parts = await taken_up(payment(lambda ctx: Done(f"found {ctx.idempotency_key}")))
    await ReActEngine(parts).resume("r")

    assert told(parts) == [("ok", "found r:0#0")]


async def test_a_look_up_that_was_interrupted_too_is_made_again():
    """Every crash between the look-up and the outcome: one payment at most, and the same end."""
    pay = payment(answering(NotDone()))
    parts = await taken_up(pay)
    await ReActEngine(parts).resume("r")
    entries = parts.journal.read("r")
    for cut in range(upto(entries, "tool_started"), len(entries)):
        PAID.clear()
        kept = entries[:cut]
        again = Runtime(ScriptedProvider(["done"]), tools=[pay], journal=crashed(entries, cut))
        if any(entry.kind == "model_replied" and entry.key == "1" for entry in kept):
            continue
        await ReActEngine(again).resume("r")
        finished = any(entry.kind == "tool_finished" for entry in kept)
        assert ([] if finished else [LOOKED, "5 r:0#0"]) == PAID, f"cut after {cut}"
        assert told(again) == [("ok", "paid 5")]


async def test_a_run_told_to_ask_waits_until_somebody_says_what_happened():
    parts = await taken_up(payment(answering(Unknown())), on_unknown="ask")

    waiting = await ReActEngine(parts).resume("r")
    [question] = waiting.pending
    assert (waiting.status, waiting.stop_reason) == ("waiting", "unknown_outcome")
    assert (question.key, question.about, question.tool, dict(question.arguments)) == (
        "0#0",
        "doubt",
        "pay",
        {"amount": 5},
    )

    await parts.resolve("r", "0#0", Done("paid, says the bank"))
    result = await parts.resume("r")

    assert (result.answer, told(parts)) == ("done", [("ok", "paid, says the bank")])
    assert [line for line in PAID if line != LOOKED] == []


async def test_a_person_may_say_that_it_was_not_done_and_that_counts_for_one_attempt_only():
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    await parts.resolve("r", "0#0", NotDone())
    result = await parts.resume("r")
    assert (PAID, result.answer) == (["5 r:0#0"], "done")

    entries = parts.journal.read("r")
    cut = upto(entries, "doubt_resolved")  # the process dies when the payment is made again
    again = Runtime(ScriptedProvider(["done"]), tools=[payment()], journal=crashed(entries, cut), on_unknown="ask")
    again.journal.send("r", "resolve", {"key": "0#0", "verdict": "not_done", "result": ""})  # as number 1, as before
    PAID.clear()

    waiting = await ReActEngine(again).resume("r")

    assert (PAID, waiting.status) == ([], "waiting")


async def test_a_person_who_does_not_know_lets_the_model_be_told():
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    await parts.resolve("r", "0#0", Unknown())
    result = await parts.resume("r")

    assert (PAID, [status for status, _ in told(parts)], result.answer) == ([], ["unknown"], "done")


async def test_a_run_told_to_stop_ends_unless_its_tool_knows():
    parts = await taken_up(payment(answering(Unknown())), on_unknown="stop")
    result = await ReActEngine(parts).resume("r")
    assert (result.status, result.stop_reason, PAID) == ("failed", "unknown_outcome", [LOOKED])

    parts = await taken_up(payment(answering(Done("paid"))), on_unknown="stop")
    assert (await ReActEngine(parts).resume("r")).answer == "done"


async def test_one_call_in_doubt_does_not_hold_up_what_was_called_beside_it():
    pay = payment()

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        PAID.append("looked")
        return "seen"

    first = Runtime(ScriptedProvider([[call("pay", amount=5), call("look")], "done"]), tools=[pay, look])
    await ReActEngine(first).run("Pay.", run_id="r")
    entries = first.journal.read("r")
    cut = upto(entries, "tool_started", 2)
    PAID.clear()
    parts = Runtime(ScriptedProvider(["done"]), tools=[pay, look], journal=crashed(entries, cut), on_unknown="ask")
    waiting = await ReActEngine(parts).resume("r")
    assert (waiting.status, PAID) == ("waiting", ["looked"])

    await parts.resolve("r", "0#0", Done("paid 5"))
    result = await parts.resume("r")

    assert (result.answer, PAID) == ("done", ["looked"])
    assert [m.content for m in result.conversation.messages if m.role == "tool"] == ["paid 5", "seen"]


async def test_words_that_are_no_resolution_are_refused():
    parts = await taken_up(payment(), on_unknown="ask")
    await ReActEngine(parts).resume("r")
    with pytest.raises(ConfigError, match="resolution: must be Done"):
        await parts.resolve("r", "0#0", "paid")  # type: ignore[arg-type]
    with pytest.raises(UnknownRun):
        await parts.resolve("another", "0#0", NotDone())


@pytest.mark.parametrize("value", ["later", None, 3])
def test_on_unknown_takes_three_words(value: Any):
    with pytest.raises(ConfigError, match='on_unknown: must be "tell", "ask" or "stop"'):
        Runtime(ScriptedProvider([]), on_unknown=value)


@pytest.mark.parametrize("field", ["lookup", "compensate"])
def test_what_a_tool_looks_up_or_undoes_with_is_a_function(field: str):
    with pytest.raises(ConfigError, match=f"'pay': {field} must be a function"):
        Tool("pay", "Pay.", {"type": "object"}, print, **{field: "pay"})  # type: ignore[arg-type]


def _typed(result: Awaitable[Result]) -> None:
    """Keeps the import of what the annotations above mean."""
