"""What people tell a run from outside, and what it comes to: the kinds of commands, and all that was said so far."""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Set
from typing import Any, Final, TypeAlias, cast

from pydantic_core import from_json, to_json

from ...clock import MAX_SECONDS
from ...journals.base import Command
from ...labels import LABELS
from ...messages import JsonObject, Message, arguments_hash
from ...security.redaction import Redactor
from ...security.spotlighting import CONTEXT_PREFIX, GUIDANCE_PREFIX

PAUSE: Final = "pause"
UNPAUSE: Final = "resume"  # the stored kind is older than the name
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
GUIDANCE = {STEER: GUIDANCE_PREFIX, ADD_CONTEXT: CONTEXT_PREFIX}
Fits: TypeAlias = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_said(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value <= MAX_SECONDS
    )


def _is_arguments(value: Any) -> bool:
    return isinstance(value, dict) and bool(arguments_hash(cast("JsonObject", value)))


_TEXT: Mapping[str, Fits] = {"text": _is_said}
_ON_A_QUESTION: Mapping[str, Fits] = {"key": _is_text, "question": _is_number}
_ON_A_CALL: Mapping[str, Fits] = {
    **_ON_A_QUESTION,
    **dict.fromkeys(("tool", "arguments_hash", "policy_version"), _is_text),
}
_NEEDS: Mapping[str, Mapping[str, Fits]] = {
    PAUSE: {},
    UNPAUSE: {},
    STOP: {},
    ABORT: {},
    STEER: _TEXT,
    ADD_CONTEXT: _TEXT,
    FOLLOW_UP: _TEXT,
    OVERRIDE: {"tool": _is_said, "arguments": _is_arguments},
    ANSWER: {**_ON_A_QUESTION, **_TEXT},
    APPROVE: _ON_A_CALL,
    DENY: _ON_A_CALL,
    DECLASSIFY: {"label": lambda value: value in LABELS},
    RESOLVE: {
        **_ON_A_QUESTION,
        "verdict": lambda value: value in ("done", "not_done", "unknown"),
    },
}
_MAY_HAVE: Mapping[str, Mapping[str, Fits]] = {
    APPROVE: {
        "arguments": _is_arguments,
        "seconds": lambda value: _is_time(value) and value > 0,
        "by": _is_text,
    },
    DENY: {"reason": _is_text, "by": _is_text},
    DECLASSIFY: {"reason": _is_text},
    RESOLVE: {"result": _is_text},
}


def problem_of(command: Command) -> str:
    """Why a command cannot be obeyed, since any process may write anything into an inbox; empty if it can."""
    needs, body = _NEEDS.get(command.kind), command.body
    if needs is None:
        return "there is no such command"
    if not _is_time(command.at):
        return "the time at which it was sent is none"
    wrong = [
        name for name, fits in needs.items() if name not in body or not fits(body[name])
    ]
    more = _MAY_HAVE.get(command.kind, {})
    wrong += [
        name for name, fits in more.items() if name in body and not fits(body[name])
    ]
    return f"{', '.join(wrong)}: missing, or not what it must be" if wrong else ""


def read_command(sent: Command, redactor: Redactor) -> tuple[Command, str]:
    """A command as a run takes it, without secrets and fit to be recorded; and why it is refused, empty if it is not.

    A call with a secret is refused: it would not be made as it was sent.
    """
    at, body = sent.at if _is_time(sent.at) else 0.0, _plain(sent)
    clean = None if body is None else redactor.redact_value(body)
    heard = dataclasses.replace(
        sent, at=at, kind=redactor.redact_text(_as_text(sent.kind)), body={}
    )
    if sent.damage:
        return heard, redactor.redact_text(sent.damage)
    if not _is_text(sent.kind):
        return heard, "its kind is no text"
    if body is None or not isinstance(clean, dict):
        return heard, "its body is no JSON object"
    if sent.kind in (OVERRIDE, APPROVE) and clean.get("arguments") != body.get(
        "arguments"
    ):
        problem = (
            "its arguments hold a secret, which no journal keeps: put it into deps"
        )
    else:
        problem = problem_of(dataclasses.replace(sent, body=clean))
    return dataclasses.replace(heard, body=clean), problem


def is_numbered(sent: Command) -> bool:
    """Whether a command has a number, without which a run cannot know whether it was heard."""
    return _is_number(sent.number) and sent.number > 0


def _plain(sent: Command) -> dict[str, Any] | None:
    """The body of a command as a journal gives it back, if it can be written into one."""
    try:
        body = from_json(to_json(dict(sent.body)), allow_inf_nan=False)
    except (
        TypeError,
        ValueError,
        RecursionError,
    ):  # half a pair of characters, what is no JSON, too many levels
        return None
    return cast("dict[str, Any]", body) if isinstance(body, dict) else None


def _as_text(kind: object) -> str:
    return (
        kind.encode("utf-8", "replace").decode()
        if isinstance(kind, str)
        else type(kind).__name__
    )


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
        self.last = 0
        """The number of the last command, one that was refused too."""
        self.paused = self.stopping = self.aborting = False
        self._doubted = 0  # leave that was given before this command does not count
        self._bell = asyncio.Event()

    def stands_still(self) -> bool:
        """Whether the run is paused, and not told to end."""
        return self.paused and not self.stopping

    def refuse(self, command: Command) -> None:
        """A command that has come and that nothing is made of; it may have taken back what was allowed before."""
        self.last = command.number
        if command.kind not in _NEEDS or command.kind in (DENY, STOP, ABORT):
            self._doubted = command.number

    def take(self, command: Command) -> None:
        """One more command."""
        self.last = command.number
        self.commands.append(command)
        self.paused = command.kind == PAUSE or (self.paused and command.kind != UNPAUSE)
        self.aborting = self.aborting or command.kind == ABORT
        self.stopping = self.stopping or command.kind in (STOP, ABORT)
        self._bell.set()

    async def more(self) -> None:
        """Wait for the next command."""
        self._bell.clear()
        await self._bell.wait()

    def guidance(self, after: int) -> tuple[tuple[Message, ...], tuple[int, ...]]:
        """What the next model call is to be told, of the commands above a number; and their numbers."""
        new = [
            command
            for command in self.commands
            if command.number > after and command.kind in GUIDANCE
        ]
        return tuple(map(_message, new)), tuple(command.number for command in new)

    def waiting(self, kind: str, taken: Set[int]) -> list[Command]:
        """The commands of a kind that were not taken up yet, in order."""
        return [
            command
            for command in self.commands
            if command.kind == kind and command.number not in taken
        ]

    def next(self, kind: str, taken: Set[int]) -> Command | None:
        """The first command of a kind that was not taken up yet."""
        return next(iter(self.waiting(kind, taken)), None)

    def decision(
        self, key: str, question: int | None, hashed: str, policy: str, holds: float
    ) -> Decided | None:
        """The last word on the question that stands at a key since that entry, about arguments with that hash.

        It is leave under that version of the policy alone. Arguments that a person gave in place of the call's own are
        approved with it.
        """
        for command in reversed(self.commands):
            body = command.body
            if command.kind not in (APPROVE, DENY) or _about(command) != (
                key,
                question,
            ):
                continue
            if command.kind == APPROVE and self.is_doubted(command.number):
                return None
            given = body.get("arguments")
            arguments = given if isinstance(given, dict) else None
            replaced = arguments is not None and arguments_hash(arguments) == hashed
            if not replaced and body.get("arguments_hash") != hashed:
                return None
            if command.kind == DENY:
                return _denied(command)
            until = command.at + holds
            same = body.get("policy_version") == policy
            return (
                Decided(command, True, until, arguments=None if replaced else arguments)
                if same
                else None
            )
        return None

    def is_doubted(self, leave: int) -> bool:
        """Whether leave given by the command with that number may have been taken back, by one that cannot be read."""
        return 0 < leave < self._doubted

    def taken_back(
        self, key: str, question: int | None, tool: str, leave: int
    ) -> Decided | None:
        """The denial by which a person took back the leave that they gave by the command with that number, if any.

        That is one of this very question, or, of leave for a tool for a while, one of any of its calls.
        """
        given = next(
            (_about(command) for command in self.commands if command.number == leave),
            None,
        )
        denials = [
            command
            for command in self.commands
            if command.kind == DENY and command.number > leave
        ]
        for command in denials if given is not None else ():
            if _about(command) == (key, question) or (
                given != (key, question) and command.body["tool"] == tool
            ):
                return _denied(command)
        return None

    def grant(self, tool: str, policy: str, now: float) -> Decided | None:
        """A person's leave for all calls of a tool, if it holds now under that version of the policy.

        A later denial of one of its calls takes it back.
        """
        for command in reversed(self.commands):
            body, seconds = command.body, command.body.get("seconds")
            if (command.kind == DENY and body.get("tool") == tool) or self.is_doubted(
                command.number
            ):
                return None
            if (
                command.kind != APPROVE
                or body.get("tool") != tool
                or not isinstance(seconds, (int, float))
            ):
                continue
            if body.get("policy_version") == policy and now < command.at + seconds:
                return Decided(command, True, command.at + seconds)
        return None

    def answer(self, kind: str, key: str, question: int | None) -> Command | None:
        """The last answer to the question that stands at a key since that entry; one to an earlier one is none."""
        said = (key, question)
        answers = [c for c in self.commands if c.kind == kind and _about(c) == said]
        return answers[-1] if answers and question is not None else None


def _denied(command: Command) -> Decided:
    return Decided(
        command, False, 0.0, str(command.body.get("reason") or "a person refused it")
    )


def _about(command: Command) -> tuple[object, object]:
    return command.body.get("key"), command.body.get("question")


def _message(command: Command) -> Message:
    """A command as the model reads it."""
    return Message(
        "user",
        f"{GUIDANCE[command.kind]}\n{command.body.get('text', '')}",
        origin="operator",
    )
