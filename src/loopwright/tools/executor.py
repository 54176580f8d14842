"""ToolExecutor: the port for what runs the functions of tools, if that is not this process."""

from typing import Any, Protocol

from .base import Tool, ToolContext


class ToolExecutor(Protocol):
    """Runs the functions of tools, once policy has permitted a call and its intent is recorded.

    `Runtime(executor=...)` has one beside its tools. Gate, limits, breaker, time-out, recovery and journal are the
    runtime's wherever a function runs. An executor that puts functions into a sandbox has to hold to this:

    - It runs a call once, with `context.arguments`, which are those that policy saw, and starts nothing for any other.
    - It ends what it started when it is cancelled, which the runtime does at `context.deadline` seconds.
    - It gives the function what it needs and no more: no environment, files or network of this process.
    - What it returns is text, or plain JSON, and is treated as the result of the tool, untrusted unless that is trusted.
    - It raises `ToolError` for what the model may read, `UnknownOutcome` if the call may have taken effect all the same.
    """

    def accepts(self, tool: Tool) -> bool:
        """Return whether it runs the calls of a tool; the others run in this process."""
        ...

    async def execute(self, tool: Tool, context: ToolContext[Any]) -> Any:
        """Run one call and return what the function returned."""
        ...
