"""`replay-check`: replay stored runs with the code that is installed, and report which of them diverge."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..engine import LoopEngine
from ..errors import ConfigError
from ..events.run import RunStarted
from ..gates.base import Suspend
from ..runtime import Runtime
from ..testing.replay_report import ReplayReport, check_runs
from .config import CommandOptions, build_limits, load_output_model, open_journal
from .config_file import open_composition, rebuild_composed
from .inspect_runs import STATUSES
from .run import open_services, rebuild_engine, run_and_close
from .text import clean, json_text


def check_replays(
    file: str, chosen: CommandOptions, *, status: str | None, as_json: bool
) -> int:
    """Replay the runs of a journal; print each that diverges, or all as JSON; return the exit status."""
    if status not in (None, *STATUSES):
        raise ConfigError(
            f"--status: must be one of {', '.join(STATUSES)}, got {status!r}"
        )
    journal, output = open_journal(file), load_output_model(chosen.output)
    composition, services = None, dict[str, Any]()
    if chosen.config is None:
        services = open_services(chosen, Suspend(), journal)
    else:
        composition = open_composition(chosen, Suspend(), journal=journal)

    def find(run_id: str, started: RunStarted) -> LoopEngine:
        if composition is not None:
            return rebuild_composed(composition, started)
        limits = build_limits(chosen.limits, started.limits)
        runtime = Runtime(limits=limits, **services)
        return rebuild_engine(runtime, run_id, started, None, chosen)

    async def work() -> list[ReplayReport]:
        outputs = [output] if output else []
        return await check_runs(journal, find, status=status, outputs=outputs)

    reports = asyncio.run(run_and_close(journal, work))
    _print_reports(reports, as_json=as_json)
    return int(not all(report.ok for report in reports))


def _print_reports(reports: Sequence[ReplayReport], *, as_json: bool) -> None:
    for report in reports:
        if as_json:
            sys.stdout.write(f"{json_text(_describe(report))}\n")
        elif not report.ok:
            line = f"{report.run_id}\t{report.outcome}\t{report.problem}"
            sys.stdout.write(f"{clean(line)}\n")
    sys.stdout.flush()
    counts = Counter(report.outcome for report in reports)
    parts = [f"{number} {outcome}" for outcome, number in sorted(counts.items())]
    sys.stderr.write(f"{', '.join(parts) or 'no runs'}\n")


def _describe(report: ReplayReport) -> dict[str, str | bool]:
    return {
        "run_id": report.run_id, "engine": report.engine, "app_version": report.app_version, "ok": report.ok,
        "outcome": report.outcome, "key": report.key, "problem": report.problem,
    }  # fmt: skip
