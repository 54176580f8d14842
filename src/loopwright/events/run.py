"""Events of a run as a whole: it starts, is suspended, resumed and forked, and ends."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

from .._internal import dataclasses
from ..errors import (
    DETAILS,
    LoopwrightError,
    format_error,
    get_error_name,
    rebuild_error,
)
from ..labels import Label
from ..messages import Json, JsonObject, Message, Usage
from ..principals import ApprovalRule, Principal
from .describe import (
    CONTENT,
    PUBLIC,
    STATUS,
    STOP_REASON,
    DescribedEvent,
    Exposure,
    Level,
    drop_defaults,
    format_spending,
    format_value,
    public,
)
from .followups import PlannedFollowUp
from .run_settings import RunSettings

Status: TypeAlias = Literal[
    "completed", "stuck", "limit", "aborted", "waiting", "suspended", "failed"
]
StopReason: TypeAlias = Literal[
    "answered", "repeated_action", "repeated_error", "no_progress", "denied", "max_iterations", "max_llm_calls",
    "max_tool_calls", "max_tokens", "max_cost", "timeout", "aborted", "approval", "question", "provider_error",
    "context_overflow", "invalid_output", "unreadable", "unknown_outcome", "journal_error", "engine_error",
    "provider_unavailable", "sleeping",
]  # fmt: skip

Ending: TypeAlias = Literal["", "left", "died", "lost"]
"""How the work of a run's earlier owner ended; empty where it is not recorded."""
SuspendReason: TypeAlias = Literal[
    "waiting", "cancelled", "diverged", "released", "provider_unavailable", "sleeping"
]


@dataclasses.dataclass(frozen=True)
class ErrorRecord:
    """An error as plain data: the name of its class, its text, and its other attributes (status, limit …).

    `cause` is the Loopwright error that it was raised from, if there is one.
    """

    type: str
    message: str
    details: dict[str, Json] = dataclasses.field(default_factory=dict[str, Json])
    cause: "ErrorRecord | None" = None

    @classmethod
    def of(cls, error: BaseException, causes: int = 3) -> "ErrorRecord":
        """Return the record of an error, with at most `causes` causes, since errors may form a cycle."""
        own = isinstance(error, LoopwrightError)
        names = [name for name in DETAILS if own and hasattr(error, name)]
        details = {name: getattr(error, name) for name in names}
        raised_from = error.__cause__
        cause = None
        if causes and isinstance(raised_from, LoopwrightError):
            cause = cls.of(raised_from, causes - 1)
        return cls(get_error_name(error), format_error(error), details, cause)

    @property
    def code(self) -> str:
        """Return the HTTP status if there was one, else the name of the class: few values, fit for metrics."""
        return str(self.details.get("status") or self.type)

    def summary(self) -> str:
        """Return the error in one line, as Python prints it."""
        return f"{self.type}: {self.message}"

    def restore(self) -> LoopwrightError:
        """Return the error as an exception."""
        error = rebuild_error(self.type, self.message, self.details)
        error.__cause__ = None if self.cause is None else self.cause.restore()
        return error


WAITING_REASONS: Mapping[str, StopReason] = MappingProxyType(
    {
        "approval": "approval", "question": "question", "failure": "question", "doubt": "unknown_outcome",
    }
)  # fmt: skip
"""Why a run waits, by what its first question is about."""
ANSWER_FIELDS = frozenset(("choices", "schema", "problem", "destinations"))
"""Fields of a question that its entry has only where they say something."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A decision that a waiting run needs.

    `about` says what it is about: a call to approve, a call whose outcome is unknown, a call that failed, or a question
    to the user. `key` is its place in the run. An approval is for the arguments with that hash under that version of
    the policy; it can be given until `expires` (wall clock, seconds), 0 for no end.
    The answer to a question to the user is one of `choices` or fits the JSON `schema`, where there are any; `problem` is
    why the last answer to it could not be used. `destinations` are the arguments that decide where a call to approve
    goes, by the tool of the engine that makes it; `None` where the question does not say.
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
    choices: tuple[str, ...] = ()
    schema: JsonObject = dataclasses.field(default_factory=dict[str, Json])
    problem: str = dataclasses.field(default="", compare=False)
    destinations: tuple[str, ...] | None = dataclasses.field(
        default=None, compare=False
    )

    @property
    def id(self) -> str:
        """Return the name of the question in an answer: its key, and of an approval a digest of the arguments."""
        digest = self.arguments_hash[:8]
        return f"{self.key}@{digest}" if digest else self.key

    def list_destinations(self, arguments: Iterable[str]) -> list[str] | None:
        """Return which arguments decide where the approved call goes; `None` where the question does not say.

        Those that a person added do, and those that the call leaves out.
        """
        if self.destinations is None:
            return None
        content = self.arguments.keys() - {*self.destinations}
        given = [name for name in arguments if name not in content]
        return [*dict.fromkeys([*given, *self.destinations])]

    def to_json(self) -> dict[str, Any]:
        """Return its fields, those about its answer only where they say something."""
        stated = drop_defaults(self)
        return {
            name: value
            for name, value in vars(self).items()
            if name in stated or name not in ANSWER_FIELDS
        }


STORED_ALWAYS = ("role", "content", "origin")
"""Fields of a message that its entry has, be they the default or not."""
REVISION = 4
"""The rules by which the phases of a new run work.

4: JSON that fits the output is the answer in place of JSON that did not.
3: a conversation without room is cut in jumps by default, and what is left out can be read again.
2: what engines write for a model has no secrets when it is compared with what was recorded.
1: requests have the schema of `output` from the first on; a promise without a call, and a blank or cut text, is asked
once again.
"""


@dataclasses.dataclass(frozen=True)
class Follows:
    """The conversation of an earlier run that a run continues: as it was when entry `seq` of that run had this `hash`.

    `digest` (hex) and `size` are those of the conversation, `messages` is the number of its messages. `turn` is the number
    of runs that continue each other, up to that one; 0 in entries of early versions.
    """

    run_id: str
    seq: int
    hash: str
    digest: str
    size: int
    messages: int
    turn: int = 0


@dataclasses.dataclass(frozen=True)
class RunStarted(DescribedEvent, heading="engine", level="info"):
    """The first entry of a run: everything that is needed to start its engine again.

    `messages` are those of its task; where it continues the conversation of an earlier run, `follows` says which one,
    and `messages` come after that. `options` holds the engine's options; `opaque` names those that are code or live
    objects and cannot be rebuilt.
    `output` and `deps` say what the caller must pass again to resume the run. The completed calls of a `saga` are
    undone unless the run completes. `version` and `created` (wall clock, seconds) are those of the run's row, so that
    the hash chain covers them. `boundary` delimits text from outside in this run; `label` is that of its task.
    `app_version` is that of the application's code, `Runtime(app_version=...)`; `tags`, `thread` and `agent` are what the
    application said of the run. `journal_id` begins the idempotency keys of its calls. `sampling` is
    what `run(..., sampling=)` was given. `revision` says by which rules its phases work (`REVISION`), so that a run is
    resumed as it was begun. `untrusted` says whether any of what it was given came from outside. A turn of a thread
    begins with the messages that were sent to the turn before by `commands` of these numbers, and that it did not take.
    `after` are the follow-ups that are due when it has ended. `setup` names the tools, the context policy and the store of
    knowledge, and has a hash of the instructions: what differs when the run is resumed is drift. `principal` started
    the run, `approvals` says whose approvals its calls need. `settings` are those that it read. `progress` has what differs
    from the usual rules about loops without progress.
    """

    engine: Annotated[str, public(log="")]
    options: JsonObject
    opaque: tuple[str, ...]
    messages: Annotated[tuple[Message, ...], CONTENT]
    limits: JsonObject
    output: Annotated[str | None, PUBLIC] = None
    deps: bool = False
    saga: bool = False
    version: str = ""
    created: float = 0.0
    boundary: str = ""
    label: Label = "normal"
    app_version: Annotated[str, public("loopwright.app_version")] = ""
    tags: Annotated[dict[str, str], public("loopwright.tags", log="")] = (
        dataclasses.field(default_factory=dict[str, str])
    )
    thread: Annotated[str, public("gen_ai.conversation.id", log="")] = ""
    agent: Annotated[str, public("gen_ai.agent.name", log="")] = ""
    journal_id: str = ""
    sampling: JsonObject = dataclasses.field(default_factory=dict[str, Json])
    revision: int = 0
    untrusted: bool = False
    follows: Follows | None = None
    commands: tuple[int, ...] = ()
    after: tuple[PlannedFollowUp, ...] = ()
    setup: JsonObject = dataclasses.field(default_factory=dict[str, Json])
    principal: Annotated[Principal | None, public(log="")] = None
    approvals: ApprovalRule | None = None
    settings: RunSettings | None = None
    progress: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def to_stored(self) -> Any:
        """Return it without what it and its messages do not say."""
        return {**drop_defaults(self), "messages": compact_messages(self.messages)}

    def summary(self) -> str:
        given = {
            name: value
            for name, value in self.options.items()
            if value not in (None, {}, [])
        }
        options = [f"{name}={format_value(value)}" for name, value in given.items()]
        agent = f"{self.agent}: " if self.agent else ""
        return f"{agent}{self.engine}  {', '.join(options)}".rstrip()

    def lines(self) -> list[tuple[str, str]]:
        instructions = [one for one in self.messages if one.role == "system"]
        asked = [one for one in self.messages if one.role == "user"][-1:]
        attached = [sent for message in asked for sent in message.attachments]
        return [
            (self.heading, self.summary()),
            *(("system", message.content) for message in instructions),
            *(
                ("attached", f"{one.kind} {one.name or one.media_type or one.url}")
                for one in attached
            ),
            *(("task", message.content) for message in asked),
        ]


@dataclasses.dataclass(frozen=True)
class RunResumed(DescribedEvent, heading="resumed", level="info"):
    """A process resumed the run; `app_version` is that of its code.

    `after` is how the work before ended: the run was `left` in order, its process `died`, or the owner `lost` it while
    it may have been alive (a lease that was over); empty in entries of early versions. A worker has the run `alone` if
    earlier processes died at work on it. `agent` is the name of the agent whose run it is. `by` is the name of who asked
    for it, empty if it is not known.
    """

    owner: Annotated[str, PUBLIC]
    engine: Annotated[str, public(log="")] = ""
    app_version: Annotated[str, public("loopwright.app_version")] = ""
    after: Ending = ""
    alone: bool = False
    agent: Annotated[str, public("gen_ai.agent.name", log="")] = ""
    by: Annotated[str, CONTENT] = ""

    def summary(self) -> str:
        asked = f", asked for by {self.by}" if self.by else ""
        return f"by {format_process(self.owner)}{asked}"


@dataclasses.dataclass(frozen=True)
class RunForked(DescribedEvent, heading="forked"):
    """The entries before this one were copied from another run, up to its entry `seq`, whose hash is `head_hash`.

    `seed` is the seed of the run's random numbers and ids: that of the run that was forked first. `version` is that of
    the library that made the fork, `app_version` that of the application; without one the fork keeps the run's. `by` is
    the name of who asked for it, empty if it is not known.
    """

    run_id: str
    seq: int
    head_hash: str
    seed: str
    version: str = ""
    app_version: str = ""
    by: Annotated[str, CONTENT] = ""

    def summary(self) -> str:
        asked = f", asked for by {self.by}" if self.by else ""
        return f"from {self.run_id}, after its entry {self.seq}{asked}"


@dataclasses.dataclass(frozen=True)
class RunSuspended(
    DescribedEvent,
    heading="end",
    level="info",
    derived={"status": Exposure("public", "loopwright.status", metric=True, log="")},
):
    """The run stopped for now and can be resumed.

    It waits for decisions, for its provider or for a time, its host was cancelled, the code that resumed it is not the
    code that wrote it, or its worker released it. `waited` are the seconds before that in which nothing was at work.
    A run that diverged in a worker is `released`: a worker with other code may take it.
    A worker resumes it at `wake_at` (wall clock, seconds); 0 is never.
    """

    reason: Annotated[SuspendReason, STOP_REASON]
    pending: Annotated[tuple[Question, ...], Exposure("public", count=True)] = ()
    waited: float = 0.0
    released: bool = False
    wake_at: Annotated[float, public("loopwright.wake_at")] = 0.0

    def to_stored(self) -> Any:
        """Return it without what its questions do not say of their answers."""
        return {**vars(self), "pending": [one.to_json() for one in self.pending]}

    @property
    def status(self) -> Literal["suspended"]:
        """Return the word that stands in place of a status, which only a finished run has."""
        return "suspended"

    @property
    def level(self) -> Level:
        return "error" if self.reason == "diverged" else "info"

    def summary(self) -> str:
        return f"suspended: {self.reason}"

    def lines(self) -> list[tuple[str, str]]:
        questions = [("question", question.text) for question in self.pending]
        return [*questions, (self.heading, self.summary())]


@dataclasses.dataclass(frozen=True)
class RunParked(DescribedEvent, heading="parked", level="error"):
    """The run is not resumed until a person has it retried.

    `deaths` is the number of processes that died at work on it, one after the other.
    """

    reason: Annotated[str, PUBLIC]
    deaths: int = 0

    @property
    def status(self) -> Literal["parked"]:
        """Return the status in which the run is left."""
        return "parked"

    def summary(self) -> str:
        return self.reason


@dataclasses.dataclass(frozen=True)
class RunRetried(DescribedEvent, heading="retried", level="info"):
    """A person had a parked run, or one that a provider's failure ended, continued.

    The failures at the keys `forgets` count no longer, so that these effects begin again. `by` is who had it continued.
    """

    reason: Annotated[str, CONTENT] = ""
    forgets: tuple[str, ...] = ()
    by: Annotated[str, CONTENT] = ""

    @property
    def status(self) -> Literal["released"]:
        """Return the status in which the run is left."""
        return "released"

    def summary(self) -> str:
        reason = self.reason or "continues"
        return f"{reason} (by {self.by})" if self.by else reason


@dataclasses.dataclass(frozen=True)
class RunFinished(DescribedEvent, heading="end"):
    """The last entry of a run: its result.

    `label` and `untrusted` are those of the run as it ended, with which what follows begins; `label` is empty in
    entries of early versions. Its conversation is the first `kept` messages of the one that it began with, and those that
    it `added`: a text names an entry that a message is made of. Early versions kept all of it in `messages`.
    `answer_key` is the key of the model call whose reply has the answer; then the answer is stored in that reply alone.
    `renderer` is the version of the rules by which messages are made of entries. `agent` is the name of the agent that
    ended it, and that the next turn of its thread begins with. `trimmed` is the number of model calls that were not sent
    all of their conversation.
    """

    status: Annotated[Status, STATUS]
    stop_reason: Annotated[StopReason, STOP_REASON]
    answer: Annotated[str | None, CONTENT]
    output: Json
    error: Annotated[ErrorRecord | None, PUBLIC]
    usage: Annotated[Usage, PUBLIC]
    llm_calls: Annotated[int, PUBLIC]
    tool_calls: Annotated[int, PUBLIC]
    iterations: Annotated[int, public("loopwright.iterations")]
    messages: tuple[Message, ...] = ()
    label: Label | Literal[""] = ""
    untrusted: bool = False
    added: tuple[Message | str, ...] | None = None
    kept: int = 0
    answer_key: str = ""
    renderer: int = 1
    agent: str = ""
    trimmed: Annotated[int, public("loopwright.trimmed")] = 0

    def to_stored(self) -> Any:
        """Return it without what another entry has, or what messages do not say."""
        stored = drop_defaults(self)
        if self.answer_key:
            stored["answer"] = None
        if self.added is not None:
            stored["added"] = compact_messages(self.added)
        stored["usage"] = drop_defaults(self.usage)
        stored["messages"] = compact_messages(self.messages)
        return stored

    @property
    def level(self) -> Level:
        return level_of_status(self.status)

    def summary(self) -> str:
        return f"{self.status}: {self.stop_reason}"

    def lines(self) -> list[tuple[str, str]]:
        output = "" if self.output is None else format_value(self.output)
        error = "" if self.error is None else self.error.summary()
        return [
            ("answer", self.answer or ""),
            ("output", output),
            ("error", error),
            (self.heading, self.summary()),
            ("usage", format_spending(self.usage, self.llm_calls, self.tool_calls)),
        ]


RunEvent: TypeAlias = (
    RunStarted
    | RunResumed
    | RunForked
    | RunSuspended
    | RunParked
    | RunRetried
    | RunFinished
)


def compact_messages(messages: tuple[Message | str, ...]) -> Any:
    """Return messages as plain data, without fields that hold nothing but their defaults."""
    return tuple(map(_compact_message, messages))


def _compact_message(message: Message | str) -> dict[str, Any] | str:
    if isinstance(message, str):
        return message
    return {
        field.name: getattr(message, field.name)
        for field in dataclasses.fields(message)
        if field.name in STORED_ALWAYS or getattr(message, field.name) != field.default
    }


def level_of_status(status: Status) -> Level:
    """Return the level at which the end of a run or of a child run is logged."""
    levels: dict[Status, Level] = {"completed": "info", "failed": "error"}
    return levels.get(status, "warning")


def format_process(owner: str) -> str:
    """Return the process that owns a run (`host|number|start|run` in a journal) in words."""
    host, _, rest = owner.partition("|")
    return f"process {rest.partition('|')[0]} on {host.partition('/')[0]}"
