"""A two-tool conversation with stand-ins for each API that enforce its vendor's rules."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from loopwright import Limits, ReActEngine, Runtime, Sampling, tool
from loopwright.engines.goal_forms import (
    decision_form,
    evaluation_form,
    input_form,
    plan_form,
    text_form,
)
from loopwright.messages import Conversation, Message, ToolCall
from loopwright.providers import (
    AnthropicProvider,
    BedrockProvider,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    OutputSchema,
    Provider,
    Quirks,
    Request,
)
from loopwright.providers.anthropic import MessagesQuirks
from loopwright.providers.openai.quirks import MISTRAL, OPENAI
from vendor_rules import (
    ANSWER,
    REPORT,
    Body,
    answer_bedrock,
    answer_chat,
    answer_claude,
    answer_gemini,
    answer_mistral,
    answer_responses,
    running,
)

Build = Callable[[str], Provider]


class Report(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


@tool(effect="read")
def weather(city: str) -> str:
    """Look the weather of a city up."""
    return "7 degrees"


@tool(effect="read")
def clock(city: str, zone: str = "") -> str:
    """Look the time of a city up."""
    return "9:41"


def responses(url: str) -> Provider:
    return OpenAIResponsesProvider("gpt-5.6", base_url=url, api_key="k")


def chat(url: str, quirks: Quirks = OPENAI, **options: Any) -> Provider:
    return OpenAIProvider(
        "gpt-4.1", base_url=url, api_key="k", quirks=quirks, **options
    )


def mistral(url: str) -> Provider:
    return chat(url, MISTRAL)


def claude(url: str) -> Provider:
    return AnthropicProvider(
        "claude-sonnet-4-5", base_url=url, api_key="k", thinking=2_048, max_tokens=8_192
    )


def gemini(url: str) -> Provider:
    return GeminiProvider("gemini-3-pro-preview", base_url=url, api_key="k")


def bedrock(url: str) -> Provider:
    return BedrockProvider(
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", region="us-east-1", base_url=url, api_key="k"
    )  # fmt: skip


def claude_with_schemas(url: str) -> Provider:
    return AnthropicProvider(
        "claude-sonnet-4-5", base_url=url, api_key="k", max_tokens=900, quirks=MessagesQuirks(json_schema=True)
    )  # fmt: skip


def bedrock_with_schemas(url: str) -> Provider:
    return BedrockProvider(
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", region="us-east-1", base_url=url, api_key="k", json_schema=True
    )  # fmt: skip


VENDORS: list[tuple[Build, Callable[[Body], Body]]] = [
    (responses, answer_responses),
    (chat, answer_chat),
    (mistral, answer_mistral),
    (claude, answer_claude),
    (gemini, answer_gemini),
    (bedrock, answer_bedrock),
]
every_vendor = pytest.mark.parametrize(
    ("build", "answer"), VENDORS, ids=[build.__name__ for build, _ in VENDORS]
)


async def run(provider: Provider, task: Any = "How is Oslo?", **options: Any) -> Any:
    runtime = Runtime(
        provider, tools=[weather, clock], limits=Limits(max_provider_wait=0)
    )
    async with runtime:
        return await ReActEngine(runtime).run(task, **options)


@every_vendor
async def test_two_tools_complete_where_the_rules_are_enforced(
    build: Build, answer: Callable[[Body], Body]
) -> None:
    async with running(answer) as vendor:
        result = await run(build(vendor.url))

    assert vendor.refusals == []
    assert (result.status, result.answer) == ("completed", ANSWER)
    assert (result.llm_calls, result.tool_calls) == (3, 2)


@every_vendor
async def test_one_call_and_one_output_are_two_requests(
    build: Build, answer: Callable[[Body], Body]
) -> None:
    async with running(answer) as vendor:
        result = await run(build(vendor.url), output=Report)

    assert vendor.refusals == []
    assert (result.status, result.output) == ("completed", Report(**REPORT))
    assert (result.llm_calls, result.tool_calls, len(vendor.bodies)) == (2, 1, 2)


@every_vendor
async def test_conversation_of_another_model_continues_under_the_rules(
    build: Build, answer: Callable[[Body], Body]
) -> None:
    """Calls that this model never made have no seal: a hand-over from a fallback or an old journal."""
    begun = Conversation(
        [
            Message("user", "How is Oslo?"),
            Message("assistant", "I look.", (ToolCall("weather", {"city": "Oslo"}, "a1"),)),
            Message("tool", "7 degrees", call_id="a1"),
        ]
    )  # fmt: skip
    async with running(answer) as vendor:
        result = await run(build(vendor.url), begun)

    assert vendor.refusals == []
    assert (result.status, result.answer) == ("completed", ANSWER)


async def test_chat_completions_refuses_tools_of_the_reasoning_family() -> None:
    async with running(answer_chat) as vendor:
        refused = OpenAIProvider(
            "gpt-5.6", base_url=vendor.url, api_key="k", quirks=OPENAI
        )
        result = await run(refused)
        assert (result.status, result.stop_reason) == ("failed", "provider_error")
        assert "use /v1/responses" in str(result.error)

        without = OpenAIProvider(
            "gpt-5.6", base_url=vendor.url, api_key="k", quirks=OPENAI, sampling=Sampling(effort="none")
        )  # fmt: skip
        result = await run(without)
        assert (result.status, result.answer) == ("completed", ANSWER)


async def test_guidance_behind_a_result_is_taken_by_mistral() -> None:
    guided = Conversation(
        [
            Message("user", "How is Oslo?"),
            Message("assistant", "", (ToolCall("weather", {"city": "Oslo"}, "a00000001"),)),
            Message("tool", "7 degrees", call_id="a00000001"),
            Message("user", "Prefer metric units.", origin="operator"),
        ]
    )  # fmt: skip
    async with running(answer_mistral) as vendor:
        result = await run(mistral(vendor.url), guided)

    assert (vendor.refusals, result.answer) == ([], ANSWER)


@pytest.mark.parametrize(
    ("build", "answer"),
    [
        (responses, answer_responses),
        (chat, answer_chat),
        (mistral, answer_mistral),
        (claude_with_schemas, answer_claude),
        (gemini, answer_gemini),
        (bedrock_with_schemas, answer_bedrock),
    ],
)
async def test_each_vendor_takes_the_forms_of_the_goal_cycle_and_holds_to_them(
    build: Build, answer: Callable[[Body], Body]
) -> None:
    """A choice between objects is one object there: all that fits a branch fits it."""
    skills = [weather.spec, clock.spec]
    plan, decision = plan_form(skills, 5), decision_form(skills, 5)
    forms = [plan, decision, input_form(clock.spec), evaluation_form(), text_form("answer", 900)]  # fmt: skip
    async with running(answer) as vendor:
        provider = build(vendor.url)
        for form in forms:
            await provider.complete(Request(Conversation.of("Go."), schema=OutputSchema("form", form)))  # fmt: skip

    assert vendor.refusals == []
    sent = [find_schema(body) for body in vendor.bodies]
    assert all("anyOf" not in schema for schema in sent)
    fits = [Draft202012Validator(schema).is_valid for schema in sent]
    step = {"skill": "clock", "input_description": "Oslo"}
    sure = {"confidence": 0.9, "reason": "so"}
    assert fits[0]({"steps": [step], "working_memory": "Oslo"})
    assert fits[0]({"error": "there is no such city"})
    assert not fits[0]({"steps": [{**step, "skill": "fly"}]})
    assert fits[1]({"action": "done", "final_answer": "7 degrees", **sure})
    assert fits[1]({"action": "adjust", "new_plan": [step], **sure})
    assert not fits[1]({"action": "rest", **sure})
    assert not fits[1]({"action": "stuck", "reason": "so"})


WAY = ("format", "json_schema", "textFormat", "structure", "jsonSchema", "responseJsonSchema", "schema")  # fmt: skip


def find_schema(body: Body) -> Any:
    """Return the schema of a request, wherever the API has it."""
    found = body.get("text") or body.get("response_format") or body.get("output_config")
    found = found or body.get("outputConfig") or body["generationConfig"]
    while "properties" not in found and "anyOf" not in found:
        found = next(found[name] for name in WAY if name in found)
        found = json.loads(found) if isinstance(found, str) else found
    return found


LONE_CALL = {"type": "function_call", "id": "fc_0", "call_id": "c", "name": "x"}
UNSIGNED = {"role": "model", "parts": [{"functionCall": {"name": "x"}}]}
USED = {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}
CHOICE = {"type": "object", "anyOf": []}
BROKEN: list[tuple[Callable[[Body], Body], Body, str]] = [
    (answer_responses, {"input": [LONE_CALL]}, "without its required 'reasoning' item"),
    (answer_gemini, {"contents": [{"role": "user", "parts": []}, UNSIGNED]}, "missing a thought_signature"),
    (answer_claude, {"messages": [{"role": "user", "content": []}, USED]}, "Expected `thinking`"),
    (answer_chat, {"response_format": {"json_schema": {"schema": CHOICE}}}, "'anyOf' at the root"),
    (answer_mistral, {"messages": [{"role": "tool"}, {"role": "user"}]}, "Unexpected role 'user'"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "broken", "said"), BROKEN)
async def test_stand_in_refuses_a_request_that_breaks_its_rule(
    answer: Callable[[Body], Body], broken: Body, said: str
) -> None:
    common = {"store": False, "include": ["reasoning.encrypted_content"]}
    common |= {"thinking": {}} | ({} if answer is answer_chat else {"max_tokens": 9})
    async with running(answer) as vendor:
        status, reply = vendor.respond({**common, **broken})

    assert status == 400
    assert said in reply["error"]["message"]
