"""The commands that a run has accepted, and what a person decided by them about its calls."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import cast

from ..._internal import dataclasses
from ...journals.base import Command
from ...messages import JsonObject, Message, hash_arguments
from ...principals import ONE_APPROVAL, Quorum
from .commands import (
    ABORT,
    ANSWER,
    APPROVE,
    DENY,
    GUIDANCE,
    PAUSE,
    RESOLVE,
    STOP,
    UNPAUSE,
    is_known_kind,
)

DECISIONS = (APPROVE, DENY)
ANSWERS = (ANSWER, RESOLVE)
PAUSING = {PAUSE: True, UNPAUSE: False}
"""Whether a run is paused after a command of that kind."""
REVOKING = (DENY, STOP, ABORT)
"""The kinds that may revoke an approval, also where the rest of the command cannot be read."""
REFUSED = "a person refused it"


@dataclasses.dataclass(frozen=True)
class HumanDecision:
    """What a person decided about a call, by which command, and until when that holds.

    `arguments` are those to run the call with, if the person changed them.
    """

    command: Command
    allowed: bool
    until: float
    reason: str = ""
    arguments: JsonObject | None = None


class CommandLog:
    """The accepted commands of one run, in the order in which they were sent."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.last = 0
        """The number of the last command, also of one that was refused."""
        self.stopping = self.aborting = False
        self._pausing = False
        self._last_unreadable = 0
        """The number of the last command that was refused and may have been a revocation."""
        self._guidance: list[Command] = []
        self._decisions: dict[int, Command] = {}
        self._about: dict[tuple[object, ...], Command] = {}
        """The last answer of each kind, and the last decision, by the question that it is about."""
        self._arrived = asyncio.Event()

    def accept(self, command: Command) -> None:
        """Add a command."""
        self.last = command.number
        self.commands.append(command)
        self._pausing = PAUSING.get(command.kind, self._pausing)
        self.aborting |= command.kind == ABORT
        self.stopping |= command.kind in (STOP, ABORT)
        if command.kind in DECISIONS:
            self._decisions[command.number] = command
            self._about[_subject(command)] = command
        elif command.kind in ANSWERS:
            self._about[command.kind, *_subject(command)] = command
        elif command.kind in GUIDANCE:
            self._guidance.append(command)
        self._arrived.set()

    def refuse(self, command: Command) -> None:
        """Note a command that has no effect; it may have been meant to revoke an approval."""
        self.last = command.number
        if command.kind in REVOKING or not is_known_kind(command.kind):
            self._last_unreadable = command.number

    def is_paused(self) -> bool:
        """Whether the run is paused, and was not told to end."""
        return self._pausing and not self.stopping

    async def wait_for_next(self) -> None:
        """Wait until another command is accepted."""
        self._arrived.clear()
        await self._arrived.wait()

    def guidance_after(
        self, number: int, received: Collection[int] = ()
    ) -> tuple[tuple[Message, ...], tuple[int, ...]]:
        """Return the guidance of later commands, as the model reads it, and their numbers; not what was `received`."""
        later = [
            command
            for command in self._guidance
            if command.number > number and command.number not in received
        ]
        return tuple(map(_message, later)), tuple(command.number for command in later)

    def unused(self, kind: str, used: Collection[int]) -> list[Command]:
        """Return the commands of a kind that have not taken effect yet, in order."""
        return [
            command
            for command in self.commands
            if command.kind == kind and command.number not in used
        ]

    def find_answer(self, kind: str, key: str, question: int | None) -> Command | None:
        """Return the last answer to the question that entry `question` asks at a key."""
        return self._about.get((kind, key, question))

    def find_decision(
        self,
        key: str,
        question: int | None,
        hashed: str,
        policy: str,
        holds: float,
        quorum: Quorum = ONE_APPROVAL,
    ) -> HumanDecision | None:
        """Return the last decision about the call that entry `question` asks about at a key.

        It must be about arguments with that hash, be they the call's own or those that the person
        substituted; an approval holds for `holds` seconds, under that policy version alone, and once
        all those of the quorum are there.
        """
        command = self._about.get((key, question))
        if command is None:
            return None
        given = command.body.get("arguments")
        replacement = given if isinstance(given, dict) else None
        is_replaced = replacement is not None and hash_arguments(replacement) == hashed
        is_about_call = is_replaced or command.body.get("arguments_hash") == hashed
        if not is_about_call:
            return None
        if command.kind == DENY:
            return _denial(command)
        has_policy = command.body.get("policy_version") == policy
        if not has_policy or self.may_be_revoked(command.number):
            return None
        approvals = self._approvals_like(command)
        needed = quorum.count_enough([one.body.get("principal") for one in approvals])
        if not needed:
            return None
        until = approvals[needed - 1].at + holds
        arguments = None if is_replaced else replacement
        return HumanDecision(command, True, until, arguments=arguments)

    def find_approvers(self, key: str, question: int | None) -> list[object]:
        """Return who approved the call of a question since it was denied, as their commands say it."""
        last = self._about.get((key, question))
        if last is None or last.kind == DENY:
            return []
        return [one.body.get("principal") for one in self._approvals_like(last)]

    def _approvals_like(self, last: Command) -> list[Command]:
        """Return the approvals of the same call as the last one, the newest first, since a denial."""
        alike: list[Command] = []
        for command in reversed(self._decisions.values()):
            if _subject(command) != _subject(last):
                continue
            if command.kind == DENY or self.may_be_revoked(command.number):
                break
            if _approved_call(command) == _approved_call(last):
                alike.append(command)
        return alike

    def find_grant(
        self,
        tool: str,
        policy: str,
        now: float,
        covers: Callable[[Mapping[str, str], Collection[str]], bool],
        quorum: Quorum = ONE_APPROVAL,
    ) -> HumanDecision | None:
        """Return a person's approval of calls of a tool to destinations, if it holds now under that policy.

        `covers` says whether a call with arguments of these digests had the same destinations, of which some are those by
        its own tool. A later denial of a call of the tool revokes it. One person is enough for the quorum, or none counts.
        """
        for command in reversed(self._decisions.values()):
            if command.body["tool"] != tool:
                continue
            if command.kind == DENY or self.may_be_revoked(command.number):
                return None
            until = _granted_until(command)
            same, declared = map(command.body.get, ("same", "destinations"))
            is_same = isinstance(same, dict) and covers(
                cast("dict[str, str]", same), cast("list[str]", declared or [])
            )
            if not is_same or not quorum.count_enough([command.body.get("principal")]):
                continue
            if now < until and command.body.get("policy_version") == policy:
                return HumanDecision(command, True, until)
        return None

    def find_revocation(
        self, key: str, question: int | None, tool: str, approval: int
    ) -> HumanDecision | None:
        """Return the later denial that revokes the approval by the command of that number.

        That is a denial of this very question or, if all calls of the tool were approved, of any
        of them.
        """
        approved = self._decisions.get(approval)
        if approved is None:
            return None
        asked = (key, question)
        is_grant = _subject(approved) != asked
        for command in self._denials_after(approval):
            is_of_tool = is_grant and command.body["tool"] == tool
            if is_of_tool or _subject(command) == asked:
                return _denial(command)
        return None

    def _denials_after(self, number: int) -> list[Command]:
        later = [known for known in self._decisions.values() if known.number > number]
        return [command for command in later if command.kind == DENY]

    def may_be_revoked(self, approval: int) -> bool:
        """Whether a later command that cannot be read may have revoked that approval."""
        return 0 < approval < self._last_unreadable


def _denial(command: Command) -> HumanDecision:
    reason = command.body.get("reason")
    return HumanDecision(command, False, 0.0, str(reason or REFUSED))


def _approved_call(command: Command) -> tuple[object, ...]:
    """Return what an approval lets run: which arguments, in place of which, under which policy."""
    body = command.body
    given = body.get("arguments")
    replaced = hash_arguments(given) if isinstance(given, dict) else ""
    return body.get("arguments_hash"), replaced, body.get("policy_version")


def _granted_until(command: Command) -> float:
    """Return until when all calls of a tool are approved by a command; 0 if it is about one."""
    seconds = command.body.get("seconds")
    if command.kind != APPROVE or not isinstance(seconds, (int, float)):
        return 0.0
    return command.at + seconds


def _subject(command: Command) -> tuple[object, object]:
    """Return the question that a command is about, by its key and its entry."""
    return command.body.get("key"), command.body.get("question")


def _message(command: Command) -> Message:
    """Return guidance as the model reads it."""
    text = f"{GUIDANCE[command.kind]}\n{command.body.get('text', '')}"
    return Message("user", text, origin="operator")
