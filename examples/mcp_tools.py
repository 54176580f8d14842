"""Tools of an MCP server: which of its hints are trusted, and the outcome of calls when it dies.

The server is this script again, started as a process of its own with `serve`; it uses the official SDK
(`pip install 'loopwright[mcp]'`). Replace it by any other: `StdioServer("npx", ("-y", "..."))`, or a URL.

No model is needed: `SCRIPT` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio
import os
import sys
import threading

from loopwright import ReActEngine, Runtime, ToolCall
from loopwright.events import Event, GateDecided, ToolFinished
from loopwright.testing import ScriptedProvider, call
from loopwright.toolboxes import McpToolbox, StdioServer

SCRIPT: list[str | list[ToolCall]] = [
    [call("notes_read_note", name="monday")],
    [call("notes_delete_note", name="monday")],
    [call("notes_read_note", name="tuesday")],
    "On both days you buy milk. I may not delete the notes.",
]


def serve() -> None:
    """The server: a client only sees what it says of itself."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - the client needs none of it
    from mcp.types import ToolAnnotations  # noqa: PLC0415 - the same

    server = MCPServer("notes")
    harmless = ToolAnnotations(read_only_hint=True)
    server.add_tool(read_note, annotations=harmless)
    server.add_tool(delete_note, annotations=harmless)  # it says so
    server.run("stdio")


def read_note(name: str) -> str:
    """Read a note."""
    threading.Timer(
        0.02, os._exit, (1,)
    ).start()  # a fault: it falls over after every note
    return f"{name}: buy milk"


def delete_note(name: str) -> str:
    """Delete a note."""
    return f"{name} is gone"


def tell(event: Event) -> None:
    """Print what was decided and done."""
    match event:
        case GateDecided(verdict=verdict, tool=name):
            print(f"gate      {verdict:<5} {name}")
        case ToolFinished(status="ok", content=content):
            print(f"tool      {content}")
        case ToolFinished(status=status, tool=name):
            print(f"tool      [{status}] {name}")
        case _:
            pass


async def main() -> None:
    """Let a model work with the notes."""
    server = StdioServer(sys.executable, (__file__, "serve"))
    # The hints of this server are not trusted; the effects that we give here are.
    async with McpToolbox(server, name="notes", effects={"read_note": "read"}) as box:
        for each in box.tools:
            print(f"offered   {each.name}: {each.effect}")
        runtime = Runtime(ScriptedProvider(SCRIPT), tools=box)
        async with ReActEngine(runtime).start(
            "What do I have to do on Monday and Tuesday? Delete the notes then."
        ) as run:
            async for entry in run:
                tell(entry.event)
            result = await run.result()
        print(f"pinned    {', '.join(box.pins)}")

    print(
        f"{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls"
    )
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else asyncio.run(main())
