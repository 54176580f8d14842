"""Tools that run in another process: calls are sent there with their permits signed, and run there once."""

import asyncio
import fnmatch
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from .._internal import dataclasses
from ..errors import CapabilityError, ConfigError, ToolError, UnknownOutcome
from ..messages import JsonObject
from ..security.signed_permits import CapabilitySigner, CapabilityVerifier
from .base import Tool, ToolContext
from .registry import ToolRegistry, Tools


@dataclasses.dataclass(frozen=True)
class RemoteCall:
    """A call that policy permitted, as it is sent to another process.

    Args:
        tool: the name of the tool.
        arguments: those that policy saw.
        token: the permit, signed: it holds for this call with these arguments, once.
        idempotency_key: stays the same when the call is made again after a crash.
        deadline: seconds that it may take; `None` for no bound.
    """

    tool: str
    arguments: JsonObject
    token: str
    idempotency_key: str
    deadline: float | None = None


Send: TypeAlias = Callable[[RemoteCall], Awaitable[Any]]
"""Carries a call to the other process and returns its result, such as by a POST."""


class RemoteExecutor:
    """Sends calls to another process, each with its permit signed; `RemoteTools` runs them there.

    An error of `send` says that nothing is known of a call that writes, so its outcome is unknown then.

    Args:
        send: carries a call to the other process: an async function of a `RemoteCall`.
        signer: signs the permits, with a secret that the other process has too.
        tools: names of the tools that run there, with `*` and `?`.
    """

    def __init__(
        self, send: Send, *, signer: CapabilitySigner, tools: Iterable[str]
    ) -> None:
        if isinstance(tools, str):
            raise ConfigError(f"tools: must be a list of names, got {tools!r:.80}")
        self._send, self._signer, self._names = send, signer, tuple(tools)

    def accepts(self, tool: Tool) -> bool:
        """Return whether a tool is one of those that run there."""
        return any(fnmatch.fnmatchcase(tool.name, name) for name in self._names)

    async def execute(self, tool: Tool, context: ToolContext[Any]) -> Any:
        """Send a call with its permit, and return the result."""
        if context.claims is None:
            raise ToolError(
                f"{tool.name} runs in another process, and this call has no permit."
            )
        token = self._signer.sign(context.claims)
        call = RemoteCall(
            tool.name,
            context.arguments,
            token,
            context.idempotency_key,
            context.deadline,
        )
        try:
            return await self._send(call)
        except (ToolError, UnknownOutcome):
            raise
        except Exception as error:
            if tool.effect in ("read", "idempotent"):
                raise
            raise UnknownOutcome(
                f"the executor of {tool.name} gave no answer: {type(error).__name__}: {error}"
            ) from error


class RemoteTools:
    """The tools of the process that runs calls for others: only those that policy permitted there, each once.

    Args:
        tools: functions made tools with `@tool`; their effects and descriptions matter where the model is, not here.
        verifier: checks the permits, with the secret of the other process.
    """

    def __init__(self, tools: Tools, verifier: CapabilityVerifier) -> None:
        self._tools, self._verifier = ToolRegistry(tools), verifier

    async def run(self, call: RemoteCall) -> Any:
        """Run a call and return what its function returned.

        Raises `ToolError` for a permit that does not hold, an unknown tool or arguments that do not fit, before anything
        is run; otherwise what the function raises.
        """
        tool = self._tools.get(call.tool)
        problem = self._tools.find_problem(call.tool, call.arguments)
        if tool is None or problem is not None:
            raise ToolError(problem or f"There is no tool {call.tool!r} here.")
        try:
            claims = self._verifier.verify(
                call.token, tool=call.tool, arguments=call.arguments
            )
        except CapabilityError as error:
            raise ToolError(f"The executor refused the call: {error}") from None
        context = ToolContext[None](
            claims.run_id, claims.key, call.idempotency_key, call.deadline, None, call.arguments, claims=claims
        )  # fmt: skip
        positional = (context,) if tool.takes_context else ()
        keywords = tool.bind_arguments(dict(call.arguments))
        async with asyncio.timeout(call.deadline):
            if tool.is_async:
                return await tool.function(*positional, **keywords)
            value = await asyncio.to_thread(tool.function, *positional, **keywords)
            return await value if inspect.isawaitable(value) else value
