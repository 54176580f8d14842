"""Follow runs entry by entry: which activities are open, which one began, and how each ended."""

import threading
from collections import OrderedDict
from typing import Literal, TypeAlias

from .._internal import dataclasses
from ..events.agents import HandedOff
from ..events.describe import fields_of
from ..events.effect_key import EffectKey, call_key, is_inside
from ..events.effects import (
    CallsProposed,
    ChildFinished,
    ChildStarted,
    EffectFinished,
    EffectStarted,
    GateDecided,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    SleepSet,
    ToolFinished,
    ToolStarted,
)
from ..events.entry import Entry, Event
from ..events.recovery import (
    CallDeadLettered,
    RecoveryTriggered,
    UnknownOutcomeResolved,
)
from ..events.run import ErrorRecord, RunFinished, RunResumed, RunStarted, RunSuspended
from ..messages import JsonObject, ToolCall

MAX_RUNS = 10_000
"""Runs followed at once; a run that was fenced off or whose journal failed has no entry for its end."""
OTHER = "_OTHER"
"""Stands for the name of a tool that a model may have invented."""
POLICY_VERDICTS = ("allow", "modify", "deny", "ask")
"""Policy is asked after the tool's name and the arguments were checked."""
EXECUTED = ("ok", "error", "timed_out", "cancelled")
TOOL_ERRORS = {"error": "tool_error", "timed_out": "timeout"}

ActivityKind: TypeAlias = Literal["agent", "model", "tool", "effect"]
EffectIntent: TypeAlias = (
    ModelRequested | ToolStarted | EffectStarted | ChildStarted | SleepSet | HandedOff
)
EffectOutcome: TypeAlias = (
    ModelReplied
    | ModelFailed
    | ToolFinished
    | EffectFinished
    | ChildFinished
    | LimitHit
)


@dataclasses.dataclass(eq=False)
class Activity:
    """An engine, a model call, a tool, or an engine's own effect at work in a run.

    Args:
        kind: which of these.
        name: of the engine, model, tool or effect; empty if it began in another process and is not known.
        run_id: the run.
        key: its place in the program; an engine's is the path of its scope, empty for the root.
        began: wall time in seconds.
        intent: the event with which it began, if this process recorded it.
        parent: the activity that it is a part of; the root has none.
        resumed: whether this process resumed the run.
        arguments: the arguments of a tool call, if they are followed.
    """

    kind: ActivityKind
    name: str
    run_id: str
    key: str
    began: float
    intent: RunStarted | EffectIntent | None = None
    parent: "Activity | None" = None
    resumed: bool = False
    arguments: JsonObject | None = None

    @property
    def agent(self) -> "Activity":
        """Return the engine at work: this activity itself, or the nearest one around it."""
        if self.kind == "agent" or self.parent is None:
            return self
        return self.parent.agent


@dataclasses.dataclass(frozen=True)
class ActivityBegan:
    """An activity began."""

    activity: Activity


@dataclasses.dataclass(frozen=True)
class ActivityEnded:
    """An activity ended `at` a wall time (seconds) with an outcome; without one it was interrupted.

    `error` is the type of its error, of which there are few; `message` is the text, which may hold anything.
    """

    activity: Activity
    at: float
    outcome: Event | None
    error: str = ""
    message: str = ""

    @property
    def seconds(self) -> float:
        """Return the duration in seconds."""
        return max(self.at - self.activity.began, 0.0)


@dataclasses.dataclass(frozen=True)
class EntryNoted:
    """An event happened in an activity; `tool` is the name of the tool that it is about, or `_OTHER`."""

    activity: Activity
    entry: Entry
    tool: str = ""


ActivityChange: TypeAlias = ActivityBegan | ActivityEnded | EntryNoted


class RunTracker:
    """Follow any number of runs and forget each when it ends; entries of an unknown run change nothing.

    Args:
        max_runs: runs followed at once; the one without entries for longest is given up for another.
        arguments: whether the arguments of calls are kept until the calls are made.
    """

    def __init__(self, *, max_runs: int = MAX_RUNS, arguments: bool = False) -> None:
        self._max_runs, self._arguments = max_runs, arguments
        self._runs: OrderedDict[str, TrackedRun] = OrderedDict()
        # Runs of several event loops may share an observer.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def follow(self, entry: Entry) -> list[ActivityChange]:
        """Return which activities an entry begins and ends, and where it happened."""
        if isinstance(entry.event, (RunStarted, RunResumed)):
            return self._begin(entry)
        with self._lock:
            run = self._runs.get(entry.run_id)
            if run is None:
                return []
            self._runs.move_to_end(entry.run_id)
            if isinstance(entry.event, (RunFinished, RunSuspended)):
                del self._runs[entry.run_id]
        return run.follow(entry)

    def find(self, run_id: str, key: str) -> Activity | None:
        """Return the activity that is open at a key of a run; `None` if none is, or the run is not followed."""
        with self._lock:
            run = self._runs.get(run_id)
        return None if run is None else run.find(key)

    def _begin(self, entry: Entry) -> list[ActivityChange]:
        run = TrackedRun(entry, arguments=self._arguments)
        with self._lock:
            previous = self._runs.pop(entry.run_id, None)
            lost = [] if previous is None else [previous]
            self._runs[entry.run_id] = run
            if len(self._runs) > self._max_runs:
                lost.append(self._runs.popitem(last=False)[1])
        changes: list[ActivityChange] = []
        for given_up in lost:
            changes += given_up.interrupt(entry.at, "lost")
        return [*changes, ActivityBegan(run.root)]


class TrackedRun:
    """One run and the activities that are open in it."""

    def __init__(self, entry: Entry, *, arguments: bool) -> None:
        event = entry.event
        started = event if isinstance(event, RunStarted) else None
        name = ""
        if isinstance(event, (RunStarted, RunResumed)):
            name = event.agent or event.engine
        self.root = Activity(
            "agent", name, entry.run_id, "", entry.at, started, resumed=started is None
        )
        # In the order in which they began: effects by their key, engines by "@" and the path of their scope.
        self._open: dict[str, Activity] = {"@": self.root}
        # Keys of calls whose tool exists, since policy was asked about it.
        self._vetted: set[str] = set()
        # Keys of calls whose outcome a look-up or a person established, without a tool that ran.
        self._not_executed: set[str] = set()
        self._arguments = arguments
        # The latest calls of each scope, and the arguments that policy changed, by the key of the call.
        self._proposed: dict[str, tuple[ToolCall, ...]] = {}
        self._changed: dict[str, JsonObject] = {}

    def follow(self, entry: Entry) -> list[ActivityChange]:
        """Return which activities an entry of this run begins and ends, and where it happened."""
        changes: list[ActivityChange] = []
        agent = self._find_agent(_path(entry.key), changes)
        match entry.event:
            case (
                ModelRequested()
                | ToolStarted()
                | EffectStarted()
                | SleepSet()
                | ChildStarted()
                | HandedOff() as intent
            ):
                changes += self._begin(entry, intent, agent)
            case (
                ModelReplied()
                | ModelFailed()
                | ToolFinished()
                | EffectFinished()
                | ChildFinished() as outcome
            ):
                changes += self._end(entry, outcome, agent)
            case LimitHit() as refusal:
                changes += [*self._end(entry, refusal, agent), EntryNoted(agent, entry)]
            case RunFinished() | RunSuspended() as ending:
                changes += self._close(entry.at, ending)
            case event:
                self._remember(entry.key, event)
                activity = self._open.get(entry.key, agent)
                tool = self._find_tool(entry.key, event)
                changes.append(EntryNoted(activity, entry, tool))
        return changes

    def find(self, key: str) -> Activity | None:
        """Return the activity that is open at a key."""
        return self._open.get(key)

    def interrupt(self, at: float, why: str) -> list[ActivityChange]:
        """End all open activities without an outcome, the latest first; `why` is the type of error."""
        ended: list[ActivityChange] = [
            ActivityEnded(activity, at, None, why)
            for activity in reversed(self._open.values())
        ]
        self._open.clear()
        return ended

    def _close(
        self, at: float, ending: RunFinished | RunSuspended
    ) -> list[ActivityChange]:
        del self._open["@"]
        handed = self._end_receivers("", at, ending)
        why = ending.stop_reason if isinstance(ending, RunFinished) else ending.reason
        # An activity that waits for a decision has not failed: it continues when the run is resumed.
        interrupted = self.interrupt(at, "" if why == "waiting" else why)
        return [
            *handed,
            *interrupted,
            ActivityEnded(self.root, at, ending, *_error_in(ending)),
        ]

    def _end_receivers(
        self, path: str, at: float, outcome: EffectOutcome | RunFinished | RunSuspended
    ) -> list[ActivityChange]:
        """End the agents to which an engine was handed off, the last one first: they end as it does."""
        ended: list[ActivityChange] = []
        for place, activity in reversed(list(self._open.items())):
            is_receiver = isinstance(activity.intent, HandedOff)
            if is_receiver and is_inside(place.removeprefix("@"), path):
                del self._open[place]
                ended.append(ActivityEnded(activity, at, outcome, *_error_in(outcome)))
        return ended

    def _begin(
        self, entry: Entry, intent: EffectIntent, agent: Activity
    ) -> list[ActivityChange]:
        kind, name = _name_activity(intent)
        place = f"@{entry.key}" if kind == "agent" else entry.key
        changes: list[ActivityChange] = []
        before = self._open.pop(place, None)
        if before is not None:
            changes.append(ActivityEnded(before, entry.at, None, "interrupted"))
        arguments = self._find_arguments(entry.key) if kind == "tool" else None
        key = EffectKey.parse(entry.key)
        is_substitute = key.step is not None
        around = self._open.get(key.original, agent) if is_substitute else agent
        begun = Activity(
            kind,
            name,
            entry.run_id,
            entry.key,
            entry.at,
            intent,
            around,
            arguments=arguments,
        )
        self._open[place] = begun
        return [*changes, ActivityBegan(begun)]

    def _end(
        self, entry: Entry, outcome: EffectOutcome, agent: Activity
    ) -> list[ActivityChange]:
        """Return the end of an effect, and its beginning too if it began in another process."""
        self._remember(entry.key, outcome)
        tool = self._find_tool(entry.key, outcome)
        was_executed = entry.key not in self._not_executed
        self._forget_call(entry.key, outcome)
        changes: list[ActivityChange] = []
        of_child = isinstance(outcome, ChildFinished)
        ended = self._open.pop(f"@{entry.key}" if of_child else entry.key, None)
        if ended is None and was_executed:
            ended = _restore_activity(entry, outcome, agent)
            if ended is not None:
                changes.append(ActivityBegan(ended))
        if ended is None:
            of_limit = isinstance(outcome, LimitHit)
            return [] if of_limit else [EntryNoted(agent, entry, tool)]
        error = _error_in(outcome)
        path = EffectKey.parse(entry.key).child_path
        if ended.kind in ("agent", "tool"):
            changes += self._end_receivers(path, entry.at, outcome)
        if ended.kind == "tool":
            inner = self._open.pop(f"@{path}", None)
            if inner is not None:
                changes.append(ActivityEnded(inner, entry.at, outcome, *error))
        return [*changes, ActivityEnded(ended, entry.at, outcome, *error)]

    def _find_agent(self, path: str, changes: list[ActivityChange]) -> Activity:
        """Return the engine whose scope has that path.

        An engine that answers a call as a tool has no intent of its own: it begins with its first entry.
        """
        while path:
            known = self._open.get(f"@{path}")
            if known is not None:
                return known
            place = EffectKey.parse(path)
            call = self._open.get(call_key(place.path, place.number))
            if call is not None:
                begun = Activity(
                    "agent", call.name, call.run_id, path, call.began, None, call
                )
                self._open[f"@{path}"] = begun
                changes.append(ActivityBegan(begun))
                return begun
            path = place.path
        return self.root

    # --- calls: which tools exist, and their arguments ---

    def _remember(self, key: str, event: Event) -> None:
        match event:
            case GateDecided():
                self._remember_decision(key, event)
            case RecoveryTriggered():
                # Only a call that was permitted can fail or have an unknown outcome.
                self._vetted.add(key)
            case CallDeadLettered():
                self._vetted.add(key)
                self._not_executed.add(key)
            case UnknownOutcomeResolved():
                self._vetted.add(key)
                if event.verdict != "not_done":
                    self._not_executed.add(key)
            case CallsProposed(calls) if self._arguments:
                self._proposed[_path(key)] = calls
            case ModelReplied(completion) if self._arguments:
                self._proposed[_path(key)] = completion.calls
            case _:
                pass

    def _remember_decision(self, key: str, decision: GateDecided) -> None:
        if decision.verdict in POLICY_VERDICTS:
            self._vetted.add(key)
        if self._arguments and decision.arguments is not None:
            self._changed[key] = decision.arguments

    def _find_tool(self, key: str, event: Event) -> str:
        """Return the name of an event's tool, or `_OTHER` if a model may have invented it."""
        names = [
            getattr(event, field.name)
            for field in fields_of(type(event))
            if field.exposure.privacy == "tool_name"
        ]
        if not names:
            return ""
        is_known = key in self._vetted or key in self._open
        had_begun = isinstance(event, ToolFinished) and event.status == "unknown"
        return names[0] if is_known or had_begun else OTHER

    def _find_arguments(self, key: str) -> JsonObject | None:
        if not self._arguments:
            return None
        calls = self._proposed.get(_path(key), ())
        number = EffectKey.parse(key).call or 0
        proposed = calls[number].arguments if number < len(calls) else None
        return self._changed.get(key, proposed)

    def _forget_call(self, key: str, outcome: EffectOutcome) -> None:
        if isinstance(outcome, ToolFinished):
            self._vetted.discard(key)
            self._not_executed.discard(key)
            self._changed.pop(key, None)


def _path(key: str) -> str:
    """Return the path of the scope that a key belongs to: of `2.0.1`, `2.0.1#0` and `note:2.0.1` it is `2.0`."""
    return EffectKey.parse(key).path


def _name_activity(intent: EffectIntent) -> tuple[ActivityKind, str]:
    match intent:
        case ModelRequested():
            return "model", intent.model
        case ToolStarted():
            return "tool", intent.tool
        case EffectStarted():
            return "effect", intent.name
        case SleepSet():
            return "effect", "sleep"
        case ChildStarted() | HandedOff():
            return "agent", intent.agent or intent.engine


def _restore_activity(
    entry: Entry, outcome: EffectOutcome, agent: Activity
) -> Activity | None:
    """Return an effect whose outcome was unknown on resume and that was made again: its intent is not repeated."""
    kind: ActivityKind
    match outcome:
        case ModelReplied() | ModelFailed():
            kind, name = "model", ""
        case ToolFinished() if outcome.status in EXECUTED:
            kind, name = "tool", outcome.tool
        case _:
            return None
    began = entry.at - outcome.seconds
    return Activity(kind, name, entry.run_id, entry.key, began, None, agent)


def _error_in(outcome: EffectOutcome | RunFinished | RunSuspended) -> tuple[str, str]:
    """Return the type of an outcome's error and its text; both are empty for a success."""
    match outcome:
        case ModelFailed() | EffectFinished():
            return _read_error(outcome.error)
        case ToolFinished() if outcome.status != "ok":
            return TOOL_ERRORS.get(outcome.status, outcome.status), outcome.content
        case ChildFinished() | RunFinished() if outcome.status == "failed":
            return _read_error(outcome.error)
        case RunSuspended() if outcome.reason == "diverged":
            return "ReplayDivergence", ""
        case LimitHit():
            return outcome.limit, outcome.detail
        case _:
            return "", ""


def _read_error(record: ErrorRecord | None) -> tuple[str, str]:
    return ("", "") if record is None else (record.code, record.message)
