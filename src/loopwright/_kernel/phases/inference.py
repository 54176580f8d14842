"""One model effect from its key to its reply: replay, limits, context, intent, call, outcome."""

import dataclasses
import hashlib
import json

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from ...errors import ContextTooLong, LimitReached, ProviderError
from ...events.effects import (
    AttemptFailed,
    DriftNoticed,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
)
from ...events.run import ErrorRecord
from ...labels import highest
from ...messages import Completion, Conversation, Message, canonical_json
from ...providers.base import OutputSchema, Provider, Request, Sampling
from ...providers.context import estimate_tokens
from ...security.redaction.errors import redact_error
from ...security.redaction.messages import redact_completion
from ..session.scope import fingerprint
from ..session.services import Services
from ..session.session import Session
from .model_call import ModelCall


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
    """A model's reply, the key of the effect, and what the runtime put before the question's end.

    `commands` are the numbers of those by which people said some of it.
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
        nudges: tuple[Message, ...],
        iteration: int,
        commands: tuple[int, ...] = (),
    ) -> Reply:
        """The reply to a question: from the journal if it is there, else from the model.

        `commands` are the numbers of those whose words are among the nudges.
        """
        replay = self._session.replay
        intent, outcome = replay.effects.intent(key), replay.effects.outcome(key)
        known = intent if isinstance(intent, ModelRequested) else None
        if outcome is not None:
            return self._recorded(key, question, known, outcome)
        self._session.signals.check_gap(key)
        self._session.signals.check(begun=True)
        if (
            known is None
            or _fingerprint(question, known.delivered) != known.fingerprint
        ):
            prints = _fingerprint(question, nudges)
            provider = question.provider or self._services.provider
            label = highest(
                self._session.sensitivity.classify(m.content)
                for m in nudges
                if m.origin == "operator"
            )
            request = ModelRequested(
                question.verb, prints, self._setup(question), iteration, nudges,
                provider.name, provider.model, question.sampling.options, question.purpose, commands, label,
            )  # fmt: skip
            self._open(key, question, request, in_doubt=known is not None)
            known = request
        await self._session.writer.barrier()
        return Reply(
            key,
            await self._ask(key, question, known.delivered),
            known.delivered,
            known.commands,
        )

    def _open(
        self, key: str, question: Question, intent: ModelRequested, *, in_doubt: bool
    ) -> None:
        """Take a place in the budget (a key that is in doubt has one) and record the intent."""
        budget = self._session.budget
        try:
            self._session.check_time()
            if not question.reserved and not in_doubt:
                budget.check()
        except LimitReached as error:
            raise self._session.refuse(key, error, question.verb) from None
        budget.llm_calls += not in_doubt
        self._session.sensitivity.observe(intent.label, untrusted=False)
        self._session.writer.record(key, intent)

    async def _ask(
        self, key: str, question: Question, delivered: tuple[Message, ...]
    ) -> Completion:
        session = self._session
        before = session.active.seconds()
        try:
            completion = await self._fitted(
                key, question, question.conversation.add(*delivered)
            )
        except LimitReached as error:
            raise self._session.refuse(key, error, question.verb) from None
        except ProviderError as error:
            seconds = round(session.active.seconds() - before, 6)
            clean = redact_error(session.secrets.redactor, error)
            session.writer.record(key, ModelFailed(ErrorRecord.of(clean), seconds))
            if clean is error:
                raise
            raise clean from None
        session.budget.usage += completion.usage
        return self._replied(
            key, completion, round(session.active.seconds() - before, 6)
        )

    def _replied(self, key: str, completion: Completion, seconds: float) -> Completion:
        """Record a reply without its secrets; those of its calls are kept for the tools of this process."""
        session = self._session
        redacted = redact_completion(session.secrets.redactor, completion)
        originals = {
            n: dataclasses.replace(completion.calls[n], arguments=a)
            for n, a in redacted.originals.items()
        }
        session.secrets.keep_all(key, originals)
        clean, sealed = redacted.completion, tuple(redacted.originals)
        try:
            session.writer.record(key, ModelReplied(clean, seconds, sealed))
        except (
            PydanticSerializationError
        ):  # lone surrogates, which are no Unicode text and cannot be stored or sent
            clean = without_surrogates(clean)
            session.writer.record(key, ModelReplied(clean, seconds, sealed))
        return clean

    async def _fitted(
        self, key: str, question: Question, whole: Conversation
    ) -> Completion:
        """Send what fits; if the model still finds it too long, compact once more and give up after that."""
        tokens = self._services.limits.context_tokens
        seen = whole if tokens is None else self._services.context.fit(whole, tokens)
        call = self._call(key, question, seen)
        try:
            return await call.complete()
        except ContextTooLong as error:
            smaller = self._services.context.fit(seen, estimate_tokens(seen) // 2)
            if (
                smaller == seen or call.told
            ):  # words that somebody has seen cannot be taken back
                raise
            clean = redact_error(self._session.secrets.redactor, error)
            self._session.writer.record(
                key, AttemptFailed(1, ErrorRecord.of(clean), 0.0)
            )
        self._session.budget.llm_calls += 1
        return await self._call(key, question, smaller).complete()

    def _call(self, key: str, question: Question, seen: Conversation) -> ModelCall:
        mentioned = question.tools or any(message.calls for message in seen.messages)
        request = Request(
            seen,
            self._services.tools.specs if mentioned else (),
            "auto" if question.tools else "none",
            question.sampling,
            question.schema,
            as_text=question.verb == "ask",
        )
        return ModelCall(
            self._session, key, question.provider or self._services.provider, request
        )

    def _recorded(
        self,
        key: str,
        question: Question,
        intent: ModelRequested | None,
        outcome: object,
    ) -> Reply:
        session = self._session
        if isinstance(outcome, LimitHit):
            raise session.recorded_refusal(key, outcome)
        found = _fingerprint(question, intent.delivered if intent else ())
        if intent is None or not isinstance(outcome, (ModelReplied, ModelFailed)):
            raise session.signals.diverge(key, type(outcome).__name__, question.verb)
        if found != intent.fingerprint:
            raise session.signals.diverge(
                key, f"{intent.verb} {intent.fingerprint}", f"{question.verb} {found}"
            )
        session.replay.effects.agree(key)
        setup = self._setup(question)
        if setup != intent.setup and not session.drifted:
            session.drifted = True
            session.writer.record(key, DriftNoticed("setup", intent.setup, setup))
        if isinstance(outcome, ModelFailed):
            raise outcome.error.restore()
        return Reply(key, outcome.completion, intent.delivered, intent.commands)

    def _setup(self, question: Question) -> str:
        """What may change between deployments: model, sampling, tools and limits, as a short text."""
        provider = question.provider or self._services.provider
        name = f"{provider.name}/{provider.model}"
        setups = self._services.setups
        known = setups.get((name, question.sampling, question.tools))
        if known is None:
            tools = (
                [[t.name, t.description, t.schema] for t in self._services.tools.specs]
                if question.tools
                else []
            )
            limits = dataclasses.asdict(self._services.limits)  # pyright: ignore[reportArgumentType] - a pydantic dataclass
            known = (
                f"model={name} tools={_short(tools)} limits={_short(limits)} "
                f"sampling={_short(dataclasses.asdict(question.sampling))}"
            )
            setups[name, question.sampling, question.tools] = known
        return known


def without_surrogates(completion: Completion) -> Completion:
    """The completion with a question mark for every character that is no Unicode text."""
    plain = json.dumps(dataclasses.asdict(completion), ensure_ascii=False).encode(
        "utf-8", "replace"
    )
    return TypeAdapter(Completion).validate_json(plain)


def _short(value: object) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()[:12]


def _fingerprint(question: Question, delivered: tuple[Message, ...]) -> str:
    conversation = (
        question.conversation.add(*delivered) if delivered else question.conversation
    )
    return fingerprint(
        f"{question.verb} tools={question.tools} into={question.into}",
        conversation.digest,
    )
