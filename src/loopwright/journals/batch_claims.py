"""Claim the next of many runs in one step, for a journal that can."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from .base import Claim, RunInfo


class BatchClaims(Protocol):
    """Claims the next of many runs in one step, so that workers do not get in each other's way.

    Several workers that look at one journal find the same runs. Where each run is claimed alone, all but one of them are
    refused; here each worker is given others.
    """

    async def claim_next(
        self,
        runs: Sequence[RunInfo],
        owners: Sequence[str],
        *,
        lease: float | None = None,
    ) -> Sequence[Claim]:
        """Claim the first runs that are free, one for each owner, in one step; durable on return.

        A run is passed over that is gone, at work, or not as it was listed: with another fence or another last entry. The
        claims come in the order of `runs`; the first one has the first owner. There are fewer of them than owners if
        fewer runs are free. What is raised counts for all: those of the owners that got a run are not at work on it. A call
        that is cancelled leaves the runs as they were but for their fences, or does so soon.

        Args:
            runs: the runs that may be claimed, as they were listed, the first ones first.
            owners: the owners of the claims, each a text of its own.
            lease: seconds after which each claim expires unless it is renewed.
        """
        ...

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        """Return a claim of `claim_next` under which nothing was written, so that the run is as `run` lists it.

        Status, owner, lease and time to wake are those from before, and it has the same entries. Its fence grows, so that
        who has the claim cannot write any more. Does nothing if another owner has the run, or something was written.
        """
        ...


@runtime_checkable
class BatchClaimingJournal(Protocol):
    """A journal that claims many runs in one step; of any other, a worker claims each run by `Journal.claim`."""

    @property
    def batch_claims(self) -> BatchClaims:
        """What claims them."""
        ...


def is_as_listed(run: RunInfo, listed: RunInfo) -> bool:
    """Return whether a run was neither claimed nor written since it was listed."""
    return (run.fence, run.head_seq) == (listed.fence, listed.head_seq)
