"""Runtime: the shared parts, engines by name, and resume by run id."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, cast

from .bounded import WorkerThreads
from .breaker import CircuitBreakers
from .clock import Clock, SystemClock
from .context import ContextPolicy, SlidingContext
from .engine import LoopEngine
from .errors import ConfigError, JournalError
from .events import RunStarted
from .journal import Journal, MemoryJournal
from .limits import Limits
from .parts import Observer, OnUnknown, Parts
from .plugins import engine_class
from .policy import Approver, DefaultGate, PolicyGate, Suspend
from .provider import Provider
from .result import Result
from .sync import LOOP_THREAD
from .tools import Tool, ToolRegistry


class Runtime(Parts):
    """What the engines of an application share. Make one, hand it to engines.

    Args:
        provider: the model.
        tools: functions made tools with `@tool`.
        journal: where runs are kept; `None` keeps them in memory.
        gate: decides about every call; `None` is `DefaultGate`.
        limits: what a run may use.
        approver: who answers a gate's `Ask`: nobody (`None`, denies), a callback, or `Suspend()`.
        breakers: circuit breakers, to share them between runtimes.
        context: what of a long conversation a model gets to see.
        observers: called with every new journal entry.
        providers: more models by name, for `run.ask(provider=...)`.
        clock: time, for tests.
        on_unknown: what a resumed run does with a side effect that may or may not have happened: "tell" the model, or
            "stop".
    """

    def __init__(
        self,
        provider: Provider,
        *,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        journal: Journal | None = None,
        gate: PolicyGate | None = None,
        limits: Limits | None = None,
        approver: Approver | Suspend | None = None,
        breakers: CircuitBreakers | None = None,
        context: ContextPolicy | None = None,
        observers: Iterable[Observer] = (),
        providers: Mapping[str, Provider] | None = None,
        clock: Clock | None = None,
        on_unknown: OnUnknown = "tell",
    ) -> None:
        if not callable(getattr(provider, "complete", None)):
            raise ConfigError(f"provider: needs an async method `complete`, got {type(provider).__name__}")
        if on_unknown not in ("tell", "stop"):
            raise ConfigError(f'on_unknown: must be "tell" or "stop", got {on_unknown!r}')
        clock = clock or SystemClock()
        super().__init__(
            provider=provider,
            tools=ToolRegistry(tools),
            journal=journal or MemoryJournal(),
            gate=gate or DefaultGate(),
            limits=limits or Limits(),
            approver=approver,
            breakers=breakers or CircuitBreakers(clock=clock),
            context=context or SlidingContext(),
            observers=tuple(observers),
            providers=dict(providers or {}),
            clock=clock,
            on_unknown=on_unknown,
            threads=WorkerThreads(),
            retry_budgets={},
            setups={},
        )

    def engine(self, name: str, **options: Any) -> LoopEngine:
        """An engine of this runtime by its entry-point name; raises `ConfigError` for an unknown name or option."""
        return engine_class(name)(self, **options)

    async def resume(self, run_id: str, *, take_over: bool = False, deps: object = None) -> Result:
        """Go on with a run whose engine is rebuilt from the journal.

        Raises `ConfigError` naming an option that is code or a live object: then build the engine and use its `resume`.
        """
        return await (await self._rebuilt(run_id)).resume(run_id, take_over=take_over, deps=deps)

    def resume_sync(self, run_id: str, *, take_over: bool = False, deps: object = None) -> Result:
        """`resume` for synchronous callers."""
        return LOOP_THREAD.run(self.resume(run_id, take_over=take_over, deps=deps))

    async def _rebuilt(self, run_id: str) -> LoopEngine:
        entries = await asyncio.to_thread(self.journal.read, run_id)
        started = entries[0].event if entries else None
        if not isinstance(started, RunStarted):
            raise JournalError(f"run {run_id!r} has no first entry: it cannot be resumed")
        if started.opaque:
            raise ConfigError(
                f"{', '.join(started.opaque)}: this option of run {run_id!r} is code or a live object, "
                f"which no journal holds: build the {started.engine} engine again and call its resume()"
            )
        return self.engine(started.engine, **{n: self._option(v) for n, v in started.options.items()})

    def _option(self, value: Any) -> Any:
        """A recorded option; a nested engine is built again."""
        if not isinstance(value, dict):
            return value
        nested = cast("dict[str, Any]", value)
        if nested.keys() != {"engine", "options"}:
            return nested
        return self.engine(nested["engine"], **{n: self._option(v) for n, v in nested["options"].items()})

    async def __aenter__(self) -> Self:
        """Use a runtime as a context to close what it made."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let idle threads go; what was passed in stays open."""
        self.threads.close()
