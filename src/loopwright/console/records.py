"""What the console reads of a journal: lists of runs, the state of each, and ranges of entries."""

import collections
import contextlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any, cast

from pydantic_core import to_jsonable_python

from .._kernel.control.questions import open_questions
from .._kernel.durability.forgotten_failures import NOTHING_TO_RETRY, plan_retry
from .._kernel.durability.replay import Replay
from ..clock import Clock, SystemClock
from ..errors import JournalError, UnknownRun
from ..events.entry import Entry
from ..events.lifecycle import restore_answer
from ..events.run import Question
from ..journals.base import RESUMABLE, Journal, RunInfo
from ..journals.capabilities import PagedJournal, list_page
from ..journals.claims import get_watch, is_orphaned
from ..journals.listing import RunFilter
from ..messages import JsonObject
from .digest import RunDigest

MAX_DIGESTS = 1000
"""Runs whose state is kept; the state of another one is read again."""
BATCH = 2000
"""Entries that are read at a time."""


class Records:
    """Reads one journal, from any thread, and keeps the state of the runs that it was asked about."""

    def __init__(self, journal: Journal, clock: Clock | None = None) -> None:
        self.journal = journal
        self._watch = get_watch(journal, clock or SystemClock())
        self._has_ranges = isinstance(cast("object", journal), PagedJournal)
        self._digests: collections.OrderedDict[str, RunDigest] = (
            collections.OrderedDict()
        )
        self._lock = threading.Lock()

    def read(
        self, run_id: str, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """Return `limit` entries of a run after a number; raise `UnknownRun`."""
        if self._has_ranges:
            ranged = cast("Any", self.journal)
            found: list[Entry] = ranged.read(run_id, after=after, limit=limit)
            return found
        entries = self.journal.read(run_id)[after:]
        return entries if limit is None else entries[:limit]

    def find(self, run_id: str) -> RunInfo:
        """Return the list entry of a run; raise `UnknownRun`."""
        found = self.list_runs(RunFilter(text=run_id))
        exact = [info for info in found if info.run_id == run_id]
        if not exact:
            raise UnknownRun(f"run {run_id!r} is not in the journal")
        return exact[0]

    def list_runs(
        self,
        where: RunFilter | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[RunInfo]:
        """Return the runs that a filter selects, newest first."""
        return list_page(self.journal, where, limit, before)

    def count(self, where: RunFilter | None = None) -> dict[str, int]:
        """Return the number of runs by status."""
        counting = getattr(self.journal, "count_runs", None)
        if counting is not None:
            counts: dict[str, int] = counting(where)
            return counts
        return dict(collections.Counter(info.status for info in self.list_runs(where)))

    def digest(self, run_id: str) -> RunDigest:
        """Return the state of a run by its newest entry."""
        with self._lock:
            known = self._digests.get(run_id)
            if known is not None and not self._continues(run_id, known):
                known = None
            digest = known or RunDigest()
            while entries := self.read(run_id, digest.seq, BATCH):
                # What cannot be read of it is said where the event is read.
                with contextlib.suppress(JournalError):
                    restore_answer(entries)
                digest.read(entries)
                if len(entries) < BATCH:
                    break
            self._digests[run_id] = digest
            self._digests.move_to_end(run_id)
            if len(self._digests) > MAX_DIGESTS:
                self._digests.popitem(last=False)
            return digest

    def _continues(self, run_id: str, known: RunDigest) -> bool:
        """Whether a run still is the one that was read: a deleted one may have made room for another of its name."""
        try:
            entries = self.read(run_id, known.seq - 1, 1)
        except UnknownRun:
            del self._digests[run_id]
            raise
        return bool(entries) and entries[0].at == known.last

    def questions(self, info: RunInfo) -> tuple[Question, ...]:
        """Return what a run wants decided."""
        if info.status not in RESUMABLE:
            return ()
        if info.status != "waiting" and not self._may_ask(info.run_id):
            return ()
        return open_questions(self.read(info.run_id))

    def _may_ask(self, run_id: str) -> bool:
        digest = self.digest(run_id)
        return digest.has_asked or digest.counts.get("recoveries", 0) > 0

    def find_retry_problem(self, info: RunInfo) -> str:
        """Return why a run cannot be retried, as `RunControl.retry` decides it; empty if it can."""
        if info.status not in ("parked", "failed"):
            return f"it {NOTHING_TO_RETRY}"
        try:
            problem = plan_retry(self.read(info.run_id)).problem
        except JournalError as error:
            return f"it cannot be read: {error}"
        return f"it {problem}" if problem else ""

    def find_proposed(self, run_id: str, question: Question) -> JsonObject | None:
        """Return the arguments that the model proposed, where policy changed them before it asked."""
        if question.about != "approval":
            return None
        proposed = Replay(self.read(run_id)).effects.proposed(question.key)
        if proposed is None or proposed.arguments == question.arguments:
            return None
        return proposed.arguments

    def find_unreceived(self, run_id: str) -> list[dict[str, Any]]:
        """Return the commands that were sent to a run and that it has not received."""
        sent = self.journal.inbox(run_id, self.digest(run_id).received)
        return [
            {"number": one.number, "kind": one.kind, "body": one.body, "at": one.at}
            for one in sent
        ]

    def has_owner(self, info: RunInfo) -> bool:
        """Whether a process is at work on a run."""
        return info.status == "running" and not is_orphaned(info, self._watch)

    def describe(self, info: RunInfo) -> dict[str, Any]:
        """Return a run as the list shows it; of a damaged one, what is known."""
        described: dict[str, Any] = {
            "run_id": info.run_id,
            "engine": info.engine,
            "agent": info.agent,
            "status": info.status,
            "orphaned": info.status == "running" and not self.has_owner(info),
            "created": info.created,
            "entries": info.head_seq,
            "parent_run": info.parent_run,
            "fork_seq": info.fork_seq,
            "follows": info.follows,
            "thread": info.thread,
            "tags": dict(info.tags),
            "wake_at": info.wake_at,
            "version": info.version,
            "app_version": info.app_version,
            "damage": info.damage,
        }
        try:
            digest = self.digest(info.run_id)
        except JournalError as error:
            return {**described, "damage": info.damage or str(error)}
        total = digest.total
        cost = total.cost if total.is_priced else None
        return {
            **described,
            "task": "" if digest.holds_secrets else digest.task[:300],
            "paused": digest.is_paused,
            "stop_reason": digest.ending.get("stop_reason", ""),
            "error": digest.ending.get("error"),
            "last": digest.last,
            "cost": cost,
            "tokens": total.input_tokens + total.output_tokens,
            "calls": total.calls,
            "counts": digest.counts,
        }

    def describe_questions(self, infos: Iterable[RunInfo]) -> list[dict[str, Any]]:
        """Return the open questions of runs; a run that cannot be read has none."""
        found: list[dict[str, Any]] = []
        for info in infos:
            try:
                asked = self.questions(info)
                secret = self.digest(info.run_id).holds_secrets if asked else False
            except JournalError:
                continue
            found += [
                {
                    "run_id": info.run_id,
                    **self.describe_question(info.run_id, one, is_hidden=secret),
                }
                for one in asked
            ]
        return found

    def describe_question(
        self, run_id: str, question: Question, *, is_hidden: bool
    ) -> dict[str, Any]:
        """Return a question as the page shows it, with all of the arguments."""
        shown: dict[str, Any] = to_jsonable_python(question)
        shown["proposed"] = self.find_proposed(run_id, question)
        if is_hidden:
            shown |= dict.fromkeys(("text", "problem"), "")
            shown |= {"arguments": {}, "proposed": None, "choices": (), "schema": {}}
        return {**shown, "id": question.id, "hidden": is_hidden}
