"""What people tell a run from outside, and what it comes to: the kinds of commands, and all that was said so far."""

import asyncio
import dataclasses
from collections.abc import Set
from typing import Final

from .journal import Command
from .messages import JsonObject, Message, arguments_hash

PAUSE: Final = "pause"
RESUME: Final = "resume"
STOP: Final = "stop"
ABORT: Final = "abort"
STEER: Final = "steer"
ADD_CONTEXT: Final = "add_context"
FOLLOW_UP: Final = "follow_up"
OVERRIDE: Final = "override"
ANSWER: Final = "answer"
APPROVE: Final = "approve"
DENY: Final = "deny"
DECLASSIFY: Final = "declassify"
RESOLVE: Final = "resolve"

DECIDING = (ANSWER, APPROVE, DENY, RESOLVE, ABORT, STOP)
"""What gets a waiting run to go on."""
GUIDANCE = {STEER: "Guidance from the operator of this run:", ADD_CONTEXT: "Context from the operator of this run:"}


@dataclasses.dataclass(frozen=True)
class Decided:
    """A person's word on a call: whether it may run, with which arguments, by which command, and until when."""

    command: Command
    allowed: bool
    until: float
    reason: str = ""
    arguments: JsonObject | None = None


class Told:
    """All that a run was told so far, in the order in which it was sent."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.paused = self.stopping = self.aborting = False
        self._bell = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the last command."""
        return self.commands[-1].number if self.commands else 0

    def stands_still(self) -> bool:
        """Whether the run is paused, and not told to end."""
        return self.paused and not self.stopping

    def take(self, command: Command) -> None:
        """One more command."""
        self.commands.append(command)
        self.paused = command.kind == PAUSE or (self.paused and command.kind != RESUME)
        self.stopping = self.stopping or command.kind == STOP
        self.aborting = self.aborting or command.kind == ABORT
        self._bell.set()

    async def more(self) -> None:
        """Wait for the next command."""
        self._bell.clear()
        await self._bell.wait()

    def guidance(self, after: int) -> tuple[tuple[Message, ...], tuple[int, ...]]:
        """What the next model call is to be told, of the commands above a number; and their numbers."""
        new = [command for command in self.commands if command.number > after and command.kind in GUIDANCE]
        return tuple(map(_message, new)), tuple(command.number for command in new)

    def next(self, kind: str, taken: Set[int]) -> Command | None:
        """The first command of a kind that was not taken up yet."""
        return next((c for c in self.commands if c.kind == kind and c.number not in taken), None)

    def decision(self, key: str, hashed: str, policy: str, holds: float) -> Decided | None:
        """The last word on the call at a key that has arguments with that hash, under that version of the policy.

        Arguments that a person gave in place of the call's own are approved with it.
        """
        for command in reversed(self.commands):
            body = command.body
            if command.kind not in (APPROVE, DENY) or body.get("key") != key:
                continue
            given = body.get("arguments")
            arguments = given if isinstance(given, dict) else None
            replaced = arguments is not None and arguments_hash(arguments) == hashed
            if not replaced and body.get("arguments_hash") != hashed:
                return None
            if command.kind == DENY:
                return Decided(command, False, 0.0, str(body.get("reason") or ""))
            until = command.at + holds
            same = body.get("policy_version") == policy
            return Decided(command, True, until, arguments=None if replaced else arguments) if same else None
        return None

    def grant(self, tool: str, policy: str, now: float) -> Decided | None:
        """A person's leave for all calls of a tool, if it holds now under that version of the policy."""
        for command in reversed(self.commands):
            body, seconds = command.body, command.body.get("seconds")
            if command.kind != APPROVE or body.get("tool") != tool or not isinstance(seconds, (int, float)):
                continue
            if body.get("policy_version") == policy and now < command.at + seconds:
                return Decided(command, True, command.at + seconds)
        return None

    def answer(self, kind: str, key: str, question: int | None) -> Command | None:
        """The last answer to the question that stands at a key since that entry; one to an earlier one is none."""
        said = (key, question)
        answers = [c for c in self.commands if c.kind == kind and _about(c) == said]
        return answers[-1] if answers and question is not None else None


def _about(command: Command) -> tuple[object, object]:
    return command.body.get("key"), command.body.get("question")


def _message(command: Command) -> Message:
    """A command as the model reads it."""
    return Message("user", f"{GUIDANCE[command.kind]}\n{command.body.get('text', '')}", origin="operator")
