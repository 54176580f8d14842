"""One model call: what is tried again, when, how often, and what is said when it was for nothing."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from function_engine import FunctionEngine
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
    Run,
    Runtime,
    Usage,
    tool,
)
from loopwright._kernel.durability.replay import Replay
from loopwright.errors import CircuitOpen, ContextTooLong, ProviderTimeout, Suspended
from loopwright.events import (
    AttemptFailed,
    ErrorRecord,
    ModelReplied,
    ModelWaiting,
    RunSuspended,
)
from loopwright.providers import CallDelta
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from virtual_time import in_virtual_time


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
        1,
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


@pytest.mark.faults
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


async def test_a_run_waits_for_its_provider_and_is_suspended_after_that() -> None:
    clock = FakeClock()
    provider = ScriptedProvider(lambda request: down())
    runtime = Runtime(provider, clock=clock, limits=Limits(timeout=10))
    engine = ReActEngine(runtime)
    result = await engine.run("Go.", run_id="r")

    assert (result.status, result.stop_reason, result.answer) == (
        "suspended",
        "provider_unavailable",
        None,
    )
    assert 90 <= sum(clock.slept) <= 120
    assert result.llm_calls == 1  # an attempt without usage takes no place
    [suspended] = [
        e.event for e in runtime.journal.read("r") if isinstance(e.event, RunSuspended)
    ]
    assert suspended.reason == "provider_unavailable"
    assert suspended.wake_at >= clock.wall() + 30
    assert [info.status for info in runtime.journal.runs()] == ["suspended"]


async def test_a_run_that_was_suspended_continues_when_its_provider_works_again() -> (
    None
):
    clock, works = FakeClock(), False
    provider = ScriptedProvider(lambda request: "done" if works else down())
    runtime = Runtime(provider, clock=clock, limits=Limits(max_llm_calls=1))
    engine = ReActEngine(runtime)
    suspended = await engine.run("Go.", run_id="r")
    failed = len(attempts(runtime, suspended))
    works = True
    clock.advance(1000)
    result = await engine.resume("r")

    assert (suspended.status, result.status, result.answer) == (
        "suspended",
        "completed",
        "done",
    )
    assert (result.llm_calls, failed) == (1, len(attempts(runtime, result)))
    numbers = [attempt.attempt for attempt in attempts(runtime, result)]
    assert numbers == list(range(1, failed + 1))


async def test_a_wait_that_would_be_too_long_suspends_the_run_at_once() -> None:
    result, provider, clock, _ = await run(down(429, after=600))

    assert (result.status, len(provider.requests), clock.slept) == ("suspended", 1, [])
    assert isinstance(result.error, Suspended)
    assert result.error.wake_at == clock.wall() + 600


async def test_a_run_that_waits_for_its_provider_stops_when_it_is_told_to() -> None:
    waiting = asyncio.Event()

    class Slow(FakeClock):
        async def sleep(self, seconds: float) -> None:
            waiting.set()
            await asyncio.sleep(seconds)

    provider = ScriptedProvider([down(after=60)])
    async with ReActEngine(Runtime(provider, clock=Slow())).start("Go.") as handle:
        await waiting.wait()
        await handle.stop()
        result = await asyncio.wait_for(handle.result(), 60)

    assert (result.status, len(provider.requests)) == ("aborted", 1)


async def test_one_branch_that_waits_holds_up_no_other() -> None:
    def answer(request: Request) -> Any:
        return down() if "down" in request.conversation.task else "done"

    async def body(run: Run) -> object:
        return await run.gather(
            lambda branch: branch.ask("down"), lambda branch: branch.ask("up")
        )

    clock = FakeClock()
    runtime = Runtime(ScriptedProvider(answer), clock=clock)
    result = await FunctionEngine(runtime, body=body).run("Go.", run_id="r")
    replies = [
        e.key for e in runtime.journal.read("r") if isinstance(e.event, ModelReplied)
    ]

    assert (result.status, replies) == ("suspended", ["0.1.0"])


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

    assert (result.status, ran, result.llm_calls) == ("completed", ["sent"], 2)


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
        AttemptFailed(2, ErrorRecord.of(down(429, after=0)), 0, 17.5),
    ]


async def test_waiting_for_a_provider_costs_no_active_time() -> None:
    script = [down(503, after=25), down(503, after=25), "done"]
    result, _, clock, runtime = await run(*script, limits=Limits(timeout=1))

    assert (result.status, clock.slept) == ("completed", [25, 25])
    replay = Replay(runtime.journal.read(result.run_id))
    assert replay.totals.active_seconds == pytest.approx(0, abs=1e-3)


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


# --- how often, over all runs ---


@pytest.mark.faults
async def test_an_outage_is_not_multiplied_by_retries() -> None:
    clock = FakeClock()
    provider = ScriptedProvider(lambda request: down(after=0))
    breakers = CircuitBreakers(threshold=None, rate=None)
    runtime = Runtime(provider, clock=clock, breakers=breakers)
    started = clock.monotonic()
    for number in range(30):
        result = await ReActEngine(runtime).run("Go.", run_id=f"run{number}")
        assert result.stop_reason == "provider_unavailable"

    # 30 first attempts, the 10 of a full budget, and one a second.
    assert len(provider.requests) <= 30 + 10 + (clock.monotonic() - started) + 1


async def test_a_call_without_a_retry_left_waits_for_one() -> None:
    provider = ScriptedProvider([down(after=0), "done"])
    runtime = Runtime(provider, clock=(clock := FakeClock()))
    retries_left(runtime)  # spends them
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, sum(clock.slept)) == ("completed", pytest.approx(1))


async def test_each_provider_and_model_has_a_retry_budget_of_its_own() -> None:
    runtime = Runtime(ScriptedProvider([]))
    one, other = ScriptedProvider([], model="one"), ScriptedProvider([], model="other")

    assert runtime.retry_budget(one) is runtime.retry_budget(one)
    assert runtime.retry_budget(one) is not runtime.retry_budget(other)


async def test_pauses_continue_to_grow_after_a_crash() -> None:
    failing = ScriptedProvider(lambda request: down())
    runtime = Runtime(failing, clock=FakeClock())
    entries = runtime.journal.read((await ReActEngine(runtime).run("Go.")).run_id)

    longest = 0.0
    for _ in range(20):
        clock = FakeClock()
        journal = crashed(entries, cut_after(entries, "attempt_failed", 6))
        provider = ScriptedProvider([down(), "done"])
        again = Runtime(provider, clock=clock, journal=journal)
        result = await ReActEngine(again).resume(entries[0].run_id)
        assert result.status == "completed"
        longest = max(longest, *clock.slept)

    assert longest > 4  # a first pause is at most 0.5 s


# --- the breaker, and what it rejects ---


def retries_left(runtime: Runtime) -> int:
    """How many retries the budget would pay for."""
    budget, left = runtime.retry_budget(runtime.provider), 0
    while budget.spend():
        left += 1
    return left


async def test_a_breaker_that_opens_makes_the_call_wait_for_its_probe() -> None:
    clock = FakeClock()
    breakers = CircuitBreakers(threshold=1, clock=clock)
    provider = ScriptedProvider([down(503, after=0), "done"])
    runtime = Runtime(provider, clock=clock, breakers=breakers)
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, len(provider.requests)) == ("completed", 2)
    assert sum(clock.slept) == pytest.approx(1.0)
    [waiting] = [
        e.event
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, ModelWaiting)
    ]
    assert (waiting.reason, waiting.until) == ("circuit_open", clock.wall())


async def test_being_told_to_slow_down_never_opens_the_breaker() -> None:
    result, provider, _, runtime = await run(
        *[down(429, after=1), down(429)] * 25,
        "done",
        limits=Limits(timeout=None, max_provider_wait=None),
    )

    assert (result.status, len(provider.requests)) == ("completed", 51)
    assert runtime.breakers.get("scripted/script").state == "closed"


async def test_what_one_run_is_told_to_wait_all_runs_wait() -> None:
    script = [down(429, after=190), "done", "done"]
    told, provider, clock, runtime = await run(*script)
    too_early = await ReActEngine(runtime).run("Go.")
    clock.advance(140)
    waited, after = [await ReActEngine(runtime).run("Go.") for _ in range(2)]

    assert [r.status for r in (told, too_early, waited, after)] == [
        "suspended",
        "suspended",
        "completed",
        "completed",
    ]
    assert (clock.slept, len(provider.requests)) == ([50.0], 3)
    assert attempts(runtime, waited) == attempts(runtime, after) == []


async def test_to_wait_for_a_cool_down_costs_no_call_and_no_retry() -> None:
    breakers = CircuitBreakers(clock=(clock := FakeClock()))
    breakers.get("scripted/script").cool_down(30)
    provider = ScriptedProvider(["done"])
    runtime = Runtime(
        provider, clock=clock, breakers=breakers, limits=Limits(max_llm_calls=1)
    )
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.llm_calls, clock.slept) == ("completed", 1, [30])
    assert retries_left(runtime) == 10 + 1  # the reserve, and what the call earned


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


async def test_a_call_that_meets_one_cool_down_after_another_is_suspended() -> None:
    clock = Renewed(lambda clock: clock.breaker.cool_down(7))
    clock.breaker.cool_down(7)
    provider = ScriptedProvider(["never"])
    runtime = Runtime(provider, clock=clock, breakers=clock.breakers)
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.llm_calls, clock.slept, provider.requests) == (
        "suspended",
        1,
        [7] * 17,
        [],
    )


async def test_a_model_that_a_person_switched_off_fails_the_call() -> None:
    clock = Renewed(lambda clock: clock.breaker.force_open("enough"))
    provider = ScriptedProvider([down()])
    runtime = Runtime(provider, clock=clock, breakers=clock.breakers)
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, str(result.error), len(provider.requests)) == (
        "failed",
        "scripted/script is switched off: enough",
        1,
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


@in_virtual_time
async def test_a_provider_that_hangs_is_cut_off_at_the_run_s_deadline() -> None:
    provider = Hanging([])
    runtime = Runtime(provider, limits=Limits(timeout=20))
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
