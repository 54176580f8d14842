"""Runtime: the shared parts, engines by name, and resume by run id."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, cast

from ._internal.sync import LOOP_THREAD
from ._kernel.control.inbox_poller import Listener
from ._kernel.control.run_control import RunControl
from ._kernel.session.services import Observer, OnUnknown, Services, User
from .clock import Clock, SystemClock
from .engine import LoopEngine
from .errors import ConfigError
from .events.lifecycle import read_start
from .gates.base import Approver, DefaultGate, PolicyGate, Suspend
from .journals.base import Journal
from .journals.memory import MemoryJournal
from .labels import Classifier
from .limits import Limits
from .plugins import build_provider, engine_class
from .providers.base import Provider
from .providers.context import ContextPolicy, SlidingContext
from .providers.prices import Price, Prices
from .resilience.circuit_breaker import CircuitBreakers
from .resilience.timeouts import WorkerThreads
from .result import Model, Result
from .security.redaction import Redactor
from .tools.profile import ToolProfile
from .tools.registry import ToolRegistry, Tools
from .tools.resolution import Resolution


class Runtime(Services):
    """What the engines of an application share. Make one, hand it to engines.

    Args:
        provider: the model, or its name as "provider:model" ("openai:gpt-4.1-mini", "ollama:qwen3").
        tools: functions made tools with `@tool`, and sources of tools, such as an `McpToolbox`.
        profile: which of the tools there are for a model; the others are neither listed nor callable.
        journal: where runs are kept; `None` keeps them in memory.
        gate: decides about every call; `None` is `DefaultGate`.
        limits: what a run may use.
        approver: who answers a gate's `Ask`: nobody (`None`, denies), a callback, or `Suspend()`.
        breakers: circuit breakers, to share them between runtimes.
        context: what of a long conversation a model gets to see.
        observers: called with every new journal entry.
        providers: more models by name, for `run.ask(provider=...)`.
        clock: time, for tests.
        prices: what models cost, by name; without it, only what providers charge by themselves is known.
        on_unknown: what a resumed run does with a side effect that may or may not have happened: "tell" the model,
            "ask" a person (the run waits for `resolve`), or "stop".
        lease: seconds for which a run belongs to this process unless it says that it is still at work, which it does
            three times as often; then others may take the run up. `None`: until this process ends.
        user: who answers what an engine or a model asks the user: an async function of the question; `None` makes the
            run wait for an answer from outside.
        classifier: says how sensitive tasks, tool results and the words of people are, beside what the tools say of
            themselves.
        redactor: takes secrets out of all that enters a run; `Redactor(patterns=False)` takes out registered values
            only. The keys of providers that tell them are registered in any case.
    """

    _made: Provider | None

    def __init__(
        self,
        provider: Provider | str,
        *,
        tools: Tools = (),
        profile: ToolProfile | None = None,
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
        prices: Mapping[str, Price] | None = None,
        lease: float | None = None,
        redactor: Redactor | None = None,
        user: User | None = None,
        classifier: Classifier | None = None,
    ) -> None:
        by_name = isinstance(provider, str)
        provider = build_provider(provider) if isinstance(provider, str) else provider
        named = dict(_listed("providers", providers or {}, Mapping))
        watching = _watching(observers)
        _check_settings(limits, approver, on_unknown, lease)
        _must_be_providers(provider, named)
        _must_be_parts(
            journal=journal, gate=gate, breakers=breakers, context=context, clock=clock, redactor=redactor, user=user,
            classifier=classifier, profile=profile,
        )  # fmt: skip
        clock = clock or SystemClock()
        journal = journal or MemoryJournal(clock=clock)
        registry = ToolRegistry(
            tools, choose=None if profile is None else profile.choose
        )
        super().__init__(
            provider=provider,
            tools=registry,
            journal=journal,
            gate=gate or DefaultGate(),
            limits=limits or Limits(),
            approver=approver,
            breakers=breakers or CircuitBreakers(clock=clock),
            context=context or SlidingContext(),
            observers=watching,
            providers=named,
            clock=clock,
            on_unknown=on_unknown,
            lease=lease,
            redactor=(redactor or Redactor()).with_new_secrets(
                *_secrets_of(provider, *named.values()), registry.secrets
            ),
            threads=WorkerThreads(),
            prices=Prices(prices),
            retry_budgets={},
            user=user,
            classifier=classifier,
            listener=Listener(journal),
            setups={},
        )
        # A frozen class; this is no part of it, only closing looks at it.
        object.__setattr__(self, "_made", provider if by_name else None)

    def engine(self, name: str, /, **options: Any) -> LoopEngine:
        """An engine of this runtime by its entry-point name; raises `ConfigError` for an unknown name or option."""
        return engine_class(name)(self, **options)

    async def resume(
        self,
        run_id: str,
        *,
        take_over: bool = False,
        output: type[Model] | None = None,
        deps: object = None,
    ) -> Result[Model | None]:
        """Go on with a run whose engine is rebuilt from the journal.

        Raises `ConfigError` naming an option that is code or a live object: then build the engine and use its `resume`.
        """
        engine = await self._rebuilt(run_id)
        return await engine.resume(
            run_id, take_over=take_over, output=output, deps=deps
        )

    def resume_sync(
        self,
        run_id: str,
        *,
        take_over: bool = False,
        output: type[Model] | None = None,
        deps: object = None,
    ) -> Result[Model | None]:
        """`resume` for synchronous callers."""
        return LOOP_THREAD.run(
            self.resume(run_id, take_over=take_over, output=output, deps=deps)
        )

    async def resolve(self, run_id: str, key: str, resolution: Resolution) -> None:
        """Answer a waiting run's question about a call: `CallCompleted(result)`, `CallNotExecuted()` or `OutcomeUnknown()`.

        `key` is that of the question in `result.pending`. It counts when the run is resumed, for that question only.
        Any process that has the journal may say it. Raises `ConfigError` for a call that the run does not ask about.
        """
        await self.control(run_id).resolve(key, resolution)

    def control(self, run_id: str) -> RunControl:
        """A hand on a run of this journal, in whichever process it is at work, or waits: pause, steer, approve …"""
        return RunControl(self.journal, self.redactor, run_id, self.clock)

    async def _rebuilt(self, run_id: str) -> LoopEngine:
        started = read_start(run_id, await asyncio.to_thread(self.journal.read, run_id))
        if started.opaque:
            raise ConfigError(
                f"{', '.join(started.opaque)}: this option of run {run_id!r} is code or a live object, "
                f"which no journal holds: build the {started.engine} engine again and call its resume()"
            )
        try:
            return self.engine(
                started.engine,
                **{n: self._option(v) for n, v in started.options.items()},
            )
        except ConfigError as error:
            own = f"an engine that is not installed goes on with YourEngine(runtime).resume({run_id!r})"
            raise ConfigError(
                f"run {run_id!r} cannot be rebuilt: {error}; {own}"
            ) from None

    def _option(self, value: Any) -> Any:
        """A recorded option; a nested engine is built again."""
        if not isinstance(value, dict):
            return value
        nested = cast("dict[str, Any]", value)
        if nested.keys() != {"engine", "options"}:
            return nested
        return self.engine(
            nested["engine"],
            **{n: self._option(v) for n, v in nested["options"].items()},
        )

    async def __aenter__(self) -> Self:
        """Use a runtime as a context to close what it made."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let idle threads go and close a provider that was made by its name; what was passed in stays open."""
        self.threads.close()
        close = getattr(self._made, "aclose", None)
        if close is not None:
            await close()


def _check_settings(
    limits: object, approver: object, on_unknown: object, lease: object
) -> None:
    if lease is not None and not (
        isinstance(lease, (int, float)) and 0 < lease < math.inf
    ):
        raise ConfigError(f"lease: must be seconds above 0, or None, got {lease!r}")
    if on_unknown not in ("tell", "ask", "stop"):
        raise ConfigError(
            f'on_unknown: must be "tell", "ask" or "stop", got {on_unknown!r}'
        )
    if limits is not None and not isinstance(limits, Limits):
        raise ConfigError(f"limits: must be Limits(...), got {limits!r}")
    if not (approver is None or isinstance(approver, Suspend) or callable(approver)):
        raise ConfigError(
            f"approver: must be None, Suspend() or an async function, got {approver!r}"
        )


def _watching(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    watching = tuple(_listed("observers", observers, Iterable))
    for observer in watching:
        _must_have("observers", observer, "__call__")
    return watching


def _secrets_of(*providers: object) -> list[Iterable[str]]:
    """The keys of providers that have an attribute `secrets`."""
    return [getattr(provider, "secrets", ()) for provider in providers]


METHODS = {
    "journal": "barrier", "gate": "evaluate", "breakers": "get", "context": "fit", "clock": "monotonic",
    "redactor": "redact_text", "user": "__call__", "classifier": "label", "profile": "choose",
}  # fmt: skip
"""A method of each part by which one that is something else is told."""


def _must_be_parts(**parts: object) -> None:
    """Raise `ConfigError` for a part that was given and is something else."""
    for field, part in parts.items():
        _must_have(field, part, METHODS[field])


def _must_be_providers(provider: object, named: Mapping[str, object]) -> None:
    _must_have("provider", provider, "complete")
    for name, other in named.items():
        _must_have(f"providers[{name!r}]", other, "complete")


def _must_have(field: str, part: object, method: str) -> None:
    """Raise `ConfigError` unless a part that was given is an object with that method."""
    if part is None and field != "provider":
        return
    if isinstance(part, type) or not callable(getattr(part, method, None)):
        hint = (
            f", like SQLiteJournal({part!r})"
            if field == "journal" and isinstance(part, str)
            else ""
        )
        raise ConfigError(
            f"{field}: needs an object with a method `{method}`{hint}, got {_kind(part)}"
        )


def _listed(field: str, parts: Any, kind: type) -> Any:
    if not isinstance(parts, kind):
        raise ConfigError(
            f"{field}: must be {'a mapping' if kind is Mapping else 'a list'}, got {parts!r}"
        )
    return parts


def _kind(part: object) -> str:
    return (
        f"the class {part.__name__}" if isinstance(part, type) else type(part).__name__
    )
