"""Agents: the agents of a runtime by name."""

from collections.abc import Iterator, Mapping
from typing import Any

from .._internal.regex import compile_late
from ..errors import ConfigError
from ..events.followups import FOLLOW_UP
from ..plugins import available_engines
from .agent import Agent

NAME = compile_late(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Agents(Mapping[str, Agent[Any]]):
    """The agents of a runtime, by name. `Runtime.agent` adds one."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent[Any]] = {}
        self._is_closed = False

    def check_name(self, name: object) -> None:
        """Raise `ConfigError` for a name that no new agent can have."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ConfigError(
                f"name: must be letters, digits, '_' and '-', at most 64, got {name!r:.80}"
            )
        if self._is_closed:
            raise ConfigError(
                f"name: agent {name!r} comes too late, a worker serves already; define agents before"
            )
        if name in self._agents:
            raise ConfigError(f"name: there is an agent {name!r} already; take another")
        if name in (FOLLOW_UP, *available_engines()):
            raise ConfigError(f"name: {name!r} is the name of an engine; take another")

    def add(self, agent: Agent[Any]) -> Agent[Any]:
        """Add an agent whose name was checked; return it."""
        self._agents[agent.name] = agent
        return agent

    def close(self) -> None:
        """Refuse agents from now on: a worker serves the runs of those there are."""
        self._is_closed = True

    def find(self, name: str, run_id: str) -> Agent[Any]:
        """Return the agent of a run; raise `ConfigError` if it is not there."""
        if name in self._agents:
            return self._agents[name]
        known = ", ".join(self._agents) or "none"
        raise ConfigError(
            f"run {run_id!r} is of agent {name!r}, and this runtime has {known}; "
            f"define it with runtime.agent({name!r}, ...)"
        )

    def __getitem__(self, name: str) -> Agent[Any]:
        return self._agents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)
