"""Runs by the Responses API: a stand-in that enforces the vendor's rules, also across an interruption."""

import json
from pathlib import Path
from typing import Any

import httpx

from loopwright import Limits, ReActEngine, Runtime, tool
from loopwright.journals import SQLiteJournal
from loopwright.providers import OpenAIResponsesProvider

Row = dict[str, Any]
KEY = "sk-test-0123456789abcdef"


@tool(effect="read")
def look(what: str) -> str:
    """Look something up."""
    return f"{what} is blue"


@tool(effect="read")
def count(word: str) -> int:
    """Count the letters of a word."""
    return len(word)


class StrictServer:
    """Thinks before each call, and refuses calls without the thought that led to them."""

    steps = (("look", {"what": "sky"}), ("count", {"word": "blue"}))

    def __init__(self, *, fails_at: int = -1) -> None:
        self.asked: list[Row] = []
        self.fails_at = fails_at

    def answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        done = [one for one in body["input"] if one.get("type") == "function_call"]
        if len(done) == self.fails_at:
            return httpx.Response(503, json={"error": {"message": "overloaded"}})
        self.asked.append(body)
        wrong = self.find_missing_thought(body["input"])
        if wrong:
            return httpx.Response(400, json={"error": {"message": wrong}})
        return httpx.Response(200, json=self.reply(len(done)))

    def find_missing_thought(self, items: list[Row]) -> str:
        for place, item in enumerate(items):
            before = items[place - 1] if place else {}
            seal = f"seal+/{item.get('call_id')}=="
            is_call = item.get("type") == "function_call"
            if is_call and before.get("encrypted_content") != seal:
                return f"{item['call_id']} was sent without its required item"
        return ""

    def reply(self, step: int) -> Row:
        if step == len(self.steps):
            part = {"type": "output_text", "text": "Blue has 4 letters."}
            items = [{"type": "message", "role": "assistant", "content": [part]}]
            return {"status": "completed", "output": items}
        name, arguments = self.steps[step]
        call: Row = {"type": "function_call", "id": f"fc_{step}", "name": name}
        call |= {"call_id": f"call_{step}", "arguments": json.dumps(arguments)}
        thought: Row = {"type": "reasoning", "id": f"rs_{step}", "summary": []}
        thought["encrypted_content"] = f"seal+/call_{step}=="
        return {"status": "completed", "output": [thought, call]}

    def engine(self, journal: SQLiteJournal) -> ReActEngine:
        client = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        provider = OpenAIResponsesProvider(
            "gpt-5.2", base_url="http://api.example/v1", api_key=KEY, client=client
        )
        runtime = Runtime(
            provider,
            tools=[look, count],
            journal=journal,
            limits=Limits(max_provider_wait=0),
        )
        return ReActEngine(runtime)


async def test_conversation_of_two_tools_completes(tmp_path: Path) -> None:
    server = StrictServer()

    result = await server.engine(SQLiteJournal(tmp_path / "a.db")).run("Go.")

    assert (result.status, result.answer) == ("completed", "Blue has 4 letters.")
    assert len(server.asked) == 3


async def test_resumed_run_sends_the_same_requests(tmp_path: Path) -> None:
    whole = StrictServer()
    await whole.engine(SQLiteJournal(tmp_path / "whole.db")).run("Go.", run_id="r")
    asked: list[Row] = []
    journal = SQLiteJournal(tmp_path / "cut.db")
    for cut in (1, 2):
        server = StrictServer(fails_at=cut)
        engine = server.engine(journal)
        left = await (engine.run("Go.", run_id="r") if cut == 1 else engine.resume("r"))
        assert left.status == "suspended"
        asked += server.asked
    last = StrictServer()

    result = await last.engine(journal).resume("r")

    assert result.answer == "Blue has 4 letters."
    assert [*asked, *last.asked] == whole.asked
    assert KEY.encode() not in (tmp_path / "cut.db").read_bytes()
