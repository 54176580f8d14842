"""`Run.samples`: several proposals for one conversation, by one request where the provider can."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    ConfigError,
    Limits,
    LoopEngine,
    ReActEngine,
    Runtime,
    Sampling,
    tool,
)
from loopwright.engines import ChainOfThoughtEngine, TreeOfThoughtsEngine
from loopwright.errors import PhaseError, ProviderError
from loopwright.events.effects import ModelReplied, ModelRequested
from loopwright.journals import SQLiteJournal
from loopwright.messages import Completion, Proposal, ToolCall, Usage
from loopwright.providers import Capabilities, Request
from loopwright.run import Run
from loopwright.testing import FakeClock, ScriptedProvider, crashed
from virtual_time import in_virtual_time

Script = Callable[[int], Any]


class Sampled(ScriptedProvider):
    """Gives at most `most` replies to a request; reply number `i` is what the script makes of it."""

    def __init__(
        self, script: Script, most: int = 8, first: Iterable[Exception] = ()
    ) -> None:
        super().__init__(self._reply, capabilities=Capabilities(max_samples=most))
        self._script, self._first = script, list(first)
        self.made = 0

    def _reply(self, request: Request) -> Any:
        if self._first:
            raise self._first.pop(0)
        made, self.made = self.made, self.made + 1
        return self._script(made)

    @property
    def numbers(self) -> list[int]:
        """How many replies each request asked for."""
        return [request.sampling.n or 1 for request in self.requests]


class Best(LoopEngine):
    """Answers with all samples, after the calls of those that have some."""

    name = "best"
    n: int = 3

    async def solve(self, run: Run) -> str:
        proposals = await run.samples(run.conversation, self.n)
        found: list[str] = []
        for proposal in proposals:
            seen = await run.act(await run.gate(proposal))
            found.append(proposal.answer or proposal.thought)
            found += [observation.text for observation in seen]
        last = await run.ask("Which is best?")
        return " ".join([*filter(None, found), last])


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


def look_at(what: str) -> Completion:
    return Completion(calls=(ToolCall("look", {"what": what}, "c1"),))


def numbered(made: int) -> Any:
    return look_at("sky") if made == 1 else f"reply {made}"


def from_number(known: int) -> Script:
    return lambda made: numbered(made + known)


ANSWER = "reply 0 saw sky"


async def test_samples_are_one_request_n_calls_and_one_entry_each() -> None:
    provider = Sampled(lambda made: f"reply {made}")
    runtime = Runtime(provider)

    result = await Best(runtime).run("x", run_id="r")

    assert result.answer == "reply 0 reply 1 reply 2 reply 3"
    assert provider.numbers == [3, 1]
    assert result.llm_calls == 4
    assert result.usage == Usage(20, 10)
    entries = runtime.journal.read("r")
    asked = [e.key for e in entries if isinstance(e.event, ModelRequested)]
    replied = [e.key for e in entries if isinstance(e.event, ModelReplied)]
    assert asked == replied == ["0~s0", "0~s1", "0~s2", "1"]


class Slow(Sampled):
    """Takes 2 seconds for a request."""

    def __init__(self, clock: FakeClock, most: int) -> None:
        super().__init__(lambda made: f"reply {made}", most)
        self._clock = clock

    async def complete(self, request: Request) -> Completion:
        """Reply after 2 seconds."""
        self._clock.advance(2)
        return await super().complete(request)

    async def sample(self, request: Request) -> tuple[Completion, ...]:
        """Reply after 2 seconds."""
        self._clock.advance(2)
        return await super().sample(request)


@pytest.mark.parametrize("most", [2, 4, 8])
async def test_each_sample_has_the_time_of_its_own_request(most: int) -> None:
    clock = FakeClock()
    runtime = Runtime(Slow(clock, most), clock=clock)
    await Best(runtime, n=5).run("x", run_id="r")
    events = [entry.event for entry in runtime.journal.read("r")]
    replies = [event for event in events if isinstance(event, ModelReplied)]

    assert [event.seconds for event in replies] == [2.0] * 6


async def test_each_sample_is_gated_once_and_its_calls_are_made() -> None:
    provider = Sampled(numbered)
    runtime = Runtime(provider, tools=[look])

    result = await Best(runtime).run("x", run_id="r")

    assert result.answer is not None
    assert result.answer.startswith(ANSWER)
    assert result.tool_calls == 1
    keys = [e.key for e in runtime.journal.read("r") if e.kind == "tool_started"]
    assert keys == ["0~s1#0"]


@pytest.mark.parametrize("most", [2, 4, 8])
async def test_a_crash_after_any_entry_leads_to_the_same_answer(most: int) -> None:
    runtime = Runtime(Sampled(numbered, most), tools=[look])
    result = await Best(runtime).run("x", run_id="r")
    entries = runtime.journal.read("r")

    for keep in range(1, len(entries) + 1):
        # What was not recorded is asked again, also by a provider that gives one at a time.
        for again in (most, 1, 8):
            known = sum(isinstance(e.event, ModelReplied) for e in entries[:keep])
            provider = Sampled(from_number(known), again)
            resumed = Runtime(provider, tools=[look], journal=crashed(entries, keep))
            outcome = await Best(resumed).resume("r")
            assert outcome.answer == result.answer, (keep, again)
            assert outcome.llm_calls == 4
            assert provider.made == 4 - known


@in_virtual_time
async def test_provider_without_several_replies_is_asked_for_each_at_once() -> None:
    running = most = 0

    class Slow(ScriptedProvider):
        async def complete(self, request: Request) -> Completion:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return await super().complete(request)

    runtime = Runtime(Slow(["a", "b", "c", "d"]))
    result = await Best(runtime).run("x")

    assert most == 3
    assert result.llm_calls == 4


async def test_fewer_replies_than_asked_are_completed() -> None:
    provider = Sampled(lambda made: f"reply {made}", most=2)

    result = await Best(Runtime(provider), n=5).run("x")

    assert result.answer == " ".join(f"reply {i}" for i in range(6))
    assert provider.numbers == [2, 2, 1, 1]


async def test_endpoint_that_refuses_several_is_asked_one_by_one_from_then_on() -> None:
    refusal = ProviderError("multiple candidates are not enabled", status=400)
    provider = Sampled(lambda made: f"reply {made}", first=[refusal])
    runtime = Runtime(provider)

    first = await Best(runtime).run("x")
    second = await Best(runtime).run("x")

    assert (first.status, second.status) == ("completed", "completed")
    assert provider.numbers == [3, 1, 1, 1, 1, 1, 1, 1, 1]
    assert first.llm_calls == 4


async def test_other_failures_end_the_run_and_are_replayed() -> None:
    down = ProviderError("no such model", status=404)
    provider = Sampled(lambda made: f"reply {made}", first=[down])
    runtime = Runtime(provider)

    result = await Best(runtime).run("x", run_id="r")
    assert (result.stop_reason, provider.numbers) == ("provider_error", [3])

    entries = runtime.journal.read("r")[:-1]
    again = Sampled(numbered)
    resumed = await Best(Runtime(again, journal=crashed(entries, len(entries)))).resume(
        "r"
    )
    assert (resumed.stop_reason, again.numbers) == ("provider_error", [])


class Caught(LoopEngine):
    """Does without samples where they fail."""

    name = "caught"

    async def solve(self, run: Run) -> str:
        try:
            await run.samples(run.conversation, 3)
        except ProviderError:
            return await run.ask("And without?")
        return "sampled"


async def test_failure_of_some_samples_is_replayed_when_others_had_none_yet() -> None:
    def build(failures: int) -> Sampled:
        down = [ProviderError("no such model", status=404)] * failures
        return Sampled(lambda made: f"reply {made}", most=2, first=down)

    runtime = Runtime(build(1))
    result = await Caught(runtime).run("x", run_id="r")
    entries = runtime.journal.read("r")
    assert result.status == "completed"

    for keep in range(1, len(entries) + 1):
        has_failed = any(entry.kind == "model_failed" for entry in entries[:keep])
        again = Runtime(build(0 if has_failed else 1), journal=crashed(entries, keep))
        resumed = await Caught(again).resume("r")
        assert resumed.status == "completed", (keep, resumed.error)
        assert resumed.llm_calls == result.llm_calls, keep


async def test_samples_that_the_budget_does_not_allow_are_refused_together() -> None:
    provider = Sampled(lambda made: f"reply {made}")
    limits = Limits(max_llm_calls=3, best_effort=False)
    runtime = Runtime(provider, limits=limits)

    result = await Best(runtime, n=4).run("x", run_id="r")

    assert (result.status, result.stop_reason) == ("limit", "max_llm_calls")
    assert provider.numbers == []
    entries = runtime.journal.read("r")
    assert not any(isinstance(entry.event, ModelRequested) for entry in entries)

    # A limit that was raised since changes nothing of what it had refused.
    again = Sampled(lambda made: f"reply {made}")
    journal = crashed(entries, len(entries) - 1)
    raised = Runtime(again, journal=journal, limits=Limits(best_effort=False))
    resumed = await Best(raised, n=4).resume("r")
    assert (resumed.status, again.numbers) == ("limit", [])


async def test_cut_or_unreadable_sample_is_a_thought_without_calls() -> None:
    def script(made: int) -> Any:
        if made == 0:
            return Completion("half of it", finish_reason="length", problem="cut")
        if made == 1:
            return Completion("bad", problem="The arguments are not valid JSON.")
        return f"reply {made}"

    class Reading(LoopEngine):
        name = "reading"

        async def solve(self, run: Run) -> str:
            samples = await run.samples(run.conversation, 3)
            shown = [(one.answer, one.thought, one.calls) for one in samples]
            return repr(shown)

    result = await Reading(Runtime(Sampled(script))).run("x")

    assert result.answer == repr(
        [(None, "half of it", ()), (None, "bad", ()), ("reply 2", "", ())]
    )


async def test_phases_take_a_sample_once_and_none_of_before() -> None:
    problems: list[str] = []

    class Misusing(LoopEngine):
        name = "misusing"

        async def refuse(self, work: Any) -> None:
            with pytest.raises(PhaseError) as raised:
                await work
            problems.append(str(raised.value).partition(":")[0])

        async def solve(self, run: Run) -> str:
            one, two, three = await run.samples(run.conversation, 3)
            first, second = await run.gate(one), await run.gate(two)
            await self.refuse(run.gate(one))
            await run.act(second)
            await run.act(first)
            await self.refuse(run.act(first))
            other: Proposal = await run.reason(run.conversation)
            await self.refuse(run.gate(three))
            return other.answer or ""

    runtime = Runtime(Sampled(lambda made: look_at(str(made)) if made < 3 else "end"), tools=[look])  # fmt: skip
    result = await Misusing(runtime).run("x")

    assert result.answer == "end"
    assert [problem.split()[1] for problem in problems] == [
        "proposal",
        "Cleared",
        "proposal",
    ]
    assert result.tool_calls == 2


@pytest.mark.parametrize("number", [0, -1])
async def test_number_below_one_is_a_configuration_error(number: int) -> None:
    result = await Best(Runtime(Sampled(numbered)), n=number).run("x")

    assert "n: must be at least 1" in str(result.error)


async def test_number_of_replies_is_for_samples_alone() -> None:
    several = Sampling(n=3)
    runtime = Runtime(Sampled(numbered))

    with pytest.raises(ConfigError, match=r"Sampling.n: one call has one reply"):
        await ReActEngine(runtime).run("x", sampling=several)
    result = await ReActEngine(runtime, sampling=several).run("x")
    assert "Sampling.n: one call has one reply" in str(result.error)


# --- engines ---


def reasoning(made: int) -> Any:
    return f"Step by step.\n\nFINAL ANSWER: {7 if made % 3 else 8}"


async def test_chain_of_thought_samples_a_wave_by_one_request() -> None:
    provider = Sampled(reasoning)
    runtime = Runtime(provider)

    result = await ChainOfThoughtEngine(runtime, answer="number", samples=5).run("x")

    assert (result.answer, provider.numbers) == ("7", [5])
    assert result.llm_calls == 5


async def test_cut_sample_of_chain_of_thought_is_continued() -> None:
    def script(made: int) -> Any:
        if made == 0:
            return Completion("First,", finish_reason="length", problem="cut")
        return "so it is.\n\nFINAL ANSWER: 7"

    provider = Sampled(script)
    result = await ChainOfThoughtEngine(Runtime(provider), samples=2, answer="number").run("x")  # fmt: skip

    assert (result.answer, provider.numbers[:2]) == ("7", [2, 1])


@pytest.mark.parametrize(
    ("engine", "options", "reply"),
    [
        (ChainOfThoughtEngine, {"samples": 3, "answer": "number"}, reasoning(1)),
        (TreeOfThoughtsEngine, {"max_depth": 1, "n_branches": 2}, "THOUGHT: a\n5"),
    ],
)
async def test_run_of_before_keeps_a_request_for_each_sample(
    engine: Any, options: dict[str, Any], reply: str
) -> None:
    first = Runtime(ScriptedProvider(lambda request: reply))
    result = await engine(first, **options).run("x", run_id="r")
    entries = first.journal.read("r")
    assert not any("~s" in entry.key for entry in entries)

    for keep in range(2, len(entries)):
        again = Runtime(Sampled(lambda made: reply), journal=crashed(entries, keep))
        resumed = await engine(again, **options).resume("r")
        assert resumed.answer == result.answer, keep


async def test_run_with_samples_is_resumed_by_a_provider_without_them() -> None:
    provider = Sampled(lambda made: f"THOUGHT: {made}\n5")
    runtime = Runtime(provider)
    options: dict[str, Any] = {"max_depth": 1, "n_branches": 2}
    await TreeOfThoughtsEngine(runtime, **options).run("x", run_id="r")
    entries = runtime.journal.read("r")
    assert max(provider.numbers) == 2
    replies = [i for i, e in enumerate(entries) if isinstance(e.event, ModelReplied)]

    for keep in (replies[0] + 1, replies[1] + 1, replies[-1] + 1):
        again = Runtime(
            ScriptedProvider(lambda request: "THOUGHT: a\n5"),
            journal=crashed(entries, keep),
        )
        resumed = await TreeOfThoughtsEngine(again, **options).resume("r")
        assert resumed.status == "completed", resumed.error


async def test_samples_are_resumed_from_a_file(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    runtime = Runtime(Sampled(numbered), tools=[look], journal=journal)
    result = await Best(runtime).run("x", run_id="r")

    again = Runtime(Sampled(numbered), tools=[look], journal=journal)

    assert (await Best(again).resume("r")).answer == result.answer
    assert journal.verify("r", result.head_hash).ok
