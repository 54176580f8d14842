"""What a request may have of tokens: the model's context, and what the run has left."""

import asyncio
from typing import Any

import pytest

from loopwright import Limits, LoopEngine, ReActEngine, Run, Runtime
from loopwright.errors import ContextTooLong, ProviderError
from loopwright.messages import Completion, Usage
from loopwright.providers import Capabilities, Request, Sampling
from loopwright.providers.model_sizes import ModelSize, find_size
from loopwright.testing import ScriptedProvider, call


def look(page: int) -> str:
    """Read a page."""
    return "word " * 400


class Reader:
    """A model that reads so many pages, reports the tokens of each request, and answers."""

    name, model = "reader", "reader-1"

    def __init__(self, pages: int, ratio: float, **able: Any) -> None:
        self.pages, self.ratio = pages, ratio
        self.capabilities = Capabilities(**able)
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        tokens = int(request.conversation.size * self.ratio)
        usage = Usage(input_tokens=tokens, output_tokens=10)
        number = len(self.requests)
        if number <= self.pages and request.tool_choice == "auto":
            calls = (call("look", page=number),)
            return Completion(calls=calls, finish_reason="tool_calls", usage=usage)
        return Completion(text="done", answer="done", usage=usage)


class CountingReader(Reader):
    """The same, and it can count."""

    def __init__(self, *arguments: Any, **able: Any) -> None:
        super().__init__(*arguments, **able)
        self.counted: list[Request] = []
        self.fails = False

    async def count(self, request: Request) -> int:
        self.counted.append(request)
        if self.fails:
            raise ProviderError("no count today")
        return int(request.conversation.size * self.ratio)


def sizes(provider: Reader) -> list[int]:
    return [request.conversation.size for request in provider.requests]


async def read(provider: Any, **limits: Any) -> Any:
    free = {"max_tokens": None, **limits}
    runtime = Runtime(provider, tools=[look], limits=Limits(**free))
    result = await ReActEngine(runtime).run("Read.")
    assert result.answer == "done"
    return result


async def test_a_conversation_is_as_long_as_the_context_of_its_model() -> None:
    small = Reader(20, 1 / 4, context_tokens=6_000, max_output_tokens=1_000)
    large = Reader(20, 1 / 4, context_tokens=200_000, max_output_tokens=1_000)
    await read(small)
    await read(large)
    assert max(sizes(small)) <= 5_000 * 4
    assert sizes(large)[-1] > 20 * 2_000


async def test_an_unknown_model_reads_32_000_tokens() -> None:
    provider = Reader(24, 1 / 4)
    long = Runtime(provider, tools=[look_long], limits=Limits(max_tokens=None))
    await ReActEngine(long).run("Read.")
    assert 100_000 < max(sizes(provider)) <= 32_000 * 4


def look_long(page: int) -> str:
    """Read a long page."""
    return "word " * 2_000


look_long.__name__ = "look"


async def test_the_own_limit_comes_before_the_context_of_the_model() -> None:
    provider = Reader(10, 1 / 4, context_tokens=200_000)
    await read(provider, context_tokens=2_000)
    assert max(sizes(provider)) <= 2_000 * 4


async def test_the_ratio_is_learnt_from_what_replies_report() -> None:
    provider = Reader(20, 1 / 2, context_tokens=12_000, max_output_tokens=2_000)
    await read(provider)
    assert max(sizes(provider)) <= 10_000 * 2 + 2_500  # the first long one is a guess


@pytest.mark.parametrize("tokens", [3, 10_000_000])
async def test_a_figure_that_was_not_counted_is_left_out(tokens: int) -> None:
    class Odd(Reader):
        async def complete(self, request: Request) -> Completion:
            reply = await super().complete(request)
            usage = Usage(input_tokens=tokens, output_tokens=1)
            return Completion(
                reply.text, reply.calls, reply.answer, finish_reason="stop", usage=usage
            )

    provider = Odd(10, 1 / 4, context_tokens=6_000, max_output_tokens=1_000)
    await read(provider)
    assert max(sizes(provider)) <= 5_000 * 4


async def test_tokens_are_counted_where_a_request_comes_near_the_context() -> None:
    provider = CountingReader(12, 1 / 2, context_tokens=12_000, max_output_tokens=2_000)
    await read(provider)
    assert 0 < len(provider.counted) < len(provider.requests)
    assert max(sizes(provider)) <= 10_000 * 2


async def test_without_a_count_the_estimate_stays() -> None:
    provider = CountingReader(12, 1 / 4, context_tokens=6_000, max_output_tokens=1_000)
    provider.fails = True
    await read(provider)
    assert len(provider.counted) > 0


# What is left of the run's tokens


async def test_each_reply_is_bounded_by_what_is_left() -> None:
    provider = Reader(4, 1 / 4)
    await read(provider, max_tokens=10_000)
    spent = 0
    for request, size in zip(provider.requests, sizes(provider), strict=True):
        bound = request.sampling.max_tokens
        assert bound is not None
        assert (
            spent + size // 4 + bound <= 10_000 + 50
        )  # what the tools change in the ratio
        assert bound > 10_000 - spent - size // 4 - 200  # the tools
        spent += size // 4 + 10


async def test_a_run_never_spends_more_than_its_tokens_by_a_long_reply() -> None:
    class Talker(Reader):
        async def complete(self, request: Request) -> Completion:
            self.requests.append(request)
            said = request.sampling.max_tokens or 1_000_000
            usage = Usage(request.conversation.size // 4, said)
            return Completion(
                "word", answer="word", finish_reason="length", usage=usage
            )

    provider = Talker(0, 1 / 4)
    limits = Limits(max_tokens=5_000, best_effort=False)
    result = await ReActEngine(Runtime(provider, limits=limits)).run("Talk.")
    assert (result.status, result.stop_reason) == ("limit", "max_tokens")
    assert result.usage.total_tokens <= 5_000


async def test_a_model_that_gives_less_by_itself_is_sent_no_bound() -> None:
    provider = Reader(1, 1 / 4, max_output_tokens=4_000)
    await read(provider, max_tokens=100_000)
    assert [request.sampling.max_tokens for request in provider.requests] == [None] * 2


async def test_the_settings_of_the_run_are_bounded_and_not_raised() -> None:
    class Two(LoopEngine):
        name = "two"

        async def solve(self, run: Run) -> str:
            await run.ask("first", sampling=Sampling(max_tokens=50))
            return await run.ask("second", sampling=Sampling(max_tokens=5_000))

    provider = Reader(0, 1 / 4)
    await Two(Runtime(provider, limits=Limits(max_tokens=2_000))).run("x")
    first, second = (request.sampling.max_tokens for request in provider.requests)
    assert first == 50
    assert second is not None
    assert second < 2_000


async def test_calls_at_the_same_time_share_the_rest() -> None:
    class Wide(LoopEngine):
        name = "wide"

        async def solve(self, run: Run) -> str:
            async def ask(branch: Run) -> str:
                return await branch.ask("x")

            return (await run.gather(*[ask] * 4))[0]

    class Slow(Reader):
        async def complete(self, request: Request) -> Completion:
            await asyncio.sleep(0.05)
            return await super().complete(request)

    provider = Slow(0, 1 / 4)
    await Wide(Runtime(provider, limits=Limits(max_tokens=8_000))).run("x")
    bounds = sorted(r.sampling.max_tokens or 0 for r in provider.requests)
    assert bounds[0] <= 2_000
    assert bounds[-1] <= 8_000


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("max_tokens must be at most 8192", status=400),
        ContextTooLong("maximum context length is 32768 tokens", status=400),
    ],
    ids=["bound", "context"],
)
async def test_an_endpoint_that_refuses_the_bound_is_asked_without_it(
    error: ProviderError,
) -> None:
    class Strict(Reader):
        refused = 0

        async def complete(self, request: Request) -> Completion:
            if (request.sampling.max_tokens or 0) > 8_192:
                self.refused += 1
                raise error
            return await super().complete(request)

    provider = Strict(2, 1 / 4)
    result = await read(provider, max_tokens=15_000)
    assert provider.refused == 1  # it is known from then on
    assert result.llm_calls == 3


async def test_another_refusal_is_no_reason_to_ask_again() -> None:
    provider = ScriptedProvider(
        [ProviderError("no such model", status=404), "never asked"],
        capabilities=Capabilities(),
    )
    result = await ReActEngine(Runtime(provider)).run("x")
    assert result.status == "failed"
    assert len(provider.requests) == 1


async def test_the_best_answer_has_room_beyond_the_limit() -> None:
    provider = Reader(50, 1 / 4)
    runtime = Runtime(provider, tools=[look], limits=Limits(max_tokens=3_000))
    result = await ReActEngine(runtime).run("Read.")
    assert (result.status, result.answer) == ("limit", "done")
    assert provider.requests[-1].sampling.max_tokens == 1_024


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("gpt-5.1-mini", ModelSize(400_000, 128_000)),
        ("openai/gpt-4.1-mini", ModelSize(1_047_576, 32_768)),
        ("gpt-4o-2024-08-06", ModelSize(128_000, 16_384)),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", ModelSize(200_000, 64_000)),
        ("claude-opus-4-20250514", ModelSize(200_000, 32_000)),
        ("claude-3-5-haiku-latest", ModelSize(200_000, 8_192)),
        ("google/gemini-3-pro-preview", ModelSize(1_048_576, 65_536)),
        ("o3", ModelSize(200_000, 100_000)),
        ("meta-llama/Llama-3.1-8B-Instruct", ModelSize(131_072)),
        ("gpt-50", ModelSize()),
        ("solo1", ModelSize()),
        ("my-model", ModelSize()),
        ("gpt-5.1-chat-latest", ModelSize(128_000, 16_384)),
        ("gpt-5.2-chat-latest", ModelSize(128_000, 16_384)),
        ("o1-mini", ModelSize(128_000, 65_536)),
        ("gemini-2.5-flash-image", ModelSize(65_536, 32_768)),
        ("gemini-2.5-flash", ModelSize(1_048_576, 65_536)),
    ],
)
def test_known_models_are_found_by_their_names(model: str, size: ModelSize) -> None:
    assert find_size(model) == size
