"""A two-tool conversation with stand-ins for each API that enforce its vendor's rules."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from loopwright import Limits, ReActEngine, Runtime, Sampling, tool
from loopwright.messages import Conversation, Message, ToolCall
from loopwright.providers import (
    AnthropicProvider,
    BedrockProvider,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Provider,
    Quirks,
)
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


LONE_CALL = {"type": "function_call", "id": "fc_0", "call_id": "c", "name": "x"}
UNSIGNED = {"role": "model", "parts": [{"functionCall": {"name": "x"}}]}
USED = {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}
BROKEN: list[tuple[Callable[[Body], Body], Body, str]] = [
    (answer_responses, {"input": [LONE_CALL]}, "without its required 'reasoning' item"),
    (answer_gemini, {"contents": [{"role": "user", "parts": []}, UNSIGNED]}, "missing a thought_signature"),
    (answer_claude, {"messages": [{"role": "user", "content": []}, USED]}, "Expected `thinking`"),
    (answer_mistral, {"messages": [{"role": "tool"}, {"role": "user"}]}, "Unexpected role 'user'"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "broken", "said"), BROKEN)
async def test_stand_in_refuses_a_request_that_breaks_its_rule(
    answer: Callable[[Body], Body], broken: Body, said: str
) -> None:
    common = {"store": False, "include": ["reasoning.encrypted_content"]}
    common |= {"max_tokens": 9, "thinking": {}}
    async with running(answer) as vendor:
        status, reply = vendor.respond({**common, **broken})

    assert status == 400
    assert said in reply["error"]["message"]
