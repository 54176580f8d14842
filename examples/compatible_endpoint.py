"""Any endpoint that speaks Chat Completions: OpenRouter, vLLM, llama.cpp, Ollama, LM Studio, or a server of your own.

    OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_MODEL=qwen3 python examples/compatible_endpoint.py

Without OPENAI_BASE_URL a tiny server in this script answers, over real HTTP on this machine: no key and no network. An
API key is sent if OPENAI_API_KEY is set; only OpenAI itself demands one. What differs between endpoints is told by
`Quirks`, guessed from the URL: `OpenAIProvider(model, base_url=..., quirks=Quirks(native_tools=False))`; a model that
makes no tool calls of its own is then wrapped: `TextTools(provider)`.
"""

import asyncio
import json
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from loopwright import ReActEngine, Runtime, tool
from loopwright.providers import OpenAIProvider


@tool(effect="read")
def stock(article: str) -> str:
    """How many pieces of an article are in stock."""
    return {"lamp": "17", "chair": "0"}.get(article, "unknown")


class Endpoint(BaseHTTPRequestHandler):
    """The smallest Chat Completions server: it asks for the stock of lamps, then says what it was told."""

    protocol_version = "HTTP/1.1"
    connections = requests = 0

    def setup(self) -> None:
        """A new connection."""
        Endpoint.connections += 1
        super().setup()

    def do_POST(self) -> None:
        """Answer one request."""
        Endpoint.requests += 1
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = asked["messages"][-1]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": f"There are {last['content']} lamps in stock.",
        }
        if last["role"] != "tool":
            wanted = {
                "name": asked["tools"][0]["function"]["name"],
                "arguments": '{"article": "lamp"}',
            }
            message = {
                "role": "assistant",
                "tool_calls": [{"id": "1", "type": "function", "function": wanted}],
            }
        finish = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
        reply = {
            "choices": [{"message": message, "finish_reason": finish}],
            "usage": usage,
            "model": asked["model"],
        }
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def endpoint() -> Generator[str]:
    """The URL of an endpoint: the one that the environment names, or a server that lasts as long as this block."""
    url = os.environ.get("OPENAI_BASE_URL")
    if url:
        yield url
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


async def main() -> None:
    """Ask the endpoint a question that takes a tool."""
    with endpoint() as url:
        provider = OpenAIProvider(os.environ.get("OPENAI_MODEL", "tiny"), base_url=url)
        async with Runtime(provider, tools=[stock]) as runtime:
            result = await ReActEngine(runtime).run("How many lamps are in stock?")
        await provider.aclose()

    print(
        f"Model {provider.model}, tools by the model itself: {provider.capabilities.native_tools}"
    )
    if Endpoint.requests:
        print(f"{Endpoint.requests} requests over {Endpoint.connections} connection")
    print(
        f"{result.status}: {result.llm_calls} model calls, {result.usage.total_tokens} tokens"
    )
    print(f"Answer: {result.answer or result.error}")


if __name__ == "__main__":
    asyncio.run(main())
