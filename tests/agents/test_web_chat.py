"""The chat of `examples/fastapi_chat.py`, served by a real uvicorn to users whose connections break."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from loopwright.journals import SQLiteJournal
from waiting import eventually
from web_users import ChatServer, hold_conversations, read_events

pytest.importorskip("fastapi")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ChatServer]:
    with ChatServer(tmp_path) as serving:
        yield serving


@pytest.mark.faults
async def test_users_whose_connections_break_get_their_own_answers_once(
    server: ChatServer,
) -> None:
    people = await hold_conversations(server, users=8, turns=4, seed=3)

    assert sum(person.broken for person in people) > 0
    assert set(server.count_model_calls().values()) == {1}


async def test_a_turn_ends_when_the_client_of_its_response_goes_away(
    tmp_path: Path,
) -> None:
    with ChatServer(tmp_path, pause=0.5) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            message = {"text": "ada says 1", "id": "m1"}
            path = "/threads/ada/questions"
            async with client.stream("POST", path, json=message) as response:
                async for event in read_events(response):
                    if event["event"] == "delta":
                        break
        journal = SQLiteJournal(server.journal)
        await eventually(lambda: journal.runs()[0].status == "aborted")
        error = journal.read(journal.runs()[0].run_id)[-1].event.error  # type: ignore[attr-defined]
        await journal.close()

    assert error.message == "the run was aborted: its watcher went away"


async def test_what_is_wrong_is_answered_with_its_field(server: ChatServer) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        message = {"text": "ada says 1", "id": "m1"}
        sent = await client.post("/threads/ada/messages", json=message)
        run_id = sent.json()["run_id"]
        unknown = await client.get("/runs/none/events")
        behind = await client.get(
            f"/runs/{run_id}/events", headers={"Last-Event-ID": "99"}
        )
        no_number = await client.get(
            f"/runs/{run_id}/events", headers={"Last-Event-ID": "x"}
        )
        empty = await client.post(
            "/threads/ada/messages", json={"text": " ", "id": "m2"}
        )

    assert unknown.status_code == 404
    assert "'none'" in unknown.json()["detail"]
    assert behind.status_code == 422
    assert behind.json()["detail"].startswith("after: run ")
    assert no_number.status_code == 422
    assert "last-event-id" in json.dumps(no_number.json())
    assert empty.status_code == 422
    assert empty.json()["detail"].startswith("text: ")
    await asyncio.sleep(0)
