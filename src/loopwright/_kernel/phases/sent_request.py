"""Record what a model call sends, with its intent, right before it is sent."""

from collections.abc import Container, Mapping
from typing import Any

from ..._internal import dataclasses
from ...events.effects import ModelRequested
from ...events.request_records import RequestChanged
from ...messages import Conversation
from ...providers.base import Request
from ..session.recent_views import Shown
from ..session.session import Session


@dataclasses.dataclass(eq=False)
class SentRequest:
    """The intents of the model calls of one request, recorded with it, and again where another one is made.

    Args:
        session: the run at work.
        intents: what is recorded beside the request, by the keys of the calls.
        known: the keys of those that an earlier process recorded.
    """

    session: Session
    intents: Mapping[str, ModelRequested]
    known: Container[str]

    async def announce(
        self, plain: Conversation, shown: Shown, request: Request
    ) -> None:
        """Record a request, durable on return.

        `plain` is its conversation without what may not be recorded, and `shown` what it is of the engine's.
        """
        clean = with_conversation(request, plain)
        if self.session.records_requests:
            is_redacted = plain is not request.conversation
            for key, intent in self.intents.items():
                self._record(key, intent, clean, shown, is_redacted)
        else:
            self.ensure_recorded()
        await self.session.writer.barrier()
        if self.session.services.request_observers:
            self.session.writer.show_request([*self.intents], clean)

    def _record(
        self,
        key: str,
        intent: ModelRequested,
        request: Request,
        shown: Shown,
        is_redacted: bool,
    ) -> None:
        requests = self.session.requests
        settings: Any = request.sampling.options
        if settings:
            options = settings
            settings = self.session.secrets.redactor.redact_value(options)
            is_redacted |= settings is not options
        record = requests.describe(key, request, shown, redacted=is_redacted)
        if settings != intent.sampling:
            record = dataclasses.replace(record, sampling=settings)
        seq = 0
        event: ModelRequested | RequestChanged = RequestChanged(record)
        if key not in requests.noted:
            event = dataclasses.replace(intent, request=record)
            seq = requests.find_recorded(key, record) if key in self.known else 0
        if not seq:
            seq = self.session.writer.record(key, event).seq
        requests.note(key, seq, request, record)

    def ensure_recorded(self) -> None:
        """Record the intents of calls that ended before anything was sent."""
        noted = self.session.requests.noted
        for key, intent in self.intents.items():
            if key not in noted and key not in self.known:
                self.session.writer.record(key, intent)
                noted.add(key)


def with_conversation(request: Request, conversation: Conversation) -> Request:
    """Return a request about a conversation: the same one, where that is its own."""
    if conversation is request.conversation:
        return request
    return dataclasses.replace(request, conversation=conversation)
