"""What a dialect is: it tells a request as plain text and reads the reply."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from ...messages import ToolCall
from ...parsing.arguments import Signature
from ..base import Request


@dataclasses.dataclass(frozen=True)
class Parsed:
    """What a text says in a dialect; exactly one of `calls`, `answer` and `problem` is set.

    Args:
        thought: the text before the call or the answer.
        calls: the call (in `xml` there may be several), with the tool's registered spelling, or as it was written if
            there is no such tool.
        answer: the final answer.
        problem: why the text cannot be read: a sentence that tells the model what to do.
        flags: what was dropped: "several_actions", "invented_observation", "trailing_text".
        complete: false where more text could have changed the call, so that a reply cut short must not be trusted.
    """

    thought: str
    calls: tuple[ToolCall, ...]
    answer: str | None
    problem: str | None
    flags: tuple[str, ...] = ()
    complete: bool = dataclasses.field(default=True, compare=False)


class Dialect(Protocol):
    """A way to talk of tools in plain text."""

    @property
    def name(self) -> str:
        """What it is called in options and traces."""
        ...

    def render(self, request: Request) -> Request:
        """The request for a model that knows text only: calls and results told as text, tools as instructions.

        A request without tools only has its calls and results told as text.
        """
        ...

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """What `text` says; never raises."""
        ...
