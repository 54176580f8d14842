"""Events about what a model call sends, and how its messages are named; what of a reply is stored."""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeAlias

from .._internal import dataclasses
from ..messages import Completion, Json, JsonObject, Message
from .describe import CONTENT, PUBLIC, DescribedEvent, Part, drop_defaults

REPEATED = ("answer", "thought")
"""The fields of a reply that often have the same text as the whole of it."""

DIGEST_LENGTH = 16
"""Hex digits by which the messages before the aids of a request are known."""
MAX_AIDS = 16
"""How many places of aids are known in a scope: an engine may ask by turns about some conversations."""


@dataclasses.dataclass(frozen=True)
class Excerpt:
    """A part of an earlier text: characters `start` to `stop` of what a `code` names, by the handle that it was read with.

    The code is the key of an entry of the run, or `@n` for message `n` of those that the run began with.
    """

    handle: str
    code: str
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.handle}, characters {self.start} to {self.stop}"


@dataclasses.dataclass(frozen=True)
class ViewRecord(Part):
    """What of a conversation a model call sent, where something was left out; later calls of its scope only add to it.

    Args:
        length: the number of messages of the conversation; `digest` (hex) is that of these.
        spans: the rows of messages that were sent: the index of the first, and that after the last.
        masked: the indexes of results in whose place the model read how to read them again.
        shortened: indexes of results that were cut to a number of characters, with these numbers.
        notes: the codes of the messages that stand in the place of those left out.
        summary_key: the key of the model call that wrote a summary among them; empty for none.
        summarized: how many messages it stands for.
        behind: the digest (hex) of the messages behind a system message in front, which instructions may change.
    """

    length: int
    digest: str
    spans: tuple[tuple[int, int], ...]
    masked: tuple[int, ...] = ()
    shortened: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()
    summary_key: str = ""
    summarized: int = 0
    behind: str = ""

    def begins(self, messages: Sequence[Message]) -> bool:
        """Whether messages begin with those that it is a view of, but for other instructions in front."""
        begun = messages[: self.length]
        if len(begun) != self.length:
            return False
        if digest_messages(begun) == self.digest:
            return True
        return bool(self.behind) and digest_behind(begun) == self.behind


@dataclasses.dataclass(frozen=True)
class AidsRecord:
    """The messages that stand among those of a conversation without being part of it, such as the pinned block.

    Args:
        place: how many messages are sent before them.
        codes: their codes.
        before: the beginning of the digest (hex) of the messages before them, or of the first behind them without any.
    """

    place: int
    codes: tuple[str, ...]
    before: str = ""


def add_aids(known: Sequence[AidsRecord], record: AidsRecord) -> tuple[AidsRecord, ...]:
    """Return the last different records of the aids of a scope, the newest at the end."""
    others = [one for one in known if one != record]
    return (*others[1 - MAX_AIDS :], record)


@dataclasses.dataclass(frozen=True)
class RequestRecord(Part):
    """What a model call sent to the runtime's provider, so that a journal can give the request back.

    Args:
        base: the number of the entry with an earlier request that this one continues; 0 for none.
        kept: how many messages of that one come first.
        added: the messages after them, each by its code: `K` the reply at that key, `K#i` the result of a call, `K!` the
            text of a reply, `K+i` a message that the runtime delivered, `@i` or `@i-j` messages that the run began with,
            `$n.i` content `i` of entry `n`, `$n` the content of entry `n`; with a `*` behind it the result was masked.
        contents: what no entry before this one holds, each once in a run.
        tools: the code of the tools; empty for none.
        schema: the code of the schema of the reply; empty for none.
        is_free: whether tools may be called.
        sampling: the settings, where they are not those of the intent: with a bound of the reply, or for several replies.
        timeout: seconds that one attempt may take.
        provider_tools: the code of the tools that the provider may run; empty for none.
        max_provider_calls: how often it may run them.
        instructed: how many characters of the first message are the instructions of the agent that asks.
        left_out: the number of messages that the context policy left out.
        masked: the number of those that it masked.
        redacted: whether something secret was sent that no entry holds.
        renderer: the version of the rules by which messages are made of entries.
        view: what of the conversation was sent, where that is not the view of the call before with what is new.
        aids: what was sent beside the conversation, where that is not what the call before sent at the same place.
    """

    base: int = 0
    kept: int = 0
    added: tuple[str, ...] = ()
    contents: tuple[Json, ...] = ()
    tools: str = ""
    schema: str = ""
    is_free: bool = False
    sampling: JsonObject | None = None
    timeout: float | None = None
    provider_tools: str = ""
    max_provider_calls: int | None = None
    instructed: int = 0
    left_out: int = 0
    masked: int = 0
    redacted: bool = False
    renderer: int = 1
    view: ViewRecord | None = None
    aids: AidsRecord | None = None

    @property
    def is_trimmed(self) -> bool:
        """Whether something of the conversation was not sent."""
        return self.left_out > 0 or self.masked > 0

    def describe_trimmed(self) -> str:
        """Return what was not sent, to stand behind a line; empty if all was."""
        counts = {"left out": self.left_out, "masked": self.masked}
        parts = [f"{count} {what}" for what, count in counts.items() if count > 0]
        return f", {' and '.join(parts)}" if parts else ""


@dataclasses.dataclass(frozen=True)
class RequestChanged(DescribedEvent, heading=""):
    """A model call is made with another request, since the endpoint refused the one before."""

    request: RequestRecord

    def to_stored(self) -> Any:
        return drop_defaults(self)


@dataclasses.dataclass(frozen=True)
class ContentStored(DescribedEvent, heading=""):
    """Long tools or a long schema of requests, once in a run.

    Its body holds nothing of the run, so that a journal may keep equal ones of many runs once.
    """

    what: Annotated[str, PUBLIC]
    content: Annotated[Json, CONTENT]


RequestEvent: TypeAlias = RequestChanged | ContentStored


def digest_behind(messages: Sequence[Message]) -> str:
    """Return the digest (hex) of the messages after the leading system message; empty without one."""
    has_system = bool(messages) and messages[0].role == "system"
    return digest_messages(messages[1:]) if has_system else ""


class HeadDigests:
    """How the messages before a place are known in an `AidsRecord`; each digest is computed once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._digests = [b""]

    def find(self, place: int) -> str:
        """Return the beginning of the digest (hex) of the messages before a place; of the first one if none is before it."""
        count = min(place or 1, len(self._messages))
        for message in self._messages[len(self._digests) - 1 : count]:
            self._digests.append(_extend_digest(self._digests[-1], message))
        return self._digests[count].hex()[:DIGEST_LENGTH]


def digest_messages(messages: Iterable[Message]) -> str:
    """Return the digest (hex) that a conversation of these messages has."""
    return functools.reduce(_extend_digest, messages, b"").hex()


def _extend_digest(digest: bytes, message: Message) -> bytes:
    """Return the digest of a conversation with a message more."""
    return hashlib.sha256(digest + message.canonical).digest()


def expand_places(codes: tuple[str, ...]) -> list[str]:
    """Return codes with one for each message: `@1-3` becomes `@1`, `@2` and `@3`."""
    expanded: list[str] = []
    for code in codes:
        first, _, last = code[1:].partition("-")
        if code.startswith("@") and last:
            expanded += [f"@{place}" for place in range(int(first), int(last) + 1)]
        else:
            expanded.append(code)
    return expanded


def shorten_reply(reply: Completion) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a reply that say something, and the names of those left out as they repeat its text."""
    stored, text = drop_defaults(reply), reply.text
    repeats: list[str] = []
    for name in REPEATED:
        if text and stored.get(name) == text:
            repeats.append(name)
            del stored[name]
    if "usage" in stored:
        stored["usage"] = drop_defaults(reply.usage)
    return stored, repeats
