"""Composition: the runtime, agents and engines of a file."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from .._kernel.session.services import Observer, User
from ..agents.agent import Agent
from ..agents.agent_knowledge import OwnKnowledge
from ..clock import Clock
from ..engine import LoopEngine
from ..engines.assignee import check_assignees
from ..errors import ConfigError
from ..gates.base import Approver, Suspend
from ..journals.base import Journal
from ..knowledge.base import Knowledge
from ..labels import Classifier
from ..limits import ProgressRules
from ..providers.base import Provider
from ..providers.fallback import close_all
from ..runtime import Runtime
from ..security.redaction import Redactor
from ..security.secret_store import SecretStore
from ..tools.recovery import Retry
from .engines import EngineTables
from .file import (
    AgentTable,
    FileTables,
    RuntimeTable,
    ScheduleTable,
    read_file,
    suggest,
)
from .secrets import Environment, check_secrets
from .services import (
    KnowledgeStores,
    Providers,
    at,
    build_follow_ups,
    build_gates,
    build_limits,
    build_toolboxes,
    choose_tools,
    load_object,
    open_journal,
    open_settings,
)


class CodeServices(TypedDict, total=False):
    """The services of a runtime that are code, which no file holds; see `Runtime`."""

    journal: Journal
    """In the place of the journal that the file names."""
    providers: Mapping[str, Provider]
    """In the place of tables of the file, by their names: for tests, and for models that are code."""
    approver: Approver | Suspend | None
    user: User | None
    observers: Iterable[Observer]
    classifier: Classifier | None
    clock: Clock | None
    lease: float | None


@dataclasses.dataclass(frozen=True)
class Composition:
    """What a file describes; a context that closes what was opened for it.

    Args:
        runtime: the services; a run that was started from the file is resumed by `runtime.resume`, or by a `Worker` of
            the same file.
        agents: the agents by name.
        engines: the engines and pipelines by name.
        default: the name of the one that is meant where none is named; empty for none.
        schedules: what is done at times, by name; `add_schedules` puts it into the journal.
    """

    runtime: Runtime
    agents: Mapping[str, Agent[Any]]
    engines: Mapping[str, LoopEngine]
    default: str = ""
    schedules: Mapping[str, ScheduleTable] = dataclasses.field(
        default_factory=dict[str, ScheduleTable]
    )
    _providers: tuple[Provider, ...] = dataclasses.field(default=(), repr=False)
    _stores: tuple[Journal | Knowledge, ...] = dataclasses.field(default=(), repr=False)

    def choose(self, name: str = "") -> Agent[Any] | LoopEngine:
        """Return an agent, an engine or a pipeline of the file, by default the one that the file names.

        Raises `ConfigError` for a name that the file does not have.
        """
        known: dict[str, Agent[Any] | LoopEngine] = {**self.engines, **self.agents}
        chosen = name or self.default
        if chosen in known:
            return known[chosen]
        if chosen:
            raise ConfigError(f"agent: the file has no {chosen!r}; {suggest(chosen, known)}")  # fmt: skip
        raise ConfigError(
            f"agent: name one of {', '.join(known) or 'none'}, or write it into the file as runtime.agent"
        )

    async def add_schedules(self) -> None:
        """Put the schedules of the file into the journal, as `Runtime.schedule` does; a worker of the file does so.

        One that is there already is changed. One that is no longer in the file stays: delete it by its name.
        """
        for name, table in self.schedules.items():
            agent = self.choose(table.agent).name
            options = table.model_dump(exclude={"agent"})
            with at(f"schedules.{name}"):
                await self.runtime.schedule(name, agent, by="file", **options)

    async def __aenter__(self) -> Self:
        """Enter a context that closes what was opened for the file."""
        await self.runtime.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close what was opened for the file; see `Runtime.aclose`."""
        try:
            await self.runtime.__aexit__(kind, error, trace)
        finally:
            await self._close()

    async def aclose(self) -> None:
        """Close the runtime and what was opened for the file: providers, journal and knowledge."""
        try:
            await self.runtime.aclose()
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            await close_all(self._providers)
        finally:
            for store in self._stores:
                await store.close()


def load(path: str | os.PathLike[str], **services: Unpack[CodeServices]) -> Composition:
    """Return the runtime, agents, engines and pipelines that a TOML file describes.

    Everything is built now, so that whatever is wrong in the file is an error here. Relative paths are those of the
    current directory. Nothing is read from the network, and no file of a journal is opened before it is used.

    Args:
        path: the file, "agents.toml".
        services: what is code, see `CodeServices`.

    Raises:
        ConfigError: the file cannot be read; a key is unknown or has a wrong value; a name is not installed; a variable
            is not set; a secret stands in the file. The text names the file and the path of the key.
    """
    tables = read_file(path)
    with at(str(path)):
        check_secrets(tables)
        return _compose(tables, services)


def _compose(tables: FileTables, services: CodeServices) -> Composition:
    environment = Environment()
    models = Providers(tables.providers, environment, services.pop("providers", {}))
    toolboxes = build_toolboxes(tables, environment)
    known = KnowledgeStores(environment)
    stores = _open_stores(tables.runtime, services, environment, known)
    options: dict[str, Any] = {
        **_read_options(tables, toolboxes, environment),
        **stores,
        **services,
    }
    provider = models.choose(tables.runtime.provider)
    with at("runtime"):
        runtime = Runtime(
            provider, providers=models.named, prices=models.prices, **options
        )  # fmt: skip
    kinds = EngineTables(tables)
    agents = {
        name: _define_agent(name, table, runtime, kinds, toolboxes, tables, known)
        for name, table in tables.agents.items()
    }
    engines = {name: kinds.build(runtime, name, name) for name in kinds}
    journal = [one for one in (stores.get("journal"),) if one is not None]
    found = Composition(
        runtime, agents, engines, _choose_default(tables), tables.schedules, models.opened, (*journal, *known.opened)
    )  # fmt: skip
    if found.default:
        with at("runtime.agent"):
            found.choose()
    _check_names(tables, found)
    return found


def _open_stores(
    given: RuntimeTable,
    services: CodeServices,
    environment: Environment,
    known: KnowledgeStores,
) -> dict[str, Any]:
    """Return the journal of the file, unless code has one, and its knowledge."""
    knowledge = known.open(given.knowledge, "runtime.knowledge")
    found: dict[str, Any] = {"knowledge": knowledge}
    if "journal" not in services:
        found["journal"] = open_journal(given.journal, environment)
    return found


def _read_options(
    tables: FileTables, toolboxes: Mapping[str, list[Any]], environment: Environment
) -> dict[str, Any]:
    """Return what the file says of the runtime, beside models and stores."""
    given = tables.runtime
    names = toolboxes if given.toolboxes is None else given.toolboxes
    with at("runtime.progress"):
        progress = ProgressRules(**given.progress.model_dump())
    return {
        "tools": choose_tools(list(names), toolboxes, "runtime.toolboxes"),
        "gate": build_gates(tables, environment),
        "limits": build_limits(tables.limits, {}, "limits"),
        "default_recovery": _build_retry(given),
        "progress": progress,
        "settings": open_settings(given.settings, environment),
        "context": given.context,
        "on_unknown": given.on_unknown,
        "app_version": given.app_version,
        "lease": given.lease,
        "hooks": given.hooks,
        "after": build_follow_ups(given.after, "runtime.after"),
        "secrets": SecretStore(tables.secrets),
        "redactor": Redactor().with_new_secrets(environment.secrets),
    }


def _build_retry(given: RuntimeTable) -> tuple[Retry, ...]:
    """Return the recovery of tools without any of their own."""
    if given.retry is None:
        return ()
    with at("runtime.retry"):
        return (Retry(**given.retry.model_dump()),)


def _define_agent(
    name: str,
    table: AgentTable,
    runtime: Runtime,
    kinds: EngineTables,
    toolboxes: Mapping[str, list[Any]],
    tables: FileTables,
    known: KnowledgeStores,
) -> Agent[Any]:
    place = f"agents.{name}"
    if name in kinds:
        raise ConfigError(f"{place}: an engine of the file has the name already; take another")  # fmt: skip
    tools, after = table.toolboxes, None
    knowledge: OwnKnowledge = "runtime"
    if table.knowledge is not None:
        knowledge = known.open(table.knowledge, f"{place}.knowledge")
    if table.after is not None:
        after = build_follow_ups(table.after, f"{place}.after")
    output = load_object(table.output, f"{place}.output") if table.output else None
    engine = kinds.build(runtime, table.engine, f"{place}.engine" if isinstance(table.engine, dict) else place)  # fmt: skip
    with at(place):
        return runtime.agent(
            name,
            instructions=table.instructions,
            engine=engine,
            tools=None if tools is None else choose_tools(tools, toolboxes, f"{place}.toolboxes"),
            output=output,
            description=table.description,
            limits=build_limits(tables.limits, table.limits, f"{place}.limits"),
            after=after,
            handoffs=table.handoffs,
            context=table.context,
            knowledge=knowledge,
            hooks=table.hooks,
        )  # fmt: skip


def _choose_default(tables: FileTables) -> str:
    """Return the name that the file gives, or that of its only agent, engine or pipeline."""
    names = [*tables.agents, *tables.engines, *tables.pipelines]
    only = [*tables.agents] if len(tables.agents) == 1 else names
    return tables.runtime.agent or (only[0] if len(only) == 1 else "")


def _check_names(tables: FileTables, found: Composition) -> None:
    """Raise `ConfigError` for the name of an agent that the file does not have, or for agents that work for themselves."""
    for name, table in tables.agents.items():
        for other in table.handoffs:
            if other not in tables.agents:
                raise ConfigError(
                    f"agents.{name}.handoffs: there is no agent {other!r}; {suggest(other, tables.agents)}"
                )
    for name, engine in found.engines.items():
        with at(f"{'engines' if name in tables.engines else 'pipelines'}.{name}"):
            check_assignees(engine)
    for name, agent in found.agents.items():
        with at(f"agents.{name}.engine"):
            check_assignees(agent.engine)
    for name, schedule in tables.schedules.items():
        with at(f"schedules.{name}.agent"):
            if not isinstance(found.choose(schedule.agent), Agent):
                raise ConfigError(f"must be an agent of the file, got {schedule.agent!r}")  # fmt: skip
