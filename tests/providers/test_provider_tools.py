"""Provider-side tools on the wire: how each API is offered them, and what it says that it ran."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from loopwright.errors import ProviderError
from loopwright.messages import Completion, Conversation, Message, Source, ToolSpec
from loopwright.providers import (
    AnthropicProvider,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Provider,
    ProviderTool,
    Request,
    Sampling,
    stream_deltas,
)

Build = Callable[[httpx.AsyncClient], Any]
Row = dict[str, Any]
URL, KEY = "http://api.example/v1", "key-of-account-1"
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
SEARCH = ProviderTool("web_search")
PAGE = Source("https://example.org/a", "A")


def responses(client: httpx.AsyncClient) -> Provider:
    return OpenAIResponsesProvider("gpt-5.2", base_url=URL, api_key=KEY, client=client)


def claude(client: httpx.AsyncClient) -> Provider:
    return AnthropicProvider(
        "claude-sonnet-4-6", base_url=URL, api_key=KEY, client=client, cache=False
    )


def gemini(client: httpx.AsyncClient) -> Provider:
    return GeminiProvider("gemini-3-pro", base_url=URL, api_key=KEY, client=client)


RESPONSE: Row = {
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "c2Vh+/="},
        {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": "search"}},
        {"type": "code_interpreter_call", "id": "i1", "status": "completed"},
        {
            "type": "message",
            "content": [
                {
                    "type": "output_text",
                    "text": "So it is.",
                    "annotations": [
                        {"type": "url_citation", "url": PAGE.url, "title": "A"},
                        {"type": "url_citation", "url": PAGE.url, "title": "A"},
                        {"type": "file_citation", "file_id": "f1", "filename": "b.pdf"},
                    ],
                }
            ],
        },
    ],
}  # fmt: skip
FOUND: Row = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [
        {"type": "web_search_result", "url": "https://example.org/b", "title": "B", "encrypted_content": "RXJ2+/="}
    ],
}  # fmt: skip
CITATION: Row = {
    "type": "web_search_result_location",
    "url": PAGE.url,
    "title": "A",
    "encrypted_index": "RW9=",
}
BLOCKS: list[Row] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "RXQw+/="},
    {
        "type": "server_tool_use",
        "id": "s1",
        "name": "web_search",
        "input": {"query": "q"},
    },
    FOUND,
    {"type": "text", "text": "It is "},
    {"type": "text", "text": "so", "citations": [CITATION]},
    {"type": "text", "text": "."},
]
MESSAGE: Row = {"content": BLOCKS, "stop_reason": "end_turn"}
CANDIDATE: Row = {
    "candidates": [
        {
            "content": {
                "parts": [
                    {
                        "toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "t1"},
                        "thoughtSignature": "RXNv+/=",
                    },
                    {"toolResponse": {"id": "t1"}, "thoughtSignature": "RXV2+/="},
                    {"executableCode": {"language": "PYTHON", "code": "1"}},
                    {"codeExecutionResult": {"output": "1"}},
                    {"text": "So it is."},
                ]
            },
            "groundingMetadata": {
                "webSearchQueries": ["q"],
                "groundingChunks": [{"web": {"uri": PAGE.url, "title": "A"}}],
            },
            "finishReason": "STOP",
        }
    ]
}
REPLIES: dict[Build, Row] = {responses: RESPONSE, claude: MESSAGE, gemini: CANDIDATE}


async def exchange(
    build: Build, request: Request, reply: Row | None = None
) -> tuple[Completion, Row, httpx.Headers]:
    """Return the reply to a request, the body and the headers that were sent."""
    sent: list[httpx.Request] = []

    def answer(asked: httpx.Request) -> httpx.Response:
        sent.append(asked)
        return httpx.Response(200, json=reply or REPLIES[build])

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        completion = await build(client).complete(request)
    return completion, json.loads(sent[0].content), sent[0].headers


def ask(*tools: ProviderTool, left: int | None = None) -> Request:
    return Request(
        Conversation.of("x"), (LOOK,), provider_tools=tools, max_provider_calls=left
    )


@pytest.mark.parametrize(
    ("build", "tool", "expected"),
    [
        (responses, SEARCH, {"type": "web_search"}),
        (
            responses,
            ProviderTool("web_search", allowed_domains=("example.org",), extra={"search_context_size": "low"}),
            {"type": "web_search", "filters": {"allowed_domains": ["example.org"]}, "search_context_size": "low"},
        ),
        (
            responses,
            ProviderTool("code_interpreter"),
            {"type": "code_interpreter", "container": {"type": "auto"}},
        ),
        (
            responses,
            ProviderTool("file_search", stores=("vs_1",)),
            {"type": "file_search", "vector_store_ids": ["vs_1"]},
        ),
        (
            claude,
            ProviderTool("web_search", blocked_domains=("example.org",), max_uses=3),
            {"type": "web_search_20250305", "name": "web_search", "blocked_domains": ["example.org"], "max_uses": 3},
        ),
        (
            claude,
            ProviderTool("code_interpreter"),
            {"type": "code_execution_20250825", "name": "code_execution"},
        ),
        (gemini, SEARCH, {"googleSearch": {}}),
        (gemini, ProviderTool("code_interpreter"), {"codeExecution": {}}),
        (
            gemini,
            ProviderTool("file_search", stores=("fileSearchStores/a",)),
            {"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/a"]}},
        ),
    ],
)  # fmt: skip
async def test_tool_is_offered_in_the_form_of_the_api_beside_functions(
    build: Build, tool: ProviderTool, expected: Row
) -> None:
    _, body, _ = await exchange(build, ask(tool))

    assert expected in body["tools"]
    assert len(body["tools"]) == 2
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("build", "tool", "field"),
    [
        (responses, ProviderTool("web_search", blocked_domains=("a",)), "blocked_domains"),
        (claude, ProviderTool("code_interpreter", max_uses=1), "max_uses"),
        (gemini, ProviderTool("web_search", allowed_domains=("a",)), "allowed_domains"),
        (gemini, ProviderTool("web_search", max_uses=1), "max_uses"),
    ],
)  # fmt: skip
async def test_what_the_api_has_no_field_for_is_refused_by_its_name(
    build: Build, tool: ProviderTool, field: str
) -> None:
    with pytest.raises(ProviderError, match=rf"ProviderTool\('{tool.kind}'\).{field}"):
        await exchange(build, ask(tool))


async def test_uses_are_bounded_by_what_is_left_where_the_api_can() -> None:
    _, body, _ = await exchange(responses, ask(SEARCH, left=7))
    assert body["max_tool_calls"] == 7
    few = ProviderTool("web_search", max_uses=2)
    _, body, _ = await exchange(claude, ask(few, left=7))
    assert body["tools"][0]["max_uses"] == 2
    _, body, _ = await exchange(claude, ask(few, left=1))
    assert body["tools"][0]["max_uses"] == 1


async def test_header_of_code_execution_joins_those_of_the_caller() -> None:
    request = ask(ProviderTool("code_interpreter"))
    _, _, headers = await exchange(claude, request)
    assert headers["anthropic-beta"] == "code-execution-2025-08-25"

    own = Sampling(extra_headers={"Anthropic-Beta": "other-1"})
    request = Request(request.conversation, sampling=own, provider_tools=request.provider_tools)  # fmt: skip
    _, _, headers = await exchange(claude, request)
    assert headers["anthropic-beta"] == "other-1,code-execution-2025-08-25"


async def test_gemini_is_asked_to_show_what_its_tools_did() -> None:
    _, body, _ = await exchange(gemini, ask(SEARCH))
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
    _, body, _ = await exchange(gemini, ask())
    assert "toolConfig" not in body


@pytest.mark.parametrize(
    ("build", "used", "sources"),
    [
        (responses, ("web_search", "code_interpreter"), (PAGE, Source("f1", "b.pdf"))),
        (claude, ("web_search",), (PAGE,)),
        (gemini, ("web_search", "code_interpreter"), (PAGE,)),
    ],
)
async def test_reply_says_what_was_run_and_found(
    build: Build, used: tuple[str, ...], sources: tuple[Source, ...]
) -> None:
    reply, _, _ = await exchange(build, ask(SEARCH))

    assert (reply.provider_calls, reply.sources) == (used, sources)
    assert reply.answer is not None
    assert reply.calls == ()


async def test_search_that_nothing_cites_gives_what_it_found() -> None:
    plain = [{**block, "citations": None} if block["type"] == "text" else block for block in BLOCKS]  # fmt: skip
    reply, _, _ = await exchange(claude, ask(SEARCH), {**MESSAGE, "content": plain})

    assert reply.sources == (Source("https://example.org/b", "B"),)


@pytest.mark.parametrize("build", REPLIES)
async def test_reply_returns_with_the_next_request_as_it_came(build: Build) -> None:
    reply, _, _ = await exchange(build, ask(SEARCH))
    turn = Message("assistant", reply.text, reasoning=reply.reasoning)
    follow_up = Request(Conversation.of("x").add(turn).user("y"))

    _, body, _ = await exchange(build, follow_up)

    if build is claude:
        assert body["messages"][1]["content"] == BLOCKS
    elif build is responses:
        assert body["input"][1:4] == RESPONSE["output"][:3]
    else:
        sent = body["contents"][1]["parts"]
        assert sent == CANDIDATE["candidates"][0]["content"]["parts"]


async def test_changed_text_returns_without_the_marks_of_the_tool() -> None:
    reply, _, _ = await exchange(claude, ask(SEARCH))
    turn = Message("assistant", "[REDACTED]", reasoning=reply.reasoning)

    _, body, _ = await exchange(claude, Request(Conversation.of("x").add(turn).user("y")))  # fmt: skip

    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert kinds == ["thinking", "text"]


def as_events() -> bytes:
    """Return the message as a stream, its texts and inputs in small chunks."""
    events: list[Row] = [{"type": "message_start", "message": {"usage": {}}}]
    for index, block in enumerate(BLOCKS):
        deltas: list[Row] = []
        first = dict(block)
        if block["type"] == "text":
            text, first["text"] = block["text"], ""
            deltas = [{"type": "text_delta", "text": letter} for letter in text]
            for citation in first.pop("citations", ()):
                deltas.append({"type": "citations_delta", "citation": citation})
        elif block["type"] == "server_tool_use":
            first["input"] = {}
            written = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": one} for one in written]  # fmt: skip
        events.append({"type": "content_block_start", "index": index, "content_block": first})  # fmt: skip
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]  # fmt: skip
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    events.append({"type": "message_stop"})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()


async def test_streamed_reply_equals_the_whole_one_and_shows_no_call() -> None:
    whole, _, _ = await exchange(claude, ask(SEARCH))

    def answer(request: httpx.Request) -> httpx.Response:
        kind = {"content-type": "text/event-stream"}
        return httpx.Response(200, content=as_events(), headers=kind)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        deltas = [one async for one in stream_deltas(claude(client), ask(SEARCH))]

    assert deltas[-1].completion == whole
    assert all(delta.call is None for delta in deltas)


def test_chat_completions_run_no_tools() -> None:
    provider = OpenAIProvider("m", base_url=URL)

    assert provider.capabilities.provider_tools == ()
