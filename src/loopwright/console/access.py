"""The access file beside a journal: who looked at entries that are more than sensitive, in a chain of hashes."""

import hashlib
import os
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

SUFFIX = ".access"


class AccessFile:
    """Appends a line of JSON for each look, with the hash of the line before; `None` keeps none.

    A journal in memory has none. The file is private to its owner.
    """

    def __init__(self, journal_path: Path | None) -> None:
        self._path = (
            None
            if journal_path is None
            else journal_path.with_name(journal_path.name + SUFFIX)
        )

    def add(self, at: float, by: str, run_id: str) -> None:
        """Record who asked for the hidden entries of a run; durable on return."""
        if self._path is None:
            return
        line: dict[str, Any] = {
            "at": at,
            "by": by,
            "run_id": run_id,
            "previous": self._find_last(),
        }
        line["hash"] = hashlib.sha256(to_json(line)).hexdigest()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        file = os.open(self._path, flags, 0o600)
        try:
            os.write(file, to_json(line) + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def _find_last(self) -> str:
        if self._path is None or not self._path.exists():
            return ""
        lines = self._path.read_bytes().splitlines()
        return str(from_json(lines[-1])["hash"]) if lines else ""
