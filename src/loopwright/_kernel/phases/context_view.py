"""Select what of a conversation a model call sends, by the context policy, and keep it for the next call."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from pydantic import BaseModel

from ..._internal import dataclasses
from ...errors import ConfigError, PhaseError
from ...events.effect_key import EffectKey
from ...events.request_records import DIGEST_LENGTH, HeadDigests
from ...journals.access import consult
from ...messages import Conversation, Message, estimate_size
from ...providers.base import Request
from ...providers.context.base import (
    ContextAnswer,
    ContextPolicy,
    View,
    sends_what_fits,
)
from ...providers.context.sliding_context import find_newest_turn
from ...providers.context.tokens import TokenMeter
from ...security.spotlighting import fence
from ...tools.recall import recall
from ...tools.registry import ToolRegistry
from ..session.earlier_views import read_earlier_requests
from ..session.recent_views import (
    Shown,
    find_earlier_view,
)
from ..session.session import Session
from .pinned_block import write_pinned_block
from .result_masks import ResultMasks

M = TypeVar("M", bound=BaseModel)
_get_slot = operator.attrgetter("slot")
PINNED_SHARE = 16
"""The part of the room that the pinned block may have beside the task: one of so many."""


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
        """Return about how many tokens a view or messages have.

        A view that continues the one before is counted by its bytes, as that one's request was reported, in no time. One
        that is cut otherwise is counted by its messages, since masks have more tokens a byte than what they stand for.
        """
        if not isinstance(what, View):
            return self._meter.count(what)
        if what.replacement is not None or self._continues(what):
            return self._meter.estimate(what.size)
        return self._meter.count(_list_messages(what, self._masks))

    def _continues(self, view: View) -> bool:
        if self.previous is None:
            return view.is_whole
        return view is self.previous.extend(self.conversation)

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
        run_id, code = message.entry or ("", "")
        return run_id == session.run_id and code in session.failures


class ContextViews:
    """The views for one model call."""

    def __init__(
        self,
        session: Session,
        tools: ToolRegistry,
        policy: ContextPolicy,
        key: str,
        meter: TokenMeter,
        ask: Callable[[], AskModel],
    ) -> None:
        self._session, self._path = session, EffectKey.parse(key).path
        self._policy, self._meter, self._ask = policy, meter, ask
        self._tools = tools

    @functools.cached_property
    def can_recall(self) -> bool:
        """Whether the model can be offered to read again what is left out."""
        return self._tools.get(recall.name) is recall

    def show_whole(self, request: Request, beside: tuple[Message, ...]) -> Shown | None:
        """Return all of a request's conversation, which has room, as what is sent; `None` where the policy is to be asked.

        A policy whose `view` says of itself that it `sends_what_fits` is not, unless it cut the conversation before.
        """
        conversation = request.conversation
        has_slots = any(map(_get_slot, conversation.messages))
        if beside or has_slots or self._path in self._session.views.paths:
            return None
        if not sends_what_fits(self._policy):
            return None
        view = View.whole(conversation)
        return Shown(conversation, view, conversation, {}, conversation)

    async def select(
        self,
        conversation: Conversation,
        room: Room,
        beside: tuple[Message, ...] = (),
        refused: Shown | None = None,
    ) -> Shown:
        """Return what to send of a conversation, with messages `beside` it; `refused` is what was too long."""
        await self._session.settle_history()
        masks = ResultMasks(self._session, conversation, self.can_recall)
        earlier = refused or self._session.views.find(self._path, conversation)
        if earlier is None:
            earlier = await self._restore(masks, room)
        slots = _find_slots(conversation, earlier)
        tail = (*slots.values(), *beside)
        pinned: tuple[Message, ...] = ()
        if earlier is not None and (refused or earlier.view.is_cut):
            new = conversation.messages[earlier.view.length :]
            pinned = (self._pin((*earlier.history.messages, *new), room),)
        aids = (*tail, *pinned)
        left = room.subtract(sum(map(estimate_size, aids)))
        if pinned and self.can_recall:
            left = left.subtract(recall.spec.size)
        previous = None if earlier is None else earlier.view
        at = CallContext(conversation, previous, self._ask(), left, self._meter, masks)
        view = await self._policy.view(at)
        has_grown = previous is not None and view == previous.extend(conversation)
        continued = earlier if has_grown else None
        history = _render(view, masks, continued, slots)
        if not view.is_cut:
            aids = tail
        elif not pinned:
            aids = (*tail, self._pin(history.messages, room))
        view = dataclasses.replace(view, size=history.size)
        shown = Shown(conversation, view, history, slots, history)
        if aids:
            place = self._find_place(shown, aids, continued)
            shown = _insert(shown, aids, place, continued)
        self._session.views.keep(self._path, shown)
        return shown

    async def find_earlier(self, conversation: Conversation) -> Shown | None:
        """Return what the last call of an earlier run showed of a conversation, whether or not all of it has room."""
        masks = ResultMasks(self._session, conversation, self.can_recall)
        return await self._restore(masks, Room(0, 0))

    def _find_place(
        self, shown: Shown, aids: tuple[Message, ...], continued: Shown | None
    ) -> int:
        """Return how many messages of a history come before its aids.

        Aids that an earlier request had behind the same messages stay where they stood, so that each request begins with
        what the one before sent, in a resumed run too; others stand before the newest turn, behind the system message.
        """
        messages = shown.history.messages
        known = continued and (continued.place, continued.before)
        start = max(find_newest_turn(messages), _find_task(messages))
        heads = HeadDigests(messages)
        for one in self._session.requests.list_aids(self._path, aids):
            if not _can_stand(messages, one.place, start):
                continue
            is_known = (one.place, one.before) == known
            if is_known or heads.find(one.place) == one.before:
                return one.place
        return start

    def _pin(self, messages: Sequence[Message], room: Room) -> Message:
        limit = room.size // PINNED_SHARE
        return write_pinned_block(self._session, self._path, messages, limit)

    async def _restore(self, masks: ResultMasks, room: Room) -> Shown | None:
        """Return what the last call of an earlier process, or of an earlier run, showed, if this one continues it."""
        conversation, views = masks.conversation, self._session.views
        view = views.restore(self._path, conversation)
        if view is None and conversation.size > room.size:
            given = self._session.requests.get_given()
            if views.earlier is None:
                views.earlier = await consult(read_earlier_requests, given)
            view = find_earlier_view(views.earlier, conversation)
        if view is None:
            return None
        shown = conversation.messages[: view.length]
        slots = {one.slot: one for one in shown if one.slot}
        history = _render(view, masks, None, slots)
        sized = dataclasses.replace(view, size=history.size)
        return Shown(Conversation(), sized, history, slots, history)


def _find_slots(
    conversation: Conversation, earlier: Shown | None
) -> Mapping[str, Message]:
    """Return the newest message of each slot."""
    known: Mapping[str, Message] = {} if earlier is None else earlier.slots
    start = 0 if earlier is None else earlier.view.length
    new = {one.slot: one for one in conversation.messages[start:] if one.slot}
    return {**known, **new} if new else known


def _find_task(messages: Sequence[Message]) -> int:
    """Return the index of the first message behind the system messages in front."""
    systems = itertools.takewhile(lambda one: one.role == "system", messages)
    return len(list(systems))


def _can_stand(messages: Sequence[Message], place: int, newest: int) -> bool:
    """Whether aids before the message at a place part no call from its results, and stand behind the system message."""
    if not _find_task(messages) <= place < newest:
        return place == newest
    return messages[place].role != "tool"


def _insert(
    shown: Shown, aids: tuple[Message, ...], place: int, continued: Shown | None
) -> Shown:
    """Return what is shown with aids before the message of its history at a place."""
    messages = shown.history.messages
    if continued is not None and (continued.aids, continued.place) == (aids, place):
        new = messages[len(continued.history) :]
        sent = continued.conversation.add(*new)
        return dataclasses.replace(
            shown, conversation=sent, aids=aids, place=place, before=continued.before
        )
    head = Conversation()
    if continued is not None and len(continued.history) <= place:
        head = continued.history
    head = head.add(*messages[len(head) : place])
    sent = head.add(*aids, *messages[place:])
    before = head.digest.hex()[:DIGEST_LENGTH] or HeadDigests(messages).find(0)
    return dataclasses.replace(
        shown, conversation=sent, aids=aids, place=place, before=before
    )


def _render(
    view: View,
    masks: ResultMasks,
    earlier: Shown | None,
    slots: Mapping[str, Message],
) -> Conversation:
    """Return the messages of a view; those of an earlier one, which it continues, are not put together again."""
    conversation = masks.conversation
    if view.replacement is not None:
        return _without_slots(view.replacement, slots)
    is_all = view.is_whole and view.length == len(conversation)
    if is_all and not slots:
        return conversation
    if earlier is not None:
        new = conversation.messages[earlier.view.length :]
        return earlier.history.add(*(one for one in new if not one.slot))
    if is_all:
        return _without_slots(conversation, slots)
    try:
        rendered = Conversation(_list_messages(view, masks))
    except (PhaseError, IndexError) as error:
        raise ConfigError(
            f"context: the policy returned a view without whole turns: {error}; keep a call with its results"
        ) from None
    label, untrusted = conversation.label, conversation.untrusted
    rendered = rendered.with_provenance(label, untrusted=untrusted)
    return _without_slots(rendered, slots)


def _without_slots(
    conversation: Conversation, slots: Mapping[str, Message]
) -> Conversation:
    """Return a conversation without the messages that have a slot."""
    if not slots:
        return conversation
    kept = (one for one in conversation.messages if not one.slot)
    return Conversation().add(*kept)


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
    return [*head, *view.notes, *itertools.chain.from_iterable(rest)]
