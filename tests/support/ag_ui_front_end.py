"""A front end of AG-UI for tests, and an agent that it talks to."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from ag_ui.core import Event
from pydantic import TypeAdapter

from console_server import read_parts
from loopwright import Runtime, Suspend, ToolError, ask_user, tool
from loopwright.console import Console
from loopwright.journals import SQLiteJournal
from loopwright.testing import Line, ScriptedProvider
from loopwright.tools import client_tool

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
TOKEN = "t" * 40
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@tool(effect="read")
async def weather(city: str) -> str:
    """Current weather in a city."""
    if city == "Atlantis":
        raise ToolError("no such city")
    return f"21 in {city}"


@tool(effect="destructive")
async def delete(name: str) -> str:
    """Delete a file."""
    return f"{name} is gone"


@tool(effect="read", label="secret")
async def read_key() -> str:
    """Read a key."""
    return "the key is hunter2"


draw_chart = client_tool(
    "draw_chart",
    "Draw a chart for the user.",
    {
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "required": ["kind"],
        "additionalProperties": False,
    },
    effect="idempotent",
)


def build_runtime(path: Path, *script: Line, **more: Any) -> Runtime:
    runtime = Runtime(
        ScriptedProvider(list(script)),
        tools=[weather, delete, read_key, draw_chart, ask_user],
        journal=SQLiteJournal(path / "runs.db"),
        approver=Suspend(expires=3600),
        **more,
    )
    runtime.agent("guide", instructions="Be brief.")
    return runtime


def build_console(runtime: Runtime) -> Console:
    return Console(runtime, user="ada", token=TOKEN)


class FrontEnd:
    """A front end with one thread; it checks each event by the protocol's own types."""

    def __init__(self, client: httpx.AsyncClient, thread: str = "t1") -> None:
        self.client, self.thread, self._number = client, thread, 0
        self.run, self.seen, self.address = "", 0, "/ag-ui"

    def body(self, text: str = "", **more: Any) -> dict[str, Any]:
        self._number += 1
        name = f"r{self._number}"
        said = [{"id": name, "role": "user", "content": text}] if text else []
        return {"threadId": self.thread, "runId": name, "messages": said, **more}

    async def say(self, text: str, **more: Any) -> list[dict[str, Any]]:
        return await self.post(self.body(text, **more))

    async def post(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        request = self.client.stream("POST", self.address, json=body)
        async with request as response:
            if response.status_code != 200:
                await response.aread()
                return [{"type": response.status_code, "error": response.json()["error"]}]  # fmt: skip
            return [one async for one in self.read(response)]

    async def come_back(self, after: int) -> list[dict[str, Any]]:
        address = f"/ag-ui/{self.run}/events?after={after}"
        async with self.client.stream("GET", address) as response:
            return [one async for one in self.read(response)]

    async def read(self, response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
        async for part in read_parts(response):
            fields = dict(line.split(": ", 1) for line in part.split("\n"))
            self.seen = int(fields.get("id", self.seen))
            EVENT.validate_json(fields["data"])
            event = json.loads(fields["data"])
            if event["type"] == "RUN_STARTED":
                self.run = event["metadata"]["run"]
            yield event

    async def answer(self, events: list[dict[str, Any]], *payloads: Any) -> list[dict[str, Any]]:  # fmt: skip
        asked = events[-1]["outcome"]["interrupts"]
        resume = [
            {"interruptId": one["id"], "status": "cancelled" if payload is None else "resolved", "payload": payload}
            for one, payload in zip(asked, payloads, strict=True)
        ]  # fmt: skip
        return await self.say("", resume=resume)


def connect(address: str, **headers: str) -> httpx.AsyncClient:
    given = {**BEARER, **headers}
    return httpx.AsyncClient(
        base_url=address, headers=given, trust_env=False, timeout=30
    )


def types(events: list[dict[str, Any]]) -> list[Any]:
    return [one["type"] for one in events if not one["type"].startswith("STATE_")]


def spoken(events: list[dict[str, Any]]) -> str:
    return "".join(one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT")  # fmt: skip
