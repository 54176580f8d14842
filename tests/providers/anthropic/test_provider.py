"""The Messages API: how replies are read, which errors failures raise, where the key never appears, and the options."""

import copy
import json
import pickle
import traceback
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, SecretStr

from loopwright.errors import (
    ConfigError,
    ContextTooLong,
    ProviderError,
    ProviderTimeout,
)
from loopwright.messages import Completion, Conversation, Reasoning, ToolCall, Usage
from loopwright.plugins import build_provider
from loopwright.providers import Capabilities, Provider, Request
from loopwright.providers.anthropic import AnthropicProvider, MessagesQuirks
from messages_server import KEY, Answer, exchange, said, serving, text

HELLO = Request(Conversation.of("Hello"))
HI = Answer.json(said(text("hi")))
SIGNED: dict[str, JsonValue] = {
    "type": "thinking",
    "thinking": "Hm.",
    "signature": "sig==",
}

NEWEST = MessagesQuirks(sampling=False, json_schema=True, effort=True)


def use(
    name: object = "add", given: object = None, **fields: object
) -> dict[str, object]:
    return {
        "type": "tool_use",
        "id": "t1",
        "name": name,
        "input": {} if given is None else given,
        **fields,
    }


async def complete(answer: Answer | dict[str, object], **options: Any) -> Completion:
    return (
        await exchange(
            answer if isinstance(answer, Answer) else Answer.json(answer),
            HELLO,
            **options,
        )
    )[0]


async def failure(answer: Answer | dict[str, object], **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await complete(answer, **options)
    return caught.value


# How replies are read


async def test_a_text_is_the_answer_whatever_blocks_it_comes_in() -> None:
    reply = said(
        text("It is "),
        {"type": "server_tool_use", "x": [1]},
        text("5."),
        model="claude-2",
        stop_details=None,
    )

    assert await complete(reply) == Completion(
        "It is 5.", answer="It is 5.", model="claude-2"
    )


async def test_calls_are_calls_and_the_text_beside_them_is_a_thought() -> None:
    reply = said(
        SIGNED,
        text("I add."),
        use("add", {"b": 1, "a": 2}),
        use("nop", id="t2"),
        stop_reason="tool_use",
    )

    completion = await complete(reply)

    assert completion == Completion(
        "I add.",
        calls=(ToolCall("add", {"a": 2, "b": 1}, "t1"), ToolCall("nop", {}, "t2")),
        finish_reason="tool_calls",
        thought="I add.",
        reasoning=(Reasoning("Hm.", "thinking", SIGNED),),
    )
    assert list(completion.calls[0].arguments) == ["b", "a"]


async def test_thinking_goes_back_with_fields_that_this_library_does_not_know() -> None:
    block: dict[str, JsonValue] = {
        "type": "thinking",
        "thinking": "Hm.",
        "signature": "s",
        "new": {"a": [1, None]},
    }

    completion = await complete(said(block, text("Yes.")))

    assert [thought.block for thought in completion.reasoning] == [block]


@pytest.mark.parametrize(
    ("stop_reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        (None, "stop"),
        ("something_new", "something_new"),
    ],
)
async def test_an_end_of_its_own_is_an_answer(stop_reason: object, finish: str) -> None:
    completion = await complete(said(text("Yes."), stop_reason=stop_reason))

    assert (completion.answer, completion.finish_reason, completion.is_cut) == (
        "Yes.",
        finish,
        False,
    )


async def test_calls_of_a_gateway_that_does_not_say_why_it_stopped_are_calls() -> None:
    completion = await complete(said(use(), stop_reason=None))

    assert (completion.calls, completion.finish_reason) == (
        (ToolCall("add", {}, "t1"),),
        "tool_calls",
    )


@pytest.mark.parametrize(
    ("reply", "problem", "finish"),
    [
        (
            said(use("pay", {"to": "x"}), stop_reason="max_tokens"),
            "cut in a call of 'pay'; nothing was run",
            "length",
        ),
        (
            said(text("The answer is 4"), stop_reason="max_tokens"),
            "cut before its end",
            "length",
        ),
        (said(stop_reason="max_tokens"), "cut before its end", "length"),
        (
            said(text("The"), stop_reason="model_context_window_exceeded"),
            "filled the model's context window and was cut before its end",
            "length",
        ),
        (
            said(text("I search"), stop_reason="pause_turn"),
            "was paused by the server before its end",
            "length",
        ),
        (said(), "empty", "stop"),
        (said(text(" \n")), "empty", "stop"),
        (said(SIGNED), "empty", "stop"),
    ],
)
async def test_a_cut_or_empty_reply_is_a_problem_never_an_answer(
    reply: dict[str, object], problem: str, finish: str
) -> None:
    completion = await complete(reply)

    assert (completion.calls, completion.answer, completion.finish_reason) == (
        (),
        None,
        finish,
    )
    assert problem in (completion.problem or "")


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (use(None), "no tool name"),
        (use(""), "no tool name"),
        (use("add", [2]), "arguments of the call of 'add' are not a JSON object"),
        (use("add", "2"), "arguments of the call of 'add' are not a JSON object"),
        (
            {"type": "tool_use", "name": "add"},
            "arguments of the call of 'add' are not a JSON object",
        ),
        (
            use("add", {"a": [[[]]] * 2 and "x" * 300_000}),
            "arguments of the call of 'add' are not valid JSON",
        ),
    ],
)
async def test_a_call_that_cannot_be_read_is_a_problem_and_no_call_of_that_turn_is_made(
    block: object, problem: str
) -> None:
    completion = await complete(
        said(text("Hm."), use("nop"), block, stop_reason="tool_use")
    )

    assert (completion.calls, completion.answer, completion.text) == ((), None, "Hm.")
    assert problem in (completion.problem or "")


@pytest.mark.parametrize(
    "twice",
    ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', '{"b": {"a": 1, "a": 1}}'],
)
async def test_arguments_are_read_strictly(twice: str) -> None:
    body = json.dumps(said(use("pay", "HERE"), stop_reason="tool_use")).replace(
        '"HERE"', twice
    )

    completion = await complete(Answer(body.encode()))

    assert (completion.calls, completion.answer) == ((), None)
    assert "'pay' are not valid JSON" in (completion.problem or "")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({}, Usage()),
        ({"input_tokens": 0, "output_tokens": 3}, Usage(0, 3)),
        (
            {
                "input_tokens": 21,
                "cache_creation_input_tokens": 100,
                "cache_read_input_tokens": 1900,
                "output_tokens": 50,
                "output_tokens_details": {"thinking_tokens": 40},
                "service_tier": "standard",
            },
            Usage(2021, 50, 1900, 100, 40),
        ),
        ({"input_tokens": 7, "cache_read_input_tokens": None}, Usage(7)),
        ({"cache_read_input_tokens": 5, "output_tokens": 1}, Usage(None, 1, 5)),
        ({"input_tokens": -1, "output_tokens": 3}, Usage()),
        ("none", Usage()),
    ],
)
async def test_usage_is_the_whole_input_and_unknown_where_the_server_does_not_say(
    usage: JsonValue, expected: Usage
) -> None:
    assert (await complete(said(text("hi"), usage=usage))).usage == expected


# Failures


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Bad gateway</html>",
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"con',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"content": null}',
        b'{"content": [{}]}',
        b'{"content": [{"type": "text", "text": {}}]}',
        b'{"content": [{"type": "text", "text": "\\ud800"}]}',
        b'{"choices": []}',
    ],
)
async def test_unreadable_reply_raises_with_url_status_and_excerpt(
    body: bytes,
) -> None:
    error = await failure(Answer(body, content_type="text/html"))

    shown = body[:200].decode(errors="replace") or "an empty body"
    assert str(error).endswith(
        f"/v1/messages answered with status 200 and no Messages reply (text/html): {shown}"
    )
    assert (error.status, error.retryable) == (200, False)


@pytest.mark.parametrize(
    ("kind", "status", "retryable"),
    [
        ("overloaded_error", 529, True),
        ("api_error", 500, True),
        ("invalid_request_error", 400, False),
    ],
)
async def test_an_error_that_a_gateway_hides_in_a_200_is_found_out(
    kind: str, status: int, retryable: bool
) -> None:
    error = await failure(
        {"type": "error", "error": {"type": kind, "message": "Told."}}
    )

    assert str(error).endswith(
        f"the call of claude-sonnet-4-5 failed (status {status}): Told."
    )
    assert (error.status, error.retryable) == (status, retryable)


def refused(kind: str, message: str) -> dict[str, object]:
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": "req_1",
    }


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_busy_or_broken_server_is_worth_another_try(status: int) -> None:
    error = await failure(
        Answer.json(refused("rate_limit_error", "wait"), status, "retry-after: 2")
    )

    assert (error.status, error.retryable, error.retry_after) == (status, True, 2.0)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
async def test_a_bad_request_is_not_worth_another_try(status: int) -> None:
    error = await failure(Answer(b"no", status))

    assert (type(error), error.status, error.retryable, error.retry_after) == (
        ProviderError,
        status,
        False,
        None,
    )


async def test_the_server_may_say_whether_to_retry() -> None:
    no = await failure(Answer(b"", 503, headers=("x-should-retry: false",)))
    yes = await failure(
        Answer(b"", 400, headers=("x-should-retry: true", "retry-after-ms: 50"))
    )

    assert (no.retryable, yes.retryable, yes.retry_after) == (False, True, 0.05)


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (
            400,
            "invalid_request_error",
            "prompt is too long: 203456 tokens > 200000 maximum",
        ),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000",
        ),
        (413, "request_too_large", "Request exceeds the maximum size"),
    ],
)
async def test_conversation_that_does_not_fit_raises_context_too_long(
    status: int, kind: str, message: str
) -> None:
    error = await failure(Answer.json(refused(kind, message), status))

    assert (type(error), error.status, error.retryable) == (
        ContextTooLong,
        status,
        False,
    )
    assert message in str(error)


async def test_a_bad_request_that_mentions_tokens_is_not_a_too_long_conversation() -> (
    None
):
    message = "max_tokens: 99999 > 64000, which is the maximum allowed number of output tokens"

    assert (
        type(await failure(Answer.json(refused("invalid_request_error", message), 400)))
        is ProviderError
    )


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_not_accepted_is_named_by_its_variable_only(
    status: int,
) -> None:
    error = await failure(
        Answer.json(refused("authentication_error", f"invalid x-api-key {KEY}"), status)
    )

    assert str(error).partition("/v1/messages: ")[2] == (
        f"the API key was not accepted, check ANTHROPIC_API_KEY or api_key (status {status}): invalid x-api-key ***"
    )


async def test_missing_key_is_reported_as_missing() -> None:
    error = await failure(
        Answer.json(
            refused("authentication_error", "x-api-key header is required"), 401
        ),
        api_key="",
    )

    assert (
        "no API key was given, set ANTHROPIC_API_KEY or pass api_key (status 401): x-api-key"
        in str(error)
    )


async def test_an_unknown_model_or_path_names_both() -> None:
    error = await failure(
        Answer.json(refused("not_found_error", "model: claude-sonnet-4-5"), 404)
    )

    assert (
        "/v1/messages: no model 'claude-sonnet-4-5' here, or no Messages API: check model and base_url"
        in str(error)
    )


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
    error = await unanswered(raised)

    assert (type(error), error.retryable) == (kind, True)
    assert "http://localhost:9/v1/messages" in str(error)


async def unanswered(raised: Exception) -> ProviderError:
    def reply(_: httpx.Request) -> httpx.Response:
        raise raised

    client = httpx.AsyncClient(transport=httpx.MockTransport(reply))
    provider = AnthropicProvider(
        "claude", base_url="http://localhost:9", api_key=KEY, client=client
    )
    with pytest.raises(ProviderError) as caught:
        await provider.complete(HELLO)
    return caught.value


# Where the key does not go


async def test_an_error_of_any_kind_holds_the_key_nowhere() -> None:
    echo = f"you sent {KEY}"
    streamed = Answer.events(
        f"data: {json.dumps(refused('api_error', echo))}\n\n".encode()
    )
    errors = [
        await failure(Answer(echo.encode(), 500)),
        await failure(Answer.json(refused("authentication_error", echo), 401)),
        await failure(Answer(echo.encode())),
        await failure(Answer.json(refused("api_error", echo))),
        await failure(Answer(b"", 302, headers=(f"location: http://x/{KEY}",))),
        await unanswered(httpx.ConnectError(echo)),
        await in_a_stream(streamed),
        await in_a_stream(Answer.events(f"data: {echo}\n\n".encode())),
    ]
    for error in errors:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        ours = [
            frame.locals for frame in shown.stack if "src/loopwright" in frame.filename
        ]
        assert ours
        assert KEY not in f"{error} {error!r} {vars(error)} {ours}"
        assert (error.__cause__, error.__context__) == (None, None)


async def in_a_stream(answer: Answer) -> ProviderError:
    async with serving(answer) as server:
        provider = AnthropicProvider("claude", base_url=server.url, api_key=KEY)
        with pytest.raises(ProviderError) as caught:
            async for _ in provider.stream(HELLO):
                pass
        await provider.aclose()
        return caught.value


@pytest.mark.parametrize("key", [KEY, SecretStr(KEY)])
def test_a_provider_shows_its_model_and_endpoint_but_not_its_key(
    key: str | SecretStr,
) -> None:
    provider = AnthropicProvider(
        "claude", base_url="http://localhost:9999/v1", api_key=key
    )

    assert (
        repr(provider)
        == "AnthropicProvider('claude', base_url='http://localhost:9999/v1')"
    )
    assert KEY not in f"{provider} {vars(provider)}"
    for copies in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copies(provider)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"model": ""}, "model"),
        ({"base_url": "nowhere"}, "base_url"),
        ({"api_key": KEY + "\n" + KEY}, "x-api-key"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"thinking": 1000}, "thinking"),
        ({"thinking": True}, "thinking"),
        ({"thinking": "deep"}, "thinking"),
    ],
)
def test_a_bad_option_is_named_and_shows_no_key(
    options: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigError, match=field) as caught:
        AnthropicProvider(**{"model": "claude", "api_key": KEY, **options})

    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    ours = [frame.locals for frame in shown.stack if "src/loopwright" in frame.filename]
    assert ours
    assert KEY not in f"{caught.value} {ours}"


# How it is set up


def test_anthropic_itself_wants_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"^api_key: .*set ANTHROPIC_API_KEY"):
        AnthropicProvider("claude-sonnet-4-5")
    with pytest.raises(ConfigError, match=r"^api_key: "):
        AnthropicProvider(
            "claude-sonnet-4-5", base_url="https://api.anthropic.com/v1/", api_key=" "
        )

    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    provider: Provider = AnthropicProvider("claude-sonnet-4-5")

    assert (provider.name, provider.model) == ("anthropic", "claude-sonnet-4-5")
    assert provider.capabilities == Capabilities(
        native_tools=True,
        json_schema=True,
        stop=True,
        schema_with_tools=True,
        context_tokens=200_000,
        max_output_tokens=8192,
        images=True,
        documents=True,
        provider_tools=("web_search", "code_interpreter"),
    )
    assert (
        repr(provider)
        == "AnthropicProvider('claude-sonnet-4-5', base_url='https://api.anthropic.com')"
    )


async def test_another_endpoint_wants_no_key_and_is_sent_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)

    _, sent = await exchange(HI, HELLO, api_key=None)

    assert "x-api-key" not in sent.headers


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/v1/", "/v1/messages"),
        ("/anthropic", "/anthropic/v1/messages"),
        ("/anthropic/v1?version=2", "/anthropic/v1/messages?version=2"),
    ],
)
async def test_the_base_url_may_or_may_not_hold_the_version(
    path: str, line: str
) -> None:
    async with serving(HI) as server:
        provider = AnthropicProvider(
            "claude", base_url=server.url + path, api_key=f" {KEY}\n"
        )
        await provider.complete(HELLO)
        await provider.aclose()

    assert server.asked[0].line == f"POST {line} HTTP/1.1"
    assert server.asked[0].headers["x-api-key"] == KEY
    assert provider.name == server.url.removeprefix("http://")


def test_the_environment_describes_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_MODEL", raising=False)
    with pytest.raises(ConfigError, match="ANTHROPIC_MODEL"):
        AnthropicProvider.from_env()
    monkeypatch.setenv("ANTHROPIC_MODEL", "claude-haiku-4-5")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://10.0.0.7:8000/v1")

    assert (
        repr(AnthropicProvider.from_env())
        == "AnthropicProvider('claude-haiku-4-5', base_url='http://10.0.0.7:8000/v1')"
    )
    assert AnthropicProvider.from_env("large").model == "large"
    assert isinstance(build_provider("anthropic:claude-opus-4-1"), AnthropicProvider)


@pytest.mark.parametrize(
    ("model", "quirks"),
    [
        ("claude-3-7-sonnet-20250219", MessagesQuirks()),
        ("claude-opus-4-20250514", MessagesQuirks()),
        ("claude-opus-4-1", MessagesQuirks()),
        ("claude-sonnet-4-5-20250929", MessagesQuirks(json_schema=True)),
        ("claude-opus-4-6", MessagesQuirks(json_schema=True, effort=True)),
        ("claude-opus-4-7", NEWEST),
        ("claude-sonnet-5", NEWEST),
        ("claude-mythos-preview", NEWEST),
    ],
)
def test_quirks_are_taken_from_the_name_of_the_model(
    model: str, quirks: MessagesQuirks
) -> None:
    assert MessagesQuirks.guess("https://api.anthropic.com", model) == quirks
    assert MessagesQuirks.guess("http://localhost:8080", model) == MessagesQuirks(
        sampling=quirks.sampling, effort=quirks.effort
    )


def test_quirks_of_an_unknown_model_are_the_defaults() -> None:
    assert (
        MessagesQuirks.guess("https://api.z.ai/api/anthropic", "glm-5")
        == MessagesQuirks()
    )


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


KINDS = st.sampled_from(["text", "tool_use", "thinking", "redacted_thinking", "new"])
TEXT = st.none() | st.text(max_size=20)
BLOCK = shaped_like(
    {
        "type": KINDS,
        "text": TEXT,
        "name": TEXT,
        "id": TEXT,
        "input": JSON,
        "thinking": TEXT,
    }
)
REASONS = st.sampled_from(
    ["end_turn", "tool_use", "max_tokens", "pause_turn", "refusal", None, "new"]
)
REPLY = shaped_like(
    {
        "content": st.lists(BLOCK, max_size=3),
        "stop_reason": REASONS,
        "usage": JSON,
        "model": TEXT,
    }
)


async def through(status: int, body: bytes) -> Completion:
    client = httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(status, content=body))
    )
    return await AnthropicProvider(
        "claude", base_url="http://localhost:9", client=client
    ).complete(HELLO)


@given(reply=REPLY | JSON, status=st.sampled_from([200, 200, 200, 400, 500]))
async def test_any_json_is_a_completion_or_a_provider_error(
    reply: JsonValue, status: int
) -> None:
    try:
        completion = await through(status, json.dumps(reply).encode())
    except ProviderError:
        return

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


@given(body=st.binary(max_size=60), status=st.sampled_from([200, 418, 500]))
async def test_any_bytes_are_a_provider_error(body: bytes, status: int) -> None:
    with pytest.raises(ProviderError):
        await through(status, body)
