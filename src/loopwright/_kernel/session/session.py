"""Session: what all scopes of one run share while this process works on it."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from types import MappingProxyType
from typing import Literal

from ...errors import LimitReached, LoopwrightError
from ...events.control import QuestionWithdrawn
from ...events.effect_key import EffectKey
from ...events.effects import BreakerChanged, FactNoted, LimitHit, ToolStarted
from ...events.run import REVISION, Question, RunStarted
from ...events.run_settings import RunSettings
from ...gates.base import Permit
from ...hooks.held_deltas import HeldDeltas
from ...journals.base import Claim, RunHeader
from ...journals.owner import ACTIVE_TOKENS, Owner
from ...journals.recorded_messages import delimiter_of
from ...limits import Budget, ProgressRules
from ...messages import Conversation, Observation
from ...principals import ApprovalRule, Principal
from ...providers.base import OutputSchema, Sampling
from ...tools.base import Tool
from ..durability.history import ContinuedConversation, make_plain, mark_given
from ..durability.replay import Replay
from .active_clock import ActiveClock
from .command_intake import CommandIntake
from .failures import Failures
from .journal_writer import JournalWriter
from .prompts import Prompts
from .provenance import RunProvenance
from .recent_views import RecentViews
from .replay_end import ReplayEnd
from .request_log import RequestLog
from .secrets import Secrets
from .sensitivity import Sensitivity
from .services import Services
from .signals import Signals

UNLIMITED_SLOTS = nullcontext()
STATUS_OF_SUSPENDED = {
    "cancelled": "suspended",
    "diverged": "suspended",
    "released": "released",
}
"""The status in which a run is left, by the reason."""
SUSPEND_REASON: ContextVar[Literal["cancelled", "released"]] = ContextVar(
    "SUSPEND_REASON", default="cancelled"
)
"""Why a run is suspended when its task is cancelled: a worker releases its runs to other workers."""


class Session:
    """One run that this process works on: its state, and the collaborators of its phases."""

    sampling: Sampling
    """What the run was started with, for the calls of its own model."""
    tags: Mapping[str, str] = MappingProxyType({})
    thread = ""
    principal: Principal | None = None
    settings: RunSettings | None = None
    """The settings that the run read when it began."""
    """Who started the run, if the application said so."""
    approvals: ApprovalRule | None = None
    """Whose approvals its calls need, beside what gates want."""
    streams = False
    """Whether models are asked to stream, also without a watcher."""
    turn = 1
    """The number of the run among those that continue each other."""
    read_answer: Callable[[str], object] | None = None
    """Reads the run's answer as the type that is wanted; raises `ValueError`."""
    answer_schema: OutputSchema | None = None
    """What the run's answer must fit, where its requests have that from the first on."""

    def __init__(
        self,
        services: Services,
        claim: Claim,
        owner: Owner,
        replay: Replay,
        deps: object,
    ) -> None:
        started = replay.started
        self.services, self.owner = services, owner
        self.replay, self.deps = replay, deps
        self.run_id = claim.run_id
        self.is_new = started is None
        """Whether nothing of the run was recorded when this process began to work on it."""
        self.seed = replay.seed or claim.run_id
        self.delimiter = delimiter_of(claim.run_id)
        """What encloses text from outside, in the prompts of this run."""
        self.saga, self.revision = False, REVISION
        self.journal_id: str = getattr(services.journal, "id", "")
        self.sampling, self.after = Sampling(), services.after
        self.progress = services.progress
        if started is not None:
            self._restore(started)
        spent = replay.totals
        self.budget = Budget(
            services.limits, spent.llm_calls, spent.tool_calls, spent.usage
        )
        self.active = ActiveClock(services.clock, spent.active_seconds)
        self.feed = services.feeds.open(claim.run_id)
        self._build_collaborators(claim)
        self.pending: list[Question] = []
        self.permits: set[Permit] = set()
        self.facts: dict[str, FactNoted] = dict(replay.effects.facts)
        self.completed: dict[str, tuple[int, Observation, Tool]] = {}
        """What a saga would have to undo: by key, with the number of the entry that holds it."""
        self.drifted = False

    def _restore(self, started: RunStarted) -> None:
        """Give a resumed run what its first entry says of it."""
        self.delimiter = started.boundary or self.delimiter
        self.saga, self.journal_id = started.saga, started.journal_id
        self.revision, self.after = started.revision, started.after
        self.sampling = Sampling.from_options(started.sampling)
        self.name(started.tags, started.thread)
        self.principal, self.approvals = started.principal, started.approvals
        self.settings = started.settings
        self.progress = ProgressRules(**started.progress)

    def _build_collaborators(self, claim: Claim) -> None:
        services, replay = self.services, self.replay
        self.held = HeldDeltas(self.feed.show)
        self.answers: dict[str, str] = {}
        """The keys of the replies with answers, by these: the journal keeps a text once."""
        self.signals = Signals(replay, services.redactor)
        self.secrets = Secrets(services.redactor, replay)
        self.sensitivity = Sensitivity(services, self.run_id, replay, self.secrets)
        self.writer = JournalWriter(
            services, claim, self.signals, self.secrets, self.feed, replay.flow.notes
        )
        replay.flow.has_read_untrusted = lambda: self.sensitivity.untrusted
        self.provenance = RunProvenance(replay.flow)
        self.records_requests = self.revision >= 2
        """Whether the intents of model calls hold what is sent; those of early versions do not."""
        self.prompts = Prompts(self.run_id)
        self.requests = RequestLog(self.writer, services.redactor, self.secrets, replay)
        self.views = RecentViews(replay.requests)
        self.failures = Failures()
        self.replay_end = ReplayEnd(replay, self.signals, self.writer)
        self.intake = CommandIntake(
            services, replay, self.writer, self.signals, self.secrets,
            self.sensitivity, self.active,
        )  # fmt: skip
        self.intake.senders.starter = self.principal
        self.command_log = self.intake.log
        self.tool_slots = _slots(services.limits.max_concurrent_tools)
        self._slots_by_tool: dict[str, AbstractAsyncContextManager[None]] = {}

    def name(self, tags: Mapping[str, str], thread: str) -> None:
        """Give the run its names: its tags and its thread."""
        self.tags, self.thread = tags, thread

    def set_up(
        self,
        header: RunHeader,
        principal: Principal | None,
        approvals: ApprovalRule | None,
        sampling: Sampling,
        settings: RunSettings | None,
        *,
        saga: bool,
    ) -> None:
        """Give a new run what its first entry will say of it."""
        self.settings = settings
        self.name(header.tags, header.thread)
        self.principal, self.approvals = principal, approvals
        self.intake.senders.starter = principal
        self.saga, self.sampling = saga, sampling
        self.delimiter = delimiter_of(header.run_id, header.created)

    def begin(self, given: Conversation) -> None:
        """Know the conversation that the run began with."""
        self.writer.forget_history = self._forget_history
        self.prompts.begin(given)
        self.requests.begin(given)
        self.turn = mark_given(given, self.services.journal).turn
        self.provenance.begin(given, self.services.agent_name)

    def _forget_history(self) -> None:
        """Know the conversation that the run began with as its own: the run before it was deleted meanwhile."""
        given = self.requests.get_given()
        self.begin(make_plain(given.messages, given.label, given.untrusted))

    async def settle_history(self) -> None:
        """Make sure that a new run continues the one before, by which messages are named for its model."""
        given, is_stored = self.requests.get_given(), self.writer.stored.is_set()
        may_change = self.is_new and not is_stored
        if may_change and isinstance(given, ContinuedConversation):
            await self.writer.barrier()

    def start(self) -> None:
        """Work on the run from now on, and receive its commands."""
        ACTIVE_TOKENS.add(self.owner.token)
        self.feed.begin()
        self.services.inbox_poller.add(self.intake)

    def stop(self) -> None:
        """Work on the run no longer."""
        ACTIVE_TOKENS.discard(self.owner.token)
        self.services.inbox_poller.discard(self.intake)
        self.feed.end()

    @property
    def wants_deltas(self) -> bool:
        """Whether models are asked to stream."""
        return self.streams or bool(self.feed.delta_watchers)

    def remaining(self) -> float | None:
        """Return the active seconds left, at least 0; `None` without a time limit."""
        return self.remaining_at(self.active.seconds())

    def remaining_at(self, seconds: float) -> float | None:
        """Return what is left at so many active seconds."""
        timeout = self.budget.limits.timeout
        return None if timeout is None else max(timeout - seconds, 0.0)

    def is_too_long(self, seconds: float) -> bool:
        """Whether a pause would outlast the run."""
        remaining = self.remaining()
        return remaining is not None and seconds >= remaining

    def check_time(self, seconds: float) -> None:
        """Raise `LimitReached` if the run's time is over at so many active seconds."""
        if self.remaining_at(seconds) == 0:
            raise out_of_time()

    def refuse(self, key: str, error: LimitReached, verb: str = "") -> LoopwrightError:
        """Record a refusal as the outcome at `key`; return the sticky error to be raised."""
        self.writer.record(key, LimitHit(error.limit, str(error), verb))
        return self.signals.stick(error)

    def recorded_refusal(self, key: str, hit: LimitHit) -> LoopwrightError:
        """Return the sticky error of a refusal that is recorded at `key`."""
        self.replay.effects.agree(key)
        return self.signals.stick(LimitReached(hit.limit, hit.detail))

    def facts_below(self, path: str = "") -> tuple[FactNoted, ...]:
        """Return the noted facts in the journal's order: all, or those in one scope and inside it."""
        return tuple(
            fact
            for key, fact in self.facts.items()
            if EffectKey.parse(key).is_inside(path)
        )

    def slots_of(self, tool: Tool) -> AbstractAsyncContextManager[None]:
        """Return the slots of one tool, if its concurrency is limited."""
        if tool.max_concurrency is None:
            return UNLIMITED_SLOTS
        return self._slots_by_tool.setdefault(tool.name, _slots(tool.max_concurrency))

    def breaker_changed(
        self, name: str, before: str, after: str, reason: str = ""
    ) -> None:
        """Record that a circuit breaker changed its state, and why, if a person did it."""
        redacted = self.secrets.redactor.redact_text(reason)
        self.writer.record("", BreakerChanged(name, before, after, redacted))

    def cancel_questions(self, path: str) -> None:
        """Withdraw the questions of a gather's branches: it has ended, so no answer counts."""
        for question in list(self.pending):
            if EffectKey.parse(question.key).is_inside(path):
                self.pending.remove(question)
                self._record_cancellation(question)

    def _record_cancellation(self, question: Question) -> None:
        is_known = self.replay.approvals.is_cancelled(question.key)
        # A run whose code diverged, or that lost its journal, may continue as it was.
        if is_known or self.signals.fatal is not None:
            return
        event = QuestionWithdrawn(question.tool, question.call_id, question.about)
        self.writer.record_after_replay(question.key, event)

    def idempotency_key(self, key: str) -> str:
        """Return a call's idempotency key: the same however often it is made, in a fork too."""
        known = self.replay.effects.intent(key)
        if isinstance(known, ToolStarted):
            return known.idempotency_key
        # Without the journal's id a new file with an old run name would get an old answer from a service.
        prefix = f"{self.journal_id}:" if self.journal_id else ""
        return f"{prefix}{self.run_id}:{key}"


def out_of_time() -> LimitReached:
    """Return the error that the run's time is over."""
    return LimitReached("timeout", "the run's time is over")


def _slots(limit: int | None) -> AbstractAsyncContextManager[None]:
    return UNLIMITED_SLOTS if limit is None else asyncio.Semaphore(limit)
