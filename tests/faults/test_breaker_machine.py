"""The circuit breaker beside a simple model of it, step by step; and under threads and tasks at once."""

import asyncio
import dataclasses
import random
import threading
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fault_sizes import figure, sized
from loopwright import CircuitBreaker, CircuitBreakers
from loopwright.errors import CircuitOpen
from loopwright.resilience.circuit_breaker import BreakerPass
from loopwright.testing import FakeClock

STEPS = 50  # of one example
VERDICTS = st.sampled_from(["good", "good", "bad", "bad", "none"])
OPTIONS = st.fixed_dictionaries({
    "threshold": st.sampled_from([None, 1, 3]),
    "rate": st.sampled_from([None, 0.5, 0.75]),
    "window": st.sampled_from([4, 6]),
    "min_calls": st.sampled_from([2, 4]),
    "slow_seconds": st.sampled_from([None, 10.0]),
    "probes": st.sampled_from([1, 1, 2, 3]),
})  # fmt: skip


@dataclasses.dataclass(eq=False)
class Call:
    """A call that the model let through."""

    era: int
    begun: float
    probe: bool
    until: float  # when its place is given on
    order: int = 0  # among the starts and failures of all calls


class Plain:
    """A breaker in as few thoughts as possible: lists in place of counters, and everything worked out anew."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.state, self.era = "closed", 0
        self.told: list[
            str
        ] = []  # what came of the calls of this era: "good", "slow" or "bad"
        self.row = 0  # failures in sequence, of calls that did not overlap
        self.at_work = 0  # calls of this era without a result
        self.order = self.failed_at = 0
        self.wait, self.until, self.cool_until = 10.0, 0.0, 0.0
        self.forced = ""
        self.trying: list[Call] = []
        self.news: list[tuple[str, str, str]] = []

    def go(self, state: str, reason: str = "") -> None:
        """To another state, or a new beginning in the same."""
        if state != self.state or self.forced:
            self.news.append((self.state, state, reason))
        self.state, self.told, self.trying = state, [], []
        self.row = self.at_work = 0
        self.era += 1

    def ask(self, now: float) -> Call | None:
        """A call, or none."""
        if (
            self.forced
            or now < self.cool_until
            or (self.state == "open" and now < self.until)
        ):
            return None
        if self.state == "open":
            self.go("half-open")
        if self.state == "closed":
            self.at_work += 1
            return Call(self.era, now, False, 0.0, self.count())
        self.trying = [call for call in self.trying if now < call.until]
        if len(self.trying) == self.options["probes"]:
            return None
        self.trying.append(Call(self.era, now, True, now + 20))
        return self.trying[-1]

    def count(self) -> int:
        self.order += 1
        return self.order

    def learn(self, call: Call, verdict: str, now: float) -> None:
        """What came of a call."""
        slowest = self.options["slow_seconds"]
        if verdict == "good" and slowest is not None and now - call.begun > slowest:
            verdict = "slow"
        if call.era != self.era or (call.probe and call not in self.trying):
            return
        if not call.probe:
            self.at_work -= 1
        if verdict == "none":
            self.trying = [other for other in self.trying if other is not call]
        elif not call.probe:
            self.note(call, verdict)
            if self.too_many():
                self.shut(now)
        elif verdict == "good":
            self.wait = 10.0
            self.go("closed")
        else:
            self.wait = min(2 * self.wait, 40.0)
            self.shut(now)

    def note(self, call: Call, verdict: str) -> None:
        """A result of a call, and whether it makes the row of failures longer."""
        self.told.append(verdict)
        if verdict != "bad":
            self.row = 0
            return
        self.row += call.order > self.failed_at
        self.failed_at = self.count()

    def too_many(self) -> bool:
        """Whether what the calls came to is too bad."""
        row, rate = self.options["threshold"], self.options["rate"]
        last = self.told[-self.options["window"] :]
        if row is not None and self.row >= row:
            return True
        if len(last) < self.options["min_calls"]:
            return False
        return (
            rate is not None and last.count("bad") >= rate * (len(last) + self.at_work)
        ) or last.count("slow") >= 0.5 * len(last)

    def shut(self, now: float) -> None:
        self.until = now + self.wait
        self.go("open")


class Machine(RuleBasedStateMachine):
    """Does the same to both."""

    steps: ClassVar[int] = 0
    changes: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.out: list[tuple[BreakerPass, Call]] = []
        self.heard: list[tuple[str, str, str]] = []
        self.expected: list[tuple[str, str, str]] = []

    @initialize(options=OPTIONS)
    def begin(self, options: dict[str, Any]) -> None:
        self.plain = Plain(options)
        self.breaker = CircuitBreaker(
            "x",
            open_seconds=10,
            max_open_seconds=40,
            probe_seconds=20,
            clock=self.clock,
            **options,
        )

    def listen(self, name: str, before: str, after: str, reason: str) -> None:
        assert (name, self.breaker.state) == ("x", self.plain.state)
        self.heard.append((before, after, reason))

    def tell(self, listens: bool) -> None:
        """What the model would have told by now."""
        if listens:
            self.expected += self.plain.news
            Machine.changes += len(self.plain.news)
            self.plain.news = []

    @rule(seconds=st.sampled_from([1, 5, 10, 11, 20, 40]))
    def time_goes_by(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(listens=st.booleans())
    def ask(self, listens: bool) -> None:
        call = self.plain.ask(self.clock.monotonic())
        found = self.answer(listens)
        if isinstance(found, CircuitOpen):
            assert call is None
            assert (found.retry_after is None) is bool(self.plain.forced)
            assert found.retry_after is None or 0 < found.retry_after <= 300
        else:
            assert call is not None
            assert found.probe == call.probe
            self.out.append((found, call))
        self.tell(listens)

    def answer(self, listens: bool) -> BreakerPass | CircuitOpen:
        try:
            return self.breaker.acquire(self.listen if listens else None)
        except CircuitOpen as rejection:
            return rejection

    @precondition(lambda self: self.out)
    @rule(data=st.data(), verdict=VERDICTS, listens=st.booleans())
    def come_back(self, data: st.DataObject, verdict: str, listens: bool) -> None:
        self.report(data.draw(st.integers(0, len(self.out) - 1)), verdict, listens)

    def report(self, place: int, verdict: str, listens: bool) -> None:
        given, call = self.out.pop(place)
        self.plain.learn(call, verdict, self.clock.monotonic())
        if verdict == "none":
            self.breaker.cancel(given)
            return
        report = self.breaker.success if verdict == "good" else self.breaker.failure
        report(given, self.listen if listens else None)
        self.tell(listens)

    @rule(
        verdicts=st.lists(VERDICTS, min_size=1, max_size=8),
        seconds=st.sampled_from([0, 0, 11]),
    )
    def call_one_after_another(self, verdicts: list[str], seconds: int) -> None:
        for verdict in verdicts:
            before = len(self.out)
            self.ask(True)
            if len(self.out) > before:
                self.clock.advance(seconds)
                self.report(-1, verdict, True)

    @rule(seconds=st.sampled_from([-1, 0, 0, 5, 5, 15, 1000]))
    def cool_down(self, seconds: int) -> None:
        self.breaker.cool_down(seconds)
        if seconds > 0:
            self.plain.cool_until = max(
                self.plain.cool_until, self.clock.monotonic() + min(seconds, 300)
            )

    @rule(reason=st.sampled_from(["", "", "", "", "a", "b"]))
    def force_open(self, reason: str) -> None:
        if not reason:
            return  # people do so seldom
        self.breaker.force_open(reason)
        if self.plain.forced != reason:
            self.plain.forced = reason
            self.plain.go("open", reason)

    @rule()
    def reset(self) -> None:
        self.breaker.reset()
        self.plain.forced, self.plain.cool_until, self.plain.wait = "", 0.0, 10.0
        self.plain.go("closed", "reset")

    @invariant()
    def they_agree(self) -> None:
        Machine.steps += 1
        assert self.breaker.state == self.plain.state
        assert self.heard == self.expected
        now = self.clock.monotonic()
        trying = [
            c
            for _, c in self.out
            if c.probe and c in self.plain.trying and now < c.until
        ]
        assert len(trying) <= self.plain.options["probes"]


@pytest.mark.timeout(sized(120, 3600))
def test_the_breaker_does_what_a_simple_model_of_it_does() -> None:
    Machine.steps = Machine.changes = 0
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=sized(60, 2500), stateful_step_count=STEPS, deadline=None
        ),
    )

    figure(
        "breaker beside a model",
        f"{Machine.steps} steps, {Machine.changes} changes of state told, 0 differences",
    )
    assert Machine.steps >= sized(1_000, 100_000)


class Crowd:
    """Calls from everywhere at once, and what they saw."""

    def __init__(self, probes: int) -> None:
        self.probes = probes
        self.breakers = CircuitBreakers(
            threshold=3,
            rate=0.1,
            window=1000,
            open_seconds=0.0005,
            max_open_seconds=0.001,
            probes=probes,
        )
        self.seen: Counter[str] = Counter()
        self.trying: Counter[int] = Counter()  # probes in flight, by generation
        self.most = 0
        self.heard: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def listen(self, name: str, before: str, after: str, reason: str) -> None:
        with self._lock:
            self.heard.append((before, after))

    def enter(self, given: BreakerPass) -> None:
        with self._lock:
            self.seen["let through"] += 1
            if given.probe:
                self.seen["probes"] += 1
                self.trying[given.generation] += 1
                self.most = max(self.most, self.trying[given.generation])

    def leave(self, given: BreakerPass, verdict: str) -> None:
        with self._lock:
            self.seen[verdict] += 1
            if (
                given.probe
            ):  # its place is still held: it may be given on only after what follows
                self.trying[given.generation] -= 1
        breaker = self.breakers.get("x")
        if verdict == "none":
            breaker.cancel(given)
        else:
            (breaker.success if verdict == "good" else breaker.failure)(
                given, self.listen
            )

    async def call_often(self, calls: int, chance: random.Random) -> None:
        for _ in range(calls):
            try:
                given = self.breakers.get("x").acquire(self.listen)
            except CircuitOpen:
                with self._lock:
                    self.seen["rejected"] += 1
                await asyncio.sleep(chance.choice([0, 0.0005, 0.005]))
                continue
            self.enter(given)
            await asyncio.sleep(0 if chance.random() < 0.9 else 0.0005)
            self.leave(given, chance.choices(["good", "bad", "none"], [6, 4, 1])[0])

    def work(self, thread: int, tasks: int, calls: int) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(
                *(
                    self.call_often(calls, random.Random(thread * 1000 + n))
                    for n in range(tasks)
                )
            )

        asyncio.run(all_of_them())


@pytest.mark.parametrize("probes", [1, 3])
def test_eight_threads_with_a_thousand_tasks_never_make_more_probes_than_allowed(
    probes: int,
) -> None:
    crowd, calls = Crowd(probes), sized(20, 200)
    threads = [
        threading.Thread(target=crowd.work, args=(n, 125, calls)) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    seen, breaker = crowd.seen, crowd.breakers.get("x")
    breaker.reset()
    last = breaker.acquire(crowd.listen)
    figure(
        f"breaker in 8 threads with 1,000 tasks, probes={probes}",
        f"{seen['let through']} calls let through, {seen['rejected']} rejected, {seen['probes']} probes, at most "
        f"{crowd.most} at once, {len(crowd.heard)} changes of state",
    )
    assert crowd.most == probes
    assert seen["let through"] + seen["rejected"] == 1000 * calls
    assert seen["good"] + seen["bad"] + seen["none"] == seen["let through"]
    entered, left = (
        Counter(after for _, after in crowd.heard),
        Counter(before for before, _ in crowd.heard),
    )
    assert {
        state: entered[state] - left[state] for state in ("closed", "open", "half-open")
    } == dict.fromkeys(("closed", "open", "half-open"), 0)
    assert last.generation - 1 - len(crowd.heard) in (
        0,
        1,
    )  # each change was told once; that reset may be none
