"""Fallback: which provider is asked when one fails, which cools down, and what the flags say."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from loopwright import (
    Capabilities,
    Completion,
    Conversation,
    Delta,
    Limits,
    MemoryJournal,
    ReActEngine,
    Request,
    Runtime,
)
from loopwright.errors import (
    ConfigError,
    ContextTooLong,
    ProviderError,
    ProviderTimeout,
)
from loopwright.events import ModelReplied
from loopwright.messages import Message, Usage
from loopwright.providers import FallbackProvider, OpenAIProvider, TextTools
from loopwright.providers.dialects import JsonDialect
from loopwright.resilience import CircuitBreakers
from loopwright.testing import FakeClock, ScriptedProvider, call
from sample_tools import add
from virtual_time import in_virtual_time

ASKED = Request(Conversation.of("q"))
BUSY = ProviderError("too busy", status=503, retryable=True)
REFUSED = ProviderError("no such model", status=404)


def says(*lines: Any, model: str) -> ScriptedProvider:
    return ScriptedProvider(lines, model=model)


def never(model: str = "never") -> ScriptedProvider:
    """One that must not be asked."""
    return ScriptedProvider([], model=model)


def reply(text: str, model: str, *flags: str) -> Completion:
    return Completion(text, answer=text, usage=Usage(10, 5), model=model, flags=flags)


async def test_the_first_that_answers_is_the_only_one_that_is_asked() -> None:
    provider = FallbackProvider(says("yes", model="a"), never())

    assert await provider.complete(ASKED) == reply("yes", "a")


async def test_where_one_fails_the_next_gets_the_same_request_and_the_reply_says_why() -> (
    None
):
    first, second, third = (
        says(BUSY, model="a"),
        says(REFUSED, model="b"),
        says("yes", model="c"),
    )
    provider = FallbackProvider(first, second, third)

    assert await provider.complete(ASKED) == reply(
        "yes",
        "c",
        "fallback: scripted/a: too busy",
        "fallback: scripted/b: no such model",
    )
    assert first.requests == second.requests == third.requests == [ASKED]


async def test_the_model_that_answered_is_named_where_it_does_not_say_so_itself() -> (
    None
):
    silent = Completion("yes", answer="yes", flags=("cached",))
    named = Completion("yes", answer="yes", model="b-2024")
    provider = FallbackProvider(says(BUSY, model="a"), says(silent, named, model="b"))

    first, second = await provider.complete(ASKED), await provider.complete(ASKED)

    assert (first.model, first.flags) == (
        "b",
        ("cached", "fallback: scripted/a: too busy"),
    )
    assert second.model == "b-2024"


async def test_a_long_reason_is_cut_in_a_flag() -> None:
    provider = FallbackProvider(
        says(ProviderError("x" * 5_000), model="a"), says("yes", model="b")
    )

    assert (await provider.complete(ASKED)).flags == (
        f"fallback: scripted/a: {'x' * 300}…",
    )


async def test_a_conversation_that_is_too_long_is_for_the_runtime_to_shorten() -> None:
    provider = FallbackProvider(says(ContextTooLong("too long"), model="a"), never())

    with pytest.raises(ContextTooLong, match=r"^too long$"):
        await provider.complete(ASKED)


async def test_the_caller_may_say_which_errors_are_passed_on() -> None:
    long, plain = says(ContextTooLong("too long"), model="a"), says(REFUSED, model="a")

    def grows(error: ProviderError) -> bool:
        return isinstance(error, ContextTooLong)

    assert (
        await FallbackProvider(long, says("yes", model="b"), when=grows).complete(ASKED)
    ).answer == "yes"
    with pytest.raises(ProviderError, match=r"^no such model$"):
        await FallbackProvider(plain, never(), when=grows).complete(ASKED)


# ---------------------------------------------------------------------------------------------------- all fail


async def test_where_all_fail_the_error_names_each_and_is_the_one_with_the_shortest_wait() -> (
    None
):
    errors = [
        ProviderError("too busy", status=503, retryable=True, retry_after=7.0),
        ProviderError("slow down", status=429, retryable=True, retry_after=2.0),
        REFUSED,
    ]
    provider = FallbackProvider(
        *[says(error, model=model) for error, model in zip(errors, "abc", strict=True)]
    )

    with pytest.raises(ProviderError) as raised:
        await provider.complete(ASKED)

    error = raised.value
    assert str(error) == (
        "every provider failed: scripted/a: too busy; scripted/b: slow down; scripted/c: no such model"
    )
    assert (error.retryable, error.retry_after, error.status, error.__cause__) == (
        True,
        2.0,
        429,
        errors[1],
    )


@pytest.mark.parametrize("models", ["ab", "ba"])
async def test_the_error_raised_is_the_recoverable_one_with_the_shortest_wait(
    models: str,
) -> None:
    final = ProviderError("bad key", status=401, retry_after=1.0)
    slow = ProviderError("slow down", status=429, retryable=True, retry_after=60.0)
    seen: list[tuple[bool, int | None, float | None]] = []
    for one, other in ((BUSY, final), (slow, final), (slow, BUSY)):
        members = dict(zip(models, (one, other), strict=True))
        with pytest.raises(ProviderError) as raised:
            await FallbackProvider(
                *[says(members[model], model=model) for model in "ab"]
            ).complete(ASKED)
        seen.append(
            (raised.value.retryable, raised.value.status, raised.value.retry_after)
        )

    assert seen == [(True, 503, None), (True, 429, 60.0), (True, 503, None)]


@pytest.mark.parametrize("other", [BUSY, REFUSED, ContextTooLong("full", status=413)])
async def test_where_all_fail_a_too_long_conversation_reaches_the_runtime(
    other: ProviderError,
) -> None:
    long = ContextTooLong("too long", status=400)
    for errors in ([long, other], [other, long]):
        members = [
            says(error, model=model) for error, model in zip(errors, "ab", strict=True)
        ]
        with pytest.raises(
            ContextTooLong, match=r"every provider failed: .*too long"
        ) as raised:
            await FallbackProvider(*members, when=lambda error: True).complete(ASKED)
        assert raised.value.retryable is False


async def test_a_run_shortens_its_conversation_where_it_is_too_long_for_all_of_them() -> (
    None
):
    first, second = (
        says(ContextTooLong("too long"), "yes", model=model) for model in "ab"
    )
    task = Conversation(
        [
            Message("user", "old " * 2_000),
            Message("assistant", "x " * 2_000),
            Message("user", "q"),
        ]
    )
    result = await ReActEngine(
        Runtime(FallbackProvider(first, second, when=lambda error: True))
    ).run(task)

    assert (result.status, result.answer) == ("completed", "yes")
    assert first.requests[1].conversation.size < first.requests[0].conversation.size


class Crashing(ScriptedProvider):
    """A third-party provider that raises an exception of a forbidden type."""

    async def complete(self, request: Request) -> Completion:
        raise ConnectionError("gone")

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        if self.model == "later":
            yield Delta(text="It")
        raise ConnectionError("gone")


async def test_a_provider_that_raises_another_error_is_skipped_and_asked_next_time() -> (
    None
):
    provider = FallbackProvider(
        Crashing([], model="a"), says("yes", "again", "streamed", model="b")
    )
    why = "fallback: scripted/a: scripted raised ConnectionError: gone"

    assert [await provider.complete(ASKED) for _ in range(2)] == [
        reply("yes", "b", why),
        reply("again", "b", why),
    ]
    assert (await streamed(provider))[-1].completion == reply("streamed", "b", why)


async def test_third_party_exception_becomes_a_final_provider_error() -> None:
    seen: list[ProviderError] = []

    def keep(error: ProviderError) -> bool:
        seen.append(error)
        return False

    for work in (
        FallbackProvider(Crashing([], model="a")).complete(ASKED),
        FallbackProvider(Crashing([], model="a"), never(), when=keep).complete(ASKED),
        streamed(FallbackProvider(Crashing([], model="later"), never())),
    ):
        with pytest.raises(
            ProviderError, match="scripted raised ConnectionError: gone"
        ) as raised:
            await work
        assert raised.value.retryable is False
    assert [type(error.__cause__) for error in seen] == [ConnectionError]


async def test_where_none_can_be_tried_again_neither_can_the_whole() -> None:
    last = ProviderError("bad key", status=401, retry_after=5.0)

    with pytest.raises(ProviderError) as raised:
        await FallbackProvider(
            says(REFUSED, model="a"), says(last, model="b")
        ).complete(ASKED)

    assert (raised.value.retryable, raised.value.status, raised.value.retry_after) == (
        False,
        401,
        5.0,
    )


async def test_a_time_out_of_the_last_is_still_a_time_out() -> None:
    with pytest.raises(ProviderTimeout, match="scripted/a: slow"):
        await FallbackProvider(
            says(ProviderTimeout("slow", retryable=True), model="a")
        ).complete(ASKED)


# ---------------------------------------------------------------------------------------------------- cooling down


async def test_one_that_failed_for_a_passing_reason_is_passed_over_for_a_while() -> (
    None
):
    clock = FakeClock()
    first, second = says(BUSY, "first", model="a"), says("second", "second", model="b")
    provider = FallbackProvider(first, second, cool_down=30.0, clock=clock)
    why = "fallback: scripted/a: too busy"

    assert await provider.complete(ASKED) == reply("second", "b", why)
    clock.advance(29.9)
    assert await provider.complete(ASKED) == reply(
        "second", "b", "fallback: scripted/a: passed over after too busy"
    )
    clock.advance(0.1)
    assert await provider.complete(ASKED) == reply("first", "a")


async def test_one_that_failed_for_good_is_asked_again_each_time() -> None:
    first, second = says(REFUSED, "first", model="a"), says("second", model="b")
    provider = FallbackProvider(first, second, clock=FakeClock())

    assert [(await provider.complete(ASKED)).answer for _ in range(2)] == [
        "second",
        "first",
    ]


async def test_where_all_rest_they_are_asked_in_order_and_the_first_to_answer_is_back() -> (
    None
):
    first, second = (
        says(BUSY, BUSY, "first", model="a"),
        says(BUSY, "second", model="b"),
    )
    provider = FallbackProvider(first, second, clock=FakeClock())

    with pytest.raises(ProviderError):
        await provider.complete(ASKED)
    assert (await provider.complete(ASKED)).answer == "second"
    assert (len(first.requests), len(second.requests)) == (2, 2)


async def test_one_that_rests_is_asked_after_all_where_the_others_fail() -> None:
    first, second = says(BUSY, "first", model="a"), says("second", REFUSED, model="b")
    provider = FallbackProvider(first, second, clock=FakeClock())

    await provider.complete(ASKED)

    assert await provider.complete(ASKED) == reply(
        "first", "a", "fallback: scripted/b: no such model"
    )


async def test_success_ends_the_rest() -> None:
    first, second = (
        says(BUSY, "first", "first again", model="a"),
        says("second", REFUSED, model="b"),
    )
    provider = FallbackProvider(first, second, clock=FakeClock())

    assert [(await provider.complete(ASKED)).answer for _ in range(3)] == [
        "second",
        "first",
        "first again",
    ]


# ---------------------------------------------------------------------------------------------------- what it is


def test_it_is_named_for_traces_and_can_do_what_all_of_them_can() -> None:
    able = Capabilities(native_tools=True, json_schema=True, stop=True)
    plain = Capabilities(native_tools=False, json_schema=False, stop=True)
    provider = FallbackProvider(
        ScriptedProvider([], model="a", capabilities=able),
        ScriptedProvider([], model="b", capabilities=plain),
    )

    assert (provider.name, provider.model, repr(provider)) == (
        "fallback", "a|b", "FallbackProvider(scripted/a, scripted/b)",
    )  # fmt: skip
    assert provider.capabilities == Capabilities(
        native_tools=False, json_schema=False, stop=True
    )


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: FallbackProvider(), "providers: FallbackProvider needs one at least"),
        (
            lambda: FallbackProvider(never(), "openai"),
            "provider 2 of FallbackProvider: must be a provider",
        ),
        (
            lambda: FallbackProvider(ScriptedProvider),
            "provider 1 of FallbackProvider: must be a provider",
        ),
        (
            lambda: FallbackProvider(never(), cool_down=-1.0),
            "cool_down must be a number of seconds",
        ),
        (
            lambda: FallbackProvider(never(), cool_down=float("nan")),
            "cool_down must be a number of seconds",
        ),
        (
            lambda: FallbackProvider(never(), cool_down="30"),
            "cool_down must be a number of seconds",
        ),
        (
            lambda: FallbackProvider(never(), when=True),
            "when: must be a function of the error",
        ),
    ],
)
def test_what_makes_no_sense_is_named(
    build: Callable[[], object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        build()


async def test_close_closes_all_although_one_cannot_be_closed_and_another_fails() -> (
    None
):
    closed: list[str] = []

    class Closing(ScriptedProvider):
        async def aclose(self) -> None:
            closed.append(self.model)
            if self.model == "b":
                raise OSError("stuck")

    twice = Closing([], model="a")
    provider = FallbackProvider(
        twice, Closing([], model="b"), Closing([], model="c"), twice, never()
    )

    with pytest.raises(OSError, match="stuck"):
        await provider.aclose()
    assert sorted(closed) == ["a", "b", "c"]


# ---------------------------------------------------------------------------------------------------- streams


class Breaking:
    """Streams some deltas and then fails, or ends without a completion."""

    name, model = "breaking", "x"
    capabilities = Capabilities()

    def __init__(self, *before: Delta, error: ProviderError | None = None) -> None:
        self.before, self.error, self.closed = before, error, False

    async def complete(self, request: Request) -> Completion:
        raise AssertionError("it is streamed")

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        try:
            for delta in self.before:
                yield delta
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


async def streamed(provider: FallbackProvider) -> list[Delta]:
    return [delta async for delta in provider.stream(ASKED)]


async def test_a_stream_that_breaks_before_its_first_word_is_taken_over_by_the_next() -> (
    None
):
    deltas = await streamed(
        FallbackProvider(Breaking(Delta(), error=BUSY), says("It is 42.", model="b"))
    )

    assert [delta.text for delta in deltas] == ["", "It ", "is ", "42.", ""]
    assert deltas[-1].completion == reply(
        "It is 42.", "b", "fallback: breaking/x: too busy"
    )


async def test_a_stream_that_breaks_after_its_first_word_is_an_error() -> None:
    provider = FallbackProvider(Breaking(Delta(text="It"), error=BUSY), never())
    stream = provider.stream(ASKED)

    assert await anext(stream) == Delta(text="It")
    with pytest.raises(ProviderError, match=r"^too busy$"):
        await anext(stream)


async def test_a_provider_that_cannot_stream_to_its_end_is_skipped_or_asked_plainly() -> (
    None
):
    class Mute(ScriptedProvider):
        stream: Any = None

    deltas = await streamed(
        FallbackProvider(Breaking(), Mute(["It is 42."], model="b"))
    )

    why = "fallback: breaking/x: breaking: the stream ended without a completion"
    assert deltas == [Delta(text="It is 42.", completion=reply("It is 42.", "b", why))]


async def test_where_all_streams_break_the_error_names_each() -> None:
    with pytest.raises(
        ProviderError,
        match=r"every provider failed: breaking/x: too busy; breaking/x: no such model",
    ):
        await streamed(FallbackProvider(Breaking(error=BUSY), Breaking(error=REFUSED)))


async def test_closing_the_stream_closes_the_one_inside() -> None:
    inside = Breaking(Delta(text="It"), Delta(text=" is"))
    stream = FallbackProvider(inside, never()).stream(ASKED)

    assert await anext(stream) == Delta(text="It")
    await stream.aclose()
    assert inside.closed


async def test_cancelled_call_asks_no_other_provider() -> None:
    class Endless(Breaking):
        async def complete(self, request: Request) -> Completion:
            await asyncio.Event().wait()
            raise AssertionError

    work = asyncio.create_task(FallbackProvider(Endless(), never()).complete(ASKED))
    await asyncio.sleep(0)
    work.cancel()

    with pytest.raises(asyncio.CancelledError):
        await work


# ---------------------------------------------------------------------------------------------------- in a run


async def test_a_fallback_in_the_middle_of_a_run_continues_after_its_tools() -> None:
    first = says(call("add", a=1, b=2), REFUSED, model="a")
    second = says("It is 3.", model="b")
    engine = ReActEngine(
        Runtime(FallbackProvider(first, second), tools=[add], journal=MemoryJournal())
    )
    result = await engine.run("1 + 2?")

    assert (result.status, result.answer, result.llm_calls, result.tool_calls) == (
        "completed",
        "It is 3.",
        2,
        1,
    )
    assert [message.content for message in second.requests[0].conversation] == [
        "1 + 2?",
        "",
        "3",
    ]


def in_runtime(
    provider: FallbackProvider | TextTools, clock: FakeClock, **limits: Any
) -> Runtime:
    """A runtime whose breakers open at the first failure."""
    breakers = CircuitBreakers(threshold=1, clock=clock)
    return Runtime(provider, breakers=breakers, clock=clock, limits=Limits(**limits))


async def test_a_member_whose_breaker_is_open_is_skipped_and_the_others_are_not() -> (
    None
):
    clock = FakeClock()
    first, second = says(BUSY, "late", model="a"), says("1", "2", model="b")
    fallback = FallbackProvider(first, second, cool_down=0.0, clock=clock)
    runtime = in_runtime(fallback, clock)
    results = [await ReActEngine(runtime).run("q") for _ in range(2)]

    assert [result.answer for result in results] == ["1", "2"]
    assert (len(first.requests), len(second.requests)) == (1, 2)
    assert runtime.breakers.states() == {"scripted/a": "open", "scripted/b": "closed"}
    [reply] = [
        e.event.completion
        for e in runtime.journal.read(results[1].run_id)
        if isinstance(e.event, ModelReplied)
    ]
    assert reply.flags == (
        "fallback: scripted/a: scripted/a failed too often; it is not called for another 1.0 s",
    )
    clock.advance(1.0)
    assert (await ReActEngine(runtime).run("q")).answer == "late"
    assert runtime.breakers.states() == {"scripted/a": "closed", "scripted/b": "closed"}


async def test_where_every_breaker_is_open_the_call_waits_for_the_first_probe() -> None:
    clock = FakeClock()
    first, second = says(BUSY, model="a"), says(BUSY, "back", model="b")
    runtime = in_runtime(FallbackProvider(first, second, clock=clock), clock)
    runtime.breakers.get("scripted/a", open_seconds=50.0)
    result = await ReActEngine(runtime).run("q")
    kinds = [e.kind for e in runtime.journal.read(result.run_id)]

    assert (result.answer, result.llm_calls) == ("back", 1)
    assert kinds.count("attempt_failed") == 1
    assert kinds.count("model_waiting") == 1
    assert (len(first.requests), len(second.requests)) == (1, 2)
    assert sum(clock.slept) == pytest.approx(1.0)


async def test_calls_that_all_members_reject_are_admitted_one_at_a_time() -> None:
    """Each call waits in the queue of the member that works again first, and nobody blocks it by a place elsewhere."""
    clock = FakeClock()
    members = [says(BUSY, *["ok"] * 20, model=model) for model in "ab"]
    runtime = in_runtime(FallbackProvider(*members, clock=clock), clock)
    results = await asyncio.gather(
        *(ReActEngine(runtime).run(f"q{n}") for n in range(10))
    )

    assert {result.answer for result in results} == {"ok"}
    assert sum(len(member.requests) for member in members) == 12


async def test_a_member_that_a_person_switched_off_is_skipped_and_all_of_them_fail() -> (
    None
):
    clock = FakeClock()
    runtime = in_runtime(
        FallbackProvider(never("a"), says("yes", model="b"), clock=clock), clock
    )
    runtime.breakers.force_open("scripted/a", "too dear")
    assert (await ReActEngine(runtime).run("q")).answer == "yes"

    runtime.breakers.force_open("scripted/b", "too slow")
    failed = await ReActEngine(runtime).run("q")

    assert (failed.status, failed.stop_reason) == ("failed", "provider_error")
    assert "scripted/a is switched off: too dear" in str(failed.error)
    assert clock.slept == []


class Hanging(ScriptedProvider):
    """Never answers."""

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        await asyncio.sleep(60)
        raise AssertionError


@pytest.mark.parametrize("deltas", [False, True])
@pytest.mark.parametrize("dialect", [None, "react", "json"])
@in_virtual_time
async def test_each_member_has_the_time_of_an_attempt_also_in_a_dialect(
    dialect: str | None, deltas: bool
) -> None:
    hanging = Hanging([], model="a")
    answer = (
        JsonDialect().format_answer("yes") if dialect == "json" else "Final Answer: yes"
    )
    inner = FallbackProvider(hanging, says(answer, model="b"))
    fallback = FallbackProvider(inner, never())
    provider = fallback if dialect is None else TextTools(fallback, dialect)
    limits = Limits(model_timeout=0.05, max_provider_wait=1.0)
    runtime = Runtime(
        provider, limits=limits, breakers=CircuitBreakers(threshold=1), tools=[add]
    )
    engine = ReActEngine(runtime)
    if deltas:
        async with engine.start("q", deltas=True) as run:
            assert any([isinstance(item, Delta) async for item in run])
            result = await run.result()
    else:
        result = await engine.run("q")

    assert (result.status, len(hanging.requests)) == ("completed", 1)
    assert runtime.breakers.states() == {"scripted/a": "open", "scripted/b": "closed"}


def dead_port() -> int:
    """A port of this machine without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def answer_once(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(
        int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    )
    body = json.dumps(
        {
            "model": "live-1",
            "choices": [{"message": {"content": "It is 3."}, "finish_reason": "stop"}],
        }
    ).encode()
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
    )
    writer.write(f"content-length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    writer.close()


async def test_a_server_that_is_not_there_is_replaced_by_one_that_is() -> None:
    async with await asyncio.start_server(answer_once, "127.0.0.1", 0) as server:
        dead, live = dead_port(), server.sockets[0].getsockname()[1]
        members = [OpenAIProvider(model, base_url=f"http://127.0.0.1:{port}/v1") for model, port in
                   (("dead", dead), ("live", live))]  # fmt: skip
        provider = FallbackProvider(*members)
        completion = await provider.complete(ASKED)
        await provider.aclose()

    assert (completion.answer, completion.model) == ("It is 3.", "live-1")
    assert completion.flags[0].startswith(f"fallback: 127.0.0.1:{dead}/dead: ")
