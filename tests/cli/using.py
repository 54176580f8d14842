"""The types of the fixtures that use the command."""

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from typer.testing import Result

from forked_processes import Forked


class Invoke(Protocol):
    def __call__(self, *arguments: str, input: str | None = None) -> Result: ...


Process: TypeAlias = Forked | subprocess.Popen[str]
Start = Callable[..., Process]


class AtTerminal(Protocol):
    def __call__(
        self,
        *arguments: str,
        typed: Sequence[tuple[str, str]] = ...,
        columns: int = ...,
        env: Mapping[str, str] = ...,
    ) -> tuple[int, str]: ...


def hide_seconds(shown: str) -> str:
    """Write every duration as 0.0 s, since a busy machine needs longer."""
    return re.sub(r"\b\d+\.\d s\b", "0.0 s", shown)
