"""100 users and 20 turns each over HTTP, with connections that break and a server that is killed again and again."""

import time
from pathlib import Path

import pytest

from fault_sizes import figure, sized
from web_users import ChatServer, hold_conversations

pytest.importorskip("fastapi")
USERS, TURNS = 100, 20


@pytest.mark.timeout(900)
async def test_100_users_of_a_web_server_get_each_answer_once(tmp_path: Path) -> None:
    began = time.monotonic()
    with ChatServer(tmp_path) as server:
        people = await hold_conversations(server, USERS, TURNS, seed=11)
    broken = sum(person.broken for person in people)
    seconds = time.monotonic() - began

    assert broken > USERS
    assert set(server.count_model_calls().values()) == {1}
    figure("web chat", f"{USERS} x {TURNS}, {broken} cuts, {seconds:.0f} s")


@pytest.mark.timeout(900)
async def test_users_of_a_server_that_is_killed_get_each_answer_once(
    tmp_path: Path,
) -> None:
    users, turns, kills = sized(30, USERS), sized(10, TURNS), sized(4, 20)

    with ChatServer(tmp_path, pause=0.05) as server:
        people = await hold_conversations(server, users, turns, seed=12, kills=kills)
    broken = sum(person.broken for person in people)
    calls = server.count_model_calls()

    assert server.kills > 0
    assert len(calls) == users * turns
    figure(
        "web chat, killed",
        f"{users} x {turns}, {server.kills} kills, {broken} broken connections, "
        f"{sum(calls.values()) - len(calls)} model calls made again",
    )
