"""An endpoint that is down, over real connections: how often it is called, how long is waited, and never too long."""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncGenerator, Callable
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fault_sizes import figure, sized
from loopwright import (
    CircuitBreakers,
    Completion,
    Limits,
    ProviderError,
    ReActEngine,
    Request,
    Result,
    Runtime,
    Worker,
    tool,
)
from loopwright.events import ToolFinished
from loopwright.providers import OpenAIProvider
from loopwright.testing import FakeClock, ScriptedProvider, call

Answer = bytes | None  # what is sent; nothing, and the connection is reset


def reply(status: int, body: object, *headers: bytes) -> bytes:
    told = json.dumps(body).encode()
    head = [b"HTTP/1.1 %d Told" % status, b"content-type: application/json", *headers]
    return b"\r\n".join([*head, b"content-length: %d" % len(told), b"", told])


def says(text: str) -> bytes:
    """The answer of a model that works."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    return reply(
        200,
        {
            "model": "m",
            "choices": [choice],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2},
        },
    )


def refuses(status: int, *headers: bytes) -> bytes:
    return reply(status, {"error": {"message": "not now"}}, *headers)


class Endpoint:
    """Answers the n-th request, from 1, with what `answer` gives for n."""

    def __init__(self, answer: Callable[[int], Answer]) -> None:
        self.answer, self.requests, self.url = answer, 0, ""

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(
                    int(
                        head.lower()
                        .partition(b"content-length: ")[2]
                        .partition(b"\r\n")[0]
                    )
                )
                self.requests += 1
                told = self.answer(self.requests)
                if told is None:
                    writer.transport.abort()
                    return
                writer.write(told)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is done
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def asking(
    answer: Callable[[int], Answer],
) -> AsyncGenerator[tuple[Endpoint, OpenAIProvider]]:
    endpoint = Endpoint(answer)
    async with await asyncio.start_server(endpoint.serve, "127.0.0.1", 0) as listening:
        endpoint.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        provider = OpenAIProvider(
            "m", base_url=endpoint.url, api_key="a-key-of-some-length"
        )
        try:
            yield endpoint, provider
        finally:
            await provider.aclose()


def never_open(clock: FakeClock) -> CircuitBreakers:
    """Breakers that do not hide what the retry budget does."""
    return CircuitBreakers(threshold=None, rate=None, clock=clock)


# --- how often ---


@pytest.mark.timeout(600)
async def test_the_retry_budget_bounds_what_runs_without_a_breaker_send() -> None:
    """The endpoint answers 503 and resets connections in turn; the runs share a runtime, and with it the budget."""
    requests, clock = sized(100, 1000), FakeClock()
    begun = clock.monotonic()
    async with asking(lambda n: refuses(503) if n % 2 else None) as (
        endpoint,
        provider,
    ):
        # The runs share a clock that moves when one of them sleeps: no measure of their active time.
        limits = Limits(timeout=None)
        runtime = Runtime(
            provider, clock=clock, breakers=never_open(clock), limits=limits
        )
        free = asyncio.Semaphore(25)

        async def one() -> Result:
            async with free:
                return await ReActEngine(runtime).run("Go.")

        results = await asyncio.gather(*(one() for _ in range(requests)))

    elapsed = clock.monotonic() - begun
    figure(
        "outage without a breaker",
        f"{requests} runs made {endpoint.requests} calls in {elapsed:.0f} s",
    )
    assert {(r.status, r.stop_reason) for r in results} == {
        ("suspended", "provider_unavailable")
    }
    assert requests < endpoint.requests <= requests + 11 + elapsed


@pytest.mark.timeout(600)
async def test_with_the_breaker_an_outage_gets_one_call_a_second_at_most() -> None:
    requests, clock = sized(20, 200), FakeClock()
    begun = clock.monotonic()
    async with asking(lambda n: refuses(503)) as (endpoint, provider):
        runtime = Runtime(provider, clock=clock)
        results = [await ReActEngine(runtime).run("Go.") for _ in range(requests)]

    elapsed = clock.monotonic() - begun
    figure(
        "outage with the breaker",
        f"{requests} runs made {endpoint.requests} calls in {elapsed:.0f} s",
    )
    assert {(r.status, r.stop_reason) for r in results} == {
        ("suspended", "provider_unavailable")
    }
    assert endpoint.requests <= 10 + elapsed


# --- how long a server may ask to wait ---


def in_seconds(seconds: float) -> bytes:
    return b"retry-after: " + formatdate(time.time() + seconds, usegmt=True).encode()


A_DAY = 86_400.0  # dates are made when tests are collected, and read when theirs is run


# What the server says, and the pause: that long at least and at most; `None` is no second try.
JITTER = (0.0, 0.5)  # the pause that is made where the server says nothing clear
FORMS: dict[str, tuple[tuple[bytes, ...], tuple[float, float] | None]] = {
    "seconds": ((b"retry-after: 7",), (7, 7)),
    "a fraction": ((b"Retry-After: 1.5",), (1.5, 1.5)),
    "zero": ((b"retry-after: 0",), (0, 0)),
    "blanks around it": ((b"retry-after: \t 3  ",), (3, 3)),
    "a date": ((in_seconds(A_DAY),), None),
    "a date that has passed": ((in_seconds(-A_DAY),), JITTER),
    "a date that never was": ((b"retry-after: Wed, 99 Oct 2099 07:28:00 GMT",), JITTER),
    "milliseconds": ((b"retry-after-ms: 250",), (0.25, 0.25)),
    "both": ((b"retry-after: 9", b"retry-after-ms: 1250"), (1.25, 1.25)),
    "both, the finer one unclear": (
        (b"retry-after: 9", b"retry-after-ms: soon"),
        (9, 9),
    ),
    "negative": ((b"retry-after: -5",), JITTER),
    "infinite": ((b"retry-after: inf",), JITTER),
    "no number": ((b"retry-after: nan",), JITTER),
    "an exponent": ((b"retry-after: 1e1",), JITTER),
    "a list": ((b"retry-after: 7, 9",), JITTER),
    "twice": ((b"retry-after: 7", b"retry-after: 9"), JITTER),
    "digits of another script": (("retry-after: \u0663".encode(),), JITTER),
    "a superscript digit": ((b"retry-after: \xb2",), JITTER),
    "garbage": ((b"retry-after: when it is done",), JITTER),
    "empty": ((b"retry-after:",), JITTER),
    "four hundred digits": ((b"retry-after: " + b"9" * 400,), JITTER),
    "a minute": ((b"retry-after: 60",), (60, 60)),
    "more than a minute": ((b"retry-after: 60.5",), (60.5, 60.5)),
    "a month": ((b"retry-after: 2592000",), None),
    "nothing": ((), JITTER),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", [429, 503])
async def test_however_a_server_says_when_the_pause_is_that_or_a_short_one(
    form: str, status: int
) -> None:
    headers, pause = FORMS[form]
    clock = FakeClock()
    async with asking(
        lambda n: refuses(status, *headers) if n == 1 else says("done")
    ) as (endpoint, provider):
        result = await ReActEngine(Runtime(provider, clock=clock)).run("Go.")

    if pause is None:
        assert (result.status, endpoint.requests, clock.slept) == ("suspended", 1, [])
    else:
        assert (result.answer, endpoint.requests) == ("done", 2)
        assert pause[0] - 1e-6 <= sum(clock.slept) <= pause[1] + 1e-6


@pytest.mark.parametrize("asked", [b"315360000", b"9" * 300])
async def test_a_server_that_asks_for_years_is_asked_again_after_a_day(
    asked: bytes,
) -> None:
    clock = FakeClock()
    async with asking(
        lambda n: refuses(429, b"retry-after: " + asked) if n == 1 else says("done")
    ) as (endpoint, provider):
        runtime = Runtime(provider, clock=clock, lease=30.0)
        result = await ReActEngine(runtime).run("Go.")
        clock.advance(24 * 3600 - 1)
        early = await Worker(runtime).drain()
        clock.advance(2)
        [woken] = await Worker(runtime).drain()

    assert (result.status, early) == ("suspended", [])
    assert (woken.answer, endpoint.requests) == ("done", 2)


@pytest.mark.parametrize("asked", [math.inf, math.nan, -1.0])
async def test_a_pause_that_cannot_be_asked_for_loses_no_run(asked: float) -> None:
    clock = FakeClock()

    class Odd(ScriptedProvider):
        """Asks for a pause that is no length of time."""

        async def complete(self, request: Request) -> Completion:
            if clock.wall() < until:
                raise ProviderError(
                    "busy", status=503, retryable=True, retry_after=asked
                )
            return await super().complete(request)

    until = clock.wall() + 5
    runtime = Runtime(Odd(["done"]), clock=clock, lease=30.0)
    result = await ReActEngine(runtime).run("Go.")
    if result.status == "suspended":
        clock.advance(24 * 3600 + 1)
        [result] = await Worker(runtime).drain()

    assert result.answer == "done"


async def test_a_date_is_waited_for() -> None:
    clock = FakeClock()
    async with asking(
        lambda n: refuses(429, in_seconds(40)) if n == 1 else says("done")
    ) as (endpoint, provider):
        result = await ReActEngine(Runtime(provider, clock=clock)).run("Go.")

    assert (result.answer, endpoint.requests) == ("done", 2)
    assert 30 < sum(clock.slept) <= 40


async def test_a_server_that_asks_all_to_slow_down_gets_no_call_until_then() -> None:
    clock = FakeClock()
    answers = {
        1: refuses(429, b"retry-after: 121"),
        2: says("waited"),
        3: says("at once"),
    }
    async with asking(answers.__getitem__) as (endpoint, provider):
        runtime = Runtime(provider, clock=clock)
        engine = ReActEngine(runtime)
        refused, *rejected = [await engine.run("Go.") for _ in range(20)]
        meanwhile = endpoint.requests
        clock.advance(90)
        after = [await engine.run("Go.") for _ in range(2)]

    assert (refused.status, meanwhile, endpoint.requests) == ("suspended", 1, 3)
    assert {r.status for r in rejected} == {"suspended"}
    assert [r.answer for r in after] == ["waited", "at once"]
    assert sum(clock.slept) == pytest.approx(31)
    assert runtime.breakers.states() == {f"{provider.name}/m": "closed"}


# --- what waiting costs the run ---


class Failing(ScriptedProvider):
    """Takes its time, and fails."""

    def __init__(
        self, clock: FakeClock, calls: list[tuple[float, int, float | None]]
    ) -> None:
        super().__init__([])
        self.clock, self.calls = clock, calls

    async def complete(self, request: Request) -> Completion:
        seconds, status, after = self.calls.pop(0) if self.calls else (0.0, 503, None)
        self.clock.advance(seconds)
        raise ProviderError("down", status=status, retryable=True, retry_after=after)


CALLS = st.tuples(
    st.sampled_from([0.0, 0.5, 9.0, 30.0]),
    st.sampled_from([429, 503]),
    st.sampled_from([None, 0.0, 3.0, 19.0, 59.0, 61.0]),
)


@given(
    st.lists(CALLS, max_size=4),
    st.sampled_from([5.0, 20.0, 60.0, 100.0]),
    st.sampled_from([0.0, 10.0, 50.0]),
)
@settings(max_examples=sized(100, 5000))
def test_waits_cost_no_active_time_and_end_after_the_bound(
    calls: list[tuple[float, int, float | None]], timeout: float, cooling: float
) -> None:
    clock = FakeClock()
    breakers = CircuitBreakers(clock=clock)
    breakers.get("scripted/script").cool_down(cooling)
    active = sum(seconds for seconds, _, _ in calls)
    runtime = Runtime(
        Failing(clock, calls),
        clock=clock,
        breakers=breakers,
        limits=Limits(timeout=timeout, max_provider_wait=60),
    )
    result = asyncio.run(ReActEngine(runtime).run("Go."))

    assert result.status in {"suspended", "limit"}
    assert result.status == "suspended" or active >= timeout
    assert sum(clock.slept) <= 60 + 1e-6


async def test_a_run_waits_longer_than_its_time_in_all_for_a_server_that_asks() -> None:
    clock = FakeClock()
    limits = Limits(timeout=40)
    async with asking(lambda n: refuses(503, b"retry-after: 25")) as (
        endpoint,
        provider,
    ):
        result = await ReActEngine(Runtime(provider, clock=clock, limits=limits)).run(
            "Go."
        )

    assert (result.status, endpoint.requests) == ("suspended", 5)
    assert sum(clock.slept) == pytest.approx(100)


async def test_what_a_tool_took_does_not_shorten_the_wait() -> None:
    clock = FakeClock()

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        clock.advance(15)
        return "blue"

    busy = ProviderError("busy", status=503, retryable=True, retry_after=10)
    provider = ScriptedProvider([call("look"), busy, "done"])
    runtime = Runtime(provider, tools=[look], clock=clock, limits=Limits(timeout=20))
    result = await ReActEngine(runtime).run("Go.")

    assert (result.answer, sum(clock.slept)) == ("done", pytest.approx(10))


async def test_by_the_real_clock_too_pauses_are_free_and_hanging_tools_are_not() -> (
    None
):
    @tool(effect="read")
    async def hang() -> str:
        """Never answer."""
        await asyncio.sleep(60)
        return "at last"

    def ask(limits: Limits, *script: object) -> Runtime:
        return Runtime(ScriptedProvider(script), tools=[hang], limits=limits)  # type: ignore[arg-type]

    busy = ProviderError("busy", status=503, retryable=True, retry_after=2.0)
    runtimes = [
        ask(Limits(timeout=2), busy, busy, "done"),
        ask(Limits(timeout=2, tool_timeout=0.2), call("hang"), busy, "done"),
        ask(Limits(timeout=2), call("hang"), "never"),
    ]
    begun = time.monotonic()
    results = await asyncio.gather(
        *(ReActEngine(runtime).run("Go.") for runtime in runtimes)
    )
    took = time.monotonic() - begun

    assert [r.stop_reason for r in results] == [
        "answered",
        "answered",
        "timeout",
    ]
    ended = [[e.event.status for e in r.journal.read(i.run_id) if isinstance(e.event, ToolFinished)]
             for r, i in zip(runtimes, results, strict=True)]  # fmt: skip
    assert ended == [[], ["timed_out"], ["timed_out"]]
    assert took < 60, "no hanging tool was waited for to its end"
