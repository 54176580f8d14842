"""Where reflections are kept from one run to the next: in memory, or in a file of JSON lines."""

import asyncio
import json
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from pydantic import BaseModel, ValidationError

from ..errors import ConfigError


@runtime_checkable
class ReflectionStore(Protocol):
    """Keeps what was learnt from failed attempts at a task, for later runs of the same task.

    The engine calls it as effects of the run, so a recorded look-up is not made again on resume. One that was under way
    when the process died is made again: `keep` must not keep the same reflection twice.
    """

    async def recall(self, task: str) -> Sequence[str]:
        """The reflections on a task, oldest first."""
        ...

    async def keep(self, task: str, reflection: str) -> None:
        """Keep a reflection on a task, unless it is kept already."""
        ...


def task_key(task: str) -> str:
    """The same for tasks that are the same: those that differ in case, blanks and forms of the same letter only."""
    return " ".join(unicodedata.normalize("NFC", task).casefold().split())


class MemoryReflections:
    """Keeps reflections as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, None]] = {}

    async def recall(self, task: str) -> Sequence[str]:
        """The reflections on a task, oldest first."""
        return list(self._kept.get(task_key(task), ()))

    async def keep(self, task: str, reflection: str) -> None:
        """Keep a reflection once."""
        self._kept.setdefault(task_key(task), {})[reflection] = None


class _Line(BaseModel):
    task: str
    reflection: str


class FileReflections:
    """Keeps reflections in a file that only its owner may read (mode 0600), a JSON object a line, appended.

    A line that a crash left half-written is passed over. Several processes may use one file.

    Args:
        path: the file; it is made when the first reflection is kept. Its folder must exist.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.parent.is_dir():
            raise ConfigError(f"path: there is no folder {str(self._path.parent)!r}")

    async def recall(self, task: str) -> Sequence[str]:
        """The reflections on a task, oldest first; raises OSError if the file cannot be read."""
        return await asyncio.to_thread(self._read, task_key(task))

    async def keep(self, task: str, reflection: str) -> None:
        """Append a reflection, durably, unless the file has it; raises OSError if that fails."""
        await asyncio.to_thread(self._append, task, reflection)

    def _read(self, key: str) -> list[str]:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        lines = filter(None, map(_line, text.split("\n")))
        return list(
            dict.fromkeys(
                line.reflection for line in lines if task_key(line.task) == key
            )
        )

    def _append(self, task: str, reflection: str) -> None:
        if reflection in self._read(task_key(task)):
            return
        line = json.dumps({"task": task, "reflection": reflection}) + "\n"
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(file).st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            os.write(file, (("\n" if torn else "") + line).encode())
            os.fsync(file)
        finally:
            os.close(file)


def _line(text: str) -> _Line | None:
    try:
        return _Line.model_validate_json(text) if text.strip() else None
    except ValidationError:
        return None
