"""The events of runs as lines of the application's own log, one for each entry."""

from collections.abc import Sized
from typing import Any

from .._internal.log import logger as own_logger
from ..errors import ConfigError
from ..events.describe import Field, fields_of
from ..events.effects import ModelFailed, ModelReplied, ModelRequested
from ..events.entry import Entry, Event
from ..events.run import ErrorRecord
from ..messages import Completion, Usage
from .span_tracker import (
    MAX_RUNS,
    ActivityChange,
    ActivityEnded,
    EntryNoted,
    RunTracker,
)


class StructlogObserver:
    """Log each new entry of each run as one event: `Runtime(observers=[StructlogObserver()])`.

    The event's name is the entry's kind ("run_started", "tool_finished"), and `run_id`, `key`, `seq` and `engine` are
    bound. The application decides how lines look and where they go: nothing is configured here.

    Args:
        logger: a structlog logger; `None` is the one named `loopwright`.
        content: whether tasks, arguments, results, answers and error texts are logged too.
        max_runs: the number of runs followed at once, so that lines name their engine.

    Raises `ConfigError` for a logger of another kind.
    """

    def __init__(
        self, logger: Any = None, *, content: bool = False, max_runs: int = MAX_RUNS
    ) -> None:
        if logger is not None and not callable(getattr(logger, "bind", None)):
            raise ConfigError(
                f"logger: needs a structlog logger, got {type(logger).__name__}: structlog.get_logger() gives one, "
                "and structlog.stdlib sends its lines to Python's own logging"
            )
        if max_runs < 1:
            raise ConfigError(f"max_runs must be at least 1, got {max_runs!r}")
        self._logger, self._content = logger, content
        self._tracker = RunTracker(max_runs=max_runs)

    def __call__(self, entry: Entry) -> None:
        """Log one new entry."""
        changes = self._tracker.follow(entry)
        bound = (own_logger() if self._logger is None else self._logger).bind(
            run_id=entry.run_id,
            seq=entry.seq,
            key=entry.key,
            engine=_find_engine(entry, changes),
        )
        log = getattr(bound, entry.event.level)
        log(entry.kind, **self._collect_fields(entry.event, changes))

    def _collect_fields(
        self, event: Event, changes: list[ActivityChange]
    ) -> dict[str, Any]:
        collected: dict[str, Any] = {}
        for field in fields_of(type(event)):
            if field.log_name:
                collected |= self._read(field, getattr(event, field.name), changes)
        if isinstance(event, (ModelReplied, ModelFailed)):
            collected |= _find_model(changes)
        return collected

    def _read(
        self, field: Field, value: Any, changes: list[ActivityChange]
    ) -> dict[str, Any]:
        """Return what the log may hold of the value of a field."""
        name, exposure = field.log_name, field.exposure
        shown = exposure.privacy == "public" or self._content
        match value:
            case ErrorRecord():
                return _read_error(value, content=self._content)
            case Usage():
                return _read_usage(value)
            case Completion():
                whole = {name: value} if shown else {}
                return {**_read_completion(value), **whole}
            case Sized() if exposure.count and not self._content_of(field):
                return {name: len(value)}
            case _ if exposure.privacy == "tool_name" and not shown:
                return {name: _find_tool(changes) or value}
            case None if name == "error":
                return {}
            case _:
                return {name: value} if shown else {}

    def _content_of(self, field: Field) -> bool:
        return self._content and field.exposure.privacy == "content"


def _find_engine(entry: Entry, changes: list[ActivityChange]) -> str:
    """Return the name of the engine that an entry is about."""
    about = [
        change.activity
        for change in changes
        if isinstance(change, EntryNoted) or change.activity.key == entry.key
    ]
    return about[-1].agent.name if about else ""


def _find_tool(changes: list[ActivityChange]) -> str:
    """Return the name of the tool that an entry is about; "_OTHER" if it may be a model's own words."""
    noted = [change.tool for change in changes if isinstance(change, EntryNoted)]
    return noted[-1] if noted else ""


def _find_model(changes: list[ActivityChange]) -> dict[str, Any]:
    """Return which model replied or failed, and the purpose of the call."""
    ended = [
        change.activity.intent
        for change in changes
        if isinstance(change, ActivityEnded)
    ]
    request = ended[-1] if ended else None
    if not isinstance(request, ModelRequested):
        return {}
    return {
        "provider": request.provider,
        "model": request.model,
        "purpose": request.purpose,
    }


def _read_completion(completion: Completion) -> dict[str, Any]:
    return {
        "finish_reason": completion.finish_reason,
        "calls": len(completion.calls),
        "replied": completion.model,
        **_read_usage(completion.usage),
    }


def _read_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": usage.cost,
    }


def _read_error(error: ErrorRecord, *, content: bool) -> dict[str, Any]:
    """Return an error's type and status; its text may quote what was sent."""
    found: dict[str, Any] = {"error": error.type}
    if error.details.get("status") is not None:
        found["http_status"] = error.details["status"]
    return {**found, "error_message": error.message} if content else found
