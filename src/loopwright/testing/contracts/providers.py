"""ProviderContract: what the runtime relies on when it asks a model."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable
from typing import Any, ClassVar, cast
from unittest import SkipTest

from pydantic import TypeAdapter
from pydantic_core import to_json

from ...engines.react import ReActEngine
from ...events.effects import ModelReplied, ModelRequested
from ...limits import Limits
from ...messages import Completion, Conversation, Message, ToolCall, ToolSpec
from ...providers.base import (
    Capabilities,
    Delta,
    OutputSchema,
    Provider,
    Request,
    Sampling,
    SamplingProvider,
)
from ...runtime import Runtime
from ..assertions import assert_equal, assert_true, assert_type, run_in_loop
from .provider_checks import check_completion, check_deltas, check_error, check_usage

LOOK = ToolSpec(
    "look",
    "Look something up.",
    {
        "type": "object",
        "properties": {"what": {"type": "string"}},
        "required": ["what"],
        "additionalProperties": False,
    },
)
COLOUR = OutputSchema(
    "Colour",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    },
)
QUESTION = Conversation.of("What colour is the sky?", system="Be brief.")
LOOKED = QUESTION.add(
    Message(
        "assistant",
        "I look.",
        (ToolCall("look", {"what": "sky"}, "call_1"),),
        origin="model",
    ),
    Message("tool", "The sky is blue.", call_id="call_1", origin="tool"),
)
CONCURRENCY = 8
ENDINGS = (("failed", "provider_error"), ("suspended", "provider_unavailable"))
"""How a run ends whose provider fails."""


class ProviderContract:
    """Subclass it in a test module as `Test…` and give it your provider; every check is a test of its own.

        class TestMyProvider(ProviderContract):
            def provider(self) -> Provider:
                return MyProvider("model-1", base_url=server.url)

            def failing(self) -> Iterable[Provider]:
                yield MyProvider("model-1", base_url="http://127.0.0.1:9")  # no server

    Behind it must be something that answers: a server of your tests on this machine, a cassette, a model in the
    process. What it answers is its own affair; the same request is to be answered the same, unless `repeats` is False.
    """

    repeats: ClassVar[bool] = True
    """Whether the same request is answered the same."""
    patience: ClassVar[float] = 10.0
    """Seconds after which a call that was cancelled must have ended."""

    def provider(self) -> Provider:
        """Return a new object of your provider."""
        raise NotImplementedError(f"{type(self).__name__}: override provider(self)")

    def failing(self) -> Iterable[Provider]:
        """Return your provider without a server, with a wrong key, with invalid replies: each call must fail."""
        return ()

    def requests(self) -> list[Request]:
        """Return the requests: a question, with tools, after a tool's result, with tools disabled, with a schema."""
        able = self.provider().capabilities
        asked = [
            Request(QUESTION),
            Request(Conversation.of("Say it in one word: ünï ☃ 🌍")),
            Request(
                QUESTION,
                sampling=Sampling(
                    temperature=0.0, stop=("\nObservation:",), max_tokens=200
                ),  # a provider may refuse any other setting, by its name
            ),
            Request(QUESTION, as_text=True),
        ]
        if able.native_tools:
            asked += [
                Request(QUESTION, (LOOK,)),
                Request(LOOKED, (LOOK,)),
                Request(LOOKED, (LOOK,), tool_choice="none"),
            ]
        if able.json_schema:
            asked.append(Request(QUESTION, schema=COLOUR))
        if able.schema_with_tools:
            asked.append(Request(LOOKED, (LOOK,), schema=COLOUR))
        return asked

    @run_in_loop
    async def test_it_says_who_it_is_and_what_it_can_do(self) -> None:
        """Name and model are texts, capabilities are `Capabilities`, and none changes with use."""
        provider = self.provider()
        known = provider.name, provider.model, provider.capabilities
        assert_type(known[0], str, "name")
        assert_type(known[1], str, "model")
        assert_true(
            known[0] and known[1], f"name and model say who it is, got {known[:2]!r}"
        )
        assert_type(known[2], Capabilities, "capabilities")
        await provider.complete(Request(QUESTION))

        assert_equal(
            (provider.name, provider.model, provider.capabilities),
            known,
            "name, model and capabilities after use",
        )

    @run_in_loop
    async def test_it_answers_every_kind_of_request(self) -> None:
        """With a `Completion` that has calls, an answer or a problem, and calls no tool that it was not offered."""
        provider = self.provider()
        for request in self.requests():
            completion = await provider.complete(request)
            check_completion(completion, request)

    @run_in_loop
    async def test_it_changes_nothing_of_a_request(self) -> None:
        """Conversation, tools and schemas are as they were."""
        provider = self.provider()
        for request in self.requests():
            before = _plain(request)
            await provider.complete(request)
            assert_equal(_plain(request), before, "the request after the call")

    @run_in_loop
    async def test_usage_says_what_is_known_and_none_of_what_is_not(self) -> None:
        """Totals contain their parts; 0 tokens are never sent, so an unknown count is not 0."""
        provider = self.provider()
        for request in self.requests():
            check_usage((await provider.complete(request)).usage)

    @run_in_loop
    async def test_a_reply_survives_the_journal(self) -> None:
        """It is plain data: written as JSON and read again, it is equal."""
        provider, reader = self.provider(), TypeAdapter(Completion)
        for request in self.requests():
            completion = await provider.complete(request)
            try:
                read = reader.validate_json(to_json(completion))
            except ValueError as error:
                raise AssertionError(
                    f"the reply as the journal has it: {error}"
                ) from error
            assert_equal(read, completion, "the reply as the journal has it")

    @run_in_loop
    async def test_several_replies_come_by_one_request(self) -> None:
        """A provider with `max_samples` gives no more than it was asked for, each of them a reply."""
        provider = self.provider()
        if provider.capabilities.max_samples < 2:
            raise SkipTest("one request brings one reply")
        assert_true(
            isinstance(provider, SamplingProvider), "max_samples without sample()"
        )
        request = Request(QUESTION, sampling=Sampling(n=2))
        replies = await cast("SamplingProvider", provider).sample(request)
        assert_true(1 <= len(replies) <= 2, f"{len(replies)} replies, 2 were asked for")
        for reply in replies:
            check_completion(reply, request)
        check_usage(replies[0].usage)

    @run_in_loop
    async def test_a_stream_says_what_a_whole_reply_says(self) -> None:
        """Its last delta carries the completion; texts, thoughts and chunks of calls joined are those of it."""
        provider = self._streaming()
        for request in self.requests():
            deltas = await _deltas(provider, request)
            check_deltas(deltas)
            streamed = deltas[-1].completion
            assert_true(streamed is not None, "the last delta has no completion")
            check_completion(cast("Completion", streamed), request)
            if self.repeats:
                whole = await provider.complete(request)
                assert_equal(
                    _comparable(cast("Completion", streamed)),
                    _comparable(whole),
                    "what was streamed, and what was told whole",
                )

    @run_in_loop
    async def test_it_raises_provider_errors_and_nothing_else(self) -> None:
        """Whole and streamed; each says whether trying again can help."""
        for provider in self._failing():
            for request in self.requests():
                check_error(await _error(provider.complete(request)))
                if hasattr(provider, "stream"):
                    check_error(await _error(_drained(_stream(provider, request))))

    @run_in_loop
    async def test_a_run_on_a_failing_provider_has_no_answer(self) -> None:
        """It fails, or is suspended where a later attempt may succeed."""
        for provider in self._failing():
            parts = Runtime(provider, limits=Limits(max_provider_wait=0))
            result = await ReActEngine(parts).run(QUESTION)
            ending = (result.status, result.stop_reason)
            assert_true(ending in ENDINGS, f"the run ended as {ending}")
            assert_equal(result.answer, None, "the answer")

    @run_in_loop
    async def test_a_cancelled_call_ends_and_the_next_one_works(self) -> None:
        """At whatever point it is cancelled; a stream that is left half way, too."""
        provider, request = self.provider(), Request(QUESTION)
        expected = _comparable(await provider.complete(request))
        for pauses in range(12):
            await self._cancelled(_once(provider, request), pauses)
        if hasattr(provider, "stream"):
            for pauses in range(12):
                await self._cancelled(_drained(_stream(provider, request)), pauses)
            left = _stream(provider, request)
            await anext(left)
            if isinstance(left, AsyncGenerator):
                await left.aclose()
        reply = _comparable(await provider.complete(request))
        if self.repeats:
            assert_equal(reply, expected, "the reply after calls that were cancelled")

    async def _cancelled(self, work: Coroutine[Any, Any, object], pauses: int) -> None:
        """Cancel a call after so many turns of the event loop: if it was in flight, it must end as cancelled."""
        call = asyncio.ensure_future(work)
        for _ in range(pauses):
            await asyncio.sleep(0)
        in_flight = call.cancel()
        await asyncio.wait((call,), timeout=self.patience)
        if not call.done():
            with contextlib.suppress(RuntimeError):
                work.close()  # else the event loop would wait for it for ever
            raise AssertionError(
                f"cancelled, it was at work {self.patience:g} seconds later"
            )
        error = None if call.cancelled() else call.exception()
        assert_true(error is None, f"cancelled, it raised: {error!r}")
        assert_true(
            call.cancelled() or not in_flight,
            "cancelled in flight, it continued and gave a reply",
        )

    @run_in_loop
    async def test_streams_at_the_same_time_do_not_mix(self) -> None:
        """Each streams the reply to its own request, and all of it."""
        provider, asked = self._streaming(), self.requests()
        alone = [await _deltas(provider, request) for request in asked]
        together = await asyncio.gather(
            *(_deltas(provider, request) for request in asked * CONCURRENCY)
        )
        for deltas in together:
            check_deltas(deltas)
        if self.repeats:
            expected = [_streamed(deltas) for deltas in alone] * CONCURRENCY
            assert_equal(
                [_streamed(deltas) for deltas in together],
                expected,
                "streams at the same time",
            )

    @run_in_loop
    async def test_calls_at_the_same_time_do_not_mix(self) -> None:
        """Each gets the reply to its own request, and none leaves a trace in the next."""
        provider = self.provider()
        asked = self.requests()
        alone = [await provider.complete(request) for request in asked]
        together = await asyncio.gather(
            *(provider.complete(request) for request in asked * CONCURRENCY)
        )
        if self.repeats:
            assert_equal(
                [_comparable(c) for c in together],
                [_comparable(c) for c in alone] * CONCURRENCY,
                "replies at the same time",
            )
            again = [await provider.complete(request) for request in reversed(asked)]
            assert_equal(
                [_comparable(c) for c in reversed(again)],
                [_comparable(c) for c in alone],
                "replies in another order",
            )
        for request, completion in zip(asked * CONCURRENCY, together, strict=True):
            check_completion(completion, request)

    def test_one_provider_serves_several_event_loops(self) -> None:
        """One after the other, as scripts do that call `asyncio.run` twice."""
        provider = self.provider()
        replies = [
            _comparable(asyncio.run(_once(provider, Request(QUESTION))))
            for _ in range(3)
        ]
        if self.repeats:
            assert_equal(replies, [replies[0]] * 3, "replies in three event loops")

    @run_in_loop
    async def test_a_run_records_who_answered(self) -> None:
        """Provider and model stand in the journal, whole and streamed runs come to the same."""
        provider = self.provider()
        runtime = Runtime(provider)
        answers = list[object]()
        for run_id in ("whole", "streamed"):
            engine = ReActEngine(runtime)
            if run_id == "whole":
                result = await engine.run(QUESTION, run_id=run_id)
            else:
                async with engine.start(QUESTION, run_id=run_id, deltas=True) as run:
                    result = await run.result()
            events = [entry.event for entry in runtime.journal.read(run_id)]
            asked = next(event for event in events if isinstance(event, ModelRequested))
            assert_equal(
                (asked.provider, asked.model),
                (provider.name, provider.model),
                "who was asked",
            )
            assert_true(
                any(isinstance(event, ModelReplied) for event in events),
                f"no reply: {result.error}",
            )
            answers.append((result.answer, result.status))
        if self.repeats:
            assert_equal(answers[1], answers[0], "the run whose model streamed")

    def _streaming(self) -> Provider:
        provider = self.provider()
        if not hasattr(provider, "stream"):
            raise SkipTest(f"{provider.name} does not stream")
        return provider

    def _failing(self) -> list[Provider]:
        providers = list(self.failing())
        if not providers:
            raise SkipTest("failing() gives no providers that fail")
        return providers


async def _error(work: Any) -> BaseException | None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - the check tells which
        return error
    return None


async def _once(provider: Provider, request: Request) -> Completion:
    return await provider.complete(request)


async def _deltas(provider: Provider, request: Request) -> list[Delta]:
    return [delta async for delta in _stream(provider, request)]


def _streamed(deltas: list[Delta]) -> tuple[object, ...]:
    """What a stream came to; where it was cut into chunks may differ."""
    text = "".join(delta.text for delta in deltas)
    return (
        text,
        "".join(delta.reasoning for delta in deltas),
        _comparable(cast("Completion", deltas[-1].completion)),
    )


async def _drained(deltas: AsyncIterator[Delta]) -> None:
    async for _ in deltas:
        pass


def _stream(provider: Provider, request: Request) -> AsyncIterator[Delta]:
    deltas: AsyncIterator[Delta] = cast("Any", provider).stream(request)
    return deltas


def _comparable(completion: Completion) -> tuple[object, ...]:
    """What of a reply must be the same again; ids and counts may differ."""
    calls = [(call.name, dict(call.arguments)) for call in completion.calls]
    return (
        completion.text,
        calls,
        completion.answer,
        completion.problem,
        completion.finish_reason,
    )


def _plain(request: Request) -> str:
    tools = [(tool.name, tool.description, tool.schema) for tool in request.tools]
    schema = request.schema and (request.schema.name, request.schema.schema)
    return repr(
        (
            request.conversation.messages,
            tools,
            request.sampling,
            schema,
            request.tool_choice,
        )
    )
