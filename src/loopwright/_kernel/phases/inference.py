"""Inference: one model effect from its key to its reply: replay, limits, context, intent, call, outcome."""

import asyncio
import dataclasses
import hashlib
import json

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from ...errors import JournalError, LimitReached, ProviderError
from ...events.effect_key import call_key
from ...events.effects import (
    DriftNoticed,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
)
from ...events.run import ErrorRecord
from ...labels import Label, highest
from ...messages import (
    Completion,
    Conversation,
    Message,
    canonical_json,
    mark_entry,
)
from ...providers.base import OutputSchema, Provider, Request, Sampling
from ...security.redaction.errors import redact_error
from ...security.redaction.messages import redact_completion
from ..durability.description import describe_question
from ..durability.history import is_loaded
from ..durability.recorded_messages import delivered_code
from ..session.scope import fingerprint
from ..session.services import Services
from ..session.session import Session
from .fitted_call import FittedCall


@dataclasses.dataclass(frozen=True)
class Question:
    """What an engine wants to know from a model; `into` names the type of the reply."""

    verb: str
    conversation: Conversation
    tools: bool = False
    into: str = ""
    schema: OutputSchema | None = None
    sampling: Sampling = Sampling()
    provider: Provider | None = None
    reserved: bool = False
    purpose: str = ""


@dataclasses.dataclass(frozen=True)
class Reply:
    """A model's reply, the key of its effect, and the messages that the runtime added to the question.

    `commands` are the numbers of the commands whose texts are among those messages.
    """

    key: str
    completion: Completion
    delivered: tuple[Message, ...]
    commands: tuple[int, ...] = ()


class Inference:
    """Makes the model effects of one scope."""

    def __init__(self, session: Session, services: Services) -> None:
        self._session, self._services = session, services

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
        session, effects = self._session, self._session.replay.effects
        question = self._apply_sampling(question)
        intent, outcome = effects.intent(key), effects.outcome(key)
        known = intent if isinstance(intent, ModelRequested) else None
        if outcome is not None:
            return self._replay(key, question, known, outcome)
        session.signals.check_gap(key, question.verb)
        session.signals.check_intent(key, ModelRequested, question.verb)
        await session.replay_end.reach(key)
        session.signals.check(begun=True)
        await self._load(question.conversation)
        if (
            known is None
            or _fingerprint(question, known.delivered) != known.fingerprint
        ):
            is_new = known is None
            known = self._request(question, delivered, iteration, commands)
            self._open(key, question, known, is_new=is_new)
        await session.writer.barrier()
        completion = await self._ask(key, question, known.delivered)
        return self._reply(key, completion, known)

    def _reply(self, key: str, completion: Completion, intent: ModelRequested) -> Reply:
        """Return a reply that is recorded, whose messages are known by their entries from now on."""
        session, delivered = self._session, intent.delivered
        for index, message in enumerate(delivered):
            mark_entry(message, (session.run_id, delivered_code(key, index)))
        if completion.answer:
            session.answers.setdefault(completion.answer, key)
        return Reply(key, completion, delivered, intent.commands)

    async def _load(self, conversation: Conversation) -> None:
        """Read the messages of the runs that are continued; nothing live is done without them."""
        if is_loaded(conversation):
            return
        try:
            await asyncio.to_thread(getattr, conversation, "messages")
        except JournalError as error:
            raise self._session.writer.fail(error) from error

    def _request(
        self,
        question: Question,
        delivered: tuple[Message, ...],
        iteration: int,
        commands: tuple[int, ...],
    ) -> ModelRequested:
        """Return the intent of a model call."""
        provider = self._provider_of(question)
        label: Label = "public"
        for message in delivered:
            if message.origin == "operator":
                found = self._session.sensitivity.classify(message.content)
                label = highest((label, found))
        return ModelRequested(
            question.verb, _fingerprint(question, delivered), self._setup(question), iteration, delivered,
            provider.name, provider.model, question.sampling.options, question.purpose, commands, label,
            self._describe(question),
        )  # fmt: skip

    def _describe(self, question: Question) -> str:
        """Return a question in words, for people who read that code and journal differ."""
        redactor = self._session.secrets.redactor
        verb, into = question.verb, question.into
        return describe_question(verb, into, question.conversation, redactor)

    def _open(
        self, key: str, question: Question, intent: ModelRequested, *, is_new: bool
    ) -> None:
        """Record the intent, and take a place in the budget for a new one."""
        session, budget = self._session, self._session.budget
        try:
            session.check_time()
            if is_new and not question.reserved:
                budget.check()
        except LimitReached as error:
            raise session.refuse(key, error, question.verb) from None
        budget.llm_calls += is_new
        session.sensitivity.observe(intent.label, untrusted=False)
        session.writer.record(key, intent)

    async def _ask(
        self, key: str, question: Question, delivered: tuple[Message, ...]
    ) -> Completion:
        """Ask the model, and record its reply or its failure."""
        session = self._session
        before = session.active.seconds()
        asked = question.conversation.add(*delivered)
        try:
            completion = await self._call(key, question).complete(asked)
        except LimitReached as error:
            raise session.refuse(key, error, question.verb) from None
        except ProviderError as error:
            seconds = round(session.active.seconds() - before, 6)
            redacted = redact_error(session.secrets.redactor, error)
            waited = session.active.take_waited()
            failed = ModelFailed(ErrorRecord.of(redacted), seconds, waited)
            session.writer.record(key, failed)
            if redacted is error:
                raise
            raise redacted from None
        session.budget.usage += completion.usage
        seconds = round(session.active.seconds() - before, 6)
        return self._record_reply(key, completion, seconds)

    def _call(self, key: str, question: Question) -> FittedCall:
        provider, limits = self._provider_of(question), self._services.limits
        request = Request(
            question.conversation,
            self._services.tools.specs,
            "auto" if question.tools else "none",
            question.sampling,
            question.schema,
            as_text=question.verb == "ask",
            timeout=limits.model_timeout,
        )
        return FittedCall(self._session, self._services, key, provider, request)

    def _record_reply(
        self, key: str, completion: Completion, seconds: float
    ) -> Completion:
        """Record a reply without its secrets; those of its calls are kept for the tools of this process."""
        session = self._session
        redacted = redact_completion(session.secrets.redactor, completion)
        for number, arguments in redacted.originals.items():
            call = dataclasses.replace(completion.calls[number], arguments=arguments)
            session.secrets.keep(call_key(key, number), call)
        reply, withheld = redacted.completion, tuple(redacted.originals)
        waited = session.active.take_waited()
        try:
            session.writer.record(key, ModelReplied(reply, seconds, withheld, waited))
        except PydanticSerializationError:  # lone surrogates: not Unicode text
            reply = without_surrogates(reply)
            session.writer.record(key, ModelReplied(reply, seconds, withheld, waited))
        return reply

    def _replay(
        self,
        key: str,
        question: Question,
        intent: ModelRequested | None,
        outcome: object,
    ) -> Reply:
        """Return the recorded reply, or raise the recorded error, once the question agrees."""
        session = self._session
        if isinstance(outcome, LimitHit):
            raise session.recorded_refusal(key, outcome)
        if intent is None or not isinstance(outcome, (ModelReplied, ModelFailed)):
            raise session.signals.diverge_from(key, self._describe(question))
        found = _fingerprint(question, intent.delivered)
        if found != intent.fingerprint:
            raise session.signals.diverge_from(key, self._describe(question))
        session.replay.effects.agree(key)
        setup = self._setup(question)
        if setup != intent.setup and not session.drifted:
            session.drifted = True
            drift = DriftNoticed("setup", intent.setup, setup)
            session.writer.record_after_replay(key, drift)
        if isinstance(outcome, ModelFailed):
            raise outcome.error.restore()
        return self._reply(key, outcome.completion, intent)

    def _apply_sampling(self, question: Question) -> Question:
        """Return a question to the run's own model with the run's settings where it leaves them open."""
        given = self._session.sampling
        is_own = self._provider_of(question) is self._session.services.provider
        if not is_own or not given.options:
            return question
        merged = given.override(question.sampling)
        return dataclasses.replace(question, sampling=merged)

    def _provider_of(self, question: Question) -> Provider:
        """Return the provider that a question is for."""
        return question.provider or self._services.provider

    def _setup(self, question: Question) -> str:
        """Return what may change between deployments, as a short text: model, sampling, tools, limits."""
        provider = self._provider_of(question)
        name = f"{provider.name}/{provider.model}"
        setups = self._services.setups
        known = setups.get((name, question.sampling, question.tools))
        if known is None:
            specs = self._services.tools.specs if question.tools else ()
            tools = [[spec.name, spec.description, spec.schema] for spec in specs]
            limits = dataclasses.asdict(self._services.limits)  # pyright: ignore[reportArgumentType] - a pydantic dataclass
            known = (
                f"model={name} tools={_short(tools)} limits={_short(limits)} "
                f"sampling={_short(_list_settings(question.sampling))}"
            )
            setups[name, question.sampling, question.tools] = known
        return known


def without_surrogates(completion: Completion) -> Completion:
    """Return the completion with a question mark for every lone surrogate."""
    text = json.dumps(dataclasses.asdict(completion), ensure_ascii=False)
    valid = text.encode("utf-8", "replace")
    return TypeAdapter(Completion).validate_json(valid)


def _list_settings(sampling: Sampling) -> dict[str, object]:
    """Return the settings as journals know them: the first five always, those added later where they are set."""
    settings = dataclasses.asdict(sampling)
    added = tuple(settings)[5:]
    return {
        name: value
        for name, value in settings.items()
        if name not in added or value is not None
    }


def _short(value: object) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()[:12]


def _fingerprint(question: Question, delivered: tuple[Message, ...]) -> str:
    what = f"{question.verb} tools={question.tools} into={question.into}"
    return fingerprint(what, question.conversation.add(*delivered).digest)
