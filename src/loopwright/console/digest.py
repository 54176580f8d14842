"""What the page shows of a run as a whole: totals, plan, tree, children; folded from its entries as they come."""

import bisect
import copy
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from pydantic_core import to_jsonable_python

from .._internal import dataclasses
from ..errors import JournalError
from ..events.agents import InstructionsSet
from ..events.control import CommandReceived, Declassified, RunContinued, RunPaused
from ..events.effects import (
    ChildFinished,
    ChildStarted,
    DriftNoticed,
    FactNoted,
    GateDecided,
    ModelReplied,
    ModelRequested,
    ToolStarted,
)
from ..events.entry import Entry, Event
from ..events.run import (
    RunFinished,
    RunForked,
    RunResumed,
    RunRetried,
    RunStarted,
    RunSuspended,
)
from ..labels import is_at_least
from ..messages import Usage
from ..principals import TENANT_TAG, ApprovalRule, Principal

MAX_KEPT = 500
"""Facts, children and visited states that are kept of a run; the timeline has all."""
MAX_TEXT = 2000
MAX_ASKS = 5
"""Questions of a run that its line in the list names."""
COUNTED = {
    "attempt_failed": "retries",
    "recovery_triggered": "recoveries",
    "call_dead_lettered": "dead_letters",
    "breaker_changed": "breakers",
    "drift_noticed": "drift",
    "limit_hit": "limits",
}
"""The kinds of entries that are counted, by the names of their counts."""
HIGHEST_LABEL = b'"label":"secret"'


@dataclasses.dataclass
class Spending:
    """What model calls used: of one model on one day (UTC)."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    is_priced: bool = False

    def add(self, usage: Usage) -> None:
        """Count one model call."""
        self.calls += 1
        self.input_tokens += usage.input_tokens or 0
        self.output_tokens += usage.output_tokens or 0
        self.cost += usage.cost or 0.0
        self.is_priced = self.is_priced or usage.cost is not None


@dataclasses.dataclass
class RunDigest:
    """The state of one run after its entry `seq`."""

    seq: int = 0
    hash: str = ""
    """The hash of its newest entry."""
    unread: int = 0
    """Entries between the first and the newest ones that are not in here yet."""
    started: float = 0.0
    last: float = 0.0
    task: str = ""
    engine: str = ""
    agent: str = ""
    thread: str = ""
    tenant: str = ""
    settings: int = 0
    """The version of the settings that it began with; 0 for none."""
    owner: str = ""
    is_paused: bool = False
    has_asked: bool = False
    asks: list[dict[str, str]] = dataclasses.field(default_factory=list[dict[str, str]])
    """What a run that stopped waits for, in short."""
    ending: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    answer: str = ""
    counts: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    spending: dict[tuple[str, str], Spending] = dataclasses.field(
        default_factory=dict[tuple[str, str], Spending]
    )
    plans: list[Any] = dataclasses.field(default_factory=list[Any])
    steps: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    levels: list[Any] = dataclasses.field(default_factory=list[Any])
    visits: list[Any] = dataclasses.field(default_factory=list[Any])
    facts: list[Any] = dataclasses.field(default_factory=list[Any])
    children: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    tools: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    starter: Principal | None = None
    rule: ApprovalRule | None = None
    """Whose approvals count in this run, by what started it."""
    received: int = 0
    last_request: str = ""
    """The key of its newest model call."""
    secrecy: list[tuple[int, bool]] = dataclasses.field(
        default_factory=list[tuple[int, bool]]
    )
    """From which entry on the run holds something secret, and from which on no more."""
    models: dict[str, str] = dataclasses.field(default_factory=dict[str, str])

    def continue_with(self, entries: Iterable[Entry]) -> "RunDigest":
        """Return the state after the entries that follow; this one stays as it is, since other threads may show it."""
        made = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, list)):
                setattr(made, name, copy.copy(cast("Any", value)))
        made.spending = {key: copy.copy(one) for key, one in self.spending.items()}
        made.children = {key: copy.copy(one) for key, one in self.children.items()}
        made.read(entries)
        return made

    def read(self, entries: Iterable[Entry]) -> None:
        """Fold the entries that follow the last one; one that cannot be read counts as nothing."""
        for entry in entries:
            self.seq, self.hash, self.last = entry.seq, entry.hash, entry.at
            name = COUNTED.get(entry.kind)
            if name:
                self.counts[name] = self.counts.get(name, 0) + 1
            try:
                has_label = HIGHEST_LABEL in entry.payload
                if not has_label and entry.kind not in _FOLDS:
                    continue
                event = entry.event
            except JournalError:
                continue
            if has_label:
                self._read_label(entry, event)
            fold = _FOLDS.get(entry.kind)
            if fold is not None:
                fold(self, entry, event)

    def is_secret(self, seq: int) -> bool:
        """Whether what an entry says may be secret: it, or what the run had read before, has that label."""
        place = bisect.bisect_right(self.secrecy, (seq, True)) - 1
        return place >= 0 and self.secrecy[place][1]

    @property
    def holds_secrets(self) -> bool:
        """Whether any entry may be secret."""
        return any(is_secret for _, is_secret in self.secrecy)

    def _read_label(self, entry: Entry, event: Event) -> None:
        is_declared = isinstance(event, Declassified)
        is_known = bool(self.secrecy) and self.secrecy[-1][1]
        is_secret = getattr(event, "label", "") == "secret" and not is_declared
        if is_secret and not is_known:
            self.secrecy.append((entry.seq, True))

    @property
    def total(self) -> Spending:
        """Return what all model calls used."""
        total = Spending()
        for spent in self.spending.values():
            total.calls += spent.calls
            total.input_tokens += spent.input_tokens
            total.output_tokens += spent.output_tokens
            total.cost += spent.cost
            total.is_priced = total.is_priced or spent.is_priced
        return total

    def to_json(self) -> dict[str, Any]:
        """Return what the page shows of the run beside its list entry."""
        return {
            "seq": self.seq,
            "unread": self.unread,
            "task": self.task,
            "agent": self.agent,
            "owner": self.owner,
            "settings": self.settings,
            "paused": self.is_paused,
            "ending": self.ending or None,
            "answer": self.answer,
            "counts": self.counts,
            "total": to_jsonable_python(self.total),
            "spending": [
                {"model": model, "day": day, **dataclasses.asdict(spent)}
                for (model, day), spent in self.spending.items()
            ],
            "plans": self.plans,
            "steps": self.steps,
            "levels": self.levels,
            "visits": self.visits,
            "facts": self.facts,
            "children": list(self.children.values()),
            "tools": self.tools,
        }


# --- folds ---


def _start(digest: RunDigest, entry: Entry, event: RunStarted) -> None:
    digest.started, digest.engine, digest.agent = entry.at, event.engine, event.agent
    digest.thread, digest.tenant = event.thread, event.tags.get(TENANT_TAG, "")
    digest.starter, digest.rule = event.principal, event.approvals
    digest.settings = 0 if event.settings is None else event.settings.version
    asked = [one.content for one in event.messages if one.role == "user"]
    digest.task = asked[-1][:MAX_TEXT] if asked else ""


def _suspend(digest: RunDigest, entry: Entry, event: RunSuspended) -> None:
    digest.asks = [
        {"about": one.about, "tool": one.tool, "text": one.text[:200]}
        for one in event.pending[:MAX_ASKS]
    ]


def _resume(digest: RunDigest, entry: Entry, event: RunResumed) -> None:
    digest.owner, digest.asks = event.owner, []


def _fork(digest: RunDigest, entry: Entry, event: RunForked) -> None:
    # The commands before are those to the run that was forked.
    digest.received, digest.is_paused = 0, False


def _retry(digest: RunDigest, entry: Entry, event: RunRetried) -> None:
    digest.ending, digest.answer = {}, ""


def _set_instructions(digest: RunDigest, entry: Entry, event: InstructionsSet) -> None:
    digest.agent = digest.agent or str(getattr(event, "agent", ""))


def _request(digest: RunDigest, entry: Entry, event: ModelRequested) -> None:
    digest.last_request = entry.key
    if event.model or event.provider:
        digest.models[entry.key] = "/".join(filter(None, [event.provider, event.model]))


def _reply(digest: RunDigest, entry: Entry, event: ModelReplied) -> None:
    model = digest.models.pop(entry.key, "") or event.completion.model or "unnamed"
    day = datetime.fromtimestamp(entry.at, UTC).date().isoformat()
    spent = digest.spending.setdefault((model, day), Spending())
    spent.add(event.completion.usage)


def _decide(digest: RunDigest, entry: Entry, event: GateDecided) -> None:
    digest.has_asked = digest.has_asked or event.verdict == "ask"


def _use_tool(digest: RunDigest, entry: Entry, event: ToolStarted) -> None:
    digest.tools[event.tool] = event.effect


def _receive(digest: RunDigest, entry: Entry, event: CommandReceived) -> None:
    digest.received = max(digest.received, event.number)


def _pause(digest: RunDigest, entry: Entry, event: RunPaused) -> None:
    digest.is_paused = True


def _continue(digest: RunDigest, entry: Entry, event: RunContinued) -> None:
    digest.is_paused = False


def _declassify(digest: RunDigest, entry: Entry, event: Declassified) -> None:
    if digest.secrecy and not is_at_least(event.label, "secret"):
        digest.secrecy.append((entry.seq, False))


def _begin_child(digest: RunDigest, entry: Entry, event: ChildStarted) -> None:
    if len(digest.children) < MAX_KEPT:
        digest.children[entry.key] = {
            "key": entry.key,
            "seq": entry.seq,
            "name": event.agent or event.engine,
            "about": event.about[:200],
            "status": "running",
        }


def _end_child(digest: RunDigest, entry: Entry, event: ChildFinished) -> None:
    child = digest.children.get(entry.key)
    if child is not None:
        child |= {"status": event.status, "reason": event.stop_reason}


def _drift(digest: RunDigest, entry: Entry, event: DriftNoticed) -> None:
    value = {"what": event.what, "before": event.before, "after": event.after}
    fact = {"name": "DriftNoticed", "seq": entry.seq, "value": value}
    digest.facts = [*digest.facts[-49:], fact]


def _note(digest: RunDigest, entry: Entry, event: FactNoted) -> None:
    value: Any = event.value
    known = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    fact: dict[str, Any] = {"seq": entry.seq, "value": value}
    match event.name:
        case "Plan":
            digest.plans = [*digest.plans[-9:], fact]
        case "StepFinished":
            digest.steps[str(known.get("id"))] = value
        case "Level":
            digest.levels = [*digest.levels[-MAX_KEPT:], fact]
        case "Visit":
            digest.visits = [*digest.visits[-MAX_KEPT:], fact]
        case _:
            digest.facts = [*digest.facts[-49:], {"name": event.name, **fact}]


def _end(digest: RunDigest, entry: Entry, event: RunFinished) -> None:
    digest.ending = {
        "status": event.status,
        "stop_reason": event.stop_reason,
        "error": None if event.error is None else event.error.summary(),
        "iterations": event.iterations,
        "trimmed": event.trimmed,
    }
    digest.answer = (event.answer or "")[:MAX_TEXT]


_Fold = Callable[[RunDigest, Entry, Any], None]
_FOLDS: Mapping[str, _Fold] = {
    "run_started": _start,
    "run_suspended": _suspend,
    "run_resumed": _resume,
    "run_forked": _fork,
    "run_retried": _retry,
    "instructions_set": _set_instructions,
    "model_requested": _request,
    "model_replied": _reply,
    "gate_decided": _decide,
    "tool_started": _use_tool,
    "command_received": _receive,
    "run_paused": _pause,
    "run_continued": _continue,
    "declassified": _declassify,
    "child_started": _begin_child,
    "child_finished": _end_child,
    "drift_noticed": _drift,
    "fact_noted": _note,
    "run_finished": _end,
}
