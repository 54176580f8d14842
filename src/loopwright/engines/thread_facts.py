"""What ThreadEngine notes: waves, threads, messages, timers, todos, and what it refused."""

import dataclasses
from typing import Literal, TypeAlias

from ..labels import Label

ThreadStatus: TypeAlias = Literal["live", "waiting", "ended"]


@dataclasses.dataclass(frozen=True)
class ThreadInfo:
    """A thread as it stands: its id, that of the thread that spawned it, and what it does."""

    id: str
    parent: str
    status: ThreadStatus


@dataclasses.dataclass(frozen=True)
class Wave:
    """Fact: a wave is over, and how the threads stand.

    Args:
        number: the number of the wave, from 1.
        turns: the ids of the threads that had a turn in it.
        threads: all threads, those that have ended too.
        todos: the open steps of the first thread, by the condition of their todo.
        earlier: ids of earlier turns of the conversation, which are not assigned again.
    """

    number: int
    turns: tuple[str, ...]
    threads: tuple[ThreadInfo, ...]
    todos: dict[str, dict[str, bool]]
    earlier: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ThreadSpawned:
    """Fact: a thread began; `suggested` is the name that its parent wished for."""

    id: str
    parent: str
    suggested: str


@dataclasses.dataclass(frozen=True)
class ThreadEnded:
    """Fact: a thread ended `by` the final of that name, or by "unreadable" or "stuck"."""

    id: str
    by: str


@dataclasses.dataclass(frozen=True)
class MessagePosted:
    """Fact: a message of `characters` was put into the mailbox of a thread, with the provenance of its text."""

    sender: str
    to: str
    characters: int
    label: Label
    untrusted: bool


@dataclasses.dataclass(frozen=True)
class ContextCleared:
    """Fact: a thread kept its task and the newest `kept` messages; the journal has the others."""

    id: str
    kept: int


@dataclasses.dataclass(frozen=True)
class TimerSet:
    """Fact: a timer of a thread, which fires after `seconds`."""

    id: str
    thread: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class TimerFired:
    """Fact: a timer of a thread fired."""

    id: str
    thread: str


@dataclasses.dataclass(frozen=True)
class TodoChanged:
    """Fact: the steps of a thread's todo, by their text, and whether each is done."""

    thread: str
    condition: str
    steps: dict[str, bool]


@dataclasses.dataclass(frozen=True)
class PayloadRefused:
    """Fact: something that a thread sent was refused, and it was told so."""

    thread: str
    code: str
    message: str
