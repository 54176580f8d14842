"""Replay stored runs with today's code, without a model, a tool or a write, and report which of them diverge."""

import copy
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, cast

from .._internal import dataclasses
from .._kernel.durability.history import open_conversation
from .._kernel.durability.replay import Replay
from .._kernel.phases.engine_run import drive, open_cycle
from .._kernel.phases.execution import Execution
from .._kernel.phases.output_type import OutputType
from .._kernel.session.replay_end import ReplayEnd
from .._kernel.session.session import Session
from ..agents.agent import Agent
from ..engine import LoopEngine
from ..errors import ConfigError, JournalError, LoopwrightError, ReplayDivergence
from ..events.entry import Entry
from ..events.lifecycle import read_app_version, read_start
from ..events.run import RunFinished, RunStarted
from ..journals.access import list_runs, read_run
from ..journals.base import Journal, RunHeader, RunInfo
from ..journals.memory import MemoryJournal
from ..journals.owner import new_owner
from ..result import RunOutcome
from ..run import Run
from ..settings.configured_engine import configure

FindEngine = Callable[[str, RunStarted], LoopEngine]


@dataclasses.dataclass(frozen=True)
class ReplayReport:
    """Whether the current code can continue a run.

    `outcome` is "replayed", "diverged" at `key`, "skipped" for a run that ended aborted, which is not replayed, or
    "unchecked" where its engine or its output class is missing; `problem` says why in words.
    """

    run_id: str
    engine: str
    app_version: str
    outcome: Literal["replayed", "diverged", "skipped", "unchecked"]
    key: str = ""
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against a deploy of this code."""
        return self.outcome in ("replayed", "skipped")


async def replay_check(
    journal: Journal,
    engines: Iterable[LoopEngine] = (),
    *,
    agents: Iterable[Agent[Any]] = (),
    status: str | None = None,
    outputs: Iterable[Any] = (),
) -> list[ReplayReport]:
    """Replay the runs of a journal with engines and agents of today; return a report on each, the oldest first.

    The journal is only read. No model is called, no tool runs, and nothing is recorded: each run is replayed up to the
    place where something new would begin. Tool sources, such as MCP servers, are listed.

    Args:
        journal: the runs, such as a copy of the journal in production.
        engines: one engine for each name, built as the application builds it.
        agents: the agents, whose runs and turns are replayed with them: `runtime.agents.values()`.
        status: check runs of that status only, such as "waiting".
        outputs: the types of `output=` that runs were started with.
    """
    known = {engine.name: engine for engine in engines}
    by_name = {agent.name: agent for agent in map(_check_agent, agents)}
    own = [agent.output for agent in by_name.values() if agent.output is not None]

    def find(run_id: str, started: RunStarted) -> LoopEngine:
        if started.agent in by_name:
            return by_name[started.agent].rebuild(started)
        if started.agent:  # an engine of the same name may be that of any agent
            raise ConfigError(
                f"agents: run {run_id!r} is of agent {started.agent!r}, which is missing; pass it"
            )
        if started.engine not in known:
            raise ConfigError(
                f"engines: run {run_id!r} was made by engine {started.engine!r}, which is missing; pass it"
            )
        return known[started.engine]

    return await check_runs(journal, find, status=status, outputs=[*own, *outputs])


def _check_agent(agent: object) -> Agent[Any]:
    if isinstance(agent, Agent):
        return cast("Agent[Any]", agent)  # type: ignore[redundant-cast] # for basedpyright
    raise ConfigError(
        f"agents: must be agents, such as runtime.agents.values(), got {agent!r:.80}"
    )


async def check_runs(
    journal: Journal,
    find_engine: FindEngine,
    *,
    status: str | None = None,
    outputs: Iterable[Any] = (),
) -> list[ReplayReport]:
    """Replay runs with the engines that `find_engine` returns for their ids and starts."""
    found = [OutputType[Any](output, "outputs") for output in outputs]
    models = {output.name: output for output in found}
    infos = await list_runs(journal)
    wanted = [info for info in reversed(infos) if status in (None, info.status)]
    return [await _check_run(journal, info, find_engine, models) for info in wanted]


async def _check_run(
    journal: Journal,
    info: RunInfo,
    find_engine: FindEngine,
    models: dict[str, OutputType[Any]],
) -> ReplayReport:
    report = functools.partial(ReplayReport, info.run_id, info.engine)
    try:
        entries = await read_run(journal, info.run_id)
        started = read_start(info.run_id, entries)
    except LoopwrightError as error:
        return report("", "unchecked", problem=str(error))
    report = functools.partial(report, read_app_version(entries))
    last = entries[-1].event
    if isinstance(last, RunFinished):
        if last.status == "aborted":
            return report("skipped", problem="it was aborted")
        entries = entries[:-1]
    try:
        engine = find_engine(info.run_id, started)
        read_as = _find_output(started, models)
        await _replay(journal, engine, started, entries, read_as)
    except ReplayDivergence as error:
        return report("diverged", error.key, str(error))
    except LoopwrightError as error:
        return report("unchecked", problem=str(error))
    return report("replayed")


def _find_output(
    started: RunStarted, models: dict[str, OutputType[Any]]
) -> OutputType[Any] | None:
    if started.output is not None and started.output not in models:
        raise ConfigError(f"outputs: the run answers as {started.output}; pass it")
    return models.get(started.output or "")


async def _replay(
    journal: Journal,
    engine: LoopEngine,
    started: RunStarted,
    entries: Sequence[Entry],
    output: OutputType[Any] | None,
) -> None:
    """Drive an engine over recorded entries; raise `ReplayDivergence` where they differ."""
    engine = configure(engine, started.settings)
    session = _open_session(engine, entries)
    cycle = open_cycle(Run, session, engine, open_conversation(journal, started))
    solve = functools.partial(drive, Run, cycle, is_root=True)
    await _Rehearsal(cycle, output, solve).replay()


def _open_session(engine: LoopEngine, entries: Sequence[Entry]) -> Session:
    """Return a session over a copy of the entries in memory, which ends where the replay does."""
    journal, owner, first = MemoryJournal(), new_owner(), entries[0]
    services = copy.copy(engine.runtime)
    vars(services).update(journal=journal, observers=())
    header = RunHeader(first.run_id, engine.name, "{}", "", str(owner), first.at)
    claim = journal.create(header)
    journal.append(claim, entries)
    claim.head_seq, claim.head_hash = entries[-1].seq, entries[-1].hash
    replay = Replay(entries)
    session = Session(services, claim, owner, replay, None)
    session.replay_end = _ReplayLimit(replay, session.signals, session.writer)
    return session


class _ReplayOver(JournalError):
    """All that is recorded was replayed; nothing new may begin."""


class _ReplayLimit(ReplayEnd):
    """Ends the run where its replay ends: what is new meets a signal that no engine can swallow."""

    def finish(self) -> None:
        """Raise `ReplayDivergence` if an outcome is unused, unless the replay had ended before."""
        if not isinstance(self._signals.fatal, _ReplayOver):
            super().finish()

    def _end(self) -> None:
        if self._signals.fatal is None:
            self._signals.fatal = _ReplayOver("the replay is over")
        super()._end()


class _Rehearsal(Execution):
    """Replays a run without its end: no policy about the answer, no undoing, no closing entry."""

    async def replay(self) -> None:
        """Let the engine solve as far as the journal goes."""
        await self._finish_solving()

    async def _permit_answer(
        self, outcome: RunOutcome, output: Any
    ) -> tuple[RunOutcome, Any]:
        return outcome, output
