"""What all scopes of one run share: its journal claim, budget, clock, replay, signals and watchers."""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Literal

from ..._internal.log import logger
from ...errors import (
    Aborted,
    ConfigError,
    Fenced,
    JournalError,
    LimitReached,
    LoopwrightError,
    ReplayDivergence,
    Suspended,
)
from ...events.control import CommandReceived, Declassified, RunContinued, RunPaused
from ...events.effect_key import EffectKey, call_key
from ...events.effects import BreakerChanged, FactNoted, LimitHit, ToolStarted
from ...events.entry import EVENT_VERSION, KINDS, Entry, Event, encode_event
from ...events.run import Question, RunFinished, RunSuspended
from ...gates.base import Permit
from ...journals.base import Claim, Command, chain_hash
from ...journals.owner import AT_WORK, Owner
from ...labels import LABELS, Label, highest
from ...limits import Budget
from ...messages import Observation, ToolCall
from ...providers.base import Delta
from ...tools.base import Tool
from ..control.commands import (
    APPROVE,
    DECLASSIFY,
    Decided,
    Told,
    is_numbered,
    problem_of,
    read_command,
)
from ..durability.replay import Replay
from .active_clock import ActiveClock
from .services import Services

NO_SLOTS = nullcontext()
_LAPSED = object()  # in place of a result: the lease was over before a thread was free
LEFT_BEHIND = (
    "waiting for a person, whose word nobody goes on with: the gather around has ended"
)
SECRET_LOST = "It was not made, and it cannot be now: its arguments held a secret, which is not kept. Propose it again."
LEFT: ContextVar[Literal["cancelled", "released"]] = ContextVar(
    "LEFT", default="cancelled"
)
"""As what a run is left when its task is cancelled: a worker leaves its runs to the other workers of the journal."""


class Session:
    """One run being worked on by this process."""

    def __init__(
        self,
        services: Services,
        claim: Claim,
        owner: Owner,
        replay: Replay,
        deps: object,
    ) -> None:
        self.services, self.claim, self.owner, self.replay, self.deps = (
            services,
            claim,
            owner,
            replay,
            deps,
        )
        self.run_id = claim.run_id
        self.seed = replay.seed or claim.run_id
        self.budget = Budget(
            services.limits, replay.llm_calls, replay.tool_calls, replay.usage
        )
        self.active = ActiveClock(services.clock, replay.active_seconds)
        self.fatal: LoopwrightError | None = (
            None  # divergence, a dead journal: every verb meets it
        )
        # Sticky too, but recorded effects come first: a limit that the journal knows holds for all that is new.
        hit = replay.limit
        self.signal: LoopwrightError | None = (
            None if hit is None else LimitReached(hit.limit, hit.detail)
        )
        self.pending: list[Question] = []
        self.told = Told()
        self.on_abort: Callable[[], None] = _nothing
        """What stops all that is in flight when somebody says so from outside."""
        self.label: Label = replay.label
        self.untrusted = replay.untrusted
        """The highest label of what the run has read, and whether any of it came from outside."""
        self.mark = (replay.started.boundary if replay.started else "") or boundary_of(
            claim.run_id
        )
        """What stands in the fences around text from outside."""
        self.kept = asyncio.Event()
        """Set once the journal has the run, so that others can send it commands."""
        self._standing = 0  # branches that stand still
        self._paused_at = 0.0
        self.saga = replay.started is not None and replay.started.saga
        self.completed: dict[str, tuple[int, Observation, Tool]] = {}
        """What a saga would have to undo: by key, with the number of the entry that holds it."""
        self.permits: set[Permit] = set()
        self.secrets: dict[str, ToolCall] = {}
        """Calls whose arguments hold secrets, whole, by key: for gates and tools of this process, never recorded."""
        self.redactor = services.redactor
        """Knows, beside what the runtime's knows, the secrets of this run's calls and of its child engines.

        It is for what is recorded as it comes (replies, results, errors, reasons): what an engine makes by itself comes
        again when the run is resumed, and has to be the same then, when those secrets are not known.
        """
        self.facts: dict[str, FactNoted] = dict(replay.facts)
        self.watchers: list[Callable[[Entry], None]] = []
        self.delta_watchers: list[
            Callable[[Delta], None]
        ] = []  # with any, models are asked to stream
        self.aborting = False
        self.over = False
        self._unnumbered = False  # whether a command has come that has no number
        """Whether the run's last entry is written, or that of its suspension: nothing is heard any more."""
        self.drifted = False
        most = services.limits.max_concurrent_tools
        self.tool_slots: AbstractAsyncContextManager[None] = (
            NO_SLOTS if most is None else asyncio.Semaphore(most)
        )
        self._slots_by_tool: dict[str, asyncio.Semaphore] = {}
        self._wall = services.clock.wall() - services.clock.monotonic()
        self._unsent: list[Entry] = []
        # Nobody hears of a new run before the journal has taken it: its id may turn out to be another run's.
        self._untold: list[Entry] | None = [] if replay.started is None else None
        self._durable_seq = claim.head_seq
        self._broken: LoopwrightError | None = (
            None  # the journal failed: nothing is durable any more
        )

    def record(self, key: str, event: Event) -> Entry:
        """Add a fact to the journal; it is durable after the next `barrier`."""
        claim = self.claim
        entry = Entry(
            self.run_id,
            claim.head_seq + 1,
            key,
            KINDS[type(event)],
            self.wall(),
            EVENT_VERSION,
            claim.fence,
            encode_event(event),
            "",
        )
        hashed = chain_hash(claim.head_hash, entry)
        entry.__dict__.update(
            hash=hashed, event=event
        )  # the chain needs the other fields first
        claim.head_seq, claim.head_hash = entry.seq, hashed
        self._unsent.append(entry)
        if self._untold is None:
            self._tell(entry)
        else:
            self._untold.append(entry)
        return entry

    def wall(self) -> float:
        """Wall time in seconds, never going back while this process works on the run."""
        return self._wall + self.services.clock.monotonic()

    def _tell(self, entry: Entry) -> None:
        for watcher in self.watchers:
            watcher(entry)
        for observer in self.services.observers:
            self._tell_observer(observer, entry)

    def _tell_observer(self, observer: Callable[[Entry], None], entry: Entry) -> None:
        try:
            observer(entry)
        except Exception as error:  # noqa: BLE001 - an observer is foreign code and may not hurt the run
            redact = self.redactor.text
            logger().warning(
                "observer_failed",
                observer=redact(repr(observer)),
                error=redact(repr(error)),
            )

    def _tell_all(self) -> None:
        untold, self._untold = self._untold or [], None
        for entry in untold:
            self._tell(entry)

    async def barrier(self, status: str | None = None) -> None:
        """Make all recorded facts durable; an error is sticky, so that nothing runs after it."""
        self._check_broken()
        head = self.claim.head_seq
        if head == self._durable_seq and status is None:
            return
        unsent, self._unsent = self._unsent, []
        try:
            self.services.journal.append(self.claim, unsent, status=status)
            await self.services.journal.barrier(self.claim)
        except ConfigError as error:  # the run id is taken: this run never was
            self.fatal = self._broken = error
            raise
        except LoopwrightError as error:
            self.fatal = self._broken = error
            self._tell_all()
            raise
        except OSError as error:
            self.fatal = self._broken = JournalError(f"the journal failed: {error}")
            self._tell_all()
            raise self._broken from error
        self._tell_all()
        self.kept.set()
        self._check_broken()  # a barrier that was under way beside this one may have failed
        self._durable_seq = max(self._durable_seq, head)

    async def hold(self) -> None:
        """Make sure, right before this process acts, that the run is still its own; raises `Fenced`."""
        if self._is_held():
            return
        try:
            await self.renew()
        except JournalError as error:  # nothing begins any more, and the run is left as one whose owner died
            self.fatal = self._broken = error
            raise

    def _is_held(self) -> bool:
        until = (
            self.claim.lease_until
        )  # of the two clocks the first stands still with the machine
        return until is None or max(self.wall(), self.services.clock.wall()) < until

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Call a plain function in a thread, if the run is still its own when a thread is free; raises `Fenced`."""
        while True:
            value = await self.services.threads.run(
                lambda: function() if self._is_held() else _LAPSED
            )
            if value is not _LAPSED:
                return value
            await self.hold()

    async def renew(self) -> None:
        """Put the end of the lease off. An error is sticky if another worker took over."""
        self._check_broken()
        try:
            await self.services.journal.renew(self.claim, self.services.lease or 0.0)
        except Fenced as error:
            self.fatal = self._broken = error
            raise

    def _check_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def remaining(self) -> float | None:
        """Active seconds left, at least 0; `None` without a time limit."""
        timeout = self.services.limits.timeout
        return None if timeout is None else max(timeout - self.active.seconds(), 0.0)

    def facts_below(self, path: str = "") -> tuple[FactNoted, ...]:
        """What strategies noted, in the journal's order: all of it, or in one scope and those inside."""
        return tuple(
            fact
            for key, fact in self.facts.items()
            if EffectKey.parse(key).is_inside(path)
        )

    def slots_of(self, tool: Tool) -> AbstractAsyncContextManager[None]:
        """The slots of one tool, if it may not run at will."""
        if tool.max_concurrency is None:
            return NO_SLOTS
        return self._slots_by_tool.setdefault(
            tool.name, asyncio.Semaphore(tool.max_concurrency)
        )

    def check_signal(self, *, begun: bool = False) -> None:
        """Raise what nothing new may start behind: a signal, a divergence, a dead journal.

        What had `begun` before a limit was met goes on: without the crash it would have, too.
        """
        found = self.fatal or self.signal
        if found is not None and not (begun and isinstance(found, LimitReached)):
            raise found

    def stick(self, error: LoopwrightError) -> LoopwrightError:
        """Make an error sticky for the whole run, and give it back to be raised."""
        self.signal = self.signal or error
        return error

    def check_time(self) -> None:
        """Raise `LimitReached` if the run's time is over."""
        if self.remaining() == 0:
            raise out_of_time()

    def refuse(self, key: str, error: LimitReached, verb: str = "") -> LoopwrightError:
        """Record a refusal as the outcome at `key`; gives the sticky error to be raised."""
        self.record(key, LimitHit(error.limit, str(error), verb))
        return self.stick(error)

    def refused(self, key: str, hit: LimitHit) -> LoopwrightError:
        """The sticky error of a refusal that is recorded at `key`."""
        self.replay.agree(key)
        return self.stick(LimitReached(hit.limit, hit.detail))

    def breaker_changed(
        self, name: str, before: str, after: str, reason: str = ""
    ) -> None:
        """Record that a circuit breaker changed its state, and why, if a person did it."""
        self.record("", BreakerChanged(name, before, after, self.redactor.text(reason)))

    def diverged(self, key: str, expected: str, found: str) -> ReplayDivergence:
        """The sticky error that code and journal disagree at `key`."""
        error = self.replay.divergence(key, expected, found)
        self.fatal = error
        return error

    def check_gap(self, key: str) -> None:
        """Raise `ReplayDivergence` if life would go on at `key` although its scope has later outcomes."""
        if self.replay.holds_later(key):
            raise self.diverged(key, "recorded effects after it", "a new effect")

    def check_left_behind(self, key: str) -> None:
        """Raise `Suspended` where a person was asked in a branch that its gather did not wait for: no answer counts."""
        if self.replay.left_behind(key):
            raise Suspended(LEFT_BEHIND)

    def check_leftovers(self) -> None:
        """Raise `ReplayDivergence` if the engine ended without asking for everything that was recorded."""
        left = self.replay.first_unused()
        if left is not None:
            raise self.diverged(left, "a recorded effect", "nothing")

    def hear(self, commands: Sequence[Command]) -> None:
        """Take in what people sent, in order; each command is recorded once."""
        numbered, aborting = (
            [sent for sent in commands if is_numbered(sent)],
            self.told.aborting,
        )
        if len(numbered) < len(commands) and not self._unnumbered:
            self._unnumbered = True
            logger().warning("command_without_number", run_id=self.run_id)
        for sent in () if self.over else numbered:
            if sent.number <= self.told.last:
                continue
            command, refused = self._received(sent)
            if refused:
                self.told.refuse(command)
                continue
            self.told.take(command)
            if command.kind == DECLASSIFY and command.number not in self.replay.taken:
                self._declassify(command)
        if self.told.aborting and not aborting:
            self.on_abort()

    def _received(self, sent: Command) -> tuple[Command, str]:
        """A command as it is recorded, now or before, and why it is refused; empty if it is not."""
        known = self.replay.received.get(sent.number)
        if known is not None:
            heard = Command(
                sent.number, self.run_id, known.sent, known.command, known.body
            )
            return heard, known.refused or problem_of(heard)
        heard, refused = read_command(sent, self.redactor)
        refused = refused or (
            "the time of its question was over" if self._is_late(heard) else ""
        )
        waited = self.active.take_waited()
        self.record(
            "",
            CommandReceived(
                heard.number, heard.kind, heard.body, heard.at, waited, refused
            ),
        )
        if refused:
            told = {
                "run_id": self.run_id,
                "number": heard.number,
                "command": heard.kind,
                "problem": refused,
            }
            logger().warning("command_refused", **told)
        return heard, refused

    def _is_late(self, command: Command) -> bool:
        """Whether it approves what nobody could approve any more when it was sent."""
        question = command.body.get("question")
        closed = (
            self.replay.closes.get(question, math.inf)
            if isinstance(question, int)
            else math.inf
        )
        return command.kind == APPROVE and command.at > closed

    def taken_back(self, key: str, tool: str, leave: int) -> Decided | None:
        """The later denial of a call that rests on the command with the number `leave`; `None` if it rests on none."""
        return (
            self.told.taken_back(key, self.replay.leave_asked.get(key), tool, leave)
            if leave
            else None
        )

    def _declassify(self, command: Command) -> None:
        wanted = [
            rank
            for rank, label in enumerate(LABELS)
            if label == command.body.get("label")
        ]
        self.label = LABELS[min(LABELS.index(self.label), *wanted, len(LABELS))]
        self.record(
            "",
            Declassified(
                self.label, str(command.body.get("reason") or ""), command.number
            ),
        )

    def read_aloud(self, label: Label, untrusted: bool) -> None:
        """The run has read something with that label, from outside or not."""
        self.label, self.untrusted = (
            highest((self.label, label)),
            self.untrusted or untrusted,
        )

    async def listen(self) -> None:
        """Look into the run's inbox; whoever reads the journal sees that the run has heard."""
        commands = await asyncio.to_thread(
            self.services.journal.inbox, self.run_id, self.told.last
        )
        self.hear(commands)
        if commands:
            await self.barrier()

    async def boundary(self) -> None:
        """Between two steps: a paused run stands still here, and one that was told to stop ends."""
        told = self.told
        if told.stands_still():
            self._standing += 1
            if self._standing == 1:
                self._paused_at = self.services.clock.monotonic()
                self.record("", RunPaused())
            try:
                with self.active.waiting():
                    await self.barrier()
                    while told.stands_still():
                        await told.more()
            finally:
                self._standing -= 1
                if self._standing == 0:
                    seconds = round(
                        self.services.clock.monotonic() - self._paused_at, 6
                    )
                    self.record("", RunContinued(self.active.take_waited(), seconds))
        if told.stopping:
            raise self.stopped()

    def stopped(self) -> LoopwrightError:
        """The sticky error that somebody said `stop`, or `abort`."""
        was = (
            "aborted"
            if self.told.aborting
            else "told to stop after the step that was under way"
        )
        return self.stick(Aborted(f"the run was {was}"))

    def withdraw(self, place: str) -> None:
        """Ask no more what the branches of a gather wanted to know: it has ended, and nobody goes on with an answer."""
        self.pending[:] = [
            question
            for question in self.pending
            if not EffectKey.parse(question.key).is_inside(place)
        ]

    def leave(self, event: RunSuspended | RunFinished) -> None:
        """Write the run's last entry, or that of its suspension."""
        self.record("", event)
        self.over = True

    def take_up(self) -> None:
        """This process works on the run from now on."""
        AT_WORK.add(self.owner.token)
        self.services.listener.add(self)

    def let_go(self) -> None:
        """This process no longer works on the run."""
        AT_WORK.discard(self.owner.token)
        self.services.listener.discard(self)

    def keep_secrets(self, key: str, calls: Mapping[int, ToolCall]) -> None:
        """Remember the calls of a proposal as they were before their secrets were taken out."""
        for number, call in calls.items():
            self.keep_secret(call_key(key, number), call)

    def keep_secret(self, key: str, call: ToolCall) -> None:
        """Remember one call as it was. What its tool says may repeat the secret without its name."""
        self.secrets[key] = call
        self.redactor = self.redactor.learning(call.arguments)

    def is_lost(self, key: str) -> bool:
        """Whether a call had a secret in its arguments that only a process knew which is gone."""
        return key not in self.secrets and not self.replay.sealed.isdisjoint(
            (key, EffectKey.parse(key).original)
        )

    def idempotency_key(self, key: str) -> str:
        """The same for a call however often it is made again, also by a fork that was cut in the middle of it."""
        known = self.replay.intent(key)
        return (
            known.idempotency_key
            if isinstance(known, ToolStarted)
            else f"{self.run_id}:{key}"
        )


def boundary_of(run_id: str, created: float = 0.0) -> str:
    """The boundary of a run's fences: nobody outside can guess it, and the same run made again has the same."""
    return hashlib.sha256(f"{run_id}|{created!r}".encode()).hexdigest()[:12]


def _nothing() -> None:
    """Nobody is there to be told."""


def out_of_time() -> LimitReached:
    """The error that the run's time is over."""
    return LimitReached("timeout", "the run's time is over")


async def outlast(work: Callable[[], Awaitable[None]]) -> asyncio.CancelledError | None:
    """Bring `work` to its end however often this task, or the one that does it, is cancelled; the last cancellation.

    An application that stops cancels all its tasks, so `work` may be begun more than once. Raises what it raises.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        task = asyncio.ensure_future(work())
        cancelled = await wait_out(task) or cancelled
        if not task.cancelled():
            task.result()
            return cancelled


async def wait_out(task: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until `task` is done; the last cancellation that came meanwhile, if any."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def fingerprint(what: str, about: bytes) -> str:
    """SHA-256 (hex) over an effect's verb with its options, and what it is about."""
    return hashlib.sha256(f"{len(what)}:{what}".encode() + about).hexdigest()
