"""An event loop that can be interrupted before each of its callbacks, and parts of a run that all wait somewhere."""

import asyncio
import contextvars
import dataclasses
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any, NoReturn, TypeVarTuple

from loopwright import (
    Action,
    DefaultGate,
    Delta,
    MemoryJournal,
    PolicyGate,
    PolicyState,
    ProviderError,
    Request,
    Tool,
    ToolContext,
)
from loopwright.gates import Approver, Decision
from loopwright.journals import Claim
from loopwright.messages import Completion
from loopwright.testing import ScriptedProvider

Ts = TypeVarTuple("Ts")


def cancel_host(request: Request) -> NoReturn:
    """Cancel the run from outside while its model is asked: a line of a script."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    raise asyncio.CancelledError


class SteppingLoop(asyncio.SelectorEventLoop):
    """Counts the callbacks that it calls while `counting`, and does what `plan` says before the n-th (from 1).

    Between two callbacks nothing of a program runs, so these are all the places at which something outside of it, a
    cancellation or a time-out, can strike.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.counting = False
        self.plan: dict[int, Callable[[], object]] = {}
        self.skipped = 0.0  # seconds by which this loop's clock is ahead

    def time(self) -> float:
        """Seconds from an arbitrary start."""
        return super().time() + self.skipped

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As every loop, counted."""
        return super().call_soon(self._turn, callback, args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As every loop, counted."""
        return super().call_soon_threadsafe(self._turn, callback, args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As every loop, counted."""
        return super().call_at(when, self._turn, callback, args, context=context)

    def _turn(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.counting:
            self.turns += 1
            act = self.plan.pop(self.turns, None)
            if act is not None:
                act()
        callback(*args)


class LoopClock:
    """The loop's own time, skips included; a pause between attempts takes no time."""

    def __init__(self, loop: SteppingLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return self._loop.time()

    def wall(self) -> float:
        """Seconds since the epoch, roughly."""
        return 1_700_000_000.0 + self._loop.time()

    async def sleep(self, seconds: float, /) -> None:
        """Wait, but not for long."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class WaitingProvider(ScriptedProvider):
    """Waits before and after each reply and between its pieces; `failures` says how often it fails first."""

    def __init__(
        self, answer: Callable[[Request], Any], failures: list[ProviderError]
    ) -> None:
        super().__init__(answer)
        self._failures = (
            failures  # shared, so that a resumed run does not have them again
        )

    async def complete(self, request: Request) -> Completion:
        """The next line."""
        await asyncio.sleep(0)
        if self._failures:
            raise self._failures.pop()
        reply = await super().complete(request)
        await asyncio.sleep(0)
        return reply

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """The next line, piece by piece."""
        async for delta in super().stream(request):
            await asyncio.sleep(0)
            yield delta


class WaitingJournal(MemoryJournal):
    """Waits before and after what is written."""

    async def barrier(self, claim: Claim) -> None:
        """Wait."""
        await asyncio.sleep(0)
        await super().barrier(claim)
        await asyncio.sleep(0)


class WaitingGate:
    """Waits before and after it decides as another."""

    version = "waiting-1"

    def __init__(self, inner: PolicyGate | None) -> None:
        self._inner = inner or DefaultGate()

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Decide."""
        await asyncio.sleep(0)
        decision = await self._inner.evaluate(action, state)
        await asyncio.sleep(0)
        return decision


def waiting_approver(inner: Approver | None) -> Approver | None:
    """An approver that takes its time."""
    if inner is None:
        return None

    async def answer(action: Action, question: str) -> Any:
        await asyncio.sleep(0)
        return await inner(action, question)

    return answer


def counted(tool: Tool, ran: Counter[str]) -> Tool:
    """The tool with its runs counted by the key of the call; an async one waits before it works, and tidies up."""
    if not tool.is_async:

        def work(ctx: ToolContext[None], **arguments: Any) -> Any:
            ran[ctx.key] += 1
            return tool.function(ctx, **arguments)

        return dataclasses.replace(tool, function=work)

    async def work_slowly(ctx: ToolContext[None], **arguments: Any) -> Any:
        ran[ctx.key] += 1
        try:
            await asyncio.sleep(0)
            return await tool.function(ctx, **arguments)
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    return dataclasses.replace(tool, function=work_slowly)
