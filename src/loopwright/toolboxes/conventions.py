"""Conventions: the rules of a project that stand in files beside its code, the nearest first."""

import contextlib
import os
from collections.abc import Iterator, Sequence

from ..errors import ConfigError, ToolError
from ..knowledge.base import Remembered
from .option_checks import check_counts
from .sandbox_root import SandboxRoot

NAMES = ("AGENTS.md", "CONVENTIONS.md")
KIND = "convention"


class Conventions:
    """Finds files of rules for a directory: in it, and in those around it up to the root, and no further.

    Args:
        root: the directory of the project. Links are not followed.
        names: the names of such files, in their order within one directory.
        max_bytes: a larger file is left out.

    Raises:
        ConfigError: `root` is not a directory, or is "/"; a name is none of a file.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        names: Sequence[str] = NAMES,
        *,
        max_bytes: int = 50_000,
    ) -> None:
        check_counts(max_bytes=max_bytes)
        for name in names:
            if not name or "/" in name or name in (".", ".."):
                raise ConfigError(f"names: must be names of files, got {name!r}")
        self._files, self._names = SandboxRoot(root), tuple(names)
        self._max_bytes = max_bytes

    def find(self, directory: str = ".") -> list[Remembered]:
        """Return the rules for a directory or a file, the nearest first; the same text once.

        `topic` is the path of the file. Raises `ToolError` for a path that leaves the root.
        """
        found: dict[str, Remembered] = {}
        for path in self._paths(self._files.names(directory)):
            with contextlib.suppress(ToolError):  # most directories have none
                text = self._files.read_text(path, self._max_bytes).strip()
                if text:
                    item = Remembered(text, kind=KIND, topic=path, untrusted=True)
                    found.setdefault(text, item)
        return list(found.values())

    def _paths(self, parts: tuple[str, ...]) -> Iterator[str]:
        for length in range(len(parts), -1, -1):
            for name in self._names:
                yield "/".join((*parts[:length], name))
