"""Events of a run as a whole: it starts, is suspended, resumed and forked, and ends."""

import dataclasses
from typing import Literal, TypeAlias

from ..errors import (
    DETAILS,
    LoopwrightError,
    format_error,
    get_error_name,
    rebuild_error,
)
from ..labels import Label
from ..messages import Json, JsonObject, Message, Usage

Status: TypeAlias = Literal[
    "completed", "stuck", "limit", "aborted", "waiting", "failed"
]
StopReason: TypeAlias = Literal[
    "answered", "repeated_action", "repeated_error", "denied", "max_iterations", "max_llm_calls", "max_tool_calls",
    "max_tokens", "max_cost", "timeout", "aborted", "approval", "question", "provider_error", "context_overflow",
    "invalid_output", "unreadable", "unknown_outcome", "journal_error", "engine_error",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ErrorRecord:
    """An error as plain data: the name of its class, its text, and what else its class says (status, limit …).

    `cause` is the one of ours that it came from, if it has one.
    """

    type: str
    message: str
    details: dict[str, Json] = dataclasses.field(default_factory=dict[str, Json])
    cause: "ErrorRecord | None" = None

    @classmethod
    def of(cls, error: BaseException, causes: int = 3) -> "ErrorRecord":
        """An error as it is recorded, with so many causes at most, since errors may lead to each other."""
        details = {
            name: getattr(error, name)
            for name in DETAILS
            if isinstance(error, LoopwrightError) and hasattr(error, name)
        }
        cause = (
            error.__cause__
            if causes and isinstance(error.__cause__, LoopwrightError)
            else None
        )
        return cls(
            get_error_name(error),
            format_error(error),
            details,
            None if cause is None else cls.of(cause, causes - 1),
        )

    def restore(self) -> LoopwrightError:
        """The error again."""
        error = rebuild_error(self.type, self.message, self.details)
        error.__cause__ = None if self.cause is None else self.cause.restore()
        return error


@dataclasses.dataclass(frozen=True)
class Question:
    """What a waiting run wants decided.

    `about` says what: a call to approve, one of which nobody knows whether it took effect, one that failed, or a
    question to the user. `key` is where in the run it stands. An approval is for the arguments with that hash under
    that version of the policy; `expires` (wall clock, seconds) is when nobody can give it any more, 0 for never.
    """

    key: str
    text: str
    tool: str = ""
    arguments: JsonObject = dataclasses.field(default_factory=dict[str, Json])
    call_id: str = ""
    about: Literal["approval", "doubt", "failure", "question"] = "approval"
    arguments_hash: str = dataclasses.field(default="", compare=False)
    policy_version: str = dataclasses.field(default="", compare=False)
    expires: float = dataclasses.field(default=0.0, compare=False)

    @property
    def id(self) -> str:
        """What names the question in an answer: the key, and of an approval a mark of the arguments that were shown."""
        return (
            f"{self.key}@{self.arguments_hash[:8]}" if self.arguments_hash else self.key
        )


@dataclasses.dataclass(frozen=True)
class RunStarted:
    """The first entry of a run: everything needed to start its engine again.

    `options` holds the engine's options; `opaque` names those that are code or live objects and cannot be rebuilt.
    `output` and `deps` say what the caller must give again when the run is resumed. `saga` marks a run whose completed
    calls are undone unless it completes. `version` and `created` (wall clock, seconds) are those of the run's row, so
    that the chain covers them. `boundary` is what text from outside is fenced with in this run; `label` is that of its
    task.
    """

    engine: str
    options: JsonObject
    opaque: tuple[str, ...]
    messages: tuple[Message, ...]
    limits: JsonObject
    output: str | None = None
    deps: bool = False
    saga: bool = False
    version: str = ""
    created: float = 0.0
    boundary: str = ""
    label: Label = "normal"


@dataclasses.dataclass(frozen=True)
class RunResumed:
    """A process took the run up again."""

    owner: str
    engine: str = ""


@dataclasses.dataclass(frozen=True)
class RunForked:
    """The entries before this one were copied from another run, up to its entry `seq`, whose hash is `head_hash`.

    `seed` is what the run's random numbers and ids are made of: those of the run that was forked first. `version` is
    that of the library that made the fork.
    """

    run_id: str
    seq: int
    head_hash: str
    seed: str
    version: str = ""


@dataclasses.dataclass(frozen=True)
class RunSuspended:
    """The run stopped for now and can be resumed.

    It waits for decisions, its host was cancelled, the code that resumed it is not the code that wrote it, or its
    worker left it to other workers. `waited` are the seconds for which it stood still before that because a person was
    asked, who had not decided yet.
    """

    reason: Literal["waiting", "cancelled", "diverged", "released"]
    pending: tuple[Question, ...] = ()
    waited: float = 0.0


@dataclasses.dataclass(frozen=True)
class RunFinished:
    """The last entry of a run: its result."""

    status: Status
    stop_reason: StopReason
    answer: str | None
    output: Json
    error: ErrorRecord | None
    usage: Usage
    llm_calls: int
    tool_calls: int
    iterations: int
    messages: tuple[Message, ...]


RunEvent: TypeAlias = RunStarted | RunResumed | RunForked | RunSuspended | RunFinished
