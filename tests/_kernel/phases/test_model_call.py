"""One model call: what is tried again, when, how often, and what is said when it was for nothing."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    CircuitBreakers,
    Completion,
    Delta,
    Limits,
    ProviderError,
    ReActEngine,
    Reasoning,
    Request,
    Result,
    Runtime,
    Usage,
    tool,
)
from loopwright.errors import CircuitOpen, ContextTooLong, ProviderTimeout
from loopwright.events import AttemptFailed, ErrorRecord, ModelFailed, ModelReplied
from loopwright.providers import CallDelta
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed


def down(status: int | None = 503, *, after: float | None = None) -> ProviderError:
    return ProviderError(
        f"status {status}", status=status, retryable=True, retry_after=after
    )


async def run(
    *script: Any, **options: Any
) -> tuple[Result, ScriptedProvider, FakeClock, Runtime]:
    provider, clock = ScriptedProvider(script), FakeClock()
    runtime = Runtime(provider, clock=clock, **options)
    return await ReActEngine(runtime).run("Go."), provider, clock, runtime


def attempts(runtime: Runtime, result: Result) -> list[AttemptFailed]:
    return [
        e.event
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, AttemptFailed)
    ]


# --- what is tried again ---


@pytest.mark.parametrize("error", [down(408), down(409), down(429), down(500), down(529), down(None),
                                   ProviderTimeout("slow", retryable=True)])  # fmt: skip
async def test_what_may_succeed_later_is_tried_again(error: ProviderError) -> None:
    result, provider, _, _ = await run(error, "done")

    assert (result.status, result.answer, len(provider.requests), result.llm_calls) == (
        "completed",
        "done",
        2,
        2,
    )


@pytest.mark.parametrize(
    "error",
    [ProviderError("bad request", status=400), ProviderError("no key", status=401), ProviderTimeout("slow"),
     ValueError("a bug in the adapter"), AttributeError("another")],
)  # fmt: skip
async def test_what_cannot_succeed_is_not_tried_again(error: Exception) -> None:
    result, provider, clock, _ = await run(error)

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "provider_error",
        None,
    )
    assert (len(provider.requests), clock.slept) == (1, [])
    assert isinstance(result.error, ProviderError)


LARGE = "x" * 2_000_001


@pytest.mark.parametrize("deltas", [False, True])
@pytest.mark.parametrize(
    "line",
    [
        LARGE,
        Completion(problem=LARGE),
        Completion("", answer="yes", thought=LARGE),
        Completion(
            "yes",
            answer="yes",
            reasoning=(Reasoning(LARGE[:1_000_000]), Reasoning(LARGE[:1_000_001])),
        ),
        Completion(
            "yes", answer="yes", reasoning=(Reasoning("", "thinking", {"data": LARGE}),)
        ),
        Completion("yes", answer="yes", model=LARGE),
        call("look", where=[LARGE]),
        call(LARGE),
        [call("look")] * 100_000,
    ],
)
async def test_a_reply_that_is_too_large_is_an_error_and_not_asked_for_again(
    line: Any, deltas: bool
) -> None:
    provider = ScriptedProvider([line])
    async with ReActEngine(Runtime(provider, clock=FakeClock())).start(
        "Go.", deltas=deltas
    ) as handle:
        result = await handle.result()

    assert (result.status, result.stop_reason, len(provider.requests)) == (
        "failed",
        "provider_error",
        1,
    )
    assert str(result.error) == "scripted: the reply has more than 2,000,000 characters"


@pytest.mark.parametrize("deltas", [False, True])
async def test_a_large_reply_is_counted_once_though_its_words_are_its_answer_too(
    deltas: bool,
) -> None:
    answer = "x" * 1_999_000
    async with ReActEngine(Runtime(ScriptedProvider([answer]))).start(
        "Go.", deltas=deltas
    ) as handle:
        result = await handle.result()

    assert (result.status, result.answer == answer) == ("completed", True)


async def test_a_stream_without_end_is_left_as_soon_as_it_has_said_too_much() -> None:
    told = 0

    class Endless(ScriptedProvider):
        async def stream(self, request: Request) -> AsyncGenerator[Delta]:
            nonlocal told
            while True:
                told += 1
                yield Delta(
                    "x" * 10_000, "y" * 10_000, CallDelta(0, arguments="z" * 20_000)
                )

    async with ReActEngine(Runtime(Endless([]))).start("Go.", deltas=True) as handle:
        result = await handle.result()

    assert (result.stop_reason, told) == ("provider_error", 51)
    assert str(result.error) == "scripted: the reply has more than 2,000,000 characters"


async def test_a_bug_of_an_adapter_is_named_with_its_provider() -> None:
    result, _, _, _ = await run(ValueError("unexpected field"))

    assert str(result.error) == "scripted raised ValueError: unexpected field"
    assert result.error is not None
    assert isinstance(result.error.__cause__, ValueError)


async def test_a_script_that_has_run_out_fails_loudly() -> None:
    result, _, _, _ = await run()

    assert result.status == "failed"
    assert "the script has no line for model call 1" in str(result.error)


async def test_after_three_attempts_the_last_error_is_the_result() -> None:
    result, provider, clock, runtime = await run(down(500), down(502), down(503))

    assert (result.status, result.stop_reason, str(result.error)) == (
        "failed",
        "provider_error",
        "status 503",
    )
    assert (len(provider.requests), len(clock.slept), result.llm_calls) == (3, 2, 3)
    assert [a.error.message for a in attempts(runtime, result)] == [
        "status 500",
        "status 502",
    ]
    failed = [
        e.event
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, ModelFailed)
    ]
    assert [event.error for event in failed] == [ErrorRecord.of(down(503))]
    with pytest.raises(ProviderError, match="status 503"):
        result.raise_for_status()


async def test_each_attempt_asks_for_the_very_same() -> None:
    _, provider, _, _ = await run(down(), down(), "done")

    assert provider.requests[0] is provider.requests[1] is provider.requests[2]


async def test_a_retry_goes_on_in_the_middle_of_a_run_without_repeating_anything() -> (
    None
):
    ran: list[str] = []

    @tool
    async def send() -> str:
        """Send."""
        ran.append("sent")
        return "sent"

    result, _, _, _ = await run(call("send"), down(), "done", tools=[send])

    assert (result.status, ran, result.llm_calls) == ("completed", ["sent"], 3)


# --- when ---


async def test_the_pauses_are_random_and_bounded_and_grow() -> None:
    first: list[float] = []
    second: list[float] = []
    for _ in range(30):
        _, _, clock, _ = await run(down(), down(), "done")
        first.append(clock.slept[0])
        second.append(clock.slept[1])

    assert all(0 <= pause <= 0.5 for pause in first)
    assert all(0 <= pause <= 1.0 for pause in second)
    assert len(set(first)) == 30
    assert max(second) > 0.5


async def test_a_server_that_says_when_is_waited_for_that_long() -> None:
    result, _, clock, runtime = await run(
        down(429, after=17.5), down(429, after=0), "done"
    )

    assert (result.status, clock.slept) == ("completed", [17.5, 0])
    assert attempts(runtime, result) == [
        AttemptFailed(1, ErrorRecord.of(down(429, after=17.5)), 17.5),
        AttemptFailed(2, ErrorRecord.of(down(429, after=0)), 0),
    ]


async def test_a_server_that_asks_for_more_than_a_minute_is_not_waited_for() -> None:
    result, provider, clock, _ = await run(down(429, after=61))

    assert (result.status, len(provider.requests), clock.slept) == ("failed", 1, [])
    assert isinstance(result.error, ProviderError)
    assert result.error.retry_after == 61


async def test_a_pause_that_would_outlast_the_run_is_not_made() -> None:
    result, provider, clock, _ = await run(
        down(429, after=30), limits=Limits(timeout=20)
    )

    assert (result.status, result.stop_reason, len(provider.requests)) == (
        "failed",
        "provider_error",
        1,
    )
    assert clock.slept == []


async def test_no_pause_outlasts_the_run_by_its_own_clock_after_earlier_ones_either() -> (
    None
):
    result, provider, clock, _ = await run(
        *[down(503, after=25)] * 3, limits=Limits(timeout=40)
    )

    assert (result.status, result.stop_reason, len(provider.requests)) == (
        "failed",
        "provider_error",
        2,
    )
    assert clock.slept == [25]


async def test_a_run_without_a_time_limit_waits_as_asked() -> None:
    result, _, clock, _ = await run(
        down(429, after=60), "done", limits=Limits(timeout=None)
    )

    assert (result.status, clock.slept) == ("completed", [60])


async def test_cancelling_during_a_pause_ends_it_at_once() -> None:
    pausing = asyncio.Event()

    class Stopped(FakeClock):
        async def sleep(self, seconds: float) -> None:
            pausing.set()
            await asyncio.sleep(30)

    provider = ScriptedProvider([down()])
    task = asyncio.ensure_future(
        ReActEngine(Runtime(provider, clock=Stopped())).run("Go.")
    )
    await pausing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(provider.requests) == 1


async def test_the_end_of_the_run_s_time_ends_a_pause_too() -> None:
    class Dawdling(FakeClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(30)

    runtime = Runtime(
        ScriptedProvider([down(after=0.1)]),
        clock=Dawdling(),
        limits=Limits(timeout=0.2),
    )
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.stop_reason) == ("limit", "timeout")


# --- how often, over all runs ---


async def test_an_outage_is_not_multiplied_by_retries() -> None:
    provider = ScriptedProvider(lambda request: down())
    runtime = Runtime(
        provider, clock=FakeClock(), breakers=CircuitBreakers(threshold=None, rate=None)
    )
    engine = ReActEngine(runtime)
    for number in range(300):
        result = await engine.run("Go.", run_id=f"run{number}")
        assert result.stop_reason == "provider_error"

    assert 300 < len(provider.requests) <= 300 + 10 + 300 / 10


async def test_calls_earn_retries_back() -> None:
    provider = ScriptedProvider([down(), *["done"] * 11, down(), "done"])
    runtime = Runtime(provider, clock=FakeClock())
    engine = ReActEngine(runtime)
    while runtime.retry_budget(provider).spend():
        pass

    assert (await engine.run("Go.")).status == "failed"
    assert [(await engine.run("Go.")).status for _ in range(12)] == ["completed"] * 12
    assert provider.left == 0


async def test_only_retries_that_are_made_are_paid_for() -> None:
    provider = ScriptedProvider(lambda request: down())
    runtime = Runtime(
        provider, clock=FakeClock(), breakers=CircuitBreakers(threshold=None, rate=None)
    )
    for _ in range(20):
        await ReActEngine(runtime).run("Go.")

    assert len(provider.requests) - 20 >= 10


async def test_each_provider_and_model_has_a_retry_budget_of_its_own() -> None:
    runtime = Runtime(ScriptedProvider([]))
    one, other = ScriptedProvider([], model="one"), ScriptedProvider([], model="other")

    assert runtime.retry_budget(one) is runtime.retry_budget(one)
    assert runtime.retry_budget(one) is not runtime.retry_budget(other)


async def test_the_attempts_of_a_call_are_counted_over_a_crash() -> None:
    failing = ScriptedProvider([down(), down(), down()])
    runtime = Runtime(failing, clock=FakeClock())
    entries = runtime.journal.read((await ReActEngine(runtime).run("Go.")).run_id)

    provider = ScriptedProvider([down(), "too late"])
    journal = crashed(entries, cut_after(entries, "attempt_failed", 2))
    result = await ReActEngine(
        Runtime(provider, clock=FakeClock(), journal=journal)
    ).resume(entries[0].run_id)

    assert (result.status, len(provider.requests), result.llm_calls) == ("failed", 1, 3)


# --- the breaker, and what it rejects ---


def retries_left(runtime: Runtime) -> int:
    """How many retries the budget would pay for."""
    budget, left = runtime.retry_budget(runtime.provider), 0
    while budget.spend():
        left += 1
    return left


async def test_a_failure_that_opens_the_breaker_is_told_as_it_was_and_not_tried_again() -> (
    None
):
    result, provider, clock, runtime = await run(
        down(503), breakers=CircuitBreakers(threshold=1)
    )

    assert (str(result.error), len(provider.requests), clock.slept) == (
        "status 503",
        1,
        [],
    )
    assert (result.llm_calls, retries_left(runtime)) == (1, 10)


async def test_being_told_to_slow_down_never_opens_the_breaker() -> None:
    result, provider, _, runtime = await run(
        *[down(429, after=1), down(429)] * 25, limits=Limits(timeout=None)
    )
    for _ in range(20):
        await ReActEngine(runtime).run("Go.")

    assert (result.status, len(provider.requests) >= 20) == ("failed", True)
    assert runtime.breakers.get("scripted/script").state == "closed"


async def test_what_one_run_is_told_to_wait_all_runs_wait() -> None:
    script = [down(429, after=90), "done", "done"]
    failed, provider, clock, runtime = await run(*script)
    too_early = await ReActEngine(runtime).run("Go.")
    clock.advance(40)
    waited, max_concurrency = [await ReActEngine(runtime).run("Go.") for _ in range(2)]

    assert [r.status for r in (failed, too_early, waited, max_concurrency)] == [
        "failed",
        "failed",
        "completed",
        "completed",
    ]
    assert isinstance(too_early.error, CircuitOpen)
    assert too_early.error.retry_after == pytest.approx(90)
    assert (clock.slept, len(provider.requests)) == ([50.0], 3)
    rejection = CircuitOpen(
        "scripted/script asked to be left alone; it is not called for another 50.0 s",
        retryable=True,
        retry_after=50.0,
    )
    assert attempts(runtime, waited) == [
        AttemptFailed(1, ErrorRecord.of(rejection), 50.0)
    ]
    assert attempts(runtime, max_concurrency) == []


async def test_to_wait_for_a_cool_down_costs_no_call_and_no_retry() -> None:
    breakers = CircuitBreakers(clock=(clock := FakeClock()))
    breakers.get("scripted/script").cool_down(30)
    provider = ScriptedProvider(["done"])
    runtime = Runtime(
        provider, clock=clock, breakers=breakers, limits=Limits(max_llm_calls=1)
    )
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.llm_calls, clock.slept) == ("completed", 1, [30])
    assert retries_left(runtime) == 10


async def test_three_attempts_are_left_after_a_cool_down() -> None:
    breakers = CircuitBreakers(clock=(clock := FakeClock()))
    breakers.get("scripted/script").cool_down(30)
    provider = ScriptedProvider([down(), down(429, after=5), "done"])
    runtime = Runtime(provider, clock=clock, breakers=breakers)
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.llm_calls, len(clock.slept)) == ("completed", 3, 3)
    assert retries_left(runtime) == 8


async def test_a_cool_down_that_outlasts_the_run_is_not_waited_for() -> None:
    breakers = CircuitBreakers(clock=(clock := FakeClock()))
    breakers.get("scripted/script").cool_down(30)
    provider = ScriptedProvider(["never"])
    result = await ReActEngine(
        Runtime(provider, clock=clock, breakers=breakers, limits=Limits(timeout=20))
    ).run("Go.")  # fmt: skip

    assert (result.status, result.stop_reason, clock.slept, provider.requests) == (
        "failed",
        "provider_error",
        [],
        [],
    )
    assert isinstance(result.error, CircuitOpen)
    assert result.error.retry_after == pytest.approx(30)


class Renewed(FakeClock):
    """Whoever sleeps on it wakes up in a new cool-down, or before a breaker that opened meanwhile."""

    def __init__(self, meanwhile: Callable[["Renewed"], None]) -> None:
        super().__init__()
        self.breakers = CircuitBreakers(clock=self)
        self.breaker = self.breakers.get("scripted/script")
        self._meanwhile = meanwhile

    async def sleep(self, seconds: float) -> None:
        """Move on, and see what happened."""
        await super().sleep(seconds)
        self._meanwhile(self)


async def test_one_call_waits_for_three_cool_downs_and_no_more() -> None:
    clock = Renewed(lambda clock: clock.breaker.cool_down(7))
    clock.breaker.cool_down(7)
    provider = ScriptedProvider(["never"])
    runtime = Runtime(
        provider, clock=clock, breakers=clock.breakers, limits=Limits(timeout=None)
    )
    retries_left(runtime)  # spends them
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.llm_calls, clock.slept, provider.requests) == (
        "failed",
        1,
        [7, 7, 7],
        [],
    )
    assert isinstance(result.error, CircuitOpen)
    assert retries_left(runtime) == 0


async def test_a_retry_that_the_breaker_rejects_is_not_paid_for() -> None:
    clock = Renewed(lambda clock: clock.breaker.force_open("enough"))
    provider = ScriptedProvider([down()])
    runtime = Runtime(provider, clock=clock, breakers=clock.breakers)
    result = await ReActEngine(runtime).run("Go.")

    assert (str(result.error), len(provider.requests)) == (
        "scripted/script is switched off: enough",
        1,
    )
    assert retries_left(runtime) == 10


async def test_rejected_calls_earn_no_retries() -> None:
    breakers = CircuitBreakers()
    breakers.force_open("scripted/script", "enough")
    runtime = Runtime(ScriptedProvider(["never"]), breakers=breakers)
    retries_left(runtime)  # spends them
    for _ in range(20):
        await ReActEngine(runtime).run("Go.")

    assert retries_left(runtime) == 0


async def test_a_rejection_is_no_attempt_after_a_crash_either() -> None:
    clock = FakeClock()
    breakers = CircuitBreakers(clock=clock)
    breakers.get("scripted/script").cool_down(30)
    runtime = Runtime(ScriptedProvider(["done"]), clock=clock, breakers=breakers)
    entries = runtime.journal.read((await ReActEngine(runtime).run("Go.")).run_id)

    provider = ScriptedProvider([down(), down(), "done"])
    journal = crashed(entries, cut_after(entries, "attempt_failed", 1))
    result = await ReActEngine(
        Runtime(provider, clock=FakeClock(), journal=journal)
    ).resume(entries[0].run_id)

    assert (result.status, len(provider.requests), result.llm_calls) == (
        "completed",
        3,
        3,
    )


@pytest.mark.parametrize(
    "error",
    [down(429), down(429, after=0), ProviderError("wait", status=400, retry_after=9)],
)
async def test_only_a_server_that_says_how_long_it_has_too_much_to_do_is_left_alone(
    error: ProviderError,
) -> None:
    _, _, _, runtime = await run(error, "done")

    runtime.breakers.get("scripted/script").acquire()


async def test_a_rejection_by_a_breaker_inside_of_the_provider_is_no_failure_of_it() -> (
    None
):
    inner = CircuitOpen("the inner one is open", retryable=True, retry_after=3)
    result, _, clock, runtime = await run(
        inner, "done", breakers=CircuitBreakers(threshold=1)
    )

    assert (result.status, clock.slept) == ("completed", [3])
    assert runtime.breakers.get("scripted/script").state == "closed"


# --- deadlines ---


class Hanging(ScriptedProvider):
    """Never answers."""

    async def complete(self, request: Any) -> Completion:
        self.requests.append(request)
        await asyncio.sleep(30)
        raise AssertionError("nobody waits this long")


async def test_a_provider_that_hangs_is_cut_off_at_the_run_s_deadline() -> None:
    provider = Hanging([])
    runtime = Runtime(provider, limits=Limits(timeout=0.05))
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "timeout",
        None,
    )
    assert result.llm_calls == 1
    assert runtime.breakers.get("scripted/script").state == "closed"


async def test_a_time_out_of_the_provider_s_own_is_an_error_and_no_limit() -> None:
    result, _, _, _ = await run(ProviderTimeout("no answer within 60 s"))

    assert (result.status, result.stop_reason) == ("failed", "provider_error")
    assert isinstance(result.error, TimeoutError)


# --- what comes back ---


async def test_usage_is_kept_as_the_provider_told_it() -> None:
    told = Usage(100, 20, cached_tokens=80, reasoning_tokens=5, cost=0.01)
    result, _, _, runtime = await run(
        Completion("done", answer="done", usage=told, model="m-1")
    )

    assert result.usage == told
    replied = [
        e.event
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, ModelReplied)
    ]
    assert [(event.completion.usage, event.completion.model) for event in replied] == [
        (told, "m-1")
    ]


@pytest.mark.parametrize(
    ("told", "known"),
    [
        (Usage(), (None, None)),
        (Usage(100), (100, None)),
        (Usage(None, 20), (None, 20)),
        (Usage(0, 0), (0, 0)),
    ],
)
async def test_only_what_is_not_told_is_estimated(
    told: Usage, known: tuple[int | None, int | None]
) -> None:
    result, _, _, _ = await run(Completion("a" * 400, answer="a" * 400, usage=told))

    usage = result.usage
    assert usage.estimated is (None in known)
    assert (
        usage.input_tokens == known[0]
        if known[0] is not None
        else (usage.input_tokens or 0) > 0
    )
    assert (
        usage.output_tokens == known[1]
        if known[1] is not None
        else usage.output_tokens == 101
    )


async def test_calls_are_part_of_an_estimate() -> None:
    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        return "blue"

    wanted = Completion(
        calls=(call("look", what="x" * 400),), finish_reason="tool_calls"
    )
    result, _, _, _ = await run(wanted, Completion("", answer=""), tools=[look])

    assert (result.usage.output_tokens or 0) > 100


@pytest.mark.parametrize("reply", [None, "text", {"answer": "x"}])
async def test_a_provider_that_returns_something_else_is_an_error_that_names_it(
    reply: Any,
) -> None:
    class Odd(ScriptedProvider):
        async def complete(self, request: Any) -> Any:
            return reply

    result = await ReActEngine(Runtime(Odd([]))).run("Go.")

    assert (result.status, result.stop_reason) == ("failed", "provider_error")
    assert type(reply).__name__ in str(result.error)


@pytest.mark.parametrize("answer", ["", " ", "Error: not an error at all"])
async def test_an_answer_is_an_answer_whatever_it_says(answer: str) -> None:
    result, _, _, _ = await run(Completion(answer, answer=answer, usage=Usage(1, 1)))

    assert (result.status, result.answer) == ("completed", answer)


async def test_a_reply_with_half_a_surrogate_pair_is_no_crash() -> None:
    result, _, _, _ = await run(
        Completion("half \ud83d", answer="half \ud83d", usage=Usage(1, 1))
    )

    assert (result.status, result.stop_reason) in [
        ("completed", "answered"),
        ("failed", "provider_error"),
    ]


async def test_a_call_that_is_too_long_for_the_model_is_no_failure_of_the_provider() -> (
    None
):
    runtime = Runtime(
        ScriptedProvider([ContextTooLong("8k")]), breakers=CircuitBreakers(threshold=1)
    )
    result = await ReActEngine(runtime).run("Go.")

    assert result.stop_reason == "context_overflow"
    assert runtime.breakers.get("scripted/script").state == "closed"


async def test_the_size_of_a_reply_is_known_whatever_numbers_are_in_it() -> None:
    @tool(effect="read")
    async def add(numbers: list[int]) -> str:
        """Add."""
        return "added"

    script = [call("add", numbers=[10**5_000]), "done"]
    result = await ReActEngine(Runtime(ScriptedProvider(script), tools=[add])).run(
        "Add."
    )

    assert (result.answer, result.tool_calls) == ("done", 1)
    script = [call("add", numbers=[0] * 2_000_001), "done"]
    result = await ReActEngine(Runtime(ScriptedProvider(script), tools=[add])).run(
        "Add."
    )
    assert "more than 2,000,000 characters" in str(result.error)
