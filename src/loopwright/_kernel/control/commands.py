"""The commands that people send to a run: their kinds, and what makes one valid."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeGuard, cast

from pydantic_core import from_json, to_json

from ...clock import MAX_SECONDS
from ...journals.base import Command
from ...labels import LABELS
from ...messages import JsonObject, hash_arguments
from ...principals import read_principal
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
ENDORSE: Final = "endorse"
RESOLVE: Final = "resolve"

ENDING = (ABORT, STOP)
"""The kinds that end a run."""
RESUMING = (ANSWER, APPROVE, DENY, RESOLVE, *ENDING)
"""The kinds for which a waiting run is resumed."""
GUIDANCE = {STEER: GUIDANCE_PREFIX, ADD_CONTEXT: CONTEXT_PREFIX}
"""The kinds that the model reads, with what it reads before the text."""
WITH_ARGUMENTS = (OVERRIDE, APPROVE)
WITHHELD_ARGUMENTS = (
    "its arguments hold a secret, which no journal keeps: put it into deps"
)
Check: TypeAlias = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_filled_text(value: Any) -> TypeGuard[str]:
    """Whether a value is a text with more than spaces."""
    return isinstance(value, str) and bool(value.strip())


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_integer(value)


def _is_time(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= MAX_SECONDS


def _is_duration(value: Any) -> bool:
    return _is_time(value) and value > 0


def _is_arguments(value: Any) -> bool:
    return isinstance(value, dict) and bool(hash_arguments(cast("JsonObject", value)))


def _is_label(value: Any) -> bool:
    return value in LABELS


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_thread(value: Any) -> bool:
    return bool(value == "thread")


def _is_principal(value: Any) -> bool:
    return read_principal(value) is not None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list_of_texts(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    given = cast("list[Any]", value)  # type: ignore[redundant-cast] # for pyright
    return all(map(_is_text, given))


def _is_verdict(value: Any) -> bool:
    return value in ("done", "not_done", "unknown")


_TEXT: Mapping[str, Check] = {"text": is_filled_text}
_QUESTION: Mapping[str, Check] = {"key": _is_text, "question": _is_integer}
_CALL: Mapping[str, Check] = {
    **_QUESTION,
    "tool": _is_text,
    "arguments_hash": _is_text,
    "policy_version": _is_text,
}
# No check accepts `None`, so that a field that is not there fails too.
_REQUIRED: Mapping[str, Mapping[str, Check]] = {
    PAUSE: {},
    UNPAUSE: {},
    STOP: {},
    ABORT: {},
    STEER: _TEXT,
    ADD_CONTEXT: _TEXT,
    FOLLOW_UP: _TEXT,
    OVERRIDE: {"tool": is_filled_text, "arguments": _is_arguments},
    ANSWER: {**_QUESTION, **_TEXT},
    APPROVE: _CALL,
    DENY: _CALL,
    DECLASSIFY: {"label": _is_label},
    ENDORSE: _TEXT,
    RESOLVE: {**_QUESTION, "verdict": _is_verdict},
}
_ALWAYS_OPTIONAL: Mapping[str, Check] = {
    "by": _is_text,
    "principal": _is_principal,
    "signature": _is_object,
}
_OPTIONAL: Mapping[str, Mapping[str, Check]] = {
    STEER: {"message": _is_flag},
    ANSWER: {"label": _is_label, "untrusted": _is_flag},
    APPROVE: {
        "arguments": _is_arguments,
        "seconds": _is_duration,
        "same": _is_object,
        "destinations": _is_list_of_texts,
        "scope": _is_thread,
        "granted": _is_text,
    },
    DENY: {"reason": _is_text, "granted": _is_text},
    DECLASSIFY: {"reason": _is_text, "trusted": _is_flag},
    ENDORSE: {"reason": _is_text},
    RESOLVE: {"result": _is_text},
}


def is_known_kind(kind: str) -> bool:
    """Whether there is a command of that kind."""
    return kind in _REQUIRED


def is_numbered(sent: Command) -> bool:
    """Whether a command has a number, without which a run cannot know whether it received it."""
    return _is_integer(sent.number) and sent.number > 0


def find_problem(command: Command) -> str:
    """Return why a command is invalid, since any process may write to an inbox; else an empty text."""
    required = _REQUIRED.get(command.kind)
    if required is None:
        return "there is no such command"
    if not _is_time(command.at):
        return "the time at which it was sent is not a time"
    body, optional = (
        command.body,
        {**_ALWAYS_OPTIONAL, **_OPTIONAL.get(command.kind, {})},
    )
    present = {name: check for name, check in optional.items() if name in body}
    checks = {**required, **present}
    wrong = [name for name, check in checks.items() if not check(body.get(name))]
    return f"{', '.join(wrong)}: missing, or not what it must be" if wrong else ""


def read_command(sent: Command, redactor: Redactor) -> tuple[Command, str]:
    """Return a command as a run records it, without secrets, and why it is refused, if it is.

    A call with a secret is refused: it would not be made as it was sent.
    """
    at = sent.at if _is_time(sent.at) else 0.0
    kind = redactor.redact_text(_format_kind(sent.kind))
    command = dataclasses.replace(sent, at=at, kind=kind, body={})
    if sent.damage:
        return command, redactor.redact_text(sent.damage)
    if not _is_text(sent.kind):
        return command, "its kind is not a text"
    body = _decode_body(sent)
    clean = redactor.redact_value(body)
    if body is None or not isinstance(clean, dict):
        return command, "its body is not a JSON object"
    command = dataclasses.replace(command, body=clean)
    has_secret = clean.get("arguments") != body.get("arguments")
    if has_secret and sent.kind in WITH_ARGUMENTS:
        return command, WITHHELD_ARGUMENTS
    return command, find_problem(dataclasses.replace(sent, body=clean))


def _decode_body(sent: Command) -> dict[str, Any] | None:
    """Return the body of a command as a journal gives it back; `None` if none can hold it."""
    try:
        body = from_json(to_json(dict(sent.body)), allow_inf_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None  # not JSON, nested too deeply, or half of a surrogate pair
    return cast("dict[str, Any]", body) if isinstance(body, dict) else None


def _format_kind(kind: object) -> str:
    if not isinstance(kind, str):
        return type(kind).__name__
    return kind.encode("utf-8", "replace").decode()
