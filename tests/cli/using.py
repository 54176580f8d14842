"""The types of the fixtures that use the command."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from typer.testing import Result


class Invoke(Protocol):
    def __call__(self, *arguments: str, input: str | None = None) -> Result: ...


Start = Callable[..., "subprocess.Popen[str]"]


class AtTerminal(Protocol):
    def __call__(
        self, *arguments: str, typed: Sequence[tuple[str, str]] = ..., columns: int = ..., env: Mapping[str, str] = ...
    ) -> tuple[int, str]: ...
