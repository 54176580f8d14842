"""What a journal has of one thread: its last turn, and the conversation that the next one continues."""

import contextlib
import shlex
from collections.abc import Iterator, Sequence

from .._internal import dataclasses
from .._kernel.control.commands import ANSWER, ENDING, RESUMING, STEER
from .._kernel.control.questions import open_questions
from .._kernel.control.run_control import RunControl
from .._kernel.durability.approvals import find_last_received
from .._kernel.durability.history import (
    is_loaded,
    load_messages,
    offer_conversation,
    open_conversation,
)
from .._kernel.session.claim import claim_run
from .._kernel.session.services import Services
from ..errors import ConfigError, JournalError, UnknownRun
from ..events.effects import ModelReplied, ModelRequested
from ..events.entry import Entry
from ..events.lifecycle import read_start, restore_answer
from ..events.run import Question, RunFinished, RunStarted
from ..journals.access import consult, read_inbox, read_run
from ..journals.base import RESUMABLE, Command, RunInfo
from ..journals.capabilities import iterate_runs
from ..journals.claims import get_watch, is_orphaned
from ..journals.listing import RunFilter
from ..journals.recorded_conversations import build_end
from ..labels import LabelledText
from ..messages import Conversation, Message
from ..principals import TENANT_TAG, Principal
from ..security.signed_commands import SenderCheck
from .turn import Turn, TurnName, read_turn

PAGE = 16
"""Runs listed at a time: nearly all runs of a thread are turns."""
MAX_KNOWN = 256
"""Conversations that a process keeps to continue them without reading them again."""


@dataclasses.dataclass(frozen=True)
class LastTurn:
    """The last turn of a thread, as the journal lists it."""

    name: TurnName
    info: RunInfo

    @property
    def has_ended(self) -> bool:
        """Whether the next turn may begin."""
        return self.info.status not in RESUMABLE

    def is_meant(self, at: int | Turn | None) -> bool:
        """Whether it is the turn that is asked for; `None` is any. A thread of the same name may be a later one."""
        if isinstance(at, Turn):
            return at.run_id == self.info.run_id
        return at is None or at == self.name.number


@dataclasses.dataclass(frozen=True)
class ThreadEnd:
    """What the next turn of a thread begins with: the conversation so far, and the name of the agent."""

    conversation: Conversation
    agent: str


class ThreadRecord:
    """What a journal has of the thread with an id, which the agent of that name opened.

    A principal of another tenant than that of the last turn is refused.
    """

    def __init__(
        self,
        services: Services,
        id: str,
        agent: str,
        principal: Principal | None = None,
    ) -> None:
        self.id, self._agent, self._principal = id, agent, principal
        self._services, self._journal = services, services.journal
        self._where = RunFilter(thread=id)
        self.queues = services.turn_queues

    async def find_last(self) -> LastTurn | None:
        """Return the last turn, `None` for a thread that has none; raise `ConfigError` for one of another agent."""
        return await consult(self._find_last)

    def _find_last(self) -> LastTurn | None:
        last = next(self._list_turns(), None)
        if last is not None and last.info.damage:
            raise JournalError(
                f"thread {self.id!r}: its last turn {last.info.run_id!r} cannot be read: {last.info.damage}"
            )
        if last is not None and self._principal is not None:
            _check_tenant(self.id, last, self._principal)
        if last is not None and last.info.agent != self._agent:
            self._check_agent(last)
        return last

    def for_principal(self, principal: Principal | None) -> "ThreadRecord":
        """Return the record as that principal may see it."""
        if principal == self._principal:
            return self
        return ThreadRecord(self._services, self.id, self._agent, principal)

    def _check_agent(self, last: LastTurn) -> None:
        """Raise `ConfigError` for a thread that neither began with the agent nor continues with it."""
        first = self._read_first(last.name.incarnation)
        ended = self._journal.read(last.info.run_id)[-1].event
        following = ended.agent if isinstance(ended, RunFinished) else ""
        if not self._agent and first:  # `loopwright run` has none
            raise ConfigError(
                f"id: thread {self.id!r} is of agent {first!r}, got a run without an agent; open it with that one, "
                f"as `loopwright chat package.module:agent --thread {shlex.quote(self.id)}` does"
            )
        if self._agent not in (first, following):
            raise ConfigError(
                f"id: thread {self.id!r} is of agent {first!r}, got {self._agent!r}; "
                f"open it with that one, which can also switch it to {self._agent!r}: where an agent was renamed, define "
                f"the old name as well, `runtime.agent({first!r}, ...).thread({self.id!r}).switch({self._agent!r})`"
            )

    def _read_first(self, incarnation: str) -> str:
        """Return the name of the agent that the thread began with; a fork begins with turn 0."""
        for number in (0, 1):
            run_id = str(TurnName(incarnation, number))
            with contextlib.suppress(UnknownRun):
                return read_start(run_id, self._journal.read(run_id)).agent
        return ""

    def _list_turns(self) -> Iterator[LastTurn]:
        """Return the turns, the newest first."""
        for info in iterate_runs(self._journal, self._where, PAGE):
            name = TurnName.parse(info.run_id)
            if name is not None:
                yield LastTurn(name, info)

    async def find_turn(self, name: TurnName) -> LastTurn | None:
        """Return the turn of that name; `None` if it is not there."""
        return await consult(self._find_turn, name)

    def _find_turn(self, name: TurnName) -> LastTurn | None:
        return next((one for one in self._list_turns() if one.name == name), None)

    async def read_turns(self) -> list[Turn]:
        """Return all turns in which something was said, the oldest first."""
        return await consult(self._read_turns)

    def _read_turns(self) -> list[Turn]:
        listed = list(self._list_turns())
        listed.reverse()
        read = (
            read_turn(one.info, one.name.number, self._journal.read(one.info.run_id))
            for one in listed
        )
        return [turn for turn in read if turn is not None]

    async def read_entries(self, run_id: str) -> list[Entry]:
        """Return the entries of a turn."""
        return await read_run(self._journal, run_id)

    async def read_end(self, last: LastTurn) -> ThreadEnd:
        """Return what the turn after one that has ended begins with."""
        entries = await self.read_entries(last.info.run_id)
        end = await consult(self._build_end, entries)
        # Here, since the turn that begins with it looks at all messages, and would do so in the event loop.
        await load_messages(end.conversation)
        return end

    async def read_end_of(self, at: int | Turn | None) -> ThreadEnd:
        """Return what a turn that follows a turn, or that of a number, begins with; raise `ConfigError` if it has not ended.

        With `None` it is the last turn that has.
        """
        await self.find_last()
        turns = await consult(lambda: list(self._list_turns()))
        for turn in turns:
            if turn.has_ended and turn.is_meant(at):
                return await self.read_end(turn)
        ended = [turn.name.number for turn in reversed(turns) if turn.has_ended]
        given = at.run_id if isinstance(at, Turn) else at
        raise ConfigError(
            f"at: thread {self.id!r} has no ended turn {'at all' if at is None else given}, only {ended}"
        )

    def _build_end(self, entries: list[Entry]) -> ThreadEnd:
        restore_answer(entries)
        last, started = entries[-1].event, read_start(entries[0].run_id, entries)
        if not isinstance(last, RunFinished):
            raise JournalError(f"run {entries[0].run_id!r} has not ended")
        conversation = self._build_conversation(started, entries)
        if last.answer is None and last.status != "completed":
            note = f"[no answer: {last.stop_reason}]"
            noted = Message("assistant", note, origin="runtime")
            conversation = conversation.add(noted)
        return ThreadEnd(conversation, last.agent or started.agent)

    def _build_conversation(
        self, started: RunStarted, entries: Sequence[Entry]
    ) -> Conversation:
        """Return the conversation with which a turn ended, from that of the turn before if it is known."""
        ends, hash = self._services.turn_ends, entries[-1].hash
        known = ends.get(hash)
        if known is None:
            start = self._open(started)
            ended = build_end(start, entries)
            known = offer_conversation(self._journal, entries[-1], start, ended)
        ends.pop(hash, None)
        ends[hash] = known
        if len(ends) > MAX_KNOWN:
            ends.pop(list(ends)[0], None)  # noqa: RUF015 - other threads may change it meanwhile
        return known

    def _open(self, started: RunStarted) -> Conversation:
        """Return the conversation that a turn began with."""
        follows, ends = started.follows, self._services.turn_ends
        earlier = None if follows is None else ends.pop(follows.hash, None)
        if earlier is None or not is_loaded(earlier):
            return open_conversation(self._journal, started)
        _ = (
            earlier.messages
        )  # put together now, not those of many turns in one recursion
        given = earlier.add(*started.messages)
        return given.with_provenance(started.label, untrusted=started.untrusted)

    async def read_history(self, last: LastTurn) -> Conversation:
        """Return what was said so far, with the words of a turn that has not ended."""
        if last.has_ended:
            return (await self.read_end(last)).conversation
        entries = await self.read_entries(last.info.run_id)
        return open_conversation(self._journal, read_start(last.info.run_id, entries))

    async def is_unowned(self, last: LastTurn) -> bool:
        """Whether a turn that has not ended can be resumed, and no process is at work on it."""
        info = last.info
        if info.status == "released":
            return True
        if info.status == "running":
            watch = get_watch(self._journal, self._services.clock)
            return is_orphaned(info, watch)
        if 0 < info.wake_at <= self._services.clock.wall():
            return True
        return await self._has_decision(info)

    async def _has_decision(self, info: RunInfo) -> bool:
        """Whether a turn that waits was sent a command that it has not received and that it is resumed for."""
        if info.status not in ("waiting", "suspended"):
            return False
        entries = await self.read_entries(info.run_id)
        received = find_last_received(entries)
        sent = await read_inbox(self._journal, info.run_id, received)
        kinds = RESUMING if info.status == "waiting" else ENDING
        return any(command.kind in kinds for command in sent)

    async def send(self, last: LastTurn, text: str) -> int:
        """Send a message to a turn that has not ended; return the number of the command."""
        control = _open_control(self._services, last.info.run_id)
        return await control.message(text, by=self._principal or "")

    async def read_unanswered(self, last: LastTurn) -> list[Command]:
        """Return the messages that were sent to a turn and that no model answered before its end."""
        run_id = last.info.run_id
        sent = await read_inbox(self._journal, run_id)
        messages = [one for one in sent if not one.damage and _is_message(one)]
        if not messages:
            return []
        entries = await self.read_entries(run_id)
        answered, senders = (
            _find_answered(entries),
            _check_senders(self._services, entries),
        )
        return [
            one
            for one in messages
            if one.number not in answered and not senders.find_problem(one)
        ]

    async def read_commands(self, turn: LastTurn) -> tuple[int, ...]:
        """Return the numbers of the messages to the turn before that a turn begins with."""
        run_id = turn.info.run_id
        return read_start(run_id, await self.read_entries(run_id)).commands

    async def asks(self, last: LastTurn) -> bool:
        """Whether a turn waits with a question to the user."""
        if last.info.status != "waiting":
            return False
        entries = await self.read_entries(last.info.run_id)
        return _find_question(entries) is not None

    async def answer(self, last: LastTurn, message: Message) -> bool:
        """Answer the question of a turn that waits; return whether it asks one that has no answer yet.

        Of two that do so at once, the one that claims the turn is received. Raises `RunBusy` for the other.
        """
        run_id, services = last.info.run_id, self._services
        entries = await self.read_entries(run_id)
        async with claim_run(services, run_id, entries, take_over=False) as claimed:
            question = _find_question(claimed.entries)
            is_open = not _has_answer(claimed.commands, claimed.entries)
            if question is not None and is_open:
                control = _open_control(services, run_id)
                untrusted = bool(message.untrusted)
                text = LabelledText(
                    message.content, label=message.label, untrusted=untrusted
                )
                by = self._principal or ""
                await control.answer(text, question=question.key, by=by)
            await claimed.release()
        return question is not None and is_open


def _open_control(services: Services, run_id: str) -> RunControl:
    """Return the control of a turn, whose commands are signed as those of the runtime."""
    return RunControl(
        services.journal, services.redactor, run_id, signer=services.command_signer
    )


def _check_senders(services: Services, entries: Sequence[Entry]) -> SenderCheck:
    """Return what checks who sent the messages of a turn, which it may not have received."""
    started = read_start(entries[0].run_id, entries)
    senders = SenderCheck(entries[0].run_id, services.command_signer)
    senders.starter = started.principal
    return senders


def _find_question(entries: Sequence[Entry]) -> Question | None:
    """Return the first question to the user that a waiting turn asks."""
    asked = (one for one in open_questions(entries) if one.about == "question")
    return next(asked, None)


def _has_answer(commands: Sequence[Command], entries: Sequence[Entry]) -> bool:
    """Whether a run was sent an answer that it has not received yet."""
    received = find_last_received(entries)
    return any(one.kind == ANSWER and one.number > received for one in commands)


def _is_message(command: Command) -> bool:
    return command.kind == STEER and command.body.get("message") is True


def _find_answered(entries: Sequence[Entry]) -> set[int]:
    """Return the numbers of the commands that came with a model call which was answered."""
    replied = {one.key for one in entries if isinstance(one.event, ModelReplied)}
    return {
        number
        for entry in entries
        if isinstance(entry.event, ModelRequested) and entry.key in replied
        for number in entry.event.commands
    }


def _check_tenant(thread: str, last: LastTurn, principal: Principal) -> None:
    """Raise `ConfigError` for a principal of another tenant than that of the thread."""
    if not principal.may_reach(last.info.tags.get(TENANT_TAG, "")):
        raise ConfigError(
            f"id: thread {thread!r} is not of tenant {principal.tenant!r}; "
            "begin the ids of threads with the tenant's name"
        )
