"""Workers claim many runs in one step: each run goes to one of them, and a run that is not resumed is as it was."""

import asyncio
import contextvars
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from pydantic import BaseModel

from loopwright import Fenced, MemoryJournal, ReActEngine, RunBusy, Runtime, Worker
from loopwright.errors import JournalError
from loopwright.events import RunResumed
from loopwright.journals import Claim, Journal, NewRun, RunInfo, SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider
from loopwright.worker import RETRY_SECONDS
from waiting import eventually


class Capital(BaseModel):
    """An answer."""

    name: str


class Counting(SQLiteJournal):
    """Counts its claims, and those that were refused."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, synchronous="NORMAL")
        self.counts = Counter[str]()
        self.kept_claims, self.batch_claims = self.batch_claims, cast("Any", self)
        self.serving: asyncio.Task[None] | None = None

    async def claim(self, run_id: str, owner: str, **options: Any) -> Claim:
        self.counts["claims"] += 1
        try:
            return await super().claim(run_id, owner, **options)
        except (RunBusy, Fenced):
            self.counts["refused"] += 1
            raise

    async def claim_next(
        self, runs: Sequence[RunInfo], owners: Sequence[str], **options: Any
    ) -> Any:
        found = await self.kept_claims.claim_next(runs, owners, **options)
        self.counts["steps"] += 1
        self.counts["claimed"] += len(found)
        return found

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        self.counts["returned"] += 1
        await self.kept_claims.return_claim(claim, run)


def make_runtime(
    journal: Journal, *script: Any, clock: FakeClock | None = None
) -> Runtime:
    model = ScriptedProvider(list(script) or (lambda request: "Done."))
    return Runtime(model, journal=journal, lease=30.0, clock=clock)


async def release(journal: Any, *names: str, output: Any = None) -> None:
    """Store new runs that any process may resume."""
    engine = ReActEngine(make_runtime(journal))
    for name in names:
        new: NewRun = engine.plan("Go.", run_id=name, output=output)
        claim = journal.create(new.header)
        journal.append(claim, new.entries, status="released")
        await journal.barrier(claim)


async def test_four_workers_take_two_hundred_runs_once_and_refuse_each_other_none(
    tmp_path: Path,
) -> None:
    names = [f"run-{number:03}" for number in range(200)]
    journals = [Counting(tmp_path / "runs.db") for _ in range(4)]
    await release(journals[0], *names)
    workers = [Worker(make_runtime(journal)) for journal in journals]
    found = await asyncio.gather(*(worker.drain() for worker in workers))

    done = [result.run_id for results in found for result in results]
    assert (sorted(done), min(map(len, found)) > 0) == (names, True)
    resumed = Counter(
        name
        for name in names
        for entry in journals[0].read(name)
        if isinstance(entry.event, RunResumed)
    )
    assert resumed == Counter(names)
    total = sum((journal.counts for journal in journals), Counter[str]())
    assert (total["claimed"], total["claims"]) == (200, 0)
    assert (total["refused"], total["returned"]) == (0, 0)
    for journal in journals:
        await journal.close()


async def test_a_run_that_cannot_be_resumed_is_given_back_as_it_was(
    tmp_path: Path,
) -> None:
    journal = Counting(tmp_path / "runs.db")
    await release(journal, "r", output=Capital)
    [before], entries = journal.runs(), journal.read("r")
    with structlog.testing.capture_logs() as logs:
        serving = asyncio.ensure_future(Worker(make_runtime(journal)).serve())
        await eventually(lambda: journal.runs()[0].fence == before.fence + 2)
    [after] = journal.runs()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert [line["event"] for line in logs] == ["run_skipped"]
    assert dataclasses.replace(after, fence=before.fence) == before
    assert (journal.read("r"), journal.counts["returned"]) == (entries, 1)

    parts = make_runtime(journal, '{"name": "Rome"}')
    [result] = await Worker(parts, outputs=[Capital]).drain()
    assert result.output == Capital(name="Rome")
    resumed = [e.event for e in journal.read("r") if isinstance(e.event, RunResumed)]
    assert [event.after for event in resumed] == ["left"]
    await journal.close()


class BatchedMemory(MemoryJournal):
    """Claims by its own methods, which others override."""

    def __init__(self) -> None:
        super().__init__()
        self.kept_claims, self.batch_claims = self.batch_claims, cast("Any", self)

    async def claim_next(self, *given: Any, **options: Any) -> Any:
        return await self.kept_claims.claim_next(*given, **options)

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        await self.kept_claims.return_claim(claim, run)


class Interrupting(BatchedMemory):
    """Cancels who claims, before any run can begin."""

    serving: "asyncio.Task[None] | None" = None

    async def claim_next(self, *given: Any, **options: Any) -> Any:
        claims = await self.kept_claims.claim_next(*given, **options)
        if self.serving is not None:
            self.serving.cancel()
        return claims


@pytest.mark.parametrize("begins", [False, True], ids=["claiming", "beginning"])
async def test_a_worker_that_is_stopped_gives_back_what_it_has_not_begun(
    begins: bool,
) -> None:
    journal = Interrupting()
    await release(journal, "one", "two")
    before = [(info.run_id, info.status, info.owner) for info in journal.runs()]
    worker = Worker(make_runtime(journal))
    if begins:
        await worker._start_runs()
        await worker._release()
    else:
        journal.serving = asyncio.ensure_future(worker.serve())
        with pytest.raises(asyncio.CancelledError):
            await journal.serving

    found = [(info.run_id, info.status, info.owner) for info in journal.runs()]
    assert found == before
    assert {info.fence for info in journal.runs()} == {3}
    assert all(e.kind != "run_resumed" for e in journal.read("one"))
    journal.serving = None
    assert len(await Worker(make_runtime(journal)).drain()) == 2


class Unreachable(BatchedMemory):
    """Cannot claim, once, or cannot take a claim back."""

    trouble: Exception | None = None
    returns = True

    async def claim_next(self, *given: Any, **options: Any) -> Any:
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        return await self.kept_claims.claim_next(*given, **options)

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        if not self.returns:
            raise JournalError("the store is away")
        await self.kept_claims.return_claim(claim, run)


@pytest.mark.parametrize("trouble", [JournalError("it is away"), TypeError("a bug")])
async def test_runs_that_could_not_be_claimed_in_one_step_are_tried_again(
    trouble: Exception,
) -> None:
    journal, clock = Unreachable(), FakeClock()
    await release(journal, "one", "two")
    worker = Worker(make_runtime(journal, clock=clock))
    journal.trouble = trouble
    with structlog.testing.capture_logs() as logs:
        assert [await worker.drain() for _ in range(2)] == [[], []]
    assert [(line["event"], line["run_id"]) for line in logs] == [
        ("run_not_claimed", "one"), ("run_not_claimed", "two"),
    ]  # fmt: skip
    clock.advance(RETRY_SECONDS)
    assert len(await worker.drain()) == 2


async def test_a_run_whose_claim_could_not_be_returned_is_claimed_again() -> None:
    journal = Unreachable()
    await release(journal, "r", output=Capital)
    journal.returns = False
    with structlog.testing.capture_logs():
        assert await Worker(make_runtime(journal)).drain() == []
    assert journal.runs()[0].status == "running"
    parts = make_runtime(journal, '{"name": "Rome"}')
    [result] = await Worker(parts, outputs=[Capital]).drain()

    assert result.output == Capital(name="Rome")


async def test_a_claim_whose_task_is_cancelled_under_it_is_undone(
    tmp_path: Path,
) -> None:
    """As `asyncio.run` does at its end with each task, those that finish something too."""
    journal = Counting(tmp_path / "runs.db")
    await release(journal, "one", "two")
    before = journal.runs()
    claiming = asyncio.ensure_future(
        journal.kept_claims.claim_next(before, ["one owner", "another"], lease=30.0)
    )
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await eventually(lambda: all(info.fence == 3 for info in journal.runs()))

    found = [dataclasses.replace(info, fence=1) for info in journal.runs()]
    assert found == before
    assert len(await Worker(make_runtime(journal)).drain()) == 2
    await journal.close()


def test_an_application_that_ends_while_its_worker_claims_leaves_the_runs_to_others(
    tmp_path: Path,
) -> None:
    journal = Counting(tmp_path / "runs.db")

    async def end_while_claiming() -> None:
        await release(journal, "one", "two")
        worker, claim_next = Worker(make_runtime(journal)), journal.claim_next
        begun = asyncio.Event()

        async def begin(*given: Any, **options: Any) -> Any:
            begun.set()
            return await claim_next(*given, **options)

        journal.claim_next = begin  # type: ignore[method-assign]
        journal.serving = asyncio.ensure_future(worker.serve())
        await begun.wait()

    asyncio.run(end_while_claiming())
    asyncio.run(journal.close())
    found = [(info.status, info.owner) for info in SQLiteJournal(journal.path).runs()]
    assert found == [("released", None)] * 2


class Broken(BatchedMemory):
    """Fails to take a claim back in a way of its own."""

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        raise TypeError("a bug")


async def test_a_journal_that_fails_to_take_a_claim_back_harms_no_other_run() -> None:
    journal = Broken()
    await release(journal, "typed", output=Capital)
    await release(journal, "r")
    with structlog.testing.capture_logs() as logs:
        [result] = await Worker(make_runtime(journal)).drain()

    assert result.run_id == "r"
    assert [line["event"] for line in logs] == ["run_skipped", "claim_not_returned"]


class Singly(MemoryJournal):
    """A journal that cannot claim many runs in one step; another worker is faster than each of its claims."""

    faster: Runtime | None = None

    def __init__(self) -> None:
        super().__init__()
        del self.batch_claims

    async def claim(self, run_id: str, owner: str, **options: Any) -> Claim:
        other, self.faster = self.faster, None
        if other is not None:
            work, apart = other.resume(run_id), contextvars.Context()
            await asyncio.get_running_loop().create_task(work, context=apart)
        return await super().claim(run_id, owner, **options)


async def test_drain_returns_no_result_of_a_run_that_another_worker_ended() -> None:
    journal = Singly()
    await release(journal, "first", "second")
    journal.faster = make_runtime(journal)
    results = await Worker(make_runtime(journal), max_concurrency=1).drain()

    assert [info.status for info in journal.runs()] == ["completed", "completed"]
    assert len(results) == 1
