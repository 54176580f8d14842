"""Select what of a conversation a model call sends, by the context policy, and keep it for the next call."""

import dataclasses
from collections.abc import Iterable
from typing import Protocol, TypeVar

from pydantic import BaseModel

from ...errors import ConfigError, PhaseError
from ...events.effect_key import EffectKey
from ...messages import Conversation, Message, estimate_size
from ...providers.context.base import ContextAnswer, ContextPolicy, View
from ...providers.context.tokens import TokenMeter, encode_tool
from ...security.spotlighting import fence
from ...tools.recall import recall
from ...tools.registry import ToolRegistry
from ..session.recent_views import Shown
from ..session.session import Session
from .result_masks import ResultMasks

M = TypeVar("M", bound=BaseModel)


class AskModel(Protocol):
    """Returns what a model answers to a context policy."""

    async def __call__(
        self, prompt: str, into: type[M], *, covers: int = 0
    ) -> ContextAnswer[M]:
        """Return the answer; raise `AskFailed`."""
        ...


@dataclasses.dataclass(frozen=True)
class Room:
    """How many bytes of a conversation one model call may send, and to how many it is cut where it has more."""

    size: int
    target: int

    def subtract(self, size: int) -> "Room":
        """Return what is left beside something of that size."""
        return Room(max(self.size - size, 1), max(self.target - size, 1))


@dataclasses.dataclass(frozen=True)
class CallContext:
    """What the policy is given for one model call (a `ContextView`)."""

    conversation: Conversation
    previous: View | None
    ask: AskModel
    _room: Room
    _meter: TokenMeter
    _masks: ResultMasks

    @property
    def room(self) -> int:
        """How many tokens the messages may have."""
        return self._meter.estimate(self._room.size)

    @property
    def room_bytes(self) -> int:
        """How many bytes that is."""
        return self._room.size

    @property
    def target(self) -> int:
        """How many tokens to leave where the messages do not have room."""
        return self._meter.estimate(self._room.target)

    @property
    def can_recall(self) -> bool:
        """Whether the model can read again what is left out."""
        return self._masks.can_recall

    def count(self, what: View | Iterable[Message]) -> int:
        """Return about how many tokens a view or messages have."""
        size = what.size if isinstance(what, View) else sum(map(estimate_size, what))
        return self._meter.estimate(size)

    def mask(self, index: int) -> Message:
        """Return the message in whose place the model reads what a result was."""
        return self._masks.mask(index)

    def fence(self, text: str) -> str:
        """Return a text from outside as the run delimits it."""
        delimiter = self._masks.session.delimiter
        return fence(text, source="the conversation", delimiter=delimiter)

    def is_failure(self, index: int) -> bool:
        """Whether a message is the result of a call of this run that did not succeed."""
        session, message = self._masks.session, self.conversation.messages[index]
        return message.entry is not None and message.entry[1] in session.failures


class ContextViews:
    """The views for one model call."""

    def __init__(
        self,
        session: Session,
        tools: ToolRegistry,
        policy: ContextPolicy,
        key: str,
        meter: TokenMeter,
        ask: AskModel,
    ) -> None:
        self._session, self._path = session, EffectKey.parse(key).path
        self._policy, self._meter, self._ask = policy, meter, ask
        self.can_recall = tools.get(recall.name) is recall
        """Whether the model can be offered to read again what is left out."""

    async def select(
        self, conversation: Conversation, room: Room, refused: Shown | None = None
    ) -> Shown:
        """Return what to send of a conversation; `refused` is what was too long."""
        views = self._session.views
        masks = ResultMasks(self._session, conversation, self.can_recall)
        earlier = refused or views.find(self._path, conversation)
        if earlier is None:
            earlier = self._restore(conversation, masks)
        previous = None if earlier is None else earlier.view
        if self.can_recall and previous is not None and previous.is_cut:
            room = room.subtract(len(recall.spec.encoded(encode_tool)))
        at = CallContext(conversation, previous, self._ask, room, self._meter, masks)
        view = await self._policy.view(at)
        shown = _show(view, masks, earlier)
        views.keep(self._path, shown)
        return shown

    def _restore(self, conversation: Conversation, masks: ResultMasks) -> Shown | None:
        """Return what the last call of an earlier process showed, if this one continues it."""
        view = self._session.views.restore(self._path, conversation)
        return None if view is None else _show(view, masks, None)


def _show(view: View, masks: ResultMasks, earlier: Shown | None) -> Shown:
    """Return a view with its messages and its size."""
    rendered = _render(view, masks, earlier)
    sized = dataclasses.replace(view, size=rendered.size)
    return Shown(masks.conversation.digest, sized, rendered)


def _render(view: View, masks: ResultMasks, earlier: Shown | None) -> Conversation:
    """Return the messages of a view; those that an earlier one has are not put together again."""
    conversation = masks.conversation
    if view.replacement is not None:
        return view.replacement
    if view.is_whole and view.length == len(conversation):
        return conversation
    if earlier is not None and view == earlier.view.extend(conversation):
        return earlier.conversation.add(*conversation.messages[earlier.view.length :])
    try:
        rendered = Conversation(_list_messages(view, masks))
    except (PhaseError, IndexError) as error:
        raise ConfigError(
            f"context: the policy returned a view without whole turns: {error}; keep a call with its results"
        ) from None
    label, untrusted = conversation.label, conversation.untrusted
    return rendered.with_provenance(label, untrusted=untrusted)


def _list_messages(view: View, masks: ResultMasks) -> list[Message]:
    """Return the messages that are sent, with the notes in the place of the first that are left out."""
    rows = [list(masks.conversation.messages[start:stop]) for start, stop in view.spans]
    changed = {index: masks.mask(index) for index in view.masked}
    for index, length in view.shortened:
        changed[index] = masks.shorten(index, length)
    for (start, stop), row in zip(view.spans, rows, strict=True):
        for index in changed.keys() & range(start, stop):
            row[index - start] = changed[index]
    begins_with_first = bool(view.spans) and view.spans[0][0] == 0
    head = rows[0] if begins_with_first else []
    rest = rows[1:] if begins_with_first else rows
    return [*head, *view.notes, *(message for row in rest for message in row)]
