"""Agent: an engine with instructions, tools, limits and an answer type of its own, under a name."""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar, Unpack, cast, get_args, overload

from pydantic import BaseModel

from .._internal import dataclasses
from .._internal.sync import LOOP_THREAD
from .._kernel.phases.output_type import OutputType
from .._kernel.session.instructions import InstructionContext as InstructionContext
from .._kernel.session.instructions import Instructions as Instructions
from .._kernel.session.instructions import fill_template
from .._kernel.session.services import Services
from ..engine import LoopEngine, ResumeOptions, RunOptions, Task
from ..errors import ConfigError
from ..events.entry import Entry
from ..events.followups import PlannedFollowUp
from ..events.lifecycle import read_start
from ..events.run import RunStarted
from ..handle import RunHandle
from ..hooks.base import PlannedHook
from ..journals.access import read_run
from ..limits import Limits
from ..messages import Effect
from ..plugins import load_engine_class
from ..prompts import Template
from ..providers.base import Delta
from ..providers.context.choice import choose_policy
from ..result import Result
from ..settings.configured_engine import rebind as rebind_engine
from ..tools.base import Tool
from ..tools.registry import ToolRegistry, Tools
from .handoff import Handoff, build_handoff_tools
from .next_turn import Busy
from .recorded_engine import build_recorded
from .thread import Thread, TurnOptions
from .tool import History, build_child_call, read_input

Answer = TypeVar("Answer", covariant=True)
Model = TypeVar("Model")


@dataclasses.dataclass(frozen=True)
class AgentDefinition:
    """What an agent is made of, beside its engine; see `Runtime.agent`."""

    name: str
    instructions: Instructions = ""
    tools: Tools | None = None
    output: type[Any] | None = None
    description: str = ""
    limits: Limits | None = None
    after: tuple[PlannedFollowUp, ...] | None = None
    handoffs: Iterable["str | Agent[Any] | Handoff"] = ()
    context: object = None
    hooks: tuple[PlannedHook, ...] = ()

    def __post_init__(self) -> None:
        given: object = self.instructions
        is_text = isinstance(given, (str, Template))
        if not is_text and not callable(given):
            raise ConfigError(
                f"instructions: must be a text, a Template or a function, got {given!r:.80}"
            )
        description: Any = self.description
        limits: Any = self.limits
        if not isinstance(description, str):
            raise ConfigError(f"description: must be a text, got {description!r:.80}")
        if limits is not None and not isinstance(limits, Limits):
            raise ConfigError(f"limits: must be Limits(...), got {limits!r:.80}")
        if self.output is str:
            raise ConfigError("output: a text is what every run answers; leave it out")
        # Types are read when a run needs them, since they may name what is defined later.
        if self.output is not None and not _is_read_late(self.output):
            OutputType[Any](self.output)

    def adapt(self, runtime: Services) -> Services:
        """Return the services of a runtime as the agent has them."""
        tools, limits = self.tools, self.limits or runtime.limits
        transfers = build_handoff_tools(self.name, self.handoffs, runtime.agents)
        own = None if tools is None else ToolRegistry(tools)
        if own is not None and runtime.has_own_knowledge:
            kept = own.without_tools(runtime.replaced_tools)
            own = kept.with_tools(*runtime.knowledge_tools)
        if transfers:
            own = (own or runtime.tools).with_tools(*transfers)
        instructions = self.instructions or None
        context = None if self.context is None else choose_policy(self.context)
        return runtime.with_agent(
            self.name,
            instructions,
            tools=own,
            limits=limits,
            after=self.after,
            context=context,
            hooks=self.hooks,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Agent(Generic[Answer]):
    """An engine with instructions of its own, and a name by which its runs are resumed; `Runtime.agent` defines one.

    Args:
        name: its name.
        engine: its engine, with the tools, limits and instructions of the agent.
        description: what it is for.
        output: the type as which its answers are read, or `None`.
    """

    name: str
    engine: LoopEngine
    description: str = ""
    output: type[Any] | None = None
    agents: Mapping[str, "Agent[Any]"] = dataclasses.field(
        default_factory=dict[str, "Agent[Any]"], repr=False
    )
    """The agents of its runtime, by name."""

    @overload
    async def run(
        self, task: Task, *, output: None = ..., **options: Unpack[RunOptions]
    ) -> Result[Answer | None]: ...
    @overload
    async def run(
        self, task: Task, *, output: type[Model], **options: Unpack[RunOptions]
    ) -> Result[Model | None]: ...
    async def run(
        self,
        task: Task,
        *,
        output: type[Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> Result[Any]:
        """Work on a task to its end, as `LoopEngine.run` does; `output` takes precedence over the agent's own."""
        return await self.start(task, output=output, **options).result()

    @overload
    def run_sync(
        self, task: Task, *, output: None = ..., **options: Unpack[RunOptions]
    ) -> Result[Answer | None]: ...
    @overload
    def run_sync(
        self, task: Task, *, output: type[Model], **options: Unpack[RunOptions]
    ) -> Result[Model | None]: ...
    def run_sync(
        self,
        task: Task,
        *,
        output: type[Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> Result[Any]:
        """`run` for synchronous callers; works in Jupyter and beside a running loop."""
        own = output or self.output
        self.check_deps(options.get("deps"))
        return LOOP_THREAD.run(self.engine.run(task, output=own, **options))

    @overload
    def start(
        self,
        task: Task,
        *,
        output: type[Any] | None = ...,
        deltas: Literal[False] = ...,
        **options: Unpack[RunOptions],
    ) -> RunHandle[Entry, Any]: ...
    @overload
    def start(
        self,
        task: Task,
        *,
        output: type[Any] | None = ...,
        deltas: Literal[True],
        **options: Unpack[RunOptions],
    ) -> RunHandle[Entry | Delta, Any]: ...
    def start(
        self,
        task: Task,
        *,
        output: type[Any] | None = None,
        deltas: bool = False,
        **options: Unpack[RunOptions],
    ) -> RunHandle[Any, Any]:
        """Return a handle on a new run, as `LoopEngine.start` does."""
        own = output or self.output
        self.check_deps(options.get("deps"))
        if deltas:
            return self.engine.start(task, output=own, deltas=True, **options)
        return self.engine.start(task, output=own, **options)

    @overload
    async def resume(
        self,
        run_id: str,
        *,
        output: type[Any] | None = ...,
        deltas: Literal[False] = ...,
        **options: Unpack[ResumeOptions],
    ) -> Result[Any]: ...
    @overload
    async def resume(
        self,
        run_id: str,
        *,
        output: type[Any] | None = ...,
        deltas: Literal[True],
        **options: Unpack[ResumeOptions],
    ) -> RunHandle[Entry | Delta, Any]: ...
    async def resume(
        self,
        run_id: str,
        *,
        output: type[Any] | None = None,
        deltas: bool = False,
        **options: Unpack[ResumeOptions],
    ) -> Result[Any] | RunHandle[Any, Any]:
        """Continue a run of this agent where its journal ends, as `LoopEngine.resume` does.

        Raises `ConfigError` for a run of another agent.
        """
        journal = self.engine.runtime.journal
        started = read_start(run_id, await read_run(journal, run_id))
        if started.agent != self.name:
            of = f"agent {started.agent!r}" if started.agent else "no agent"
            raise ConfigError(f"run {run_id!r} is of {of}, not of {self.name!r}")
        engine, own = self.rebuild(started), output or self.output
        if deltas:
            return await engine.resume(run_id, output=own, deltas=True, **options)
        return await engine.resume(run_id, output=own, **options)

    def resume_sync(
        self,
        run_id: str,
        *,
        output: type[Any] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> Result[Any]:
        """`resume` for synchronous callers."""
        return LOOP_THREAD.run(self.resume(run_id, output=output, **options))

    def thread(
        self,
        id: str,
        *,
        busy: Busy = "wait",
        **options: Unpack[TurnOptions],
    ) -> Thread[Answer]:
        """Return the conversation of that id with this agent, which the journal keeps; see `Thread`."""
        return Thread(self, id, busy=busy, **options)

    def check_deps(self, deps: object) -> None:
        """Raise `ConfigError` for dependencies that do not fill the template of the instructions."""
        instructions = self.engine.runtime.instructions
        if isinstance(instructions, Template):
            fill_template(instructions, deps)

    def rebuild(self, started: RunStarted) -> LoopEngine:
        """Return the engine of a run that was begun by this agent, with the options and limits of then."""
        limits: dict[str, Any] = dict(started.limits)
        services = _limit(self.engine.runtime, Limits(**limits))
        is_own = started.engine == self.engine.name
        if not started.opaque:

            def build(name: str, **options: Any) -> LoopEngine:
                return load_engine_class(name)(services, **options)

            kind = type(self.engine)
            own = functools.partial(kind, services) if is_own else None
            return build_recorded(build, started.engine, started.options, own)
        if not is_own:
            raise ConfigError(
                f"agent {self.name!r} has engine {self.engine.name!r} today, and the run {started.engine!r} with "
                f"{', '.join(started.opaque)}, which no journal holds"
            )
        return rebind(self.engine, services)

    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect = "write",
        input: type[BaseModel] | None = None,
        output: type[Any] | None = None,
        history: History = "none",
    ) -> Tool:
        """This agent as a tool of another, as in `LoopEngine.as_tool`; it keeps its instructions.

        Args:
            name: what the other agent calls; its own name by default.
            description: what the other agent reads; its own description by default.
            effect: its effect for the gate.
            input: a model class of the arguments, which it reads as JSON; without one there is a text, `task`.
            output: the type as which its answer is read, its own by default; the other agent reads it as JSON.
            history: what it sees of the other agent's conversation before its task: "none", the "last" message of the
                caller, "all" but system messages, or what a function selects.
        """
        about = description or self.description or None
        tool = self.engine.as_tool(
            name=name or self.name, description=about, effect=effect
        )
        schema = tool.schema if input is None else read_input(input)
        child = build_child_call(input, output or self.output, history)
        return dataclasses.replace(tool, schema=schema, child=child)


def define_agent(
    runtime: Services,
    engine: str | LoopEngine,
    definition: AgentDefinition,
    agents: Mapping[str, Agent[Any]],
) -> Agent[Any]:
    """Return an agent on the services of a runtime, beside the other agents of that."""
    services, given = definition.adapt(runtime), cast("object", engine)
    if isinstance(engine, str):
        engine = load_engine_class(engine)(services)
    elif not isinstance(given, LoopEngine):
        raise ConfigError(
            f"engine: must be an engine, or the name of one, got {given!r:.80}"
        )
    own, about = rebind(engine, services), definition.description
    return Agent(definition.name, own, about, definition.output, agents)


def rebind(engine: LoopEngine, services: Services) -> LoopEngine:
    """Return an engine with the same options on other services, and so the engines in it that have the same as it."""
    bound: LoopEngine = rebind_engine(engine, services)
    return bound


def _limit(services: Services, limits: Limits) -> Services:
    if limits == services.limits:
        return services
    agent, instructions = services.agent_name, services.instructions
    return services.with_agent(agent, instructions, tools=None, limits=limits)


def _is_read_late(output: object) -> bool:
    """Return whether a type may name what is defined later: a class, a generic type or an alias of a type."""
    is_alias = type(output).__name__ == "TypeAliasType"
    return is_alias or isinstance(output, type) or bool(get_args(output))
