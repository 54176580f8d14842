"""Schedule: a task that an agent works on at the times of a cron line, and the port of what keeps schedules."""

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, get_args

from .._internal import dataclasses
from ..errors import ConfigError

Missed: TypeAlias = Literal["once", "skip", "all"]
Overlap: TypeAlias = Literal["skip", "queue"]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
MAX_TASK = 10_000
"""Characters of a task."""
NewRun = TypeVar("NewRun", contravariant=True)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A schedule with what has become of it.

    Args:
        name: its name.
        agent: the agent that works on the task, or an engine.
        task: what the agent is asked.
        cron: when, in the five fields of cron.
        zone: the time zone of the cron line, as in the IANA database.
        missed: what happens about times at which no worker was there: one run makes up for all of them ("once"), none does
            ("skip"), or each gets its run, one after another, at most 100 ("all").
        overlap: what happens at a time when its last run is still at work: none ("skip"), or one run after it ("queue").
        app_version: the version of the application that it belongs to; see `Worker`.
        by: who added it.
        principal: who its runs are started by, as JSON; see `Principal`.
        generation: grows when a schedule of this name is added again after it was deleted.
        revision: grows with every change.
        paused: whether it is paused, so that its times pass.
        deleted: whether it is gone; its name, generation and times are kept.
        seen_until: wall time (seconds) of the last of its times that was looked at; none up to it fires any more.
        line: the times that wait for the end of its last run.
        last_run: the id of its last run.
        last_at: the time of its last run, 0 for none.
        skipped: the times that got no run; of those that were missed, at most 100 are looked at.
    """

    name: str
    agent: str
    task: str
    cron: str
    zone: str = "UTC"
    missed: Missed = "once"
    overlap: Overlap = "skip"
    app_version: str = ""
    by: str = ""
    principal: Mapping[str, Any] | None = None
    generation: int = 1
    revision: int = 0
    paused: bool = False
    deleted: bool = False
    seen_until: float = 0.0
    line: tuple[float, ...] = ()
    last_run: str = ""
    last_at: float = 0.0
    skipped: int = 0

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a value that no schedule has."""
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"name: must be letters, digits, '_' and '-', at most 64, got {self.name!r:.80}"
            )
        for field, kind in (("missed", Missed), ("overlap", Overlap)):
            value, known = getattr(self, field), get_args(kind)
            if value not in known:
                raise ConfigError(f"{field}: must be one of {known}, got {value!r:.80}")
        is_text = isinstance(self.task, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not self.deleted and not (is_text and self.task.strip()):
            raise ConfigError("task: is empty; say what the agent is to do")
        if len(self.task) > MAX_TASK:
            raise ConfigError(
                f"task: must have at most {MAX_TASK} characters, got {len(self.task)}"
            )

    @property
    def definition(self) -> tuple[object, ...]:
        """What a caller says of it, and adding it again may change."""
        return (
            self.agent, self.task, self.cron, self.zone, self.missed, self.overlap, self.app_version, self.principal,
        )  # fmt: skip

    def run_id(self, instant: float) -> str:
        """Return the id of the run of one of its times (wall clock, seconds): the same in every process."""
        at = datetime.datetime.fromtimestamp(instant, datetime.UTC)
        is_whole = not (at.second or at.microsecond)
        text = at.strftime("%Y-%m-%dT%H:%M" if is_whole else "%Y-%m-%dT%H:%M:%S.%f")
        return f"{self.name}.g{self.generation}@{text}Z"

    def change(self, **changes: Any) -> "Schedule":
        """Return its next revision."""
        return dataclasses.replace(self, revision=self.revision + 1, **changes)

    def encode(self) -> str:
        """Return it as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, text: str) -> "Schedule":
        """Return the schedule that `encode` wrote; raise ValueError for anything else."""
        known = {field.name for field in dataclasses.fields(cls)}
        stored: dict[str, Any] = json.loads(text)
        found = {name: stored[name] for name in known & stored.keys()}
        found["line"] = tuple(found.get("line", ()))
        try:
            return cls(**found)
        except (TypeError, ConfigError) as error:
            raise ValueError(str(error)) from error


class ScheduleStore(Protocol[NewRun]):
    """Keeps the schedules of a journal, which has it as its attribute `schedules`."""

    def read(self) -> list[Schedule]:
        """Return all schedules by name, those that were deleted too."""
        ...

    async def store(self, schedule: Schedule, due: NewRun | None = None) -> bool:
        """Store the next revision of a schedule, with the run that is due; durable on return.

        Both become durable in one transaction, or nothing. Returns whether it was stored: not if the journal has another
        revision than the one before this. A run whose id is taken or was deleted is left out.
        """
        ...
