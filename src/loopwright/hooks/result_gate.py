"""A gate on results: code decides whether a model may read what a tool returned."""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Protocol, TypeAlias

from .._internal import dataclasses
from .._internal.log import logger
from ..errors import ConfigError
from ..labels import Label
from .base import Hook, Moment
from .changes import DROPPED


@dataclasses.dataclass(frozen=True)
class ToolResult:
    """A result that a model is about to read.

    Args:
        tool: the name of its tool.
        text: the result as other hooks left it, without secrets.
        key: the place of the call in the run.
        label: how sensitive what the run has read is.
        untrusted: whether any of that came from outside.
    """

    tool: str
    text: str
    key: str
    label: Label
    untrusted: bool


@dataclasses.dataclass(frozen=True)
class Keep:
    """Let the model read the result as it is."""


@dataclasses.dataclass(frozen=True)
class Replace:
    """Let the model read another text; attachments stay."""

    text: str


@dataclasses.dataclass(frozen=True)
class Drop:
    """Withhold the result and its attachments; the model reads that, and the reason."""

    reason: str = "policy withholds it"


Inspection: TypeAlias = Keep | Replace | Drop


class ResultInspector(Protocol):
    """Decides about the results of tools."""

    def inspect(self, result: ToolResult, /) -> Inspection | Awaitable[Inspection]:
        """Return whether the model may read a result; sync or async."""
        ...


class ResultGate(Hook):
    """Has each result of a tool inspected, after all other hooks: `Runtime(hooks=[ResultGate(own)])`.

    What it replaced or dropped is recorded, and a resumed run reads that. An inspector that fails, takes longer than
    `seconds` or returns anything else drops the result.

    Args:
        inspector: decides.
        seconds: the time for one decision of an async inspector.

    Raises `ConfigError` for what has no method `inspect`.
    """

    name = "result-gate"
    priority = 1_000_000
    required = True

    def __init__(self, inspector: ResultInspector, *, seconds: float = 2.0) -> None:
        if not callable(getattr(inspector, "inspect", None)):
            raise ConfigError(
                f"inspector: needs an object with a method `inspect`, got {inspector!r:.80}"
            )
        if not seconds > 0:
            raise ConfigError(f"seconds: must be above 0, got {seconds!r}")
        self._inspector, self._seconds = inspector, seconds
        self.timeout = seconds + 5.0

    async def after_tool(self, at: Moment, text: str) -> str | None:
        """Return what the model reads in place of a result; `None` for the result itself."""
        result = ToolResult(at.tool, text, at.key, at.label, at.untrusted)
        decided = await self._decide(result)
        if isinstance(decided, Replace):
            return decided.text
        if isinstance(decided, Drop):
            return f"{DROPPED} {result.tool} was withheld: {decided.reason}]"
        return None

    async def _decide(self, result: ToolResult) -> Inspection:
        try:
            async with asyncio.timeout(self._seconds):
                found = self._inspector.inspect(result)
                decided = await found if inspect.isawaitable(found) else found
        except Exception as error:  # noqa: BLE001 - a failing inspector lets nothing through
            problem = type(error).__name__
            logger().warning("result_not_inspected", tool=result.tool, problem=problem)
            return Drop(f"it could not be inspected ({problem})")
        if isinstance(decided, (Keep, Replace, Drop)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return decided
        return Drop("it could not be inspected (no decision)")
