"""Follows runs entry by entry: what is under way in them, what began, and how it ended."""

import dataclasses
import threading
from collections import OrderedDict
from typing import Literal, TypeAlias

from ..events.effect_key import EffectKey, call_key
from ..events.effects import (
    CallDeadLettered,
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
    RecoveryTriggered,
    ToolFinished,
    ToolStarted,
    UnknownOutcomeResolved,
)
from ..events.entry import Entry, Event
from ..events.run import ErrorRecord, RunFinished, RunResumed, RunStarted, RunSuspended
from ..messages import JsonObject, ToolCall

MAX_RUNS = 10_000  # followed at once; a run that was fenced off or whose journal died never says that it ended
OTHER = "_OTHER"  # stands for a name that a model wrote and that nobody vouches for
DECIDED_BY_POLICY = (
    "allow",
    "modify",
    "deny",
    "ask",
)  # before policy is asked, name and arguments are checked
RAN = ("ok", "error", "timed_out", "cancelled")
TOOL_ERRORS = {"error": "tool_error", "timed_out": "timeout"}

Kind: TypeAlias = Literal["agent", "model", "tool", "effect"]
EffectIntent: TypeAlias = ModelRequested | ToolStarted | EffectStarted | ChildStarted
Outcome: TypeAlias = (
    ModelReplied
    | ModelFailed
    | ToolFinished
    | EffectFinished
    | ChildFinished
    | LimitHit
)


@dataclasses.dataclass(eq=False)
class Activity:
    """Something under way in a run: an engine, a model call, a tool, or an effect of an engine's own.

    Args:
        kind: which of these.
        name: of the engine, model, tool or effect; empty if it began in another process, which did not say.
        run_id: the run.
        key: its place in the program; an engine's is the path of its scope, empty for the root.
        began: wall time in seconds.
        intent: the entry's fact with which it began, if this process saw it.
        parent: what it is a part of; the root has none.
        resumed: whether this process took the run up where another had left it.
        arguments: of a tool's call, where they are followed.
    """

    kind: Kind
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
        """The engine at work: this one itself, or the nearest around it."""
        return (
            self if self.kind == "agent" or self.parent is None else self.parent.agent
        )


@dataclasses.dataclass(frozen=True)
class Began:
    """An activity began."""

    activity: Activity


@dataclasses.dataclass(frozen=True)
class Ended:
    """An activity ended: at what wall time (seconds), with which outcome, and with what error if there was one.

    `error` is a type of error, of which there are few; `message` is its text, which may hold anything. An activity
    without an outcome was interrupted.
    """

    activity: Activity
    at: float
    outcome: Event | None
    error: str = ""
    message: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(self.at - self.activity.began, 0.0)


@dataclasses.dataclass(frozen=True)
class Noted:
    """Something happened in an activity; `tool` is the name of the tool that it is about, or `_OTHER`."""

    activity: Activity
    entry: Entry
    tool: str = ""


Step: TypeAlias = Began | Ended | Noted


class Following:
    """Follows any number of runs, and forgets each when it ends; entries of a run that it does not know give nothing.

    Args:
        max_runs: followed at once; the one that was silent for longest is given up for another.
        arguments: whether the arguments of calls are kept until they are made.
    """

    def __init__(self, *, max_runs: int = MAX_RUNS, arguments: bool = False) -> None:
        self._max_runs, self._arguments = max_runs, arguments
        self._runs: OrderedDict[str, FollowedRun] = OrderedDict()
        self._lock = (
            threading.Lock()
        )  # runs of several event loops may share an observer

    def __len__(self) -> int:
        return len(self._runs)

    def follow(self, entry: Entry) -> list[Step]:
        """What an entry means: what began, what ended, what happened."""
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

    def _begin(self, entry: Entry) -> list[Step]:
        run = FollowedRun(entry, arguments=self._arguments)
        with self._lock:
            lost = [self._runs.pop(entry.run_id, None)]
            self._runs[entry.run_id] = run
            if len(self._runs) > self._max_runs:
                lost.append(self._runs.popitem(last=False)[1])
        steps = [
            step
            for given_up in lost
            if given_up is not None
            for step in given_up.interrupt(entry.at, "lost")
        ]
        return [*steps, Began(run.root)]


class FollowedRun:
    """One run and what is under way in it."""

    def __init__(self, entry: Entry, *, arguments: bool) -> None:
        event = entry.event
        started = event if isinstance(event, RunStarted) else None
        name = event.engine if isinstance(event, (RunStarted, RunResumed)) else ""
        self.root = Activity(
            "agent", name, entry.run_id, "", entry.at, started, resumed=started is None
        )
        # In the order in which they began: effects by their key, engines by "@" and the path of their scope.
        self._open: dict[str, Activity] = {"@": self.root}
        self._vetted: set[str] = set()  # the keys of calls whose tool policy has seen
        self._not_made: set[str] = (
            set()
        )  # the keys of calls whose outcome somebody gave, without a tool that ran
        self._arguments = arguments
        self._proposed: dict[
            str, tuple[ToolCall, ...]
        ] = {}  # the latest calls of each scope
        self._changed: dict[
            str, JsonObject
        ] = {}  # arguments that policy changed, by the call's key

    def follow(self, entry: Entry) -> list[Step]:
        """What an entry of this run means."""
        steps: list[Step] = []
        agent = self._agent(_path(entry.key), steps)
        match entry.event:
            case (
                ModelRequested()
                | ToolStarted()
                | EffectStarted()
                | ChildStarted() as intent
            ):
                steps += self._begin(entry, intent, agent)
            case (
                ModelReplied()
                | ModelFailed()
                | ToolFinished()
                | EffectFinished()
                | ChildFinished() as outcome
            ):
                steps += self._end(entry, outcome, agent)
            case LimitHit() as refusal:
                steps += [*self._end(entry, refusal, agent), Noted(agent, entry)]
            case RunFinished() | RunSuspended() as ending:
                steps += self._close(entry.at, ending)
            case event:
                self._remember(entry.key, event)
                steps.append(
                    Noted(
                        self._open.get(entry.key, agent),
                        entry,
                        self._tool(entry.key, event),
                    )
                )
        return steps

    def interrupt(self, at: float, why: str) -> list[Step]:
        """Everything that is under way ends without an outcome, the latest first; `why` is the type of error."""
        ended: list[Step] = [
            Ended(activity, at, None, why) for activity in reversed(self._open.values())
        ]
        self._open.clear()
        return ended

    def _close(self, at: float, ending: RunFinished | RunSuspended) -> list[Step]:
        del self._open["@"]
        why: str
        if isinstance(ending, RunFinished):
            why = ending.stop_reason
            error = _error_of(ending.error) if ending.status == "failed" else ("", "")
        else:
            why = ending.reason
            error = ("ReplayDivergence", "") if why == "diverged" else ("", "")
        # What waits for a decision has not failed: it goes on where it is when the run is resumed.
        return [
            *self.interrupt(at, "" if why == "waiting" else why),
            Ended(self.root, at, ending, *error),
        ]

    def _begin(self, entry: Entry, intent: EffectIntent, agent: Activity) -> list[Step]:
        kind, name = _named(intent)
        place = f"@{entry.key}" if kind == "agent" else entry.key
        before = self._open.pop(place, None)
        steps: list[Step] = (
            [] if before is None else [Ended(before, entry.at, None, "interrupted")]
        )
        arguments = self._arguments_of(entry.key) if kind == "tool" else None
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
        return [*steps, Began(begun)]

    def _end(self, entry: Entry, outcome: Outcome, agent: Activity) -> list[Step]:
        """An effect's outcome; of one that began in another process, its beginning too."""
        self._remember(entry.key, outcome)
        tool, not_made = self._tool(entry.key, outcome), entry.key in self._not_made
        self._forget_call(entry.key, outcome)
        steps: list[Step] = []
        ended = self._open.pop(
            f"@{entry.key}" if isinstance(outcome, ChildFinished) else entry.key, None
        )
        if ended is None:
            ended = None if not_made else _begun_elsewhere(entry, outcome, agent)
            if ended is None:
                return (
                    [] if isinstance(outcome, LimitHit) else [Noted(agent, entry, tool)]
                )
            steps.append(Began(ended))
        error = _error_in(outcome)
        inner = (
            self._open.pop(f"@{EffectKey.parse(entry.key).child_path}", None)
            if ended.kind == "tool"
            else None
        )
        return [
            *steps,
            *(
                Ended(one, entry.at, outcome, *error)
                for one in (inner, ended)
                if one is not None
            ),
        ]

    def _agent(self, path: str, steps: list[Step]) -> Activity:
        """The engine whose scope has that path; one that answers a call shows by what happens below the call's key."""
        while path:
            if (known := self._open.get(f"@{path}")) is not None:
                return known
            place = EffectKey.parse(path)
            call = self._open.get(call_key(place.path, place.number))
            if call is not None:
                begun = Activity(
                    "agent", call.name, call.run_id, path, call.began, call.intent, call
                )
                self._open[f"@{path}"] = begun
                steps.append(Began(begun))
                return begun
            path = place.path
        return self.root

    # --- calls: whose tools policy has seen, and with what arguments ---

    def _remember(self, key: str, event: Event) -> None:
        if isinstance(event, GateDecided):
            if event.verdict in DECIDED_BY_POLICY:
                self._vetted.add(key)
            if self._arguments and event.arguments is not None:
                self._changed[key] = event.arguments
        elif isinstance(
            event, (RecoveryTriggered, UnknownOutcomeResolved, CallDeadLettered)
        ):
            self._vetted.add(
                key
            )  # only a call that was let through can fail, or be in doubt
            if isinstance(event, CallDeadLettered) or (
                isinstance(event, UnknownOutcomeResolved)
                and event.verdict != "not_done"
            ):
                self._not_made.add(key)
        elif self._arguments and isinstance(event, CallsProposed):
            self._proposed[_path(key)] = event.calls
        elif self._arguments and isinstance(event, ModelReplied):
            self._proposed[_path(key)] = event.completion.calls

    def _tool(self, key: str, event: Event) -> str:
        if not isinstance(event, (GateDecided, ToolFinished)):
            return ""
        began = isinstance(event, ToolFinished) and event.status == "unknown"
        return (
            event.tool if began or key in self._vetted or key in self._open else OTHER
        )

    def _arguments_of(self, key: str) -> JsonObject | None:
        if not self._arguments:
            return None
        calls, number = (
            self._proposed.get(_path(key), ()),
            EffectKey.parse(key).call or 0,
        )
        proposed = calls[number].arguments if number < len(calls) else None
        return self._changed.get(key, proposed)

    def _forget_call(self, key: str, outcome: Outcome) -> None:
        if isinstance(outcome, ToolFinished):
            self._vetted.discard(key)
            self._not_made.discard(key)
            self._changed.pop(key, None)


def _path(key: str) -> str:
    """The path of the scope that a key belongs to: of `2.0.1`, of its call `2.0.1#0`, of `note:2.0.1` it is `2.0`."""
    return EffectKey.parse(key).path


def _named(intent: EffectIntent) -> tuple[Kind, str]:
    match intent:
        case ModelRequested():
            return "model", intent.model
        case ToolStarted():
            return "tool", intent.tool
        case EffectStarted():
            return "effect", intent.name
        case ChildStarted():
            return "agent", intent.engine


def _begun_elsewhere(
    entry: Entry, outcome: Outcome, agent: Activity
) -> Activity | None:
    """An effect that was in doubt when the run was resumed, and was made again: no intent says so twice."""
    if isinstance(outcome, (ModelReplied, ModelFailed)):
        return Activity(
            "model",
            "",
            entry.run_id,
            entry.key,
            entry.at - outcome.seconds,
            None,
            agent,
        )
    if isinstance(outcome, ToolFinished) and outcome.status in RAN:
        return Activity(
            "tool",
            outcome.tool,
            entry.run_id,
            entry.key,
            entry.at - outcome.seconds,
            None,
            agent,
        )
    return None


def _error_of(record: ErrorRecord | None) -> tuple[str, str]:
    """An error's type, which is the HTTP status if there was one, and its text."""
    if record is None:
        return "", ""
    status = record.details.get("status")
    return str(status) if status else record.type, record.message


def _error_in(outcome: Outcome) -> tuple[str, str]:
    match outcome:
        case ModelFailed() | EffectFinished():
            return _error_of(outcome.error)
        case ToolFinished() if outcome.status != "ok":
            return TOOL_ERRORS.get(outcome.status, outcome.status), outcome.content
        case ChildFinished() if outcome.status == "failed":
            return _error_of(outcome.error)
        case LimitHit():
            return outcome.limit, outcome.detail
        case _:
            return "", ""
