"""What is sent to the Responses API: items in their order, opaque data to the endpoint that it came from alone."""

import json
from typing import Any

import httpx
import pytest

from loopwright.attachments import Attachment
from loopwright.errors import ProviderError
from loopwright.messages import (
    Completion,
    Conversation,
    Message,
    Reasoning,
    ToolCall,
    ToolSpec,
)
from loopwright.providers import (
    OpenAIResponsesProvider,
    OutputSchema,
    Request,
    Sampling,
)
from loopwright.providers.openai.responses.request import encode_message

Row = dict[str, Any]
URL = "http://api.example/v1"
THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [],
    "encrypted_content": "a+/=",
}
SECOND = {"id": "rs_2", "type": "reasoning", "summary": [], "encrypted_content": "b+/="}
LOOK = ToolSpec(
    "look",
    "Look.",
    {
        "type": "object",
        "properties": {"what": {"type": "string"}},
        "required": ["what"],
    },
)
LOOSE = ToolSpec("find", "Find.", {"type": "object", "properties": {"what": {}}})


def call_item(number: int) -> Row:
    arguments = json.dumps({"what": str(number)})
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "look",
        "arguments": arguments,
        "status": "completed",
    }


def message_item(text: str, **fields: object) -> Row:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part], **fields}


class Server:
    """Answers with the given responses in turn, and keeps what it was asked."""

    def __init__(self, *replies: Row | tuple[int, Row]) -> None:
        self.replies = list(replies)
        self.asked: list[Row] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(json.loads(request.content))
        reply = self.replies.pop(0)
        status, body = reply if isinstance(reply, tuple) else (200, reply)
        return httpx.Response(status, json=body)

    def provider(
        self, model: str = "gpt-5.2", **options: Any
    ) -> OpenAIResponsesProvider:
        transport = httpx.MockTransport(self.answer)
        given: Row = {"base_url": URL, "api_key": "key-1", **options}
        return OpenAIResponsesProvider(
            model, client=httpx.AsyncClient(transport=transport), **given
        )


def reply(*items: Row) -> Row:
    return {"status": "completed", "output": list(items)}


SAID = reply(message_item("Blue."))


def continue_with(completion: Completion) -> Conversation:
    turn = Message(
        "assistant",
        completion.answer or completion.thought,
        completion.calls,
        origin="model",
        reasoning=completion.reasoning,
    )
    results = [
        Message("tool", "seen", call_id=call.id, origin="tool")
        for call in completion.calls
    ]
    return Conversation.of("Look.").add(turn, *results).user("And?")


def kinds(body: Row) -> list[str]:
    return [
        item.get("encrypted_content")
        or item.get("id")
        or item.get("role")
        or item["type"]
        for item in body["input"]
    ]


async def test_interleaved_items_return_in_their_order() -> None:
    first = reply(THOUGHT, call_item(1), SECOND, message_item("Hm."), call_item(2))
    server = Server(first, SAID)
    provider = server.provider()

    completion = await provider.complete(Request(Conversation.of("Look."), (LOOK,)))
    await provider.complete(Request(continue_with(completion), (LOOK,)))

    assert kinds(server.asked[1]) == [
        "user",
        "a+/=",
        "fc_1",
        "b+/=",
        "assistant",
        "fc_2",
        "function_call_output",
        "function_call_output",
        "user",
    ]


async def test_reasoning_returns_without_the_fields_that_the_api_refuses() -> None:
    thought = {**THOUGHT, "status": None, "content": []}
    server = Server(reply(thought, call_item(1)), SAID)
    provider = server.provider()

    completion = await provider.complete(Request(Conversation.of("Look."), (LOOK,)))
    await provider.complete(Request(continue_with(completion), (LOOK,)))

    assert server.asked[1]["input"][1] == THOUGHT


async def test_phase_of_a_message_returns_with_its_text() -> None:
    server = Server(
        reply(message_item("I look.", phase="commentary"), call_item(1)), SAID
    )
    provider = server.provider()

    completion = await provider.complete(Request(Conversation.of("Look."), (LOOK,)))
    await provider.complete(Request(continue_with(completion), (LOOK,)))

    spoken = server.asked[1]["input"][1]
    assert spoken == {"role": "assistant", "content": "I look.", "phase": "commentary"}


@pytest.mark.parametrize(
    "other", [{"api_key": "key-2"}, {"base_url": "http://other.example/v1"}]
)
async def test_opaque_data_reaches_no_other_account_or_host(other: Row) -> None:
    server = Server(reply(THOUGHT, message_item("Hm."), call_item(1)), SAID)
    asked = Request(Conversation.of("Look."), (LOOK,))

    completion = await server.provider().complete(asked)
    await server.provider(**other).complete(Request(continue_with(completion), (LOOK,)))

    assert "a+/=" not in json.dumps(server.asked[1])
    assert [item.get("type") for item in server.asked[1]["input"]] == [
        None,
        None,
        "function_call",
        "function_call_output",
        None,
    ]


async def test_refused_opaque_data_is_left_out_once() -> None:
    refusal = {
        "error": {
            "code": "invalid_encrypted_content",
            "message": "The encrypted content could not be verified.",
        }
    }
    server = Server(reply(THOUGHT, call_item(1)), (400, refusal), SAID)
    provider = server.provider()
    completion = await provider.complete(Request(Conversation.of("Look."), (LOOK,)))

    answered = await provider.complete(Request(continue_with(completion), (LOOK,)))

    assert answered.answer == "Blue."
    assert "a+/=" in json.dumps(server.asked[1])
    assert "a+/=" not in json.dumps(server.asked[2])


async def test_other_refusal_is_not_sent_again() -> None:
    server = Server(
        reply(THOUGHT, call_item(1)), (400, {"error": {"message": "no such tool"}})
    )
    provider = server.provider()
    completion = await provider.complete(Request(Conversation.of("Look."), (LOOK,)))

    with pytest.raises(ProviderError, match="no such tool"):
        await provider.complete(Request(continue_with(completion), (LOOK,)))


async def test_reasoning_with_nothing_behind_it_is_not_sent() -> None:
    thought = Reasoning("", "responses", THOUGHT, "api.example")
    turn = Message("assistant", "", origin="model", reasoning=(thought,))
    server = Server(SAID)

    await server.provider(api_key="").complete(
        Request(Conversation.of("x").add(turn).user("y"))
    )

    assert kinds(server.asked[0]) == ["user", "user"]


async def test_reasoning_model_is_asked_for_encrypted_reasoning_and_nothing_is_stored() -> (
    None
):
    server = Server(SAID)
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=50, stop=("x",), seed=1)

    await server.provider().complete(Request(Conversation.of("x"), sampling=sampling))

    assert server.asked == [
        {
            "model": "gpt-5.2",
            "input": [{"role": "user", "content": "x"}],
            "max_output_tokens": 50,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
    ]


async def test_model_without_reasoning_gets_its_temperature() -> None:
    server = Server(SAID)
    sampling = Sampling(temperature=0.5)

    await server.provider("gpt-4.1").complete(
        Request(Conversation.of("x"), sampling=sampling)
    )

    assert server.asked[0]["temperature"] == 0.5
    assert "include" not in server.asked[0]


async def test_tools_are_strict_where_their_schema_can_be() -> None:
    server = Server(SAID)
    request = Request(Conversation.of("x"), (LOOK, LOOSE), tool_choice="none")

    await server.provider().complete(request)

    strict, loose = server.asked[0]["tools"]
    assert (strict["strict"], loose["strict"]) == (True, False)
    assert strict["parameters"]["additionalProperties"] is False
    assert loose["parameters"] == LOOSE.schema
    assert server.asked[0]["tool_choice"] == "none"


async def test_schema_of_an_answer_is_a_text_format() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
    }
    server = Server(SAID)

    await server.provider().complete(
        Request(Conversation.of("x"), schema=OutputSchema("My answer", schema))
    )

    assert server.asked[0]["text"]["format"] == {
        "type": "json_schema",
        "name": "My_answer",
        "schema": {**schema, "additionalProperties": False},
        "strict": True,
    }


async def test_attachments_become_parts() -> None:
    image = Attachment.image("https://pictures.example/a.png")
    text = Attachment.document(b"hello", media_type="text/plain", name="a.txt")
    pdf = Attachment.document(b"%PDF", media_type="application/pdf", name="b.pdf")
    server = Server(SAID)

    await server.provider().complete(
        Request(Conversation.of("What is it?", attachments=(image, text, pdf)))
    )

    assert server.asked[0]["input"][0]["content"] == [
        {"type": "input_image", "image_url": "https://pictures.example/a.png"},
        {"type": "input_text", "text": "a.txt:\nhello"},
        {
            "type": "input_file",
            "filename": "b.pdf",
            "file_data": "data:application/pdf;base64,JVBERg==",
        },
        {"type": "input_text", "text": "What is it?"},
    ]


def test_sources_differ_by_key_and_host_and_show_no_key() -> None:
    sources = {
        Server().provider(**options).source
        for options in ({}, {"api_key": "key-2"}, {"base_url": "http://b.example/v1"})
    }

    assert len(sources) == 3
    assert not any("key-" in source for source in sources)


def test_calls_of_other_models_are_sent_without_ids() -> None:
    call = ToolCall("look", {"what": "x"}, "c1", "gemini", {"id": "z"}, "elsewhere")
    turn = Message("assistant", "", (call,), origin="model")

    assert json.loads(encode_message(turn, "api.example")) == {
        "type": "function_call",
        "call_id": "c1",
        "name": "look",
        "arguments": '{"what":"x"}',
    }
