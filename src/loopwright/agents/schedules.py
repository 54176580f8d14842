"""Schedules: add, list, pause and delete the schedules of a journal, and store the runs whose time has come."""

import asyncio
import math
from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from .._internal import dataclasses
from .._internal.log import logger
from ..clock import Clock
from ..engine import LoopEngine
from ..errors import (
    CodecError,
    ConfigError,
    JournalError,
    LoopwrightError,
    format_error,
)
from ..journals.access import list_unfinished
from ..journals.base import Journal, NewRun, format_id_taken
from ..journals.capabilities import ScheduleJournal
from ..labels import check_unlabelled
from ..plugins import available_engines
from ..principals import FindPrincipal, Principal
from ..schedules.base import Missed, Overlap, Schedule, ScheduleStore
from ..schedules.cron import check_cron, find_next
from ..schedules.plan import GRACE, plan_step
from ..security.redaction import Redactor
from .agent import Agent
from .recorded_principals import find_starter

TAG = "schedule"
"""The tag of the runs of a schedule, with its name."""
RETRY_SECONDS = 30.0
"""Seconds until a schedule that failed to fire is tried again."""
MAX_ATTEMPTS = 20
"""Times that a change is tried while other processes change the same schedule."""
FAILURES = (LoopwrightError, ValueError, TypeError, OverflowError)
"""What a schedule raises that cannot fire: its agent is gone, or what is stored of it was changed."""
NOT_AT_WORK = ("parked", "damaged")
"""The statuses of unfinished runs that no process continues by itself."""


@dataclasses.dataclass(frozen=True)
class Definition:
    """What a caller says of a schedule; `Runtime.schedule` describes it."""

    agent: str
    task: str
    cron: str
    zone: str = "UTC"
    missed: Missed = "once"
    overlap: Overlap = "skip"
    app_version: str = ""
    principal: Principal | None = None


class Schedules:
    """The schedules of a journal. `Runtime.schedules` is one; `Runtime.schedule` adds to it.

    Args:
        journal: keeps them.
        clock: the source of time.
        redactor: removes secrets from tasks.
        agents: the agents of this process by name.
        build_engine: builds an engine by its name; `None` where no schedule of an engine fires.
        find_principal: returns who a schedule's runs are started by as they are now; `None`: as recorded.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        redactor: Redactor,
        *,
        agents: Mapping[str, Agent[Any]] = MappingProxyType({}),
        build_engine: Callable[[str], LoopEngine] | None = None,
        find_principal: FindPrincipal | None = None,
    ) -> None:
        self._find_principal = find_principal
        self._journal, self._clock, self._redactor = journal, clock, redactor
        self._store = _find_store(journal)
        self._agents, self._build_engine = agents, build_engine
        self._known: list[Schedule] = []
        self._mark: object = None
        self._next: dict[tuple[str, int], float | None] = {}
        self._retry_at: dict[str, float] = {}

    async def list(self) -> Sequence[Schedule]:
        """Return the schedules by name."""
        found = await asyncio.to_thread(self._require_store().read)
        return [one for one in found if not one.deleted]

    async def find(self, name: str) -> Schedule | None:
        """Return a schedule by its name; raise `CodecError` if the journal's codec cannot decode it."""
        found = await asyncio.to_thread(_find_schedule, self._require_store(), name)
        return None if found is None or found.deleted else found

    async def add(self, name: str, given: Definition, *, by: str = "") -> Schedule:
        """Add a schedule, or change the one of that name; return it as it is stored.

        One that is there and differs in nothing stays as it is. Raises `ConfigError` for a definition that cannot be.
        """
        redact = self._redactor.redact_text
        task: Any = given.task  # anything but a text is refused by `Schedule`
        check_unlabelled("task", task, "a schedule")
        task = redact(task) if isinstance(task, str) else task
        starter = None if given.principal is None else given.principal.to_json()
        changes: dict[str, Any] = {**vars(given), "task": task, "principal": starter}
        by = by or str(given.principal or "")
        _check_texts(name=name, cron=given.cron, zone=given.zone)
        check_cron(given.cron, given.zone, self._clock.wall())

        def change(known: Schedule | None) -> Schedule:
            now = self._clock.wall()
            if known is None:
                return Schedule(name, **changes, by=by, revision=1, seen_until=now)
            seen = max(now, known.seen_until)
            if known.deleted:
                generation = known.generation + 1
                return Schedule(
                    name, **changes, by=by, generation=generation, revision=known.revision + 1, seen_until=seen,
                )  # fmt: skip
            if (known.cron, known.zone) != (given.cron, given.zone):
                changes.update(seen_until=seen)
            changed = known.change(**changes, by=by)
            return known if changed.definition == known.definition else changed

        return await self._change(name, change)

    async def pause(self, name: str) -> Schedule:
        """Pause a schedule: its times pass, and what waits is dropped."""
        return await self._change_known(
            name, lambda known: known.change(paused=True, line=())
        )

    async def unpause(self, name: str) -> Schedule:
        """Let a paused schedule continue with its next time."""
        return await self._change_known(
            name,
            lambda known: known.change(
                paused=False, seen_until=max(self._clock.wall(), known.seen_until)
            ),
        )

    async def run(self, name: str) -> str:
        """Have a schedule run now, also a paused one, and return the id that its run will have.

        A worker that has its agent, or `Runtime.drain`, begins it, once the run before has ended.
        """
        now = self._clock.wall()
        asked = await self._change_known(
            name, lambda known: known.change(line=(now, *known.line))
        )
        return asked.run_id(now)

    async def delete(self, name: str) -> Schedule:
        """Delete a schedule; its runs stay. Adding it again begins a new generation, whose runs have other ids.

        One that was damaged, or that the journal's codec cannot decode, is deleted, too.
        """
        try:
            return await self._change_known(
                name,
                lambda known: known.change(
                    deleted=True, paused=False, task="", line=()
                ),
            )
        except CodecError:
            if not hasattr(self._require_store(), "find_revision"):
                raise
            return await self._delete_undecoded(name)

    async def fire_due(
        self, versions: Container[str] | None = None, *, grace: float = GRACE
    ) -> Sequence[str]:
        """Store the runs whose time has come, each once over all processes; return their ids.

        Only schedules fire whose agent or engine this process has, and whose version is one of `versions`, `None` for all.
        """
        store = self._store
        if store is None:
            return []
        now, fired = self._clock.wall(), list[str]()
        for schedule in await self._read(store):
            try:
                if self._is_due(schedule, versions, now):
                    fired += await self._fire(store, schedule, now, grace)
            except FAILURES as error:
                self._rest(schedule, error)
        return fired

    def _rest(self, schedule: Schedule, error: Exception) -> None:
        """Log why a schedule cannot fire, and leave it alone for a while."""
        cure = f"add it again, or delete it: loopwright schedule delete {schedule.name}"
        problem = f"{format_error(error)}; unless it passes, {cure}"
        logger().warning("schedule_not_fired", schedule=schedule.name, error=problem)
        self._retry_at[schedule.name] = self._clock.monotonic() + RETRY_SECONDS

    async def find_next(self) -> float:
        """Return the next wall time (seconds) at which a schedule of this process fires, infinite for never."""
        if self._store is None:
            return math.inf
        found = await self._read(self._store)
        times = [self._expect(one) for one in found if self._can_do(one, None)]
        now = self._clock.wall()
        return min(
            (time for time in times if time is not None and time > now),
            default=math.inf,
        )

    def _expect(self, schedule: Schedule) -> float | None:
        """Return the next time of a schedule; `None` for one that cannot fire, which `fire_due` logs."""
        try:
            return self._find_next_of(schedule)
        except FAILURES:
            return None

    # --- one schedule ---

    async def _read(self, store: ScheduleStore[NewRun]) -> Sequence[Schedule]:
        """Return the schedules, which are read again when something was written to the journal."""
        read_mark: object = getattr(self._journal, "head_mark", None)
        mark = read_mark() if callable(read_mark) else None
        if mark is None or mark != self._mark:
            found = await asyncio.to_thread(store.read)
            self._known = [one for one in found if not one.deleted]
            self._mark = mark
        return self._known

    def _is_due(
        self, schedule: Schedule, versions: Container[str] | None, now: float
    ) -> bool:
        """Return whether something is to happen about a schedule, and this process can do it."""
        if not self._can_do(schedule, versions):
            return False
        if self._clock.monotonic() < self._retry_at.get(schedule.name, 0.0):
            return False
        return bool(schedule.line) or self._has_passed(schedule, now)

    def _can_do(self, schedule: Schedule, versions: Container[str] | None) -> bool:
        """Return whether this process has what a schedule needs, and takes its version."""
        is_taken = versions is None or schedule.app_version in versions
        engines = () if self._build_engine is None else available_engines()
        return is_taken and schedule.agent in (*self._agents, *engines)

    def _has_passed(self, schedule: Schedule, now: float) -> bool:
        next_at = self._find_next_of(schedule)
        return next_at is not None and next_at <= now

    def _find_next_of(self, schedule: Schedule) -> float | None:
        """Return the next time of a schedule, which may have passed; `None` for none."""
        key = schedule.name, schedule.revision
        if schedule.paused:
            return None
        if key not in self._next:
            self._next = {one: at for one, at in self._next.items() if one[0] != key[0]}
            self._next[key] = find_next(
                schedule.cron, schedule.zone, schedule.seen_until
            )
        return self._next[key]

    async def _fire(
        self, store: ScheduleStore[NewRun], schedule: Schedule, now: float, grace: float
    ) -> Sequence[str]:
        is_at_work = bool(schedule.last_run) and await self._is_at_work(schedule)
        step = plan_step(schedule, now, is_at_work=is_at_work, grace=grace)
        if step is None:
            return []
        due = None
        if step.fires_at is not None:
            starter = await find_starter(step.schedule.principal, self._find_principal)
            due = self._build_run(step.schedule, step.fires_at, starter)
        self._mark = None
        is_stored = await store.store(step.schedule, due)
        return [due.header.run_id] if is_stored and due is not None else []

    async def _is_at_work(self, schedule: Schedule) -> bool:
        infos = await list_unfinished(self._journal)
        statuses = {info.run_id: info.status for info in infos}
        status = statuses.get(schedule.last_run)
        return status is not None and status not in NOT_AT_WORK

    def _build_run(
        self, schedule: Schedule, fires_at: float, principal: Principal | None
    ) -> NewRun | None:
        """Return the run of a time; `None` if it is there already."""
        engine, output = self._find_engine(schedule.agent)
        run_id, tags = schedule.run_id(fires_at), {TAG: schedule.name}
        try:
            return engine.plan(
                schedule.task, output=output, run_id=run_id, tags=tags, principal=principal
            )  # fmt: skip
        except ConfigError as error:
            if str(error) == format_id_taken(run_id):
                return None
            raise

    def _find_engine(self, name: str) -> tuple[LoopEngine, type[Any] | None]:
        """Return the engine of an agent with the type of its answers, or an engine by its own name."""
        agent = self._agents.get(name)
        if agent is not None:
            return agent.engine, agent.output
        if self._build_engine is None:
            raise ConfigError(
                f"agent: {name!r} is not defined in this process; define it with Runtime.agent"
            )
        return self._build_engine(name), None

    async def _change_known(
        self, name: str, change: Callable[[Schedule], Schedule]
    ) -> Schedule:
        """Change a schedule; raise `ConfigError` if there is none of that name."""

        def change_known(known: Schedule | None) -> Schedule:
            if known is None or known.deleted:
                raise ConfigError(
                    f"name: there is no schedule {name!r:.80}; list them by `loopwright schedule list`"
                )
            return change(known)

        return await self._change(name, change_known)

    async def _change(
        self, name: str, change: Callable[[Schedule | None], Schedule]
    ) -> Schedule:
        """Store what `change` makes of a schedule, again if another process changed it meanwhile."""
        store = self._require_store()
        for _ in range(MAX_ATTEMPTS):
            known = await asyncio.to_thread(_find_schedule, store, name)
            changed = change(known)
            if changed is known or await store.store(changed):
                self._mark = None
                return changed
        raise JournalError(
            f"schedule {name!r}: other processes changed it {MAX_ATTEMPTS} times meanwhile; try again"
        )

    async def _delete_undecoded(self, name: str) -> Schedule:
        """Delete a schedule of which only name and revision can be read."""
        store: Any = self._require_store()
        revision: int = await asyncio.to_thread(store.find_revision, name)
        # No generation is above its revision, so the next one has new ids.
        gone = Schedule(
            name, "", "", "", deleted=True, generation=revision + 1, revision=revision + 1
        )  # fmt: skip
        if not await store.store(gone):
            raise JournalError(
                f"schedule {name!r}: another process changed it meanwhile; try again"
            )
        self._mark = None
        return gone

    def _require_store(self) -> ScheduleStore[NewRun]:
        if self._store is None:
            raise ConfigError(
                f"journal: {type(self._journal).__name__} keeps no schedules; use one that does, such as SQLiteJournal"
            )
        return self._store


def _find_store(journal: object) -> ScheduleStore[NewRun] | None:
    """Return what keeps the schedules of a journal, if anything.

    A worker would ask at each look, and a protocol is slow to ask.
    """
    return journal.schedules if isinstance(journal, ScheduleJournal) else None


def _check_texts(**values: object) -> None:
    """Raise `ConfigError` for a value that is not a text, by its name."""
    for field, value in values.items():
        if not isinstance(value, str):
            raise ConfigError(f"{field}: must be a text, got {value!r:.80}")


def _find_schedule(store: ScheduleStore[NewRun], name: str) -> Schedule | None:
    """Return a schedule by its name, by the store's `find` where it has one."""
    find = getattr(store, "find", None)
    if find is not None:
        found: Schedule | None = find(name)
        return found
    return {one.name: one for one in store.read()}.get(name)


def name_agent(agent: str | Agent[Any], agents: Mapping[str, Agent[Any]]) -> str:
    """Return the name of an agent or engine of this process; raise `ConfigError` for one that cannot be scheduled."""
    name = agent.name if isinstance(agent, Agent) else agent
    known = agents.get(name)
    if known is not None:
        known.check_deps(None)
    elif name not in available_engines():
        raise ConfigError(
            f"agent: there is no agent or engine {name!r:.80}; define it by runtime.agent(...) before"
        )
    return name
