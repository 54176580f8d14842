"""Claims of many runs that a worker makes in one step, before it resumes each of them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

from ..._internal import dataclasses
from ..._internal.log import logger
from ...clock import ClockReading
from ...errors import format_error
from ...journals.base import Claim, RunInfo
from ...journals.batch_claims import BatchClaimingJournal, BatchClaims
from ...journals.owner import ACTIVE_TOKENS, Owner, new_owner
from .cancellation import finish_despite_cancellation
from .services import Services

T = TypeVar("T")


@dataclasses.dataclass
class EarlyClaim:
    """A claim that was made before its run is resumed.

    Args:
        claim: the right to write the run.
        owner: its owner.
        listed: the run as it was before.
        is_used: whether the run was resumed under it: it is not returned any more then.
    """

    claim: Claim
    owner: Owner
    listed: RunInfo
    is_used: bool = False


Chosen: TypeAlias = tuple[RunInfo, EarlyClaim | None]
"""A run to resume, with its claim unless it is claimed when it is resumed."""
_EARLY_CLAIM: ContextVar[EarlyClaim | None] = ContextVar("_EARLY_CLAIM", default=None)

_RESUMED: ContextVar[set[str] | None] = ContextVar("_RESUMED", default=None)
"""Collects the ids of the runs that a task claims and resumes."""


def note_resumed(run_id: str) -> None:
    """Note that this task claimed a run and continues it."""
    resumed = _RESUMED.get()
    if resumed is not None:
        resumed.add(run_id)


def find_early_claim(run_id: str) -> EarlyClaim | None:
    """Return the claim under which this task is to resume a run, if there is one that was not used."""
    early = _EARLY_CLAIM.get()
    if early is None or early.is_used:
        return None
    return early if early.claim.run_id == run_id else None


class ClaimBatch:
    """The claims that a worker has made and under which no run was resumed yet.

    Args:
        services: their journal, clock and lease. A journal that is no `BatchClaimingJournal` makes none of them.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        journal: object = services.journal
        self._claims: BatchClaims | None = None
        if isinstance(journal, BatchClaimingJournal):
            self._claims = journal.batch_claims
        self._early: dict[str, EarlyClaim] = {}

    async def claim(self, runs: Sequence[RunInfo], count: int) -> list[Chosen]:
        """Return the first `count` runs that are free with their claims; a cancellation waits until it is known which.

        Without claims they are the first runs, each of which is claimed when it is resumed.
        """
        claims, first = self._claims, runs[:count]
        if claims is None or not first:
            return [(info, None) for info in first]
        made: list[EarlyClaim] = []
        cancelled = await finish_despite_cancellation(
            lambda: self._claim(claims, runs, len(first), made)
        )
        if cancelled is not None:
            raise cancelled
        return [(early.listed, early) for early in made]

    async def _claim(
        self,
        claims: BatchClaims,
        runs: Sequence[RunInfo],
        count: int,
        made: list[EarlyClaim],
    ) -> None:
        """Claim the first `count` runs that are free, and add the claims to `made`."""
        with contextlib.ExitStack() as unused:
            owners: list[Owner] = []
            for _ in range(count):
                owner = new_owner()
                owners.append(owner)
                # Before a claim is visible, so that no other process takes its owner for dead.
                ACTIVE_TOKENS.add(owner.token)
                unused.callback(ACTIVE_TOKENS.discard, owner.token)
            began = ClockReading.take(self._services.clock)
            found = await claims.claim_next(
                runs, list(map(str, owners)), lease=self._services.lease
            )
            listed = {info.run_id: info for info in runs}
            for claim, owner in zip(found, owners, strict=False):
                claim.began = began
                early = EarlyClaim(claim, owner, listed[claim.run_id])
                self._early[claim.run_id] = early
                made.append(early)
            unused.pop_all()
            for owner in owners[len(found) :]:
                ACTIVE_TOKENS.discard(owner.token)

    async def hold(self, chosen: Chosen, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do the work of resuming a run, and return its claim if the run was not resumed under it.

        Return `None` in place of the result of a run that another process had ended.
        """
        info, early = chosen
        _EARLY_CLAIM.set(early)
        resumed = set[str]()
        _RESUMED.set(resumed)
        try:
            result = await work()
        finally:
            await self._settle(info.run_id)
        return result if info.run_id in resumed else None

    async def settle(self) -> None:
        """Return the claims of all runs that were not resumed."""
        settled = [self._settle(run_id) for run_id in list(self._early)]
        await asyncio.gather(*settled)

    async def _settle(self, run_id: str) -> None:
        """Return the claim of a run that was not resumed; a cancellation waits for that."""
        early, claims = self._early.pop(run_id, None), self._claims
        if early is None or claims is None or early.is_used:
            return
        early.is_used = True
        cancelled = await finish_despite_cancellation(
            lambda: _return_claim(claims, early)
        )
        if cancelled is not None:
            raise cancelled


async def _return_claim(claims: BatchClaims, early: EarlyClaim) -> None:
    """Return a claim; where that fails, the end of its owner frees the run."""
    try:
        await claims.return_claim(early.claim, early.listed)
    except Exception as error:  # noqa: BLE001 - a journal may be third-party code, and other runs must not stop
        run_id, problem = early.listed.run_id, format_error(error)
        logger().warning("claim_not_returned", run_id=run_id, error=problem)
    finally:
        ACTIVE_TOKENS.discard(early.owner.token)
