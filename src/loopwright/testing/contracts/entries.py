"""Runs, owners and entries as the kernel makes them, for checks of journals."""

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar
from unittest import mock

from ...clock import SystemClock
from ...errors import Fenced, RunBusy
from ...events.entry import Entry
from ...journals.base import Claim, Journal, RunHeader, chain_hash
from ...journals.owner import Owner, process_start
from ..assertions import assert_equal, assert_true, expect_error

HOST = Owner.of_this_process("").host
ME = str(Owner.of_this_process("me"))
LIVE = str(Owner(HOST, os.getppid(), process_start(os.getppid()), "live"))
DEAD = str(Owner(HOST, 2**22 + 1, "1", "dead"))  # a number that no process can have
AWAY = str(
    Owner(f"not-{HOST}", 1, "1", "away")
)  # on a host of which nothing is known here


class Opens(Protocol):
    """What gives a test its journal."""

    def journal(self, folder: Path) -> Journal:
        """The journal in that folder."""
        ...


Contract = TypeVar("Contract", bound=Opens)


def with_journal(
    check: Callable[[Contract, Journal], Coroutine[Any, Any, None]],
) -> Callable[[Contract, Path], None]:
    """A check of a journal as a test that opens it in a folder of its own, and closes it."""

    def test(self: Contract, tmp_path: Path) -> None:
        async def work() -> None:
            journal = self.journal(tmp_path)
            try:
                await check(self, journal)
            finally:
                await journal.close()

        asyncio.run(work())

    for name in (
        "__name__",
        "__qualname__",
        "__doc__",
    ):  # and no `__wrapped__`: a test runner would ask for `journal`
        setattr(test, name, getattr(check, name))
    return test


def header(run_id: str = "r1", owner: str = ME) -> RunHeader:
    """A run as an engine begins it."""
    return RunHeader(
        run_id, "react", '{"max_iterations":5}', "1", owner, 1_700_000_000.25
    )


def follow(
    claim: Claim,
    *bodies: bytes,
    key: str = "0",
    kind: str = "fact_noted",
    at: float = 1.5,
) -> list[Entry]:
    """The entries that come next in a run, numbered and hashed as the kernel does it."""
    entries: list[Entry] = []
    for body in bodies:
        bare = Entry(
            claim.run_id, claim.head_seq + 1, key, kind, at, 1, claim.fence, body, ""
        )
        entries.append(
            dataclasses.replace(bare, hash=chain_hash(claim.head_hash, bare))
        )
        claim.head_seq, claim.head_hash = entries[-1].seq, entries[-1].hash
    return entries


async def write(
    journal: Journal, claim: Claim, *bodies: bytes, status: str | None = None
) -> list[Entry]:
    """Append and wait until it is kept."""
    entries = follow(claim, *bodies)
    journal.append(claim, entries, status=status)
    await journal.barrier(claim)
    return entries


async def until_over(lease: float) -> None:
    """Wait until a lease that was given just now, in seconds, is over by any clock that counts time."""
    await asyncio.sleep(lease + 0.05)


@contextlib.contextmanager
def wall_clock_set(seconds: float) -> Generator[None]:
    """Set the wall clock that this process shows forward by some seconds."""
    wall = time.time

    def show() -> float:
        return wall() + seconds

    with (
        mock.patch("time.time", show),
        mock.patch.object(SystemClock, "wall", staticmethod(show)),
    ):
        yield


@contextlib.contextmanager
def another_machine() -> Generator[None]:
    """Let this process be one of another machine, which was started at another time."""
    boot = SystemClock.boot
    with (
        mock.patch.object(SystemClock, "boot_id", "another machine"),
        mock.patch.object(SystemClock, "boot", staticmethod(lambda: boot() + 1e6)),
    ):
        yield


async def one_writes(
    journals: Sequence[Journal], run_id: str, owner: str, entries: list[Entry]
) -> None:
    """Claim a run through all journals concurrently: one claim can write afterwards, the others never."""
    results = await asyncio.gather(
        *(journal.claim(run_id, owner) for journal in journals), return_exceptions=True
    )
    claims: list[tuple[Claim, Journal]] = []
    for claim, journal in zip(results, journals, strict=True):
        if isinstance(claim, BaseException):
            assert_true(
                isinstance(claim, RunBusy),
                f"claiming a run concurrently: RunBusy expected, got {claim!r}",
            )
        else:
            claims.append((claim, journal))
    fences = sorted(claim.fence for claim, _ in claims)
    assert_true(fences, "claiming a run concurrently: no claim succeeded")
    assert_equal(len(set(fences)), len(fences), f"different fences, of {fences}")
    for claim, journal in claims:
        if claim.fence < fences[-1]:
            with expect_error(
                Fenced, "writing after a concurrent claim of the same run"
            ):
                await write(journal, claim, b"not mine")
    claim, journal = max(claims, key=lambda pair: pair[0].fence)
    entries = [*entries, *await write(journal, claim, b"mine")]
    assert_equal(journal.read(run_id), entries, "the entries")
    assert_true(journal.verify(run_id).ok, "the chain does not verify")
