"""The calls of a journal that may wait for its store, as coroutines: its own where it has them, else in a thread."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from .._internal.sync import LOOP_THREAD, LoopThread
from ..errors import ConfigError, UnknownRun
from ..events.entry import Entry
from ..messages import JsonObject
from .base import Command, Journal, RunInfo, Verification
from .capabilities import list_page
from .listing import RunFilter, check_page

T = TypeVar("T")
News: TypeAlias = tuple[int, frozenset[str]]
"""A number, and the runs to which something was written since the number before."""


class AwaitableReads(Protocol):
    """The calls of a journal over an asynchronous driver, which the runtime awaits in its event loop.

    A journal has all five, beside the plain functions of `Journal`, or none: then the runtime calls those in a thread.
    They may be awaited in several event loops. `AsyncJournal` is a base class that has the plain ones made of these.
    """

    async def fetch_entries(self, run_id: str, *, after: int = 0) -> list[Entry]:
        """Return the entries of a run whose numbers are greater than `after`, oldest first; raise `UnknownRun`."""
        ...

    async def fetch_runs(
        self,
        *,
        unfinished: bool = False,
        where: RunFilter | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[RunInfo]:
        """Return the runs that a filter selects, newest first: `limit` of them that began before the run `before`.

        With `unfinished`, those that have not ended.
        """
        ...

    async def fetch_commands(self, run_id: str, after: int = 0) -> list[Command]:
        """Return the commands to a run whose numbers are greater than `after`, oldest first, as `inbox` does."""
        ...

    async def store_command(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox and return its number, as `send` does; durable on return."""
        ...

    async def verify_run(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain, as `verify` does."""
        ...


COROUTINES = (
    "fetch_entries", "fetch_runs", "fetch_commands", "store_command", "verify_run",
)  # fmt: skip
"""The methods of `AwaitableReads`."""


def find_reads(journal: Journal) -> AwaitableReads | None:
    """Return what a journal awaits, `None` for one that is called in a thread."""
    found = journal if hasattr(journal, COROUTINES[0]) else None
    return cast("AwaitableReads | None", found)


def check_reads(journal: object) -> None:
    """Raise `ConfigError` for a journal of which the plain functions or the coroutines are the others, or not all there."""
    name = type(journal).__name__
    for plain in ("read", "runs", "verify", "send", "inbox"):
        if inspect.iscoroutinefunction(getattr(journal, plain, None)):
            raise ConfigError(
                f"journal: {name}.{plain} is a coroutine function, and scripts call it as a plain one; inherit from "
                "AsyncJournal, which has the plain ones, and write "
                + ", ".join(COROUTINES)
            )
    missing = [one for one in COROUTINES if not callable(getattr(journal, one, None))]
    if missing and len(missing) < len(COROUTINES):
        raise ConfigError(
            f"journal: {name} awaits some of its reads and lacks {', '.join(missing)}; write all of them, or none"
        )


# --- one call ---


async def read_run(journal: Journal, run_id: str, after: int = 0) -> list[Entry]:
    """Return the entries of a run after a number, oldest first; raise `UnknownRun`."""
    reads = find_reads(journal)
    if reads is not None:
        return await reads.fetch_entries(run_id, after=after)
    if after == 0:
        return await asyncio.to_thread(journal.read, run_id)
    return await asyncio.to_thread(_read_range, journal, run_id, after)


async def list_unfinished(journal: Journal) -> list[RunInfo]:
    """Return the runs that have not ended, newest first."""
    reads = find_reads(journal)
    if reads is not None:
        return await reads.fetch_runs(unfinished=True)
    return await asyncio.to_thread(lambda: journal.runs(unfinished=True))


async def list_runs(
    journal: Journal,
    where: RunFilter | None = None,
    limit: int | None = None,
    before: str | None = None,
) -> list[RunInfo]:
    """Return the runs that a filter selects, newest first, as `list_page` does."""
    reads = find_reads(journal)
    if reads is None:
        return await asyncio.to_thread(list_page, journal, where, limit, before)
    check_page(limit, before, where)
    return await reads.fetch_runs(where=where, limit=limit, before=before)


async def read_inbox(journal: Journal, run_id: str, after: int = 0) -> list[Command]:
    """Return the commands to a run whose numbers are greater than `after`, oldest first."""
    reads = find_reads(journal)
    if reads is not None:
        return await reads.fetch_commands(run_id, after)
    return await asyncio.to_thread(journal.inbox, run_id, after)


async def send_command(
    journal: Journal, run_id: str, kind: str, body: JsonObject
) -> int:
    """Put a command into a run's inbox and return its number; durable on return."""
    reads = find_reads(journal)
    if reads is not None:
        return await reads.store_command(run_id, kind, body)
    return await asyncio.to_thread(journal.send, run_id, kind, body)


async def read_news(method: Callable[[int], Any], after: int) -> News:
    """Return the news since a number from a journal's method `news` or `inbox_news`, which may be a coroutine function."""
    if inspect.iscoroutinefunction(method):
        found: News = await method(after)
        return found
    return cast("News", await asyncio.to_thread(method, after))


def _read_range(journal: Journal, run_id: str, after: int) -> list[Entry]:
    """Return the entries of a run after a number, from a journal that reads a range or one that reads all."""
    read: Any = journal.read
    if "after" in inspect.signature(read).parameters:
        found: list[Entry] = read(run_id, after=after)
        return found
    return journal.read(run_id)[after:]


# --- many calls ---

_HOST: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = (
    contextvars.ContextVar("_HOST", default=None)
)
"""The event loop that waits for this thread, in which a journal's coroutines can be awaited meanwhile."""
_SPARE_LOOP = LoopThread()
"""Where coroutines are awaited for callers who block the loop of synchronous callers."""


async def consult(function: Callable[..., T], *arguments: object) -> T:
    """Call a plain function that reads a journal many times, in a thread; an asynchronous one is read in this event loop."""
    context = contextvars.copy_context()
    context.run(_HOST.set, asyncio.get_running_loop())
    return await asyncio.to_thread(context.run, function, *arguments)


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine of a journal for a synchronous caller.

    In a thread of `consult` that is done in the event loop which waits for the thread; in any other thread in that of
    `run_sync`, or in a private one where the caller blocks that.
    """
    host = _HOST.get()
    if host is not None and host.is_running() and not _has_loop():
        return asyncio.run_coroutine_threadsafe(work, host).result()
    own = _SPARE_LOOP if LOOP_THREAD.is_current else LOOP_THREAD
    return own.run(work)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class KnownEntries:
    """The entries of some runs that were read before."""

    def __init__(self, entries: Mapping[str, Sequence[Entry]]) -> None:
        self._entries = entries

    def read(self, run_id: str) -> list[Entry]:
        """Return all entries of a run, oldest first."""
        try:
            return list(self._entries[run_id])
        except KeyError:
            raise UnknownRun(f"no run {run_id!r} was read") from None
