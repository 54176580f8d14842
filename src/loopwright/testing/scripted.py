"""ScriptedProvider: a provider that follows a script, so that a test reads as a conversation."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeAlias

from ..messages import Completion, Json, ToolCall, Usage
from ..providers.base import Capabilities, Delta, Request, share_usage
from .chunks import split_completion

Line: TypeAlias = str | ToolCall | Sequence[ToolCall] | Completion | BaseException
Script: TypeAlias = Iterable[Line | Callable[[Request], Line]]


def call(name: str, /, **arguments: Json) -> ToolCall:
    """Build a tool call as a model would make it: `call("add", a=1, b=2)`."""
    return ToolCall(name, arguments)


class ScriptedProvider:
    """Replies with the lines of a script, one for each model call.

    A line is a text (the answer), a call, a list of calls (one turn), a `Completion`, an exception to raise, or a
    function of the request that returns one of these. One function in place of the list answers every request, which
    concurrent branches need. A script without a line left ends the run as `failed`. A list starts at its first line in
    every process: if a run is resumed, use a function of the request.

    Args:
        script: the lines, or one function for all requests.
        model: the model's name.
        capabilities: the capabilities that it claims.
    """

    name = "scripted"

    def __init__(
        self,
        script: Script | Callable[[Request], Line],
        *,
        model: str = "script",
        capabilities: Capabilities = Capabilities(
            json_schema=True,
            schema_with_tools=True,
            max_output_tokens=4_096,
            images=True,
            documents=True,
        ),
    ) -> None:
        self._answer = script if callable(script) else None
        self._lines = [] if callable(script) else list(script)
        self.model, self.capabilities = model, capabilities
        self.requests: list[Request] = []
        """The requests, in order."""

    async def complete(self, request: Request) -> Completion:
        """Reply with the next line."""
        self.requests.append(request)
        return self._to_completion(self._next_line(request))

    def _next_line(self, request: Request) -> Line:
        if self._answer is not None:
            return self._answer(request)
        if not self._lines:
            last = request.conversation.messages[-1:]
            raise AssertionError(
                f"the script has no line for model call {len(self.requests)}; "
                f"last message: {last[0] if last else None}"
            )
        line = self._lines.pop(0)
        return line(request) if callable(line) else line

    async def sample(self, request: Request) -> tuple[Completion, ...]:
        """Reply to one request with as many lines as it asks for; `Capabilities.max_samples` says that it may."""
        self.requests.append(request)
        number = request.sampling.n or 1
        replies = [self._to_completion(self._next_line(request)) for _ in range(number)]
        return share_usage(replies, replies[0].usage)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Stream the next line: text by word, and each call in three chunks."""
        for delta in split_completion(await self.complete(request)):
            yield delta

    @property
    def left(self) -> int:
        """The number of lines that were not used."""
        return len(self._lines)

    def _to_completion(self, line: Line) -> Completion:
        usage = Usage(10, 5)
        match line:
            case BaseException():
                raise line
            case Completion():
                return line
            case str():
                return Completion(line, answer=line, usage=usage, model=self.model)
            case _:
                calls = (line,) if isinstance(line, ToolCall) else tuple(line)
                return Completion(
                    calls=calls,
                    finish_reason="tool_calls",
                    usage=usage,
                    model=self.model,
                )
