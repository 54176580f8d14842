"""The types of the fixtures that use the command."""

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
