"""A chat whose every turn is a run that continues the one before."""

import time
from pathlib import Path

from loopwright import Conversation, ReActEngine, Runtime
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider

WORDS = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do "


async def chat(path: Path, turns: int) -> tuple[Conversation, float]:
    """Questions of 500 bytes and answers of 1,200; return the conversation and CPU seconds."""
    answers = [f"Answer {turn}: {WORDS * 20}"[:1200] for turn in range(turns)]
    journal = SQLiteJournal(path)
    engine = ReActEngine(Runtime(ScriptedProvider(answers), journal=journal))
    conversation, began = Conversation(), time.process_time()
    for turn in range(turns):
        question = f"Question {turn}: {WORDS * 10}"[:500]
        result = await engine.run(conversation.user(question))
        conversation = result.raise_for_status().conversation
    seconds = time.process_time() - began
    await journal.close()
    return conversation, seconds


async def chat_in_thread(path: Path, turns: int) -> tuple[Conversation, float]:
    """The same through a thread that is opened anew for each question."""
    answers = [f"Answer {turn}: {WORDS * 20}"[:1200] for turn in range(turns)]
    journal = SQLiteJournal(path)
    agent = Runtime(ScriptedProvider(answers), journal=journal).agent("support")
    began = time.process_time()
    for turn in range(turns):
        question = f"Question {turn}: {WORDS * 10}"[:500]
        result = await agent.thread("user-42").run(question)
        result.raise_for_status()
    seconds = time.process_time() - began
    history = await agent.thread("user-42").history()
    await journal.close()
    return history, seconds
