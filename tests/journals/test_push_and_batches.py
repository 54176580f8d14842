"""A journal that says at once which run got a command, and renews many leases in one call."""

import asyncio
from typing import Any

import pytest

from async_journal import DelayedJournal, PushingJournal
from loopwright import ReActEngine, Result, Runtime, tool
from loopwright._kernel.control.journal_poller import PUSHED_INTERVAL
from loopwright.errors import Fenced, JournalError
from loopwright.journals import Claim
from loopwright.journals.renewals import WINDOW_SHARE, Renewals
from loopwright.testing import Line, ScriptedProvider, call
from loopwright.testing.simulation.host import HostClock
from virtual_time import in_virtual_time

OTHER = "elsewhere|1||me"


class Held:
    """A runtime whose tool waits until it is released, or its run is aborted."""

    def __init__(self, journal: DelayedJournal, **options: Any) -> None:
        self.begun, self.release = asyncio.Event(), asyncio.Event()

        @tool(effect="read")
        async def hold() -> str:
            """Wait."""
            self.begun.set()
            await self.release.wait()
            return "released"

        model = ScriptedProvider(lambda request: _continue(len(request.conversation)))
        options.setdefault("lease", 30.0)
        self.runtime = Runtime(model, tools=[hold], journal=journal, **options)
        self.engine = ReActEngine(self.runtime)


def _continue(messages: int) -> Line:
    return call("hold") if messages == 1 else "Done."


@pytest.mark.parametrize("breaks", [False, True], ids=["whole", "interrupted"])
@in_virtual_time
async def test_a_pushed_command_acts_long_before_the_next_look(breaks: bool) -> None:
    journal = PushingJournal(breaks=breaks)
    held = Held(journal)
    working = asyncio.ensure_future(held.engine.run("Go.", run_id="r"))
    await held.begun.wait()
    control = held.runtime.control("r")
    await control.add_context("Mind the gap.")
    async for entry in held.runtime.attach("r"):  # the first look has passed then
        if entry.kind == "command_received":
            break
    if breaks:  # the first command ended the watch
        await journal.watched_again.wait()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await control.abort()
    result = await working

    assert result.status == "aborted"
    assert loop.time() - began < PUSHED_INTERVAL / 2


async def test_nothing_is_pushed_to_once_no_run_is_at_work() -> None:
    journal = PushingJournal()
    held = Held(journal)
    held.release.set()
    before = asyncio.all_tasks()
    await held.engine.run("Go.", run_id="r")
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before


@in_virtual_time
async def test_leases_of_runs_at_work_are_renewed_in_one_call() -> None:
    clock = HostClock(asyncio.get_running_loop())
    journal = PushingJournal(clock=clock)
    held = Held(journal, clock=clock)
    names = [f"r{number}" for number in range(5)]
    working = list[asyncio.Future[Result]]()
    for name in names:  # their renewals are due one after the other
        working.append(asyncio.ensure_future(held.engine.run("Go.", run_id=name)))
        await asyncio.sleep(30.0 / WINDOW_SHARE / len(names))
    await journal.renewed_again.wait()
    held.release.set()
    results = await asyncio.gather(*working)

    assert {result.status for result in results} == {"completed"}
    assert journal.batches[0] == names


async def test_a_run_that_another_took_over_is_fenced_and_the_others_renewed() -> None:
    journal = PushingJournal()
    held = Held(journal)
    ends = [asyncio.ensure_future(held.engine.run("Go.", run_id=name)) for name in "ab"]
    await held.begun.wait()
    held.release.set()
    await asyncio.gather(*ends)
    old, kept = [await journal.claim(name, OTHER, lease=1.0) for name in "ab"]
    await journal.claim("a", OTHER, take_over=True)
    renewals = Renewals(journal)
    found = await asyncio.gather(
        renewals.renew(old, 0.3), renewals.renew(kept, 0.3), return_exceptions=True
    )

    assert isinstance(found[0], Fenced)
    assert found[1] is None
    assert journal.batches[-1] == ["a", "b"]


async def test_a_failed_call_fails_every_renewal_of_it_by_its_own_error() -> None:
    class Away(PushingJournal):
        async def renew_many(
            self, claims: object, lease: float
        ) -> list[JournalError | None]:
            raise ConnectionError("the server is away")

    journal = Away()
    renewals = Renewals(journal)
    claims = [Claim("a", 1), Claim("b", 1)]
    found = await asyncio.gather(
        *(renewals.renew(claim, 0.3) for claim in claims), return_exceptions=True
    )

    assert [type(one).__name__ for one in found] == ["JournalError"] * 2
    assert found[0] is not found[1]


class TakenOver(Fenced):
    """An error of a driver with an argument of its own."""

    def __init__(self, run_id: str, *, owner: str) -> None:
        super().__init__(f"{run_id} is {owner}'s")


class Answering(PushingJournal):
    """Answers each call of `renew_many` by what is given."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer

    async def renew_many(self, claims: object, lease: float) -> Any:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ([TakenOver("a", owner="me"), None], [TakenOver, type(None)]),
        ([None, True], [type(None), JournalError]),
        ([None], [JournalError, JournalError]),
        (None, [JournalError, JournalError]),
        (asyncio.CancelledError(), [JournalError, JournalError]),
    ],
    ids=["own error", "no error", "too few", "nothing", "cancelled"],
)
async def test_no_renewal_waits_for_ever_whatever_the_journal_answers(
    answer: object, found: list[type]
) -> None:
    renewals = Renewals(Answering(answer))
    waiting = [
        asyncio.ensure_future(renewals.renew(Claim(name, 1), 0.03)) for name in "ab"
    ]
    done, _ = await asyncio.wait(waiting, timeout=60)

    assert len(done) == len(waiting)
    assert [type(one.exception()) for one in waiting] == found


async def test_renewals_end_with_the_task_that_gathers_them() -> None:
    renewals = Renewals(PushingJournal())
    before = asyncio.all_tasks()
    waiting = asyncio.ensure_future(renewals.renew(Claim("a", 1), WINDOW_SHARE * 60.0))
    for _ in range(2):  # the renewal begins, then the task that gathers
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before - {waiting}:
        task.cancel()

    with pytest.raises(JournalError, match="the call was cancelled"):
        await asyncio.wait_for(waiting, timeout=60)
