"""Write one run's entries into the journal, under a claim that this process must still hold."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from ..._internal import dataclasses
from ..._internal.log import logger
from ..._internal.own_errors import read_own_error
from ...clock import ClockReading
from ...errors import CodecError, ConfigError, Fenced, JournalError, LoopwrightError
from ...events.entry import Entry, Event, chain_event
from ...events.run import RunFinished, RunStarted, RunSuspended
from ...journals.base import Claim, EarlierRunGone, NewRun
from ...journals.capabilities import FollowUpJournal
from ...providers.base import Request
from ...security.redaction.requests import redact_request
from ..control.run_feeds import RunFeed
from .secrets import Secrets
from .services import Services
from .signals import Signals

Renew: TypeAlias = Callable[[Claim, float], Awaitable[None]]
"""Renews the lease of a claim for some seconds."""

_LEASE_EXPIRED = object()
"""Returned in place of a result: the lease ended before a thread was free."""


class JournalWriter:
    """Records the events of one run, shows them to watchers, and makes them durable.

    Watchers and observers see entries only once the first of them are durable, since
    the id of a new run may turn out to belong to another run; the feed of the run
    gets every entry when it is durable.
    """

    def __init__(
        self,
        services: Services,
        claim: Claim,
        signals: Signals,
        secrets: Secrets,
        feed: RunFeed,
        notes: Mapping[type[Any], Callable[[tuple[str, Any]], None]] = MappingProxyType(
            {}
        ),
    ) -> None:
        self._notes = notes
        """What is told the events of a type that are recorded, with their keys."""
        self.claim = claim
        self.watchers: list[Callable[[Entry], None]] = []
        self.stored = asyncio.Event()
        """Set once the journal has the run, so that others can send it commands."""
        self.is_closed = False
        """Whether the run's last entry is written, or that of its suspension."""
        self._whole_start: RunStarted | None = None
        self.forget_history: Callable[[], None] | None = None
        """Is called where a new run turns out to continue no other."""
        self._header = claim.header
        self._services, self._signals, self._secrets = services, signals, secrets
        self._feed = feed
        self._journal, self._clock = services.journal, services.clock
        self._wall_offset = services.clock.wall() - services.clock.monotonic()
        self._lease_began = claim.began or ClockReading.take(services.clock)
        self._unsent: list[Entry] = []
        self._unshown: list[Entry] | None = []
        self._durable_seq = claim.head_seq
        self._failure: LoopwrightError | None = None  # nothing is durable any more
        self._build_due: Callable[[Entry], Sequence[NewRun]] | None = None
        self._held: list[tuple[str, Event]] | None = None
        """What is to be recorded once the replay has ended; `None` before and after it."""

    def begin(self, started: RunStarted, whole: RunStarted | None) -> None:
        """Record the first entry of a run; `whole` takes its place where what it continues was deleted.

        Without that the run then fails, and nothing of it is stored.
        """
        self._whole_start = whole
        self.record("", started)

    def record(self, key: str, event: Event) -> Entry:
        """Add an event to the journal; it is durable after the next `barrier`."""
        entry = self._chain(key, event, self.wall())
        self._unsent.append(entry)
        note = self._notes.get(type(event))
        if note is not None:
            note((key, event))
        if self._unshown is not None:
            self._unshown.append(entry)
        elif self.watchers or self._services.observers:
            self._show(entry)
        return entry

    def _chain(self, key: str, event: Event, at: float) -> Entry:
        """Return the next entry; an error of the codec is one of the journal."""
        try:
            return chain_event(self.claim, key, event, at)
        except CodecError as error:
            raise self.fail(error) from None

    def _begin_anew(self, claim: Claim, error: EarlierRunGone) -> None:
        """Begin a new run again, of which nothing is stored, as one that continues no other."""
        begun, start, header = self._unshown or [], self._whole_start, self._header
        if start is None or header is None:
            raise self.fail(error)
        if claim is not self.claim:  # another barrier has done so
            return
        header = dataclasses.replace(header, follows=None, follows_entry=None)
        self.claim = self._journal.create(header)
        events = [start, *(entry.event for entry in begun[1:])]
        chained = [
            self._chain(entry.key, event, entry.at)
            for entry, event in zip(begun, events, strict=True)
        ]
        self._unsent, self._unshown = chained, list(chained)
        if self.forget_history is not None:
            self.forget_history()

    def begin_replay(self) -> None:
        """Hold back from now on what `record_after_replay` is given."""
        self._held = []

    def end_replay(self) -> None:
        """Record what was held back."""
        held, self._held = self._held or [], None
        for key, event in held:
            self.record(key, event)

    def record_after_replay(self, key: str, event: Event) -> None:
        """Record an event that code may cause during replay; if the run diverges, it is not recorded."""
        if self._held is None:
            self.record(key, event)
        else:
            self._held.append((key, event))

    def close(self, event: RunSuspended | RunFinished) -> Entry:
        """Record the run's last entry, or that of its suspension."""
        entry = self.record("", event)
        self.claim.wake_at = getattr(event, "wake_at", 0.0)
        self.is_closed = True
        return entry

    def release(self) -> NewRun:
        """Return a run of which nothing is stored yet as one for any process, with the entries that it has so far."""
        header = self._header
        if header is None:
            raise JournalError(f"run {self.claim.run_id!r} is not new: resume it")
        self.close(RunSuspended("released", released=True))
        return NewRun(header, tuple(self._unsent))

    def add_due(self, build: Callable[[Entry], Sequence[NewRun]]) -> None:
        """Store the runs that `build` makes of the run's last entry in the transaction of that entry."""
        self._build_due = build

    def wall(self) -> float:
        """Return wall time in seconds; it never goes back while this process works on the run."""
        return self._wall_offset + self._clock.monotonic()

    async def barrier(self, status: str | None = None) -> None:
        """Make all recorded events durable; an error is sticky, so that nothing runs after it."""
        if self._failure is not None:
            raise self._failure
        claim = self.claim
        if claim.head_seq != self._durable_seq or status is not None:
            await self._store(claim, claim.head_seq, status)

    def _append(
        self, claim: Claim, entries: Sequence[Entry], status: str | None
    ) -> None:
        journal, build = self._journal, self._build_due
        if build is not None and isinstance(journal, FollowUpJournal):
            due = build(entries[-1])
            journal.append_end(claim, entries, status=status or "", due=due)
        else:
            journal.append(claim, entries, status=status)

    async def _store(self, claim: Claim, head: int, status: str | None) -> None:
        unsent, self._unsent = self._unsent, []
        try:
            self._append(claim, unsent, status)
            await self._journal.barrier(claim)
        except EarlierRunGone as error:
            self._begin_anew(claim, error)
            await self.barrier(status)
            return
        except ConfigError as error:  # the run id is taken: this run never existed
            self.fail(error)
            raise
        except LoopwrightError as error:
            self.fail(error)
            self._show_all()
            raise
        except (OSError, asyncio.CancelledError) as raised:
            own = read_own_error(raised)
            failure = self.fail(JournalError(f"the journal failed: {own}"))
            self._show_all()
            raise failure from own
        if self._unshown is not None:
            self._show_all()
        self.stored.set()
        if self._feed.subscriptions:
            self._feed.publish(unsent)
        if self._failure is not None:  # a barrier that ran beside this one failed
            raise self._failure
        self._durable_seq = max(self._durable_seq, head)

    async def ensure_held(self) -> None:
        """Make sure, right before this process acts, that it still owns the run; raises `Fenced`."""
        if self._is_held():
            return
        try:
            await self.renew(self._journal.renew)
        except JournalError as error:
            # Nothing new begins, and the run is left as one whose owner died.
            self.fail(error)
            raise

    async def renew(self, renew: Renew) -> None:
        """Extend the lease by a call of the journal. An error is sticky if another worker took the run over."""
        if self._failure is not None:
            raise self._failure
        began = ClockReading.take(self._clock)
        try:
            await renew(self.claim, self._services.lease or 0.0)
        except Fenced as error:
            self.fail(error)
            raise
        except (OSError, asyncio.CancelledError) as raised:
            own = read_own_error(raised)
            raise JournalError(f"the journal failed: {own}") from own
        self._lease_began = began

    async def run_in_thread(self, function: Callable[[], Any]) -> Any:
        """Call a plain function in a thread, if this process owns the run when one is free.

        Raises `Fenced` if another process took the run over.
        """
        while True:
            value = await self._services.worker_threads.run(
                lambda: function() if self._is_held() else _LEASE_EXPIRED
            )
            if value is not _LEASE_EXPIRED:
                return value
            await self.ensure_held()

    def _is_held(self) -> bool:
        """Return whether the lease is not over by any clock: if only wall time was set, renewing it shows that."""
        if self.claim.lease_until is None:
            return True
        return self._lease_began.elapsed(self._clock) < (self._services.lease or 0.0)

    def fail(self, error: LoopwrightError) -> LoopwrightError:
        """Make an error of the journal sticky, and return it to be raised: nothing more is written."""
        self._signals.fatal = self._failure = error
        return error

    def _show_all(self) -> None:
        entries, self._unshown = self._unshown or [], None
        for entry in entries:
            self._show(entry)

    def _show(self, entry: Entry) -> None:
        for watcher in self.watchers:
            watcher(entry)
        for observer in self._services.observers:
            self._notify(observer, entry)

    def show_request(self, keys: Sequence[str], request: Request) -> None:
        """Show the observers that want it what model calls, whose intents are durable, are about to send."""
        clean = redact_request(self._secrets.redactor, request)
        for observe in self._services.request_observers:
            self._notify(observe, self.claim.run_id, keys, clean)

    def _notify(self, observer: Callable[..., None], *shown: object) -> None:
        try:
            observer(*shown)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - an observer is third-party code and may not hurt the run
            redact = self._secrets.redactor.redact_text
            logger().warning(
                "observer_failed",
                observer=redact(repr(observer)),
                error=redact(repr(error)),
            )
