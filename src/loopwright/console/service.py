"""What the console answers: values for JSON, made from the journal."""

import collections
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from .._internal.version import __version__
from ..clock import SystemClock
from ..errors import ConfigError, JournalError, LoopwrightError, UnknownRun
from ..events.effects import ModelFailed, ModelReplied, ModelRequested
from ..events.lifecycle import restore_answer
from ..events.run import Question, RunFinished, RunStarted
from ..journals.base import Journal, RunInfo
from ..journals.capabilities import DeletingJournal
from ..journals.listing import RunFilter
from ..journals.metrics import measure_runs
from ..principals import TENANT_TAG
from ..runtime import Runtime
from ..security.signed_commands import CommandSigner
from .access import AccessFile
from .actions import RunState, find_reasons
from .digest import RunDigest
from .records import Records
from .rows import LOOKBACK, RowReader, build_message, build_raw
from .threads import call_in_thread
from .users import ConsoleUser

MAX_SUMMED = 300
"""Runs whose costs are summed, the newest."""
READING = "its entries are still being read"
"""Why there are no controls of a long run that the page shows for the first time."""
OF_MODELS = (ModelRequested.kind, ModelReplied.kind, ModelFailed.kind)
"""The entries of a model call, with which what was sent is shown."""
CONTENT = ("task", "answer", "plans", "steps", "levels", "visits", "facts", "children")
"""What of a run's state was written by models, tools or people."""


class ConsoleService:
    """Reads the runs of one journal."""

    def __init__(
        self,
        journal: Journal,
        runtime: Runtime | None,
        signer: CommandSigner | None = None,
    ) -> None:
        self._clock = SystemClock() if runtime is None else runtime.clock
        self.records = Records(journal, self._clock)
        self._journal, self._runtime = journal, runtime
        path = getattr(journal, "path", None)
        self._access = AccessFile(path if isinstance(path, Path) else None, signer)
        self._path = str(path or type(journal).__name__)
        self._revealed: set[tuple[str, str]] = set()
        self.feeds = None if runtime is None else runtime.feeds
        """What the runs at work in this process tell, of a console with a runtime."""

    # --- read ---

    def describe_session(self, user: ConsoleUser) -> dict[str, Any]:
        """Return who uses the page, what they may do, and on which journal."""
        sender = user.sender
        return {
            "user": sender if isinstance(sender, str) else sender.id,
            "tenant": user.tenant,
            "rights": sorted(user.rights),
            "journal": self._path,
            "version": __version__,
            "runtime": self._runtime is not None,
        }

    def check_run(self, run_id: str, user: ConsoleUser) -> None:
        """Raise `UnknownRun` for a run that is not there, or is of another tenant than the user's."""
        if not user.tenant:
            return
        tags = self.records.find(run_id).tags
        if not user.reaches(tags.get(TENANT_TAG, "")):
            raise UnknownRun(f"run {run_id!r} is not in the journal")

    def select_runs(self, runs: Iterable[str], user: ConsoleUser) -> list[str]:
        """Return those of some runs that a user may see; of deleted ones, those that no tenant is asked about."""
        if not user.tenant:
            return sorted(runs)
        found: list[str] = []
        for run_id in sorted(runs):
            try:
                self.check_run(run_id, user)
            except (UnknownRun, JournalError):
                continue
            found.append(run_id)
        return found

    def list_runs(
        self, where: RunFilter, limit: int, before: str | None, tenant: str
    ) -> dict[str, Any]:
        """Return a page of the runs that a filter selects, and the number of a tenant's by status."""
        infos = self.records.list_runs(where, limit, before)
        return {
            "runs": [self.records.describe(info) for info in infos],
            "counts": self.records.count(RunFilter(tenant=tenant)),
            "more": len(infos) == limit,
        }

    def list_attention(self, user: ConsoleUser) -> dict[str, int]:
        """Return how much of all runs wants a person: what waits, is due, was parked, failed for good or was escalated."""
        where = RunFilter(tenant=user.tenant)
        found = measure_runs(self._journal, {}, self._clock.wall(), where)
        return {
            "waiting": found.waiting,
            "due": found.due,
            "parked": found.runs.get("parked", 0),
            "dead_letters": found.dead_letters,
            "escalations": found.escalations,
        }

    def list_questions(self, user: ConsoleUser) -> list[dict[str, Any]]:
        """Return what all runs of a user want decided, that of the newest run first."""
        infos = self._journal.runs(unfinished=True)
        return self.records.describe_questions(
            [one for one in infos if user.reaches(one.tags.get(TENANT_TAG, ""))]
        )

    def show_run(self, run_id: str, user: ConsoleUser) -> dict[str, Any]:
        """Return the state of a run, what it asks, and which controls there are."""
        info = self.records.find(run_id)
        digest = self.records.glance(info)
        state = self.find_state(run_id, digest)
        is_hidden = digest.holds_secrets and not self.sees(run_id, user.name)
        reading = READING if digest.unread else ""
        reasons = find_reasons(state, user)
        described = digest.to_json()
        if is_hidden:
            described |= dict.fromkeys(CONTENT)
        return {
            **self.records.describe(info),
            **described,
            "hidden": is_hidden,
            "questions": [
                self.records.describe_question(info, one, is_hidden=is_hidden)
                for one in state.questions
            ],
            "unreceived": []
            if is_hidden or reading
            else self.records.find_unreceived(run_id, digest.received),
            "reasons": {name: reason or reading for name, reason in reasons.items()},
            "delete": self._find_reason_of_delete(state, user),
            "reveal": user.find_problem("admin"),
        }

    def _find_reason_of_delete(self, state: RunState, user: ConsoleUser) -> str:
        """Return why a run cannot be deleted by a user; empty if it can."""
        journal: object = self._journal
        if not isinstance(journal, DeletingJournal):
            return f"{type(journal).__name__} deletes no runs"
        at_work = "" if state.has_ended else "the run has not ended: stop it first"
        return user.find_problem("admin") or at_work

    async def delete(self, run_id: str, user: ConsoleUser) -> list[str]:
        """Delete a run that has ended, which the access file records; return the ids that are gone."""
        state = await call_in_thread(self.find_state, run_id)
        reason = self._find_reason_of_delete(state, user)
        journal: object = self._journal
        if reason or not isinstance(journal, DeletingJournal):
            raise ConfigError(f"delete: {reason}")
        at = self._clock.wall()
        await call_in_thread(self._access.add, at, user.name, run_id, "delete")
        return await journal.delete(run_id, deleted_by=user.name)

    def find_state(self, run_id: str, digest: RunDigest | None = None) -> RunState:
        """Return what decides about the controls of a run; by a digest with unread entries it asks nothing yet."""
        info = self.records.find(run_id)
        known = digest or self.records.digest(run_id, info.head_hash)
        retry_problem, questions = READING, tuple[Question, ...]()
        if not known.unread:
            retry_problem = self.records.find_retry_problem(info)
            questions = self.records.questions(info)
        return RunState(
            info.status,
            known.is_paused,
            self.records.has_owner(info),
            retry_problem,
            questions,
            self._runtime is not None,
            known.rule,
            known.starter,
        )

    def list_rows(
        self, run_id: str, after: int, limit: int, user: str
    ) -> list[dict[str, Any]]:
        """Return the rows of a run's entries after a number."""
        first = max(after - LOOKBACK, 0)
        entries = self.records.read(run_id, first, limit + after - first)
        reader = RowReader(entries[: after - first])
        shown = entries[after - first :]
        digest = self.records.glance(self.records.find(run_id))
        return [
            reader.build(entry, is_hidden=self.hides(digest, entry.seq, run_id, user))
            for entry in shown
        ]

    async def show_entry(self, run_id: str, seq: int, user: str) -> dict[str, Any]:
        """Return all of an entry, and of a model call what was sent."""
        entries = await call_in_thread(self.records.read, run_id, max(seq - 1, 0), 1)
        if not entries or entries[0].seq != seq:
            raise UnknownRun(f"run {run_id!r} has no entry {seq}")
        info = await call_in_thread(self.records.find, run_id)
        digest = await call_in_thread(self.records.glance, info)
        if self.hides(digest, seq, run_id, user):
            raise ConfigError(
                f"entry {seq} may hold something secret: ask for it first"
            )
        shown = build_raw(entries[0])
        if entries[0].kind in OF_MODELS:
            shown["request"] = await self._show_request(run_id, entries[0].key)
        return shown

    async def _show_request(self, run_id: str, key: str) -> Any:
        """Return what a model call sent, or why the journal does not have it."""
        find = getattr(self._journal, "request", None)
        if find is None:
            return {"error": "this journal does not give requests back"}
        try:
            request = await find(run_id, key)
        except LoopwrightError as error:
            return {"error": str(error)}
        return {
            "messages": [build_message(one) for one in request.conversation],
            "tools": [
                to_jsonable_python(tool, fallback=repr) for tool in request.tools
            ],
            "sampling": to_jsonable_python(request.sampling, fallback=repr),
            "redacted": request.redacted,
        }

    def search(
        self, run_id: str, text: str, kinds: frozenset[str], user: str
    ) -> list[int]:
        """Return the numbers of the entries of some kinds in which a text occurs; capitals do not matter."""
        digest, sought = self.records.digest(run_id), text.lower()
        reader = RowReader()
        found: list[int] = []
        for entry in self.records.read(run_id):
            is_hidden = self.hides(digest, entry.seq, run_id, user)
            row = reader.build(entry, is_hidden=is_hidden)
            if kinds and entry.kind not in kinds:
                continue
            words = [row["key"], row["kind"].replace("_", " ")]
            words += [f"{line['label']} {line['text']}" for line in row["lines"]]
            if sought in "\n".join(words).lower():
                found.append(entry.seq)
        return found

    async def list_tools(self, run_id: str, user: str) -> list[dict[str, Any]]:
        """Return the tools of a run's newest model call, each with the schema of its arguments and its effect."""
        digest = await call_in_thread(self.records.digest, run_id)
        if digest.holds_secrets and not self.sees(run_id, user):
            return []
        request = await self._show_request(run_id, digest.last_request)
        offered = {one["name"]: one for one in request.get("tools", ())}
        called: dict[str, dict[str, Any]] = {name: {"name": name, "schema": {}} for name in digest.tools}  # fmt: skip
        return [
            {**one, "effect": digest.tools.get(name, "")}
            for name, one in {**called, **offered}.items()
        ]

    def list_threads(self, user: ConsoleUser) -> list[dict[str, Any]]:
        """Return the conversations of the newest runs, the newest first."""
        threads: dict[str, dict[str, Any]] = {}
        where = RunFilter(tenant=user.tenant)
        for info in self.records.list_runs(where, 1000):
            if not info.thread:
                continue
            known = threads.setdefault(
                info.thread,
                {
                    "thread": info.thread,
                    "agent": info.agent,
                    "turns": 0,
                    "last": info.created,
                    "status": info.status,
                },
            )
            known["turns"] += 1
        return list(threads.values())

    def show_thread(self, thread: str, user: ConsoleUser) -> dict[str, Any]:
        """Return a conversation: for each run what was said, and the answer."""
        where = RunFilter(thread=thread, tenant=user.tenant)
        infos = list(self.records.list_runs(where, 500))
        turns = [self._show_turn(info, user.name) for info in reversed(infos)]
        return {"thread": thread, "turns": turns}

    def _show_turn(self, info: RunInfo, user: str) -> dict[str, Any]:
        run_id = info.run_id
        digest = self.records.digest(run_id, info.head_hash)
        first, last = (
            self.records.read(run_id, 0, 1),
            self.records.read(run_id, digest.seq - 1),
        )
        turn = {"run_id": run_id, "status": info.status, "at": info.created, "agent": info.agent}  # fmt: skip
        if digest.holds_secrets and not self.sees(run_id, user):
            return {**turn, "hidden": True, "asked": [], "answer": ""}
        started = first[0].event if first else None
        messages = started.messages if isinstance(started, RunStarted) else ()
        restore_answer(last, lambda key: self._find_entry(run_id, key))
        ended = last[-1].event if last else None
        answer = ended.answer if isinstance(ended, RunFinished) else None
        return {
            **turn,
            "hidden": False,
            "asked": [one.content for one in messages if one.role == "user"],
            "answer": answer or "",
            "reason": digest.ending.get("stop_reason", ""),
        }

    def _find_entry(self, run_id: str, key: str) -> Any:
        entries = [one for one in self.records.read(run_id) if one.key == key]
        return entries[-1] if entries else None

    def sum_costs(self, user: ConsoleUser) -> dict[str, Any]:
        """Return what the newest runs used, by agent, model and day."""
        infos = self.records.list_runs(RunFilter(tenant=user.tenant), MAX_SUMMED)
        sums: dict[tuple[str, str, str], dict[str, Any]] = {}
        for info in infos:
            try:
                digest = self.records.digest(info.run_id, info.head_hash)
            except JournalError:
                continue
            for (model, day), spent in digest.spending.items():
                name = (info.agent or info.engine, model, day)
                known = sums.setdefault(name, collections.defaultdict(float))
                known["runs"] += 1
                known["calls"] += spent.calls
                known["tokens"] += spent.input_tokens + spent.output_tokens
                known["cost"] += spent.cost
        rows = [
            {"agent": agent, "model": model, "day": day, **known}
            for (agent, model, day), known in sums.items()
        ]
        return {"rows": rows, "runs": len(infos), "more": len(infos) == MAX_SUMMED}

    def verify(self, run_id: str) -> dict[str, Any]:
        """Return whether no entry of a run was changed or lost."""
        found = self._journal.verify(run_id)
        return {
            "ok": found.ok,
            "entries": found.entries,
            "problem": found.problem,
            "head": found.head_hash,
        }

    # --- what is hidden ---

    def sees(self, run_id: str, user: str) -> bool:
        """Whether a user had what is hidden of a run revealed."""
        return (run_id, user) in self._revealed

    def hides(self, digest: RunDigest, seq: int, run_id: str, user: str) -> bool:
        return digest.is_secret(seq) and not self.sees(run_id, user)

    def reveal(self, run_id: str, user: str) -> None:
        """Show a user what is hidden of a run, which is recorded first."""
        self.records.find(run_id)
        self._access.add(self._clock.wall(), user, run_id, "reveal")
        self._revealed.add((run_id, user))
