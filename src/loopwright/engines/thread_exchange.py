"""What the payloads of a turn of ThreadEngine do, and what the engine answers to each."""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final

from ..errors import Denied
from ..parsing.payloads import (
    TEXT,
    Payload,
    PayloadError,
    PayloadForm,
    read_payloads,
    write_element,
)
from ..run import Run
from .thread_board import (
    MAX_MESSAGE,
    MAX_MESSAGES,
    MAX_SPAWNED,
    MAX_TODOS,
    Mail,
    ThreadBoard,
    ThreadState,
    describe_todo,
)
from .thread_facts import (
    ContextCleared,
    MessagePosted,
    PayloadRefused,
    ThreadEnded,
    ThreadSpawned,
    TimerSet,
    TodoChanged,
)

MAX_TIMER = timedelta(days=366).total_seconds()
SELF = "self"
FORMS: Final[Mapping[str, PayloadForm]] = {
    SELF: TEXT,
    "spawn-thread": PayloadForm(
        optional=frozenset({"suggested_sub_id"}), child="initial-payload"
    ),
    "initial-payload": TEXT,
    "post": PayloadForm(required=frozenset({"to"})),
    "clear-context": PayloadForm(optional=frozenset({"keep"})),
    "todo-until": PayloadForm(required=frozenset({"condition"}), child="step"),
    "step": PayloadForm(optional=frozenset({"done"})),
    "timer": PayloadForm(required=frozenset({"seconds"})),
}
"""The payloads that there are beside the finals and the tag of the thread itself."""
REFUSALS: Final[Mapping[str, str]] = {
    "bad_attribute": "{name}: must be {wanted}, got {given!r:.60}",
    "denied": "{reason}",
    "empty": "{what} is empty; write the text into it",
    "final_not_last": "payloads stand behind <{tag}>, which ends the thread; send it last, or alone",
    "mailbox_full": "the mailbox of {id} has its {most} messages and timers; try again when one was read",
    "no_payload": "the reply holds no payload, and what is quoted or in code is none; begin one on a line of its own, such "
    "as <{tag}>...</{tag}> or <self>your next thought</self>",
    "not_a_peer": "{sender} may not post to {to}; post to a peer",
    "thread_ended": "thread {to} has ended; spawn another one",
    "todo_open": 'the todo until {condition!r} has open steps: {steps}; do them, and send it again with done="true"',
    "too_long": "a message has at most {most} bytes, got {size}; say it more briefly, or in several",
    "too_many_spawned": "a run spawns at most {most} threads, and they are used up; do it yourself",
    "too_many_tasks": "a thread begins with one <initial-payload>; post the rest",
    "too_many_threads": "at most {most} threads run at a time; wait until one has ended",
    "too_many_todos": "a thread has at most {most} open todos; complete one first",
    "unknown_thread": "there is no thread of this id; use the assigned_id of <thread-spawned>",
}
"""Why something that was understood has no effect, by code; `parsing.payloads` has the codes of what was not."""
YES_AND_NO = {"true": True, "false": False}


class Refused(Exception):
    """Something that a thread sent and that has no effect.

    Args:
        code: why, one of `REFUSALS`.
        unknown_id: the id of the thread that is not there, if that is why.
        values: what the text of the code names.
    """

    def __init__(self, code: str, *, unknown_id: str = "", **values: object) -> None:
        super().__init__(REFUSALS[code].format(**values))
        self.code, self.unknown_id = code, unknown_id


@dataclasses.dataclass(frozen=True)
class ThreadRules:
    """The options of the engine that payloads are bound by, and how a new thread's conversation begins."""

    max_turns: int
    max_threads: int
    peers: tuple[tuple[str, str], ...]
    finals: tuple[str, ...]
    keep_on_clear: int
    open_thread: Callable[[str, str, str, ThreadState], ThreadState]

    def may_post(self, sender: str, to: str) -> bool:
        """Return whether a thread may post to another one."""
        return not self.peers or any(
            fnmatchcase(sender, one) and fnmatchcase(to, other)
            for one, other in self.peers
        )


class PayloadExchange:
    """Does what the payloads of threads say, one thread after the other, and answers each payload."""

    def __init__(self, run: Run, board: ThreadBoard, rules: ThreadRules) -> None:
        self._run, self._board, self._rules = run, board, rules
        self._forms = {**FORMS, **dict.fromkeys(rules.finals, TEXT)}
        self._handlers: Mapping[
            str, Callable[[ThreadState, Payload], Awaitable[None]]
        ] = {
            "spawn-thread": self._spawn,
            "post": self._post,
            "clear-context": self._clear,
            "todo-until": self._note_todo,
            "timer": self._set_timer,
        }

    async def take(
        self, thread: ThreadState, reply: str, *, has_called: bool
    ) -> str | None:
        """Do what the reply of a thread says; return the answer if it is the final one of the first thread.

        A reply of which anything cannot be read does nothing at all.
        """
        forms = {**self._forms, thread.tag: TEXT}
        try:
            payloads = read_payloads(reply, forms)
        except PayloadError as error:
            self._report(thread, {"code": error.code, "message": str(error)})
            return None
        if not payloads and not has_called:
            self._refuse(thread, Refused("no_payload", tag=self._rules.finals[0]))
        for number, payload in enumerate(payloads, 1):
            try:
                answer = await self._handle(thread, payload, number == len(payloads))
            except Refused as refused:
                self._refuse(thread, refused)
                continue
            if answer is not None:
                return answer
        return None

    def _refuse(self, thread: ThreadState, refused: Refused) -> None:
        """Tell a thread that something has no effect, and why."""
        unknown = {"unknown_id": refused.unknown_id} if refused.unknown_id else {}
        why = {"code": refused.code, "message": str(refused)}
        self._report(thread, {**unknown, **why})

    def _report(self, thread: ThreadState, why: dict[str, str]) -> None:
        thread.deliver("system-thread-error", why)
        self._run.note(PayloadRefused(thread.id, why["code"], why["message"]))

    async def _handle(
        self, thread: ThreadState, payload: Payload, is_last: bool
    ) -> str | None:
        if payload.tag in self._rules.finals:
            return await self._finish(thread, payload, is_last)
        if payload.tag in (SELF, thread.tag):
            left = self._rules.max_turns - self._run.turns
            thread.deliver("self-received", {"turns_left": left})
        else:
            await self._handlers[payload.tag](thread, payload)
        return None

    async def _permit(self, name: str, arguments: dict[str, str]) -> None:
        try:
            await self._run.permit(name, {**arguments})
        except Denied as denied:
            raise Refused("denied", reason=denied) from None

    # --- threads ---

    async def _spawn(self, thread: ThreadState, payload: Payload) -> None:
        board, texts = self._board, [child.text for child in payload.children]
        if len(texts) > 1:
            raise Refused("too_many_tasks")
        task = texts[0] if texts else ""
        _check_size(task)
        if board.spawned >= MAX_SPAWNED:
            raise Refused("too_many_spawned", most=MAX_SPAWNED)
        if len(board.running) >= self._rules.max_threads:
            raise Refused("too_many_threads", most=self._rules.max_threads)
        suggested = payload.attributes.get("suggested_sub_id", "")
        name = board.assign_id(thread.id, suggested)
        await self._permit("spawn_thread", {"parent": thread.id, "id": name, "task": task})  # fmt: skip
        board.threads[name] = self._rules.open_thread(name, thread.id, task, thread)
        self._run.note(ThreadSpawned(name, thread.id, suggested))
        assigned = {"assigned_id": name, "parent_id": thread.id}
        # Without a task it waits for a message, which only a parent that knows the id can post.
        thread.deliver("thread-spawned", assigned, wakes=not task, is_receipt=True)

    async def _finish(
        self, thread: ThreadState, payload: Payload, is_last: bool
    ) -> str | None:
        text, is_root = payload.text, thread is self._board.root
        if not is_last:
            raise Refused("final_not_last", tag=payload.tag)
        if not text:
            raise Refused("empty", what=f"<{payload.tag}>")
        for condition, steps in thread.todos.items():
            missing = [step for step, is_done in steps.items() if not is_done]
            raise Refused("todo_open", condition=condition, steps="; ".join(missing))
        if not is_root:
            _check_size(text)
        await self._permit("final_answer", {"thread": thread.id, "final": payload.tag, "text": text})  # fmt: skip
        self._run.note(ThreadEnded(thread.id, payload.tag))
        if is_root:
            thread.has_ended = True
            return text
        self._board.end(thread, payload.tag, text)
        return None

    # --- messages ---

    async def _post(self, thread: ThreadState, payload: Payload) -> None:
        to, text = payload.attributes["to"], payload.text
        if not text:
            raise Refused("empty", what="<post>")
        _check_size(text)
        if not self._rules.may_post(thread.id, to):
            raise Refused("not_a_peer", sender=thread.id, to=to)
        receiver = self._board.threads.get(to)
        if receiver is None:
            raise Refused("unknown_thread", unknown_id=to)
        if receiver.has_ended:
            raise Refused("thread_ended", to=to)
        if not self._board.has_room(receiver):
            raise Refused("mailbox_full", id=to, most=MAX_MESSAGES)
        await self._permit("post_message", {"sender": thread.id, "to": to, "text": text})  # fmt: skip
        known = thread.conversation
        element = write_element("message", {"from": thread.id}, text)
        receiver.inbox.append(Mail(element, known.label, known.untrusted, is_post=True))
        posted = MessagePosted(thread.id, to, len(text), known.label, known.untrusted)
        self._run.note(posted)
        thread.deliver("posted", {"to": to}, wakes=False, is_receipt=True)

    # --- a thread's own context, todos and timers ---

    async def _clear(self, thread: ThreadState, payload: Payload) -> None:
        wanted = payload.attributes.get("keep", str(self._rules.keep_on_clear))
        if not wanted.isdecimal() or len(wanted) > 6:
            raise Refused(
                "bad_attribute",
                name="keep",
                wanted="a number of messages",
                given=wanted,
            )
        kept = thread.clear(int(wanted))
        self._run.note(ContextCleared(thread.id, kept))
        thread.deliver("context-cleared", {"kept_messages": kept}, wakes=False)

    async def _note_todo(self, thread: ThreadState, payload: Payload) -> None:
        condition = payload.attributes["condition"].strip()
        if not condition:
            raise Refused("empty", what="condition")
        given = {child.text or condition: _read_done(child) for child in payload.children}  # fmt: skip
        is_new = condition not in thread.todos
        if is_new and len(thread.todos) >= MAX_TODOS:
            raise Refused("too_many_todos", most=MAX_TODOS)
        # A step that is left out stays as it was: leaving it out does not complete it.
        steps = {**thread.todos.get(condition, {}), **given} or {condition: False}
        _check_size(condition + "".join(steps))
        self._run.note(TodoChanged(thread.id, condition, steps))
        if all(steps.values()):
            thread.todos.pop(condition, None)
            thread.deliver("todo-closed", {"condition": condition}, wakes=False)
            return
        thread.todos[condition] = steps
        thread.deliver("todo-open", describe_todo(condition, steps), wakes=False)

    async def _set_timer(self, thread: ThreadState, payload: Payload) -> None:
        seconds = _read_seconds(payload.attributes["seconds"])
        _check_size(payload.text)
        if not self._board.has_room(thread):
            raise Refused("mailbox_full", id=thread.id, most=MAX_MESSAGES)
        due = self._run.now().timestamp() + seconds
        timer = self._board.set_timer(thread, due, payload.text)
        self._run.note(TimerSet(timer.id, thread.id, seconds))
        receipt = {"id": timer.id, "seconds": f"{seconds:g}"}
        thread.deliver("timer-set", receipt, wakes=False, is_receipt=True)


def _check_size(text: str) -> None:
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_MESSAGE:
        raise Refused("too_long", most=MAX_MESSAGE, size=size)


def _read_done(step: Payload) -> bool:
    given = step.attributes.get("done", "false")
    if given not in YES_AND_NO:
        raise Refused("bad_attribute", name="done", wanted="true or false", given=given)
    return YES_AND_NO[given]


def _read_seconds(given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MAX_TIMER:
        wanted = f"a number above 0 and at most {MAX_TIMER:.0f}"
        raise Refused("bad_attribute", name="seconds", wanted=wanted, given=given)
    return seconds
