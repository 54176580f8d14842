"""Select what of a conversation a model call sends, by the context policy, and keep it for the next call."""

import dataclasses
from collections.abc import Iterable
from typing import Protocol, TypeVar

from pydantic import BaseModel

from ...errors import ConfigError, PhaseError
from ...events.effect_key import EffectKey
from ...messages import Conversation, Message, estimate_size
from ...providers.context.base import ContextAnswer, ContextPolicy, View
from ...providers.context.tokens import TokenMeter
from ..session.recent_views import Shown
from ..session.session import Session

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


@dataclasses.dataclass(frozen=True)
class CallContext:
    """What the policy is given for one model call (a `ContextView`)."""

    conversation: Conversation
    previous: View | None
    ask: AskModel
    _room: Room
    _meter: TokenMeter

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

    def count(self, what: View | Iterable[Message]) -> int:
        """Return about how many tokens a view or messages have."""
        size = what.size if isinstance(what, View) else sum(map(estimate_size, what))
        return self._meter.estimate(size)


class ContextViews:
    """The views for one model call."""

    def __init__(
        self,
        session: Session,
        policy: ContextPolicy,
        key: str,
        meter: TokenMeter,
        ask: AskModel,
    ) -> None:
        self._views, self._path = session.views, EffectKey.parse(key).path
        self._policy, self._meter, self._ask = policy, meter, ask

    async def select(
        self, conversation: Conversation, room: Room, refused: Shown | None = None
    ) -> Shown:
        """Return what to send of a conversation; `refused` is what was too long."""
        earlier = refused or self._views.find(self._path, conversation)
        previous = None if earlier is None else earlier.view
        if previous is None:
            previous = self._views.restore(self._path, conversation)
        at = CallContext(conversation, previous, self._ask, room, self._meter)
        view = await self._policy.view(at)
        shown = Shown(conversation.digest, view, _render(view, conversation, earlier))
        self._views.keep(self._path, shown)
        return shown


def _render(
    view: View, conversation: Conversation, earlier: Shown | None
) -> Conversation:
    """Return the messages of a view; those that an earlier one has are not put together again."""
    if view.replacement is not None:
        return view.replacement
    if view.is_whole:
        return conversation
    if earlier is not None and view == earlier.view.extend(conversation):
        return earlier.conversation.add(*conversation.messages[earlier.view.length :])
    try:
        rendered = Conversation(_list_messages(view, conversation))
    except (PhaseError, IndexError) as error:
        raise ConfigError(
            f"context: the policy returned a view without whole turns: {error}; keep a call with its results"
        ) from None
    label, untrusted = conversation.label, conversation.untrusted
    return rendered.with_provenance(label, untrusted=untrusted)


def _list_messages(view: View, conversation: Conversation) -> list[Message]:
    """Return the messages that are sent, with the notes in the place of the first that are left out."""
    messages = conversation.messages
    rows = [messages[start:stop] for start, stop in view.spans]
    begins_with_first = bool(view.spans) and view.spans[0][0] == 0
    head = rows[0] if begins_with_first else ()
    rest = rows[1:] if begins_with_first else rows
    return [*head, *view.notes, *(message for row in rest for message in row)]
