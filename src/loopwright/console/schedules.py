"""The schedules of a journal as the page shows and changes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..agents.schedules import Definition, Schedules, name_agent
from ..clock import SystemClock
from ..errors import CodecError, ConfigError, JournalError, UnknownRun
from ..journals.capabilities import ScheduleJournal
from ..plugins import available_engines
from ..principals import Principal, read_principal
from ..runtime import Runtime
from ..schedules.base import Schedule
from ..schedules.cron import find_next
from ..security.redaction import Redactor
from .service import ConsoleService
from .threads import call_in_thread
from .users import ConsoleUser

TEXTS = ("task", "cron", "zone", "missed", "overlap")
STATES = ("pause", "unpause", "run", "delete")
"""What is done with a schedule that is there."""


class ConsoleSchedules:
    """Lists, adds, pauses, runs and deletes the schedules of a console's journal."""

    def __init__(self, service: ConsoleService, runtime: Runtime | None) -> None:
        self._service, self._runtime = service, runtime
        self._journal = service.records.journal
        self._clock = SystemClock() if runtime is None else runtime.clock

    def find_problem(self) -> str:
        """Return why there are no schedules; empty if there may be."""
        journal: object = self._journal
        if isinstance(journal, ScheduleJournal):
            return ""
        return f"{type(journal).__name__} keeps none; use a journal that does, such as SQLiteJournal"

    @property
    def _schedules(self) -> Schedules:
        if self._runtime is not None:
            return self._runtime.schedules
        return Schedules(self._journal, self._clock, Redactor())

    async def list(self, user: ConsoleUser) -> dict[str, Any]:
        """Return the schedules that a user sees, each with its next time and its last run."""
        found = await self._find_all(user)
        described = await call_in_thread(lambda: [self._describe(one) for one in found])
        agents = () if self._runtime is None else sorted(self._runtime.agents)
        return {
            "schedules": described,
            "agents": [*agents, *sorted(available_engines())],
            "problem": user.find_problem("admin"),
        }

    async def change(
        self, body: Mapping[str, Any], user: ConsoleUser
    ) -> dict[str, Any]:
        """Add or change a schedule, or do one of `STATES` with it; return its name."""
        action, name = body.get("action"), body.get("name")
        if not isinstance(name, str) or action not in ("add", *STATES):
            raise ConfigError(
                f"action, name: must be add, {', '.join(STATES)}, and a schedule's name, got {action!r:.40}, {name!r:.80}"
            )
        known = await self._find_known(name, user, is_new=action == "add")
        if action == "add":
            given = self._define(body, user, known)
            await self._schedules.add(name, given, by=user.name)
            return {"name": name}
        made = await getattr(self._schedules, action)(name)
        return {"name": name, "run": made if action == "run" else ""}

    async def _find_all(self, user: ConsoleUser) -> Sequence[Schedule]:
        known = await self._schedules.list()
        return [one for one in known if user.reaches(_find_tenant(one))]

    async def _find_known(
        self, name: str, user: ConsoleUser, *, is_new: bool
    ) -> Schedule | None:
        """Return the schedule of a name; raise `ConfigError` for that of another tenant, as if it were not there."""
        try:
            known = await self._schedules.find(name)
            is_reached = known is None or user.reaches(_find_tenant(known))
        except CodecError:
            # It may be of any tenant.
            known, is_reached = None, not user.tenant
        if is_reached:
            return known
        raise ConfigError(
            f"name: {name!r} is taken; choose another"
            if is_new
            else f"name: there is no schedule {name!r:.80}"
        )

    def _define(
        self, body: Mapping[str, Any], user: ConsoleUser, known: Schedule | None
    ) -> Definition:
        defaults = {"zone": "UTC", "missed": "once", "overlap": "skip"}
        given: dict[str, Any] = {name: body.get(name, defaults.get(name, "")) for name in TEXTS}  # fmt: skip
        for name, value in given.items():
            if not isinstance(value, str):
                raise ConfigError(f"{name}: must be a text, got {value!r:.80}")
        agent = str(body.get("agent", ""))
        version = "" if known is None else known.app_version
        if self._runtime is not None:
            agent = name_agent(agent, self._runtime.agents)
            version = self._runtime.app_version
        elif not agent:
            raise ConfigError("agent: name the agent or the engine that works on it")
        principal = user.sender if isinstance(user.sender, Principal) else None
        if known is not None and (known.agent, known.task) == (agent, given["task"]):
            # Other work is in the name of the user who says what it is: no user starts runs in another's name.
            principal = read_principal(known.principal)
        return Definition(agent, **given, app_version=version, principal=principal)

    def _describe(self, schedule: Schedule) -> dict[str, Any]:
        next_at, problem = self._find_next(schedule)
        status = ""
        if schedule.last_run:
            try:
                status = self._service.records.find(schedule.last_run).status
            except (UnknownRun, JournalError):  # deleted, or not begun yet
                status = ""
        return {
            **vars(schedule),
            "next_at": next_at,
            "problem": problem,
            "last_status": status,
        }

    def _find_next(self, schedule: Schedule) -> tuple[float | None, str]:
        """Return the next time of a schedule, and why it cannot be known."""
        if schedule.paused:
            return None, ""
        after = max(schedule.seen_until, self._clock.wall())
        try:
            return find_next(schedule.cron, schedule.zone, after), ""
        except ConfigError as error:  # without the extra, or of another version
            return None, str(error)


def _find_tenant(schedule: Schedule) -> str:
    return "" if schedule.principal is None else str(schedule.principal["tenant"])
