"""`runs`, `show` and `verify`: list the runs of a journal, show one, check it."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import get_args

from ..clock import SystemClock
from ..errors import ConfigError, JournalError
from ..events.entry import Entry
from ..events.run import RunSuspended, Status
from ..events.timeline import Line, Timeline
from ..journals.base import RESUMABLE, RunInfo, Verification
from ..journals.capabilities import list_page
from ..journals.claims import LeaseWatch, get_watch, is_orphaned
from ..journals.listing import UNDONE_FOLLOW_UPS, ListedRun, RunFilter
from ..plugins import available_engines
from .config import open_journal, resolve_journal
from .progress import format_full_line, format_line, format_table
from .questions import format_questions
from .terminal import Screen, is_terminal
from .text import clean, json_text

STATUSES = tuple(dict.fromkeys([*RESUMABLE, *get_args(Status)]))
HEADINGS = ("run", "engine", "status", "created", "entries", "parent")


def choose_runs(
    status: str | None,
    tags: dict[str, str],
    thread: str,
    engine: str,
    text: str,
    *,
    due: bool = False,
) -> RunFilter:
    """Return the filter of a list, with `due` of follow-ups; raise `ConfigError` for an unknown status."""
    if status not in (None, *STATUSES):
        raise ConfigError(
            f"--status: must be one of {', '.join(STATUSES)}, got {status!r}"
        )
    given = RunFilter(status or (), engine, "", thread, tags, text=text)
    if not due:
        return given
    undone = UNDONE_FOLLOW_UPS
    return dataclasses.replace(
        given, engine=undone.engine, status=status or undone.status
    )


def list_runs(
    journal: str | None,
    where: RunFilter,
    limit: int | None,
    versions: frozenset[str] | None = None,
    *,
    as_json: bool,
) -> int:
    """List the runs that a filter selects, newest first; `versions` are those that are served, `None` for all."""
    opened, engines = open_journal(journal), available_engines()
    infos = list_page(opened, where, limit)
    found = [ListedRun.of(info, engines, versions) for info in infos]
    watch = get_watch(opened, SystemClock())
    if as_json:
        for listed in found:
            write(json_text(_describe_run(listed, watch)))
    elif found:
        write_table(HEADINGS, (_format_row(listed, watch) for listed in found))
    else:
        sys.stderr.write(_report_no_runs(journal, *where.statuses))
    return 0


def show_run(run_id: str, journal: str | None, *, as_json: bool, full: bool) -> int:
    """Show a run's timeline, or each of its entries as a line of JSON."""
    entries = open_journal(journal).read(run_id)
    if as_json:
        for entry in entries:
            write(json_text(_describe_entry(entry)))
        return 0
    width = len(str(len(entries)))
    timeline = Timeline()
    show = _choose_writer(full=full)
    for entry in entries:
        for line in timeline.lines(entry):
            show(line, f"{line.seq:>{width}}  ")
    last = entries[-1].event if entries else None
    if isinstance(last, RunSuspended):
        for text in format_questions(run_id, last.pending, journal):
            write(text)
    return 0


def _choose_writer(*, full: bool) -> Callable[[Line, str], None]:
    """Return what writes a line of a timeline, given the text before it: drawn on a terminal, plain in a pipe."""
    if is_terminal(sys.stdout):
        screen = Screen(sys.stdout)
        return lambda line, before: screen.show(line, before=before, full=full)
    format_text = format_full_line if full else format_line
    return lambda line, before: write(format_text(line, before=before))


def verify_runs(run_id: str | None, journal: str | None, *, head: str | None) -> int:
    """Check one run, or all of them; return 1 if an entry was changed, cut off or lost."""
    opened = open_journal(journal)
    if run_id is not None:
        return int(not _report_check(opened.verify(run_id, head)))
    infos = opened.runs()
    if not infos:
        sys.stderr.write(_report_no_runs(journal))
    damaged = [info for info in infos if not _report_check(opened.verify(info.run_id))]
    return int(bool(damaged))


def write(line: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(line + "\n")


def write_table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Write a table to standard output: drawn on a terminal, plain in a pipe."""
    if is_terminal(sys.stdout):
        Screen(sys.stdout).show_table(headings, rows)
        return
    for line in format_table(headings, rows):
        write(line)


def _report_check(check: Verification) -> bool:
    run_id = clean(check.run_id)
    if check.ok:
        write(f"{run_id}: {check.entries} entries, intact; head {check.head_hash}")
    else:
        write(f"{run_id}: damaged at entry {check.seq}: {clean(check.problem)}")
    return check.ok


def _report_no_runs(journal: str | None, status: str | None = None) -> str:
    which = f"{status} runs" if status else "runs"
    return f"no {which} in {clean(resolve_journal(journal))}\n"


def _format_row(listed: ListedRun, watch: LeaseWatch) -> tuple[str, ...]:
    info = listed.info
    parent = f"{info.parent_run} at {info.fork_seq}" if info.parent_run else ""
    return (
        info.run_id,
        info.engine,
        _describe_status(listed, watch),
        _format_time(info.created),
        str(info.head_seq),
        parent,
    )


def _describe_status(listed: ListedRun, watch: LeaseWatch) -> str:
    """Return a run's status, and what is missing to resume it."""
    status = _describe_work(listed.info, watch)
    if listed.missing == "engine":
        return f"{status}, engine not installed"
    if listed.missing == "version":
        return f"{status}, version {listed.info.app_version or 'unnamed'} not served"
    return status


def _describe_work(info: RunInfo, watch: LeaseWatch) -> str:
    """Return a run's status, with what the word alone does not say."""
    if info.status == "released":
        return "released (to a worker)"
    if info.status != "running":
        return info.status
    left = watch.compute_left(info)
    if is_orphaned(info, watch):
        reason = "its lease has expired" if left < 0 else "its process is gone"
        return f"running ({reason})"
    if info.lease_until is None:
        return "running"
    if watch.can_compare_clock(info):
        return f"running (leased for {left:.0f} s)"
    # One look does not show whether it is still renewed.
    until = _format_time(info.lease_until)
    return f"running (leased to another machine until {until} by its clock)"


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _describe_run(listed: ListedRun, watch: LeaseWatch) -> dict[str, object]:
    info = listed.info
    return {
        "run_id": info.run_id,
        "engine": info.engine,
        "status": info.status,
        "orphaned": is_orphaned(info, watch),
        "installed": info.engine in available_engines(),
        "missing": listed.missing,
        "lease_until": info.lease_until,
        "created": info.created,
        "entries": info.head_seq,
        "head_hash": info.head_hash,
        "parent_run": info.parent_run,
        "fork_seq": info.fork_seq,
        "version": info.version,
        "app_version": info.app_version,
        "tags": dict(info.tags),
        "thread": info.thread,
        "agent": info.agent,
        "wake_at": info.wake_at,
        "damage": info.damage,
    }


def _describe_entry(entry: Entry) -> dict[str, object]:
    try:
        body: object = json.loads(entry.payload)
    except ValueError as error:
        raise JournalError(f"entry {entry.seq} cannot be read: {error}") from None
    return {
        "seq": entry.seq,
        "key": entry.key,
        "kind": entry.kind,
        "at": entry.at,
        "event": body,
    }
