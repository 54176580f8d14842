"""The port for context policies: what they see of a conversation, and the view that they return."""

import functools
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from ..._internal import dataclasses
from ...messages import Conversation, Message, estimate_size
from .sliding_context import find_required, group_turns

M = TypeVar("M", bound=BaseModel)
Value = TypeVar("Value", covariant=True)
Span: TypeAlias = tuple[int, int]
"""A row of messages: the index of the first, and that after the last."""


@dataclasses.dataclass(frozen=True)
class View:
    """Which part of a conversation a model call sends.

    Args:
        length: the number of messages of the conversation that it is a view of.
        spans: the rows of messages that are sent, in their order; one that ends with the conversation grows with it.
        masked: the indexes of results in whose place the model reads what they were and how to read them again.
        shortened: indexes of results that are cut to a number of characters, with these numbers.
        notes: messages that stand in the place of the first ones that are left out, such as a summary.
        summary_key: the key of the model call that wrote the summary among the notes; empty for none.
        summarized: the number of messages that the summary stands for, counted from the first.
        size: about how many bytes are sent.
        replacement: a conversation to be sent in place of all that; `None` for none.
    """

    length: int
    spans: tuple[Span, ...]
    _: dataclasses.KW_ONLY
    masked: tuple[int, ...] = ()
    shortened: tuple[tuple[int, int], ...] = ()
    notes: tuple[Message, ...] = ()
    summary_key: str = ""
    summarized: int = 0
    size: int = 0
    replacement: Conversation | None = dataclasses.field(default=None, repr=False)

    @classmethod
    def whole(cls, conversation: Conversation) -> "View":
        """Return the view of all of a conversation."""
        length = len(conversation.messages)
        spans = ((0, length),) if length else ()
        return cls(length, spans, size=conversation.size)

    @functools.cached_property
    def left_out(self) -> int:
        """The number of messages that are not sent."""
        if self.replacement is not None:
            return max(self.length - len(self.replacement), 0)
        left = self.length
        for start, stop in self.spans:
            left -= stop - start
        return left

    @functools.cached_property
    def is_whole(self) -> bool:
        """Whether all of the conversation is sent as it is."""
        changed = self.masked or self.shortened or self.notes
        return self.replacement is None and not changed and self.left_out == 0

    @functools.cached_property
    def is_cut(self) -> bool:
        """Whether something is left out that a policy with views can name."""
        return self.replacement is None and not self.is_whole

    @property
    def indexes(self) -> Iterable[int]:
        """The indexes of the messages that are sent, some of them masked or cut."""
        return (index for start, stop in self.spans for index in range(start, stop))

    def extend(self, conversation: Conversation) -> "View":
        """Return the view of a conversation that grew since: what is new is sent; the same object each time."""
        length = len(conversation)
        if length == self.length:
            return self
        known: tuple[Conversation, View] | None = vars(self).get("_extended")
        if known is not None and known[0] is conversation:
            return known[1]
        new = conversation.messages[self.length :]
        spans = (*self.spans, (self.length, length))
        if self.spans and self.spans[-1][1] == self.length:
            spans = (*self.spans[:-1], (self.spans[-1][0], length))
        size = self.size + sum(map(estimate_size, new))
        extended = dataclasses.replace(self, length=length, spans=spans, size=size)
        vars(self)["_extended"] = (conversation, extended)
        return extended


@dataclasses.dataclass(frozen=True)
class ContextAnswer(Generic[Value]):
    """What a model answered to a policy.

    Args:
        value: the answer, as it was asked for.
        key: the key of the model call.
        covers: the number of messages that the question was about, as it was recorded with it.
    """

    value: Value
    key: str
    covers: int


class ContextView(Protocol):
    """What a policy is given for one model call."""

    @property
    def conversation(self) -> Conversation:
        """All messages, with the instructions of an agent in front."""
        ...

    @property
    def room(self) -> int:
        """How many tokens the messages may have."""
        ...

    @property
    def room_bytes(self) -> int:
        """How many bytes that is, about, in the sizes of conversations."""
        ...

    @property
    def target(self) -> int:
        """How many tokens to leave where the messages do not have room, so that more can follow."""
        ...

    @property
    def previous(self) -> View | None:
        """The view of the last call whose conversation this one continues; `None` without one."""
        ...

    @property
    def can_recall(self) -> bool:
        """Whether the model can read again what is left out, by the tool `recall`."""
        ...

    def count(self, what: View | Iterable[Message]) -> int:
        """Return about how many tokens a view or messages have, by what the model's replies reported."""
        ...

    def mask(self, index: int) -> Message:
        """Return the message in whose place the model reads what the result at an index was."""
        ...

    def fence(self, text: str) -> str:
        """Return a text from outside between lines that say that it is data, as the run delimits it."""
        ...

    def is_failure(self, index: int) -> bool:
        """Whether the message at an index is the result of a call of this run that did not succeed."""
        ...

    async def ask(
        self, prompt: str, into: type[M], *, covers: int = 0
    ) -> ContextAnswer[M]:
        """Return what the model answers to a prompt; raise `AskFailed` where it does not.

        The call is an effect below the model call that the view is for: budgeted, recorded, and not made again when
        the run is resumed. `covers` says how many messages it is about, and is recorded with it.
        """
        ...


class ContextPolicy(Protocol):
    """Selects what of a conversation a model call sends, without separating a call from its result.

    A view always has the system message, the task and the newest turn. One that sends all of a conversation for as long
    as that has room may have an attribute `sends_what_fits` that is true; then it is asked only where it must cut. The
    attribute counts in the class that has `view`: a subclass with a `view` of its own says it again, or is always asked.
    """

    async def view(self, at: ContextView) -> View:
        """Return what to send in about `at.room` tokens."""
        ...


def sends_what_fits(policy: ContextPolicy) -> bool:
    """Whether the class that a policy has its `view` from says that it sends all of a conversation that has room."""
    return _states_what_fits(type(policy)) and bool(getattr(policy, "sends_what_fits"))  # noqa: B009


@functools.lru_cache
def _states_what_fits(policy_type: type[ContextPolicy]) -> bool:
    owner = next((one for one in policy_type.__mro__ if "view" in vars(one)), object)
    return "sends_what_fits" in vars(owner)


class FittingPolicy(Protocol):
    """A policy of the first kind, which shortens a conversation and knows nothing of the call; it is used as it is."""

    def fit(self, conversation: Conversation, tokens: int) -> Conversation:
        """Return what to send in about `tokens` tokens of 4 bytes; the same object if all of it fits."""
        ...


def list_turns(conversation: Conversation) -> list[range]:
    """Return the turns of a conversation as rows of indexes; a call is in one turn with its results."""
    return index_turns(conversation.messages)


def index_turns(messages: Sequence[Message], start: int = 0) -> list[range]:
    """Return the turns of messages as rows of indexes, the first of which is `start`."""
    rows: list[range] = []
    for turn in group_turns(messages):
        rows.append(range(start, start + len(turn)))
        start += len(turn)
    return rows


def list_required(conversation: Conversation) -> set[int]:
    """Return the indexes of what a view always has: system messages, the task and the newest turn."""
    turns = group_turns(conversation.messages)
    rows = list_turns(conversation)
    return {index for number in find_required(turns) for index in rows[number]}
