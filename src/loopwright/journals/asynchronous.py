"""AsyncJournal: the base of a journal over an asynchronous driver."""

from abc import abstractmethod
from collections.abc import Sequence

from ..events.entry import Entry
from ..messages import JsonObject
from .access import wait_for
from .base import Claim, Command, RunHeader, RunInfo, Verification
from .listing import RunFilter
from .recorded_requests import RequestReader


class AsyncJournal(RequestReader):
    """Base of a journal whose reads are coroutines, which the runtime awaits in its event loop, without a thread.

    The plain functions of `Journal`, for scripts and debuggers, are made of them: they wait for the coroutine in another
    event loop. So coroutines of one journal may be awaited in several event loops; a pool of connections that belongs
    to a loop is kept for each.
    """

    @abstractmethod
    def create(self, header: RunHeader) -> Claim:
        """Return the claim to a new run, as `Journal` describes it; makes no call to the store."""

    @abstractmethod
    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Claim a run for an owner."""

    @abstractmethod
    async def renew(self, claim: Claim, lease: float) -> None:
        """Let the claim's lease end `lease` seconds from now."""

    @abstractmethod
    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Queue entries; makes no call to the store."""

    @abstractmethod
    async def barrier(self, claim: Claim) -> None:
        """Wait until all entries queued under this claim are durable."""

    @abstractmethod
    async def fetch_entries(self, run_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries of a run whose numbers are greater than `after`, oldest first; raise `UnknownRun`."""

    @abstractmethod
    async def fetch_runs(
        self,
        *,
        unfinished: bool = False,
        where: RunFilter | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[RunInfo]:
        """Return the runs that a filter selects, newest first: `limit` of them that began before the run `before`."""

    @abstractmethod
    async def fetch_commands(self, run_id: str, after: int = 0) -> list[Command]:
        """Return the commands to a run whose numbers are greater than `after`, oldest first."""

    @abstractmethod
    async def store_command(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox and return its number."""

    @abstractmethod
    async def verify_run(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain, and that it ends in `head` if the caller kept that hash."""

    @abstractmethod
    async def close(self) -> None:
        """Make everything durable, and close connections."""

    def inbox_mark(self) -> object:
        """Return something new each time: whether a command was sent, only the store knows; see `inbox_news`."""
        return object()

    # --- for synchronous callers ---

    def read(self, run_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries of a run after a number, oldest first."""
        return wait_for(self.fetch_entries(run_id, after=after))

    def runs(
        self,
        *,
        unfinished: bool = False,
        where: RunFilter | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[RunInfo]:
        """Return the runs that a filter selects, newest first."""
        found = self.fetch_runs(
            unfinished=unfinished, where=where, limit=limit, before=before
        )
        return wait_for(found)

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain."""
        return wait_for(self.verify_run(run_id, head))

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox and return its number."""
        return wait_for(self.store_command(run_id, kind, body))

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """Return the commands to a run, oldest first."""
        return wait_for(self.fetch_commands(run_id, after))
