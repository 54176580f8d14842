"""The chat of `examples/fastapi_chat.py`, served by a real uvicorn to users whose connections break."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loopwright._kernel.durability.transitions import park
from loopwright.clock import SystemClock
from loopwright.events import RunParked
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
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
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
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
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


@pytest.mark.faults
async def test_a_browser_is_told_that_a_turn_is_parked_and_can_end_or_retry_it(
    tmp_path: Path,
) -> None:
    with ChatServer(tmp_path, pause=600.0) as server:  # no turn ends before its kill
        first = await say(server, 1)
        await park_turn(server, first)
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            shown = await read_entry(client, first, "run_parked")
            refused = await client.post("/threads/ada/messages", json=build_message(2))
            turns = (await client.get("/threads/ada")).json()
            gone_on = await client.post(f"/runs/{first}/give-up")
            ended = await read_entry(client, first, "run_finished")
            again = await client.post(f"/runs/{first}/give-up")
        second = await say(server, 3)
        server.pause = 0.005
        await park_turn(server, second)
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            retried = await client.post(f"/runs/{second}/retry")
            answered = await read_entry(client, second, "run_finished")

    assert shown["reason"] == "4 deaths"
    assert (refused.status_code, refused.json()["run_id"]) == (409, first)
    assert "4 deaths" in refused.json()["detail"]
    assert [turn["status"] for turn in turns] == ["parked"]
    assert (gone_on.status_code, ended["status"]) == (202, "aborted")
    assert again.status_code == 422
    assert retried.status_code == 202
    assert answered["answer"] == "ada said 3 of 2"


def build_message(number: int) -> dict[str, str]:
    return {"text": f"ada says {number}", "id": f"m{number}"}


async def say(server: ChatServer, number: int) -> str:
    """Send a message, and return the run of its turn."""
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        path = "/threads/ada/messages"
        sent = await client.post(path, json=build_message(number))
        run_id: str = sent.json()["run_id"]
        return run_id


async def park_turn(server: ChatServer, run_id: str) -> None:
    """Park a turn that a kill interrupts, as a worker does after several kills, before the next server begins."""
    journal = SQLiteJournal(server.journal)

    def write() -> None:
        parked = RunParked("4 deaths", 4)
        asyncio.run(park(journal, SystemClock(), run_id, parked))

    await asyncio.to_thread(server.kill, write)
    await journal.close()


async def read_entry(client: httpx.AsyncClient, run_id: str, kind: str) -> Any:
    """Watch a turn up to an entry of a kind, and return what a browser gets of it."""
    async with client.stream("GET", f"/runs/{run_id}/events") as response:
        async for event in read_events(response):
            if event["event"] == "entry":
                shown = json.loads(event["data"])
                if shown["kind"] == kind:
                    return shown
    raise AssertionError(f"the watch ended without {kind}")
