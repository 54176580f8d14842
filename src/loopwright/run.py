"""The one door: everything a strategy does passes a verb of `Run`, and every verb leaves entries in the journal."""

import functools
import hashlib
import random
import uuid
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar, Unpack, overload

from ._kernel.phases import side_effects
from ._kernel.phases.best_answer import ask_best_answer, may_ask_best_answer
from ._kernel.phases.child_run import delegate
from ._kernel.phases.completions import BranchGroup
from ._kernel.phases.completions import Completions as Completions
from ._kernel.phases.cycle import Cycle, Engine
from ._kernel.phases.engine_output import clean_answer
from ._kernel.phases.engine_stage import call_stage
from ._kernel.phases.gather import BranchWork, gather
from ._kernel.phases.handoff import act as hand_off
from ._kernel.phases.handoff import start_handoff
from ._kernel.phases.human import ask_user, parse_expiry, read_answer_type
from ._kernel.phases.inference import Question
from ._kernel.phases.lookup import lookup, read_label
from ._kernel.phases.output_type import OutputType
from ._kernel.phases.quarantine import Endorsed, ask_quarantined
from ._kernel.phases.reason import ReasonOptions, reason, settle
from ._kernel.phases.reception import read_thread_facts, receive
from ._kernel.phases.samples import can_sample, sample
from ._kernel.phases.sleep import parse_seconds, parse_wake, sleep
from ._kernel.phases.structured_output import ask_model, ask_text
from ._kernel.phases.timeout import limit_time
from ._kernel.session.scope import BEST_ANSWER
from .errors import (
    ConfigError,
    LimitReached,
    ProviderError,
    Unreadable,
)
from .gates.base import Cleared
from .hooks.base import EngineStage
from .journals.base import Command
from .knowledge.bridge import scope_of
from .labels import Label, LabelledText
from .limits import Share as Share
from .messages import (
    Conversation,
    Json,
    JsonObject,
    Message,
    Observation,
    Proposal,
    ToolCall,
    ToolSpec,
)
from .messages import Reasoning as Reasoning
from .providers.base import Provider
from .providers.base import Sampling as Sampling
from .result import Finished as Finished
from .result import Result

Expiry: TypeAlias = float | timedelta | None
T = TypeVar("T")
M = TypeVar("M")


class Strategy(Engine, Protocol):
    """What a run needs of an engine."""

    async def solve(self, run: "Run") -> str:
        """Run the strategy; return the answer."""
        ...


class Run:
    """The door that an engine is given.

    Every method that touches the world is an effect: recorded, and answered from the journal when the run is resumed.
    One verb may be in flight at a time; for more, see `gather`.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle, self._scope, self._session = cycle, cycle.scope, cycle.session

    # --- what the engine works on ---

    @property
    def run_id(self) -> str:
        """The run's name in the journal."""
        return self._session.run_id

    @property
    def scope(self) -> str:
        """Whose knowledge it uses; see `scope_of`."""
        return scope_of(self._session.tags, self._session.thread)

    @property
    def conversation(self) -> Conversation:
        """The conversation that the caller gave."""
        return self._cycle.conversation

    @property
    def task(self) -> str:
        """The latest user text of the conversation that the caller gave."""
        return self._cycle.conversation.task

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that calls may name, as a model sees them."""
        return self._cycle.services.tools.specs

    @property
    def latest(self) -> Conversation:
        """The conversation as far as this scope has taken it."""
        return self._cycle.latest

    def keep(self, conversation: Conversation) -> None:
        """Note how far the conversation has come, for the result and a best answer; `reason` does so by itself."""
        self._cycle.keep(conversation)

    # --- the phases ---

    async def reason(
        self, conversation: Conversation, *, tools: bool = True, sampling: Sampling = Sampling(),
        provider: str | None = None, purpose: str = "",
    ) -> Proposal:  # fmt: skip
        """Ask the model what to do next; with `tools=False` it may only answer.

        An unreadable reply goes back to it with the reason, at most three times running; then `Unreadable`. For
        `provider` and `purpose` see `ask`.
        """
        chosen = self._choose_provider(provider)
        with self._scope.enter("reason"):
            question = Question(
                "reason", conversation, chosen, tools, sampling=sampling, purpose=purpose
            )  # fmt: skip
            return await reason(self._cycle, question)

    async def samples(
        self, conversation: Conversation, n: int, **options: Unpack[ReasonOptions]
    ) -> tuple[Proposal, ...]:
        """Ask the model `n` times at once what to do next, for a vote or the best of several; each may be gated once.

        They are `n` calls of the budget and, where the provider can, one request; options are those of `reason`. A reply
        that was cut, or cannot be read, is a thought without calls or an answer.
        """
        chosen = self._choose_provider(options.get("provider"))
        with self._scope.enter("samples"):
            return await sample(self._cycle, conversation, n, chosen, options)

    def can_sample(self, provider: str | None = None) -> bool:
        """Return whether one request brings several replies; in a replay, what is recorded decides."""
        return can_sample(self._cycle, self._choose_provider(provider))

    def propose(
        self,
        *calls: ToolCall,
        thought: str = "",
        reasoning: tuple[Reasoning, ...] = (),
    ) -> Proposal:
        """Return a proposal of calls that the engine writes itself, or chose of the model's, with its `reasoning`."""
        return self._cycle.propose(calls, thought, reasoning)

    async def gate(self, proposal: Proposal) -> Cleared:
        """Let policy decide about each call of a proposal; a proposal is gated once, by the scope that made it."""
        return await self._cycle.gate(proposal)

    async def act(self, cleared: Cleared) -> tuple[Observation, ...]:
        """Run what the gate permitted, at the same time; return one observation for each call, in call order."""
        act = hand_off if self._cycle.services.tools.targets else Cycle.act
        return await act(self._cycle, cleared)

    async def call(self, call: ToolCall, *, thought: str = "") -> Observation:
        """Propose, gate and act on one call that the engine writes itself; return its observation."""
        proposal = self.propose(call, thought=thought)
        [observation] = await self.act(await self.gate(proposal))
        return observation

    # --- loops and endings ---

    def iterations(self, limit: int | None = None) -> Iterator[int]:
        """Yield turn numbers from 1, at most `limit`; raise `LimitReached` past the run's `max_iterations`."""
        if limit is not None and limit < 1:
            raise ConfigError(f"iterations must be at least 1, got {limit}")
        return self._scope.iterations(limit)

    @property
    def turns(self) -> int:
        """Iterations of this scope's own loops."""
        return self._scope.turns

    def offer(self, answer: str) -> None:
        """Name the best answer so far: it is the run's if a limit, a stuck loop, a failure or an abort ends it first.

        Then none is asked for. It is for the run that `solve` was given, not for branches of it.
        """
        self._cycle.offered = clean_answer(self._cycle, answer)

    async def best_answer(self, conversation: Conversation) -> str:
        """Ask once, without tools, for the best answer so far; the status becomes `limit` (or `stuck`).

        Raises `LimitReached` where there is none: `Limits(best_effort=False)`, no call left, or the call failed.
        """
        usage = self._scope.engine_usage
        ending = self._scope.signal or usage.ending
        if ending is None:
            text = "the engine used up its iterations"
            ending = LimitReached("max_iterations", text)
        usage.ending = ending
        may_ask = may_ask_best_answer(self._cycle, ending)
        # What was asked before another branch met a limit is asked again.
        if not may_ask and not self._scope.has_recorded(BEST_ANSWER):
            raise ending
        try:
            return await ask_best_answer(self._cycle, conversation)
        except (ProviderError, Unreadable) as failure:
            raise ending from failure

    # --- other questions, other engines, other work ---

    @overload
    async def ask(
        self, prompt: str | Conversation, *, into: type[str] = str, sampling: Sampling = ...,
        provider: str | None = None, purpose: str = ..., again: bool = ..., schema: JsonObject | None = ...,
    ) -> str: ...  # fmt: skip
    @overload
    async def ask(
        self, prompt: str | Conversation, *, into: type[M], sampling: Sampling = ...,
        provider: str | None = None, purpose: str = ...,
    ) -> M: ...  # fmt: skip
    async def ask(
        self, prompt: str | Conversation, *, into: type[Any] = str, sampling: Sampling = Sampling(),
        provider: str | None = None, purpose: str = "", again: bool = True, schema: JsonObject | None = None,
    ) -> Any:  # fmt: skip
        """Call a model outside the conversation: a planner, a judge, a critic.

        A text that is blank, or was cut at the limit of output tokens, is asked for once `again`; one that is cut still
        raises `AskFailed`. With a JSON `schema` providers that can hold the model to it; the text is to be read leniently.

        With another type as `into` (a pydantic model, a dataclass, `list[str]`) the reply is read strictly and repaired
        at most twice; then `AskFailed`.
        `provider` names one of `Runtime(providers=...)`; `purpose` says in a word what the call is for, such as "plan".
        """
        conversation = Conversation.of(prompt) if isinstance(prompt, str) else prompt
        chosen = self._choose_provider(provider)
        settled = functools.partial(settle, self._cycle)
        with self._scope.enter("ask"):
            if into is str:
                again = again and self._session.revision >= 1
                return await ask_text(settled, conversation, sampling, chosen, purpose, again, schema)  # fmt: skip
            wanted = OutputType[Any](into, "into")
            return await ask_model(
                settled, conversation, wanted, sampling, chosen, purpose
            )

    def _choose_provider(self, name: str | None) -> Provider:
        services = self._cycle.services
        return services.provider if name is None else services.named_provider(name)

    async def gather(
        self, *works: Callable[["Run"], Awaitable[T]], max_concurrency: int | None = None,
        names: Sequence[str] | None = None,
    ) -> list[T]:  # fmt: skip
        """Do several works at once, each with a branch `Run` of its own; return their results, in order.

        `max_concurrency` is how many may be under way at a time, started in order; `None` is all of them. With `names`, one
        for each work, the journal says when each began and ended, and later branches of a name are watched for loops on.

        Waits for all; then the exception of the lowest index is raised. A branch that waits for a decision does not
        hold up its siblings; if one of them raises, its question is cancelled. Branches share nothing but what they
        return.
        """
        return await gather(self._cycle, [*map(_bind, works)], max_concurrency, names)

    def as_completed(
        self,
        *works: Callable[["Run"], Awaitable[T]],
        max_concurrency: int | None = None,
    ) -> "Completions[Run, T]":
        """Do works at once, each in a branch of its own, and get each outcome when there is one.

        `async with run.as_completed(*works) as done: async for finished in done: ...`. The order is recorded, so a resumed
        run gets them in the same one. Verbs of this run are allowed in between, and `done.start(work)` begins one more.
        Leaving the block cuts off the works that are under way, and what they had begun is accounted for. A work that
        waits for a person is given when it has ended.
        """
        group = BranchGroup[T](self._cycle, max_concurrency)
        return Completions(group, works, _bind)

    async def timeout(
        self, seconds: float | timedelta, work: Callable[["Run"], Awaitable[T]]
    ) -> T:
        """Do a work in a branch of its own; raise `TimedOut` when it takes longer than `seconds` of active time.

        Whether it was in time is recorded, so a resumed run goes the same way. A call that was under way gets the
        outcome `timed_out`. Time in which the run sleeps, waits for a person or a provider does not count, nor time before
        the work asks its run for something.
        """
        return await limit_time(self._cycle, parse_seconds(seconds), _bind(work))

    async def delegate(
        self, engine: Strategy, task: str | Conversation, *, share: Share | None = None
    ) -> Result:
        """Run another engine as a child on what is left of the budget; both gates must allow it and what it does.

        With a `share` (see `Run.share`) its loops end where that is used up, as at the end of their iterations.
        """
        return await delegate(self._cycle, engine, task, share)

    def share(self, parts: int) -> Share:
        """Return one of so many equal parts of what the run's limits leave, for children that work at the same time."""
        return self._cycle.services.limits.share(parts, self._scope.engine_usage.used)

    async def handoff(
        self, agent: object, conversation: Conversation | None = None
    ) -> NoReturn:
        """Hand the run off: another agent works on it from here in this one's place, and gives the answer.

        It is given `conversation`, or what there is of it (`latest`); both gates must allow the effect "handoff". This
        never returns: it raises a signal that ends the engine, also where the engine catches it. Raises `ConfigError`
        for an agent that is not there, that answers in another form, or past `Limits(max_handoffs=...)`; `Denied`.

        Args:
            agent: the name of an agent of the runtime, or an `Agent`.
            conversation: what it sees.
        """
        given = self.latest if conversation is None else conversation
        raise await start_handoff(self._cycle, agent, given)

    @overload
    async def quarantined(
        self, prompt: str, text: str | Observation, *, into: type[str], provider: str | None = None
    ) -> LabelledText: ...  # fmt: skip
    @overload
    async def quarantined(
        self, prompt: str, text: str | Observation, *, into: type[M], provider: str | None = None
    ) -> M: ...  # fmt: skip
    async def quarantined(
        self, prompt: str, text: str | Observation, *, into: type[Any], provider: str | None = None
    ) -> Any:  # fmt: skip
        """Have a model without tools read a text from outside, in a branch of its own; return its typed answer.

        Nothing else of the text gets out: choose a type that has no room for an order, such as numbers, dates or one of
        some words. The answer stays untrusted, and makes the run so. Raises `AskFailed`, without a word of the reply.
        """
        chosen = self._choose_provider(provider)
        return await ask_quarantined(self._cycle, prompt, text, into, chosen)

    def endorse(self, value: str, reason: str) -> None:
        """Declare that code has checked a value, so that as a whole it counts as typed by the caller; it is recorded."""
        side_effects.note(self._scope, Endorsed(value, reason))

    @overload
    async def ask_user(
        self, question: str, *, into: type[str] = str, choices: Iterable[str] = (), expires: Expiry = None
    ) -> str: ...  # fmt: skip
    @overload
    async def ask_user(
        self, question: str, *, into: type[M], choices: Iterable[M] = (), expires: Expiry = None
    ) -> M: ...  # fmt: skip
    async def ask_user(
        self, question: str, *, into: type[Any] = str, choices: Iterable[Any] = (), expires: Expiry = None
    ) -> Any:  # fmt: skip
        """Ask the person who uses the run, by the callback of `Runtime(user=...)` or, without one, from outside.

        The run waits for that answer (`handle.answer`, `loopwright answer`), also after its process has ended. Gates
        see it as a read named "ask_user". Where it is given, an answer that does not fit is an error to the person.

        Args:
            question: what the person reads.
            into: the type of the answer, as pydantic reads it: `int`, `date`, a `Literal`, a model (as JSON).
            choices: the values that it may have.
            expires: seconds from the first asking on, by the wall clock; then this raises `QuestionExpired`.
        """
        answers, seconds = read_answer_type(into, choices), parse_expiry(expires)
        return await ask_user(self._cycle, question, answers, seconds)

    async def received(
        self, kinds: Collection[str] = ("steer", "add_context", "override")
    ) -> tuple[Command, ...]:
        """Return what people sent since the last time, as data, once; the same again when the run is resumed.

        Guidance that is received goes into no later model call of this scope, and an ordered call is the engine's to make.
        For engines that ask one question after the other; without it, the next model call reads guidance.
        """
        return await receive(self._cycle, kinds)

    async def thread_facts(self, kind: type[T], *, last: int | None = None) -> tuple[T, ...]:  # fmt: skip
        """Return the facts of a type that earlier turns of the run's thread noted, the `last` or all, the oldest first."""
        return await read_thread_facts(self._cycle, kind, last)

    def begin_saga(self) -> None:
        """Have all that the run's tools did undone, as with `saga=True`, unless it completes; not in a child."""
        side_effects.begin_saga(self._scope)

    async def stage(
        self, name: EngineStage, text: str = "", proposal: Proposal | None = None
    ) -> tuple[Message, ...]:
        """Call `stage(at, name)` of hooks about `text`; return their remarks. Before the calls of a proposal, pass that."""
        return await call_stage(self._cycle, name, text, proposal)

    def note(self, fact: object) -> None:
        """Record a fact of the strategy: a pydantic model, a dataclass or anything that is JSON."""
        side_effects.note(self._scope, fact)

    async def publish(self) -> None:
        """Make what is recorded so far durable now and not before the next effect, so that other processes read it."""
        await self._session.writer.barrier()

    def now(self) -> datetime:
        """Return wall time (UTC); the same again when the run is resumed."""
        return side_effects.now(self._scope)

    async def sleep(
        self, seconds: float | timedelta | None = None, *, until: datetime | None = None
    ) -> None:
        """Wait for `seconds`, or `until` a time with a zone; the time is recorded, by the wall clock.

        Less than a minute passes in this process. A longer sleep suspends the run: a worker resumes it in time, and it needs
        no process until then. Sleeping takes no active time; branches beside it continue. Raises `ConfigError`.
        """
        await sleep(self._cycle, parse_wake(seconds, until))

    def patched(self, name: str) -> bool:
        """Return whether to run the new code of a change: false where the run continued from here with the old code.

        Decided once in each scope, at its first call; branches and children that begin later decide alike.
        """
        return side_effects.is_patched(self._scope, name)

    @functools.cached_property
    def random(self) -> random.Random:
        """A random source that gives the same numbers when the run is resumed."""
        seed = f"{self._session.seed}|{self._scope.path}".encode()
        return random.Random(hashlib.sha256(seed).digest())  # noqa: S311 - not for secrets: it must replay

    def new_id(self) -> str:
        """Return a UUID; the same again when the run is resumed."""
        name = f"{self._session.seed}|{self._scope.side_key('id')}"
        return str(uuid.uuid5(uuid.NAMESPACE_OID, name))

    async def effect(
        self,
        name: str,
        function: Callable[[], Awaitable[T]],
        *,
        into: type[T],
        untrusted: bool = False,
        label: Label = "public",
    ) -> T:
        """Make something of the engine's own an effect: gated like a read, recorded, and not done again on resume.

        The run is at least as sensitive as `label` from then on, and `untrusted` if the value comes from outside; a
        `LabelledText` in the value says so by itself.
        """
        read = read_label(label, untrusted)
        return await side_effects.effect(self._cycle, name, function, into, read)

    def label_text(self, text: str) -> LabelledText:
        """Return a text with the provenance of what the run has read so far, to store it outside of the run."""
        read = self._session.sensitivity
        return LabelledText(text, label=read.label, untrusted=read.untrusted)

    async def lookup(
        self,
        name: str,
        function: Callable[[], Awaitable[T]],
        *,
        into: type[T],
        untrusted: bool = True,
        label: Label = "public",
    ) -> T:
        """Read something quickly: recorded, and not read again on resume; `effect` without its gate and its barrier.

        What was read raises the run to `label`, or to a classifier's, and makes it untrusted. It is durable with the next
        barrier, before anything leaves the process; a read that a crash lost is done again. It must change nothing.
        """
        read = read_label(label, untrusted)
        return await lookup(self._cycle, name, function, into, read)

    async def permit(self, name: str, arguments: dict[str, Json]) -> None:
        """Have policy decide about something that the engine is about to do and that is not a tool call, such as a plan.

        Gates see it as a call of `name` with the effect "write"; nothing runs. Raises `Denied`; waits if a gate asks.
        """
        await side_effects.permit(self._cycle, name, arguments)


def _bind(work: Callable[[Run], Awaitable[T]]) -> BranchWork[T]:
    """Return a work that is given the phases of its branch, and does it with the `Run` of them."""
    return lambda branch: work(Run(branch))
