"""Stores that keep reflections between runs: in memory, or in a file of JSON lines."""

import asyncio
import json
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from pydantic import BaseModel, ValidationError

from ..errors import ConfigError
from ..labels import Label, LabelledText, find_provenance, is_at_least


@runtime_checkable
class ReflectionStore(Protocol):
    """Keeps reflections on failed trials of a task for later runs of the same task.

    The engine calls it as effects of the run, so a recorded call is not repeated on resume. A call that was in flight
    when the process died is repeated: `keep` must not store the same reflection twice.

    A reflection is kept as a `LabelledText`, with the provenance of the run that made it. A store that returns it as
    one makes the run that recalls it as sensitive and as untrusted.
    """

    async def recall(self, task: str) -> Sequence[str]:
        """Return the reflections on a task, oldest first."""
        ...

    async def keep(self, task: str, reflection: str) -> None:
        """Store a reflection on a task unless it is stored already."""
        ...


def task_key(task: str) -> str:
    """Return the key of a task: equal for tasks that differ in case, whitespace and Unicode form only."""
    return " ".join(unicodedata.normalize("NFC", task).casefold().split())


class MemoryReflections:
    """Keeps reflections in the memory of the process."""

    def __init__(self) -> None:
        self._reflections: dict[str, dict[str, LabelledText]] = {}

    async def recall(self, task: str) -> Sequence[str]:
        """Return the reflections on a task, oldest first."""
        return list(self._reflections.get(task_key(task), {}).values())

    async def keep(self, task: str, reflection: str) -> None:
        """Store a reflection once, with the higher label if it is stored again."""
        kept = self._reflections.setdefault(task_key(task), {})
        kept[str(reflection)] = _merge(kept.get(reflection), reflection)


class _Line(BaseModel):
    task: str
    reflection: str
    label: Label = "public"
    untrusted: bool = False

    @property
    def text(self) -> LabelledText:
        """Return the reflection with its provenance."""
        return LabelledText(self.reflection, label=self.label, untrusted=self.untrusted)


class FileReflections:
    """Keeps reflections in a file that only its owner may read (mode 0600), one JSON object a line.

    A line that a crash left incomplete is skipped. Several processes may use one file.

    Args:
        path: the file, created with the first reflection. Its directory must exist.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.parent.is_dir():
            raise ConfigError(
                f"path: directory {str(self._path.parent)!r} does not exist; create it or pass another path"
            )

    async def recall(self, task: str) -> Sequence[str]:
        """Return the reflections on a task, oldest first; raise OSError if the file cannot be read."""
        return await asyncio.to_thread(self._read, task_key(task))

    async def keep(self, task: str, reflection: str) -> None:
        """Append a reflection durably unless the file has it; raise OSError if that fails."""
        await asyncio.to_thread(self._append, task, reflection)

    def _read(self, key: str) -> list[LabelledText]:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        kept: dict[str, LabelledText] = {}
        for line in filter(None, map(_parse_line, text.split("\n"))):
            if task_key(line.task) == key:
                known = kept.get(line.reflection)
                kept[line.reflection] = _merge(known, line.text)
        return list(kept.values())

    def _append(self, task: str, reflection: str) -> None:
        wanted = _merge(None, reflection)
        for known in self._read(task_key(task)):
            if known == reflection:
                wanted = _merge(known, reflection)
                if _provenance(wanted) == _provenance(known):
                    return
        fields: dict[str, object] = {"task": task, "reflection": str(reflection)}
        if wanted.untrusted or is_at_least(wanted.label, "sensitive"):
            fields |= {"label": wanted.label, "untrusted": wanted.untrusted}
        line = json.dumps(fields) + "\n"
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(file).st_size
            is_incomplete = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            os.write(file, (("\n" if is_incomplete else "") + line).encode())
            os.fsync(file)
        finally:
            os.close(file)


def _merge(known: LabelledText | None, text: str) -> LabelledText:
    """Return a text with the higher label of what is known of it, and untrusted if either is."""
    label, untrusted = find_provenance([known or "", text])
    return LabelledText(text, label=label, untrusted=untrusted)


def _provenance(text: LabelledText) -> tuple[Label, bool]:
    """Return the provenance of a text, where "normal" says no more than "public"."""
    label: Label = text.label if is_at_least(text.label, "sensitive") else "public"
    return label, text.untrusted


def _parse_line(text: str) -> _Line | None:
    try:
        return _Line.model_validate_json(text) if text.strip() else None
    except ValidationError:
        return None
