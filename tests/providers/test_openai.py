"""Chat Completions: what goes over the wire, how replies are read, and how failures are told."""

import copy
import json
import pickle
import traceback
from collections.abc import Callable

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue, SecretStr

from loopwright.errors import ConfigError, ContextTooLong, ProviderError, ProviderTimeout
from loopwright.messages import Completion, Conversation, Message, ToolCall, ToolSpec, Usage
from loopwright.provider import Capabilities, OutputSchema, Provider, Request, Sampling
from loopwright.providers.openai import OpenAIProvider, Quirks

KEY = "sk-very-secret-1234567890"
URL = "http://localhost:9999/v1/chat/completions"
ADD = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})
ADD_WIRE = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
HELLO = Request(Conversation.of("Hello"))


class Endpoint:
    """An endpoint that gives one answer; `asked` holds the bodies of the requests."""

    def __init__(self, answer: httpx.Response | Exception) -> None:
        self.router = respx.MockRouter(assert_all_called=False)
        self.route = self.router.post(url__regex=".*").mock(side_effect=self.reply)
        self.answer = answer
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self.router.async_handler))

    def reply(self, request: httpx.Request) -> httpx.Response:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def asked(self) -> list[JsonValue]:
        return [json.loads(call.request.content) for call in self.route.calls]

    def provider(self, model: str = "small", **options: object) -> OpenAIProvider:
        given = {"base_url": "http://localhost:9999/v1", "api_key": KEY, "client": self.client, **options}
        return OpenAIProvider(model, **given)  # type: ignore[arg-type]


def choice(message: object, finish_reason: object = "stop", **top: object) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}], **top})


def called(*functions: object, finish_reason: str = "tool_calls", content: object = None) -> httpx.Response:
    calls = [{"id": f"c{i}", "type": "function", "function": function} for i, function in enumerate(functions)]
    return choice({"role": "assistant", "content": content, "tool_calls": calls}, finish_reason)


async def complete(answer: httpx.Response | Exception, request: Request = HELLO, **options: object) -> Completion:
    return await Endpoint(answer).provider(**options).complete(request)  # type: ignore[arg-type]


async def failure(answer: httpx.Response | Exception, **options: object) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await complete(answer, **options)
    return caught.value


async def asked(request: Request, **options: object) -> JsonValue:
    """The whole body that a request becomes."""
    endpoint = Endpoint(choice({"content": "hi"}))
    await endpoint.provider(**options).complete(request)
    return endpoint.asked[0]


# What goes over the wire


async def test_a_question_is_model_and_messages_and_nothing_else() -> None:
    endpoint = Endpoint(choice({"content": "hi"}))

    await endpoint.provider().complete(Request(Conversation.of("Hello", system="Be brief.")))

    sent = endpoint.route.calls[0].request
    assert (sent.method, str(sent.url)) == ("POST", URL)
    assert {name: sent.headers[name] for name in ("authorization", "content-type", "accept")} == {
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "accept": "application/json",
    }
    assert endpoint.asked == [
        {
            "model": "small",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        }
    ]


async def test_a_conversation_with_tools_is_encoded_whole() -> None:
    conversation = Conversation(
        [
            Message("user", "Zwei plus drei? 🙂"),
            Message("assistant", "", (ToolCall("add", {"a": 2, "text": 'say "hi"'}, "c1"),), origin="model"),
            Message("tool", "5", call_id="c1", origin="tool"),
            Message("assistant", "Once more.", (ToolCall("add", {}, "c2"), ToolCall("add", {"a": None}, "c3"))),
            Message("tool", "error: a is missing", call_id="c2", origin="tool"),
            Message("tool", "", call_id="c3", origin="tool"),
            Message("assistant", "Five."),
        ]
    )

    body = await asked(Request(conversation, (ADD,)))

    assert body == {
        "model": "small",
        "messages": [
            {"role": "user", "content": "Zwei plus drei? 🙂"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a":2,"text":"say \\"hi\\""}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
            {
                "role": "assistant",
                "content": "Once more.",
                "tool_calls": [
                    {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                    {"id": "c3", "type": "function", "function": {"name": "add", "arguments": '{"a":null}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "error: a is missing"},
            {"role": "tool", "tool_call_id": "c3", "content": ""},
            {"role": "assistant", "content": "Five."},
        ],
        "tools": [ADD_WIRE],
    }


async def test_a_call_without_tools_still_describes_them() -> None:
    body = await asked(Request(Conversation.of("x"), (ADD, ADD), tool_choice="none"))

    assert body == {
        "model": "small",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [ADD_WIRE, ADD_WIRE],
        "tool_choice": "none",
    }


async def test_the_sampling_of_a_request_goes_before_that_of_the_provider() -> None:
    own = Sampling(temperature=0.2, max_tokens=100, stop=("END",))
    asks = Request(Conversation.of("x"), sampling=Sampling(temperature=0.0, top_p=0.5, seed=7))

    assert await asked(Request(Conversation.of("x")), sampling=own) == {
        "model": "small",
        "messages": [{"role": "user", "content": "x"}],
        "temperature": 0.2,
        "max_tokens": 100,
        "stop": ["END"],
    }
    assert await asked(asks, sampling=own) == {
        "model": "small",
        "messages": [{"role": "user", "content": "x"}],
        "temperature": 0.0,
        "top_p": 0.5,
        "max_tokens": 100,
        "stop": ["END"],
        "seed": 7,
    }


async def test_openai_itself_has_its_own_word_for_the_most_tokens() -> None:
    body = await asked(Request(Conversation.of("x"), sampling=Sampling(max_tokens=9)), base_url="https://api.openai.com/v1")

    assert body == {"model": "small", "messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 9}


async def test_quirks_change_what_is_sent() -> None:
    quirks = Quirks(max_tokens_field="max_completion_tokens", stop=False, parallel_tool_calls=True)
    request = Request(Conversation.of("x"), (ADD,), sampling=Sampling(max_tokens=9, stop=("END",)))

    assert await asked(request, quirks=quirks) == {
        "model": "small",
        "messages": [{"role": "user", "content": "x"}],
        "max_completion_tokens": 9,
        "tools": [ADD_WIRE],
        "parallel_tool_calls": True,
    }


class City(BaseModel):
    name: str
    twin: "City | None"


class Draft(BaseModel):
    title: str = "untitled"


async def test_a_schema_that_strict_mode_can_say_is_sent_in_its_strict_form() -> None:
    schema = City.model_json_schema()

    body = await asked(Request(Conversation.of("x"), schema=OutputSchema("a city!", schema)))

    closed = copy.deepcopy(schema)
    closed["$defs"]["City"]["additionalProperties"] = False
    assert body == {
        "model": "small",
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a_city_", "strict": schema.get("type") == "object", "schema": body_schema(body)},
        },
    }


def body_schema(body: JsonValue) -> JsonValue:
    return body["response_format"]["json_schema"]["schema"]  # type: ignore[index,call-overload]
