"""Threads under fire: their processes are killed at every barrier, and several send messages at once."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fault_sizes import figure, sized
from loopwright.agents import Turn
from loopwright.journals import SQLiteJournal
from thread_child import open_thread

CHILD = Path(__file__).parents[1] / "support" / "thread_child.py"
KILLED = -9


def start(path: Path, **plan: Any) -> "subprocess.Popen[str]":
    """Start a process that does what a plan says."""
    arguments = [sys.executable, str(CHILD), str(path), json.dumps(plan)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def finish(child: "subprocess.Popen[str]") -> list[dict[str, str]]:
    """Return what a process printed about its messages, once it has ended."""
    printed, _ = child.communicate(timeout=120)
    return [json.loads(line) for line in printed.splitlines()]


def send(path: Path, message: str) -> str:
    """Send a message from this process; return how its turn ended."""

    async def work() -> str:
        journal, thread = open_thread(path, 0, "before")
        result = await thread.run(message)
        await journal.close()
        return result.answer or result.status

    return asyncio.run(work())


def read(path: Path) -> list[Turn]:
    """Return the turns of the thread, each of them whole."""

    async def work() -> list[Turn]:
        journal, thread = open_thread(path, 0, "before")
        turns = await thread.turns()
        for info in journal.runs():
            assert journal.verify(info.run_id).ok
        await journal.close()
        return turns

    return asyncio.run(work())


def ledger(path: Path) -> list[str]:
    written = path.with_name("ledger.txt")
    return written.read_text().splitlines() if written.exists() else []


@pytest.mark.parametrize("when", ["before", "after"])
def test_turn_that_is_killed_is_completed_before_the_next_message(
    tmp_path: Path, when: str
) -> None:
    kills = 0
    for at in range(1, 12):
        path = tmp_path / str(at) / "bank.db"
        path.parent.mkdir()
        killed = start(path, messages=["one"], at=at, when=when)
        finish(killed)
        if killed.returncode != KILLED:
            break
        kills += 1
        before = ledger(path)
        (sent,) = finish(start(path, messages=["two"]))

        assert sent["answer"] == "re: two / two is blue"
        turns = read(path)
        words = [(one.number, one.text, one.answer) for one in turns]
        first = (1, "one", "re: one / one is blue")
        if len(words) == 1:  # nothing of it was durable
            assert (at, when) == (1, "before")
            assert words == [(1, "two", sent["answer"])]
        else:
            assert words == [first, (2, "two", sent["answer"])]
        # Of what the first process did at most the last call is repeated, and each turn has the words of its process.
        repeated = [line for line in ledger(path)[len(before) :] if line in before]
        assert len(repeated) <= 1
        systems = {
            text: {line.split("|")[1] for line in ledger(path) if text in line}
            for text in ("model one", "model two")
        }
        assert len(systems["model two"]) == 1
        if len(words) == 2 and before:
            assert len(systems["model one"]) == 1
    figure("threads", f"{kills} kills {when} a barrier, no message lost or doubled")
    assert kills >= 4


@pytest.mark.parametrize("when", ["before", "after"])
def test_answer_to_a_question_is_used_once_whenever_its_process_is_killed(
    tmp_path: Path, when: str
) -> None:
    kills = 0
    for at in range(1, 12):
        path = tmp_path / str(at) / "bank.db"
        path.parent.mkdir()
        assert send(path, "ask me") == "waiting"
        killed = start(path, messages=["the red one"], at=at, when=when)
        finish(killed)
        if killed.returncode != KILLED:
            break
        kills += 1
        answer = send(path, "thanks")

        words = [(one.number, one.text, one.answer) for one in read(path)]
        if len(words) == 1:  # the answer was not durable, so the next message is one
            assert words == [(1, "ask me", "re: ask me / thanks")]
        else:
            assert words == [
                (1, "ask me", "re: ask me / the red one"),
                (2, "thanks", answer),
            ]
    figure("threads", f"{kills} kills {when} a barrier of an answer, each used once")
    assert kills >= 3


@pytest.mark.parametrize("then", ["switch", "fork", "delete"])
def test_change_of_a_thread_that_is_killed_is_whole_or_not_there(
    tmp_path: Path, then: str
) -> None:
    kills = 0
    for when in ("before", "after"):
        for at in range(1, 8):
            path = tmp_path / f"{when}-{at}" / "bank.db"
            path.parent.mkdir()
            send(path, "one")
            killed = start(path, then=then, at=at, when=when)
            finish(killed)
            if killed.returncode != KILLED:
                break
            kills += 1
            assert send(path, "two") == "re: two / two is blue"
            is_gone = then == "delete" and when == "after"
            assert len(read(path)) == (1 if is_gone else 2)
            assert read(path)[-1].text == "two"
    assert kills >= 2


def test_messages_of_several_processes_are_answered_once_each(tmp_path: Path) -> None:
    processes, count = sized(3, 6), sized(6, 30)
    path = tmp_path / "bank.db"
    children = [
        start(
            path,
            messages=[f"m{number}.{one}" for one in range(count)],
            busy=["wait", "steer", "refuse"][number % 3],
        )
        for number in range(processes)
    ]
    printed = [line for child in children for line in finish(child)]

    assert len(printed) == processes * count
    assert {child.returncode for child in children} == {0}
    turns = read(path)
    assert [one.number for one in turns] == list(range(1, len(turns) + 1))
    assert {one.status for one in turns} == {"completed"}
    journal = SQLiteJournal(path)

    async def history() -> str:
        opened, thread = open_thread(path, 0, "before")
        said = [one.content for one in await thread.history() if one.role == "user"]
        await opened.close()
        return " ".join([*said, ""])

    told = asyncio.run(history()).replace("\n", " ")
    for line in printed:
        times = told.count(f"{line['message']} ")
        assert times == (0 if line["status"] == "refused" else 1), line
        if line["status"] != "refused":
            assert line["message"] in line["answer"]
    refused = sum(line["status"] == "refused" for line in printed)
    asyncio.run(journal.close())
    figure(
        "threads",
        f"{len(printed)} messages of {processes} processes: {len(turns)} turns, {refused} refused, 0 lost or doubled",
    )
