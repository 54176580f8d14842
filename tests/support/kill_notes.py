"""What the processes of the kill tests tell each other: the lives of a run, and what was noted in them."""

import dataclasses
import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from pydantic import JsonValue

When: TypeAlias = Literal["before", "after"]
What: TypeAlias = Literal["claimed", "kept", "started", "acted", "undoing", "undone"]

ACTIONS = "started", "acted", "undoing", "undone"
"""What tools do."""


@dataclasses.dataclass(frozen=True)
class Death:
    """When a process dies: at a barrier, in a tool (at the start of one or at its side effect, counted together), or
    after so many seconds; with none of them it lives to its end.
    """

    barrier: int = 0
    when: When = "after"
    in_tool: int = 0
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is at work: programs by name, each a run of its own, and how."""

    programs: tuple[str, ...]
    streaming: bool = False
    threads: bool = False
    """Whether all tools are synchronous, so that each is at work in a thread."""
    limits: tuple[tuple[str, float], ...] = ()

    @property
    def runs(self) -> dict[str, str]:
        """The program of each run, by the run's id."""
        return {f"run-{index}": program for index, program in enumerate(self.programs)}


@dataclasses.dataclass(frozen=True)
class Life:
    """One process's share of a scenario: the first one begins the runs, each later one goes on with them."""

    scenario: Scenario
    folder: Path
    url: str
    number: int
    death: Death = Death()

    def to_json(self) -> str:
        """As a line for another process."""
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def read(cls, line: str) -> "Life":
        """What `to_json` wrote."""
        life: dict[str, Any] = json.loads(line)
        told = life["scenario"]
        limits = tuple((name, value) for name, value in told["limits"])
        scenario = Scenario(
            tuple(told["programs"]), told["streaming"], told["threads"], limits
        )
        return cls(
            scenario,
            Path(life["folder"]),
            life["url"],
            life["number"],
            Death(**life["death"]),
        )


class Ending(TypedDict):
    """What a process tells of a run that it brought to its end."""

    run: str
    status: str
    answer: str | None
    llm_calls: int
    tool_calls: int
    tokens: list[int]
    iterations: int
    head: str
    deltas: int


@dataclasses.dataclass(frozen=True)
class Note:
    """One line of what a process really did.

    "claimed": it writes a run, `fence` says under which number. "kept": a barrier returned, all up to the
    entry `seq` with that `hash` is acknowledged. "started" and "acted": a tool began, and its side effect
    happened; "undoing" and "undone": the same of undoing it.
    """

    life: int
    run: str
    what: What
    fence: int = 0
    seq: int = 0
    hash: str = ""
    key: str = ""
    idempotency_key: str = ""


class Notes:
    """A file that lines are appended to, each in one piece; it outlives whoever writes."""

    def __init__(self, folder: Path, life: int, death: Death = Death()) -> None:
        self._file = os.open(
            folder / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        self._life, self._left = life, itertools.count(death.in_tool, -1)

    def add(self, run: str, what: What, **told: JsonValue) -> None:
        """Note it; what tools do is on the disk before they go on."""
        line = json.dumps({"life": self._life, "run": run, "what": what, **told})
        os.write(self._file, line.encode() + b"\n")
        if what in ACTIONS:
            os.fsync(self._file)
            if next(self._left) == 1:
                os.kill(os.getpid(), signal.SIGKILL)


def read_notes(folder: Path) -> Iterator[Note]:
    """All that was noted, in order."""
    path = folder / "notes"
    for line in path.read_text().splitlines() if path.exists() else ():
        yield Note(**json.loads(line))
