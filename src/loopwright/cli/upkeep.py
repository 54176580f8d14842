"""The commands that take runs out of a journal, or put them in: delete, prune, export, import, backup."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

import typer

from ..errors import ConfigError
from ..journals.capabilities import RetainingJournal
from ..journals.listing import RunFilter
from ..principals import TENANT_TAG
from .config import open_journal
from .inspect_runs import write
from .options import Journal, Run, end
from .text import clean

Path: TypeAlias = Annotated[str, typer.Argument(metavar="PATH")]
Tags: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME=VALUE", help="Only runs with it. Repeatable."),
]
Thread: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="Only the runs of a conversation.")
]
By: TypeAlias = Annotated[
    str,
    typer.Option(
        "--by", metavar="NAME", help="Your name, for the record of the deletion."
    ),
]
AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def delete(
    context: typer.Context,
    run: Run,
    journal: Journal = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Delete the runs that continue it too.")
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Abort a run at work first.")
    ] = False,
    deleted_by: By = "",
) -> None:
    """Delete a run: its entries, its commands and what they occupied in the files.

    \b
    Example: loopwright delete run-17 --by Ada
    Exit status: 0, 1 if the run is at work or unknown, 2 for wrong usage or configuration.
    """

    async def work(opened: RetainingJournal) -> list[str]:
        return await opened.delete(
            run, cascade=cascade, abort=abort, deleted_by=deleted_by
        )

    end(context, lambda: _do(journal, work, "deleted"))


@commands.command()
def prune(
    context: typer.Context,
    journal: Journal = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Runs that began so long ago: 90s, 12h, 30d."),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help="Only runs that ended so. Repeatable."),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(metavar="N", help="Keep the newest N conversations."),
    ] = None,
    deleted_by: By = "",
) -> None:
    """Delete runs that have ended; a conversation goes as a whole or stays.

    \b
    Example: loopwright prune --older-than 30d --keep 100
    Exit status: 0, 1 if the journal cannot be written, 2 for wrong usage or configuration.
    """

    async def work(opened: RetainingJournal) -> list[str]:
        age = None if older_than is None else parse_age(older_than)
        return await opened.prune(
            older_than=age, status=status, keep=keep, deleted_by=deleted_by
        )

    end(context, lambda: _do(journal, work, "deleted"))


@commands.command()
def export(
    context: typer.Context,
    path: Path,
    run: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="RUN", help="A run. Repeatable."),
    ] = None,
    tag: Tags = None,
    thread: Thread = "",
    journal: Journal = None,
) -> None:
    """Write runs into a new file of JSON Lines, with those that they continue.

    \b
    Example: loopwright export ada.jsonl --tag user=42
    Exit status: 0, 1 if a run is at work or unknown, 2 for wrong usage or configuration.
    """

    async def work(opened: RetainingJournal) -> list[str]:
        where = RunFilter(tags=parse_tags(tag), thread=thread)
        is_filtered = where != RunFilter()
        return await opened.export(
            path, run or (), where=where if is_filtered else None
        )

    end(context, lambda: _do(journal, work, "exported"))


@commands.command("import")
def import_(context: typer.Context, path: Path, journal: Journal = None) -> None:
    """Put the runs of an export into a journal: all of them, or none.

    \b
    Example: loopwright import ada.jsonl --journal other.db
    Exit status: 0, 1 if the export is damaged, 2 for a name that is taken, wrong usage or configuration.
    """
    end(context, lambda: _do(journal, lambda opened: opened.import_(path), "imported"))


@commands.command()
def backup(context: typer.Context, path: Path, journal: Journal = None) -> None:
    """Copy one state of a journal and of its inbox to a new path, while runs are at work.

    \b
    Example: loopwright backup /backups/runs-2026-11-01.db
    Exit status: 0, 1 if the journal cannot be read, 2 for wrong usage or configuration.
    """

    async def work(opened: RetainingJournal) -> list[str]:
        await opened.backup(path)
        return [path]

    end(context, lambda: _do(journal, work, "written"))


def tag_tenant(tags: dict[str, str], tenant: str) -> dict[str, str]:
    """Return the tags of the runs of a tenant, if one is named."""
    return {**tags, TENANT_TAG: tenant} if tenant else tags


def parse_tags(given: list[str] | None) -> dict[str, str]:
    """Return tags of the form NAME=VALUE; raise `ConfigError` for any other."""
    pairs = [one.partition("=") for one in given or ()]
    for name, sign, _ in pairs:
        if not sign:
            raise ConfigError(f"--tag: must be NAME=VALUE, got {name!r}")
    return {name: value for name, _, value in pairs}


def parse_age(text: str) -> float:
    """Return an age such as `30d` in seconds; raise `ConfigError` for any other text."""
    found = AGE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"--older-than: must be a number with s, m, h or d, like 30d, got {text!r}"
        )
    return float(found[1]) * SECONDS[found[2]]


def _do(
    chosen: str | None,
    work: Callable[[RetainingJournal], Awaitable[list[str]]],
    verb: str,
) -> int:
    """Do something to a journal, and write a line for each thing that it names."""
    opened = open_journal(chosen)
    if not isinstance(opened, RetainingJournal):
        raise ConfigError(
            f"--journal: runs cannot be deleted or copied in a {type(opened).__name__}"
        )

    async def run() -> list[str]:
        try:
            return await work(opened)
        finally:
            await opened.close()

    for name in asyncio.run(run()):
        write(f"{clean(name)}: {verb}")
    return 0
