"""`metrics`: how the runs of a journal went."""

import time
from typing import Annotated

import typer

from .._internal import dataclasses
from ..journals.listing import RunFilter
from ..journals.metrics import RunMetrics, measure_runs
from .config import open_journal
from .inspect_runs import write
from .options import Journal, end
from .text import json_text
from .upkeep import Tags, parse_tags

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def metrics(
    context: typer.Context,
    journal: Journal = None,
    agent: Annotated[
        str, typer.Option(metavar="NAME", help="Only the runs of an agent.")
    ] = "",
    tag: Tags = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print how the runs of a journal went: counts, success rate, means, what waits, is due or was given up.

    \b
    Example: loopwright metrics --journal runs.db --tag team=mail
    Exit status: 0, 1 if the journal cannot be read, 2 for wrong usage or configuration.
    """

    def work() -> int:
        where = RunFilter(agent=agent, tags=parse_tags(tag))
        found = measure_runs(open_journal(journal), {}, time.time(), where)
        write(json_text(_describe(found)) if as_json else format_metrics(found))
        return 0

    end(context, work)


def _describe(found: RunMetrics) -> dict[str, object]:
    """Return metrics as JSON; the breakers are those of a process, and this one has none."""
    described = dataclasses.asdict(found)
    del described["breakers"]
    return {"total": found.total, **described}


def format_metrics(found: RunMetrics) -> str:
    """Return metrics as lines for people."""
    statuses = ", ".join(f"{count} {name}" for name, count in sorted(found.runs.items()))  # fmt: skip
    rate = None if found.success_rate is None else 100 * found.success_rate
    lines = [
        f"runs          {found.total} ({statuses or 'none'})",
        f"success       {_format(rate, ' %')}",
        f"time          {_format(found.seconds, ' s')}",
        f"model calls   {_format(found.llm_calls)}",
        f"tool calls    {_format(found.tool_calls)}",
        f"tokens        {_format(found.tokens)}",
        f"cost          {_format(found.cost)} each, {found.total_cost:.4f} in all",
        f"waiting       {found.waiting}",
        f"due           {found.due}",
        f"dead letters  {found.dead_letters}",
        f"escalations   {found.escalations}",
    ]
    if found.unreadable:
        lines.append(
            f"unreadable    {found.unreadable}, whose key is missing or which are damaged"
        )
    return "\n".join(lines)


def _format(mean: float | None, unit: str = "") -> str:
    return "-" if mean is None else f"{mean:.4g}{unit}"
