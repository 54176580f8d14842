"""What the console is woken by: the journal's marks, and the runs at work in this process."""

import asyncio
from pathlib import Path

import pytest

from loopwright import ReActEngine, Runtime, tool
from loopwright.console.news import PATIENCE, News
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider, call


class SilentJournal(SQLiteJournal):
    """Never says that something was written, so that looks at it find nothing."""

    def head_mark(self) -> object:
        return 0

    def inbox_mark(self) -> object:
        return 0


class WaitingTool:
    """A tool that is at work until the test lets it end."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

        @tool(effect="read")
        async def wait_here() -> str:
            """Wait."""
            self.begun.set()
            await self.may_end.wait()
            return "done"

        self.tool = wait_here


async def test_entries_of_a_run_of_this_process_are_told_at_once(
    tmp_path: Path,
) -> None:
    waiting, journal = WaitingTool(), SilentJournal(tmp_path / "runs.db")
    provider = ScriptedProvider([call("wait_here"), "Done."])
    runtime = Runtime(provider, tools=[waiting.tool], journal=journal)
    news = News(journal, runtime.feeds)
    async with news.subscribe("r") as subscription, news.subscribe("s") as other:
        await subscription.wait(60)  # the first look tells of everything
        await other.wait(60)
        work = asyncio.create_task(ReActEngine(runtime).run("Go.", run_id="r"))
        await waiting.begun.wait()
        seen = len(journal.read("r"))

        assert await subscription.wait(60) is not None
        waiting.may_end.set()
        while journal.read("r")[-1].kind != "run_finished":
            assert await subscription.wait(60) is not None
        await work
        assert len(journal.read("r")) > seen
        assert await other.wait(0) is None


async def test_a_look_tells_nothing_that_the_run_has_told(tmp_path: Path) -> None:
    waiting, journal = WaitingTool(), SilentJournal(tmp_path / "runs.db")
    provider = ScriptedProvider([call("wait_here"), "Done."])
    runtime = Runtime(provider, tools=[waiting.tool], journal=journal)
    news = News(journal, runtime.feeds)
    async with news.subscribe("r") as subscription:
        await subscription.wait(60)
        work = asyncio.create_task(ReActEngine(runtime).run("Go.", run_id="r"))
        await waiting.begun.wait()
        while await subscription.wait(0) is not None:
            pass

        subscription.tell(frozenset(("r",)))
        assert await subscription.wait(0) is None
        subscription.tell(None)  # a command, or the renewal of a lease
        assert await subscription.wait(0) is not None

        waiting.may_end.set()
        await work
        while await subscription.wait(0) is not None:
            pass
        subscription.tell(frozenset(("r",)))  # another process may be at work on it
        assert await subscription.wait(0) is not None


class RestlessJournal(SQLiteJournal):
    """Says at each look that something was written, which is no entry."""

    looks = 0

    def head_mark(self) -> object:
        self.looks += 1
        return self.looks


async def test_changes_that_are_no_entries_are_told_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopwright.console.news.POLL", 0.001)
    journal = RestlessJournal(tmp_path / "runs.db")
    await ReActEngine(Runtime(ScriptedProvider(["Done."]), journal=journal)).run("Go.")
    told = 0
    async with News(journal).subscribe("r") as subscription:
        while journal.looks < 10 * PATIENCE:
            told += await subscription.wait(60) is not None

    assert 9 <= told <= 11
