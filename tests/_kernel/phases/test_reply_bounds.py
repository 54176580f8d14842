"""The bound of a reply: when it is sent, what a refusal of it changes, and counts that fail."""

import asyncio
import json
from typing import Any

import httpx
import pytest
import structlog
from pydantic import BaseModel

from loopwright import Limits, LoopEngine, ReActEngine, Run, Runtime
from loopwright.errors import ProviderError
from loopwright.limits import Budget, OpenCall
from loopwright.messages import Completion, Conversation, Usage
from loopwright.providers import (
    Capabilities,
    FallbackProvider,
    OpenAIProvider,
    Request,
    Sampling,
)
from loopwright.providers.context.tokens import TokenMeter
from loopwright.testing import ScriptedProvider

UNKNOWN = Capabilities()
REPLY = {
    "choices": [
        {"message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1},
}
TOO_LARGE = (
    "Request too large for prod on tokens per min (TPM): Limit 30000, Requested 90123."
)


class Gather(LoopEngine):
    """Asks so many questions at the same time."""

    name = "gather"
    number: int = 10
    at_once: int | None = None

    async def solve(self, run: Run) -> str:
        async def ask(branch: Run) -> str:
            return await branch.ask("x")

        works = [ask] * self.number
        return (await run.gather(*works, max_concurrency=self.at_once))[0]


class Bounded:
    """A model that notes the bounds of its replies, and how many tokens were promised at the same time."""

    name, model = "bounded", "bounded-1"

    def __init__(self, output: int | None) -> None:
        self.capabilities = Capabilities(max_output_tokens=output)
        self.output = output or 16_384
        self.under_way: list[int] = []
        self.promised: list[int] = []
        self.bounds: list[int] = []

    async def complete(self, request: Request) -> Completion:
        bound = request.sampling.max_tokens or self.output
        self.bounds.append(bound)
        self.under_way.append(bound)
        self.promised.append(sum(self.under_way))
        await asyncio.sleep(0.02)
        self.under_way.remove(bound)
        return Completion("hi", answer="hi", usage=Usage(10, 1))


def list_bounds(provider: ScriptedProvider) -> list[int | None]:
    return [request.sampling.max_tokens for request in provider.requests]


# Who is sent a bound


async def test_a_model_of_unknown_size_is_sent_none_while_much_is_left() -> None:
    provider = ScriptedProvider(["a"], capabilities=UNKNOWN)
    await ReActEngine(Runtime(provider)).run("x")
    assert list_bounds(provider) == [None]


async def test_a_model_of_unknown_size_is_sent_one_where_little_is_left() -> None:
    provider = ScriptedProvider(["a"], capabilities=UNKNOWN)
    limits = Limits(max_tokens=16_000)
    await ReActEngine(Runtime(provider, limits=limits)).run("x")
    [bound] = list_bounds(provider)
    assert bound is not None
    assert 15_000 < bound < 16_000


@pytest.mark.parametrize(
    ("sizes", "greatest"), [((4_096, 64_000), 64_000), ((4_096, None), None)]
)
def test_a_fallback_is_bounded_as_its_longest_reply(
    sizes: tuple[int | None, ...], greatest: int | None
) -> None:
    members = [
        ScriptedProvider([], model=str(size), capabilities=Capabilities(max_output_tokens=size))
        for size in sizes
    ]  # fmt: skip
    able = FallbackProvider(*members).capabilities
    assert able.max_output_tokens == greatest


# Calls at the same time


@pytest.mark.parametrize("output", [None, 4_096, 128_000])
@pytest.mark.parametrize(("number", "at_once"), [(10, None), (20, 4)])
async def test_bounds_of_calls_at_the_same_time_are_within_the_rest(
    number: int, at_once: int | None, output: int | None
) -> None:
    provider = Bounded(output)
    runtime = Runtime(provider, limits=Limits(max_tokens=100_000))
    engine = Gather(runtime, number=number, at_once=at_once)
    assert (await engine.run("x")).status == "completed"
    assert len(provider.bounds) == number
    assert max(provider.promised) <= 100_000
    assert min(provider.bounds) > min(4_000, provider.output)  # none is starved


async def test_a_single_call_may_have_all_that_is_left() -> None:
    provider = Bounded(128_000)
    runtime = Runtime(provider, limits=Limits(max_tokens=100_000))
    await Gather(runtime, number=1).run("x")
    assert provider.bounds[0] > 99_000


async def test_a_call_that_has_ended_leaves_its_share_to_the_next() -> None:
    class Failing(Bounded):
        async def complete(self, request: Request) -> Completion:
            if "fail" in request.conversation.task:
                self.bounds.append(request.sampling.max_tokens or 0)
                raise ProviderError("refused")
            if "wait" in request.conversation.task:
                await asyncio.Event().wait()
            return await super().complete(request)

    class Several(LoopEngine):
        name = "several"

        async def solve(self, run: Run) -> str:
            async def ask(branch: Run) -> str:
                return await branch.ask("x")

            async def wait(branch: Run) -> str:
                return await branch.ask("wait")

            await run.gather(*[ask] * 5)
            with pytest.raises(ProviderError, match="refused"):
                await run.ask("fail")
            with pytest.raises(TimeoutError):
                await run.timeout(0.01, wait)
            return await run.ask("x")

    provider = Failing(128_000)
    runtime = Runtime(provider, limits=Limits(max_tokens=100_000))
    result = await Several(runtime).run("x")

    assert result.status == "completed"
    assert max(provider.bounds[:5]) < 21_000
    assert min(provider.bounds[5:]) > 99_000


def test_a_later_call_gets_no_more_than_the_calls_under_way_leave() -> None:
    budget = Budget(Limits(max_tokens=1_000))
    first = OpenCall(50)
    budget.in_flight.append(first)
    assert budget.share_output(1) == 950

    first.output_tokens = 800
    budget.in_flight.append(OpenCall(50))
    shares = [budget.share_output(strands) for strands in (2, 20)]
    assert (first.output_tokens, shares) == (800, [100, 45])

    budget.in_flight.clear()
    assert budget.share_output(1) == 1_000


# Refusals of the bound


async def refuse_above(bound: int, status: int, text: str) -> tuple[Any, list[Any]]:
    """Run twice against an endpoint that refuses longer replies than `bound`; return the results and the bounds."""
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        sent.append(body.get("max_completion_tokens") or body.get("max_tokens"))
        if (sent[-1] or 0) > bound:
            return httpx.Response(status, json={"error": {"message": text}})
        return httpx.Response(200, json=REPLY)

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    url = "http://api.example/v1"
    provider = OpenAIProvider("x", base_url=url, api_key="k", client=client)
    limits = Limits(max_tokens=15_000, max_provider_wait=1)
    runtime = Runtime(provider, limits=limits)
    results = [await ReActEngine(runtime).run("x") for _ in range(2)]
    return [(result.status, result.answer) for result in results], sent


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "max_tokens is too large: 14990. This model supports at most 8192 completion tokens"),
        (402, "This request requires more credits, or fewer max_tokens. You requested up to 14990 tokens"),
        (413, "Request too large for model `x` on tokens per minute (TPM): Limit 12000, Requested 15123"),
        (429, TOO_LARGE),
        (400, "maxOutputTokens value of 14990 but the supported range is from 1 to 8193"),
    ],
)  # fmt: skip
async def test_a_bound_that_an_endpoint_refuses_is_left_out_from_then_on(
    status: int, text: str
) -> None:
    results, sent = await refuse_above(8_192, status, text)
    assert results == [("completed", "done")] * 2
    assert sent[0] > 14_000
    assert sent[1:] == [None, None]


async def test_a_request_that_is_too_large_without_a_bound_fails_at_once() -> None:
    results, sent = await refuse_above(-1, 429, TOO_LARGE)
    assert results == [("failed", None)] * 2
    assert sent[1] is None


@pytest.mark.parametrize(
    ("text", "may_retry"),
    [
        ("Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.", True),
        (TOO_LARGE, False),
    ],
)  # fmt: skip
async def test_a_rate_limit_is_tried_again_and_a_size_is_not(
    text: str, may_retry: bool
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(429, json={"error": {"message": text}})

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    url = "http://api.example/v1"
    provider = OpenAIProvider("x", base_url=url, api_key="k", client=client)
    with pytest.raises(ProviderError) as failed:
        await provider.complete(Request(Conversation.of("x")))
    assert failed.value.retryable is may_retry


@pytest.mark.parametrize(
    "text",
    [
        "Invalid request: at most 4 images, maximum exceeded",
        "The maximum number of tools is 128",
        "invalid tokens in the tool name",
    ],
)
async def test_another_refusal_leaves_the_bound_as_it_is(text: str) -> None:
    script = [ProviderError(text, status=400), "a"]
    provider = ScriptedProvider(script, capabilities=UNKNOWN)
    runtime = Runtime(provider, limits=Limits(max_tokens=5_000))
    first = await ReActEngine(runtime).run("x")
    second = await ReActEngine(runtime).run("x")
    assert (first.status, second.status) == ("failed", "completed")
    assert len(provider.requests) == 2
    assert all(list_bounds(provider))


async def test_a_refusal_that_lasts_without_the_bound_teaches_nothing() -> None:
    refusal = ProviderError("max_tokens: no such field", status=400)
    provider = ScriptedProvider([refusal, refusal, "a"], capabilities=UNKNOWN)
    runtime = Runtime(provider, limits=Limits(max_tokens=5_000))
    assert (await ReActEngine(runtime).run("x")).status == "failed"
    await ReActEngine(runtime).run("x")
    first, second, third = list_bounds(provider)
    assert (second, third) == (None, first)


async def test_the_second_request_has_no_bound_of_a_known_size_either() -> None:
    refusal = ProviderError("max_tokens is not supported here", status=400)
    able = Capabilities(max_output_tokens=64_000)
    provider = ScriptedProvider([refusal, "a", "b"], capabilities=able)
    runtime = Runtime(provider, limits=Limits(max_tokens=20_000))
    assert (await ReActEngine(runtime).run("x")).answer == "a"
    await ReActEngine(runtime).run("x")
    assert list_bounds(provider)[1:] == [None, None]


def test_a_small_bound_is_sent_after_a_large_one_was_refused() -> None:
    meter = TokenMeter()
    meter.refuse_cap(15_000)
    assert [meter.needs_cap(left, 64_000) for left in (4_096, 4_095)] == [False, True]
    meter.refuse_cap(2_000)
    assert [meter.needs_cap(left, 64_000) for left in (1_001, 1_000)] == [False, True]


async def test_the_own_setting_stays_where_the_bound_is_left_out() -> None:
    class One(LoopEngine):
        name = "one"

        async def solve(self, run: Run) -> str:
            return await run.ask("x", sampling=Sampling(max_tokens=5_000))

    refusal = ProviderError("max_tokens: too many output tokens", status=400)
    provider = ScriptedProvider([refusal, "a"], capabilities=UNKNOWN)
    await One(Runtime(provider, limits=Limits(max_tokens=2_000))).run("x")
    assert list_bounds(provider)[1] == 5_000


# Counts


class Counting:
    """A model that counts its tokens in some way."""

    name, model = "counting", "counting-1"
    capabilities = Capabilities(context_tokens=3_000)

    def __init__(self, outcome: Any) -> None:
        self.outcome, self.counts, self.counted = outcome, 0, list[Request]()

    async def count(self, request: Request) -> int:
        self.counts += 1
        self.counted.append(request)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        if self.outcome == "hang":
            await asyncio.sleep(60)
        tokens: Any = self.outcome
        return tokens

    async def complete(self, request: Request) -> Completion:
        return Completion('{"n": 1}', answer='{"n": 1}', usage=Usage(10, 1))


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (KeyError("x"), 1),
        ("many", 1),
        ("hang", 1),
        (ProviderError("not found", status=404), 1),
        (ProviderError("busy", status=503), 2),
    ],
    ids=["error", "text", "hang", "missing", "busy"],
)
async def test_a_count_that_fails_leaves_the_estimate(
    outcome: Any, counts: int
) -> None:
    provider = Counting(outcome)
    runtime = Runtime(provider, limits=Limits(model_timeout=0.1))
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            result = await ReActEngine(runtime).run("a" * 9_000)
            assert result.status == "completed"
    assert provider.counts == counts
    assert len([log for log in logs if log["event"] == "tokens_not_counted"]) == counts


class Answer(BaseModel):
    n: int


async def test_tokens_are_counted_of_the_request_that_is_sent() -> None:
    provider = Counting(2_000)
    runtime = Runtime(provider)
    await ReActEngine(runtime).run("a" * 9_000, output=Answer)
    [counted] = provider.counted
    assert counted.schema is None
    assert [tool.name for tool in counted.tools] == ["final_answer"]
