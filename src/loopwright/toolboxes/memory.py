"""The tool `memory`: notes that a model keeps in text files below one directory, by the commands that models know."""

import itertools
import os
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from ..errors import ToolError
from ..labels import Label, check_label, is_at_least
from ..tools.base import Tool, ToolContext, tool
from .option_checks import check_counts
from .sandbox_root import SandboxRoot

MOUNT = "/memories"
"""Models call the directory so; paths with and without it mean the same."""
MAX_LISTED = 200
Command: TypeAlias = Literal[
    "view", "create", "str_replace", "insert", "delete", "rename"
]
Line = Annotated[int, Field(ge=0)]


def memory(
    root: str | os.PathLike[str], *, max_bytes: int = 100_000, label: Label = "normal"
) -> list[Tool]:
    """Return the tool `memory` for text files below `root`, which no path leaves.

    What a model reads there is not trusted. A run that has read something more sensitive than `label` may read, and
    not write: its notes would come back without that label.

    Args:
        root: the directory; one for each user or tenant.
        max_bytes: the largest file.
        label: how sensitive the notes are.

    Raises:
        ConfigError: `root` is not a directory, or is "/"; a limit is less than 1, or the label is unknown.
    """
    check_counts(max_bytes=max_bytes)
    check_label(label)
    notes = _Notes(SandboxRoot(root), max_bytes, label)
    return [
        tool(effect="write", label=label, name="memory", destinations=())(
            notes.use_memory
        )
    ]


def _need(value: str | None, name: str) -> str:
    if value is None:
        raise ToolError(f"{name}: is needed for this command")
    return value


class _Notes:
    """The text files of one directory."""

    def __init__(self, files: SandboxRoot, max_bytes: int, label: Label) -> None:
        self._files, self._max_bytes = files, max_bytes
        self._label: Label = label
        self._lock = threading.Lock()
        """Two changes in one turn must not both begin with the same text."""

    def use_memory(
        self,
        ctx: ToolContext[Any],
        command: Command,
        path: str = MOUNT,
        view_range: tuple[int, int] | None = None,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: Line | None = None,
        insert_text: str | None = None,
        old_path: str | None = None,
        new_path: str | None = None,
    ) -> str:
        """Keep notes for later talks in text files below /memories: view them first, and keep them short and current.

        Args:
            path: The file or folder, like "/memories/ada.md".
            view_range: For view: the first and the last line to show, from 1; -1 is the end.
            file_text: For create: all that the file shall contain.
            old_str: For str_replace: what stands there now, exactly once.
            new_str: For str_replace: what shall stand there.
            insert_line: For insert: the line behind which the text goes; 0 is the beginning.
            insert_text: For insert: the text.
            old_path: For rename: the file.
            new_path: For rename: its new name.
        """
        if command == "view":
            return self._view(path, view_range)
        self._check_label(ctx.label)
        changes: dict[str, Callable[[], str]] = {
            "create": lambda: self._create(path, _need(file_text, "file_text")),
            "str_replace": lambda: self._replace(path, _need(old_str, "old_str"), new_str or ""),
            "insert": lambda: self._insert(path, insert_line, _need(insert_text, "insert_text")),
            "delete": lambda: self._delete(path),
            "rename": lambda: self._rename(_need(old_path, "old_path"), _need(new_path, "new_path")),
        }  # fmt: skip
        with self._lock:
            return changes[command]()

    def _check_label(self, label: Label) -> None:
        """Refuse to keep what a run writes that has read something more sensitive than the notes."""
        if label != self._label and is_at_least(label, self._label):
            raise ToolError(
                f"this run has read something {label}, and notes here are {self._label}: they may be read only"
            )

    def _view(self, path: str, lines: tuple[int, int] | None) -> str:
        """Return a numbered file, or the names in a folder."""
        name = _below(path)
        if not name or self._is_folder(name):
            return self._list(name)
        numbered = enumerate(self._read(name).split("\n"), 1)
        first, last = lines or (1, -1)
        shown = [
            f"{number:>6}\t{line}"
            for number, line in numbered
            if first <= number and (last < 0 or number <= last)
        ]
        return "\n".join(shown) or "[no such lines]"

    def _create(self, path: str, text: str) -> str:
        """Write a file, in place of what it contained."""
        self._write(_below(path), text)
        return "written"

    def _replace(self, path: str, old: str, new: str) -> str:
        """Replace the one place at which a text stands."""
        name = _below(path)
        text = self._read(name)
        count = text.count(old) if old else 0
        if count != 1:
            raise ToolError(
                f"old_str: occurs {count} times in {path!r:.120}; give what stands there exactly once"
            )
        self._write(name, text.replace(old, new))
        return "replaced"

    def _insert(self, path: str, line: int | None, text: str) -> str:
        """Insert a text after a line."""
        name = _below(path)
        lines = self._read(name).splitlines(keepends=True)
        at = len(lines) if line is None else line
        if at > len(lines):
            raise ToolError(
                f"insert_line: the file has {len(lines)} lines, got {at}; give 0 to {len(lines)}"
            )
        if at and not lines[at - 1].endswith("\n"):
            lines[at - 1] += "\n"
        lines.insert(at, text if text.endswith("\n") else f"{text}\n")
        self._write(name, "".join(lines))
        return "inserted"

    def _delete(self, path: str) -> str:
        """Delete a file."""
        self._files.delete(_below(path))
        return "deleted"

    def _rename(self, old: str, new: str) -> str:
        """Give a file another name, which no other file has."""
        self._files.rename(_below(old), _below(new))
        return "renamed"

    def _is_folder(self, name: str) -> bool:
        parent, _, last = name.rstrip("/").rpartition("/")
        entries = self._files.walk(parent or ".", "*", 20_000)
        inside = f"{parent}/{last}/" if parent else f"{last}/"
        return inside in entries

    def _list(self, name: str) -> str:
        entries = self._files.walk(name or ".", "**", 20_000)
        listed = [
            f"{MOUNT}/{entry}" for entry in itertools.islice(entries, MAX_LISTED + 1)
        ]
        if len(listed) > MAX_LISTED:
            listed[MAX_LISTED:] = [f"[the first {MAX_LISTED} are shown]"]
        return "\n".join(listed) or "[there are no notes yet]"

    def _read(self, name: str) -> str:
        return self._files.read_text(name, self._max_bytes)

    def _write(self, name: str, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if len(data) > self._max_bytes:
            raise ToolError(
                f"the file would have {len(data):,} bytes; at most {self._max_bytes:,} are kept: shorten it"
            )
        self._files.write(name, data)


def _below(path: str) -> str:
    """Return a path from the root directory on."""
    inner = path.removeprefix(MOUNT) if _is_mounted(path) else path
    return inner.lstrip("/")


def _is_mounted(path: str) -> bool:
    return path == MOUNT or path.startswith(f"{MOUNT}/")
