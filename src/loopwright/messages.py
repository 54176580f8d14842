"""Messages of a run: conversations, tool calls, observations and completions."""

import copy
import functools
import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, Self, TypeAlias

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from ._internal import dataclasses
from ._internal.encoder import Encodable as Encodable
from ._internal.encoder import EntryMark as EntryMark
from ._internal.encoder import canonical_json as canonical_json
from ._internal.encoder import hash_arguments as hash_arguments
from ._internal.encoder import hash_each as hash_each
from ._internal.encoder import mark_entries
from ._internal.encoder import mark_entry as mark_entry
from ._internal.issued_values import IssuedByRun as IssuedByRun
from ._internal.usage import Usage as Usage
from .attachments import Attachment
from .errors import ConfigError, PhaseError
from .labels import LABELS, Label, LabelledText, check_label, highest

Json: TypeAlias = JsonValue
JsonObject: TypeAlias = Mapping[str, JsonValue]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
Origin: TypeAlias = Literal["caller", "engine", "model", "tool", "runtime", "operator", "memory", "hook"]  # fmt: skip
ObservationStatus: TypeAlias = Literal[
    "ok", "error", "denied", "rejected", "timed_out", "cancelled", "unknown"
]
UNCERTAIN_STATUSES: tuple[ObservationStatus, ...] = ("unknown", "timed_out", "cancelled")  # fmt: skip
"""Statuses of a call that leave open whether it took effect."""
Effect: TypeAlias = Literal["read", "idempotent", "write", "destructive"]
MAX_GROWTH = 7
"""How many conversations that it grew from a conversation knows, beside the last one."""
_get_attachments: Callable[[object], object] = operator.attrgetter("attachments")
_get_id, _get_call_id, _get_entry = map(operator.attrgetter, ("id", "call.id", "entry"))
ATTACHMENT_SIZE = 6_000  # bytes; about the 1,500 tokens that a large image or a page of a document costs


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A request to run a tool; `id` correlates it with its observation and is filled in if the
    model gave none.

    `form`, `block` and `source` are as in `Reasoning`: what the provider wants back with the call,
    such as a signature.
    """

    name: str
    arguments: JsonObject
    id: str = ""
    form: str = dataclasses.field(default="", repr=False)
    block: JsonObject | None = dataclasses.field(default=None, repr=False)
    source: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class ToolSpec(Encodable):
    """What a model reads about a tool: its name, description and the JSON schema of its arguments."""

    name: str
    description: str
    schema: JsonObject

    @functools.cached_property
    def size(self) -> int:
        """About how many bytes are sent of it."""
        return len(to_json([self.name, self.description, self.schema]))


@dataclasses.dataclass(frozen=True)
class Reasoning:
    """A block of a model's own thinking, as its provider sent it; some want it back unchanged with
    the next request.

    Args:
        text: what it thought, as far as the provider shows it.
        form: the wire form ("thinking", "reasoning_content" …); it is sent back to endpoints of
            that form only.
        block: what the endpoint wants back byte for byte: signatures, encrypted content.
        source: the host, and account or deployment, that it came from; no other one gets it back.
            Equal thoughts may have different sources.
    """

    text: str = ""
    form: str = ""
    block: JsonObject | None = dataclasses.field(default=None, repr=False)
    source: str = dataclasses.field(default="", repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Message(Encodable):
    """One message; `origin` says who wrote it, `calls` belong to the assistant, `call_id` to a
    tool's result.

    `attachments` are images and documents: of a user, before the text, or of a tool's result,
    behind it. `reasoning` is the assistant's thinking. `label` says how sensitive the text is, and
    `untrusted` whether any of it came from outside (where it is `None`, what tools and models wrote
    counts as if it did). Both last as long as the message, and are those of a `LabelledText`.
    Of several user messages with one `slot` a model sees the newest alone, before the newest turn.
    """

    entry: ClassVar[EntryMark | None] = None
    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    origin: Origin = "caller"
    attachments: tuple[Attachment, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    label: Label = dataclasses.field(default="public", compare=False, repr=False)
    untrusted: bool | None = dataclasses.field(default=None, compare=False, repr=False)
    slot: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.label not in LABELS:
            check_label(self.label)
        if self.slot and self.role != "user":
            raise ConfigError(f"slot: is for messages of the user, got role {self.role!r}")  # fmt: skip
        text = self.content
        if isinstance(text, LabelledText):
            untrusted = text.untrusted or self.untrusted
            object.__setattr__(self, "label", highest((self.label, text.label)))
            object.__setattr__(self, "untrusted", untrusted)
            object.__setattr__(self, "content", str(text))

    @functools.cached_property
    def canonical(self) -> bytes:
        """The bytes that fingerprints are made of, as `encode_message` writes them."""
        return encode_message(self)

    @property
    def trusted(self) -> bool:
        """Whether it holds no third-party text, which tools and models may repeat."""
        return self.origin not in ("tool", "model", "memory", "hook")


@dataclasses.dataclass(frozen=True)
class Observation:
    """The outcome of one call.

    Args:
        call: the call.
        status: how it ended.
        content: the text that the model reads, for every status.
        plain: the tool's text without the fence of third-party text, if the model reads it with one.
        fence: puts such a fence around a text.
        attachments: the images and documents that the tool returned; the content names each.
        label: how sensitive the text is; `untrusted`: whether any of it came from outside.
        seconds, cut, failure: as in the event `ToolFinished`.
    """

    entry: ClassVar[EntryMark | None] = None
    call: ToolCall
    status: ObservationStatus
    content: str
    plain: str | None = dataclasses.field(default=None, compare=False, repr=False)
    fence: Callable[[str], str] | None = dataclasses.field(
        default=None, compare=False, repr=False
    )
    attachments: tuple[Attachment, ...] = ()
    label: Label = dataclasses.field(default="public", compare=False, repr=False)
    untrusted: bool = dataclasses.field(default=False, compare=False, repr=False)
    seconds: float = dataclasses.field(default=0.0, compare=False, repr=False)
    cut: int = dataclasses.field(default=0, compare=False, repr=False)
    failure: str = dataclasses.field(default="", compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the tool ran and returned."""
        return self.status == "ok"

    @property
    def text(self) -> str:
        """The tool's text for code that reads it, without the fence of third-party text."""
        return self.content if self.plain is None else self.plain

    def fence_excerpt(self, excerpt: str) -> str:
        """Return a part of the tool's text as a model is to read it, in a prompt that an engine writes."""
        return excerpt if self.fence is None else self.fence(excerpt)


class Proposal(IssuedByRun):
    """What the model (or the engine) wants next: a thought, calls, or an answer.

    `Run.reason` and `Run.propose` make it. `delivered` are messages that the runtime put before the model's reply (nudges,
    guidance); `Conversation.observe` keeps them in the history, and the model's `reasoning` with its text. `sources` are
    what tools of the provider found. `key` is the position of the effect in the run; `issuer` is the scope that made it;
    `author` says whether the model or the engine wrote the calls.
    """

    cure = "use `await run.reason(conversation)`, or `run.propose(*calls)` for calls that the engine writes itself"
    thought: str
    calls: tuple[ToolCall, ...]
    answer: str | None
    delivered: tuple[Message, ...]
    reasoning: tuple[Reasoning, ...] = ()
    sources: tuple["Source", ...] = ()
    key: str
    issuer: object
    entry: EntryMark | None = None
    author: Literal["model", "engine"] = "model"


def is_untrusted(message: Message) -> bool:
    """Return whether a message holds text from outside, as one of a tool or a model may that does not say so."""
    may_be = message.role == "tool" or not message.trusted
    return may_be if message.untrusted is None else message.untrusted


def encode_message(message: Message) -> bytes:
    """Return the bytes of a message that fingerprints are made of; attachments are in it by their hash."""
    calls = [*map(list_call_fields, message.calls)]
    fields: list[object] = [message.role, message.content, calls, message.call_id]
    if message.attachments or message.reasoning:
        fields.append([_identify(sent) for sent in message.attachments])
        fields.append([_list_reasoning_fields(one) for one in message.reasoning])
    if message.slot:
        fields.append({"slot": message.slot})
    try:
        return to_json(fields)
    except PydanticSerializationError as error:
        raise ConfigError(
            f"a message of the {message.role} cannot be written as JSON: {error}"
        ) from None


def list_call_fields(call: ToolCall) -> list[object]:
    """Return the fields of a call that fingerprints are made of; opaque data only where there is some."""
    fields: list[object] = [call.name, dict(call.arguments), call.id]
    return [*fields, call.form, call.source, call.block] if call.form else fields


def _list_reasoning_fields(thought: Reasoning) -> list[object]:
    fields: list[object] = [thought.form, thought.text, thought.block]
    return [*fields, thought.source] if thought.source else fields


def _identify(attachment: Attachment) -> list[str]:
    return [attachment.kind, attachment.media_type, attachment.digest]


def estimate_size(message: Message) -> int:
    """Return about how many bytes of a message are sent, without reasoning, which few want back."""
    size = len(message.canonical)
    size += ATTACHMENT_SIZE * len(message.attachments)
    return size - len(to_json(message.reasoning)) if message.reasoning else size


class Conversation:
    """An immutable list of messages in which every tool call has exactly one result, right after it.

    `digest` is a rolling SHA-256 over the encoded messages, so that two conversations are equal
    when their digests are; `size` is about the number of bytes that are sent, with 6,000 for each
    attachment. A run that is given the conversation starts with its `label`, the highest of its
    messages, and is `untrusted` if one of them is; the conversation of a `Result` has those with
    which the run ended.
    """

    __slots__ = ("_joined", "digest", "grown_from", "has_attachments", "label", "messages", "size", "untrusted")  # fmt: skip
    messages: tuple[Message, ...]
    digest: bytes
    size: int
    label: Label
    untrusted: bool
    has_attachments: bool  # whether one of its messages has some
    grown_from: tuple[tuple[int, bytes], ...]

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        messages = tuple(messages)
        for message in messages:
            _check_message(message)
        self.messages, self.digest, self.size, self.label, self.untrusted = (), b"", 0, "public", False  # fmt: skip
        self.grown_from, self.has_attachments = (), False
        self._joined: dict[object, tuple[int, bytes]] = {}
        grown = self.add(*messages)
        self.messages, self.digest, self.size = grown.messages, grown.digest, grown.size
        self.label, self.untrusted = grown.label, grown.untrusted
        self.has_attachments = grown.has_attachments
        check_call_results(self.messages)

    @classmethod
    def of(
        cls,
        task: str,
        *,
        system: str | None = None,
        attachments: Iterable[Attachment] = (),
    ) -> Self:
        """Return a conversation that opens with `task`, behind a system message if one is given."""
        opening = [Message("system", system)] if system else []
        return cls([*opening, Message("user", task, attachments=tuple(attachments))])

    def add(self, *messages: Message) -> Self:
        """Return the conversation with `messages` at its end."""
        if not messages:
            return self
        digest, size = self.digest, self.size
        label, untrusted = self.label, self.untrusted
        for message in messages:
            digest = hashlib.sha256(digest + message.canonical).digest()
            size += estimate_size(message)
            if message.label != label:
                label = highest((label, message.label))
            untrusted = untrusted or is_untrusted(message)
        grown = object.__new__(type(self))
        grown.digest, grown.size = digest, size
        grown._joined = self._joined.copy()
        begun = (len(self), self.digest)
        grown.grown_from = (*self.grown_from[-MAX_GROWTH:], begun)
        grown.label, grown.untrusted = label, untrusted
        grown._take(self, messages)
        return grown

    def _take(self, other: "Conversation", messages: tuple[Message, ...]) -> None:
        """Take the messages of the conversation that it grows from, and new ones."""
        self.messages = other.messages + messages
        self.has_attachments = other.has_attachments or are_any_attached(messages)

    def with_provenance(self, label: Label, *, untrusted: bool) -> Self:
        """Return the conversation with that label and trust, whatever those of its messages are."""
        if (label, untrusted) == (self.label, self.untrusted):
            return self
        marked = copy.copy(self)
        marked.label, marked.untrusted = label, untrusted
        return marked

    def joined(self, encoder: Callable[[Message], bytes]) -> bytes:
        """Return the encoded messages with commas between; those of the conversation that it grew from are not redone."""
        count, joined = self._joined.get(encoder, (0, b""))
        if count < len(self.messages):
            added = b",".join(
                [message.encoded(encoder) for message in self.messages[count:]]
            )
            joined = joined + b"," + added if count else added
            self._joined[encoder] = (len(self.messages), joined)
        return joined

    def user(
        self,
        text: str,
        *,
        origin: Origin = "engine",
        attachments: Iterable[Attachment] = (),
    ) -> Self:
        """Return the conversation with a user message at its end."""
        asked = Message("user", text, origin=origin, attachments=tuple(attachments))
        return self.add(asked)

    def assistant(self, text: str, *, origin: Origin = "engine") -> Self:
        """Return the conversation with an assistant message at its end.

        What a model wrote has the label and the trust of the conversation that it read.
        """
        read: dict[str, Any] = {"label": self.label, "untrusted": self.untrusted}
        given = read if origin == "model" else {}
        return self.add(Message("assistant", text, origin=origin, **given))

    def with_system(self, text: str) -> Self:
        """Return the conversation with `text` added to its system message, or as one."""
        first = self.messages[0] if self.messages else None
        added = Message("system", text, origin="engine")
        if first is not None and first.role == "system":
            merged = dataclasses.replace(first, content=f"{first.content}\n\n{text}")
            grown = type(self)([merged, *self.messages[1:]])
        else:
            grown = type(self)([added, *self.messages])
        label, untrusted = highest((self.label, added.label)), is_untrusted(added)
        return grown.with_provenance(label, untrusted=self.untrusted or untrusted)

    def observe(
        self, proposal: Proposal, observations: Iterable[Observation] = ()
    ) -> Self:
        """Return the conversation after a proposal and the observations of its calls, in call order."""
        results = tuple(observations)
        if [*map(_get_call_id, results)] != [*map(_get_id, proposal.calls)]:
            raise PhaseError(
                f"{len(proposal.calls)} calls need exactly their own observations, in call order; got {len(results)}: "
                "pass what `await run.act(cleared)` returned"
            )
        text = proposal.thought if proposal.answer is None else proposal.answer
        turn = Message(
            "assistant", text, proposal.calls, origin="model", reasoning=proposal.reasoning,
            label=self.label, untrusted=self.untrusted,
        )  # fmt: skip
        made = (turn, *map(_build_result, results))
        mark_entries(made, (proposal.entry, *map(_get_entry, results)))
        return self.add(*proposal.delivered, *made)

    @property
    def task(self) -> str:
        """The latest user text, or an empty string."""
        return next(
            (m.content for m in reversed(self.messages) if m.role == "user"), ""
        )

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conversation) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Conversation({list(self.messages)!r})"


def are_any_attached(messages: Iterable[Message]) -> bool:
    """Whether any message has an attachment."""
    return any(map(_get_attachments, messages))


def _build_result(observation: Observation) -> Message:
    """Return the message that gives an observation to the model."""
    return Message(
        "tool", observation.content, call_id=observation.call.id, origin="tool",
        attachments=observation.attachments, label=observation.label, untrusted=observation.untrusted,
    )  # fmt: skip


def _check_message(message: object) -> None:
    if not isinstance(message, Message):
        raise ConfigError(
            f'conversation: holds messages, like Message("user", "Hello"), got {message!r:.80}; '
            "Conversation.of(text) makes one of a text"
        )
    if message.role not in ROLES:
        raise ConfigError(
            f"conversation: a message's role is one of {', '.join(ROLES)}, got {message.role!r}"
        )


def check_call_results(messages: Iterable[Message]) -> None:
    """Raise `PhaseError` unless exactly one result follows each call, before other messages."""
    waiting: list[str] = []
    for position, message in enumerate(messages):
        if message.role == "tool":
            if message.call_id not in waiting:
                raise PhaseError(
                    f"message {position} is a result of {message.call_id!r}, which no open call asked for"
                )
            waiting.remove(message.call_id)
        elif waiting:
            raise PhaseError(
                f"message {position} comes before the results of calls {waiting}: add those first"
            )
        else:
            waiting = [call.id for call in message.calls]
    if waiting:
        raise PhaseError(
            f"calls {waiting} at the end have no results: add one for each"
        )


@dataclasses.dataclass(frozen=True)
class Source:
    """A page or file that a reply refers to, found by a tool that the provider ran."""

    url: str
    title: str = ""


@dataclasses.dataclass(frozen=True)
class Completion:
    """One reply of a model.

    At most one of these is set: `calls` (run them), `answer` (the final text), `problem` (why the
    reply cannot be read; it goes back to the model). `text` is the reply as received; `thought` is
    the part of it that is neither a call nor an answer; `reasoning` is the model's thinking outside
    of it. `provider_calls` are the kinds of the tools that the provider ran, one for each use;
    `sources` are what they found and the reply refers to.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    problem: str | None = None
    finish_reason: str = "stop"
    usage: Usage = Usage()
    thought: str = ""
    model: str = ""
    flags: tuple[str, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    provider_calls: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether the limit of output tokens ended the reply, so that it is not complete."""
        return self.finish_reason == "length"
