"""The states of the runs that the page asked about, kept so that of each only new entries are read."""

import collections
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from .._internal import dataclasses
from ..errors import JournalError, LoopwrightError, UnknownRun
from ..events.control import Declassified
from ..events.entry import Entry
from ..events.lifecycle import restore_answer
from ..journals.base import Journal, RunInfo
from .digest import HIGHEST_LABEL, RunDigest

MAX_DIGESTS = 1000
"""Runs whose state is kept; the state of another one is read again."""
BATCH = 2000
"""Entries that are read at a time; a run with more that were not read is shown before they are."""
FIRST, NEWEST = 20, 500
"""Entries of such a run from which its state is made meanwhile."""
MAX_MARKED = 100
"""Entries that may change what is secret, from which on a run is read whole before it is shown."""
ReadRange: TypeAlias = Callable[[str, int, int], list[Entry]]


@runtime_checkable
class EntrySearch(Protocol):
    """Finds entries of a journal without reading them; a journal has it as `search`."""

    def find(self, run_id: str, text: bytes, kind: str) -> list[int] | None:
        """Return the numbers of the entries of a kind, or with a text in their bodies; `None` if bodies are encoded."""
        ...


@dataclasses.dataclass
class _Known:
    """What is known of one run; the lock is held while its entries are read."""

    digest: RunDigest = dataclasses.field(default_factory=RunDigest)
    glance: RunDigest | None = None
    failed: bool = False
    """Whether its entries could not be read while the page was shown without them."""
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class Digests:
    """Reads the states of runs, from any thread. A digest that it returned does not change.

    Args:
        journal: has the runs.
        read: returns entries of a run after a number.
    """

    def __init__(self, journal: Journal, read: ReadRange) -> None:
        search: object = getattr(journal, "search", None)
        self._search = search if isinstance(search, EntrySearch) else None
        self._read = read
        self._known: collections.OrderedDict[str, _Known] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._wanted: dict[str, None] = {}
        self._thread: threading.Thread | None = None

    def read(self, run_id: str, head_hash: str = "") -> RunDigest:
        """Return the state of a run by its newest entry; one whose newest entry is known by its hash is not read again."""
        known = self._find(run_id)
        with known.lock:
            is_newest = bool(head_hash) and known.digest.hash == head_hash
            while not is_newest:
                is_newest = self._read_on(run_id, known)
            return known.digest

    def glance(self, info: RunInfo) -> RunDigest:
        """Return the state of a run at once: of a long one by few of its entries, while a thread reads the others."""
        run_id, known = info.run_id, self._find(info.run_id)
        if info.head_seq - known.digest.seq <= BATCH or known.failed:
            return self.read(run_id, info.head_hash)
        found = known.glance
        if found is None or found.seq < info.head_seq:
            found = known.glance = self._build_glance(info)
        if found is None:
            return self.read(run_id, info.head_hash)
        self._read_behind(run_id)
        return found

    def _find(self, run_id: str) -> _Known:
        with self._lock:
            known = self._known.setdefault(run_id, _Known())
            self._known.move_to_end(run_id)
            if len(self._known) > MAX_DIGESTS:
                self._known.popitem(last=False)
            return known

    def _read_on(self, run_id: str, known: _Known) -> bool:
        """Read the entries that follow; return whether there are no more."""
        seq = known.digest.seq
        try:
            entries = self._read(run_id, max(seq - 1, 0), BATCH)
        except UnknownRun:
            with self._lock:
                self._known.pop(run_id, None)
            raise
        is_same = not seq or [one.hash for one in entries[:1]] == [known.digest.hash]
        if not is_same:  # it was deleted, and another run has its name
            known.digest, known.glance = RunDigest(), None
            return False
        # What cannot be read of it is said where the event is read.
        with contextlib.suppress(JournalError):
            restore_answer(entries)
        known.digest = known.digest.continue_with(entries[1:] if seq else entries)
        return len(entries) < BATCH

    def _build_glance(self, info: RunInfo) -> RunDigest | None:
        """Return a state made of the first and newest entries; `None` if what is secret cannot be known by then."""
        marked = self._find_marked(info.run_id)
        if marked is None:
            return None
        labels, newest = RunDigest(), max(info.head_seq - NEWEST, FIRST)
        for seq in marked:
            labels.read(self._read(info.run_id, seq - 1, 1))
        digest = RunDigest()
        for after, limit in ((0, FIRST), (newest, NEWEST)):
            digest.read(self._read(info.run_id, after, limit))
        digest.secrecy, digest.unread = labels.secrecy, newest - FIRST
        return digest

    def _find_marked(self, run_id: str) -> Sequence[int] | None:
        """Return the entries that decide what is secret."""
        if self._search is None:
            return None
        found = self._search.find(run_id, HIGHEST_LABEL, Declassified.kind)
        return found if found is not None and len(found) <= MAX_MARKED else None

    # --- in the background ---

    def _read_behind(self, run_id: str) -> None:
        """Have a thread read all of a run."""
        with self._lock:
            self._wanted[run_id] = None
            if self._thread is None or not self._thread.is_alive():
                work = threading.Thread(target=self._read_wanted, daemon=True)
                self._thread = work
                work.start()

    def _read_wanted(self) -> None:
        while (run_id := self._take_wanted()) is not None:
            known, is_newest = self._find(run_id), False
            try:
                while not is_newest:
                    with known.lock:
                        is_newest = self._read_on(run_id, known)
            except (
                LoopwrightError
            ):  # which the next request about the run meets and says
                known.failed = True

    def _take_wanted(self) -> str | None:
        """Return the next run that is wanted; with none the thread ends."""
        with self._lock:
            if not self._wanted:
                self._thread = None
                return None
            run_id = next(iter(self._wanted))
            del self._wanted[run_id]
            return run_id
