"""Board: which tasks a team has posted, who has taken them, and how they ended; read from a run's entries."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal, Self, TypeAlias, cast

from ..events.effects import FactNoted
from ..events.entry import Entry
from ..events.run import Status
from ..messages import Json

State: TypeAlias = Literal["posted", "taken", "done"]


@dataclasses.dataclass(frozen=True)
class TaskPosted:
    """Fact: a task for an agent stands on the board, by its id and its place from 1."""

    id: str
    number: int
    agent: str
    task: str


@dataclasses.dataclass(frozen=True)
class TaskTaken:
    """Fact: the agent begins a task."""

    id: str
    agent: str


@dataclasses.dataclass(frozen=True)
class TaskDone:
    """Fact: a task has ended: its status, how long it took by the wall clock, its result, or the problem with it."""

    id: str
    status: Status
    seconds: float
    content: str
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class BoardTask:
    """A task on the board; `status`, `seconds`, `content` and `problem` are those of one that is done."""

    id: str
    number: int
    agent: str
    task: str
    state: State = "posted"
    status: Status | None = None
    seconds: float = 0.0
    content: str = ""
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Board:
    """The tasks of a run, in the order in which they were posted.

    `Board.of(journal.read(run_id))` is the board of now, in any process; while the run is at work,
    `board = board.add(entry)` for each entry of `runtime.attach(run_id)` keeps it so.
    """

    tasks: tuple[BoardTask, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """Return the board that the entries of a run add up to."""
        board = cls()
        for entry in entries:
            board = board.add(entry)
        return board

    def add(self, entry: Entry) -> Self:
        """Return the board after one more entry; most entries leave it as it is."""
        event = entry.event
        if not isinstance(event, FactNoted) or not isinstance(event.value, dict):
            return self
        fields: Any = event.value
        if event.name == "TaskPosted":
            return dataclasses.replace(self, tasks=(*self.tasks, BoardTask(**fields)))
        if event.name == "TaskTaken":
            return self._change(fields["id"], {"state": "taken"})
        if event.name == "TaskDone":
            return self._change(fields["id"], {**fields, "state": "done"})
        return self

    def _change(self, task_id: str, changes: dict[str, Json]) -> Self:
        given = cast("dict[str, Any]", changes)
        tasks = tuple(
            dataclasses.replace(task, **given) if task.id == task_id else task
            for task in self.tasks
        )
        return dataclasses.replace(self, tasks=tasks)

    @property
    def is_done(self) -> bool:
        """Whether all of its tasks have ended."""
        return all(task.state == "done" for task in self.tasks)
