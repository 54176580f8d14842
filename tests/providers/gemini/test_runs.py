"""Runs by the Gemini API: a stand-in that refuses a step whose first call has no signature."""

import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from loopwright import Limits, LoopEngine, ReActEngine, Run, Runtime, Sampling, tool
from loopwright.errors import ConfigError, ProviderError
from loopwright.journals import SQLiteJournal
from loopwright.messages import Conversation, Message, ToolCall
from loopwright.providers import GeminiProvider, OutputSchema, Request

Row = dict[str, Any]
KEY = "AIzaSyTest0123456789"
URL = "http://api.example/v1beta"
CALLS = (("look", {"what": "sky"}), ("count", {"word": "blue"}))


@tool(effect="read")
def look(what: str) -> str:
    """Look something up."""
    return f"{what} is blue"


@tool(effect="read")
def count(word: str) -> int:
    """Count the letters of a word."""
    return len(word)


def reply(*parts: Row, finish: str = "STOP") -> Row:
    content = {"role": "model", "parts": list(parts)}
    return {"candidates": [{"content": content, "finishReason": finish}]}


class StrictServer:
    """Signs each call, and refuses a model turn whose first call has no signature of its own or the placeholder."""

    def __init__(self, *, fails_at: int = -1) -> None:
        self.asked: list[Row] = []
        self.fails_at = fails_at

    def answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        turns = [one for one in body["contents"] if one["role"] == "model"]
        if len(turns) == self.fails_at:
            return httpx.Response(503, json={"error": {"message": "overloaded"}})
        self.asked.append(body)
        for turn in turns:
            first = next(part for part in turn["parts"] if "functionCall" in part)
            if not first.get("thoughtSignature"):
                text = "Function call is missing a thought_signature"
                return httpx.Response(400, json={"error": {"message": text}})
        return httpx.Response(200, json=self.reply(len(turns)))

    def reply(self, step: int) -> Row:
        if step >= len(CALLS):
            return reply({"text": "Blue has 4 letters."})
        name, arguments = CALLS[step]
        call = {"name": name, "args": arguments, "id": f"id{step}"}
        return reply({"functionCall": call, "thoughtSignature": f"sig+/{step}=="})

    def provider(
        self, model: str = "gemini-3-pro-preview", **options: Any
    ) -> GeminiProvider:
        client = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        given: Row = {"base_url": URL, "api_key": KEY, **options}
        return GeminiProvider(model, client=client, **given)

    def runtime(self, journal: SQLiteJournal) -> Runtime:
        limits = Limits(max_provider_wait=0)
        tools = [look, count]
        return Runtime(self.provider(), tools=tools, journal=journal, limits=limits)


async def test_conversation_of_two_tools_returns_each_signature(tmp_path: Path) -> None:
    server = StrictServer()

    result = await ReActEngine(server.runtime(SQLiteJournal(tmp_path / "a.db"))).run(
        "Go."
    )

    assert (result.status, result.answer) == ("completed", "Blue has 4 letters.")
    signed = [
        part["thoughtSignature"]
        for content in server.asked[-1]["contents"]
        for part in content["parts"]
        if "functionCall" in part
    ]
    assert signed == ["sig+/0==", "sig+/1=="]


async def test_resumed_run_sends_the_same_requests(tmp_path: Path) -> None:
    whole = StrictServer()
    await ReActEngine(whole.runtime(SQLiteJournal(tmp_path / "w.db"))).run(
        "Go.", run_id="r"
    )
    journal = SQLiteJournal(tmp_path / "cut.db")
    cut = StrictServer(fails_at=1)
    left = await ReActEngine(cut.runtime(journal)).run("Go.", run_id="r")
    last = StrictServer()

    result = await ReActEngine(last.runtime(journal)).resume("r")

    assert (left.status, result.answer) == ("suspended", "Blue has 4 letters.")
    assert [*cut.asked, *last.asked] == whole.asked


class Proposer(LoopEngine):
    """Makes the first call itself, and lets the model continue."""

    name = "proposer"

    async def solve(self, run: Run) -> str:
        proposal = run.propose(ToolCall("look", {"what": "sky"}))
        seen = await run.act(await run.gate(proposal))
        conversation = run.conversation.observe(proposal, seen)
        while True:
            proposal = await run.reason(conversation)
            if proposal.answer is not None:
                return proposal.answer
            seen = await run.act(await run.gate(proposal))
            conversation = conversation.observe(proposal, seen)


async def test_call_that_gemini_did_not_make_carries_the_placeholder(
    tmp_path: Path,
) -> None:
    server = StrictServer()

    result = await Proposer(server.runtime(SQLiteJournal(tmp_path / "p.db"))).run("Go.")

    assert result.answer == "Blue has 4 letters."
    [first] = server.asked[0]["contents"][1]["parts"]
    assert first["thoughtSignature"] == "skip_thought_signature_validator"


async def test_signature_reaches_no_other_key() -> None:
    server = StrictServer()
    question = Conversation.of("Go.")
    own = await server.provider().complete(Request(question))
    turn = Message("assistant", "", own.calls, origin="model")
    result = Message("tool", "seen", call_id=own.calls[0].id, origin="tool")

    other = server.provider(api_key="AIzaSyOther9876543210")
    await other.complete(Request(question.add(turn, result)))

    assert "sig+/0==" not in json.dumps(server.asked[1])


async def test_settings_and_schema_are_in_the_generation_config() -> None:
    server = StrictServer()
    sampling = Sampling(
        temperature=0.1, top_k=3, stop=("x",), effort="low", max_tokens=9
    )
    schema = OutputSchema("Answer", {"type": "object", "properties": {}})

    await server.provider().complete(
        Request(Conversation.of("Go."), sampling=sampling, schema=schema)
    )

    assert server.asked[0]["generationConfig"] == {
        "temperature": 0.1,
        "topK": 3,
        "stopSequences": ["x"],
        "maxOutputTokens": 9,
        "thinkingConfig": {"thinkingLevel": "low"},
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object", "properties": {}},
    }


@pytest.mark.parametrize("finish", ["SAFETY", "PROHIBITED_CONTENT"])
async def test_filtered_reply_is_a_refusal(finish: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=reply({"text": "no"}, finish=finish))

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    provider = GeminiProvider("gemini-3-pro", base_url=URL, api_key=KEY, client=client)

    with pytest.raises(ProviderError, match=f"refused: {finish}"):
        await provider.complete(Request(Conversation.of("Go.")))


async def test_damaged_replies_are_provider_errors_or_completions() -> None:
    whole = json.dumps(StrictServer().reply(0)).encode()
    chance = random.Random(7)
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        body = bytes(damaged[: chance.randrange(1, len(damaged) + 1)])
        client = httpx.AsyncClient(
            transport=httpx.MockTransport(
                lambda _, body=body: httpx.Response(200, content=body)
            )  # type: ignore[misc]
        )
        provider = GeminiProvider(
            "gemini-3-pro", base_url=URL, api_key=KEY, client=client
        )
        try:
            await provider.complete(Request(Conversation.of("Go.")))
        except ProviderError:
            continue


def test_key_is_required_by_google_alone_and_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)

    with pytest.raises(ConfigError, match="api_key: Google requires one"):
        GeminiProvider("gemini-3-pro")
    with pytest.raises(ConfigError, match="model: missing"):
        GeminiProvider("", api_key=KEY)
    provider = GeminiProvider("gemini-3-pro", api_key=KEY)
    assert KEY not in f"{provider!r} {provider.source} {vars(provider)}"
