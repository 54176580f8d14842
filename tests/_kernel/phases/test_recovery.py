"""What is done about a failed call: each of the six strategies really happens, leaves its event, survives a crash."""

import asyncio
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    AllowAll,
    CircuitBreakers,
    ConfigError,
    Deny,
    Limits,
    LoopEngine,
    MemoryJournal,
    ReActEngine,
    Request,
    Result,
    Run,
    Runtime,
    Suspend,
    Tool,
    ToolError,
    tool,
)
from loopwright.events import (
    CallDeadLettered,
    Entry,
    RecoveryTriggered,
    ToolFinished,
    UnknownOutcomeResolved,
)
from loopwright.gates import Action, Ask, InstantGate, PolicyState
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from loopwright.tools import (
    CachedResult,
    CallCompleted,
    CallNotExecuted,
    DeadLetter,
    Escalate,
    Fallback,
    LlmRecovery,
    OutcomeUnknown,
    RecoveryStrategy,
    Retry,
)

RAN: list[str] = []
FAILS: dict[str, int] = {}


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()
    FAILS.clear()


def failing(
    name: str,
    times: int,
    *,
    effect: Any = "read",
    recovery: Any = (),
    error: Any = None,
) -> Tool:
    """A tool that fails so often before it works; how often is counted beyond any one runtime."""
    FAILS.setdefault(name, times)

    @tool(name=name, effect=effect, recovery=recovery)
    async def fail(x: int = 0) -> str:
        """Fail."""
        RAN.append(f"{name}({x})")
        FAILS[name] -= 1
        if FAILS[name] >= 0:
            raise error or OSError("down")
        return f"{name} worked with {x}"

    return fail


def runtime(*tools: Tool, script: list[Any], **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(script), tools=tools, clock=FakeClock(), **options)


def seen(parts: Runtime, result: Result) -> list[tuple[str, str]]:
    """What the model is told, with what the journal calls it."""
    told = [m.content for m in result.conversation.messages if m.role == "tool"]
    entries = parts.journal.read(result.run_id)
    ended = [
        e.event
        for e in entries
        if isinstance(e.event, ToolFinished) and "~" not in e.key
    ]
    assert told == [event.content for event in ended]
    return [(event.status, event.content) for event in ended]


def recoveries(runtime: Runtime, run_id: str) -> list[tuple[str, int, str]]:
    events = [entry.event for entry in runtime.journal.read(run_id)]
    return [
        (e.strategy, e.attempt, e.error)
        for e in events
        if isinstance(e, RecoveryTriggered)
    ]


def finished(entries: list[Entry]) -> dict[str, str]:
    return {e.key: e.event.status for e in entries if isinstance(e.event, ToolFinished)}


async def test_a_retried_call_is_made_again_with_a_pause_and_the_model_sees_only_the_end():
    flaky = failing("flaky", 2, recovery=Retry(max_attempts=3, base_delay=4.0))
    parts = runtime(flaky, script=[call("flaky", x=1), "done"])

    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert (result.answer, seen(parts, result)) == (
        "done",
        [("ok", "flaky worked with 1")],
    )
    assert RAN == ["flaky(1)"] * 3
    assert recoveries(parts, "r") == [
        ("retry", 1, "OSError: down"),
        ("retry", 2, "OSError: down"),
    ]
    pauses = [
        e.event.delay
        for e in parts.journal.read("r")
        if isinstance(e.event, RecoveryTriggered)
    ]
    assert 0 < pauses[0] <= 4.0
    assert 0 < pauses[1] <= 8.0


async def test_a_retry_ends_after_its_attempts_and_the_last_failure_is_told():
    flaky = failing("flaky", 9, recovery=[Retry(max_attempts=2)])
    parts = runtime(flaky, script=[call("flaky"), "done"])
    result = await ReActEngine(parts).run("Go.")

    assert (RAN, seen(parts, result)) == (
        ["flaky(0)"] * 2,
        [("error", "OSError: down")],
    )
    assert result.tool_calls == 2


async def test_what_a_tool_says_itself_is_not_retried():
    flaky = failing("flaky", 1, recovery=Retry(), error=ToolError("no such city"))
    parts = runtime(flaky, script=[call("flaky"), "done"])
    result = await ReActEngine(parts).run("Go.")

    assert (RAN, seen(parts, result)) == (["flaky(0)"], [("error", "no such city")])


async def test_retries_stop_at_the_limit_of_tool_calls():
    flaky = failing("flaky", 9, recovery=Retry(max_attempts=6))
    parts = runtime(
        flaky, script=[call("flaky"), "done"], limits=Limits(max_tool_calls=3)
    )
    result = await ReActEngine(parts).run("Go.")

    assert (result.tool_calls, len(RAN)) == (3, 3)


async def test_a_retry_never_sleeps_past_the_end_of_the_run():
    flaky = failing(
        "flaky", 9, recovery=Retry(max_attempts=50, base_delay=1000.0, max_delay=1000.0)
    )
    clock = FakeClock()
    parts = Runtime(
        ScriptedProvider([call("flaky"), "done"]),
        tools=[flaky],
        clock=clock,
        limits=Limits(timeout=60),
    )
    before = clock.monotonic()

    await ReActEngine(parts).run("Go.")

    assert clock.monotonic() - before <= 60


@pytest.mark.parametrize("effect", ["write", "destructive"])
def test_a_side_effect_is_never_retried(effect: Any):
    with pytest.raises(
        ConfigError, match="'pay': recovery: Retry would repeat a side effect"
    ):
        failing("pay", 1, effect=effect, recovery=Retry())


async def test_a_fall_back_calls_the_other_tool_with_the_same_arguments_through_the_gate():
    class Watching(InstantGate):
        version = "watching-1"

        def decide(self, action: Action, state: PolicyState) -> Any:
            RAN.append(f"gate {action.tool} {dict(action.arguments)} at {state.key}")
            return AllowAll().decide(action, state)

    main, mirror = failing("main", 9, recovery=Fallback("mirror")), failing("mirror", 0)
    parts = runtime(main, mirror, script=[call("main", x=5), "done"], gate=Watching())

    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert seen(parts, result) == [
        ("ok", "[main failed; mirror was called instead]\nmirror worked with 5")
    ]
    assert RAN == [
        "gate main {'x': 5} at 0#0",
        "main(5)",
        "gate mirror {'x': 5} at 0#0~1",
        "mirror(5)",
    ]
    assert recoveries(parts, "r") == [("fallback", 1, "OSError: down")]
    assert finished(parts.journal.read("r")) == {"0#0~1": "ok", "0#0": "ok"}


async def test_a_fall_back_that_the_policy_denies_does_not_run():
    class NoMirrors(InstantGate):
        version = "no-mirrors-1"

        def decide(self, action: Action, state: PolicyState) -> Any:
            return (
                Deny("no mirrors")
                if action.tool == "mirror"
                else AllowAll().decide(action, state)
            )

    main, mirror = failing("main", 9, recovery=Fallback("mirror")), failing("mirror", 0)
    parts = runtime(main, mirror, script=[call("main"), "done"], gate=NoMirrors())
    result = await ReActEngine(parts).run("Go.")

    assert RAN == ["main(0)"]
    assert seen(parts, result) == [
        (
            "error",
            "OSError: down\n[main failed; mirror was called instead: denied]\nno mirrors",
        )
    ]


async def test_an_open_breaker_leads_to_the_fall_back_without_calling_the_tool():
    main, mirror = failing("main", 9, recovery=Fallback("mirror")), failing("mirror", 0)
    parts = runtime(
        main,
        mirror,
        script=[call("main", x=1), call("main", x=2), "done"],
        breakers=CircuitBreakers(threshold=1),
    )
    result = await ReActEngine(parts).run("Go.")

    assert RAN == ["main(1)", "mirror(1)", "mirror(2)"]
    assert [status for status, _ in seen(parts, result)] == ["ok", "ok"]


async def test_fall_backs_go_on_down_the_list_and_have_no_recovery_of_their_own():
    a = failing("a", 9, recovery=[Fallback("b"), Fallback("c")])
    b, c = failing("b", 9, recovery=Fallback("a")), failing("c", 0)
    parts = runtime(a, b, c, script=[call("a"), "done"])
    result = await ReActEngine(parts).run("Go.")

    assert RAN == ["a(0)", "b(0)", "c(0)"]
    assert [status for status, _ in seen(parts, result)] == ["ok"]


@pytest.mark.parametrize("other", ["nothing", "main"])
def test_a_fall_back_must_be_another_tool_of_the_runtime(other: str):
    with pytest.raises(ConfigError, match=f"'main': recovery falls back to '{other}'"):
        runtime(failing("main", 1, recovery=Fallback(other)), script=[])


async def test_a_write_that_timed_out_may_have_happened_so_it_has_no_substitute():
    @tool(
        effect="write",
        timeout=0.01,
        recovery=[Fallback("mirror"), LlmRecovery(), DeadLetter()],
    )
    async def pay(x: int) -> str:
        """Pay."""
        await asyncio.sleep(10)
        return "paid"

    parts = Runtime(
        ScriptedProvider([call("pay", x=1), "done"]), tools=[pay, failing("mirror", 0)]
    )
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert RAN == []
    assert [name for name, _, _ in recoveries(parts, "r")] == ["dead_letter"]
    assert seen(parts, result)[0][0] == "timed_out"


def in_place_of(card: Any, *, how: str) -> list[Tool]:
    """A card that is declined, and another way to pay that may have paid: by a time-out, or by what it raises."""

    @tool(recovery=card)
    async def pay(cents: int) -> str:
        """Pay by card."""
        RAN.append(f"card {cents}")
        raise ToolError("declined")

    @tool(timeout=0.02)
    async def paypal(cents: int) -> str:
        """Pay elsewhere."""
        RAN.append(f"paypal {cents}")
        if how == "timed_out":
            await asyncio.sleep(10)
        if how == "told":
            raise ToolError("no funds")
        raise OSError("reset")

    @tool
    async def bank(cents: int) -> str:
        """Pay by bank."""
        RAN.append(f"bank {cents}")
        return "paid"

    return [pay, paypal, bank]


@pytest.mark.parametrize(
    ("how", "ran", "status"),
    [
        ("timed_out", ["card 5", "paypal 5"], "timed_out"),
        ("raised", ["card 5", "paypal 5"], "error"),
        ("told", ["card 5", "paypal 5", "bank 5"], "ok"),
    ],
)
async def test_what_may_have_happened_in_place_of_a_call_is_not_done_again_elsewhere(
    how: str, ran: list[str], status: str
):
    def model(request: Request) -> Any:
        return (
            "done"
            if request.conversation.messages[-1].role == "tool"
            else call("pay", cents=5)
        )

    tools = in_place_of([Fallback("paypal"), Fallback("bank")], how=how)
    parts = Runtime(ScriptedProvider(model), tools=tools)
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert ran == RAN
    assert seen(parts, result)[0][0] == status
    entries = parts.journal.read("r")
    for cut in range(1, len(entries)):
        again = Runtime(
            ScriptedProvider(model), tools=tools, journal=crashed(entries, cut)
        )
        RAN.clear()
        await ReActEngine(again).resume("r")
        begun = cut_after(entries, "tool_started", 2) <= cut
        assert RAN.count("paypal 5") <= (0 if begun else 1), cut
        assert "bank 5" not in RAN or how == "told", cut


async def test_what_may_have_happened_in_place_of_a_call_is_still_set_aside_for_a_person():
    tools = in_place_of(
        [Fallback("paypal"), Fallback("bank"), DeadLetter()], how="timed_out"
    )
    parts = runtime(*tools, script=[call("pay", cents=5), "done"])
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert RAN == ["card 5", "paypal 5"]
    assert [name for name, _, _ in recoveries(parts, "r")] == [
        "fallback",
        "dead_letter",
    ]
    told = seen(parts, result)[0][1]
    assert "paypal was called instead: timed_out" in told
    assert "in a queue for a person" in told


async def test_mended_arguments_that_may_have_done_their_work_are_not_mended_again():
    @tool(recovery=LlmRecovery(max_attempts=2), timeout=0.02)
    async def book(seat: str) -> str:
        """Book a seat."""
        RAN.append(seat)
        if seat == "0":
            raise ToolError("no such seat")
        await asyncio.sleep(10)
        return "never"

    parts = runtime(
        book, script=[call("book", seat="0"), '{"arguments": {"seat": "1"}}', "done"]
    )
    result = await ReActEngine(parts).run("Go.")

    assert (RAN, result.answer) == (["0", "1"], "done")
    assert seen(parts, result)[0][0] == "timed_out"


async def test_a_fresh_result_of_the_same_call_serves_while_the_call_fails():
    clock = FakeClock()
    price = failing("price", 0, recovery=CachedResult(max_age=60))

    def later(request: Any) -> Any:
        clock.advance(30)
        FAILS["price"] = 9
        return call("price", x=1)

    def much_later(request: Any) -> Any:
        clock.advance(31)
        return call("price", x=1)

    script = [call("price", x=1), later, call("price", x=2), much_later, "done"]
    parts = Runtime(ScriptedProvider(script), tools=[price], clock=clock)
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert seen(parts, result) == [
        ("ok", "price worked with 1"),
        (
            "ok",
            "[the call fails now; this is its result of 30 s ago]\nprice worked with 1",
        ),
        ("error", "OSError: down"),
        ("error", "OSError: down"),
    ]
    assert [name for name, _, _ in recoveries(parts, "r")] == ["cached_result"]


def test_only_reads_may_be_answered_from_earlier_results():
    with pytest.raises(
        ConfigError, match="CachedResult is for tools whose effect is 'read'"
    ):
        failing("pay", 1, effect="idempotent", recovery=CachedResult())


async def test_the_model_mends_the_arguments_and_the_mended_call_passes_the_gate():
    @tool(effect="write", recovery=LlmRecovery())
    async def book(seat: str) -> str:
        """Book a seat."""
        RAN.append(seat)
        if seat != "12A":
            raise ToolError("seats are a row and a letter, such as 12A")
        return "booked"

    parts = runtime(
        book,
        script=[call("book", seat="twelve"), '{"arguments": {"seat": "12A"}}', "done"],
    )
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert RAN == ["twelve", "12A"]
    assert seen(parts, result) == [
        ("ok", '[book failed; it was called with {"seat":"12A"} instead]\nbooked')
    ]
    assert recoveries(parts, "r") == [
        ("llm_recovery", 1, "seats are a row and a letter, such as 12A")
    ]
    assert result.llm_calls == 3


@pytest.mark.parametrize(
    "reply", ['{"arguments": null}', '{"arguments": {"seat": "twelve"}}']
)
async def test_a_model_that_knows_no_better_arguments_leaves_the_failure(reply: str):
    @tool(recovery=LlmRecovery())
    async def book(seat: str) -> str:
        """Book a seat."""
        RAN.append(seat)
        raise ToolError("no")

    parts = runtime(book, script=[call("book", seat="twelve"), reply, "done"])
    result = await ReActEngine(parts).run("Go.")

    assert (RAN, seen(parts, result)) == (["twelve"], [("error", "no")])


async def test_mended_arguments_that_do_not_fit_the_schema_run_nothing():
    @tool(recovery=LlmRecovery())
    async def book(seat: int) -> str:
        """Book a seat."""
        RAN.append(str(seat))
        raise ToolError("no")

    script = [call("book", seat=1), '{"arguments": {"seat": "x"}}', "done"]
    parts = runtime(book, script=script)
    result = await ReActEngine(parts).run("Go.")

    assert RAN == ["1"]
    assert seen(parts, result)[0][0] == "error"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (CallCompleted("by hand"), ("ok", "by hand")),
        (CallNotExecuted(), ("ok", "broken worked with 3")),
        (OutcomeUnknown(), ("error", "OSError: down")),
    ],
)
async def test_an_escalated_call_waits_for_a_person_and_goes_on_with_what_it_says(
    said: Any, told: tuple[str, str]
):
    broken = failing("broken", 1, recovery=Escalate())
    parts = runtime(broken, script=[call("broken", x=3), "done"])

    waiting = await ReActEngine(parts).run("Go.", run_id="r")
    [question] = waiting.pending
    assert (waiting.status, waiting.stop_reason) == ("waiting", "question")
    assert (question.key, question.tool, dict(question.arguments), question.about) == (
        "0#0",
        "broken",
        {"x": 3},
        "failure",
    )
    assert question.text == "broken failed (error): OSError: down"
    still = await parts.resume("r")
    assert still.status == "waiting"

    await parts.resolve("r", question.key, said)
    result = await parts.resume("r")

    assert (result.answer, seen(parts, result)) == ("done", [told])
    assert recoveries(parts, "r") == [("escalate", 1, "OSError: down")]
    assert [
        e.event.by
        for e in parts.journal.read("r")
        if isinstance(e.event, UnknownOutcomeResolved)
    ] == ["person"]


async def test_a_dead_letter_keeps_the_whole_call_and_the_run_goes_on():
    broken = failing("broken", 9, effect="write", recovery=DeadLetter(queue="billing"))
    parts = runtime(broken, script=[call("broken", x=3), "done"])
    result = await ReActEngine(parts).run("Go.", run_id="r")

    [letter] = [
        e.event
        for e in parts.journal.read("r")
        if isinstance(e.event, CallDeadLettered)
    ]
    assert letter == CallDeadLettered(
        "broken", "call_0_0", {"x": 3}, "error", "OSError: down", "billing"
    )
    assert result.answer == "done"
    assert seen(parts, result)[0][1].startswith(
        "OSError: down\n[The call was put in a queue"
    )

    entries = parts.journal.read("r")
    again = runtime(
        broken,
        script=["done"],
        journal=crashed(entries, cut_after(entries, "call_dead_lettered")),
    )
    await ReActEngine(again).resume("r")
    assert (
        len(
            [
                e
                for e in again.journal.read("r")
                if isinstance(e.event, CallDeadLettered)
            ]
        )
        == 1
    )


async def test_strategies_are_tried_in_the_order_in_which_they_are_given():
    recovery = [Retry(), Fallback("mirror"), DeadLetter()]
    parts = runtime(
        failing("main", 9, recovery=recovery),
        failing("mirror", 9),
        script=[call("main"), "done"],
    )
    await ReActEngine(parts).run("Go.", run_id="r")

    assert [(name, attempt) for name, attempt, _ in recoveries(parts, "r")] == [
        ("retry", 1),
        ("fallback", 2),
        ("dead_letter", 3),
    ]


async def test_a_fall_back_that_needs_approval_suspends_the_run_and_is_asked_about_again():
    class AskForMirror(InstantGate):
        version = "ask-1"

        def decide(self, action: Action, state: PolicyState) -> Any:
            return (
                Ask("the mirror?")
                if action.tool == "mirror"
                else AllowAll().decide(action, state)
            )

    journal = MemoryJournal()

    def parts(approver: Any) -> Runtime:
        main, mirror = (
            failing("main", 9, recovery=Fallback("mirror")),
            failing("mirror", 0),
        )
        script = [call("main", x=5), "done"] if approver is SUSPEND else ["done"]
        return runtime(
            main,
            mirror,
            script=script,
            gate=AskForMirror(),
            approver=approver,
            journal=journal,
        )

    async def yes(action: Action, question: str) -> bool:
        return True

    waiting = await ReActEngine(parts(SUSPEND)).run("Go.", run_id="r")
    assert [(q.key, q.tool, q.about) for q in waiting.pending] == [
        ("0#0~1", "mirror", "approval")
    ]

    again = parts(yes)
    result = await ReActEngine(again).resume("r")

    assert (RAN, [s for s, _ in seen(again, result)]) == (
        ["main(5)", "mirror(5)"],
        ["ok"],
    )


SUSPEND = Suspend()


@pytest.mark.parametrize("recovery", [3, "retry", [None]])
def test_only_strategies_are_taken(recovery: Any):
    with pytest.raises(ConfigError, match="recovery: must be Retry"):
        failing("a", 1, recovery=recovery)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Retry(max_attempts=1),
        lambda: Retry(base_delay=-1),
        lambda: Retry(base_delay=float("nan")),
        lambda: CachedResult(max_age=0),
        lambda: LlmRecovery(max_attempts=0),
    ],
)
def test_strategies_refuse_numbers_that_make_no_sense(wrong: Any):
    with pytest.raises(ConfigError):
        wrong()


STORIES: dict[str, tuple[RecoveryStrategy, list[Any]]] = {
    "retry": (Retry(max_attempts=3), []),
    "fallback": (Fallback("mirror"), []),
    "llm": (LlmRecovery(), ['{"arguments": {"x": 7}}']),
    "dead letter": (DeadLetter(), []),
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_crash_after_any_entry_of_a_recovery_repeats_nothing_that_is_recorded(
    story: str,
):
    """The journal is cut after every entry; the resumed run ends in the same way and runs only what was in doubt."""
    strategy, replies = STORIES[story]

    def tools() -> list[Tool]:
        FAILS.clear()
        return [
            failing("main", 1 if story == "llm" else 2, recovery=strategy),
            failing("mirror", 0),
        ]

    script = [call("main", x=1), *replies, "done"]
    parts = runtime(*tools(), script=script)
    whole = await ReActEngine(parts).run("Go.", run_id="r")
    entries, ran = parts.journal.read("r"), list(RAN)
    for cut in range(1, len(entries)):
        kept = entries[:cut]
        replied = sum(e.kind == "model_replied" for e in kept)
        RAN.clear()
        again = tools()
        FAILS["main"] -= sum(
            e.key == "0#0" and e.kind == "recovery_triggered" for e in kept
        )  # each of those says that one attempt had failed
        resumed = runtime(
            *again, script=script[replied:], journal=crashed(entries, cut)
        )
        result = await ReActEngine(resumed).resume("r")
        after = resumed.journal.read("r")

        assert (result.answer, seen(resumed, result)) == (
            whole.answer,
            seen(parts, whole),
        ), f"cut after {cut}"
        assert len(RAN) <= len(ran), f"cut after {cut}"
        done = {key for key, status in finished(kept).items() if status == "ok"}
        assert (
            not [name for name in RAN if name.startswith("mirror")]
            or "0#0~1" not in done
        )
        assert [e.key for e in after if e.kind == "tool_started"] == [
            e.key for e in entries if e.kind == "tool_started"
        ]
        assert resumed.journal.verify("r").ok


CHAINS: dict[str, list[RecoveryStrategy]] = {
    "fallback, dead letter": [Fallback("mirror"), DeadLetter()],
    "two mends": [LlmRecovery(max_attempts=2)],
    "retry, fallback, dead letter": [Retry(), Fallback("mirror"), DeadLetter()],
    "fallback, escalate": [Fallback("mirror"), Escalate()],
    "two fallbacks, a mend": [Fallback("mirror"), Fallback("other"), LlmRecovery()],
}


def failing_chain(recovery: list[RecoveryStrategy]) -> list[Tool]:
    """A tool that works with 3 alone, and others that do not work at all."""

    @tool(effect="read", recovery=recovery)
    async def main(x: int) -> str:
        """Work with 3."""
        RAN.append(f"main({x})")
        if x != 3:
            raise OSError("down")
        return "main worked with 3"

    FAILS.clear()
    return [main, failing("mirror", 99), failing("other", 99)]


def model(request: Request) -> Any:
    """Calls, answers, and mends 1 to 2 and that, when it failed too, to 3."""
    first, said = (
        request.conversation.messages[0].content,
        [m.role for m in request.conversation.messages],
    )
    if "failed. Its arguments" in first:
        return (
            '{"arguments": {"x": 3}}'
            if "was called with" in first
            else '{"arguments": {"x": 2}}'
        )
    return "done" if "tool" in said else call("main", x=1)


def process(journal: Any, recovery: list[RecoveryStrategy]) -> Runtime:
    return Runtime(
        ScriptedProvider(model),
        tools=failing_chain(recovery),
        clock=FakeClock(),
        journal=journal,
    )


async def ended(parts: Runtime) -> Result:
    """The end of the run; a person says that it was done by hand if somebody is asked."""
    result = await (
        ReActEngine(parts).resume("r")
        if parts.journal.runs()
        else ReActEngine(parts).run("Go.", run_id="r")
    )
    for question in result.pending:
        await parts.resolve("r", question.key, CallCompleted("by hand"))
        result = await parts.resume("r")
    return result


@pytest.mark.parametrize("chain", CHAINS)
async def test_a_crash_in_a_chain_of_recoveries_resumes_with_the_later_steps(
    chain: str,
):
    recovery = CHAINS[chain]
    parts = process(MemoryJournal(), recovery)
    whole = await ended(parts)
    entries = parts.journal.read("r")
    assert len(recoveries(parts, "r")) >= 2
    for cut in range(1, len(entries)):
        RAN.clear()
        again = process(crashed(entries, cut), recovery)
        if "run_suspended" in [entry.kind for entry in entries[:cut]]:
            for command in parts.journal.inbox("r"):
                again.journal.send("r", command.kind, command.body)

        result = await ended(again)

        where = f"cut after {cut}: {entries[cut - 1].kind} {entries[cut - 1].key}"
        assert (result.answer, seen(again, result)) == (
            whole.answer,
            seen(parts, whole),
        ), where
        assert recoveries(again, "r") == recoveries(parts, "r"), where
        assert (result.llm_calls, result.tool_calls) == (
            whole.llm_calls,
            whole.tool_calls,
        ), where
        assert len([name for name in RAN if not name.startswith("main")]) <= sum(
            entry.kind == "tool_started" and "~" in entry.key for entry in entries
        ) - sum("~" in key for key in finished(entries[:cut])), where
        assert {
            str(e.event)
            for e in again.journal.read("r")
            if isinstance(e.event, CallDeadLettered)
        } == {str(e.event) for e in entries if isinstance(e.event, CallDeadLettered)}, (
            where
        )
        assert again.journal.verify("r").ok


@pytest.mark.parametrize("said", [CallCompleted("by hand"), OutcomeUnknown()])
async def test_what_a_person_said_of_a_failure_is_not_asked_for_again_after_a_crash(
    said: Any,
):
    broken = failing("broken", 99, effect="write", recovery=[Escalate()])
    parts = runtime(broken, script=[call("broken", x=3), "done"])
    await ReActEngine(parts).run("Go.", run_id="r")
    await parts.resolve("r", "0#0", said)
    whole = await parts.resume("r")
    entries = parts.journal.read("r")
    RAN.clear()
    for cut in range(
        cut_after(entries, "doubt_resolved"),
        cut_after(entries, "model_requested", 2) + 1,
    ):
        again = runtime(broken, script=["done"], journal=crashed(entries, cut))
        result = await ReActEngine(again).resume("r")

        assert (result.answer, result.pending, seen(again, result)) == (
            "done",
            (),
            seen(parts, whole),
        )
        assert [
            e.event.by
            for e in again.journal.read("r")
            if isinstance(e.event, UnknownOutcomeResolved)
        ] == ["person"]
    assert RAN == []


async def test_an_answer_to_an_escalation_that_is_given_twice_allows_one_attempt():
    broken = failing("broken", 99, effect="write", recovery=[Escalate()])
    parts = runtime(broken, script=[call("broken"), "done"])
    await ReActEngine(parts).run("Go.", run_id="r")
    await parts.resolve("r", "0#0", CallNotExecuted())
    await parts.resolve("r", "0#0", CallNotExecuted())
    await parts.resume("r")
    assert RAN == ["broken(0)"] * 2

    entries = parts.journal.read("r")
    again = runtime(
        broken,
        script=["done"],
        journal=crashed(entries, cut_after(entries, "doubt_resolved")),
    )
    for command in parts.journal.inbox("r"):
        again.journal.send("r", command.kind, command.body)
    waiting = await ReActEngine(again).resume("r")

    assert (RAN, [question.key for question in waiting.pending]) == (
        ["broken(0)"] * 2,
        ["0#0"],
    )


async def test_a_second_escalation_waits_for_an_answer_of_its_own():
    main = failing("main", 99, recovery=[Escalate(), Fallback("mirror"), Escalate()])
    parts = runtime(main, failing("mirror", 99), script=[call("main"), "done"])
    await ReActEngine(parts).run("Go.", run_id="r")
    await parts.resolve("r", "0#0", OutcomeUnknown())
    assert (await parts.resume("r")).status == "waiting"
    assert (await parts.resume("r")).status == "waiting"

    await parts.resolve("r", "0#0", CallCompleted("by hand"))
    result = await parts.resume("r")

    assert (RAN, seen(parts, result)) == (["main(0)", "mirror(0)"], [("ok", "by hand")])


class Counting(LoopEngine):
    """Has a child engine call, and says what that cost."""

    name = "counting"

    async def solve(self, run: Run) -> str:
        """Delegate."""
        child = await run.delegate(ReActEngine(self.runtime), "Go.")
        return f"{child.answer}: {child.llm_calls} model calls, {child.tool_calls} calls, {child.usage.total_tokens}"


async def test_a_child_whose_recovery_asked_a_model_costs_the_same_on_replay():
    recovery = CHAINS["two mends"]
    parts = process(MemoryJournal(), recovery)
    whole = await Counting(parts).run("Go.", run_id="r")
    assert [name for name, _, _ in recoveries(parts, "r")] == [
        "llm_recovery",
        "llm_recovery",
    ]

    entries = parts.journal.read("r")
    for cut in range(1, len(entries)):
        result = await Counting(process(crashed(entries, cut), recovery)).resume("r")

        assert result.answer == whole.answer, (
            f"cut after {cut}: {entries[cut - 1].kind} {entries[cut - 1].key}"
        )
