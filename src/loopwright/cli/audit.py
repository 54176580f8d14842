"""The command that says who allowed what, by which policy, and whether the journal is as it was signed."""

import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

from ..errors import ConfigError
from ..journals import Journal as JournalPort
from ..journals.audit import AuditRecord, audit
from ..journals.policy_check import check_policy
from ..security import KeyFile, check_anchors, read_anchors
from .config import open_journal
from .inspect_runs import write
from .options import Journal, end
from .text import clean, json_text, one_line

commands = typer.Typer(rich_markup_mode=None)


@commands.command("audit")
def audit_command(
    context: typer.Context,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run's id.")
    ] = None,
    all_runs: Annotated[
        bool, typer.Option("--all", help="All runs of the journal.")
    ] = False,
    output: Annotated[
        str, typer.Option("--format", metavar="text|jsonl|ocsf", help="What to print.")
    ] = "text",
    anchors: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Anchors that SignedHeads exported."),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Your file of public keys, for --anchors."),
    ] = None,
    journal: Journal = None,
) -> None:
    """Print who allowed or refused each call, by which policy version, and check the chain, the policy and the anchors.

    \b
    Example: loopwright audit --all --anchors anchors.jsonl --keys keys.json > audit-2026-05.txt
    Exit status: 0 all as it was, 1 something was changed or not allowed (on standard error), 2 wrong usage.
    """

    if (run is None) != all_runs:
        end(context, lambda: _refuse("audit: pass the id of one run, or --all"))
    if (anchors is None) != (keys is None):
        end(context, lambda: _refuse("audit: --anchors and --keys belong together"))
    end(context, lambda: print_audit(run, journal, output, anchors, keys))


def _refuse(problem: str) -> int:
    raise ConfigError(problem)


def print_audit(
    run_id: str | None,
    journal: str | None,
    output: str,
    anchors: str | None,
    keys: str | None,
) -> int:
    """Print the records of a run or of all, then what is wrong; return 1 if anything is."""
    if output not in FORMATS:
        raise ConfigError(f"--format: must be text, jsonl or ocsf, got {output!r}")
    opened = open_journal(journal)
    ids = [info.run_id for info in opened.runs()] if run_id is None else [run_id]
    problems = [*_print_runs(opened, ids, output)]
    if anchors is not None and keys is not None:
        report = check_anchors(opened, read_anchors(anchors), KeyFile.read(keys))
        problems += report.problems
        _write_note(f"{report.anchors} anchors name {report.runs} runs")
    for problem in problems:
        _write_note(f"problem: {problem}")
    return int(bool(problems))


def _print_runs(
    journal: JournalPort, run_ids: Iterable[str], output: str
) -> Iterable[str]:
    """Print the records of runs, and return what is wrong with them."""
    show = FORMATS[output]
    for run_id in run_ids:
        found = verify_policy(journal, run_id)
        if found:
            yield f"run {run_id!r}: {found}"
            continue
        for record in audit(journal.read(run_id)):
            write(show(record))


def verify_policy(journal: JournalPort, run_id: str) -> str:
    """Return what is wrong with the chain or the policy of a run; "" if nothing is."""
    found = journal.verify(run_id)
    if found.ok:
        found = check_policy(found, journal.read(run_id))
    return found.problem


def format_record(record: AuditRecord) -> str:
    """Return a record as a line for people."""
    at = datetime.fromtimestamp(record.at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    ending = record.outcome or ("started" if record.started else "not run")
    parts = [
        at, record.run_id, record.key, record.verdict, record.tool, f"[{record.effect}]", f"by {record.decided_by}",
        f"under {record.policy_version}", f"arguments {record.arguments_hash[:16]}", f"-> {ending}",
    ]  # fmt: skip
    reason = f" ({one_line(record.reason)})" if record.reason else ""
    return clean("  ".join(map(one_line, parts)) + clean(reason))


FORMATS: dict[str, Callable[[AuditRecord], str]] = {
    "text": format_record,
    "jsonl": lambda record: json_text(record.to_json()),
    "ocsf": lambda record: json_text(record.to_ocsf()),
}


def _write_note(text: str) -> None:
    """Write a line for people beside the records."""
    sys.stderr.write(clean(text) + "\n")
