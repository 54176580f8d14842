"""A long chat: the journal grows with what is said, and the last turn can be resumed and verified alone."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from long_chat import chat, chat_in_thread
from loopwright import Conversation, Entry, MemoryJournal, ReActEngine, Runtime
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider

TURNS = 200
MAX_RATIO = 4.0


@pytest.mark.parametrize("talk", [chat, chat_in_thread])
async def test_a_chat_takes_at_most_four_times_what_is_said(
    tmp_path: Path, talk: Callable[[Path, int], Awaitable[tuple[Conversation, float]]]
) -> None:
    path = tmp_path / "runs.db"
    conversation, seconds = await talk(path, TURNS)
    said = sum(len(message.content.encode()) for message in conversation)
    ratio = path.stat().st_size / said
    print(f"{TURNS} turns: {ratio:.2f} times the conversation, {seconds:.1f} s of CPU")

    assert said == 1700 * TURNS
    assert ratio <= MAX_RATIO


async def test_the_last_turn_of_a_chat_is_read_and_verified(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    conversation, _ = await chat(path, TURNS)
    journal = SQLiteJournal(path)
    last = journal.runs()[0].run_id
    read: list[str] = []

    class Watching(SQLiteJournal):
        def read(self, run_id: str, **options: int | None) -> list[Entry]:  # type: ignore[override]
            read.append(run_id)
            return super().read(run_id, **options)  # type: ignore[arg-type]

    engine = ReActEngine(Runtime(ScriptedProvider([]), journal=Watching(path)))
    result = await engine.resume(last)
    assert read == [last]
    assert result.conversation.messages == conversation.messages
    assert len(set(read)) == TURNS
    assert journal.verify(last, result.head_hash).ok


async def test_history_that_is_looked_at_and_not_read_can_be_read_later() -> None:
    journal = MemoryJournal()
    model = ScriptedProvider(lambda _: "Hello.")
    agent = Runtime(model, journal=journal).agent("support")
    watcher = Runtime(model, journal=journal).agent("support")
    for number in range(350):
        await agent.thread("user-42").run(f"Hi {number}.")
        assert len(await watcher.thread("user-42").history()) == 2 * number + 2
    history = await watcher.thread("user-42").history()
    assert history.messages[-2].content == "Hi 349."
