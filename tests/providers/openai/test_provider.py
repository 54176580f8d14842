"""Chat Completions: what is sent, how replies are read, and which errors failures raise."""

import copy
import json
import pickle
import traceback

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue, SecretStr

from loopwright.errors import (
    ConfigError,
    ContextTooLong,
    ProviderError,
    ProviderTimeout,
)
from loopwright.messages import (
    Completion,
    Conversation,
    JsonObject,
    Message,
    ToolCall,
    ToolSpec,
    Usage,
)
from loopwright.providers import (
    Capabilities,
    OpenAIProvider,
    OutputSchema,
    Provider,
    Quirks,
    Request,
    Sampling,
)
from loopwright.providers.openai.quirks import LLAMACPP, OLLAMA, OPENAI, OPENROUTER

KEY = "sk-very-secret-1234567890"
URL = "http://localhost:9999/v1/chat/completions"
ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}}},
)
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
        self.client = httpx.AsyncClient(
            transport=httpx.MockTransport(self.router.async_handler)
        )

    def reply(self, request: httpx.Request) -> httpx.Response:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def asked(self) -> list[JsonValue]:
        return [json.loads(call.request.content) for call in self.route.calls]

    def provider(self, model: str = "small", **options: object) -> OpenAIProvider:
        given = {
            "base_url": "http://localhost:9999/v1",
            "api_key": KEY,
            "client": self.client,
            **options,
        }
        return OpenAIProvider(model, **given)  # type: ignore[arg-type]


def choice(
    message: object, finish_reason: object = "stop", **top: object
) -> httpx.Response:
    return httpx.Response(
        200,
        json={
            "choices": [
                {"index": 0, "message": message, "finish_reason": finish_reason}
            ],
            **top,
        },
    )


def called(
    *functions: object, finish_reason: str = "tool_calls", content: object = None
) -> httpx.Response:
    calls = [
        {"id": f"c{i}", "type": "function", "function": function}
        for i, function in enumerate(functions)
    ]
    return choice(
        {"role": "assistant", "content": content, "tool_calls": calls}, finish_reason
    )


async def complete(
    answer: httpx.Response | Exception, request: Request = HELLO, **options: object
) -> Completion:
    return await Endpoint(answer).provider(**options).complete(request)  # type: ignore[arg-type]


async def failure(
    answer: httpx.Response | Exception, **options: object
) -> ProviderError:
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

    await endpoint.provider().complete(
        Request(Conversation.of("Hello", system="Be brief."))
    )

    sent = endpoint.route.calls[0].request
    assert (sent.method, str(sent.url)) == ("POST", URL)
    assert {
        name: sent.headers[name] for name in ("authorization", "content-type", "accept")
    } == {
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "accept": "application/json",
    }
    assert endpoint.asked == [
        {
            "model": "small",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello"},
            ],
        }
    ]


async def test_a_conversation_with_tools_is_encoded_whole() -> None:
    conversation = Conversation(
        [
            Message("user", "Zwei plus drei? 🙂"),
            Message(
                "assistant",
                "",
                (ToolCall("add", {"a": 2, "text": 'say "hi"'}, "c1"),),
                origin="model",
            ),
            Message("tool", "5", call_id="c1", origin="tool"),
            Message(
                "assistant",
                "Once more.",
                (ToolCall("add", {}, "c2"), ToolCall("add", {"a": None}, "c3")),
            ),
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
                        "function": {
                            "name": "add",
                            "arguments": '{"a":2,"text":"say \\"hi\\""}',
                        },
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
            {
                "role": "assistant",
                "content": "Once more.",
                "tool_calls": [
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "add", "arguments": "{}"},
                    },
                    {
                        "id": "c3",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a":null}'},
                    },
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
    asks = Request(
        Conversation.of("x"), sampling=Sampling(temperature=0.0, top_p=0.5, seed=7)
    )

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


async def test_sampling_that_was_looked_at_before_is_sent_as_it_is() -> None:
    looked_at = Sampling(temperature=0.5)
    assert looked_at.options == {"temperature": 0.5}

    assert await asked(
        Request(Conversation.of("x"), sampling=looked_at), sampling=looked_at
    ) == {
        "model": "small",
        "messages": [{"role": "user", "content": "x"}],
        "temperature": 0.5,
    }


async def test_openai_itself_has_its_own_word_for_the_most_tokens() -> None:
    body = await asked(
        Request(Conversation.of("x"), sampling=Sampling(max_tokens=9)),
        base_url="https://api.openai.com/v1",
    )

    assert body == {
        "model": "small",
        "messages": [{"role": "user", "content": "x"}],
        "max_completion_tokens": 9,
    }


async def test_quirks_change_what_is_sent() -> None:
    quirks = Quirks(
        max_tokens_field="max_completion_tokens", stop=False, parallel_tool_calls=True
    )
    request = Request(
        Conversation.of("x"), (ADD,), sampling=Sampling(max_tokens=9, stop=("END",))
    )

    assert await asked(request, quirks=quirks) == {
        "model": "small",
        "messages": [{"role": "user", "content": "x"}],
        "max_completion_tokens": 9,
        "tools": [ADD_WIRE],
        "parallel_tool_calls": True,
    }


class Street(BaseModel):
    name: str


class City(BaseModel):
    """A place."""

    streets: list[Street]
    twin: str | None


class Draft(BaseModel):
    title: str = "untitled"


async def response_format(output: OutputSchema) -> JsonValue:
    body = await asked(Request(Conversation.of("x"), schema=output))
    assert isinstance(body, dict)
    return body["response_format"]


async def test_a_schema_that_strict_mode_can_say_is_sent_with_every_object_closed() -> (
    None
):
    assert await response_format(OutputSchema("a city!", City.model_json_schema())) == {
        "type": "json_schema",
        "json_schema": {
            "name": "a_city_",
            "strict": True,
            "schema": {
                "$defs": {
                    "Street": {
                        "properties": {"name": {"title": "Name", "type": "string"}},
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


@pytest.mark.parametrize(
    "schema",
    [
        Draft.model_json_schema(),  # an optional property
        {
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": {"type": "string"},
        },
        {"type": "object"},
        {"type": "object", "properties": {"a": True}, "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 1}},
            "required": ["a"],
        },
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/b", "title": "A"}},
            "required": ["a"],
        },
        {"type": "array", "items": {"type": "string"}},
    ],
)
async def test_any_other_schema_is_sent_as_it_is(schema: dict[str, JsonValue]) -> None:
    assert await response_format(OutputSchema("thing", schema)) == {
        "type": "json_schema",
        "json_schema": {"name": "thing", "strict": False, "schema": schema},
    }


async def test_each_message_and_tool_is_encoded_once() -> None:
    request = Request(Conversation.of("x"), (ADD,))
    provider = Endpoint(choice({"content": "hi"})).provider()
    await provider.complete(request)
    first = request.conversation.messages[0]
    kept = [dict(vars(value)["_encoded"]) for value in (first, ADD)]

    await provider.complete(Request(request.conversation.user("y"), (ADD,)))

    assert [dict(vars(value)["_encoded"]) for value in (first, ADD)] == kept


async def test_what_the_quirks_rule_out_is_refused_before_anything_is_sent() -> None:
    endpoint = Endpoint(choice({"content": "hi"}))
    provider = endpoint.provider(quirks=Quirks(native_tools=False))

    with pytest.raises(ProviderError, match="wrap the provider in TextTools"):
        await provider.complete(Request(Conversation.of("x"), (ADD,)))
    with pytest.raises(ProviderError, match="takes no JSON schema"):
        await provider.complete(
            Request(Conversation.of("x"), schema=OutputSchema("n", {}))
        )
    assert endpoint.asked == []


async def test_a_request_that_is_no_json_is_a_provider_error() -> None:
    unwritable = ToolSpec("odd", "", {"default": object()})  # type: ignore[dict-item]

    with pytest.raises(ProviderError, match="cannot be written as JSON") as caught:
        await (
            Endpoint(choice({}))
            .provider()
            .complete(Request(Conversation.of("x"), (unwritable,)))
        )

    assert not caught.value.retryable


# How replies are read


@pytest.mark.parametrize(
    "content",
    [
        "It is 5.",
        [
            {"type": "text", "text": "It is "},
            {"type": "image"},
            {"type": "text", "text": "5."},
        ],
    ],
)
async def test_a_text_is_the_answer(content: JsonValue) -> None:
    completion = await complete(
        choice(
            {"role": "assistant", "content": content}, model="small-2", extra={"a": [1]}
        )
    )

    assert completion == Completion(
        "It is 5.", answer="It is 5.", finish_reason="stop", model="small-2"
    )


@pytest.mark.parametrize("arguments", ['{"a": 2}', {"a": 2}])
async def test_calls_are_calls_and_the_text_beside_them_is_a_thought(
    arguments: JsonValue,
) -> None:
    answer = called(
        {"name": "add", "arguments": arguments},
        {"name": "nop", "arguments": "{}"},
        content="I add.",
    )

    assert await complete(answer) == Completion(
        "I add.",
        calls=(ToolCall("add", {"a": 2}, "c0"), ToolCall("nop", {}, "c1")),
        finish_reason="tool_calls",
        thought="I add.",
    )


@pytest.mark.parametrize("id_given", [{}, {"id": None}, {"id": ""}])
async def test_a_call_without_an_id_is_a_call(id_given: dict[str, JsonValue]) -> None:
    call = {**id_given, "function": {"name": "add", "arguments": "{}"}}

    completion = await complete(choice({"tool_calls": [call, call]}, None))

    assert completion == Completion(
        calls=(ToolCall("add", {}), ToolCall("add", {})), finish_reason="tool_calls"
    )


async def test_a_number_serves_as_the_id_of_a_call() -> None:
    completion = await complete(
        choice(
            {"tool_calls": [{"id": 7, "function": {"name": "add", "arguments": "{}"}}]}
        )
    )

    assert [call.id for call in completion.calls] == ["7"]


@pytest.mark.parametrize("written", [{}, {"arguments": None}, {"arguments": ""}])
async def test_absent_arguments_are_an_empty_object(written: JsonObject) -> None:
    completion = await complete(called({"name": "now", **written}))

    assert completion.calls == (ToolCall("now", {}, "c0"),)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (
            {"name": "add", "arguments": '{"a": 2'},
            "arguments of the call of 'add' are not valid JSON: ",
        ),
        (
            {"name": "add", "arguments": '{"a": 1, "a": 2}'},
            "arguments of the call of 'add' are not valid JSON: ",
        ),
        (
            {"name": "add", "arguments": '{"a": NaN}'},
            "arguments of the call of 'add' are not valid JSON: ",
        ),
        (
            {"name": "add", "arguments": '{"a": 1e999}'},
            "arguments of the call of 'add' are not valid JSON: ",
        ),
        (
            {"name": "add", "arguments": '{"a": "\\ud800"}'},
            "arguments of the call of 'add' are not valid JSON: ",
        ),
        (
            {"name": "add", "arguments": "[" * 100_000},
            "arguments of the call of 'add' are not valid JSON: ",
        ),
        (
            {"name": "add", "arguments": "[2]"},
            "arguments of the call of 'add' are not a JSON object",
        ),
        ({"name": "", "arguments": "{}"}, "no function name"),
        (None, "no function name"),
    ],
)
async def test_a_call_that_cannot_be_read_is_a_problem_and_no_call_of_that_turn_is_made(
    function: JsonValue, problem: str
) -> None:
    completion = await complete(
        called({"name": "nop", "arguments": "{}"}, function, content="Hm.")
    )

    assert (completion.calls, completion.answer, completion.text) == ((), None, "Hm.")
    assert problem in (completion.problem or "")


@pytest.mark.parametrize(
    "twice", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"b": {"a": 1, "a": 1}}']
)
async def test_arguments_given_as_an_object_are_read_as_strictly(twice: str) -> None:
    body = called({"name": "pay", "arguments": "HERE"}).content.replace(
        b'"HERE"', twice.encode()
    )

    completion = await complete(httpx.Response(200, content=body))

    assert (completion.calls, completion.answer) == ((), None)
    assert "'pay' are not valid JSON" in (completion.problem or "")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            called({"name": "pay", "arguments": '{"to":'}, finish_reason="length"),
            "cut in a call of 'pay'; nothing was run",
        ),
        (
            called({"name": "pay", "arguments": "{}"}, finish_reason="length"),
            "cut in a call of 'pay'; nothing was run",
        ),
        (choice({"content": "The answer is 4"}, "length"), "cut before its end"),
        (choice({"content": None}, "length"), "cut before its end"),
        (choice({"content": ""}), "empty"),
        (choice({"content": " \n"}), "empty"),
        (choice({"content": None, "tool_calls": []}), "empty"),
        (choice({"reasoning_content": "Let me see"}), "empty"),
    ],
)
async def test_a_cut_or_empty_reply_is_a_problem_never_an_answer(
    answer: httpx.Response, problem: str
) -> None:
    completion = await complete(answer)

    assert (completion.calls, completion.answer) == ((), None)
    assert problem in (completion.problem or "")


@pytest.mark.parametrize(
    ("message", "finish_reason", "text"),
    [
        (
            {"content": None, "refusal": "I cannot help with that."},
            "stop",
            "small refused: I cannot help with that.",
        ),
        (
            {"content": [{"type": "refusal", "refusal": "No."}]},
            "stop",
            "small refused: No.",
        ),
        (
            {"content": "Half a"},
            "content_filter",
            "small was stopped by a content filter: Half a",
        ),
        (
            {"content": None},
            "content_filter",
            "small was stopped by a content filter: no text",
        ),
    ],
)
async def test_refusal_raises_an_error_with_its_text(
    message: JsonValue, finish_reason: str, text: str
) -> None:
    error = await failure(choice(message, finish_reason))

    assert (str(error), error.retryable, type(error)) == (text, False, ProviderError)


@pytest.mark.parametrize("finish_reason", ["error", "abort"])
async def test_half_a_reply_of_a_server_that_broke_down_is_no_answer(
    finish_reason: str,
) -> None:
    error = await failure(choice({"content": "The answer is"}, finish_reason))

    assert (str(error), error.retryable) == (
        f"{URL}: small broke down in the middle of its reply",
        True,
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({}, Usage()),
        ({"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": 3}, Usage(0, 3)),
        (
            {
                "prompt_tokens": 1000,
                "completion_tokens": 50,
                "prompt_tokens_details": {
                    "cached_tokens": 900,
                    "cache_write_tokens": 10,
                    "audio_tokens": 0,
                },
                "completion_tokens_details": {
                    "reasoning_tokens": 40,
                    "accepted_prediction_tokens": 0,
                },
                "cost": 0.0125,
            },
            Usage(1000, 50, 900, 10, 40, 0.0125),
        ),
        (
            {
                "prompt_tokens": 7,
                "prompt_tokens_details": None,
                "completion_tokens_details": {},
            },
            Usage(7),
        ),
        ({"prompt_tokens": -1, "completion_tokens": 3}, Usage()),
        ({"prompt_tokens": "many"}, Usage()),
        ("none", Usage()),
    ],
)
async def test_usage_is_what_the_server_counted_and_unknown_where_it_did_not(
    usage: JsonValue, expected: Usage
) -> None:
    assert (await complete(choice({"content": "hi"}, usage=usage))).usage == expected


async def test_a_problem_costs_tokens_too() -> None:
    completion = await complete(
        choice({"content": ""}, usage={"prompt_tokens": 5, "completion_tokens": 1})
    )

    assert completion.usage == Usage(5, 1)


# Failures


NO_COMPLETIONS = [
    b"<html>Bad gateway</html>",
    b"",
    b"null",
    b"[]",
    b'"hi"',
    b"{}",
    b'{"ch',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"choices": []}',
    b'{"choices": null}',
    b'{"choices": [{}]}',
    b'{"choices": [{"message": null}]}',
    b'{"choices": [{"message": {"content": {}}}]}',
    b'{"choices": [{"message": {"content": "\\ud800"}}]}',
    b'{"error": "overloaded"}',
]


@pytest.mark.parametrize("body", NO_COMPLETIONS)
async def test_unreadable_reply_raises_with_url_status_and_excerpt(
    body: bytes,
) -> None:
    error = await failure(
        httpx.Response(200, content=body, headers={"content-type": "text/html"})
    )

    shown = body[:200].decode(errors="replace") or "an empty body"
    assert (
        str(error)
        == f"{URL} answered with status 200 and no Chat Completions reply (text/html): {shown}"
    )
    assert (error.status, error.retryable) == (200, False)


async def test_a_gateway_that_hides_an_error_in_a_200_is_found_out() -> None:
    error = await failure(
        httpx.Response(
            200, json={"error": {"code": 502, "message": "upstream is down"}}
        )
    )

    assert (
        str(error) == f"{URL}: the call of small failed (status 502): upstream is down"
    )
    assert (error.status, error.retryable) == (502, True)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_busy_or_broken_server_is_worth_another_try(status: int) -> None:
    error = await failure(
        httpx.Response(
            status, json={"error": {"message": "wait"}}, headers={"retry-after": "2"}
        )
    )

    assert (error.status, error.retryable, error.retry_after) == (status, True, 2.0)


@pytest.mark.parametrize("status", [400, 402, 404, 413, 422, 101])
async def test_a_bad_request_is_not_worth_another_try(status: int) -> None:
    error = await failure(httpx.Response(status, text="no"))

    assert (type(error), error.status, error.retryable, error.retry_after) == (
        ProviderError,
        status,
        False,
        None,
    )


async def test_the_server_may_say_whether_to_retry() -> None:
    no = await failure(httpx.Response(503, headers={"x-should-retry": "false"}))
    yes = await failure(
        httpx.Response(400, headers={"x-should-retry": "true", "retry-after-ms": "50"})
    )

    assert (no.retryable, yes.retryable, yes.retry_after) == (False, True, 0.05)


@pytest.mark.parametrize(
    "body",
    [
        {
            "error": {
                "code": "context_length_exceeded",
                "message": "Please reduce the length.",
            }
        },
        {
            "error": {
                "code": 400,
                "type": "exceed_context_size_error",
                "message": "request (5000 tokens)",
            }
        },
        {
            "error": {
                "message": "This model's maximum context length is 4096 tokens.",
                "type": "BadRequestError",
            }
        },
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens.",
            "code": 400,
        },
        {"error": "the request exceeds the available context size, try increasing it"},
    ],
)
async def test_conversation_that_does_not_fit_raises_context_too_long(
    body: JsonValue,
) -> None:
    error = await failure(httpx.Response(400, json=body))

    assert (type(error), error.status, error.retryable) == (ContextTooLong, 400, False)


async def test_a_bad_request_that_mentions_tokens_is_not_a_too_long_conversation() -> (
    None
):
    message = "max_tokens is too large: 99999. This model supports at most 4096 completion tokens"

    assert (
        type(await failure(httpx.Response(400, json={"error": {"message": message}})))
        is ProviderError
    )


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_not_accepted_is_named_by_its_variable_only(
    status: int,
) -> None:
    error = await failure(
        httpx.Response(
            status, json={"error": {"message": f"Incorrect API key provided: {KEY}."}}
        )
    )

    assert str(error) == (
        f"{URL}: the API key was not accepted, check OPENAI_API_KEY or api_key (status {status}): "
        "Incorrect API key provided: ***."
    )


async def test_missing_key_is_reported_as_missing() -> None:
    error = await failure(
        httpx.Response(401, json={"detail": "Unauthorized"}), api_key=""
    )

    assert (
        str(error)
        == f"{URL}: no API key was given, set OPENAI_API_KEY or pass api_key (status 401): Unauthorized"
    )


async def test_an_unknown_model_or_path_names_both() -> None:
    error = await failure(httpx.Response(404, text="404 page not found"))

    assert "no model 'small' here" in str(error)
    assert URL in str(error)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (httpx.ConnectError("refused"), ProviderError),
        (httpx.ReadTimeout("late"), ProviderTimeout),
    ],
)
async def test_an_endpoint_that_is_down_or_silent_is_named(
    raised: Exception, kind: type[ProviderError]
) -> None:
    error = await failure(raised)

    assert (type(error), error.retryable) == (kind, True)
    assert URL in str(error)


# Where the key does not go


async def test_an_error_of_any_kind_holds_the_key_nowhere() -> None:
    echo = f"you sent Bearer {KEY}"
    answers: list[httpx.Response | Exception] = [
        httpx.Response(500, text=echo),
        httpx.Response(401, json={"error": {"message": echo}}),
        httpx.Response(200, text=echo),
        httpx.Response(200, json={"error": {"message": echo, "code": 500}}),
        httpx.Response(302, headers={"location": f"http://x/{KEY}"}),
        httpx.ConnectError(echo),
    ]
    for answer in answers:
        error = await failure(answer)
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        ours = [
            frame.locals for frame in shown.stack if "src/loopwright" in frame.filename
        ]
        assert ours
        assert KEY not in f"{error} {error!r} {vars(error)} {ours}"
        assert (error.__cause__, error.__context__) == (None, None)


@pytest.mark.parametrize("key", [KEY, SecretStr(KEY)])
def test_a_provider_shows_its_model_and_endpoint_but_not_its_key(
    key: str | SecretStr,
) -> None:
    provider = OpenAIProvider("small", base_url="http://localhost:9999/v1", api_key=key)

    assert (
        repr(provider) == "OpenAIProvider('small', base_url='http://localhost:9999/v1')"
    )
    assert KEY not in f"{provider} {vars(provider)}"
    for copies in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copies(provider)  # type: ignore[operator]


@pytest.mark.parametrize(
    "options", [{"model": ""}, {"base_url": "nowhere"}, {"api_key": KEY + "\n" + KEY}]
)
def test_a_bad_option_shows_no_key_either(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIProvider(**{"model": "small", "api_key": KEY, **options})  # type: ignore[arg-type]

    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    ours = [frame.locals for frame in shown.stack if "src/loopwright" in frame.filename]
    assert ours
    assert KEY not in f"{caught.value} {ours}"


# How it is set up


def test_openai_itself_wants_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^api_key: .*set OPENAI_API_KEY"):
        OpenAIProvider("gpt-4.1-mini")
    with pytest.raises(ConfigError, match=r"^api_key: "):
        OpenAIProvider(
            "gpt-4.1-mini", base_url="https://api.openai.com/v1/", api_key=" "
        )

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    provider: Provider = OpenAIProvider("gpt-4.1-mini")

    assert (provider.name, provider.model) == ("openai", "gpt-4.1-mini")
    assert provider.capabilities == Capabilities(
        native_tools=True,
        json_schema=True,
        stop=True,
        schema_with_tools=True,
        context_tokens=1_047_576,
        max_output_tokens=32_768,
        images=True,
        documents=True,
        max_samples=128,
    )


async def test_another_endpoint_wants_no_key_and_is_sent_none() -> None:
    endpoint = Endpoint(choice({"content": "hi"}))

    await endpoint.provider(api_key=None).complete(HELLO)

    assert "authorization" not in endpoint.route.calls[0].request.headers


async def test_a_line_break_around_the_key_is_taken_off() -> None:
    endpoint = Endpoint(choice({"content": "hi"}))

    await endpoint.provider(api_key=f" {KEY}\n").complete(HELLO)

    assert endpoint.route.calls[0].request.headers["authorization"] == f"Bearer {KEY}"


async def test_the_environment_describes_a_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="OPENAI_MODEL"):
        OpenAIProvider.from_env()
    monkeypatch.setenv("OPENAI_MODEL", "tiny")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://10.0.0.7:8000/v1")

    assert (
        repr(OpenAIProvider.from_env())
        == "OpenAIProvider('tiny', base_url='http://10.0.0.7:8000/v1')"
    )
    assert OpenAIProvider.from_env("large").model == "large"


@pytest.mark.parametrize(
    ("base_url", "name", "quirks"),
    [
        ("https://api.openai.com/v1", "openai", OPENAI),
        ("https://openrouter.ai/api/v1", "openrouter.ai", OPENROUTER),
        ("http://localhost:11434/v1", "localhost:11434", OLLAMA),
        ("http://127.0.0.1:8080/v1", "127.0.0.1:8080", LLAMACPP),
        ("http://[::1]:8080/v1", "[::1]:8080", LLAMACPP),
        (
            "http://localhost:9999/v1",
            "localhost:9999",
            Quirks(
                json_schema=True, any_root=True, stream_usage=True, context_tokens=None
            ),
        ),
        ("http://10.0.0.7:8000/v1", "10.0.0.7:8000", Quirks()),
    ],
)
def test_name_and_quirks_are_taken_from_the_url(
    base_url: str, name: str, quirks: Quirks
) -> None:
    provider = OpenAIProvider("small", base_url=base_url, api_key=KEY)

    assert (provider.name, Quirks.guess(base_url)) == (name, quirks)
    assert provider.capabilities.json_schema == quirks.json_schema


async def test_over_its_own_connections_it_says_the_same() -> None:
    with respx.mock(base_url="http://localhost:9999") as router:
        router.post("/v1/chat/completions").mock(return_value=choice({"content": "hi"}))
        provider = OpenAIProvider("small", base_url="http://localhost:9999/v1")

        assert (await provider.complete(HELLO)).answer == "hi"
        await provider.aclose()


# Whatever a server sends

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)


def shaped_like(
    names: dict[str, st.SearchStrategy[JsonValue]],
) -> st.SearchStrategy[JsonValue]:
    """Objects with these fields, any of which may be missing or anything at all."""
    return st.fixed_dictionaries(
        {}, optional={name: value | JSON for name, value in names.items()}
    )


TEXT = st.none() | st.text(max_size=20)
CALL = shaped_like(
    {
        "id": TEXT,
        "function": shaped_like(
            {"name": TEXT, "arguments": st.sampled_from(["{}", "{", '{"a":1}'])}
        ),
    }
)
MESSAGE = shaped_like(
    {"content": TEXT, "refusal": TEXT, "tool_calls": st.lists(CALL, max_size=3)}
)
CHOICE = shaped_like(
    {
        "message": MESSAGE,
        "finish_reason": st.sampled_from(["stop", "length", "tool_calls", None]),
    }
)
REPLY = shaped_like(
    {
        "choices": st.lists(CHOICE, max_size=2),
        "usage": JSON,
        "error": JSON,
        "model": TEXT,
    }
)


def told(completion: Completion) -> int:
    return sum(
        [
            bool(completion.calls),
            completion.answer is not None,
            completion.problem is not None,
        ]
    )


@given(reply=REPLY | JSON, status=st.sampled_from([200, 200, 200, 400, 500]))
async def test_any_json_is_a_completion_or_a_provider_error(
    reply: JsonValue, status: int
) -> None:
    try:
        completion = await complete(httpx.Response(status, content=json.dumps(reply)))
    except ProviderError:
        return

    assert told(completion) == 1


@given(body=st.binary(max_size=60), status=st.sampled_from([200, 418, 500]))
async def test_any_bytes_are_a_provider_error(body: bytes, status: int) -> None:
    with pytest.raises(ProviderError):
        await complete(httpx.Response(status, content=body))


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
async def test_any_text_comes_back_as_it_was_sent(text: str) -> None:
    completion = await complete(choice({"content": text}))

    assert completion.answer == (text if text.strip() else None)
