"""What happens in runs as lines of the application's own log, one for each entry."""

from typing import Any, Literal, TypeAlias

from .._internal.log import logger as own_logger
from ..errors import ConfigError
from ..events.control import (
    CommandReceived,
    Declassified,
    FollowedUp,
    RunContinued,
    RunPaused,
)
from ..events.effects import (
    AttemptFailed,
    BreakerChanged,
    CallDeadLettered,
    CallsProposed,
    ChildFinished,
    ChildStarted,
    ClockRead,
    DriftNoticed,
    EffectFinished,
    EffectStarted,
    FactNoted,
    GateDecided,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RecoveryTriggered,
    ToolFinished,
    ToolStarted,
    UndoBegun,
    UndoFinished,
    UndoStarted,
    UnknownOutcomeResolved,
)
from ..events.entry import Entry, Event
from ..events.run import ErrorRecord, RunFinished, RunResumed, RunStarted, RunSuspended
from ..messages import Completion, Usage
from .span_tracker import MAX_RUNS, Ended, Following, Noted, Step

Level: TypeAlias = Literal["debug", "info", "warning", "error"]

INFO = (
    RunStarted,
    RunResumed,
    RunPaused,
    RunContinued,
    CommandReceived,
    FollowedUp,
    ModelReplied,
    ChildStarted,
)
WARNING = (
    ModelFailed, AttemptFailed, LimitHit, RecoveryTriggered, UnknownOutcomeResolved, CallDeadLettered, UndoBegun,
    BreakerChanged,
    DriftNoticed, Declassified,
)  # fmt: skip
VERDICTS: dict[str, Level] = {
    "allow": "debug",
    "modify": "info",
    "ask": "info",
}  # the others are warnings
STATUSES: dict[str, Level] = {
    "completed": "info",
    "failed": "error",
}  # of runs; the others are warnings

# What is told of a fact besides its key, by the names of its fields; what else it has may be what somebody wrote.
PLAIN: dict[type, tuple[str, ...]] = {
    RunStarted: ("output",),
    RunResumed: ("owner",),
    RunSuspended: ("reason",),
    RunContinued: (),  # for how long is counted
    CommandReceived: ("number", "command", "sent"),
    FollowedUp: ("command",),
    Declassified: ("label", "command"),
    RunFinished: ("status", "stop_reason", "llm_calls", "tool_calls", "iterations"),
    ModelRequested: ("verb", "purpose", "provider", "model", "iteration"),
    ModelReplied: ("seconds",),
    ModelFailed: ("seconds",),
    AttemptFailed: ("attempt", "delay"),
    LimitHit: ("limit", "verb"),
    GateDecided: ("call_id", "verdict", "policy_version", "waited", "command"),
    ToolStarted: ("tool", "call_id", "effect", "idempotency_key"),
    ToolFinished: ("call_id", "status", "seconds", "label", "untrusted"),
    RecoveryTriggered: ("tool", "call_id", "strategy", "attempt", "status", "delay"),
    UnknownOutcomeResolved: ("tool", "call_id", "by", "verdict", "command"),
    CallDeadLettered: ("tool", "call_id", "status", "queue"),
    UndoBegun: ("status", "stop_reason"),
    UndoStarted: ("tool", "call_id", "idempotency_key"),
    UndoFinished: ("tool", "call_id", "status", "seconds"),
    EffectStarted: ("name",),
    EffectFinished: ("name",),
    ChildStarted: (),  # the engine is bound
    ChildFinished: ("status", "stop_reason", "iterations"),
    FactNoted: ("name",),
    ClockRead: ("seconds",),
    BreakerChanged: ("name", "before", "after", "reason"),
    DriftNoticed: ("what",),
}
CONTENT: dict[type, tuple[str, ...]] = {
    RunStarted: ("messages",),
    RunFinished: ("answer",),
    CommandReceived: ("body",),
    FollowedUp: ("text",),
    Declassified: ("reason",),
    ModelReplied: ("completion",),
    CallsProposed: ("calls",),
    GateDecided: ("reason", "arguments"),
    ToolFinished: ("content",),
    RecoveryTriggered: ("error",),
    UnknownOutcomeResolved: ("result",),
    CallDeadLettered: ("arguments", "error"),
    UndoBegun: ("answer", "calls"),
    UndoFinished: ("content",),
    EffectFinished: ("value",),
    ChildFinished: ("answer",),
    FactNoted: ("value",),
    DriftNoticed: ("before", "after"),
}


# What a fact's `name` is logged as: `name` itself is taken in the records of Python's logging.
NAMES: dict[type, str] = {
    EffectStarted: "effect",
    EffectFinished: "effect",
    FactNoted: "fact",
    BreakerChanged: "breaker",
}


class StructlogObserver:
    """Logs each new entry of each run as one event: `Runtime(observers=[StructlogObserver()])`.

    The event's name is the entry's kind ("run_started", "tool_finished"), and `run_id`, `key`, `seq` and `engine` are
    bound. How lines look and where they go is the application's affair: nothing is configured here.

    Args:
        logger: a structlog logger; `None` is the one named `loopwright`.
        content: whether tasks, arguments, results, answers and error texts are logged too.
        max_runs: followed at once, so that lines name their engine.

    Raises `ConfigError` for a logger that is none of structlog's.
    """

    def __init__(
        self, logger: Any = None, *, content: bool = False, max_runs: int = MAX_RUNS
    ) -> None:
        if logger is not None and not callable(getattr(logger, "bind", None)):
            raise ConfigError(
                f"logger: needs a structlog logger, got {type(logger).__name__}: structlog.get_logger() gives one, "
                "and structlog.stdlib sends what it is told to Python's own logging"
            )
        if max_runs < 1:
            raise ConfigError(f"max_runs must be at least 1, got {max_runs!r}")
        self._logger, self._content = logger, content
        self._following = Following(max_runs=max_runs)

    def __call__(self, entry: Entry) -> None:
        """Log one new entry."""
        steps = self._following.follow(entry)
        bound = (own_logger() if self._logger is None else self._logger).bind(
            run_id=entry.run_id,
            seq=entry.seq,
            key=entry.key,
            engine=_engine(entry, steps),
        )
        log = getattr(bound, _level(entry.event))
        log(entry.kind, **self._fields(entry.event, steps))

    def _fields(self, event: Event, steps: list[Step]) -> dict[str, Any]:
        kind = type(event)
        fields = {
            NAMES[kind] if name == "name" else name: getattr(event, name)
            for name in PLAIN.get(kind, ())
        }
        fields |= _counts(event)
        if isinstance(event, (GateDecided, ToolFinished)):
            fields["tool"] = event.tool if self._content else _tool(event, steps)
        if isinstance(event, (ModelReplied, ModelFailed)):
            fields |= _asked(steps)
        failure = getattr(event, "error", None)
        if isinstance(failure, ErrorRecord):
            fields |= _failure(failure, content=self._content)
        if self._content:
            fields |= {name: getattr(event, name) for name in CONTENT.get(kind, ())}
        return fields


def _level(event: Event) -> Level:
    match event:
        case GateDecided():
            return VERDICTS.get(event.verdict, "warning")
        case RunFinished() | ChildFinished():
            return STATUSES.get(event.status, "warning")
        case RunSuspended():
            return "error" if event.reason == "diverged" else "info"
        case ToolFinished() | UndoFinished():
            return "info" if event.status == "ok" else "warning"
        case EffectFinished() if event.error is not None:
            return "warning"
        case _:
            return (
                "warning"
                if isinstance(event, WARNING)
                else "info"
                if isinstance(event, INFO)
                else "debug"
            )


def _engine(entry: Entry, steps: list[Step]) -> str:
    """The engine that an entry is about."""
    about = [
        step.activity
        for step in steps
        if isinstance(step, Noted) or step.activity.key == entry.key
    ]
    return about[-1].agent.name if about else ""


def _tool(event: GateDecided | ToolFinished, steps: list[Step]) -> str:
    """The tool that an entry is about; the name of one that does not exist is a model's own words."""
    noted = [step.tool for step in steps if isinstance(step, Noted)]
    return noted[-1] if noted else event.tool


def _asked(steps: list[Step]) -> dict[str, Any]:
    """Which model replied or failed, and what it was asked for."""
    ended = [step.activity.intent for step in steps if isinstance(step, Ended)]
    known = ended[-1] if ended else None
    if not isinstance(known, ModelRequested):
        return {}
    return {"provider": known.provider, "model": known.model, "purpose": known.purpose}


def _counts(event: Event) -> dict[str, Any]:
    match event:
        case ModelReplied():
            return {**_reply(event.completion), **_usage(event.completion.usage)}
        case RunFinished():
            return _usage(event.usage)
        case RunContinued():
            return {"seconds": event.lasted}
        case RunSuspended():
            return {"pending": len(event.pending)}
        case CallsProposed():
            return {"calls": len(event.calls)}
        case _:
            return {}


def _reply(completion: Completion) -> dict[str, Any]:
    return {
        "finish_reason": completion.finish_reason,
        "calls": len(completion.calls),
        "replied": completion.model,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": usage.cost,
    }


def _failure(error: ErrorRecord, *, content: bool) -> dict[str, Any]:
    """An error's type and status; its text may quote what was sent."""
    told: dict[str, Any] = {"error": error.type}
    if error.details.get("status") is not None:
        told["http_status"] = error.details["status"]
    return {**told, "error_message": error.message} if content else told
