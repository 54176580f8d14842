"""One agent with each API: Responses, Chat Completions, Messages, Gemini, Converse and Azure, and any of them by name.

    python examples/every_provider.py                                # replies from this script, no key, no network
    OPENAI_API_KEY=... python examples/every_provider.py openai:gpt-5.2
    GEMINI_API_KEY=... python examples/every_provider.py gemini:gemini-3-pro-preview

Without a name each provider gets a client whose replies stand below, in the form of its API: a call of a tool, then an
answer. What was tried against which models is in docs/how-to/providers.md.
"""

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any

import httpx

from loopwright import ReActEngine, Runtime, tool
from loopwright.providers import (
    AnthropicProvider,
    AzureOpenAIProvider,
    BedrockProvider,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Provider,
)

ARGUMENTS = {"article": "lamp"}
ANSWER = "There are 17 lamps in stock."
Reply = dict[str, Any]


@tool(effect="read")
def stock(article: str) -> str:
    """How many pieces of an article are in stock."""
    return {"lamp": "17", "chair": "0"}.get(article, "unknown")


def responses(called: bool) -> Reply:
    """A reply of the Responses API: a list of items."""
    written = json.dumps(ARGUMENTS)
    call = {"type": "function_call", "call_id": "c1", "name": "stock", "arguments": written}  # fmt: skip
    part = {"type": "output_text", "text": ANSWER}
    reply = {"type": "message", "role": "assistant", "content": [part]}
    return {"status": "completed", "output": [reply if called else call]}


def chat(called: bool) -> Reply:
    """A reply of Chat Completions: a message of the assistant."""
    function = {"name": "stock", "arguments": json.dumps(ARGUMENTS)}
    call = {"id": "c1", "type": "function", "function": function}
    reply = {"content": ANSWER} if called else {"content": None, "tool_calls": [call]}
    message = {"role": "assistant", **reply}
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


def messages(called: bool) -> Reply:
    """A reply of the Messages API: blocks of content."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "stock", "input": ARGUMENTS}
    block = {"type": "text", "text": ANSWER} if called else call
    stop = "end_turn" if called else "tool_use"
    return {"role": "assistant", "content": [block], "stop_reason": stop}


def gemini(called: bool) -> Reply:
    """A reply of generateContent: parts of a candidate, a call with its signature."""
    call = {
        "functionCall": {"name": "stock", "args": ARGUMENTS},
        "thoughtSignature": "c2lnbmVk",
    }
    content = {"role": "model", "parts": [{"text": ANSWER} if called else call]}
    return {"candidates": [{"content": content, "finishReason": "STOP"}]}


def converse(called: bool) -> Reply:
    """A reply of Converse: blocks of a message."""
    call = {"toolUse": {"toolUseId": "t1", "name": "stock", "input": ARGUMENTS}}
    content = [{"text": ANSWER} if called else call]
    stop = "end_turn" if called else "tool_use"
    message = {"role": "assistant", "content": content}
    return {"output": {"message": message}, "stopReason": stop}


def build_client(
    answer: Callable[[bool], Reply], paths: list[str]
) -> httpx.AsyncClient:
    """Return a client without a network, whose first reply is a call; it notes which paths are asked."""

    def reply(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        return httpx.Response(200, json=answer(len(paths) > 1))

    return httpx.AsyncClient(transport=httpx.MockTransport(reply))


def list_providers(paths: list[str]) -> list[Provider]:
    """Return one provider for each API, as you would make it with your own key and without a client."""
    providers: list[Provider] = [
        OpenAIResponsesProvider("gpt-5.2", api_key="k", client=build_client(responses, paths)),
        OpenAIProvider("gpt-4.1", api_key="k", client=build_client(chat, paths)),
        AnthropicProvider("claude-sonnet-4-5", api_key="k", client=build_client(messages, paths)),
        GeminiProvider("gemini-3-pro-preview", api_key="k", client=build_client(gemini, paths)),
        AzureOpenAIProvider(
            "my-gpt-5", endpoint="https://mine.openai.azure.com", api_key="k", client=build_client(responses, paths)
        ),
    ]  # fmt: skip
    if importlib.util.find_spec("botocore"):  # the extra `bedrock`
        client = build_client(converse, paths)
        providers.append(
            BedrockProvider("amazon.nova-lite-v1:0", region="us-east-1", api_key="k", client=client)
        )  # fmt: skip
    return providers


async def ask(provider: Provider | str, paths: list[str]) -> None:
    """Let a model look the stock up, and print what it says."""
    paths.clear()
    runtime = Runtime(provider, tools=[stock])
    async with runtime:
        result = await ReActEngine(runtime).run("How many lamps are in stock?")
    place = paths[0] if paths else "the network"
    print(f"{runtime.provider.name:<10} {place}")
    print(f"           {result.status}: {result.answer or result.error}")


async def main() -> None:
    """Ask the model that the command line names, else one of each API."""
    paths: list[str] = []
    chosen: list[Any] = sys.argv[1:] or list_providers(paths)
    for provider in chosen:
        await ask(provider, paths)


if __name__ == "__main__":
    asyncio.run(main())
