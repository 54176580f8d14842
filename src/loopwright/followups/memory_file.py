"""MEMORY.md: what a person always wants, one line each, in a file that people read and edit too."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from ..errors import KnowledgeError, LoopwrightError
from ..storage.kind import FileKind
from ..storage.lock import ProcessLock
from .extraction import find_topic

FILE = "MEMORY.md"
TITLE = "# Memory"
HEADING = "## Preferences"
MAX_LINES = 200
"""Preferences of one file; the oldest go first."""
PATIENCE = 5.0  # seconds
KIND = FileKind("memory file", "Memories", KnowledgeError, "another folder", FILE)
_LINE = re.compile(r"- (.+)")


def write_preferences(folder: str, scope: str, preferences: Sequence[str]) -> int:
    """Add preferences to the file of a scope, and return how many were new.

    One that there is one of at a time, such as a name, replaces the line before. Everything else in the file stays. A
    folder that is not there is made for the scope, never the one that was given. Raises `OSError`.
    """
    root = Path(folder)
    if not root.is_dir():
        raise OSError(f"memory_folder: {folder!r} is not a directory; create it")
    parts = [quote(part, safe=" ") for part in scope.split("/") if part.strip(".")]
    place = root.joinpath(*parts)
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = place / FILE
    try:
        with ProcessLock(place / f".{FILE}.lock", PATIENCE, KIND) as lock, lock.held():
            return _rewrite(path, preferences)
    except LoopwrightError as error:
        raise OSError(str(error)) from None


def _rewrite(path: Path, preferences: Sequence[str]) -> int:
    before = path.read_text(encoding="utf-8") if path.exists() else f"{TITLE}\n"
    head, lines, tail = _split(before)
    known = list(lines)
    for preference in preferences:
        topic = find_topic(preference)
        kept = [line for line in lines if not _is_superseded(line, preference, topic)]
        lines = kept if preference in kept else [*kept, preference]
    if lines == known:
        return 0
    listed = "".join(f"- {line}\n" for line in lines[-MAX_LINES:])
    written = path.with_name(f".{FILE}.{os.getpid()}")
    written.write_text(f"{head}{HEADING}\n\n{listed}{tail}", encoding="utf-8")
    written.replace(path)
    return len([line for line in lines if line not in known])


def _is_superseded(line: str, preference: str, topic: str) -> bool:
    return bool(topic) and line != preference and find_topic(line) == topic


def _split(text: str) -> tuple[str, list[str], str]:
    """Return what stands before the heading, the lines of its list, and what stands behind that."""
    head, heading, rest = text.partition(f"{HEADING}\n")
    if not heading:
        gap = "" if head.endswith("\n\n") else "\n"
        return f"{head}{gap}", [], ""
    lines: list[str] = []
    remaining = rest.lstrip("\n").splitlines(keepends=True)
    while remaining and (found := _LINE.fullmatch(remaining[0].rstrip("\n"))):
        lines.append(found[1])
        remaining.pop(0)
    return head, lines, "".join(remaining)
