"""`runs`, `show` and `verify`: readings of a journal."""

import json
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from typing import get_args

from ..errors import ConfigError, JournalError
from ..events.entry import Entry
from ..events.run import RunSuspended, Status
from ..journals.base import RESUMABLE, RunInfo, Verification, is_orphaned
from .config import journal_name, open_journal
from .progress import plain, plain_full, table
from .questions import answers
from .terminal import Screen, is_terminal
from .text import clean, json_text
from .timeline import Timeline

STATUSES = tuple(dict.fromkeys([*RESUMABLE, *get_args(Status)]))
HEADINGS = ("run", "engine", "status", "created", "entries", "parent")


def list_runs(journal: str | None, *, status: str | None, as_json: bool) -> int:
    """List the runs, newest first."""
    if status not in (None, *STATUSES):
        raise ConfigError(
            f"--status: must be one of {', '.join(STATUSES)}, got {status!r}"
        )
    found = [
        info for info in open_journal(journal).runs() if status in (None, info.status)
    ]
    if as_json:
        for info in found:
            write(json_text(_run_facts(info)))
    elif found:
        write_table(HEADINGS, (_row(info) for info in found))
    else:
        sys.stderr.write(_nothing(journal, status))
    return 0


def show_run(run_id: str, journal: str | None, *, as_json: bool, full: bool) -> int:
    """Show a run's timeline, or each of its entries as a line of JSON."""
    entries = open_journal(journal).read(run_id)
    if as_json:
        for entry in entries:
            write(json_text(_entry_facts(entry)))
        return 0
    width = len(str(len(entries)))
    timeline = Timeline()
    screen = Screen(sys.stdout) if is_terminal(sys.stdout) else None
    for entry in entries:
        for line in timeline.lines(entry):
            before = f"{line.seq:>{width}}  "
            if screen is not None:
                screen.show(line, before=before, full=full)
            else:
                write((plain_full if full else plain)(line, before=before))
    last = entries[-1].event if entries else None
    for text in answers(
        run_id, last.pending if isinstance(last, RunSuspended) else (), journal
    ):
        write(text)
    return 0


def verify_runs(run_id: str | None, journal: str | None, *, head: str | None) -> int:
    """Check one run, or all of them; 1 if an entry was changed, cut off or lost."""
    opened = open_journal(journal)
    if run_id is not None:
        return int(not _told(opened.verify(run_id, head)))
    infos = opened.runs()
    if not infos:
        sys.stderr.write(_nothing(journal))
    damaged = [info for info in infos if not _told(opened.verify(info.run_id))]
    return int(bool(damaged))


def write(line: str) -> None:
    """A line on standard output."""
    sys.stdout.write(line + "\n")


def write_table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """A table on standard output: drawn on a terminal, plain in a pipe."""
    if is_terminal(sys.stdout):
        Screen(sys.stdout).show_table(headings, rows)
        return
    for line in table(headings, rows):
        write(line)


def _told(check: Verification) -> bool:
    run_id = clean(check.run_id)
    if check.ok:
        write(f"{run_id}: {check.entries} entries, whole; head {check.head_hash}")
    else:
        write(f"{run_id}: damaged at entry {check.seq}: {clean(check.problem)}")
    return check.ok


def _nothing(journal: str | None, status: str | None = None) -> str:
    return f"no {status or ''} runs in {clean(journal_name(journal))}\n".replace(
        "  ", " "
    )


def _row(info: RunInfo) -> tuple[str, ...]:
    parent = f"{info.parent_run} at {info.fork_seq}" if info.parent_run else ""
    return (
        info.run_id,
        info.engine,
        _state(info, time.time()),
        _when(info.created),
        str(info.head_seq),
        parent,
    )


def _state(info: RunInfo, now: float) -> str:
    """A run's status, in words where the one word could mislead; `now` is the wall clock in seconds."""
    if info.status == "released":
        return "released (to a worker)"
    if info.status != "running":
        return info.status
    left = None if info.lease_until is None else info.lease_until - now
    if is_orphaned(info, now):
        return (
            "running (its process is gone)"
            if left is None or left >= 0
            else "running (its lease is over)"
        )
    return "running" if left is None else f"running (leased for {left:.0f} s)"


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _run_facts(info: RunInfo) -> dict[str, object]:
    return {
        "run_id": info.run_id,
        "engine": info.engine,
        "status": info.status,
        "orphaned": is_orphaned(info, time.time()),
        "lease_until": info.lease_until,
        "created": info.created,
        "entries": info.head_seq,
        "head_hash": info.head_hash,
        "parent_run": info.parent_run,
        "fork_seq": info.fork_seq,
        "version": info.version,
    }


def _entry_facts(entry: Entry) -> dict[str, object]:
    try:
        body: object = json.loads(entry.body)
    except ValueError as error:
        raise JournalError(f"entry {entry.seq} cannot be read: {error}") from None
    return {
        "seq": entry.seq,
        "key": entry.key,
        "kind": entry.kind,
        "at": entry.at,
        "event": body,
    }
