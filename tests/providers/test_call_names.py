"""Calls go to each API with ids and names that it takes, whoever made them, and come from it with sound arguments."""

import json
import re
from typing import Any

import pytest

from loopback_api import JSON, ApiHandler, serving
from loopwright import ReActEngine, Result, Runtime, Tool, tool
from loopwright.messages import Conversation, Message, ToolCall
from loopwright.providers import (
    AnthropicProvider,
    BedrockProvider,
    Delta,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Request,
)
from loopwright.providers.call_names import fit_name
from loopwright.providers.openai.quirks import MISTRAL, OPENAI
from loopwright.testing import ScriptedProvider, call

KEY = "sk-for-the-tests-0123456789"
PLAIN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
VLLM_ID = "chatcmpl-tool-8ac1ef6e6a6d4b7c9a3b2f1e0d9c8b7a"  # 46 characters


def make_chat(url: str) -> Any:
    return OpenAIProvider("gpt-4.1", base_url=url, api_key=KEY, quirks=OPENAI)


def make_mistral(url: str) -> Any:
    return OpenAIProvider("mistral-large", base_url=url, api_key=KEY, quirks=MISTRAL)


def make_responses(url: str) -> Any:
    return OpenAIResponsesProvider("gpt-5.2", base_url=url, api_key=KEY)


def make_claude(url: str) -> Any:
    return AnthropicProvider("claude-sonnet-4-5", base_url=url, api_key=KEY)


def make_gemini(url: str) -> Any:
    return GeminiProvider("gemini-3-pro-preview", base_url=url, api_key=KEY)


def make_bedrock(url: str) -> Any:
    pytest.importorskip("botocore")
    model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    return BedrockProvider(model, base_url=url, region="us-east-1", api_key=KEY)


def write_chat(text: str, name: str) -> Any:
    function = {"name": name, "arguments": '{"q": "lamp"}'}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    message = {"content": text or None, "tool_calls": calls if name else None}
    return {"choices": [{"message": message}]}


def write_responses(text: str, name: str) -> Any:
    call = {"type": "function_call", "call_id": "c", "name": name, "arguments": '{"q": "lamp"}'}  # fmt: skip
    said = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    return {"status": "completed", "output": [call if name else said]}


def write_claude(text: str, name: str) -> Any:
    call = {"type": "tool_use", "id": "t", "name": name, "input": {"q": "lamp"}}
    said = {"type": "text", "text": text}
    return {"content": [call if name else said], "stop_reason": None}


def write_gemini(text: str, name: str) -> Any:
    call = {"functionCall": {"name": name, "args": {"q": "lamp"}}}
    content = {"parts": [call if name else {"text": text}]}
    return {"candidates": [{"content": content, "finishReason": "STOP"}]}


def write_bedrock(text: str, name: str) -> Any:
    call = {"toolUse": {"toolUseId": "t", "name": name, "input": {"q": "lamp"}}}
    message = {"content": [call if name else {"text": text}]}
    stop = "tool_use" if name else "end_turn"
    return {"output": {"message": message}, "stopReason": stop}


APIS = {
    "chat": (make_chat, write_chat),
    "mistral": (make_mistral, write_chat),
    "responses": (make_responses, write_responses),
    "claude": (make_claude, write_claude),
    "gemini": (make_gemini, write_gemini),
    "bedrock": (make_bedrock, write_bedrock),
}


def make_handler(write: Any, bodies: list[Any], *names: str) -> type[ApiHandler]:
    """Return a server that calls tools of these names, one in each reply, and then answers."""
    left = list(names)

    class Handler(ApiHandler):
        def answer(self, body: bytes) -> tuple[int, str, bytes]:
            bodies.append(json.loads(body))
            reply = write("", left.pop(0)) if left else write("Done.", "")
            return 200, JSON, json.dumps(reply).encode()

    return Handler


def find(value: Any, *keys: str) -> list[Any]:
    """Return what stands under these keys, at any depth, in order."""
    if isinstance(value, list):
        return [found for one in value for found in find(one, *keys)]
    if not isinstance(value, dict):
        return []
    own = [inner for key, inner in value.items() if key in keys]
    return own + [found for one in value.values() for found in find(one, *keys)]


def list_history(body: Any) -> Any:
    return body.get("messages") or body.get("input") or body["contents"]


def call_in_turns(*turns: tuple[str, str, str]) -> Conversation:
    """Return a conversation in which another model made one call in each turn: its id, its tool, the result."""
    messages = [Message("user", "Go.")]
    for call_id, name, result in turns:
        call = ToolCall(name, {"q": "1"}, call_id)
        messages.append(Message("assistant", "", (call,), origin="model"))
        messages.append(Message("tool", result, call_id=call_id, origin="tool"))
    return Conversation(messages)


async def ask(provider: Any, conversation: Conversation) -> None:
    await provider.complete(Request(conversation))
    await provider.aclose()


async def run(provider: Any, *tools: Tool) -> Result[str]:
    runtime = Runtime(provider, tools=tools)
    result = await ReActEngine(runtime).run("What is a lamp for?")
    await provider.aclose()
    return result


@pytest.mark.parametrize("api", APIS)
async def test_calls_of_another_model_have_ids_that_the_api_takes(api: str) -> None:
    make, write = APIS[api]
    bodies: list[Any] = []
    turns = (("functions.look:0", "look", "one"), (VLLM_ID, "look", "two"), ("call_9", "look", "three"))  # fmt: skip

    with serving(make_handler(write, bodies)) as url:
        await ask(make(url), call_in_turns(*turns))

    history = list_history(bodies[0])
    made = find(history, "id", "toolUseId", "call_id") if api != "gemini" else []
    results = find(history, "tool_call_id", "tool_use_id")
    rules = {"chat": r".{1,40}", "mistral": r"[a-zA-Z0-9]{9}", "responses": r".{1,64}"}
    rule = re.compile(rules.get(api, PLAIN.pattern))
    assert all(rule.fullmatch(one) for one in [*made, *results])
    if api in {"chat", "mistral", "claude"}:
        assert made == results
    elif api != "gemini":  # calls and results have one field
        assert made[::2] == made[1::2]


@pytest.mark.parametrize("api", ["responses", "claude", "bedrock"])
async def test_an_id_that_a_model_repeats_is_another_one_in_each_turn(api: str) -> None:
    make, write = APIS[api]
    bodies: list[Any] = []
    turns = (("call_0", "look", "one"), ("call_0", "clock", "two"))

    with serving(make_handler(write, bodies)) as url:
        await ask(make(url), call_in_turns(*turns))

    ids = find(list_history(bodies[0]), "id", "tool_use_id", "toolUseId", "call_id")
    assert ids == ["call_0", "call_0", "call_0_2", "call_0_2"]


async def test_gemini_reads_each_result_under_the_name_of_its_own_turn() -> None:
    bodies: list[Any] = []
    turns = (("call_0", "look", "one"), ("call_0", "clock", "two"))

    with serving(make_handler(write_gemini, bodies)) as url:
        await ask(make_gemini(url), call_in_turns(*turns))

    results = find(bodies[0]["contents"], "functionResponse")
    assert [one["name"] for one in results] == ["look", "clock"]


@pytest.mark.parametrize("api", APIS)
async def test_tools_with_other_names_are_sent_by_names_that_the_api_takes(
    api: str,
) -> None:
    asked: list[str] = []

    @tool(name="browser.look up", effect="read")
    def look_up(q: str) -> str:
        """Look a word up."""
        asked.append(q)
        return "it gives light"

    make, write = APIS[api]
    bodies: list[Any] = []
    handler = make_handler(write, bodies, "functions.search")
    with serving(handler) as url:
        result = await run(make(url), look_up)
    assert result.status == "completed"
    sent = set(find(bodies[0].get("tools", bodies[0].get("toolConfig")), "name"))
    names = sent | set(find(list_history(bodies[-1]), "name"))
    assert len(names) == 2
    assert all(map(PLAIN.fullmatch, names))

    [known] = sent
    with serving(make_handler(write, bodies, known)) as url:
        result = await run(make(url), look_up)
    assert (result.tool_calls, asked) == (1, ["lamp"])
    assert known in find(list_history(bodies[-1]), "name")


async def test_a_stream_shows_calls_by_the_name_of_their_tool() -> None:
    @tool(name="browser.open", effect="read")
    def open_page(q: str) -> str:
        """Open a page."""
        return "a page"

    def answer(request: Request) -> Any:
        done = any(message.role == "tool" for message in request.conversation)
        return "Done." if done else call(fit_name(request.tools[0].name), q="lamp")

    runtime = Runtime(ScriptedProvider(answer), tools=[open_page])
    async with ReActEngine(runtime).start("Look.", deltas=True) as handle:
        shown = [one async for one in handle if isinstance(one, Delta)]
        result = await handle.result()

    whole = [one.completion for one in shown if one.completion is not None]
    assert (result.tool_calls, whole[0].calls[0].name) == (1, "browser.open")


@pytest.mark.parametrize("name", ["3d.render", "3d_render", "-x", "", "9" * 90, "天气"])
def test_a_name_begins_with_a_letter_or_an_underscore_as_gemini_wants_it(
    name: str,
) -> None:
    assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", fit_name(name))
    assert fit_name(fit_name(name)) == fit_name(name)


@pytest.mark.parametrize("by", [fit_name, str], ids=["sent", "own"])
@pytest.mark.parametrize("is_quoted", [False, True], ids=["made", "quoted"])
async def test_a_call_as_text_may_have_the_name_that_the_model_was_given(
    by: Any, is_quoted: bool
) -> None:
    opened: list[str] = []

    @tool(name="browser.open", effect="read")
    def open_page(q: str) -> str:
        """Open a page."""
        opened.append(q)
        return "a page"

    def answer(request: Request) -> str:
        if any(message.role == "tool" for message in request.conversation):
            return "Done."
        return json.dumps({"name": by("browser.open"), "arguments": {"q": "lamp"}})

    task = "Summarise this: " + 'use \'{"name": "browser.open"}\' on lamp' * is_quoted
    result = await ReActEngine(
        Runtime(ScriptedProvider(answer), tools=[open_page])
    ).run(task)

    assert (result.tool_calls, opened) == ((0, []) if is_quoted else (1, ["lamp"]))


NONE = object()


@pytest.mark.parametrize("api", [one for one in APIS if one != "mistral"])
@pytest.mark.parametrize(
    ("given", "runs"),
    [(NONE, True), (None, True), ([1], False), ("all", False), (7, False)],
    ids=["absent", "null", "list", "text", "number"],
)
async def test_arguments_that_are_no_object_run_nothing_and_no_arguments_are_none(
    api: str, given: Any, runs: bool
) -> None:
    ran: list[str] = []

    @tool(effect="write")
    def wipe(q: str = "all") -> str:
        """Wipe a disk."""
        ran.append(q)
        return "wiped"

    make, write = APIS[api]
    field = {"gemini": "args", "claude": "input", "bedrock": "input"}.get(api)

    def write_given(text: str, name: str) -> Any:
        reply = write(text, name)
        [call] = find_calls(reply, field or "arguments")
        if given is NONE:
            del call[field or "arguments"]
        else:
            is_text = field is None and given is not None
            call[field or "arguments"] = json.dumps(given) if is_text else given
        return reply

    def choose(text: str, name: str) -> Any:
        return write_given(text, name) if name else write(text, name)

    with serving(make_handler(choose, [], "wipe")) as url:
        result = await run(make(url), wipe)

    # The Messages API always sends an input: without one, a reply is damaged.
    is_made = runs and not (api == "claude" and given in (NONE, None))
    assert (result.status, ran) == ("completed", ["all"] * is_made)


def find_calls(value: Any, field: str) -> list[dict[str, Any]]:
    """Return the objects in which that field is, at any depth."""
    if isinstance(value, list):
        return [found for one in value for found in find_calls(one, field)]
    if not isinstance(value, dict):
        return []
    if field in value:
        return [value]
    return [found for one in value.values() for found in find_calls(one, field)]
