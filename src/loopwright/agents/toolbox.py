"""AgentsToolbox: tools with which the model of one agent gives work to others, and agents that come with the library."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from ..engines.react import ReActEngine
from ..errors import ConfigError, PhaseError
from ..messages import Conversation, Effect, Json, JsonObject
from ..tools.base import Tool
from ..tools.child_call import ChildCall
from ..tools.registry import ToolRegistry, Tools
from .agent import Agent

Preset: TypeAlias = Literal["explore", "research", "code", "plan"]
"""The name of an agent that comes with the library."""
Access: TypeAlias = Literal["reads inside", "reads", "all"]
"""Which tools of the runtime an agent has: those that only read and send nothing out, all that read, or all."""


class AgentHost(Protocol):
    """What the toolbox needs of a runtime."""

    @property
    def tools(self) -> ToolRegistry:
        """Return its tools."""
        ...

    @property
    def agents(self) -> Mapping[str, Any]:
        """Return its agents by name."""
        ...

    def agent(
        self, name: str, *, instructions: str, tools: Tools | None, description: str
    ) -> Agent[None]:
        """Define an agent."""
        ...


@dataclasses.dataclass(frozen=True)
class PresetAgent:
    """What an agent that comes with the library is made of."""

    description: str
    instructions: str
    access: Access


PRESETS: dict[Preset, PresetAgent] = {
    "explore": PresetAgent(
        "finds out how things are: looks through files and data, changes nothing, and reports what is where",
        "You explore. Look through what you can read, from the whole to the parts, and change nothing. Report what you "
        "found, where it is, and what you did not find. Do not guess.",
        "reads inside",
    ),
    "research": PresetAgent(
        "answers a question from sources: searches, reads, compares, and names each source",
        "You research. Search and read, compare what the sources say, and say where they differ. Name the source of each "
        "fact, and say what you could not find. Do not guess.",
        "reads",
    ),
    "code": PresetAgent(
        "writes and changes code: makes the change, runs the tests, and reports what it did",
        "You write code. Read what is there first, change only what the task needs, and run what checks it. Report what you "
        "changed and what the checks said. Say so if something does not work.",
        "all",
    ),
    "plan": PresetAgent(
        "writes a plan: steps in order, what each needs and how one sees that it is done; carries nothing out",
        "You plan. Read what you need, then write the steps in order: for each what to do, what it needs, and how one sees "
        "that it is done. Name what can go wrong. Carry nothing out.",
        "reads inside",
    ),
}


class AgentsToolbox:
    """Tools with which a model gives work to the agents of a runtime: `delegate`, `ask_agent` and `list_agents`.

    `delegate(agent, task)` has an agent work on a task with its own tools, as a child of the run, on what is left of the
    budget; several in one turn work at the same time. `ask_agent(agent, question)` is one question to its model, without
    tools. An agent that is not there, that is at work around the call, or that would be too deep is refused before
    anything of it runs, and the model reads why. Pass the toolbox as one of the tools of a runtime or an agent; agents
    that are defined later are on offer from the next model call on.

    Args:
        runtime: the runtime whose agents these are.
        agents: their names; empty is all agents of the runtime.
        presets: agents that come with the library, to define in the runtime unless it has one of that name: "explore",
            "research", "code", "plan".
        effect: what `delegate` is for the gate.
    """

    def __init__(
        self,
        runtime: AgentHost,
        agents: Iterable[str] = (),
        *,
        presets: Iterable[Preset] = (),
        effect: Effect = "write",
    ) -> None:
        self._runtime = runtime
        self._effect: Effect = effect
        wanted = list_names("presets", presets)
        for name in wanted:
            define_preset(runtime, name)
        self._names = list_names("agents", agents)
        if self._names:
            self._names += tuple(name for name in wanted if name not in self._names)
        self._offered: tuple[str, ...] = ()
        self._tools: tuple[Tool, ...] = ()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, which list the agents that there are now."""
        offered = self._names or tuple(self._runtime.agents)
        if offered != self._offered or not self._tools:
            self._offered, self._tools = offered, self._build(offered)
        return self._tools

    async def refresh(self) -> tuple[Tool, ...]:
        """Return the tools as they are now."""
        return self.tools

    def _build(self, offered: Sequence[str]) -> tuple[Tool, ...]:
        listed = functools.partial(self._describe, offered)
        about = f"Agents:\n{listed()}"
        delegate = Tool(
            "delegate",
            f"Have an agent work on a task with its own tools, and get its answer. {about}",
            _build_schema(offered, "task", "what to find out or do, in full: the agent knows nothing else"),
            _refuse_outside_run,
            self._effect,
            engine=AgentChoice(self._runtime),
            child=ChildCall(_open("task"), choose=self._choose(offered, _get_engine)),
            source="engine",
        )  # fmt: skip
        ask = Tool(
            "ask_agent",
            f"Ask an agent one question, which it answers at once and without tools. {about}",
            _build_schema(offered, "question", "the question, in full"),
            _refuse_outside_run,
            "read",
            engine=AgentChoice(self._runtime),
            child=ChildCall(_open("question"), choose=self._choose(offered, _get_single_turn)),
            source="engine",
        )  # fmt: skip
        schema: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}  # fmt: skip
        listing = Tool(
            "list_agents", "List the agents and what each is for.", schema, listed, "read",
            trusted=True, repeatable=True, source="engine",
        )  # fmt: skip
        return delegate, ask, listing

    def _describe(self, offered: Sequence[str]) -> str:
        agents = self._runtime.agents
        found = [(name, agents.get(name)) for name in offered]
        lines = [f"- {name}: {_describe(agent)}" for name, agent in found]
        return "\n".join(lines) or "(none)"

    def _choose(
        self, offered: Sequence[str], get: Callable[[Agent[Any]], Any]
    ) -> Callable[[JsonObject], Any]:
        def choose(arguments: JsonObject) -> Any:
            name = str(arguments["agent"])
            agent = self._runtime.agents.get(name)
            if agent is None or name not in offered:
                there = [each for each in offered if each in self._runtime.agents]
                known = ", ".join(there) or "none"
                raise ConfigError(
                    f"agent: there is no agent {name!r} to give work to; there are {known}"
                )
            return get(agent)

        return choose


@dataclasses.dataclass(frozen=True)
class AgentChoice:
    """Stands for the agent of a call until the model names one."""

    runtime: AgentHost
    name: str = "agents"


def define_preset(runtime: AgentHost, name: Preset) -> Agent[Any]:
    """Define an agent that comes with the library, unless the runtime has one of that name; return it.

    It has the tools of the runtime that it needs: "explore" and "plan" those that only read and send nothing out,
    "research" all that read, "code" all. Raises `ConfigError` for an unknown name.
    """
    if name not in PRESETS:
        raise ConfigError(
            f"presets: must be some of {', '.join(PRESETS)}, got {name!r}; define other agents with runtime.agent(...)"
        )
    if name in runtime.agents:
        existing: Agent[Any] = runtime.agents[name]
        return existing
    preset = PRESETS[name]
    tools = None if preset.access == "all" else _select_tools(runtime, preset.access)
    return runtime.agent(
        name, instructions=preset.instructions, tools=tools, description=preset.description
    )  # fmt: skip


def _select_tools(runtime: AgentHost, access: Access) -> list[Tool]:
    """Return the tools of a runtime that only read."""
    reading = [tool for tool in runtime.tools if tool.effect == "read"]
    return [tool for tool in reading if access == "reads" or not tool.outbound]


def _get_engine(agent: Agent[Any]) -> Any:
    return agent.engine


def _get_single_turn(agent: Agent[Any]) -> Any:
    """Return an engine that answers as the agent, in one model call without tools."""
    services = agent.engine.runtime.with_tools(ToolRegistry(()))
    return ReActEngine(services, max_iterations=1)


def _describe(agent: Agent[Any] | None) -> str:
    return getattr(agent, "description", "") or "any task"


def _open(name: str) -> Callable[[JsonObject, Conversation], Conversation]:
    """Return what opens the conversation of an agent with an argument of the call."""

    def open_call(arguments: JsonObject, _caller: Conversation) -> Conversation:
        return Conversation.of(str(arguments[name]))

    return open_call


def _build_schema(offered: Sequence[str], argument: str, about: str) -> JsonObject:
    agent: dict[str, Json] = {"type": "string", "description": "the name of the agent"}
    if offered:
        agent["enum"] = list(offered)
    text: dict[str, Json] = {"type": "string", "pattern": r"\S", "description": about}
    return {
        "type": "object",
        "properties": {"agent": agent, argument: text},
        "required": ["agent", argument],
        "additionalProperties": False,
    }


def list_names(option: str, given: Iterable[Any]) -> tuple[Any, ...]:
    """Return names as a tuple; raise `ConfigError` for a single text."""
    if isinstance(given, str):
        raise ConfigError(f"{option}: must be a list of names, got {given!r}; put it into a list")  # fmt: skip
    return tuple(given)


def _refuse_outside_run(**_: Any) -> str:
    raise PhaseError("agents work in a run only; give the toolbox to a Runtime")
