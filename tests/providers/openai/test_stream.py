"""Streamed Chat Completions: recorded shapes of seven endpoints, cut anywhere, read as if they had come whole."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from loopwright import MemoryJournal, ReActEngine, Runtime
from loopwright.errors import ContextTooLong, ProviderError, ProviderTimeout
from loopwright.messages import Completion, Conversation, Reasoning, ToolCall, Usage
from loopwright.providers import (
    CallDelta,
    Delta,
    OpenAIProvider,
    Quirks,
    Request,
    StreamingProvider,
)
from loopwright.testing import FakeClock
from sample_tools import add

STREAMS = Path(__file__).parent / "streams"
HELLO = Request(Conversation.of("Hello"))
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
SIGNED: dict[str, JsonValue] = {
    "type": "reasoning.text",
    "text": "The user wants the weather.",
    "format": "anthropic-claude-v1",
    "index": 0,
    "signature": "EqQBCkgIBBABGAI=",
}
SEALED: dict[str, JsonValue] = {
    "type": "reasoning.encrypted",
    "data": "gAAAAABo",
    "id": "rs_1",
    "format": "openai-responses-v1",
    "index": 1,
}


def text(*words: str) -> list[Delta]:
    return [Delta(text=word) for word in words]


def thought(*words: str) -> list[Delta]:
    return [Delta(reasoning=word) for word in words]


def call(index: int, id: str = "", name: str = "", arguments: str = "") -> Delta:
    return Delta(call=CallDelta(index, id, name, arguments))


EXPECTED: dict[str, tuple[list[Delta], Completion]] = {
    "openai": (
        [
            *text("I look", " both up in Zürich 🙂", "."),
            call(0, "call_Aq1", "weather"),
            *(call(0, arguments=piece) for piece in ('{"ci', 'ty":"Zü', 'rich"}')),
            call(1, "call_Bq2", "time"),
            call(1, arguments="{}"),
        ],
        Completion(
            "I look both up in Zürich 🙂.",
            calls=(
                ToolCall("weather", {"city": "Zürich"}, "call_Aq1"),
                ToolCall("time", {}, "call_Bq2"),
            ),
            finish_reason="tool_calls",
            usage=Usage(82, 41, 64, None, 0),
            thought="I look both up in Zürich 🙂.",
            model="gpt-4.1-mini-2025-04-14",
        ),
    ),
    "openrouter": (
        [
            *thought("The user wants", " the weather."),
            *text("Let me see."),
            call(0, "toolu_01", "weather"),
            call(0, arguments='{"city": "Florence"}'),
        ],
        Completion(
            "Let me see.",
            calls=(ToolCall("weather", {"city": "Florence"}, "toolu_01"),),
            finish_reason="tool_calls",
            usage=Usage(400, 90, 0, None, 28, 0.00255),
            thought="Let me see.",
            model="anthropic/claude-sonnet-4",
            reasoning=(
                Reasoning("The user wants the weather.", "reasoning_details", SIGNED),
                Reasoning("", "reasoning_details", SEALED),
            ),
        ),
    ),
    "llamacpp": (
        [
            *thought("Two and", " three."),
            call(0, "yqv1", "add", "{"),
            call(0, arguments='"a":2,'),
            call(0, arguments='"b":3}'),
        ],
        Completion(
            calls=(ToolCall("add", {"a": 2, "b": 3}, "yqv1"),),
            finish_reason="tool_calls",
            usage=Usage(32, 12, 31),
            model="qwen3-4b.gguf",
            reasoning=(Reasoning("Two and three.", "reasoning_content"),),
        ),
    ),
    "vllm": (
        [
            call(0, "chatcmpl-tool-11", "add"),
            call(0, "chatcmpl-tool-11", arguments='{"a": 1'),
            call(0, "chatcmpl-tool-11", arguments=', "b": 2}'),
            call(1, "", "mul"),
            call(1, arguments='{"a": 3'),
            call(1, arguments=', "b": 4}'),
        ],
        Completion(
            calls=(
                ToolCall("add", {"a": 1, "b": 2}, "chatcmpl-tool-11"),
                ToolCall("mul", {"a": 3, "b": 4}),
            ),
            finish_reason="tool_calls",
            usage=Usage(50, 28),
            model="Qwen/Qwen3-8B",
        ),
    ),
    "ollama": (
        [
            *thought("Both", " of them."),
            call(0, "call_aa1", "add", '{"a":1,"b":2}'),
            call(1, "call_bb2", "add", '{"a":3,"b":4}'),
        ],
        Completion(
            calls=(
                ToolCall("add", {"a": 1, "b": 2}, "call_aa1"),
                ToolCall("add", {"a": 3, "b": 4}, "call_bb2"),
            ),
            finish_reason="tool_calls",
            usage=Usage(150, 33),
            model="qwen3:8b",
            reasoning=(Reasoning("Both of them.", "reasoning"),),
        ),
    ),
    "lmstudio": (
        [
            *thought("\nWater ", "boils <b>", "</b> at"),
            *text("Wasser kocht", " bei 100 °C."),
        ],
        Completion(
            "Wasser kocht bei 100 °C.",
            answer="Wasser kocht bei 100 °C.",
            usage=Usage(20, 30),
            model="deepseek-r1-distill-qwen-7b",
            reasoning=(Reasoning("Water boils <b></b> at", "think"),),
        ),
    ),
    "deepseek": (
        [*thought("Paris", "?"), *text("It is ", "Paris.")],
        Completion(
            "It is Paris.",
            answer="It is Paris.",
            usage=Usage(18, 9, 16, None, 4),
            model="deepseek-reasoner",
            reasoning=(Reasoning("Paris?", "reasoning_content"),),
        ),
    ),
}


def recorded(name: str) -> bytes:
    return (STREAMS / f"{name}.sse").read_bytes()


class Pieces(httpx.AsyncByteStream):
    """A body in chunks, and the exception that ends it."""

    def __init__(self, pieces: Iterable[bytes], error: Exception | None = None) -> None:
        self.pieces, self.error, self.closed = list(pieces), error, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.error is not None:
            raise self.error

    async def aclose(self) -> None:
        self.closed = True


def provider(
    body: httpx.AsyncByteStream | httpx.Response, **options: object
) -> OpenAIProvider:
    """A provider whose endpoint sends this body as a stream of events."""
    if not isinstance(body, httpx.Response):
        body = httpx.Response(
            200, headers={"content-type": "text/event-stream"}, stream=body
        )
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: body))
    given = {
        "base_url": "http://localhost:9999/v1",
        "api_key": "sk-very-secret-1234567890",
        **options,
    }
    return OpenAIProvider("small", client=client, **given)  # type: ignore[arg-type]


async def deltas(*pieces: bytes, error: Exception | None = None) -> list[Delta]:
    return [delta async for delta in provider(Pieces(pieces, error)).stream(HELLO)]


async def completion(*pieces: bytes) -> Completion:
    last = (await deltas(*pieces))[-1].completion
    assert last is not None
    return last


async def failure(*pieces: bytes, error: Exception | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await deltas(*pieces, error=error)
    return caught.value


def chunk(
    delta: JsonValue = None, finish_reason: JsonValue = None, **top: JsonValue
) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"choices": [choice], **top}).encode() + b"\n\n"


def call_chunk(finish_reason: JsonValue = None, **piece: JsonValue) -> bytes:
    function = {
        name: piece.pop(name) for name in ("name", "arguments") if name in piece
    }
    return chunk({"tool_calls": [{**piece, "function": function}]}, finish_reason)


# Recorded streams


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_recorded_stream_gives_its_deltas_and_its_completion(name: str) -> None:
    told, whole = EXPECTED[name]

    assert await deltas(recorded(name)) == [*told, Delta(completion=whole)]


@pytest.mark.parametrize("name", EXPECTED)
async def test_the_same_reply_whole_is_the_same_completion(name: str) -> None:
    body = (STREAMS / f"{name}.json").read_bytes()
    whole = httpx.Response(
        200, content=body, headers={"content-type": "application/json"}
    )

    assert await provider(whole).complete(HELLO) == EXPECTED[name][1]


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_endpoint_that_does_not_stream_though_asked_to_gives_one_delta(
    name: str,
) -> None:
    body = (STREAMS / f"{name}.json").read_bytes()
    whole = httpx.Response(
        200, content=body, headers={"content-type": "application/json; charset=utf-8"}
    )
    reply = EXPECTED[name][1]

    told = [delta async for delta in provider(whole).stream(HELLO)]

    assert told == [Delta(text=reply.text, completion=reply)]


@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
@pytest.mark.parametrize("name", EXPECTED)
async def test_other_line_ends_change_nothing(name: str, line_end: bytes) -> None:
    assert await deltas(recorded(name).replace(b"\n", line_end)) == await deltas(
        recorded(name)
    )


@pytest.mark.parametrize("name", EXPECTED)
@settings(max_examples=40)
@given(data=st.data())
async def test_cuts_at_any_bytes_change_nothing(name: str, data: st.DataObject) -> None:
    stream = recorded(name)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [
        stream[start:end]
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    ]

    assert (await deltas(*pieces))[-1].completion == EXPECTED[name][1]


@pytest.mark.parametrize("name", EXPECTED)
@settings(max_examples=25)
@given(data=st.data())
async def test_a_stream_that_is_cut_off_anywhere_is_an_error_or_the_whole_reply(
    name: str, data: st.DataObject
) -> None:
    stream = recorded(name)
    end = data.draw(st.integers(0, len(stream) - 1))
    whole = EXPECTED[name][1]

    said: Completion | None = None
    with contextlib.suppress(ProviderError):
        said = await completion(stream[:end])

    assert said is None or (said.text, said.calls, said.reasoning) == (
        whole.text,
        whole.calls,
        whole.reasoning,
    )
    assert (
        said is not None
        or b'"finish_reason":"' not in stream[: stream.rfind(b"\n\n", 0, end) + 2]
    )


Answer = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter, JsonValue], Awaitable[None]
]


class Server:
    """A server on this machine whose `answer` writes to each request what it likes."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[JsonValue] = []
        self.connections = 0

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        with (
            contextlib.closing(writer),
            contextlib.suppress(asyncio.IncompleteReadError, ConnectionError),
        ):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(
                    head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                )
                self.asked.append(json.loads(await reader.readexactly(length)))
                await self.answer(reader, writer, self.asked[-1])
                await writer.drain()


@contextlib.asynccontextmanager
async def endpoint(
    answer: Answer, **options: object
) -> AsyncIterator[tuple[Server, OpenAIProvider]]:
    server = Server(answer)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        asked = OpenAIProvider("small", base_url=url, api_key="", **options)  # type: ignore[arg-type]
        yield server, asked
        await asked.aclose()


def framed(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece)


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_reply_byte_by_byte_is_the_same_and_its_connection_is_kept(
    name: str,
) -> None:
    async def dribble(
        _: asyncio.StreamReader, writer: asyncio.StreamWriter, __: JsonValue
    ) -> None:
        writer.write(HEAD)
        for place, byte in enumerate(recorded(name)):
            writer.write(framed(bytes([byte])))
            if place % 50 == 0:
                await asyncio.sleep(0)
        writer.write(END)

    async with endpoint(dribble) as (server, asked):
        for _ in range(2):
            told = [delta async for delta in asked.stream(HELLO)]
            assert told == [*EXPECTED[name][0], Delta(completion=EXPECTED[name][1])]

    assert (len(server.asked), server.connections) == (2, 1)


# What is asked


async def asked_for(base_url: str, **options: object) -> JsonValue:
    bodies: list[JsonValue] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(
            200,
            headers={"content-type": "text/event-stream"},
            content=chunk({}, "stop") + DONE,
        )

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    made = OpenAIProvider(
        "small", base_url=base_url, api_key="sk-1234567", client=client, **options
    )  # type: ignore[arg-type]
    streaming: StreamingProvider = made
    assert [
        delta.completion is not None async for delta in streaming.stream(HELLO)
    ] == [True]
    return bodies[0]


async def test_a_stream_is_asked_for_with_usage_where_that_is_known_to_work() -> None:
    body = {
        "model": "small",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
    }
    usage = {"stream_options": {"include_usage": True}}

    assert await asked_for("https://api.openai.com/v1") == {**body, **usage}
    assert await asked_for("http://localhost:11434/v1") == {**body, **usage}
    assert await asked_for("https://models.example/v1") == body
    assert await asked_for(
        "https://models.example/v1", quirks=Quirks(stream_usage=True)
    ) == {**body, **usage}


# Tool calls in fragments


async def calls(*pieces: bytes) -> tuple[ToolCall, ...]:
    return (await completion(*pieces, chunk({}, "tool_calls"), DONE)).calls


async def test_fragments_of_two_calls_may_alternate() -> None:
    assert await calls(
        call_chunk(index=0, id="a", name="add", arguments=""),
        call_chunk(index=1, id="b", name="mul", arguments=""),
        call_chunk(index=0, arguments='{"x":'),
        call_chunk(index=1, arguments='{"y":'),
        call_chunk(index=0, id="a", arguments="1}"),
        call_chunk(id="b", arguments="2}"),
    ) == (ToolCall("add", {"x": 1}, "a"), ToolCall("mul", {"y": 2}, "b"))


async def test_a_new_id_at_a_used_index_is_a_new_call_and_the_index_is_then_its_own() -> (
    None
):
    assert await calls(
        call_chunk(index=0, id="a", name="add", arguments='{"x":1}'),
        call_chunk(index=0, id="b", name="add", arguments='{"x":'),
        call_chunk(index=0, arguments="2}"),
    ) == (ToolCall("add", {"x": 1}, "a"), ToolCall("add", {"x": 2}, "b"))


async def test_a_known_id_goes_before_a_wrong_index() -> None:
    assert await calls(
        call_chunk(index=0, id="a", name="add", arguments='{"x":'),
        call_chunk(index=1, id="b", name="mul", arguments='{"y":2}'),
        call_chunk(index=1, id="a", arguments="1}"),
    ) == (ToolCall("add", {"x": 1}, "a"), ToolCall("mul", {"y": 2}, "b"))


async def test_a_chunk_without_id_and_index_continues_the_last_call_of_its_function() -> (
    None
):
    assert await calls(
        call_chunk(name="add", arguments='{"x":'),
        call_chunk(arguments="1"),
        call_chunk(id="", arguments="}"),
        call_chunk(name="mul", arguments="{}"),
    ) == (ToolCall("add", {"x": 1}), ToolCall("mul", {}))


async def test_arguments_with_a_made_up_id_belong_to_the_call_at_their_index() -> None:
    assert await calls(
        call_chunk(index=0, id="a", name="add", arguments=""),
        call_chunk(index=0, id="b", arguments='{"x":'),
        call_chunk(index=0, id="c", arguments="1}"),
    ) == (ToolCall("add", {"x": 1}, "a"),)


@pytest.mark.parametrize(
    "names",
    [["get_", "wea", "ther"], ["get_weather"] * 3, ["get_", "weather", "get_weather"]],
)
async def test_call_name_may_come_in_fragments_or_be_repeated(names: list[str]) -> None:
    pieces = [call_chunk(index=0, id="a", name=name) for name in names]

    assert await calls(*pieces, call_chunk(index=0, arguments="{}")) == (
        ToolCall("get_weather", {}, "a"),
    )


@pytest.mark.parametrize("chunks", [{}, {"arguments": ""}, {"arguments": None}])
async def test_absent_arguments_are_an_empty_object(chunks: dict[str, Any]) -> None:
    call = call_chunk(index=0, id="a", name="add", **chunks)

    assert await calls(call) == (ToolCall("add", {}, "a"),)


@pytest.mark.parametrize("empty", [[], [""], [None]])
async def test_arguments_may_be_an_object(empty: list[JsonValue]) -> None:
    first = [
        call_chunk(index=0, id="a", name="add", arguments=nothing) for nothing in empty
    ]

    assert await calls(
        *first, call_chunk(index=0, id="a", name="add", arguments={"x": [1]})
    ) == (ToolCall("add", {"x": [1]}, "a"),)


@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        (
            [call_chunk(index=0, name="add", arguments='{"x":1')],
            "arguments of the call of 'add' are not valid JSON",
        ),
        (
            [call_chunk(index=0, name="add", arguments="{}")] * 2,
            "arguments of the call of 'add' are not valid JSON",
        ),
        (
            [call_chunk(index=0, name="add", arguments={})] * 2,
            "arguments of the call of 'add' are not valid JSON",
        ),
        (
            [call_chunk(index=0, name="add", arguments="[1]")],
            "arguments of the call of 'add' are not a JSON object",
        ),
        (
            [call_chunk(index=0, id="a", arguments="{}")],
            "A tool call has no function name",
        ),
        (
            [
                call_chunk(index=0, name="pay", arguments="HERE").replace(
                    b'"HERE"', b'{"a": 1, "a": 2}'
                )
            ],
            "arguments of the call of 'pay' are not valid JSON",
        ),
    ],
)
async def test_what_cannot_be_put_together_is_a_problem_and_no_call(
    pieces: list[bytes], problem: str
) -> None:
    said = await completion(*pieces, chunk({}, "tool_calls"), DONE)

    assert (said.calls, said.answer) == ((), None)
    assert problem in (said.problem or "")


async def test_a_call_cut_by_the_token_limit_is_not_made_even_with_whole_arguments() -> (
    None
):
    said = await completion(
        call_chunk(index=0, id="a", name="pay", arguments="{}"),
        chunk({}, "length"),
        DONE,
    )

    assert (said.calls, said.answer, said.is_cut) == ((), None, True)
    assert "cut in a call of 'pay'; nothing was run" in (said.problem or "")


PIECE = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 1, 2, None]),
        "id": st.sampled_from(["", "a", "b", None]),
        "name": st.sampled_from(["", "add", "mul", None]),
        "arguments": st.sampled_from(
            ["", "{}", "{", "}", '{"x":', "1}", {"x": 1}, {}, [], 5, None]
        ),
    },
)


@given(
    pieces=st.lists(PIECE, max_size=6),
    finish=st.sampled_from(["stop", "tool_calls", "length", None]),
)
async def test_any_fragments_give_one_completion_with_well_formed_calls(
    pieces: list[dict[str, JsonValue]], finish: str | None
) -> None:
    said = await completion(
        *(call_chunk(**piece) for piece in pieces), chunk({}, finish), DONE
    )

    assert (
        sum([bool(said.calls), said.answer is not None, said.problem is not None]) == 1
    )
    assert all(made.name and isinstance(made.arguments, dict) for made in said.calls)


async def test_a_name_without_end_is_no_name_and_is_not_said_back_whole() -> None:
    endless = call_chunk(index=0, name="add") + call_chunk(index=0, name="x") * 5_000

    said = await completion(endless, chunk({}, "tool_calls"))

    assert (said.calls, said.answer) == ((), None)
    assert "the call of 'addxxxx" in (said.problem or "")
    assert len(said.problem or "") < 1_200


async def test_thinking_in_thousands_of_fragments_is_joined() -> None:
    detail: JsonValue = {
        "reasoning_details": [
            {"type": "reasoning.text", "text": "x " * 500, "index": 0}
        ]
    }

    said = await completion(
        chunk(detail) * 5_000,
        chunk({"content": " "}) * 2_000,
        chunk({"content": "hi"}, "stop"),
    )

    assert [thought.text for thought in said.reasoning] == ["x " * 2_500_000]
    assert said.answer == " " * 2_000 + "hi"


# Thinking


@pytest.mark.parametrize(
    ("pieces", "words", "thinking", "whole"),
    [
        (["<think>a</think>b"], "b", "a", "b"),
        (list("  <think>a < </b </thinK></think>\n\nb"), "b", "a < </b </thinK>", "b"),
        (["<thin", "g>"], "<thing>", "", "<thing>"),
        (["<thi"], "<thi", "", "<thi"),
        (["a <think>b</think>"], "a <think>b</think>", "", "a <think>b</think>"),
        (["template opened", "</think>", "b"], "template opened</think>b", "", "b"),
        (["<think>never </thi"], "", "never </thi", ""),
    ],
)
async def test_think_block_is_yielded_as_reasoning(
    pieces: list[str], words: str, thinking: str, whole: str
) -> None:
    told = await deltas(
        *(chunk({"content": piece}) for piece in pieces), chunk({}, "stop"), DONE
    )

    assert "".join(delta.text for delta in told) == words
    assert "".join(delta.reasoning for delta in told) == thinking
    assert told[-1].completion is not None
    assert told[-1].completion.text == whole


async def test_a_field_of_reasoning_of_another_form_is_passed_over() -> None:
    odd: dict[str, JsonValue] = {
        "reasoning": {"a": 1},
        "reasoning_content": [],
        "reasoning_details": ["x"],
    }

    assert await completion(
        chunk({"content": "hi", **odd}), chunk({}, "stop")
    ) == Completion("hi", answer="hi")


async def test_blocks_of_reasoning_are_put_together_whatever_order_their_parts_come_in() -> (
    None
):
    def part(**block: JsonValue) -> bytes:
        return chunk({"reasoning_details": [block]})

    said = await completion(
        part(type="reasoning.text", index=0, text="a", signature=None),
        part(type="reasoning.text", index=0, text="b", signature="s1"),
        part(type="reasoning.text", index=0, text="c", signature=""),
        part(type="reasoning.text", index=1, text="d"),
        part(type="reasoning.encrypted", index=1, id="x", data="e"),
        part(type="reasoning.encrypted", index=1, id="y", data="f"),
        part(type="reasoning.summary", summary="g"),
        part(type="reasoning.summary", summary="h"),
        chunk({"content": "hi"}, "stop"),
    )

    assert [thought.block for thought in said.reasoning] == [
        {"type": "reasoning.text", "index": 0, "text": "abc", "signature": "s1"},
        {"type": "reasoning.text", "index": 1, "text": "d"},
        {"type": "reasoning.encrypted", "index": 1, "id": "x", "data": "e"},
        {"type": "reasoning.encrypted", "index": 1, "id": "y", "data": "f"},
        {"type": "reasoning.summary", "summary": "gh"},
    ]
    assert [thought.text for thought in said.reasoning] == ["abc", "d", "", "", "gh"]


async def test_reasoning_in_two_fields_is_shown_once() -> None:
    told = await deltas(
        chunk({"reasoning": "hm", "reasoning_content": "hm"}),
        chunk({"content": "x"}, "stop"),
    )

    assert [delta.reasoning for delta in told] == ["hm", "", ""]
    assert told[-1].completion == Completion(
        "x", answer="x", reasoning=(Reasoning("hm", "reasoning_content"),)
    )


# Ends


async def test_stream_may_end_with_a_finish_reason_or_an_end_marker_alone() -> None:
    assert await completion(chunk({"content": "hi"}), chunk({}, "stop")) == Completion(
        "hi", answer="hi"
    )
    assert await completion(chunk({"content": "hi"}), DONE) == Completion(
        "hi", answer="hi"
    )


async def test_data_after_the_end_marker_is_not_read() -> None:
    assert (
        await completion(chunk({"content": "hi"}, "stop"), DONE, b"data: {\n\n", DONE)
    ).answer == "hi"


async def test_a_connection_that_breaks_after_the_end_of_the_reply_takes_nothing_away() -> (
    None
):
    told = await deltas(chunk({"content": "hi"}, "stop"), error=httpx.ReadError("gone"))

    assert told[-1].completion == Completion("hi", answer="hi")


async def test_other_alternatives_empty_events_and_unknown_objects_are_ignored() -> (
    None
):
    other = b'data: {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}\n\n'
    foreign = (
        b'data:\n\nevent: ping\ndata: {"type": "ping"}\n\ndata: {"choices": null}\n\n'
    )

    said = await completion(
        foreign,
        chunk({"role": "assistant"}),
        other,
        chunk({"content": "yes"}, "stop"),
        other,
    )

    assert said.answer == "yes"


async def test_usage_may_be_missing_in_each_chunk_or_nonsense() -> None:
    def counted(tokens: JsonValue) -> JsonValue:
        return {"prompt_tokens": tokens, "completion_tokens": 1}

    said = chunk({"content": "hi"}, "stop")
    last = (
        b"data: " + json.dumps({"choices": [], "usage": counted(3)}).encode() + b"\n\n"
    )
    assert (await completion(said, DONE)).usage == Usage()
    assert (await completion(said, last, DONE)).usage == Usage(3, 1)
    assert (
        await completion(
            chunk({}, usage=counted(7)),
            chunk({"content": "x"}, "stop", usage=counted(9)),
        )
    ).usage == (Usage(9, 1))
    assert (
        await completion(chunk({"content": "x"}, "stop", usage=counted(-1)), DONE)
    ).usage == Usage()


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (
            [chunk({"refusal": "I can"}), chunk({"refusal": "not."}, "stop")],
            "small refused: I cannot.",
        ),
        (
            [chunk({"content": "Half"}), chunk({}, "content_filter")],
            "small was stopped by a content filter: Half",
        ),
        (
            [chunk({"content": "Half"}), chunk({}, "error")],
            "small broke down in the middle of its reply",
        ),
    ],
)
async def test_a_refusal_or_a_breakdown_is_an_error_as_in_a_whole_reply(
    pieces: list[bytes], text: str
) -> None:
    assert text in str(await failure(*pieces, DONE))


@pytest.mark.parametrize(
    ("event", "text", "kind", "retryable"),
    [
        (
            {"error": {"code": 502, "message": "upstream"}},
            "(status 502): upstream",
            ProviderError,
            True,
        ),
        (
            {"error": {"code": 400, "message": "no"}, "choices": []},
            "(status 400): no",
            ProviderError,
            False,
        ),
        (
            {"error": {"message": "Server error", "type": "server_error"}},
            "reply: Server error",
            ProviderError,
            True,
        ),
        ({"error": "overloaded"}, "its reply: overloaded", ProviderError, True),
        (
            {"object": "error", "message": "bad", "code": 400},
            "(status 400): bad",
            ProviderError,
            False,
        ),
        (
            {"error": {"code": 400, "message": "maximum context length"}},
            "context length",
            ContextTooLong,
            False,
        ),
        (
            {"error": {"code": "context_length_exceeded"}},
            "context_length",
            ContextTooLong,
            False,
        ),
    ],
)
@pytest.mark.parametrize("before", [[], [chunk({"content": "It is"})]])
async def test_an_error_inside_a_stream_is_an_error(
    event: JsonValue, text: str, kind: type, retryable: bool, before: list[bytes]
) -> None:
    error = await failure(
        *before,
        b"data: " + json.dumps(event).encode() + b"\n\n",
        chunk({}, "stop"),
        DONE,
    )

    assert (type(error), error.retryable) == (kind, retryable)
    assert text in str(error)


async def test_an_event_that_is_named_error_is_one() -> None:
    error = await failure(b'event: error\ndata: {"message": "out of memory"}\n\n', DONE)

    assert "small broke down in the middle of its reply: out of memory" in str(error)


async def test_a_stream_that_breaks_off_is_worth_another_try() -> None:
    cut = [
        await failure(),
        await failure(chunk({"content": "It"})),
        await failure(chunk({"content": "It"})[:-1]),
        await failure(chunk({"content": "It"}), error=httpx.ReadError("reset")),
        await failure(
            chunk({"content": "It"}),
            error=httpx.RemoteProtocolError("incomplete chunked read"),
        ),
    ]

    assert [(error.retryable, error.status) for error in cut] == [(True, None)] * 5
    assert "the stream of small broke off before the end of its reply" in str(cut[1])


async def test_a_stream_without_a_reply_is_an_error() -> None:
    assert "holds no Chat Completions reply" in str(await failure(b": hello\n\n", DONE))
    assert "holds no Chat Completions reply" in str(
        await failure(b'data: {"choices": []}\n\n', DONE)
    )


GARBAGE = [
    b"{",
    b"null",
    b"hello",
    b"[1]",
    b'{"choices": 5}',
    b'{"choices": [{"delta": "x"}]}',
    b"\xff\xfe",
    b'"\\ud800"',
]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_an_event_that_is_no_chunk_is_an_error_that_shows_it(
    garbage: bytes,
) -> None:
    error = await failure(chunk({"content": "It"}), b"data: " + garbage + b"\n\n", DONE)

    assert str(error) == (
        "http://localhost:9999/v1/chat/completions sent an event that is not a chunk of a Chat Completions reply: "
        + garbage.decode(errors="replace")
    )
    assert not error.retryable


async def test_invalid_bytes_inside_a_text_are_replaced() -> None:
    assert (
        await completion(chunk({"content": "aXb"}, "stop").replace(b"X", b"\xff"))
    ).answer == "a\ufffdb"


async def test_repeated_events_never_make_a_call_of_two_halves() -> None:
    twice = [call_chunk(index=0, id="a", name="pay", arguments='{"x":1}')] * 2

    said = await completion(
        *twice, chunk({}, "tool_calls"), chunk({}, "tool_calls"), DONE, DONE
    )

    assert (said.calls, said.problem is not None) == ((), True)


@pytest.mark.parametrize(
    "name", [name for name, (_, whole) in EXPECTED.items() if whole.calls]
)
@pytest.mark.parametrize("end", [DONE, b""])
async def test_a_reply_whose_events_all_come_again_makes_no_call(
    name: str, end: bytes
) -> None:
    once = recorded(name).partition(DONE)[0]

    said = await completion(once, once, end)

    assert (said.calls, said.answer) == ((), None)
    assert "not valid JSON" in (said.problem or "")


@pytest.mark.parametrize("kind", ["text/html", "", "application/x-ndjson"])
async def test_a_body_of_another_type_is_an_error_that_names_it(kind: str) -> None:
    body = httpx.Response(
        200, headers={"content-type": kind} if kind else {}, content=recorded("openai")
    )

    with pytest.raises(
        ProviderError,
        match=f"no Chat Completions reply \\({kind or 'no content type'}\\): data: ",
    ):
        [delta async for delta in provider(body).stream(HELLO)]


@pytest.mark.parametrize("status", [400, 401, 429, 500])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_error_status_of_a_stream_raises_as_complete_does(
    status: int, kind: str
) -> None:
    def refused() -> httpx.Response:
        headers = {"retry-after": "3", "content-type": kind}
        return httpx.Response(
            status, content=b'{"error": {"message": "no"}}', headers=headers
        )

    with pytest.raises(ProviderError) as plain:
        await provider(refused()).complete(HELLO)
    with pytest.raises(ProviderError) as streamed:
        [delta async for delta in provider(refused()).stream(HELLO)]

    assert (str(streamed.value), vars(streamed.value)) == (
        str(plain.value),
        vars(plain.value),
    )


# Hostile servers, over real connections


async def broken(answer: Answer) -> ProviderError:
    async with endpoint(answer) as (_, asked):
        with pytest.raises(ProviderError) as caught:
            async for _delta in asked.stream(HELLO):
                pass
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    return caught.value


async def test_a_stream_of_more_than_fifty_megabytes_is_cut_off() -> None:
    async def endless(
        _: asyncio.StreamReader, writer: asyncio.StreamWriter, __: JsonValue
    ) -> None:
        writer.write(HEAD)
        while True:
            writer.write(framed(b": " + b"x" * 999_990 + b"\n\n"))
            await writer.drain()

    assert "sent more than 50 MB" in str(await broken(endless))


async def test_a_line_of_more_than_ten_megabytes_is_cut_off() -> None:
    async def endless(
        _: asyncio.StreamReader, writer: asyncio.StreamWriter, __: JsonValue
    ) -> None:
        writer.write(HEAD + framed(b"data: "))
        while True:
            writer.write(framed(b"x" * 1_000_000))
            await writer.drain()

    assert "sent a line of more than 10 MB" in str(await broken(endless))


async def test_a_reset_in_the_middle_is_worth_another_try() -> None:
    async def reset(
        _: asyncio.StreamReader, writer: asyncio.StreamWriter, __: JsonValue
    ) -> None:
        writer.write(HEAD + framed(chunk({"content": "It"})))
        await writer.drain()
        writer.transport.abort()

    error = await broken(reset)

    assert (error.retryable, "the connection to" in str(error)) == (True, True)


async def test_a_stream_that_stands_still_is_a_timeout() -> None:
    async def silent(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: JsonValue
    ) -> None:
        writer.write(HEAD + framed(chunk({"content": "It"})))
        await reader.read()

    async with endpoint(silent) as (_, asked):
        asked._transport._extensions = {"timeout": {"read": 0.05, "connect": 5.0}}
        with pytest.raises(ProviderTimeout) as caught:
            async for _delta in asked.stream(HELLO):
                pass

    assert caught.value.retryable


async def test_server_that_sends_after_its_end_delays_no_caller() -> None:
    async def chatty(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: JsonValue
    ) -> None:
        writer.write(HEAD + framed(chunk({"content": "hi"}, "stop"), DONE))
        while not reader.at_eof():
            writer.write(framed(b": still here\n\n"))
            await writer.drain()
            await asyncio.sleep(0.01)

    async with endpoint(chatty) as (server, asked):
        for _ in range(2):
            assert [delta.text async for delta in asked.stream(HELLO)] == ["hi", ""]

    assert server.connections == 2


async def test_a_stream_left_early_closes_its_connection_and_the_next_has_its_own() -> (
    None
):
    async def on_and_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: JsonValue
    ) -> None:
        writer.write(HEAD)
        for number in range(9):
            writer.write(framed(chunk({"content": f"{len(server.asked)}:{number} "})))
        await writer.drain()
        hung_up.put_nowait(await reader.read())

    hung_up: asyncio.Queue[bytes] = asyncio.Queue()
    async with endpoint(on_and_on) as (server, asked):
        for _ in range(2):
            stream = asked.stream(HELLO)
            first = await anext(stream)
            await stream.aclose()
            assert first == Delta(text=f"{len(server.asked)}:0 ")
            assert await hung_up.get() == b""

    assert server.connections == 2


async def test_cancelling_a_stream_closes_its_connection() -> None:
    async def silent(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: JsonValue
    ) -> None:
        writer.write(HEAD + framed(chunk({"content": "It"})))
        hung_up.set_result(await reader.read())

    async def watch() -> None:
        async for _ in asked.stream(HELLO):
            seen.set()

    hung_up, seen = asyncio.get_running_loop().create_future(), asyncio.Event()
    async with endpoint(silent) as (_, asked):
        watching = asyncio.create_task(watch())
        await seen.wait()
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        assert await hung_up == b""


# Beneath an engine


async def sums(
    _: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: JsonValue
) -> None:
    """A model that adds 1 and 2 and replies with the result, streamed on request."""
    assert isinstance(asked, dict)
    assert isinstance(asked["messages"], list)
    usage: JsonValue = {
        "prompt_tokens": 20 * len(asked["messages"]),
        "completion_tokens": 7,
    }
    last = asked["messages"][-1]
    assert isinstance(last, dict)
    message: dict[str, JsonValue] = {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "content": f"It is {last['content']}.",
    }
    finish = "stop"
    if last["role"] == "user":
        function: JsonValue = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
        message = {
            "content": "I add.",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }
        finish = "tool_calls"
    if not asked.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        body = json.dumps(
            {"choices": [choice], "usage": usage, "model": "adder"}
        ).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        return
    writer.write(HEAD)
    for name, value in message.items():
        for half in (value[:2], value[2:]) if isinstance(value, str) else (value,):
            writer.write(framed(chunk({name: half}, model="adder")))
    count = (
        b"data: "
        + json.dumps({"choices": [], "usage": usage, "model": "adder"}).encode()
        + b"\n\n"
    )
    writer.write(framed(chunk({}, finish), count, DONE) + END)


async def test_a_watched_run_and_a_plain_one_write_the_same_journal() -> None:
    plain, streamed = MemoryJournal(), MemoryJournal()
    async with endpoint(sums) as (server, asked):
        made = ReActEngine(
            Runtime(asked, tools=(add,), journal=plain, clock=FakeClock())
        )
        before = await made.run("What is 1 + 2?", run_id="the-run")
        made = ReActEngine(
            Runtime(asked, tools=(add,), journal=streamed, clock=FakeClock())
        )
        async with made.start("What is 1 + 2?", run_id="the-run", deltas=True) as run:
            told = [item async for item in run if isinstance(item, Delta)]
            after = await run.result()

    assert [isinstance(body, dict) and "stream" in body for body in server.asked] == [
        False,
        False,
        True,
        True,
    ]
    assert plain.read("the-run") == streamed.read("the-run")
    assert before == after
    assert (after.answer, after.usage.total_tokens) == ("It is 3.", 20 + 7 + 60 + 7)
    assert "".join(delta.text for delta in told) == "I add.It is 3."
    assert "".join(delta.reasoning for delta in told) == "Hm."


async def test_text_that_comes_with_a_tolerated_failure_is_shown() -> None:
    told = await deltas(chunk({"content": "Hello."}, "stop") + b"data: not JSON\n\n")

    assert [delta.text for delta in told] == ["Hello.", ""]
    assert told[-1].completion is not None
    assert told[-1].completion.answer == "Hello."


@pytest.mark.parametrize(
    "reason", ["length", "max_tokens", "MAX_TOKENS", "model_length"]
)
async def test_a_reply_that_was_cut_is_no_answer_whatever_the_endpoint_calls_it(
    reason: str,
) -> None:
    said = await completion(chunk({"content": "Half an ans"}, reason))

    assert (said.answer, said.is_cut) == (None, True)


async def test_a_server_that_ran_out_of_resources_has_broken_down() -> None:
    error = await failure(chunk({"content": "Half"}, "insufficient_system_resource"))

    assert error.retryable


async def test_a_choice_without_a_number_is_the_first() -> None:
    piece = b'data: {"choices": [{"index": null, "delta": {"content": "Hi."}, "finish_reason": "stop"}]}\n\n'

    assert (await completion(piece)).answer == "Hi."
