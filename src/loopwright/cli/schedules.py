"""`schedule`: add, list, pause, run and delete the schedules of a journal."""

import asyncio
import datetime
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias

import typer

from ..agents.schedules import Definition, Schedules
from ..clock import SystemClock
from ..schedules.base import Schedule
from ..schedules.cron import find_next
from ..security.redaction import Redactor
from .config import open_journal
from .inspect_runs import write
from .options import Journal, end
from .text import clean

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME")]
By: TypeAlias = Annotated[
    str, typer.Option("--by", metavar="NAME", help="Your name, for the journal.")
]
Cron: TypeAlias = Annotated[
    str, typer.Option(metavar="LINE", help="Five fields, such as '0 9 * * 1-5'.")
]
AgentName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--agent", metavar="NAME", help="The agent, or the engine, that does it."
    ),
]
Zone: TypeAlias = Annotated[
    str, typer.Option(metavar="ZONE", help="The time zone: Europe/Berlin.")
]
HowMissed: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="HOW", help="Times without a worker: once, skip or all (100)."
    ),
]
HowOverlap: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="HOW", help="Times while its last run is at work: skip or queue."
    ),
]
Version: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="VERSION", help="The version of the workers that begin its runs."
    ),
]

commands = typer.Typer(
    help="Have agents work on tasks at the times of a cron line; workers begin the runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@commands.command()
def add(
    context: typer.Context,
    name: Name,
    task: Annotated[str, typer.Argument(metavar="TASK")],
    cron: Cron,
    agent: AgentName = "react",
    zone: Zone = "UTC",
    missed: HowMissed = "once",
    overlap: HowOverlap = "skip",
    app_version: Version = "",
    by: By = "",
    journal: Journal = None,
) -> None:
    """Add a schedule, or change the one of that name.

    \b
    Example: loopwright schedule add digest 'Sum up the news.' --cron '0 9 * * 1-5' --zone Europe/Berlin
    Exit status: 0, 1 if the journal cannot be written, 2 for wrong usage or configuration.
    """
    choices: dict[str, Any] = {"missed": missed, "overlap": overlap}
    given = Definition(agent, task, cron, zone, app_version=app_version, **choices)

    async def work(schedules: Schedules) -> list[str]:
        return [_format(await schedules.add(name, given, by=by))]

    end(context, lambda: _do(journal, work))


@commands.command("list")
def list_(
    context: typer.Context,
    journal: Journal = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each.")
    ] = False,
) -> None:
    """List the schedules, each with its next time and its last run.

    \b
    Example: loopwright schedule list --journal runs.db
    Exit status: 0, 1 if the journal cannot be read, 2 for wrong usage or configuration.
    """

    async def work(schedules: Schedules) -> list[str]:
        found = await schedules.list()
        return [_describe(one) if as_json else _format(one) for one in found]

    end(context, lambda: _do(journal, work))


@commands.command()
def pause(context: typer.Context, name: Name, journal: Journal = None) -> None:
    """Pause a schedule; its times pass.

    \b
    Example: loopwright schedule pause digest
    Exit status: 0, 1 if the journal cannot be written, 2 for an unknown schedule.
    """
    _change(context, journal, lambda schedules: schedules.pause(name))


@commands.command()
def unpause(context: typer.Context, name: Name, journal: Journal = None) -> None:
    """Let a paused schedule continue with its next time.

    \b
    Example: loopwright schedule unpause digest
    Exit status: 0, 1 if the journal cannot be written, 2 for an unknown schedule.
    """
    _change(context, journal, lambda schedules: schedules.unpause(name))


@commands.command()
def run(context: typer.Context, name: Name, journal: Journal = None) -> None:
    """Have a schedule run now: a worker begins it, once the run before has ended. Prints the id of the run.

    \b
    Example: loopwright schedule run digest
    Exit status: 0, 1 if the journal cannot be written, 2 for an unknown schedule.
    """

    async def work(schedules: Schedules) -> list[str]:
        return [await schedules.run(name)]

    end(context, lambda: _do(journal, work))


@commands.command()
def delete(context: typer.Context, name: Name, journal: Journal = None) -> None:
    """Delete a schedule; its runs stay.

    \b
    Example: loopwright schedule delete digest
    Exit status: 0, 1 if the journal cannot be written, 2 for an unknown schedule.
    """
    _change(context, journal, lambda schedules: schedules.delete(name))


def _change(
    context: typer.Context,
    journal: str | None,
    change: Callable[[Schedules], Awaitable[Schedule]],
) -> None:
    async def work(schedules: Schedules) -> list[str]:
        return [_format(await change(schedules))]

    end(context, lambda: _do(journal, work))


def _do(chosen: str | None, work: Callable[[Schedules], Awaitable[list[str]]]) -> int:
    """Do something to the schedules of a journal, and write the lines that it gives."""
    opened = open_journal(chosen)

    schedules = Schedules(opened, SystemClock(), Redactor())

    async def run() -> list[str]:
        try:
            return await work(schedules)
        finally:
            await opened.close()

    for line in asyncio.run(run()):
        write(line)
    return 0


def _find_next(schedule: Schedule) -> float | None:
    if schedule.paused or schedule.deleted:
        return None
    after = max(schedule.seen_until, SystemClock.wall())
    return find_next(schedule.cron, schedule.zone, after)


def _format(schedule: Schedule) -> str:
    """Return a schedule in a line: name, state, line, agent and last run."""
    next_at = _find_next(schedule)
    state = "deleted" if schedule.deleted else "paused"
    if next_at is not None:
        at = datetime.datetime.fromtimestamp(next_at, datetime.UTC)
        state = f"next {at:%Y-%m-%d %H:%M} UTC"
    last = schedule.last_run or "no run yet"
    when = f"{schedule.cron} {schedule.zone}"
    return clean("\t".join((schedule.name, state, when, schedule.agent, last)))


def _describe(schedule: Schedule) -> str:
    found = {**json.loads(schedule.encode()), "next_at": _find_next(schedule)}
    return json.dumps(found)
