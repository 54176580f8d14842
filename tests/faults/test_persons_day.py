"""Three days of one person: 200 turns, two processes, a kill, a handoff, an approval next morning, and a deletion."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import persons_day
from fault_sizes import figure
from loopwright import Conversation, Message
from persons_day import ADA, APPROVAL, HANDOFF, KILL, NAME, QUESTION, TURNS, say, talk


def talk_in_a_process(folder: Path, day: int, first: int, last: int) -> int:
    """Do so in another process; return its exit status."""
    arguments = map(str, (persons_day.__file__, folder, day, first, last))
    done = subprocess.run([sys.executable, *arguments], check=False, timeout=300)
    return done.returncode


async def approve_next_morning(folder: Path) -> str | None:
    """Approve the call that waits since yesterday; return the answer of its turn."""
    runtime, thread, _ = persons_day.open_thread(folder, 1)
    last = (await thread.turns())[-1]
    async with runtime:
        control = runtime.control(last.run_id)
        [question] = await control.questions()
        await control.approve(question.id, by="ada")
        result = await thread.resume()
        await runtime.drain()
    await runtime.journal.close()
    return result.answer


async def read_history(folder: Path) -> Conversation:
    runtime, thread, _ = persons_day.open_thread(folder, 2)
    history = await thread.history()
    for info in runtime.journal.runs():
        assert runtime.journal.verify(info.run_id).ok
    await runtime.journal.close()
    return history


async def find_preferences(folder: Path) -> list[str]:
    runtime, _, _ = persons_day.open_thread(folder, 2)
    assert runtime.knowledge is not None
    store = runtime.knowledge.store
    found = await store.search("always answer in German", kinds=("preference",), scope=ADA["user"])  # fmt: skip
    await runtime.journal.close()
    return [one.text for one in found]


async def delete_all(folder: Path) -> None:
    """Delete what is kept of the person."""
    runtime, thread, _ = persons_day.open_thread(folder, 2)
    assert runtime.knowledge is not None
    async with runtime:
        await thread.delete()
        await runtime.knowledge.store.forget(scope=ADA["user"])
        assert await runtime.threads() == []
    await runtime.journal.close()


def find_name(folder: Path) -> list[str]:
    """Return the files that have the person's name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if NAME.encode() in path.read_bytes()]


def measure(folder: Path) -> int:
    """Return the bytes of all files."""
    return sum(path.stat().st_size for path in folder.iterdir())


def spoken(history: Conversation) -> list[str]:
    return [one.content for one in history if is_of_the_person(one)]


def is_of_the_person(message: Message) -> bool:
    return message.role == "user" and message.origin == "caller"


@pytest.mark.timeout(600)
async def test_a_person_talks_for_three_days_and_is_forgotten(tmp_path: Path) -> None:
    first_day, _ = await talk(tmp_path, 0, 1, APPROVAL)
    assert [one.status for one in first_day] == ["completed"] * (APPROVAL - 1) + ["waiting"]  # fmt: skip
    assert first_day[HANDOFF - 1].answer == f"Answer {HANDOFF}."

    assert await approve_next_morning(tmp_path) == f"Answer {APPROVAL}."
    process = asyncio.to_thread(talk_in_a_process, tmp_path, 1, APPROVAL + 1, 130)
    assert await process == -signal.SIGKILL
    second_day, _ = await talk(tmp_path, 1, KILL + 1, 130)
    third_day, summaries = await talk(tmp_path, 2, 131, TURNS)

    history = await read_history(tmp_path)
    assert spoken(history) == [say(number) for number in range(1, TURNS + 1)]
    answers = [one for one in history if one.role == "assistant" and not one.calls]
    assert len(answers) == TURNS
    assert answers[KILL - 1].content == f"Answer {KILL}."
    assert answers[QUESTION - 1].content == f"Ada {NAME}"
    booked = [one for one in history if one.content == "flight X1 is booked"]
    assert len(booked) == 1
    trimmed = sum(one.trimmed for one in (*first_day, *second_day, *third_day))
    assert trimmed > 0
    assert summaries > 0
    assert await find_preferences(tmp_path) == ["Please always answer in German."]

    size = measure(tmp_path)
    said = f"{TURNS} turns, {trimmed} calls with less than all, {size:,} bytes"
    figure("a person's three days", f"{said}; {summaries} summaries on the last")
    assert find_name(tmp_path) != []
    await delete_all(tmp_path)
    assert find_name(tmp_path) == []
