"""Circuit breakers: when they open, how they try again, and what they never count."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from loopwright import (
    AllowAll,
    CircuitBreaker,
    CircuitBreakers,
    CircuitOpen,
    ProviderError,
    ProviderTimeout,
    ReActEngine,
    Result,
    Runtime,
    ToolError,
    tool,
)
from loopwright.breaker import BreakerPass
from loopwright.events import BreakerChanged, ToolFinished, ToolStarted
from loopwright.testing import FakeClock, ScriptedProvider, call


class Wandering(FakeClock):
    """A clock whose wall time jumps about."""

    def wall(self) -> float:
        """A day earlier at every look."""
        self._wall -= 86_400
        return super().wall()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker("tool/x", clock=clock)


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.failure(breaker.acquire())


def opened(breaker: CircuitBreaker) -> CircuitBreaker:
    fail(breaker, 5)
    assert breaker.state == "open"
    return breaker


def rejected(breaker: CircuitBreaker) -> CircuitOpen:
    with pytest.raises(CircuitOpen) as rejection:
        breaker.acquire()
    return rejection.value


def test_it_opens_at_the_fifth_failure_in_a_row_and_not_before(breaker: CircuitBreaker) -> None:
    fail(breaker, 4)
    assert breaker.state == "closed"

    fail(breaker)
    assert breaker.state == "open"


def test_a_success_ends_the_row(breaker: CircuitBreaker) -> None:
    fail(breaker, 4)
    breaker.success(breaker.acquire())
    fail(breaker, 4)

    assert breaker.state == "closed"


def test_a_call_without_a_verdict_neither_counts_nor_ends_the_row(breaker: CircuitBreaker) -> None:
    fail(breaker, 4)
    breaker.cancel(breaker.acquire())
    assert breaker.state == "closed"

    fail(breaker)
    assert breaker.state == "open"


def test_an_open_breaker_says_how_long_to_wait(breaker: CircuitBreaker, clock: FakeClock) -> None:
    opened(breaker)
    clock.advance(10)
    rejection = rejected(breaker)

    assert rejection.retry_after == pytest.approx(20)
    assert rejection.retryable is False
    assert str(rejection) == "tool/x failed too often; it is not called for another 20.0 s"


def test_a_rejection_is_not_a_failure_and_does_not_lengthen_the_wait(breaker: CircuitBreaker, clock: FakeClock) -> None:
    opened(breaker)
    for _ in range(100):
        rejected(breaker)
    clock.advance(30)
    breaker.success(breaker.acquire())

    assert breaker.state == "closed"
    fail(breaker, 4)
    assert breaker.state == "closed"


def test_after_the_wait_one_probe_of_fifty_is_let_through(breaker: CircuitBreaker, clock: FakeClock) -> None:
    opened(breaker)
    clock.advance(30)
    passes: list[BreakerPass] = []
    for _ in range(50):
        try:
            passes.append(breaker.acquire())
        except CircuitOpen:
            continue

    assert [given.probe for given in passes] == [True]
    assert breaker.state == "half-open"


def test_a_probe_that_works_closes_it_and_the_row_starts_anew(breaker: CircuitBreaker, clock: FakeClock) -> None:
    opened(breaker)
    clock.advance(30)
    breaker.success(breaker.acquire())
    assert breaker.state == "closed"

    fail(breaker, 4)
    assert breaker.state == "closed"
    fail(breaker)
    assert rejected(breaker).retry_after == pytest.approx(30)


def test_each_failed_probe_doubles_the_wait_up_to_a_bound(breaker: CircuitBreaker, clock: FakeClock) -> None:
    opened(breaker)
    waits: list[float] = []
    for _ in range(6):
        wait = rejected(breaker).retry_after
        assert wait is not None
        waits.append(wait)
        clock.advance(wait)
        fail(breaker)

    assert waits == pytest.approx([30, 60, 120, 240, 300, 300])


def test_a_cancelled_probe_gives_its_place_back(breaker: CircuitBreaker, clock: FakeClock) -> None:
    opened(breaker)
    clock.advance(30)
    breaker.cancel(breaker.acquire())

    assert breaker.state == "half-open"
    breaker.success(breaker.acquire())
    assert breaker.state == "closed"


def test_a_probe_that_never_comes_back_makes_room_after_a_while(breaker: CircuitBreaker, clock: FakeClock) -> None:
    opened(breaker)
    clock.advance(30)
    lost = breaker.acquire()
    assert rejected(breaker).retry_after == pytest.approx(60)
    clock.advance(60)
    second = breaker.acquire()

    breaker.failure(lost)
    breaker.success(lost)
    breaker.cancel(lost)
    assert breaker.state == "half-open"
    rejected(breaker)
    breaker.success(second)
    assert breaker.state == "closed"


@pytest.mark.parametrize("verdict", ["success", "failure", "cancel"])
def test_a_late_verdict_of_an_earlier_state_changes_nothing(
    breaker: CircuitBreaker, clock: FakeClock, verdict: str
) -> None:
    late = breaker.acquire()
    opened(breaker)
    getattr(breaker, verdict)(late)
    assert breaker.state == "open"

    clock.advance(30)
    probe = breaker.acquire()
    getattr(breaker, verdict)(late)
    assert breaker.state == "half-open"
    rejected(breaker)

    breaker.success(probe)
    getattr(breaker, verdict)(late)
    fail(breaker, 4)
    assert breaker.state == "closed"


@pytest.mark.parametrize("jump", [86_400, -86_400])
def test_the_wall_clock_has_no_say(jump: int) -> None:
    clock = Wandering()
    clock._wall += jump
    breaker = opened(CircuitBreaker("tool/x", clock=clock))

    assert rejected(breaker).retry_after == pytest.approx(30)
    clock.advance(30)
    assert breaker.acquire().probe


def test_a_listener_hears_each_change_and_may_look_at_the_breaker(breaker: CircuitBreaker, clock: FakeClock) -> None:
    heard: list[tuple[str, str, str, str]] = []

    def listen(name: str, before: str, after: str) -> None:
        heard.append((name, before, after, breaker.state))

    for _ in range(5):
        breaker.failure(breaker.acquire(listen), listen)
    clock.advance(30)
    breaker.failure(breaker.acquire(listen), listen)
    clock.advance(60)
    breaker.success(breaker.acquire(listen), listen)

    assert heard == [
        ("tool/x", "closed", "open", "open"),
        ("tool/x", "open", "half-open", "half-open"),
        ("tool/x", "half-open", "open", "open"),
        ("tool/x", "open", "half-open", "half-open"),
        ("tool/x", "half-open", "closed", "closed"),
    ]


def in_threads(work: Callable[[], None], count: int = 8) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_eight_threads_get_one_probe_between_them(clock: FakeClock) -> None:
    for _ in range(20):
        breaker = opened(CircuitBreaker("tool/x", clock=clock))
        clock.advance(30)
        passes: list[BreakerPass] = []
        start = threading.Barrier(8)

        def probe(
            breaker: CircuitBreaker = breaker, start: threading.Barrier = start, passes: list[BreakerPass] = passes
        ) -> None:
            start.wait()
            try:
                passes.append(breaker.acquire())
            except CircuitOpen:
                return

        in_threads(probe)

        assert len(passes) == 1


def test_threads_share_the_registry() -> None:
    breakers = CircuitBreakers(keep=50)
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for i in range(500):
            fail(breakers.get(f"tool/{i % 100}"))

    before = threading.excepthook
    problems: list[Any] = []
    threading.excepthook = problems.append
    try:
        in_threads(work)
    finally:
        threading.excepthook = before

    assert [problem.exc_type for problem in problems if problem.exc_type is not CircuitOpen] == []


def test_one_breaker_serves_several_event_loops(clock: FakeClock) -> None:
    breakers = CircuitBreakers(clock=clock)

    async def fails() -> None:
        fail(breakers.get("tool/x"))

    for _ in range(5):
        asyncio.run(fails())

    assert breakers.get("tool/x").state == "open"


def test_each_name_has_a_breaker_of_its_own(clock: FakeClock) -> None:
    breakers = CircuitBreakers(clock=clock)
    opened(breakers.get("tool/x"))

    assert breakers.get("tool/x") is breakers.get("tool/x")
    assert breakers.get("tool/y").state == "closed"


def test_the_longest_unused_closed_breaker_is_forgotten_first_and_an_open_one_never(clock: FakeClock) -> None:
    breakers = CircuitBreakers(keep=3, clock=clock)
    opened(breakers.get("open"))
    fail(breakers.get("a"), 4)
    fail(breakers.get("b"), 4)
    breakers.get("a")
    breakers.get("c")  # one too many: b goes
    fail(breakers.get("a"))
    fail(breakers.get("b"))

    assert [breakers.get(name).state for name in ("open", "a", "b")] == ["open", "open", "closed"]


class Model(RuleBasedStateMachine):
    """The breaker beside the simplest description of what it should do."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.breaker = CircuitBreaker("x", threshold=3, open_seconds=10, max_open_seconds=40, probe_seconds=20,
                                      clock=self.clock)  # fmt: skip
        self.state, self.row, self.wait, self.until = "closed", 0, 10.0, 0.0
        self.era = 0  # results of an earlier one do not count
        self.probe: BreakerPass | None = None
        self.probe_until = 0.0
        self.out: list[tuple[BreakerPass, int]] = []

    def move(self, state: str) -> None:
        self.state, self.row, self.probe = state, 0, None
        self.era += 1

    @rule(seconds=st.sampled_from([1, 9, 10, 20, 40]))
    def time_goes_by(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def ask(self) -> None:
        now = self.clock.monotonic()
        allowed = (
            self.state == "closed"
            or (self.state == "open" and now >= self.until)
            or (self.state == "half-open" and (self.probe is None or now >= self.probe_until))
        )
        if not allowed:
            rejected(self.breaker)
            return
        given = self.breaker.acquire()
        assert given.probe == (self.state != "closed")
        if self.state != "closed":
            self.move("half-open")
            self.probe, self.probe_until = given, now + 20
        self.out.append((given, self.era))

    @precondition(lambda self: self.out)
    @rule(data=st.data(), verdict=st.sampled_from(["success", "failure", "cancel"]))
    def come_back(self, data: st.DataObject, verdict: str) -> None:
        given, era = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        getattr(self.breaker, verdict)(given)
        if era != self.era:
            return
        if verdict == "cancel":
            self.probe = None
        elif verdict == "success":
            self.row = 0
            if given.probe:
                self.wait = 10.0
                self.move("closed")
        else:
            self.row += 1
            if given.probe:
                self.wait = min(self.wait * 2, 40)
            if given.probe or self.row >= 3:
                self.until = self.clock.monotonic() + self.wait
                self.move("open")

    @invariant()
    def they_agree(self) -> None:
        assert self.breaker.state == self.state


TestAgainstAModel = Model.TestCase
TestAgainstAModel.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


# --- in a run ---


def finished(runtime: Runtime, result: Result) -> list[tuple[str, str]]:
    events = [entry.event for entry in runtime.journal.read(result.run_id)]
    return [(event.status, event.content) for event in events if isinstance(event, ToolFinished)]


def changes(runtime: Runtime, result: Result) -> list[BreakerChanged]:
    events = [entry.event for entry in runtime.journal.read(result.run_id)]
    return [event for event in events if isinstance(event, BreakerChanged)]


def starts(runtime: Runtime, result: Result) -> int:
    return sum(isinstance(entry.event, ToolStarted) for entry in runtime.journal.read(result.run_id))


class Flaky:
    """A tool that fails until it is mended."""

    def __init__(self) -> None:
        self.runs, self.broken = 0, True

    async def __call__(self, n: int) -> str:
        """Look something up."""
        self.runs += 1
        if self.broken:
            raise ConnectionError(f"attempt {n} failed")
        return "fine"


async def test_a_tool_that_fails_five_times_is_not_started_again_until_a_probe_finds_it_mended(
    clock: FakeClock,
) -> None:
    flaky = Flaky()

    def mended(request: Any) -> Any:
        flaky.broken = False
        clock.advance(30)
        return call("look", n=7)

    script = [*(call("look", n=n) for n in range(6)), mended, call("look", n=8), "done"]
    runtime = Runtime(ScriptedProvider(script), tools=[tool(name="look")(flaky)], clock=clock)
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, flaky.runs, starts(runtime, result), result.tool_calls) == ("completed", 7, 7, 7)
    told = finished(runtime, result)
    assert [status for status, _ in told] == ["error"] * 5 + ["rejected", "ok", "ok"]
    assert told[5][1] == "tool/look failed too often; it is not called for another 30.0 s"
    assert changes(runtime, result) == [
        BreakerChanged("tool/look", "closed", "open"),
        BreakerChanged("tool/look", "open", "half-open"),
        BreakerChanged("tool/look", "half-open", "closed"),
    ]


async def test_an_open_breaker_of_one_tool_leaves_the_others_alone(clock: FakeClock) -> None:
    breakers = CircuitBreakers(clock=clock)
    opened(breakers.get("tool/look"))

    @tool
    async def other() -> str:
        """Do."""
        return "done"

    turn = [call("look", n=1), call("other")]
    runtime = Runtime(ScriptedProvider([turn, "end"]), tools=[tool(name="look")(Flaky()), other], breakers=breakers)
    result = await ReActEngine(runtime).run("Go.")

    assert [status for status, _ in finished(runtime, result)] == ["rejected", "ok"]


async def test_a_tool_that_takes_too_long_counts_as_failing() -> None:
    @tool(timeout=0.01)
    async def slow() -> None:
        """Take long."""
        await asyncio.sleep(10)

    breakers = CircuitBreakers(threshold=2)
    turn = [call("slow"), call("slow")]
    await ReActEngine(Runtime(ScriptedProvider([turn, "end"]), tools=[slow], breakers=breakers)).run("Go.")

    assert breakers.get("tool/slow").state == "open"


async def test_refusals_and_expected_errors_of_a_tool_never_open_its_breaker() -> None:
    @tool(effect="destructive")
    async def erase(what: str) -> str:
        """Erase."""
        raise ToolError("there is no such thing")

    breakers = CircuitBreakers(threshold=1)
    script = [call("erase", what=1), call("erase", what="a"), "end"]
    await ReActEngine(Runtime(ScriptedProvider(script), tools=[erase], breakers=breakers)).run("Go.")
    assert breakers.get("tool/erase").state == "closed"

    script = [call("erase", what="a"), "end"]
    await ReActEngine(
        Runtime(ScriptedProvider(script), tools=[erase], breakers=breakers, gate=AllowAll())
    ).run("Go.")  # fmt: skip
    assert breakers.get("tool/erase").state == "closed"


async def test_a_cancelled_tool_gives_no_verdict() -> None:
    at_work = asyncio.Event()

    @tool
    async def slow() -> None:
        """Take long."""
        at_work.set()
        await asyncio.sleep(30)

    breakers = CircuitBreakers(threshold=1)
    runtime = Runtime(ScriptedProvider([call("slow")]), tools=[slow], breakers=breakers)
    async with ReActEngine(runtime).start("Go.") as handle:
        await at_work.wait()
        await handle.abort()

    assert breakers.get("tool/slow").state == "closed"


async def test_a_provider_that_keeps_failing_is_not_called_any_more(clock: FakeClock) -> None:
    down = [ProviderError("overloaded", status=503, retryable=True)] * 5
    provider = ScriptedProvider(down)
    runtime = Runtime(provider, clock=clock)
    engine = ReActEngine(runtime)
    first, second = await engine.run("One."), await engine.run("Two.")
    third = await engine.run("Three.")

    assert [(r.status, r.stop_reason) for r in (first, second, third)] == [("failed", "provider_error")] * 3
    assert (len(provider.requests), third.answer) == (5, None)
    assert isinstance(second.error, CircuitOpen)
    assert isinstance(third.error, CircuitOpen)
    assert 0 < (third.error.retry_after or 0) <= 30
    assert changes(runtime, second) == [BreakerChanged("scripted/script", "closed", "open")]
    with pytest.raises(CircuitOpen):
        third.raise_for_status()


async def test_breakers_of_providers_are_kept_apart_by_model(clock: FakeClock) -> None:
    breakers = CircuitBreakers(clock=clock)
    opened(breakers.get("scripted/small"))

    small = await ReActEngine(Runtime(ScriptedProvider(["hi"], model="small"), breakers=breakers)).run("Go.")
    large = await ReActEngine(Runtime(ScriptedProvider(["hi"], model="large"), breakers=breakers)).run("Go.")

    assert (small.status, large.status) == ("failed", "completed")


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ProviderError("bad request", status=400), "closed"),
        (ProviderError("who are you", status=401), "closed"),
        (ProviderError("no such model", status=404), "closed"),
        (ProviderError("slow down", status=429, retryable=True, retry_after=120), "closed"),
        (ProviderError("conflict", status=409, retryable=True, retry_after=120), "open"),
        (ProviderError("broken", status=500, retryable=True, retry_after=120), "open"),
        (ProviderError("overloaded", status=529, retryable=True, retry_after=120), "open"),
        (ProviderError("connection reset", retryable=True, retry_after=120), "open"),
        (ProviderTimeout("no answer", retryable=True, retry_after=120), "open"),
        (ValueError("a bug in the adapter"), "open"),
    ],
)
async def test_only_what_speaks_of_the_provider_s_health_opens_its_breaker(error: Exception, state: str) -> None:
    breakers = CircuitBreakers(threshold=1)
    await ReActEngine(Runtime(ScriptedProvider([error]), breakers=breakers)).run("Go.")

    assert breakers.get("scripted/script").state == state
