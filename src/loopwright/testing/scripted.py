"""A provider that follows a script, so that a test reads as a conversation."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeAlias

from ..messages import Completion, Json, ToolCall, Usage
from ..providers.base import Capabilities, Delta, Request
from .chunked import pieces

Line: TypeAlias = str | ToolCall | Sequence[ToolCall] | Completion | BaseException
Script: TypeAlias = Iterable[Line | Callable[[Request], Line]]


def call(name: str, /, **arguments: Json) -> ToolCall:
    """A tool call as a model would make it: `call("add", a=1, b=2)`."""
    return ToolCall(name, arguments)


class ScriptedProvider:
    """Says the lines of a script, one for each model call.

    A line is a text (the answer), a call, a list of calls (one turn), a `Completion`, an exception to raise, or a
    function of the request that gives one of these. A function in place of the list answers every request, which
    concurrent branches need. A script that has run out ends the run as `failed`. A list begins at its first line in
    every process: where a run is resumed, use a function of the request.

    Args:
        script: the lines, or one function for all requests.
        model: the model's name.
        capabilities: what it pretends to be able to do.
    """

    name = "scripted"

    def __init__(
        self,
        script: Script | Callable[[Request], Line],
        *,
        model: str = "script",
        capabilities: Capabilities = Capabilities(json_schema=True),
    ) -> None:
        self._answer = script if callable(script) else None
        self._lines = [] if callable(script) else list(script)
        self.model, self.capabilities = model, capabilities
        self.requests: list[Request] = []
        """What it was asked, in order."""

    async def complete(self, request: Request) -> Completion:
        """The next line."""
        self.requests.append(request)
        if self._answer is not None:
            line: Line = self._answer(request)
        elif self._lines:
            next_line = self._lines.pop(0)
            line = next_line(request) if callable(next_line) else next_line
        else:
            last = (
                request.conversation.messages[-1] if len(request.conversation) else None
            )
            raise AssertionError(
                f"the script has no line for model call {len(self.requests)}; last message: {last}"
            )
        return self._completion(line)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """The next line, word by word, and each call in three pieces."""
        for delta in pieces(await self.complete(request)):
            yield delta

    @property
    def left(self) -> int:
        """How many lines were not said."""
        return len(self._lines)

    def _completion(self, line: Line) -> Completion:
        usage = Usage(10, 5)
        match line:
            case BaseException():
                raise line
            case Completion():
                return line
            case str():
                return Completion(line, answer=line, usage=usage, model=self.model)
            case ToolCall():
                return Completion(
                    calls=(line,),
                    finish_reason="tool_calls",
                    usage=usage,
                    model=self.model,
                )
            case _:
                return Completion(
                    calls=tuple(line),
                    finish_reason="tool_calls",
                    usage=usage,
                    model=self.model,
                )
