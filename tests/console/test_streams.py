"""What a page that stays open is sent: rows as entries happen, each with what it refers to."""

import asyncio
from pathlib import Path
from typing import Any

from loopwright import Completion, ReActEngine, Request, Runtime
from loopwright.console.service import ConsoleService
from loopwright.console.streams import Streams
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider


class HeldProvider(ScriptedProvider):
    """Answers once the test lets it."""

    def __init__(self) -> None:
        super().__init__(["Done."])
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        self.is_asked.set()
        await self.may_answer.wait()
        return await super().complete(request)


async def test_a_stream_opened_at_the_newest_entry_names_the_model_that_replies(
    tmp_path: Path,
) -> None:
    provider, journal = HeldProvider(), SQLiteJournal(tmp_path / "runs.db")
    runtime = Runtime(provider, journal=journal)
    work = asyncio.create_task(ReActEngine(runtime).run("Go.", run_id="r"))
    await provider.is_asked.wait()
    newest = journal.read("r")[-1]
    streams = Streams(ConsoleService(journal, runtime))

    rows = list[Any]()
    async with asyncio.timeout(60):
        async for _, kind, value in streams.follow_run("r", newest.seq, "ada", 0.2):
            if kind == "entry":
                rows.append(value)
            elif kind != "open":  # it has read, and found no entry
                provider.may_answer.set()
            if rows and rows[-1]["kind"] == "run_finished":
                break
    await work

    assert newest.kind == "model_requested"
    [replied] = [row for row in rows if row["kind"] == "model_replied"]
    assert replied["lines"][0]["text"].startswith("scripted/script, turn 1: ")
