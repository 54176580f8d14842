"""Runtime: the composition root of the services, engines by name, and resume by run id."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar, Unpack, overload

from ._internal.sync import LOOP_THREAD
from ._kernel.control.run_control import RunControl
from ._kernel.control.run_watch import RunWatch
from ._kernel.session.instructions import Instructions
from ._kernel.session.service_checks import (
    accepted_versions,
)
from ._kernel.session.services import Observer, OnUnknown, Services, User
from .agents.agent import Agent, AgentDefinition, define_agent
from .agents.agent_knowledge import OwnKnowledge, equip_agent
from .agents.approved_turn import proceed_as_approved
from .agents.handoff import Handoff
from .agents.recorded_engine import build_recorded
from .agents.registry import Agents
from .agents.runtime_parts import (
    build_own_parts,
    build_services,
)
from .agents.schedules import Definition, Schedules, name_agent
from .agents.thread_list import ThreadInfo, list_threads
from .agents.wakes import Wakes
from .clock import MAX_SECONDS, Clock
from .engine import LoopEngine, ResumeOptions
from .errors import ConfigError
from .events.entry import Entry
from .events.followups import FOLLOW_UP
from .events.lifecycle import read_start
from .followups.background import Background
from .followups.base import FollowUp
from .followups.engine import build_follow_up_engine
from .followups.registry import FollowUps
from .gates.base import Approver, PolicyGate, Suspend
from .handle import RunHandle
from .hooks.plan import plan_hooks
from .journals.access import consult, list_runs, read_run
from .journals.base import Journal
from .journals.listing import UNDONE_FOLLOW_UPS, ListedRun, RunFilter
from .journals.metrics import RunMetrics, measure_runs
from .knowledge.base import Knowledge
from .knowledge.bridge import KnowledgeBridge
from .labels import Classifier
from .limits import Limits, ProgressRules
from .plugins import available_engines, load_engine_class, load_hook
from .principals import FindPrincipal, Principal
from .providers.base import Delta, Provider
from .providers.context.choice import Context
from .providers.prices import Price
from .resilience.circuit_breaker import CircuitBreakers
from .result import Model, Result
from .schedules.base import Missed, Overlap, Schedule
from .security.redaction import Redactor
from .security.secret_store import SecretStore
from .security.signed_commands import CommandSigner
from .settings.base import Settings
from .tools.executor import ToolExecutor
from .tools.profile import ToolProfile
from .tools.recovery import RecoveryStrategy
from .tools.registry import Tools
from .tools.resolution import Resolution

T = TypeVar("T")
HookName: TypeAlias = str | Mapping[str, Any]
Handoffs: TypeAlias = Iterable[str | Agent[Any] | Handoff]


class Runtime(Services):
    """The services that the engines of an application share. Create one and pass it to engines.

    Args:
        provider: the model, or its name as "provider:model" ("openai:gpt-4.1-mini", "ollama:qwen3").
        tools: functions made tools with `@tool`, and sources of tools, such as an `McpToolbox`.
        profile: selects the tools of a model; the others are neither listed nor callable.
        journal: stores runs; `None` keeps them in memory.
        gate: decides about every call; `None` is `DefaultGate`.
        limits: what a run may use.
        approver: answers a gate's `Ask`: `None` denies, a callback decides, `Suspend()` makes the run wait.
        breakers: circuit breakers, to share them between runtimes.
        context: selects what of a long conversation a model reads: "masking" (the default), "window", or a `ContextPolicy`.
        observers: called with every new journal entry.
        providers: more models by name, for `run.ask(provider=...)`.
        clock: the source of time, for tests.
        prices: prices of models by name; without it, only costs that a provider reports are known.
        on_unknown: what a resumed run does about a side effect whose outcome is unknown: "tell" the model, "ask" a
            person (the run waits for `resolve`), or "stop".
        lease: seconds for which a run belongs to this process unless it renews the lease, which it does three times in
            that time; afterwards others may claim the run. `None`: until this process ends.
        user: answers what an engine or a model asks the user: an async function of the question; `None` makes the run
            wait for an answer from outside.
        classifier: labels the sensitivity of tasks, tool results and commands, in addition to the tools' own labels.
        app_version: the version of the application's code ("2026.11.1"), which is recorded with each run that it begins;
            see `Worker`. Empty for none.
        redactor: removes secrets from everything that enters a run; `Redactor(patterns=False)` removes registered
            values only. Keys that providers report are always registered.
        knowledge: a store of what outlives runs, or a `KnowledgeBridge` that says how runs use it. Models read what
            matches before they reason or plan, and have tools to look for more and to store facts.
        after: follow-ups, or their names: work that is due once a run has ended, each in a run of its own.
        hooks: code that looks at what goes to models and comes from them and from tools, and may change the text: objects
            (`Hook`), their names, or `{"hook": name, option: value}`.
        commands: signs the commands that this process sends, and refuses those to its runs that are not signed.
        settings: prompts, options and limits that are changed while the application runs, such as `SQLiteSettings(path)`.
        default_recovery: what is done about a failed call of a tool without a `recovery` of its own, as far as it suits
            the effect of that tool: `Retry()` for those that read.
        progress: when a run makes no progress, and what happens then.
        executor: runs the functions of some tools in another process, such as a `RemoteExecutor`; without one all run here.
        secrets: what tools ask for by name (`ctx.secrets.get("github")`); its values are removed from what enters a run.
        find_principal: returns the principal of a schedule as it is when that fires, with the roles of then, or `None` for
            one that may start nothing any more; an async or a plain function. `None`: as it was recorded.
    """

    _owned_provider: Provider | None
    _background: Background
    follow_ups: FollowUps
    """The follow-ups of the runtime and of its agents."""
    agents: Agents  # pyright: ignore[reportIncompatibleVariableOverride] - frozen
    """The agents of the application by name; `agent` adds one."""

    def __init__(
        self,
        provider: Provider | str,
        *,
        tools: Tools = (),
        profile: ToolProfile | None = None,
        journal: Journal | None = None,
        gate: PolicyGate | None = None,
        limits: Limits | None = None,
        approver: Approver | Suspend | None = None,
        breakers: CircuitBreakers | None = None,
        context: Context | None = None,
        observers: Iterable[Observer] = (),
        providers: Mapping[str, Provider] | None = None,
        clock: Clock | None = None,
        on_unknown: OnUnknown = "tell",
        prices: Mapping[str, Price] | None = None,
        lease: float | None = None,
        redactor: Redactor | None = None,
        user: User | None = None,
        classifier: Classifier | None = None,
        app_version: str = "",
        knowledge: Knowledge | KnowledgeBridge | None = None,
        after: Iterable[FollowUp | str] = (),
        hooks: Iterable[HookName | Any] = (),
        commands: CommandSigner | None = None,
        settings: Settings | None = None,
        default_recovery: RecoveryStrategy | Iterable[RecoveryStrategy] = (),
        progress: ProgressRules | None = None,
        executor: ToolExecutor | None = None,
        secrets: SecretStore | None = None,
        find_principal: FindPrincipal | None = None,
    ) -> None:
        services, owned = build_services(provider, tools=tools, profile=profile, journal=journal, gate=gate, limits=limits,
            approver=approver, breakers=breakers, context=context, observers=observers, providers=providers, clock=clock,
            on_unknown=on_unknown, prices=prices, lease=lease, redactor=redactor, user=user, classifier=classifier,
            app_version=app_version, knowledge=knowledge, settings=settings, default_recovery=default_recovery,
            progress=progress, executor=executor, secrets=secrets, find_principal=find_principal)  # fmt: skip
        super().__init__(**services)
        build_own_parts(self, owned, after, hooks, command_signer=commands)

    def engine(self, name: str, /, **options: Any) -> LoopEngine:
        """Build an engine by its entry-point name; raise `ConfigError` for an unknown name or option."""
        return load_engine_class(name)(self, **options)

    @overload
    def agent(
        self,
        name: str,
        *,
        instructions: Instructions = ...,
        engine: str | LoopEngine = ...,
        tools: Tools | None = ...,
        output: None = ...,
        description: str = ...,
        limits: Limits | None = ...,
        after: Iterable[FollowUp | str] | None = ...,
        handoffs: Handoffs = ...,
        context: Context | None = ...,
        knowledge: OwnKnowledge = ...,
        hooks: Iterable[HookName] = ...,
    ) -> Agent[None]: ...
    @overload
    def agent(
        self,
        name: str,
        *,
        instructions: Instructions = ...,
        engine: str | LoopEngine = ...,
        tools: Tools | None = ...,
        output: type[Model],
        description: str = ...,
        limits: Limits | None = ...,
        after: Iterable[FollowUp | str] | None = ...,
        handoffs: Handoffs = ...,
        context: Context | None = ...,
        knowledge: OwnKnowledge = ...,
        hooks: Iterable[HookName] = ...,
    ) -> Agent[Model]: ...
    def agent(
        self,
        name: str,
        *,
        instructions: Instructions = "",
        engine: str | LoopEngine = "react",
        tools: Tools | None = None,
        output: type[Any] | None = None,
        description: str = "",
        limits: Limits | None = None,
        after: Iterable[FollowUp | str] | None = None,
        handoffs: Handoffs = (),
        context: Context | None = None,
        knowledge: OwnKnowledge = "runtime",
        hooks: Iterable[HookName] = (),
    ) -> Agent[Any]:
        """Define an agent: an engine with instructions of its own, which runs are resumed by.

        Raises `ConfigError` for a name that another agent or an engine has.

        Args:
            name: letters, digits, "_" and "-"; watchers, logs and traces have it.
            instructions: a text; a `Template` that is filled from `deps`; or a function of an `InstructionContext`, sync
                or async. They are in front of each request, and no part of the conversation.
            engine: the name of an engine, or an engine, whose options are taken over.
            tools: the tools that the agent may call; `None` is the runtime's.
            output: the type as which its answers are read, as in `LoopEngine.run`.
            description: what it is for, in a line, for other agents.
            limits: what its runs may use; `None` is the runtime's.
            after: the follow-ups of its runs; `None` is the runtime's.
            handoffs: the agents that it may hand a run off to, by name, which may be defined later, or as a `Handoff` each.
            context: selects what of a long conversation its model reads; `None` is the runtime's.
            knowledge: its store of knowledge or a `KnowledgeBridge`, with the tools of that; `None` for none.
            hooks: its hooks beside those of the runtime: names, or `{"hook": name, option: value}`.
        """
        self.agents.check_name(name)
        services, planned = equip_agent(self, name, knowledge, after)
        definition = AgentDefinition(name, instructions, tools, output, description, limits, planned, handoffs, context,
            plan_hooks(hooks, load_hook))  # fmt: skip
        return self.agents.add(define_agent(services, engine, definition, self.agents))

    @overload
    async def resume(
        self,
        run_id: str,
        *,
        output: type[Model] | None = None,
        deltas: Literal[False] = ...,
        **options: Unpack[ResumeOptions],
    ) -> Result[Model | None]: ...
    @overload
    async def resume(
        self,
        run_id: str,
        *,
        output: type[Model] | None = None,
        deltas: Literal[True],
        **options: Unpack[ResumeOptions],
    ) -> RunHandle[Entry | Delta, Model | None]: ...
    async def resume(
        self,
        run_id: str,
        *,
        output: type[Model] | None = None,
        deltas: bool = False,
        **options: Unpack[ResumeOptions],
    ) -> Result[Model | None] | RunHandle[Any, Model | None]:
        """Resume a run, whose engine is rebuilt from the journal, as `LoopEngine.resume` does.

        A turn of a thread uses the approvals of that, but not with `deltas`, which shows one execution.
        Raises `ConfigError` for an option that is code or a live object: then build the engine and call its `resume`.
        """
        engine = await self._rebuild_engine(run_id)
        if output is None and engine.runtime.agent_name:
            output = self.agents[engine.runtime.agent_name].output
        if deltas:
            return await engine.resume(run_id, output=output, deltas=True, **options)

        async def resume() -> Result[Model | None]:
            return await engine.resume(run_id, output=output, **options)

        return await proceed_as_approved(engine.runtime, await resume(), resume)

    def resume_sync(
        self,
        run_id: str,
        *,
        output: type[Model] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Result[Model | None]:
        """`resume` for synchronous callers."""
        return LOOP_THREAD.run(self.resume(run_id, output=output, **options))

    @overload
    def attach(
        self, run_id: str, *, after: int = ..., deltas: Literal[False] = ...
    ) -> RunWatch[Entry]: ...
    @overload
    def attach(
        self, run_id: str, *, after: int = ..., deltas: Literal[True]
    ) -> RunWatch[Entry | Delta]: ...
    def attach(
        self, run_id: str, *, after: int = 0, deltas: bool = False
    ) -> RunWatch[Any]:
        """Watch a run, in whichever process it is at work: `async for entry in runtime.attach(run_id)`.

        Raises `ConfigError` for an impossible argument; iterating raises `UnknownRun`, or `ConfigError` for an `after`
        that the run does not have.

        Args:
            run_id: the run, at work or not.
            after: the number of the last entry that was seen; those that follow come, from the first one by default.
            deltas: whether to give chunks of replies too, while the run is at work in this process.
        """
        return RunWatch(self.journal, self.feeds, run_id, after=after, deltas=deltas)

    async def drain(self, *, until: float | None = None) -> list[Result]:
        """Resume the runs whose time has come, without a worker, and return their results as they end.

        These are runs that were released, and suspended or waiting ones with a `wake_at` that has passed: for one that
        comes up to `until` (wall clock, seconds) this waits, and for what this process does in the background: follow-ups,
        and runs whose watchers went away. A run that cannot be resumed is logged and left as it is.
        Schedules of this process fire meanwhile. Orphans are for a worker, or for `resume`.
        """
        if until is not None and not 0 <= until <= MAX_SECONDS:
            raise ConfigError(
                f"until: must be a wall time in seconds, at most {MAX_SECONDS:g}, got {until!r}"
            )
        results: list[Result] = await self.unwatched.drain()
        wakes = Wakes(
            self, self.schedules, resume=self.resume, can_do=self.follow_ups.can_do, join=self._background.join
        )  # fmt: skip
        return results + await wakes.drain(until)

    async def schedule(
        self,
        name: str,
        agent: str | Agent[Any],
        task: str,
        *,
        cron: str,
        zone: str = "UTC",
        missed: Missed = "once",
        overlap: Overlap = "skip",
        by: str = "",
        principal: Principal | None = None,
    ) -> Schedule:
        """Have an agent work on a task at the times of a cron line, each once over all workers of the journal.

        The runs are named `NAME.gGENERATION@INSTANT`, and have the tag `schedule`. One that is there already is changed,
        so that an application may call this whenever it starts. Raises `ConfigError` for what cannot be scheduled.

        Args:
            name: letters, digits, "_" and "-".
            agent: an agent of this runtime, or the name of an engine. Only workers that have it fire the schedule.
            task: what it is asked.
            cron: five fields ("0 9 * * 1-5"), needs CronSim (extra `schedule`). A line that never fires is refused.
            zone: the time zone of the line ("Europe/Berlin").
            missed: times without a worker: "once" for one run that makes up for all, "skip", or "all" for one each, at
                most 100.
            overlap: a time at which the last run is still at work: "skip" it, or "queue" one run.
            by: who asks for it.
            principal: who starts its runs; gates see it at each of their calls.
        """
        given = name_agent(agent, self.agents), task, cron, zone, missed, overlap
        return await self.schedules.add(name, Definition(*given, self.app_version, principal), by=by)  # fmt: skip

    @property
    def schedules(self) -> Schedules:
        """The schedules of the journal, to list, pause, run and delete them."""
        return Schedules(
            self.journal, self.clock, self.redactor, agents=self.agents, build_engine=self.engine,
            find_principal=self.find_principal,
        )  # fmt: skip

    async def runs(
        self,
        where: RunFilter | None = None,
        *,
        limit: int | None = None,
        before: str | None = None,
        engines: Iterable[LoopEngine] = (),
        accepts: Iterable[str] = (),
    ) -> list[ListedRun]:
        """Return the runs of the journal, newest first, each with what this process lacks to resume it.

        Args:
            where: selects runs; `None` for all.
            limit: how many at most.
            before: lists those that began before this run, for the next page.
            engines: engines of your own that no distribution registers, as for `Worker`.
            accepts: versions of the application that this code can replay beside its own, as for `Worker`.
        """
        versions = accepted_versions(self.app_version, accepts)
        names = {*available_engines(), *(engine.name for engine in engines)}
        listed = await list_runs(self.journal, where, limit, before)
        can_do = self.follow_ups.can_do
        return [ListedRun.of(info, names, versions, can_do) for info in listed]

    async def metrics(self, where: RunFilter | None = None) -> RunMetrics:
        """Return how the runs of the journal went: counts, success rate, means, what waits, is due or was given up.

        Needs no telemetry SDK. `where` selects runs. The circuit breakers are those of this process.
        """
        states, now = self.breakers.states(), self.clock.wall()
        return await consult(measure_runs, self.journal, states, now, where)

    async def due(self) -> list[ListedRun]:
        """Return the follow-ups that are not done, the newest first: those that are due, wait or have failed."""
        return await self.runs(UNDONE_FOLLOW_UPS)

    async def threads(
        self, where: RunFilter | None = None, *, limit: int | None = None
    ) -> list[ThreadInfo]:
        """Return the threads of the journal, newest turn first; `where` selects them by the last turn of each."""
        return await consult(list_threads, self.journal, where, limit)

    async def resolve(self, run_id: str, key: str, resolution: Resolution) -> None:
        """Answer a waiting run's question about a call whose outcome is unknown.

        The resolution is `CallCompleted(result)`, `CallNotExecuted()` or `OutcomeUnknown()`; `key` is that of the
        question in `result.pending`. It takes effect when the run is resumed. Any process with the journal may answer.
        Raises `ConfigError` for a call that the run does not ask about.
        """
        await self.control(run_id).resolve(key, resolution)

    def control(self, run_id: str) -> RunControl:
        """Return the control of a run of this journal, in any process: pause, steer, approve …"""
        return RunControl(
            self.journal, self.redactor, run_id, self.clock, self.command_signer
        )

    async def _rebuild_engine(self, run_id: str) -> LoopEngine:
        """Rebuild the engine of a run from its recorded name and options."""
        started = read_start(run_id, await read_run(self.journal, run_id))
        if started.agent:
            return self.agents.find(started.agent, run_id).rebuild(started)
        if started.engine == FOLLOW_UP:
            return build_follow_up_engine(self, self.follow_ups, started.options)
        if started.opaque:
            raise ConfigError(
                f"{', '.join(started.opaque)}: this option of run {run_id!r} is code or a live object, "
                f"which no journal holds: build the {started.engine} engine again and call its resume()"
            )
        try:
            return build_recorded(self.engine, started.engine, started.options)
        except ConfigError as error:
            cure = f"an engine that is not installed is resumed with YourEngine(runtime).resume({run_id!r})"
            raise ConfigError(
                f"run {run_id!r} cannot be rebuilt: {error}; {cure}"
            ) from None

    async def __aenter__(self) -> Self:
        """Enter a context that closes what the runtime created."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the runtime; see `aclose`. After an error, what is done in the background is left to other processes."""
        if kind is not None:
            await self._background.release()
            await self.unwatched.release()
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for what is done in the background; close idle threads and a provider that was built by name.

        That is follow-ups, and runs whose watchers went away; if this is cancelled, they are left to other processes.
        Services that were passed in stay open.
        """
        try:
            await self.unwatched.drain()
            await self._background.join()
        finally:
            self.worker_threads.close()
            close = getattr(self._owned_provider, "aclose", None)
            if close is not None:
                await close()
