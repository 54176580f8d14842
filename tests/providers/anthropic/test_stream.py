"""Streams of the Messages API: what watchers see, the same completion as in one piece, and every way to break off."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from loopwright import MemoryJournal, ReActEngine, Runtime
from loopwright.errors import ProviderError
from loopwright.events import Entry
from loopwright.messages import Completion, Conversation, Reasoning, ToolCall, Usage
from loopwright.providers import (
    AnthropicProvider,
    CallDelta,
    Delta,
    Request,
    StreamingProvider,
)
from loopwright.providers.anthropic.stream import ReplyAssembly, WireEvent
from loopwright.testing import FakeClock
from messages_server import STREAMS, Answer, MessagesServer, recorded, serving
from sample_tools import add
from stopwatch import quickest

HELLO = Request(Conversation.of("Hello"))
SONNET = "claude-sonnet-4-5-20250929"
WHOLE = [
    "cache_usage",
    "citations",
    "cut_in_a_call",
    "redacted_thinking",
    "text",
    "thinking_and_tool",
    "two_tools",
]
SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"


async def streamed(
    answer: Answer, request: Request = HELLO, **options: Any
) -> list[Delta]:
    async with serving(answer) as server:
        provider = AnthropicProvider(
            "claude-sonnet-4-5", base_url=server.url, **options
        )
        deltas = [delta async for delta in provider.stream(request)]
        await provider.aclose()
        return deltas


async def completed(answer: Answer) -> Completion:
    async with serving(answer) as server:
        provider = AnthropicProvider("claude-sonnet-4-5", base_url=server.url)
        completion = await provider.complete(HELLO)
        await provider.aclose()
        return completion


async def failure(answer: Answer) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await streamed(answer)
    return caught.value


def last(deltas: list[Delta]) -> Completion:
    assert [delta.completion is not None for delta in deltas] == [False] * (
        len(deltas) - 1
    ) + [True]
    completion = deltas[-1].completion
    assert completion is not None
    return completion


def client_of(*chunks: bytes) -> httpx.AsyncClient:
    """A client whose server streams these chunks."""

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    def reply(_: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, headers={"content-type": "text/event-stream"}, content=body()
        )

    return httpx.AsyncClient(transport=httpx.MockTransport(reply))


class Bodies:
    """A provider whose server streams one body after the other, each as one chunk."""

    def __init__(self) -> None:
        self._body = b""
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._reply))
        self._provider = AnthropicProvider(
            "claude-sonnet-4-5", base_url="http://localhost:9", client=client
        )

    def _reply(self, _: httpx.Request) -> httpx.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, content=self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def stream(self, body: bytes) -> list[Delta]:
        self._body = body
        return [delta async for delta in self._provider.stream(HELLO)]


async def of_chunks(*chunks: bytes) -> list[Delta]:
    provider = AnthropicProvider(
        "claude-sonnet-4-5", base_url="http://localhost:9", client=client_of(*chunks)
    )
    return [delta async for delta in provider.stream(HELLO)]


def test_calls_are_counted_in_time_that_is_linear_in_their_number() -> None:
    """Counting those before it at each one takes fifty times as long here."""
    begun = WireEvent(type="content_block_start", content_block={"type": "tool_use"})

    def assemble() -> None:
        assembly = ReplyAssembly()
        for _ in range(10_000):
            assembly.add(begun)

    assert quickest(assemble, 0.2) < 0.2


def test_every_recording_is_used() -> None:
    names = {path.stem for path in STREAMS.iterdir()}

    assert names == {*WHOLE, "refusal", "overloaded"}


# What a stream says


@pytest.mark.parametrize("name", WHOLE)
async def test_streamed_reply_equals_the_same_reply_whole(name: str) -> None:
    events, whole = recorded(name)

    deltas = await streamed(Answer.events(events))

    completion = last(deltas)
    assert completion == await completed(Answer.json(whole))
    assert "".join([delta.text for delta in deltas]) == completion.text
    assert "".join([delta.reasoning for delta in deltas]) == "".join(
        [r.text for r in completion.reasoning]
    )


async def test_a_text_comes_word_by_word() -> None:
    deltas = await streamed(Answer.events(recorded("text")[0]))

    said = "Grüße aus Köln 🙂\nIt is 5."
    assert deltas == [
        Delta(text="Grüße"),
        Delta(text=" aus Köln 🙂\n"),
        Delta(text="It is 5."),
        Delta(
            completion=Completion(said, answer=said, usage=Usage(25, 15), model=SONNET)
        ),
    ]


async def test_parallel_calls_stream_by_fragment_and_are_counted_separately() -> None:
    deltas = await streamed(Answer.events(recorded("two_tools")[0]))

    weather, clock = "toolu_01T1x1fJ34qAmk2tNTrN7Up6", "toolu_01K9Qe1B2c3D4e5F6g7H8i9J"
    assert deltas == [
        Delta(text="I look"),
        Delta(text=" both up."),
        Delta(call=CallDelta(0, weather, "weather")),
        Delta(call=CallDelta(0, arguments='{"city":')),
        Delta(call=CallDelta(0, arguments=' "Pa')),
        Delta(call=CallDelta(0, arguments='ris"')),
        Delta(call=CallDelta(0, arguments=', "days": [1, 2]}')),
        Delta(call=CallDelta(1, clock, "clock")),
        Delta(
            completion=Completion(
                "I look both up.",
                calls=(
                    ToolCall("weather", {"city": "Paris", "days": [1, 2]}, weather),
                    ToolCall("clock", {}, clock),
                ),
                finish_reason="tool_calls",
                usage=Usage(472, 89),
                thought="I look both up.",
                model=SONNET,
            )
        ),
    ]


async def test_thinking_is_streamed_and_kept_with_its_signature() -> None:
    deltas = await streamed(Answer.events(recorded("thinking_and_tool")[0]))

    thought = "Two plus three: the tool knows."
    assert [delta.reasoning for delta in deltas if delta.reasoning] == [
        "Two plus",
        " three: the tool knows.",
    ]
    assert last(deltas).reasoning == (
        Reasoning(
            thought,
            "thinking",
            {"type": "thinking", "thinking": thought, "signature": SIGNATURE},
        ),
    )
    assert last(deltas).usage == Usage(300, 120, reasoning_tokens=40)


async def test_thinking_that_is_not_shown_is_kept_to_be_sent_back() -> None:
    completion = last(await streamed(Answer.events(recorded("redacted_thinking")[0])))

    hidden, redacted = completion.reasoning
    assert hidden == Reasoning(
        "",
        "thinking",
        {"type": "thinking", "thinking": "", "signature": "OnlySigned=="},
    )
    assert (redacted.text, redacted.form) == ("", "thinking")
    assert redacted.block is not None
    assert redacted.block.keys() == {"type", "data"}


async def test_figures_that_are_running_totals_are_not_added_up() -> None:
    completion = last(await streamed(Answer.events(recorded("cache_usage")[0])))

    assert completion.usage == Usage(21 + 100 + 1900, 5, 1900, 100)


async def test_a_figure_that_a_gateway_leaves_out_at_the_end_is_not_lost() -> None:
    events = recorded("text")[0].replace(
        b'"usage":{"output_tokens":15}',
        b'"usage":{"input_tokens":0,"output_tokens":15}',
    )

    assert last(await streamed(Answer.events(events))).usage == Usage(25, 15)


async def test_the_request_is_the_same_but_for_the_stream() -> None:
    events, whole = recorded("text")
    async with serving(Answer.json(whole), Answer.events(events)) as server:
        provider: StreamingProvider = AnthropicProvider(
            "claude-sonnet-4-5", base_url=server.url
        )
        await provider.complete(HELLO)
        async for _ in provider.stream(HELLO):
            pass

    plain, asked = server.bodies
    assert isinstance(plain, dict)
    assert asked == {**plain, "stream": True}


async def test_a_stream_that_was_read_to_its_end_leaves_its_connection_to_the_next() -> (
    None
):
    async with serving(Answer.events(recorded("text")[0])) as server:
        provider = AnthropicProvider("claude-sonnet-4-5", base_url=server.url)
        for _ in range(3):
            async for _ in provider.stream(HELLO):
                pass
        await provider.aclose()

    assert (len(server.asked), server.connections) == (3, 1)


@pytest.mark.parametrize("name", ["text", "two_tools"])
async def test_server_that_does_not_stream_gives_one_delta(name: str) -> None:
    whole = recorded(name)[1]

    deltas = await streamed(Answer.json(whole))

    completion = await completed(Answer.json(whole))
    assert deltas == [Delta(text=completion.text, completion=completion)]


async def test_blocks_that_a_gateway_numbers_alike_stay_apart() -> None:
    events, whole = recorded("two_tools")
    alike = events.replace(b'"index":1', b'"index":0').replace(
        b'"index":2', b'"index":0'
    )

    assert last(await streamed(Answer.events(alike))) == await completed(
        Answer.json(whole)
    )


async def test_arguments_that_a_gateway_sends_whole_are_read_too() -> None:
    events = recorded("thinking_and_tool")[0].replace(b'"input":{}', b'"input":{"a":1}')
    max_concurrency = b"\n\n".join(
        [event for event in events.split(b"\n\n") if b"partial_json" not in event]
    )

    deltas = await streamed(Answer.events(max_concurrency))

    assert last(deltas).calls == (ToolCall("add", {"a": 1}, "toolu_01A"),)
    assert Delta(call=CallDelta(0, "toolu_01A", "add", '{"a":1}')) in deltas


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"a": 1', "arguments of the call of 'add' are not valid JSON: "),
        (
            '{"a": 1, "a": 2}',
            "arguments of the call of 'add' are not valid JSON: a key is given twice",
        ),
        ('{"a": NaN}', "arguments of the call of 'add' are not valid JSON: "),
        ("[2]", "arguments of the call of 'add' are not a JSON object"),
    ],
)
async def test_streamed_arguments_are_read_strictly(
    arguments: str, problem: str
) -> None:
    events = recorded("thinking_and_tool")[0].decode()
    bad = events.replace('{\\"a\\": 2, ', json.dumps(arguments)[1:-1]).replace(
        '\\"b\\": 3}', ""
    )

    completion = last(await streamed(Answer.events(bad.encode())))

    assert (completion.calls, completion.answer) == ((), None)
    assert problem in (completion.problem or "")


# How it breaks off


@pytest.mark.faults
@pytest.mark.parametrize("name", [*WHOLE, "refusal"])
async def test_a_stream_cut_at_any_byte_is_an_error_worth_another_try_or_whole(
    name: str,
) -> None:
    events = recorded(name)[0]
    known = events.index(
        b"event: message_stop"
    )  # why the model stopped has been said by then: nothing is missing

    bodies = Bodies()
    for length in range(known):
        with pytest.raises(ProviderError) as caught:
            await bodies.stream(events[:length])
        assert caught.value.retryable
    whole = await outcome(bodies, events)
    for length in range(known, len(events)):
        assert await outcome(bodies, events[:length]) == whole


async def outcome(bodies: Bodies, events: bytes) -> Completion | tuple[str, bool]:
    try:
        return last(await bodies.stream(events))
    except ProviderError as error:
        return str(error), error.retryable


@pytest.mark.parametrize("name", WHOLE)
async def test_stream_is_read_alike_wherever_the_network_cuts_it(
    name: str,
) -> None:
    events = recorded(name)[0]
    whole = await of_chunks(events)

    assert (
        await of_chunks(*[events[place : place + 1] for place in range(len(events))])
        == whole
    )
    for place in range(0, len(events), 7):
        assert await of_chunks(events[:place], events[place:]) == whole


async def test_a_connection_that_breaks_in_the_middle_is_worth_another_try() -> None:
    events = recorded("two_tools")[0]

    error = await failure(Answer.events(events[: len(events) // 2], breaks_off=True))

    assert (type(error), error.retryable) == (ProviderError, True)


async def test_an_empty_stream_says_what_broke() -> None:
    error = await failure(Answer.events(b""))

    assert str(error).endswith(
        ": the stream of claude-sonnet-4-5 broke off before the end of its reply"
    )
    assert (error.status, error.retryable) == (200, True)


async def test_an_error_in_the_stream_is_what_its_type_says() -> None:
    events, whole = recorded("overloaded")

    error = await failure(Answer.events(events))

    assert isinstance(whole, dict)
    assert str(error).endswith(
        "the call of claude-sonnet-4-5 failed (status 529): Overloaded"
    )
    assert (error.status, error.retryable) == (529, True)
    with pytest.raises(ProviderError) as plain:
        await completed(Answer.json(whole, 529))
    assert (plain.value.status, plain.value.retryable) == (529, True)


@pytest.mark.parametrize(
    ("body", "status", "retryable"),
    [
        ({"type": "rate_limit_error", "message": "wait"}, 429, True),
        ({"type": "invalid_request_error", "message": "no"}, 400, False),
        ({"type": "invented_error", "message": "?"}, 500, True),
        ("broken", 500, True),
    ],
)
async def test_other_errors_in_a_stream(
    body: JsonValue, status: int, retryable: bool
) -> None:
    data = json.dumps({"type": "error", "error": body})

    error = await failure(Answer.events(f"event: error\ndata: {data}\n\n".encode()))

    assert (error.status, error.retryable) == (status, retryable)


@pytest.mark.parametrize(
    ("begins", "what"),
    [(b"message_start", "the reply"), (b"content_block_start", "a call")],
)
async def test_a_stream_in_which_something_begins_twice_is_broken(
    begins: bytes, what: str
) -> None:
    events = recorded("two_tools")[0].split(b"\n\n")
    again = [event for event in events if begins in event][-1]

    error = await failure(
        Answer.events(b"\n\n".join([*events[:-4], again, *events[-4:]]))
    )

    assert str(error).endswith(
        f": the stream of claude-sonnet-4-5 is broken: {what} begins twice"
    )
    assert (error.status, error.retryable) == (200, True)


async def test_a_call_without_arguments_is_one_only_where_its_block_ends() -> None:
    events = recorded("two_tools")[0].split(b"\n\n")
    ends = [
        place for place, event in enumerate(events) if b"content_block_stop" in event
    ]

    error = await failure(
        Answer.events(b"\n\n".join([*events[: ends[-1]], *events[ends[-1] + 1 :]]))
    )

    assert str(error).endswith(
        ": the stream of claude-sonnet-4-5 broke off before the end of its reply"
    )
    assert error.retryable


async def test_refusal_raises_its_explanation_streamed_and_whole() -> None:
    events, whole = recorded("refusal")

    streaming = await failure(Answer.events(events))
    with pytest.raises(ProviderError) as plain:
        await completed(Answer.json(whole))

    told = "claude-sonnet-4-5 refused: This may not be told."
    assert [(str(e), e.status, e.retryable) for e in (streaming, plain.value)] == [
        (told, 200, False)
    ] * 2


async def test_error_status_of_a_stream_raises_as_a_whole_reply_does() -> None:
    error = await failure(
        Answer.json(
            {"type": "error", "error": {"message": "wait"}}, 429, "retry-after: 3"
        )
    )

    assert (error.status, error.retryable, error.retry_after) == (429, True, 3.0)


@pytest.mark.parametrize(
    "data", ["{", "[]", "7", '{"type":"content_block_delta","delta":{"text":{}}}']
)
async def test_unreadable_event_raises_with_an_excerpt(
    data: str,
) -> None:
    error = await failure(Answer.events(f"data: {data}\n\n".encode()))

    assert str(error).endswith(
        f"and no Messages reply (text/event-stream; charset=utf-8): {data}"
    )
    assert not error.retryable


async def test_whoever_stops_listening_ends_the_request() -> None:
    gone = asyncio.Event()

    async def endless(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"\r\n\r\n")
        begun = recorded("text")[0].partition(b"event: content_block_stop")[0]
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            + begun
        )
        await (
            reader.read()
        )  # to the end: what is left of the request, then the farewell of the client
        gone.set()
        writer.close()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        stream = AnthropicProvider("claude-sonnet-4-5", base_url=url).stream(HELLO)
        first = await anext(stream)
        await stream.aclose()
        await asyncio.wait_for(gone.wait(), 60)

    assert first == Delta(text="Grüße")


# Whatever a server sends

EVENT = st.builds(
    lambda kind, rest: {"type": kind, **rest},
    st.sampled_from(
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "message_delta",
            "message_stop",
            "ping",
            "x",
        ]
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "index": st.integers(0, 2),
            "message": st.just({"model": "m", "usage": {"input_tokens": 3}}),
            "content_block": st.sampled_from(
                [
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "t", "name": "add", "input": {}},
                    {},
                ]
            ),
            "delta": st.sampled_from(
                [
                    {"type": "text_delta", "text": "b"},
                    {"type": "input_json_delta", "partial_json": '{"a":1}'},
                    {"type": "thinking_delta", "thinking": "c"},
                    {"type": "signature_delta", "signature": "d"},
                    {"stop_reason": "end_turn"},
                    {"stop_reason": "max_tokens"},
                ]
            ),
            "usage": st.sampled_from(
                [None, "x", {"output_tokens": 4}, {"output_tokens": "y"}]
            ),
        },
    ),
)


@given(events=st.lists(EVENT, max_size=8))
async def test_any_events_make_one_completion_at_the_end_or_a_provider_error(
    events: list[JsonValue],
) -> None:
    body = "".join([f"data: {json.dumps(event)}\n\n" for event in events])
    try:
        deltas = await of_chunks(body.encode())
    except ProviderError:
        return

    completion = last(deltas)
    assert (
        sum(
            [
                bool(completion.calls),
                completion.answer is not None,
                completion.problem is not None,
            ]
        )
        == 1
    )


# In a run


Told = tuple[list[Entry], list[Any], str | None]


async def run(server: MessagesServer, *, deltas: bool) -> Told:
    """A run of two turns whose model thinks and calls a tool: its journal, what the server was asked, the answer."""
    journal, before = MemoryJournal(), len(server.asked)
    provider = AnthropicProvider(
        "claude-sonnet-4-5", base_url=server.url, thinking=2000
    )
    engine = ReActEngine(
        Runtime(provider, tools=[add], journal=journal, clock=FakeClock())
    )
    async with engine.start(
        "What is 2 + 3?", run_id="the-run", deltas=deltas
    ) as handle:
        async for _ in handle:
            pass
        result = await handle.result()
    await provider.aclose()
    return journal.read("the-run"), server.bodies[before:], result.answer


async def test_a_streamed_run_and_a_plain_one_have_equal_journals_and_ask_the_same() -> (
    None
):
    (thinking, thinking_whole), (text, text_whole) = (
        recorded("thinking_and_tool"),
        recorded("text"),
    )
    answers = [
        Answer.json(thinking_whole),
        Answer.json(text_whole),
        Answer.events(thinking),
        Answer.events(text),
    ]
    async with serving(*answers) as server:
        plain, bodies, answer = await run(server, deltas=False)
        watched, streamed_bodies, watched_answer = await run(server, deltas=True)

    assert answer == watched_answer == "Grüße aus Köln 🙂\nIt is 5."
    assert plain == watched
    assert streamed_bodies == [{**body, "stream": True} for body in bodies]


async def test_the_next_request_of_a_run_carries_the_thinking_unchanged_before_its_call() -> (
    None
):
    thinking, text = recorded("thinking_and_tool")[0], recorded("text")[0]

    async with serving(Answer.events(thinking), Answer.events(text)) as server:
        _, bodies, _ = await run(server, deltas=True)

    marked = {"cache_control": {"type": "ephemeral"}}
    assert bodies[1]["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert bodies[1]["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "What is 2 + 3?"}]},
        {
            "role": "assistant",
            "content": [
                {
                    "type": "thinking",
                    "thinking": "Two plus three: the tool knows.",
                    "signature": SIGNATURE,
                },
                {"type": "text", "text": "I add."},
                {
                    "type": "tool_use",
                    "id": "toolu_01A",
                    "name": "add",
                    "input": {"a": 2, "b": 3},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_01A",
                    "content": "5",
                    **marked,
                }
            ],
        },
    ]
