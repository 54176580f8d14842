"""Recordings of real models that lie beside the project; tests that need them are skipped where they are absent."""

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(
    os.environ.get("LOOPWRIGHT_FIXTURES")
    or Path(__file__).resolve().parents[3] / "shared" / "fixtures"
)
MISSING = f"the recordings are not beside the project: {FOLDER.name} is absent"


def fixture(name: str) -> Path:
    """Where a recording lies, whether it is there or not."""
    return FOLDER / name


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a recording in JSON lines; none if it is absent."""
    path = fixture(name)
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.exists()
        else []
    )
