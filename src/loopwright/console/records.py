"""What the console reads of a journal: lists of runs, the state of each, and ranges of entries."""

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from pydantic_core import to_jsonable_python

from .._kernel.control.questions import open_questions
from .._kernel.durability.forgotten_failures import NOTHING_TO_RETRY, plan_retry
from .._kernel.durability.replay import Replay
from ..clock import Clock, SystemClock
from ..errors import JournalError, UnknownRun
from ..events.entry import Entry
from ..events.run import Question
from ..journals.base import RESUMABLE, Journal, RunInfo, is_turn_id
from ..journals.capabilities import PagedJournal, list_page
from ..journals.claims import get_watch, is_orphaned
from ..journals.listing import RunFilter, find_later_turn, format_continued
from ..messages import JsonObject, hash_arguments
from .digest import RunDigest
from .digests import MAX_DIGESTS, Digests


class Records:
    """Reads one journal, from any thread, and keeps the state of the runs that it was asked about."""

    def __init__(self, journal: Journal, clock: Clock | None = None) -> None:
        self.journal = journal
        self._watch = get_watch(journal, clock or SystemClock())
        self._has_ranges = isinstance(cast("object", journal), PagedJournal)
        self._digests = Digests(journal, self.read)
        self._found: dict[tuple[str, str], tuple[str, Any]] = {}

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

    def digest(self, run_id: str, head_hash: str = "") -> RunDigest:
        """Return the state of a run by its newest entry, whose hash tells that there is nothing new to read."""
        return self._digests.read(run_id, head_hash)

    def glance(self, info: RunInfo) -> RunDigest:
        """Return the state of a run at once; of a long one some entries may be `unread` yet."""
        return self._digests.glance(info)

    def questions(self, info: RunInfo) -> tuple[Question, ...]:
        """Return what a run wants decided."""
        if info.status not in RESUMABLE:
            return ()
        if info.status != "waiting" and not self._may_ask(info):
            return ()
        found: tuple[Question, ...] = self._find_once(
            info, "questions", lambda: open_questions(self.read(info.run_id))
        )
        return found

    def _find_once(self, info: RunInfo, name: str, find: Callable[[], Any]) -> Any:
        """Return what all entries of a run say, which is found anew once it has others."""
        head, found = self._found.get((info.run_id, name), ("", None))
        if not head or head != info.head_hash:
            found = find()
            if len(self._found) >= MAX_DIGESTS:
                self._found.clear()
            self._found[info.run_id, name] = info.head_hash, found
        return found

    def _may_ask(self, info: RunInfo) -> bool:
        digest = self.digest(info.run_id, info.head_hash)
        return digest.has_asked or digest.counts.get("recoveries", 0) > 0

    def find_retry_problem(self, info: RunInfo) -> str:
        """Return why a run cannot be retried, as `RunControl.retry` decides it; empty if it can."""
        if info.status not in ("parked", "failed"):
            return f"it {NOTHING_TO_RETRY}"
        try:
            problem: str = self._find_once(
                info, "retry", lambda: plan_retry(self.read(info.run_id)).problem
            )
        except JournalError as error:
            return f"it cannot be read: {error}"
        if not problem and is_turn_id(info.run_id):
            turns = self.list_runs(RunFilter(thread=info.thread))
            later = find_later_turn(info.run_id, turns)
            problem = format_continued(later) if later else ""
        return f"it {problem}" if problem else ""

    def find_proposed(self, run_id: str, question: Question) -> JsonObject | None:
        """Return the arguments that the model proposed, where policy changed them before it asked."""
        if question.about != "approval":
            return None
        shown, asked = hash_arguments(question.arguments), question.arguments_hash
        if asked and shown != asked:  # it does not show a secret, which these may hold
            return None
        proposed = Replay(self.read(run_id)).effects.proposed(question.key)
        if proposed is None or proposed.arguments == question.arguments:
            return None
        return proposed.arguments

    def find_unreceived(
        self, run_id: str, received: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the commands that were sent to a run after the last one that it received."""
        if received is None:
            received = self.digest(run_id).received
        sent = self.journal.inbox(run_id, received)
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
            digest = self.glance(info)
        except JournalError as error:
            return {**described, "damage": info.damage or str(error)}
        total, asks = digest.total, [] if digest.holds_secrets else digest.asks
        cost = total.cost if total.is_priced else None
        return {
            **described,
            "unread": digest.unread,
            "task": "" if digest.holds_secrets else digest.task[:300],
            "paused": digest.is_paused,
            "asks": asks,
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
                secret = self.glance(info).holds_secrets if asked else False
            except JournalError:
                continue
            found += [
                {
                    "run_id": info.run_id,
                    **self.describe_question(info, one, is_hidden=secret),
                }
                for one in asked
            ]
        return found

    def describe_question(
        self, info: RunInfo, question: Question, *, is_hidden: bool
    ) -> dict[str, Any]:
        """Return a question as the page shows it, with all of the arguments and the thread of the run."""
        shown: dict[str, Any] = to_jsonable_python(question)
        shown["proposed"] = self.find_proposed(info.run_id, question)
        shown["thread"] = info.thread
        if is_hidden:
            shown |= dict.fromkeys(("text", "problem"), "")
            shown |= {"arguments": {}, "proposed": None, "choices": (), "schema": {}}
        return {**shown, "id": question.id, "hidden": is_hidden}
