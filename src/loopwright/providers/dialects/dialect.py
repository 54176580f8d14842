"""The dialect port: a dialect writes a request as plain text and parses the reply."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..._internal import dataclasses
from ...messages import ToolCall
from ...parsing.arguments import Signature
from ..base import Request


@dataclasses.dataclass(frozen=True)
class Parsed:
    """The content of a text in a dialect; at most one of `calls`, `answer` and `problem` is set.

    A text with none of them is a thought alone, which some dialects allow.

    Args:
        thought: the text before the call or the answer.
        calls: the call (`xml` allows several), with the registered name of its tool, or the name as written if there is
            no such tool.
        answer: the final answer.
        problem: why the text cannot be read: a sentence that tells the model what to do.
        flags: what was dropped: "several_actions", "invented_observation", "trailing_text".
        complete: false if more text could have changed the call; a truncated reply is then not trusted.
    """

    thought: str
    calls: tuple[ToolCall, ...]
    answer: str | None
    problem: str | None
    flags: tuple[str, ...] = ()
    complete: bool = dataclasses.field(default=True, compare=False)


class Dialect(Protocol):
    """A convention for calling tools in plain text."""

    @property
    def name(self) -> str:
        """Its name in options and traces."""
        ...

    def render(self, request: Request) -> Request:
        """Return the request for a model that only knows text: calls and results as text, tools as instructions.

        Without tools only the calls and results in the conversation are written as text.
        """
        ...

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """Return the content of `text`; never raise."""
        ...


@runtime_checkable
class TypedDialect(Protocol):
    """A dialect in which an answer that must fit a schema is JSON, and not a text."""

    def parse_typed(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """Return the content of `text`, with an answer of any type as JSON; never raise."""
        ...
