"""Inference: one model effect from its key to its reply: replay, limits, context, intent, call, outcome."""

import functools
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from pydantic_core import PydanticSerializationError

from ..._internal import dataclasses
from ...errors import ConfigError, JournalError, LimitReached, ProviderError
from ...events.effect_key import EffectKey, call_key, is_context
from ...events.effects import (
    AttemptFailed,
    DriftNoticed,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
)
from ...events.run import ErrorRecord
from ...journals.recorded_messages import delivered_code
from ...labels import highest
from ...messages import Completion, Conversation, JsonObject, Message, mark_entry
from ...providers.base import (
    Provider,
    Request,
    Sampling,
    SamplingProvider,
)
from ...providers.context.choice import DEFAULT_POLICY, EARLIER_DEFAULT
from ...providers.context.tokens import is_about_samples
from ...providers.provider_tools import ProviderTool
from ...providers.settings import SAMPLES_HINT
from ...security.redaction.errors import redact_error
from ...security.redaction.messages import redact_completion
from ..durability.description import QuestionDescriber
from ..durability.flow_record import QUARANTINED
from ..durability.history import ContinuedConversation, load_messages
from ..session.scope import EngineUsage
from ..session.services import Services
from ..session.session import Session
from .call_setup import (
    clean_settings,
    list_limits,
    list_settings,
    select_specs,
    shorten,
    without_surrogates,
)
from .context_view import AskModel, ContextViews
from .fingerprints import (
    are_same,
    find_recorded,
    fingerprint_question,
    has_changed,
    restate,
)
from .fitted_call import FittedCall
from .knowledge import NOTHING, Recalled, recall
from .offers import Offers
from .question import Asked as Asked
from .question import Begun as Begun
from .question import Question as Question
from .question import Reply as Reply
from .sent_request import SentRequest

SettleForContext: TypeAlias = Callable[[str, Question, int], Awaitable[Reply]]
"""Returns the reply to a question of the context policy about so many messages, at a key."""


class Inference:
    """Makes the model effects of one scope."""

    def __init__(
        self,
        session: Session,
        services: Services,
        sampling: Sampling,
        offers: Offers,
        usage: EngineUsage,
        questions: Callable[[SettleForContext, str, Provider], AskModel],
    ) -> None:
        self._session, self._services, self._usage = session, services, usage
        self._questions = questions
        """Returns what asks a model for the context policy, below the call at a key."""
        chosen = (
            (session.services.provider, session.sampling),
            (services.provider, sampling),
        )
        self._settings = [
            (model, given.require()) for model, given in chosen if given.options
        ]
        """The settings of the run, then of the engine, with the model that they are for; a person chose them."""
        self._offers = offers
        self._describer = QuestionDescriber(is_new=session.is_new)

    async def settle(
        self,
        key: str,
        question: Question,
        delivered: tuple[Message, ...],
        iteration: int,
        commands: tuple[int, ...] = (),
    ) -> Reply:
        """Return the reply to a question: from the journal if it is there, else from the model.

        `commands` are the numbers of those whose texts are among `delivered`.
        """
        question = self.clean(key, self.apply_sampling(question))
        if self._session.replay.effects.outcome(key) is not None:
            return self.replay(key, question)
        asked = Asked(question, delivered, iteration, commands)
        [reply] = await self.ask(await self.begin([key], asked))
        return reply

    async def settle_for_context(
        self, key: str, question: Question, covers: int
    ) -> Reply:
        """Return the reply to a question of the context policy: the one recorded at its key, whatever was asked then.

        What a policy wants to know hangs on how many tokens a process has learnt that a text has.
        """
        effects = self._session.replay.effects
        intent, outcome = effects.intent(key), effects.outcome(key)
        if isinstance(outcome, ModelFailed):
            raise outcome.error.restore()
        if isinstance(outcome, ModelReplied) and isinstance(intent, ModelRequested):
            return self._reply(key, outcome.completion, intent)
        question = self.apply_sampling(question)
        begun = await self.begin([key], Asked(question, (), 0, (), covers))
        [reply] = await self.ask(begun)
        return reply

    async def begin(self, keys: Sequence[str], asked: Asked) -> Begun:
        """Return model calls with their intents, and their places in the budget; raise a refusal."""
        session, question = self._session, asked.question
        for key in keys:
            session.signals.check_gap(key, question.verb)
            session.signals.check_intent(key, ModelRequested, question.verb)
        await session.replay_end.reach(keys[0])
        session.signals.check(begun=True)
        await self._load(question.conversation)
        offers: tuple[ProviderTool, ...] = ()
        if question.tools and self._services.tools.provider_tools:
            offers = await self._offers.choose(keys[0], question.provider)
        known, new = dict[str, ModelRequested](), list[str]()
        for key in keys:
            intent = session.replay.effects.intent(key)
            if isinstance(intent, ModelRequested):
                known[key] = intent
            else:
                new.append(key)
        changed = [key for key in known if has_changed(question, known[key])]
        redactor = session.secrets.redactor
        intents = {key: restate(redactor, question, known[key]) for key in known}
        same = {key for key in known if are_same(intents[key], known[key])}
        if new or changed:
            recalled = await self._recall(question)
            intent = self._request(
                question, asked.delivered, asked.iteration, asked.commands, recalled
            )
            if asked.covers:
                intent = dataclasses.replace(intent, covers=asked.covers)
            seconds = self._open(new, changed, question, intent)
            intents |= dict.fromkeys((*new, *changed), intent)
        else:
            seconds = session.active.seconds()
        recorded = frozenset(same.difference(changed))
        for key in keys:
            self._mark(key, intents[key])
        ordered = dict(zip(keys, map(intents.__getitem__, keys), strict=True))
        return Begun(ordered, question, seconds, offers, recorded)

    def _mark(self, key: str, intent: ModelRequested) -> None:
        """Name the messages that are delivered by their entry from now on."""
        for index, message in enumerate(intent.delivered):
            code = delivered_code(key, index)
            mark_entry(message, (self._session.run_id, code))

    def clean(self, key: str, question: Question) -> Question:
        """Return a question without secrets; earlier runs were asked what their engines wrote."""
        session = self._session
        if session.revision < 2:
            return question
        path, own = EffectKey.parse(key).path, self._services.redactor
        clean = session.prompts.clean(path, question.conversation, own)
        if clean is question.conversation or self._is_recorded(key, question):
            return question  # or what became a secret after it was recorded as it was
        asked = dataclasses.replace(question, conversation=clean)
        if self._is_recorded(key, asked) is not False:
            return asked
        is_recorded = functools.partial(self._is_recorded, key)
        return find_recorded(question, clean, is_recorded) or asked

    def _reply(self, key: str, completion: Completion, intent: ModelRequested) -> Reply:
        """Return a reply that is recorded, whose messages are known by their entries from now on."""
        delivered = intent.delivered
        if completion.answer:
            self._session.answers.setdefault(completion.answer, key)
        # Knowledge, and what hooks said, was for this call alone, and does not stay in the conversation.
        kept = tuple(itertools.filterfalse(_is_for_one_call, delivered))
        return Reply(key, completion, kept, intent.commands)

    async def _recall(self, question: Question) -> Recalled:
        """Return what the store of knowledge, if there is one, has for a new question."""
        knowledge, asked = self._services.knowledge, question.conversation
        if knowledge is None:
            return NOTHING
        verb, purpose = question.verb, question.purpose
        return await recall(self._session, knowledge, verb, purpose, asked)

    async def _load(self, conversation: Conversation) -> None:
        """Read the messages of the runs that this one continues; a live call needs them."""
        if not isinstance(conversation, ContinuedConversation):
            return
        if conversation.is_loaded:
            return
        try:
            await load_messages(conversation)
        except JournalError as error:
            raise self._session.writer.fail(error) from error

    def was_asked(self, key: str, question: Question) -> bool | None:
        """Whether a question is the one that the journal holds at a key; `None` if it holds none there."""
        return self._is_recorded(key, self.clean(key, question))

    def _is_recorded(self, key: str, question: Question) -> bool | None:
        intent = self._session.replay.effects.intent(key)
        if not isinstance(intent, ModelRequested):
            return None
        return fingerprint_question(question, intent.delivered) == intent.fingerprint

    def _request(
        self,
        question: Question,
        delivered: tuple[Message, ...],
        iteration: int,
        commands: tuple[int, ...],
        recalled: Recalled,
    ) -> ModelRequested:
        """Return the intent of a model call."""
        provider = question.provider
        label, untrusted = recalled.label, recalled.untrusted
        if question.purpose == QUARANTINED:  # what it reads comes in by its answer
            label = highest((label, question.conversation.label))
            untrusted |= question.conversation.untrusted
        delivered = (*delivered, *recalled.messages)
        for message in delivered:
            if message.origin == "operator":
                found = self._session.sensitivity.classify(message.content)
                label = highest((label, found))
        settings: JsonObject = question.sampling.options
        if settings:
            settings = clean_settings(settings, self._session.secrets.redactor)
        return ModelRequested(
            question.verb, fingerprint_question(question, delivered), self._setup(question), iteration, delivered,
            provider.name, provider.model, settings, question.purpose, commands, label,
            self._describe(question), untrusted,
        )  # fmt: skip

    def _describe(self, question: Question) -> str:
        """Return a question in words, for people who read that code and journal differ."""
        redactor = self._session.secrets.redactor
        verb, into = question.verb, question.into
        return self._describer.describe(verb, into, question.conversation, redactor)

    def _open(
        self,
        new: list[str],
        changed: list[str],
        question: Question,
        intent: ModelRequested,
    ) -> float:
        """Take places in the budget for the new intents, which are recorded with what is sent.

        Return the active seconds so far.
        """
        session, budget = self._session, self._session.budget
        keys, seconds = [*new, *changed], session.active.seconds()
        try:
            session.check_time(seconds)
            if new and not question.reserved:
                budget.check(len(new))
        except LimitReached as error:
            raise session.refuse(keys[0], error, question.verb) from None
        budget.llm_calls += len(new)
        if intent.untrusted or intent.label != "public":
            session.sensitivity.observe(intent.label, intent.untrusted, keys[0])
        return seconds

    async def ask(self, begun: Begun) -> list[Reply]:
        """Ask the model by one request; record its replies, or its failure at each key.

        Fewer replies than keys belong to the first ones; none where the endpoint refused to give several.
        """
        session, question, intents = self._session, begun.question, begun.intents
        keys, before = [*intents], begun.seconds
        delivered = intents[keys[0]].delivered
        asked, beside = question.conversation, tuple[Message, ...]()
        if delivered or self._usage.instructed.text:
            asked, beside = self._extend(asked, delivered)
        sent = SentRequest(session, intents, begun.known)
        try:
            try:
                completions = await self._call(begun, asked, sent, beside).complete()
            except BaseException:
                sent.ensure_recorded()
                raise
        except LimitReached as error:
            raise session.refuse(keys[0], error, question.verb) from None
        except ProviderError as error:
            redacted = redact_error(session.secrets.redactor, error)
            if len(keys) > 1 and is_about_samples(error):
                self._note_refusal(keys[0], question, redacted)
                return []
            self._record_failure(keys, redacted, before)
            if redacted is error:
                raise
            raise redacted from None
        seconds = round(session.active.seconds() - before, 6)
        waited = session.active.take_waited()
        replies: list[Reply] = []
        for key, completion in zip(keys, completions, strict=False):
            session.budget.usage += completion.usage
            session.budget.tool_calls += len(completion.provider_calls)
            recorded = self._record_reply(key, completion, seconds, waited)
            waited = 0.0
            replies.append(self._reply(key, recorded, intents[key]))
        return replies

    def _extend(
        self, asked: Conversation, delivered: tuple[Message, ...]
    ) -> tuple[Conversation, tuple[Message, ...]]:
        """Return a conversation with instructions and what is delivered, and what of that is for this call alone.

        The latter stands before the newest turn, and later calls do not continue it.
        """
        beside: tuple[Message, ...] = ()
        if self._session.revision > 2:
            beside = tuple(filter(_is_knowledge, delivered))
        asked = asked.add(*itertools.filterfalse(beside.__contains__, delivered))
        instructed = self._usage.instructed
        return (instructed.lead(asked) if instructed.text else asked), beside

    def _record_failure(
        self, keys: list[str], error: ProviderError, before: float
    ) -> None:
        session = self._session
        seconds = round(session.active.seconds() - before, 6)
        failed = ModelFailed(
            ErrorRecord.of(error), seconds, session.active.take_waited()
        )
        for key in keys:
            session.writer.record(key, failed)

    def _note_refusal(self, key: str, question: Question, error: ProviderError) -> None:
        """Record that an endpoint refused to give several replies; it is not asked for them again."""
        self._services.token_meter(question.provider).refuses_samples = True
        failed = AttemptFailed(1, ErrorRecord.of(error), 0.0)
        self._session.writer.record(key, failed)

    def max_samples(self, provider: Provider) -> int:
        """Return how many replies one request to a provider can bring."""
        meter = self._services.token_meter(provider)
        # Most have no such method, and Python 3.11 takes 45 µs to compare with a protocol.
        is_able = hasattr(provider, "sample") and isinstance(provider, SamplingProvider)
        if meter.refuses_samples or not is_able:
            return 1
        return provider.capabilities.max_samples

    def _call(
        self,
        begun: Begun,
        asked: Conversation,
        sent: SentRequest,
        beside: tuple[Message, ...],
    ) -> FittedCall:
        question, key = begun.question, next(iter(begun.intents))
        provider, policy = question.provider, self._services.context
        is_early = self._session.revision < 3 and policy is DEFAULT_POLICY
        # What a policy asks itself is cut without asking.
        if is_early or is_context(key):
            policy = EARLIER_DEFAULT
        meter = self._services.token_meter(provider)
        ask = functools.partial(self._questions, self.settle_for_context, key, provider)
        views = ContextViews(
            self._session, self._services.tools, policy, key, meter, ask
        )
        request = self._build_request(begun, asked, key)
        return FittedCall(
            self._session, self._services, key, provider, request, sent, views, meter, beside
        )  # fmt: skip

    def _build_request(self, begun: Begun, asked: Conversation, key: str) -> Request:
        """Return what is asked, about the conversation of the question and what is delivered with it."""
        question, sampling = begun.question, begun.question.sampling
        if len(begun.intents) > 1:
            sampling = sampling.change(n=len(begun.intents))
        specs = self._services.tools.specs
        if question.offered is not None:
            specs = select_specs(specs, question.offered)
        return Request(
            asked,
            specs,
            "auto" if question.tools else "none",
            sampling,
            question.schema,
            as_text=question.verb == "ask",
            timeout=self._services.limits.model_timeout,
            provider_tools=begun.offers,
            max_provider_calls=self._session.budget.tool_calls_left,
            system=self._usage.instructed.text,
            label=self._session.sensitivity.at(key)[0],
        )

    def _record_reply(
        self, key: str, completion: Completion, seconds: float, waited: float
    ) -> Completion:
        """Record a reply without its secrets; those of its calls are kept for the tools of this process."""
        session = self._session
        if completion.provider_calls:
            session.sensitivity.observe("public", untrusted=True, key=key)
        redacted = redact_completion(session.secrets.redactor, completion)
        for number, arguments in redacted.originals.items():
            call = dataclasses.replace(completion.calls[number], arguments=arguments)
            session.secrets.keep(call_key(key, number), call)
        reply, withheld = redacted.completion, tuple(redacted.originals)
        try:
            session.writer.record(key, ModelReplied(reply, seconds, withheld, waited))
        except PydanticSerializationError:  # lone surrogates: not Unicode text
            reply = without_surrogates(reply)
            session.writer.record(key, ModelReplied(reply, seconds, withheld, waited))
        return reply

    def replay(self, key: str, question: Question) -> Reply:
        """Return the recorded reply, or raise the recorded error, once the question agrees."""
        session, effects = self._session, self._session.replay.effects
        intent, outcome = effects.intent(key), effects.outcome(key)
        if isinstance(outcome, LimitHit):
            raise session.recorded_refusal(key, outcome)
        if not isinstance(outcome, (ModelReplied, ModelFailed)):
            raise session.signals.diverge_from(key, self._describe(question))
        if not isinstance(intent, ModelRequested) or has_changed(question, intent):
            raise session.signals.diverge_from(key, self._describe(question))
        self._mark(key, intent)
        session.replay.effects.agree(key)
        setup = self._setup(question)
        if setup != intent.setup and not session.drifted:
            session.drifted = True
            drift = DriftNoticed("setup", intent.setup, setup)
            session.writer.record_after_replay(key, drift)
        if isinstance(outcome, ModelFailed):
            raise outcome.error.restore()
        return self._reply(key, outcome.completion, intent)

    def apply_sampling(self, question: Question) -> Question:
        """Return a question with the settings of the run, then of the engine, where it leaves them open."""
        provider, merged = question.provider, question.sampling
        for model, given in self._settings:
            if provider is model:
                merged = given.override(merged)
        if merged.n is not None:
            raise ConfigError(f"{SAMPLES_HINT}; got {merged.n}")
        if merged is question.sampling:
            return question
        return dataclasses.replace(question, sampling=merged)

    def _setup(self, question: Question) -> str:
        """Return what may change between deployments, as a short text: model, sampling, tools, limits."""
        provider = question.provider
        name = f"{provider.name}/{provider.model}"
        setups = self._services.setups
        known = setups.get((name, question.sampling, question.tools))
        if known is None:
            specs = self._services.tools.specs if question.tools else ()
            tools = [[spec.name, spec.description, spec.schema] for spec in specs]
            if question.tools:
                tools += [[one.action] for one in self._services.tools.provider_tools]
            limits = list_limits(self._services.limits)
            known = (
                f"model={name} tools={shorten(tools)} limits={shorten(limits)} "
                f"sampling={shorten(list_settings(question.sampling))}"
            )
            setups[name, question.sampling, question.tools] = known
        return known


def _is_for_one_call(message: Message) -> bool:
    return message.origin in ("memory", "hook")


def _is_knowledge(message: Message) -> bool:
    return message.origin == "memory"
