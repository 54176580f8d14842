"""The threads of a run of ThreadEngine: their conversations, mailboxes, todos and timers."""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal, TypeAlias

from ..labels import Label, highest
from ..messages import Conversation, Message
from ..parsing.payloads import write_element
from .thread_facts import ThreadInfo, ThreadStatus, Wave

ROOT = "root"
MAX_SPAWNED = 64  # threads of one run, beside the first
MAX_MESSAGES = 50  # unread ones and timers of a thread
MAX_MESSAGE = 16_000  # bytes
MAX_TODOS = 16  # open ones of a thread
MAX_LABEL = 32  # characters of the last part of an id
MAX_EARLIER = 256  # ids of earlier turns that are not assigned again

Order: TypeAlias = Literal["breadth", "depth"]
Steps: TypeAlias = dict[str, bool]
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_-]+")


@dataclasses.dataclass(frozen=True)
class Mail:
    """An element that a thread reads at its next turn.

    Args:
        text: the element.
        label: how sensitive it is.
        untrusted: whether any of it came from outside.
        wakes: whether the thread has a turn because of it.
        is_receipt: whether it is about something that was handed out, so that the thread waits for what comes of it
            unless other mail wakes it.
        is_post: whether it takes a place in the mailbox.
    """

    text: str
    label: Label = "public"
    untrusted: bool = False
    wakes: bool = True
    is_receipt: bool = False
    is_post: bool = False


@dataclasses.dataclass(frozen=True)
class Timer:
    """A timer: when it fires, by wall time in seconds, and the note that its thread then reads."""

    due: float
    id: str
    thread: str
    note: str
    label: Label
    untrusted: bool


@dataclasses.dataclass
class ThreadState:
    """A thread: its conversation, which is all that it knows, and what it has not read yet.

    Args:
        id: its id, the ids of its ancestors before the last dot.
        parent: the id of the thread that spawned it.
        conversation: what it has read and said.
        opening: the messages that clearing its context keeps: the instructions and its task.
        is_awake: whether it has a turn although no mail wakes it.
    """

    id: str
    parent: str
    conversation: Conversation
    opening: tuple[Message, ...]
    is_awake: bool = False
    inbox: list[Mail] = dataclasses.field(default_factory=list[Mail])
    todos: dict[str, Steps] = dataclasses.field(default_factory=dict[str, Steps])
    has_ended: bool = False

    @property
    def tag(self) -> str:
        """The name of its own payload: the last part of its id."""
        return self.id.rpartition(".")[2]

    @property
    def path(self) -> tuple[str, ...]:
        """The parts of its id, by which threads are ordered."""
        return tuple(self.id.split("."))

    @property
    def is_live(self) -> bool:
        """Whether it has a turn in the next wave: a turn that handed nothing out is followed by another one."""
        if self.has_ended:
            return False
        if self.is_awake or any(mail.wakes for mail in self.inbox):
            return True
        return bool(self.inbox) and not any(mail.is_receipt for mail in self.inbox)

    @property
    def info(self) -> ThreadInfo:
        """How it stands."""
        running: ThreadStatus = "live" if self.is_live else "waiting"
        return ThreadInfo(self.id, self.parent, "ended" if self.has_ended else running)

    def deliver(
        self,
        tag: str,
        attributes: Mapping[str, object],
        *,
        wakes: bool = True,
        is_receipt: bool = False,
    ) -> None:
        """Put an answer of the engine into its mail."""
        element = write_element(tag, attributes)
        self.inbox.append(Mail(element, wakes=wakes, is_receipt=is_receipt))

    def read_mail(self) -> None:
        """Add what it has not read, and what is still to do, to its conversation."""
        self.is_awake = False
        if not self.inbox:
            return
        inbox, self.inbox = self.inbox, []
        texts = [mail.text for mail in inbox]
        reminders = [reminder for reminder in self._remind() if reminder not in texts]
        message = Message(
            "user", "\n".join(texts + reminders), origin="engine",
            label=highest(mail.label for mail in inbox),
            untrusted=any(mail.untrusted for mail in inbox),
        )  # fmt: skip
        if not self.opening[1:]:  # it was spawned without a task: this is it
            self.opening = (*self.opening, message)
        self.conversation = self.conversation.add(message)

    def _remind(self) -> Iterable[str]:
        for condition, steps in self.todos.items():
            yield write_element("todo-open", describe_todo(condition, steps))

    def clear(self, keep: int) -> int:
        """Forget all but the opening and the newest `keep` messages; return how many of those there are.

        A result is never kept without its call. What was forgotten still counts for the label of what it says.
        """
        before = self.conversation
        own = [one for one in before if not any(one is kept for kept in self.opening)]
        newest = own[len(own) - keep :] if keep < len(own) else own
        while newest and newest[0].role == "tool":
            newest = newest[1:]
        cleared = Conversation([*self.opening, *newest])
        self.conversation = cleared.with_provenance(
            before.label, untrusted=before.untrusted
        )
        return len(newest)


def describe_todo(condition: str, steps: Steps) -> dict[str, object]:
    """Return the attributes of a todo: its condition, and the numbers of its open steps and of all."""
    open_steps = sum(not done for done in steps.values())
    return {"condition": condition, "open": open_steps, "steps": len(steps)}


class ThreadBoard:
    """The threads of one run, by id.

    Args:
        reserved: names that no id may end with, since they mean something else in a reply.
        earlier: ids of earlier turns of the conversation.
    """

    def __init__(self, reserved: Collection[str], earlier: Iterable[str] = ()) -> None:
        self.threads: dict[str, ThreadState] = {}
        self.timers: list[Timer] = []
        self.earlier = tuple(earlier)[-MAX_EARLIER:]
        self.waves = 0
        self._reserved = frozenset(reserved)
        self._timers_set = 0

    @property
    def root(self) -> ThreadState:
        """The first thread, which works for the caller."""
        return self.threads[ROOT]

    @property
    def spawned(self) -> int:
        """The number of threads that were spawned so far."""
        return len(self.threads) - 1

    @property
    def running(self) -> list[ThreadState]:
        """The threads that have not ended."""
        return [one for one in self.threads.values() if not one.has_ended]

    def list_live(self, order: Order) -> list[ThreadState]:
        """Return the threads of the next wave, by id; depth first, those of the deepest level."""
        live = sorted((one for one in self.running if one.is_live), key=lambda one: one.path)  # fmt: skip
        if order == "breadth" or not live:
            return live
        deepest = max(len(one.path) for one in live)
        return [one for one in live if len(one.path) == deepest]

    def assign_id(self, parent: str, suggested: str) -> str:
        """Return a new id below that of a parent, made of what was suggested; one that is taken gets a number."""
        label = _NOT_IN_LABELS.sub("-", suggested.strip())[:MAX_LABEL].strip("-")
        if not label[:1].isalpha():
            label = f"thread-{label}".rstrip("-")
        name, number = f"{parent}.{label}", 0
        while self._is_taken(name):
            number += 1
            name = f"{parent}.{label}-{number}"
        return name

    def _is_taken(self, name: str) -> bool:
        is_reserved = name.rpartition(".")[2] in self._reserved
        return is_reserved or name in self.threads or name in self.earlier

    def has_room(self, thread: ThreadState) -> bool:
        """Return whether a mailbox takes one more message; a timer holds the place of its own."""
        unread = sum(mail.is_post for mail in thread.inbox)
        timers = sum(timer.thread == thread.id for timer in self.timers)
        return unread + timers < MAX_MESSAGES

    def set_timer(self, thread: ThreadState, due: float, note: str) -> Timer:
        """Set a timer of a thread."""
        self._timers_set += 1
        known = thread.conversation
        timer = Timer(
            due, f"timer-{self._timers_set}", thread.id, note, known.label, known.untrusted
        )  # fmt: skip
        self.timers.append(timer)
        return timer

    def fire_timers(self, now: float) -> list[Timer]:
        """Put the notes of the timers that are due into the mail of their threads; return them."""
        due = sorted((one for one in self.timers if one.due <= now), key=lambda one: one.due)  # fmt: skip
        for timer in due:
            self.timers.remove(timer)
            text = write_element("timer-fired", {"id": timer.id}, timer.note)
            mail = Mail(text, timer.label, timer.untrusted)
            self.threads[timer.thread].inbox.append(mail)
        return due

    def end(self, thread: ThreadState, by: str, text: str) -> None:
        """End a thread, and put what it says into the mail of the nearest ancestor that runs."""
        thread.has_ended = True
        thread.inbox.clear()
        self.timers = [one for one in self.timers if one.thread != thread.id]
        heir = self.threads[thread.parent]
        while heir.has_ended:
            heir = self.threads[heir.parent]
        known = thread.conversation
        element = write_element("thread-ended", {"id": thread.id, "by": by}, text)
        heir.inbox.append(Mail(element, known.label, known.untrusted))

    def describe(self, turns: tuple[str, ...]) -> Wave:
        """Return the fact of a wave."""
        threads = tuple(one.info for one in self.threads.values())
        todos = {about: dict(steps) for about, steps in self.root.todos.items()}
        return Wave(self.waves, turns, threads, todos, self.earlier)
