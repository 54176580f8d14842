"""FittedCall: a model call whose request fits the model's context, and its reply what is left of the run's tokens."""

import asyncio
import functools

from ..._internal import dataclasses
from ..._internal.log import logger
from ..._internal.own_errors import read_own_error
from ...errors import ContextTooLong, ProviderError, format_error
from ...events.effects import AttemptFailed
from ...events.run import ErrorRecord
from ...limits import MIN_OUTPUT, OpenCall
from ...messages import Completion, Conversation, Message
from ...providers.base import Capabilities, CountingProvider, Provider, Request
from ...providers.context.tokens import (
    BYTES_PER_TOKEN,
    UNKNOWN_OUTPUT,
    TokenMeter,
    is_about_tokens,
    measure_request,
)
from ...providers.final_tool import write_schema
from ...providers.unseen_attachments import (
    add_flag,
    describe_unseen,
    is_about_attachments,
    is_about_model,
)
from ...resilience.timeouts import shorter
from ...security.redaction.errors import redact_error
from ...security.redaction.messages import redact_request
from ...tools.recall import recall
from ..session.recent_views import Shown
from ..session.services import Services
from ..session.session import Session
from .context_view import ContextViews, Room
from .model_call import ModelCall
from .sent_request import SentRequest, with_conversation

UNKNOWN_CONTEXT = (
    32_000  # tokens of a conversation, for a model whose context is not known
)
NO_ATTACHMENTS = Capabilities(images=False, documents=False)


class FittedCall:
    """One model call: shortens the conversation, counts or estimates its tokens, bounds the reply.

    Args:
        request: what is asked; its tools are left out of a conversation that neither may nor does call any.
        beside: messages that stand before the newest turn for this call alone.
    """

    _shown: Shown
    """What of the conversation is sent."""

    def __init__(
        self,
        session: Session,
        services: Services,
        key: str,
        provider: Provider,
        request: Request,
        sent: SentRequest,
        views: ContextViews,
        meter: TokenMeter,
        beside: tuple[Message, ...] = (),
    ) -> None:
        self._session, self._services, self._key = session, services, key
        self._sent, self._views, self._beside = sent, views, beside
        self._provider, self._request, self._meter = provider, request, meter
        self._able = provider.capabilities
        self._failed = 0
        """Attempts that failed in this process and were made again with another request."""

    async def complete(self) -> tuple[Completion, ...]:
        """Return as `ModelCall.complete` does."""
        asked = self._request.conversation
        if asked.has_attachments:
            return await self._complete_with_attachments(asked)
        return await self._complete(asked)

    async def _complete_with_attachments(
        self, asked: Conversation
    ) -> tuple[Completion, ...]:
        """Describe the attachments of tools that the model does not take.

        An endpoint that refuses the request for one is asked with descriptions: later too if its model takes none.
        """
        meter = self._meter
        able = NO_ATTACHMENTS if meter.refuses_attachments else self._able
        sent, flag = describe_unseen(asked, able)
        try:
            return _add_flag(await self._complete(sent), flag)
        except ProviderError as error:
            described, flag = describe_unseen(asked, NO_ATTACHMENTS)
            if described == sent or not is_about_attachments(error):
                raise
            self._record_failed(error)
            is_lasting = is_about_model(error)
        replies = await self._complete(described)
        meter.refuses_attachments = is_lasting
        return _add_flag(replies, flag)

    async def _complete(self, asked: Conversation) -> tuple[Completion, ...]:
        """Send what fits; if the model finds it too long, send what an earlier run sent of it, then half, each once."""
        request = await self._fit(self._prepare(asked))
        try:
            return await self._ask(request)
        except ContextTooLong as error:
            continued = await self._continue_earlier(asked, request)
            if continued is None:
                return await self._ask_half(asked, request, error)
            self._record_failed(error)
        try:
            return await self._ask(continued)
        except ContextTooLong as error:
            return await self._ask_half(asked, continued, error)

    async def _continue_earlier(
        self, asked: Conversation, request: Request
    ) -> Request | None:
        """Return a request that begins with what the last one of an earlier run sent, if that left out something.

        A model whose context is smaller than what is known of it found that out then; half of all may be too long still.
        """
        whole = self._shown
        earlier = None if whole.view.is_cut else await self._views.find_earlier(asked)
        if earlier is None or not earlier.view.is_cut:
            return None
        room = request.conversation.size
        continued = await self._select(asked, Room(room, room // 2), earlier)
        if continued.size < room:
            return self._offer_recall(self._prepare(continued))
        self._shown = whole
        return None

    async def _ask_half(
        self, asked: Conversation, request: Request, error: ContextTooLong
    ) -> tuple[Completion, ...]:
        """Send half of what was refused; raise the error where that cannot be shorter."""
        room = request.conversation.size // 2
        smaller = await self._select(asked, Room(room, room), self._shown)
        if smaller == request.conversation:
            raise error
        self._record_failed(error)
        return await self._ask(self._offer_recall(self._prepare(smaller)))

    def _prepare(self, conversation: Conversation) -> Request:
        request = self._request
        if conversation is not request.conversation:
            request = with_conversation(request, conversation)
        if request.tool_choice == "auto" or any(m.calls for m in conversation):
            return request
        return dataclasses.replace(request, tools=())

    async def _fit(self, request: Request) -> Request:
        """Return the request with as much of its conversation as the model reads."""
        limit = self._find_limit(request)
        is_far = 2 * self._meter.estimate(measure_request(request)) <= limit
        whole = self._views.show_whole(request, self._beside) if is_far else None
        if whole is not None:
            self._shown = whole
            return request
        fitted = await self._shorten(request, limit)
        is_far = 2 * self._meter.estimate(measure_request(fitted)) <= limit
        if is_far or self._meter.refuses_counts:
            return fitted
        provider = self._provider
        if not isinstance(provider, CountingProvider):
            return fitted
        await self._count(provider, fitted)
        return await self._shorten(request, limit)

    def _find_limit(self, request: Request) -> int:
        """Return the tokens that a request may have: by the limits, else by what the model's context leaves."""
        limit = self._services.limits.context_tokens
        if limit is not None:
            return limit
        able = self._able
        if able.context_tokens is None:
            return UNKNOWN_CONTEXT
        reply = self._find_bound(request) or 0
        return able.context_tokens - min(reply, able.context_tokens // 3)

    async def _shorten(self, request: Request, limit: int) -> Request:
        asked, services = request.conversation, self._services
        size = self._meter.bytes_for(limit)
        if (
            services.limits.context_tokens is None
        ):  # then the limit is that of all that is sent
            size -= measure_request(request) - asked.size
        # Whole tokens of 4 bytes, as the policies of the first kind count.
        size = max(size // BYTES_PER_TOKEN, 1) * BYTES_PER_TOKEN + BYTES_PER_TOKEN - 1
        fitted = await self._select(asked, Room(size, size // 2))
        return self._offer_recall(with_conversation(request, fitted))

    def _offer_recall(self, request: Request) -> Request:
        """Return a request with the tool that reads again, where something is left out that it may read."""
        if not self._shown.view.is_cut or not self._views.can_recall:
            return request
        if recall.spec in request.tools or request.tool_choice != "auto":
            return request
        return dataclasses.replace(request, tools=(*request.tools, recall.spec))

    async def _select(
        self, asked: Conversation, room: Room, refused: Shown | None = None
    ) -> Conversation:
        """Return what the context policy sends of a conversation."""
        self._shown = await self._views.select(asked, room, self._beside, refused)
        return self._shown.conversation

    async def _count(self, provider: CountingProvider, request: Request) -> None:
        """Learn how many tokens a request has from its provider; without a count, the estimate stays.

        A provider that cannot count is not asked again.
        """
        session, meter = self._session, self._meter
        await session.writer.barrier()
        counted = write_schema(self._provider, self._clean(request))
        timeout = shorter(request.timeout, session.remaining())
        try:
            async with asyncio.timeout(timeout):
                tokens = await provider.count(counted)
            if not isinstance(tokens, int):  # pyright: ignore[reportUnnecessaryIsInstance] - third-party providers
                raise TypeError(f"count() returned {type(tokens).__name__}, not an int")
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - a third-party provider may raise anything
            error = read_own_error(raised)
            meter.refuses_counts = not getattr(error, "retryable", False)
            reason = session.secrets.redactor.redact_text(format_error(error))
            logger().warning("tokens_not_counted", reason=reason)
            return
        meter.learn(counted, tokens)

    async def _ask(self, request: Request) -> tuple[Completion, ...]:
        """Ask with a bound of the reply; an endpoint that takes the request only without one is sent none from then on."""
        in_flight = self._session.budget.in_flight
        opened = OpenCall(self._meter.count_request(request))
        in_flight.append(opened)
        try:
            cap = self._find_cap(request, opened)
            if cap is None:
                return await self._call(request).complete()
            return await self._ask_bounded(request, cap)
        finally:
            in_flight.remove(opened)

    async def _ask_bounded(self, request: Request, cap: int) -> tuple[Completion, ...]:
        sampling = request.sampling.change(max_tokens=cap)
        bounded = dataclasses.replace(request, sampling=sampling)
        try:
            return await self._call(bounded).complete()
        except ProviderError as error:
            if not is_about_tokens(error):
                raise
            self._record_failed(error)
        replies = await self._call(request).complete()
        self._meter.refuse_cap(cap)
        return replies

    def _find_cap(self, request: Request, opened: OpenCall) -> int | None:
        """Return the bound of a reply, where the run has fewer tokens left than it may take; claim what it may take."""
        session, samples = self._session, request.sampling.n or 1
        left = session.budget.share_output(session.replay_end.strands)
        if left is None:
            return None
        left = max(left // samples, MIN_OUTPUT)
        max_length = self._find_bound(request) or UNKNOWN_OUTPUT
        opened.output_tokens = samples * min(left, max_length)
        return left if self._meter.needs_cap(left, max_length) else None

    def _find_bound(self, request: Request) -> int | None:
        """Return how many tokens a reply may have by its settings, else by its model."""
        settings, able = request.sampling, self._able
        return settings.max_tokens or able.max_output_tokens

    def _clean(self, request: Request) -> Request:
        """Return a request without secrets that became known after its messages were recorded."""
        session, own = self._session, self._services.redactor
        if session.is_new and own is session.services.redactor:
            return request
        return redact_request(session.secrets.join_registered(own), request)

    def _call(self, request: Request) -> ModelCall:
        request = self._clean(request)
        secrets, whole = self._session.secrets, request
        if secrets.opaque:
            sent = secrets.restore_opaque_data(request.conversation)
            whole = with_conversation(request, sent)
        announce = functools.partial(
            self._sent.announce, request.conversation, self._shown
        )
        agent, failed = self._services.agent_name, self._failed
        return ModelCall(
            self._session,
            self._key,
            self._provider,
            whole,
            announce,
            self._meter,
            failed,
            agent,
        )

    def _record_failed(self, error: ProviderError) -> None:
        self._failed += 1
        redacted = redact_error(self._session.secrets.redactor, error)
        failed = AttemptFailed(self._failed, ErrorRecord.of(redacted), 0.0)
        self._session.writer.record(self._key, failed)


def _add_flag(replies: tuple[Completion, ...], flag: str) -> tuple[Completion, ...]:
    return tuple(add_flag(reply, flag) for reply in replies)
