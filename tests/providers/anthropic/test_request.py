"""The Messages API: what conversations, tools, schemas and options become on the wire."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, JsonValue

from loopwright.attachments import Attachment
from loopwright.errors import ProviderError
from loopwright.messages import Conversation, Message, Reasoning, ToolCall, ToolSpec
from loopwright.providers import OutputSchema, Request, Sampling
from loopwright.providers.anthropic import AnthropicProvider, MessagesQuirks
from loopwright.providers.anthropic.request import encode_turns
from messages_server import KEY, Answer, exchange, said, serving, text

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}}},
)
ADD_WIRE = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
KEPT = {"cache_control": {"type": "ephemeral"}}
SIGNED: dict[str, JsonValue] = {
    "type": "thinking",
    "thinking": "Hm.",
    "signature": "sig==",
}
REDACTED: dict[str, JsonValue] = {"type": "redacted_thinking", "data": "abc"}
THOUGHTS = (Reasoning("Hm.", "thinking", SIGNED), Reasoning("", "thinking", REDACTED))
HI = Answer.json(said(text("hi")))


async def asked(request: Request | Conversation, **options: Any) -> Any:
    """The whole body that a request becomes, without marks for the cache unless they are asked for."""
    request = Request(request) if isinstance(request, Conversation) else request
    return (await exchange(HI, request, **{"cache": False, **options}))[1].body


async def turns(*messages: Message, **options: Any) -> Any:
    """The turns that messages become, each as its role and its blocks."""
    body = await asked(Conversation(messages), **options)
    return [(turn["role"], turn["content"]) for turn in body["messages"]]


# What goes over the wire


async def test_a_question_is_model_messages_system_and_most_tokens_and_nothing_else() -> (
    None
):
    _, sent = await exchange(
        HI, Request(Conversation.of("Hello", system="Be brief.")), cache=False
    )

    assert sent.line == "POST /v1/messages HTTP/1.1"
    wanted = ("x-api-key", "anthropic-version", "content-type", "accept")
    assert {name: sent.headers[name] for name in wanted} == {
        "x-api-key": KEY,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        "accept": "application/json",
    }
    assert "authorization" not in sent.headers
    assert sent.body == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 8192,
        "system": [text("Be brief.")],
        "messages": [{"role": "user", "content": [text("Hello")]}],
    }


async def test_a_conversation_with_tools_is_encoded_whole() -> None:
    conversation = Conversation(
        [
            Message("user", "Zwei plus drei? 🙂"),
            Message(
                "assistant",
                "",
                (ToolCall("add", {"a": 2, "text": 'say "hi"'}, "c1"),),
                reasoning=THOUGHTS,
            ),
            Message("tool", "5", call_id="c1", origin="tool"),
            Message(
                "assistant",
                "Once more.",
                (ToolCall("add", {}, "c2"), ToolCall("add", {"a": None}, "c3")),
            ),
            Message("tool", "error: a is missing", call_id="c2", origin="tool"),
            Message("tool", "", call_id="c3", origin="tool"),
            Message("user", "Go on."),
        ]
    )

    assert await asked(Request(conversation, (ADD,))) == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 8192,
        "messages": [
            {"role": "user", "content": [text("Zwei plus drei? 🙂")]},
            {
                "role": "assistant",
                "content": [
                    SIGNED,
                    REDACTED,
                    {
                        "type": "tool_use",
                        "id": "c1",
                        "name": "add",
                        "input": {"a": 2, "text": 'say "hi"'},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "5"}
                ],
            },
            {
                "role": "assistant",
                "content": [
                    text("Once more."),
                    {"type": "tool_use", "id": "c2", "name": "add", "input": {}},
                    {
                        "type": "tool_use",
                        "id": "c3",
                        "name": "add",
                        "input": {"a": None},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": "error: a is missing",
                    },
                    {"type": "tool_result", "tool_use_id": "c3"},
                    text("Go on."),
                ],
            },
        ],
        "tools": [ADD_WIRE],
    }


async def test_neighbours_of_one_role_are_one_turn_and_system_messages_go_to_the_front() -> (
    None
):
    body = await asked(
        Conversation(
            [
                Message("system", "One."),
                Message("user", "a"),
                Message("system", "Two."),
                Message("user", "b"),
                Message("assistant", "c"),
                Message("assistant", "d "),
                Message("user", "e"),
            ]
        )
    )

    assert body["system"] == [text("One."), text("Two.")]
    assert [(turn["role"], turn["content"]) for turn in body["messages"]] == [
        ("user", [text("a"), text("b")]),
        ("assistant", [text("c"), text("d ")]),
        ("user", [text("e")]),
    ]


async def test_what_says_nothing_is_left_out() -> None:
    assert await turns(
        Message("system", " "),
        Message("user", "a"),
        Message("assistant", " \n", reasoning=THOUGHTS),
        Message("user", ""),
        Message("user", "b"),
    ) == [("user", [text("a"), text("b")])]


async def test_a_conversation_that_the_assistant_begins_or_ends_gets_a_word_of_the_user() -> (
    None
):
    begin, go_on = ("user", [text("Begin.")]), ("user", [text("Go on.")])

    assert await turns(Message("assistant", "Hello. ")) == [
        begin,
        ("assistant", [text("Hello. ")]),
        go_on,
    ]
    assert await turns() == [begin]


async def test_only_thinking_of_this_form_goes_back() -> None:
    other = (Reasoning("x", "reasoning_content"), Reasoning("y", "thinking"), *THOUGHTS)

    assert await turns(
        Message("user", "a"),
        Message("assistant", "b", reasoning=other),
        Message("user", "c"),
    ) == [
        ("user", [text("a")]),
        ("assistant", [SIGNED, REDACTED, text("b")]),
        ("user", [text("c")]),
    ]


async def test_call_ids_that_the_api_does_not_take_are_changed_alike_on_both_sides() -> (
    None
):
    calls = (
        ToolCall("add", {}, "a.b"),
        ToolCall("add", {}, "a b"),
        ToolCall("add", {}, ""),
        ToolCall("add", {}, "ok_1"),
    )
    results = [Message("tool", call.id or "none", call_id=call.id) for call in calls]

    _, (_, made), (_, got) = await turns(
        Message("user", "x"), Message("assistant", "", calls), *results
    )

    ids = [block["id"] for block in made]
    assert ids == [block["tool_use_id"] for block in got]
    assert len(set(ids)) == 4
    assert ids[3] == "ok_1"
    assert all(
        block_id.removeprefix("call_").isalnum() and block_id.isascii()
        for block_id in ids[:3]
    )


async def test_repeated_call_ids_are_made_unique() -> None:
    call = ToolCall("add", {}, "c")
    two = [
        Message("assistant", "", (call, call)),
        Message("tool", "1", call_id="c"),
        Message("tool", "2", call_id="c"),
    ]

    _, (_, first), (_, one), (_, second), (_, two_) = await turns(
        Message("user", "x"), *two, *two
    )

    ids = [block["id"] for block in first + second]
    assert ids == ["c", "c_2", "c_3", "c_4"]
    assert [(block["tool_use_id"], block["content"]) for block in one + two_] == [
        ("c", "1"),
        ("c_2", "2"),
        ("c_3", "1"),
        ("c_4", "2"),
    ]


async def test_a_call_without_tools_still_describes_them() -> None:
    body = await asked(Request(Conversation.of("x"), (ADD,), tool_choice="none"))

    assert (body["tools"], body["tool_choice"]) == ([ADD_WIRE], {"type": "none"})


async def test_calls_of_tools_that_are_gone_are_described_in_short_since_the_api_wants_it() -> (
    None
):
    past = [
        Message("user", "x"),
        Message("assistant", "", (ToolCall("old", {}, "c"),)),
        Message("tool", "1", call_id="c"),
    ]

    body = await asked(Conversation(past))

    assert body["tools"] == [{"name": "old", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


async def test_cache_markers_are_on_the_last_tool_system_block_and_block() -> None:
    conversation = Conversation.of("x", system="Be brief.").add(
        Message("assistant", "", (ToolCall("add", {}, "c"),)),
        Message("tool", "1", call_id="c"),
        Message("user", "y"),
    )
    nop = ToolSpec("nop", "", {})

    body = await asked(Request(conversation, (ADD, nop)), cache=True)

    assert body == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 8192,
        "system": [{**text("Be brief."), **KEPT}],
        "messages": [
            {"role": "user", "content": [text("x")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "c", "name": "add", "input": {}}
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "1"},
                    {**text("y"), **KEPT},
                ],
            },
        ],
        "tools": [
            ADD_WIRE,
            {"name": "nop", "input_schema": {"type": "object"}, **KEPT},
        ],
    }


async def test_each_message_and_tool_is_encoded_once() -> None:
    request = Request(Conversation.of("x", system="s"), (ADD,))
    await exchange(HI, request)
    first = request.conversation.messages[1]
    kept = [dict(vars(value)["_encoded"]) for value in (first, ADD)]

    again = await exchange(HI, Request(request.conversation.user("y"), (ADD,)))

    assert [dict(vars(value)["_encoded"]) for value in (first, ADD)] == kept
    assert again[1].body["messages"][0]["content"] == [text("x"), {**text("y"), **KEPT}]  # type: ignore[index,call-overload]


async def test_images_and_documents_come_before_the_text() -> None:
    png = Attachment.image(b"\x89PNG\r\n\x1a\n", name="plan.png")
    sent = (
        png,
        Attachment.image("https://example.org/a.jpg"),
        Attachment.document(b"%PDF-1.7", name="terms.pdf"),
        Attachment.document("https://example.org/b.pdf"),
        Attachment.document(
            "Grüße".encode(), media_type="text/markdown", name="notes.md"
        ),
    )

    assert await turns(Message("user", "What is this?", attachments=sent)) == [
        (
            "user",
            [
                text("plan.png:"),
                {
                    "type": "image",
                    "source": {
                        "type": "base64",
                        "media_type": "image/png",
                        "data": png.data,
                    },
                },
                {
                    "type": "image",
                    "source": {"type": "url", "url": "https://example.org/a.jpg"},
                },
                {
                    "type": "document",
                    "source": {
                        "type": "base64",
                        "media_type": "application/pdf",
                        "data": "JVBERi0xLjc=",
                    },
                    "title": "terms.pdf",
                },
                {
                    "type": "document",
                    "source": {"type": "url", "url": "https://example.org/b.pdf"},
                },
                {
                    "type": "document",
                    "source": {
                        "type": "text",
                        "media_type": "text/plain",
                        "data": "Grüße",
                    },
                    "title": "notes.md",
                },
                text("What is this?"),
            ],
        )
    ]


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (
            Attachment.document(b"PK", media_type="application/zip", name="a.zip"),
            "PDF and text, not application/zip",
        ),
        (
            Attachment.document(b"\xff", media_type="text/plain", name="a.txt"),
            "text in UTF-8 only",
        ),
    ],
)
async def test_a_document_that_the_api_does_not_take_is_named_before_anything_is_sent(
    document: Attachment, told: str
) -> None:
    request = Request(Conversation([Message("user", "x", attachments=(document,))]))

    with pytest.raises(ProviderError, match=told) as caught:
        await AnthropicProvider("claude", base_url="http://localhost:9").complete(
            request
        )

    assert repr(document.name) in str(caught.value)


# Sampling and thinking


async def test_the_sampling_of_a_request_goes_before_that_of_the_provider() -> None:
    own = Sampling(temperature=0.2, max_tokens=100, stop=("END",))
    asks = Request(
        Conversation.of("x"),
        sampling=Sampling(top_p=0.5, seed=7, stop=("STOP", "HALT")),
    )
    bare = {
        "model": "claude-sonnet-4-5",
        "messages": [{"role": "user", "content": [text("x")]}],
    }

    assert await asked(Request(Conversation.of("x")), sampling=own) == {
        **bare,
        "temperature": 0.2,
        "max_tokens": 100,
        "stop_sequences": ["END"],
    }
    assert await asked(asks, max_tokens=77) == {
        **bare,
        "top_p": 0.5,
        "max_tokens": 77,
        "stop_sequences": ["STOP", "HALT"],
    }


async def test_temperature_goes_before_top_p_since_the_api_takes_one_of_them() -> None:
    body = await asked(
        Request(Conversation.of("x"), sampling=Sampling(temperature=0.0, top_p=0.5))
    )

    assert (body["temperature"], "top_p" in body) == (0.0, False)


async def test_models_that_take_no_sampling_are_sent_none() -> None:
    request = Request(
        Conversation.of("x"), sampling=Sampling(temperature=0.7, stop=("END",))
    )

    body = await asked(request, model="claude-opus-4-7")

    assert body.keys() == {"model", "messages", "max_tokens", "stop_sequences"}


async def test_a_budget_for_thinking_comes_on_top_and_leaves_no_temperature() -> None:
    hot = Request(Conversation.of("x"), sampling=Sampling(temperature=0.7, top_p=0.5))
    wide = Request(Conversation.of("x"), sampling=Sampling(temperature=0.7, top_p=0.99))

    budget = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    bare = {
        "model": "claude-sonnet-4-5",
        "messages": [{"role": "user", "content": [text("x")]}],
        **budget,
    }
    assert await asked(hot, thinking=2000) == {**bare, "max_tokens": 10192}
    assert await asked(wide, thinking=2000) == {
        **bare,
        "max_tokens": 10192,
        "top_p": 0.99,
    }


@pytest.mark.parametrize(
    ("max_tokens", "budget"),
    [(1_000, None), (2_047, None), (2_048, 1_024), (10_000, 5_000), (27_000, 18_808), (60_000, 20_000)],
)  # fmt: skip
async def test_the_bound_of_a_request_is_that_of_thinking_and_answer(
    max_tokens: int, budget: int | None
) -> None:
    sampling = Sampling(temperature=0.7, max_tokens=max_tokens)
    request = Request(Conversation.of("x"), sampling=sampling)

    body = await asked(request, thinking=20_000)

    assert body["max_tokens"] == max_tokens
    assert body.get("thinking", {}).get("budget_tokens") == budget
    assert ("temperature" in body) == (budget is None)


@pytest.mark.parametrize(
    ("thinking", "config"),
    [("adaptive", {}), ("high", {"output_config": {"effort": "high"}})],
)
async def test_thinking_by_a_word_leaves_the_rest_to_the_model(
    thinking: str, config: dict[str, object]
) -> None:
    assert await asked(Conversation.of("x"), thinking=thinking) == {
        "model": "claude-sonnet-4-5",
        "messages": [{"role": "user", "content": [text("x")]}],
        "max_tokens": 8192,
        "thinking": {"type": "adaptive", "display": "summarized"},
        **config,
    }


CALLED = Message("assistant", "", (ToolCall("add", {}, "c"),))
RESULT = Message("tool", "1", call_id="c")
THOUGHT = Message("assistant", "", (ToolCall("add", {}, "d"),), reasoning=THOUGHTS)
ITS_RESULT = Message("tool", "1", call_id="d")


@pytest.mark.parametrize(
    ("after", "thinks"),
    [
        ([], True),
        ([THOUGHT, ITS_RESULT], True),
        ([THOUGHT, ITS_RESULT, CALLED, RESULT], True),  # a turn thinks at its beginning
        (
            [CALLED, RESULT],
            False,
        ),  # the engine proposed it: the API refuses to think in the middle of a turn
        ([CALLED, RESULT, THOUGHT, ITS_RESULT], False),
        ([Message("assistant", "Aside."), THOUGHT, ITS_RESULT], False),
        ([CALLED, RESULT, Message("user", "And now?")], True),
        ([CALLED, RESULT, Message("user", " ")], False),
        ([CALLED, RESULT, Message("assistant", "One.")], True),
    ],
)
async def test_a_turn_that_was_begun_without_thinking_is_ended_without(
    after: list[Message], thinks: bool
) -> None:
    request = Request(Conversation([Message("user", "x"), *after]), (ADD,))

    body = await asked(request, thinking=2000)

    assert ("thinking" in body, body["max_tokens"]) == (
        (True, 10192) if thinks else (False, 8192)
    )
    assert "thinking" in await asked(request, thinking="adaptive")


# Schemas


class Street(BaseModel):
    name: str = Field(min_length=1, description="As on the sign.")
    number: int = Field(1, ge=1, le=999)


class City(BaseModel):
    """A place."""

    streets: list[Street]
    twin: str | None


class Node(BaseModel):
    inner: list["Node"]


async def test_schema_is_sent_closed_and_describes_its_bounds() -> None:
    output = OutputSchema("City", City.model_json_schema())

    body = await asked(
        Request(Conversation.of("x"), schema=output),
        quirks=MessagesQuirks(json_schema=True),
        thinking="low",
    )

    assert body["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "$defs": {
                    "Street": {
                        "properties": {
                            "name": {
                                "title": "Name",
                                "type": "string",
                                "description": "As on the sign.; minLength: 1",
                            },
                            "number": {
                                "default": 1,
                                "title": "Number",
                                "type": "integer",
                                "description": "maximum: 999; minimum: 1",
                            },
                        },
                        "required": ["name"],
                        "title": "Street",
                        "type": "object",
                        "additionalProperties": False,
                    }
                },
                "description": "A place.",
                "properties": {
                    "streets": {
                        "items": {"$ref": "#/$defs/Street"},
                        "title": "Streets",
                        "type": "array",
                    },
                    "twin": {
                        "anyOf": [{"type": "string"}, {"type": "null"}],
                        "title": "Twin",
                    },
                },
                "required": ["streets", "twin"],
                "title": "City",
                "type": "object",
                "additionalProperties": False,
            },
        },
    }
    assert body["messages"] == [{"role": "user", "content": [text("x")]}]


@pytest.mark.parametrize(
    "schema",
    [
        Node.model_json_schema(),
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"$ref": "#/$defs/A"}},
        },
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object"},
        {
            "type": "object",
            "properties": {},
            "additionalProperties": {"type": "string"},
        },
        {"type": "object", "properties": {}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"type": "array", "prefixItems": []}}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
        {"type": "array", "items": {"type": "string"}},
    ],
)
async def test_a_schema_without_api_support_is_sent_after_the_cached_text(
    schema: dict[str, JsonValue],
) -> None:
    request = Request(Conversation.of("x"), schema=OutputSchema("thing", schema))

    body = await asked(request, quirks=MessagesQuirks(json_schema=True), cache=True)

    assert "output_config" not in body
    question, instruction = body["messages"][0]["content"]
    assert question == {**text("x"), **KEPT}
    assert instruction["text"].endswith(json.dumps(schema))


async def test_a_choice_between_models_is_sent_as_any_of_them() -> None:
    choice: dict[str, JsonValue] = {
        "oneOf": [{"type": "string"}, {"type": "null"}],
        "discriminator": {"x": "y"},
    }
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"a": choice},
        "additionalProperties": False,
    }

    body = await asked(
        Request(Conversation.of("x"), schema=OutputSchema("n", schema)),
        quirks=MessagesQuirks(json_schema=True),
    )

    assert body["output_config"]["format"]["schema"] == {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "additionalProperties": False,
    }


async def test_a_model_that_takes_no_schema_is_not_asked() -> None:
    provider = AnthropicProvider("claude-3-opus", base_url="http://localhost:9")

    assert not provider.capabilities.json_schema
    assert not provider.capabilities.schema_with_tools
    with pytest.raises(ProviderError, match="takes no JSON schema"):
        await provider.complete(
            Request(Conversation.of("x"), schema=OutputSchema("n", {}))
        )


async def test_a_request_that_is_no_json_is_a_provider_error() -> None:
    unwritable = ToolSpec("odd", "", {"default": object()})  # type: ignore[dict-item]

    with pytest.raises(ProviderError, match="cannot be written as JSON") as caught:
        await AnthropicProvider("claude", base_url="http://localhost:9").complete(
            Request(Conversation.of("x"), (unwritable,))
        )

    assert not caught.value.retryable


# Whatever a conversation holds

WORDS = st.sampled_from(["", " ", "\n", "a", "b ", "ß🙂", '{"x":[}'])
IDS = st.sampled_from(["", "c1", "c2", "a.b", "call/1", "ü"])
REASONING = st.lists(
    st.sampled_from(
        [*THOUGHTS, Reasoning("x", "other", {"a": 1}), Reasoning("y", "thinking")]
    ),
    max_size=2,
)


@st.composite
def histories(draw: st.DrawFn) -> Conversation:
    """Any messages in any order, every call with its result right after it, results in any order."""
    messages: list[Message] = []
    for role in draw(
        st.lists(st.sampled_from(["system", "user", "assistant"]), max_size=9)
    ):
        calls = tuple(
            [
                ToolCall("add", {"n": n}, call_id)
                for n, call_id in enumerate(draw(st.lists(IDS, max_size=3)))
            ]
        )
        if role == "assistant":
            messages.append(
                Message(
                    "assistant", draw(WORDS), calls, reasoning=tuple(draw(REASONING))
                )
            )
            results = [Message("tool", draw(WORDS), call_id=call.id) for call in calls]
            draw(st.randoms(use_true_random=False)).shuffle(results)
            messages += results
        else:
            messages.append(Message(role, draw(WORDS)))
    return Conversation(messages)


@given(
    conversation=histories(),
    cache=st.booleans(),
    instruction=st.sampled_from(["", "Reply with JSON."]),
)
def test_every_history_becomes_turns_that_the_api_takes(
    conversation: Conversation, cache: bool, instruction: str
) -> None:
    encoded = encode_turns(conversation.messages, cache=cache, instruction=instruction)
    system, messages = [
        json.loads(b"[" + items + b"]") for items in (encoded.system, encoded.messages)
    ]

    roles = [turn["role"] for turn in messages]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    assert roles[-1] == "user"
    blocks = [block for turn in messages for block in turn["content"]] + system
    assert all(block["text"].strip() for block in blocks if block["type"] == "text")
    assert sum("cache_control" in block for block in blocks) == (
        1 + bool(system) if cache else 0
    )
    check_calls(messages)
    words = [
        m.content
        for m in conversation
        if m.role in {"user", "assistant"} and m.content.strip()
    ]
    told = [
        block["text"]
        for turn in messages
        for block in turn["content"]
        if block["type"] == "text"
    ]
    assert [
        word for word in told if word not in {"Begin.", "Go on.", instruction}
    ] == words
    assert [block["text"] for block in system] == [
        m.content for m in conversation if m.role == "system" and m.content.strip()
    ]


def check_calls(messages: list[Any]) -> None:
    """Every call has its result at the front of the next turn, ids are unique, and no turn ends with thinking."""
    seen: set[str] = set()
    expected: set[str] = set()
    for turn in messages:
        kinds = [block["type"] for block in turn["content"]]
        results = [
            block["tool_use_id"]
            for block in turn["content"]
            if block["type"] == "tool_result"
        ]
        assert kinds[: len(results)] == ["tool_result"] * len(results)
        assert (set(results), len(results)) == (expected, len(expected))
        made = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        expected = set(made)
        assert len(expected) == len(made)
        assert not expected & seen
        assert all(i and i.isascii() and i.replace("_", "").isalnum() for i in made)
        assert not kinds[-1].endswith("thinking")
        seen |= expected
    assert not expected


async def test_the_tokens_of_a_request_are_counted_by_the_endpoint() -> None:
    request = Request(Conversation.of("Hello", system="Be brief."), (ADD,))
    async with serving(Answer.json({"input_tokens": 27})) as server:
        provider = AnthropicProvider("claude-opus-4-5", base_url=server.url)
        assert await provider.count(request) == 27
        await provider.aclose()
    [asked_for] = server.asked
    assert "/v1/messages/count_tokens" in asked_for.line
    body: Any = asked_for.body
    assert sorted(body) == ["messages", "model", "system", "tools"]


async def test_a_count_that_does_not_come_is_a_provider_error() -> None:
    refused = Answer.json({"error": {"message": "not here"}}, 404)
    async with serving(refused) as server:
        provider = AnthropicProvider("claude-opus-4-5", base_url=server.url)
        with pytest.raises(ProviderError, match="not here"):
            await provider.count(Request(Conversation.of("Hello")))
        await provider.aclose()
