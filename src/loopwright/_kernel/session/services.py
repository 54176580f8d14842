"""Services: what the engines of one runtime share, as one frozen dataclass."""

import copy
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Self, TypeAlias

from pydantic import GetCoreSchemaHandler
from pydantic_core.core_schema import (
    CoreSchema,
    custom_error_schema,
    is_instance_schema,
)

from ...clock import Clock
from ...errors import ConfigError
from ...events.effects import Entry
from ...gates.base import Approver, PolicyGate, Suspend
from ...journals.base import Journal
from ...labels import Classifier
from ...limits import Limits
from ...providers.base import Provider, Sampling
from ...providers.context import ContextPolicy
from ...providers.prices import Prices
from ...resilience.circuit_breaker import LOCK, CircuitBreakers
from ...resilience.timeouts import WorkerThreads
from ...security.redaction import Redactor
from ...tools.base import ToolRegistry
from ..control.inbox_poller import Listener

User: TypeAlias = Callable[[str], Awaitable[str]]
Observer: TypeAlias = Callable[[Entry], None]
OnUnknown: TypeAlias = Literal["tell", "ask", "stop"]


class RetryBudget:
    """Keeps retries a small share of all calls, so that an outage is not multiplied: each call earns a tenth of one.

    Safe in threads: two event loops with one runtime do not spend the same retry.
    """

    def __init__(self, *, most: float = 10.0, earned: float = 0.1) -> None:
        self._most, self._earned, self._tokens = most, earned, most

    def earn(self) -> None:
        """A first attempt was made."""
        self._add(self._earned)

    @property
    def left(self) -> bool:
        """Whether one more retry is within the budget."""
        return self._tokens >= 1

    def spend(self) -> bool:
        """Make one retry; whether it is within the budget."""
        with LOCK:
            granted = self.left
            self._tokens -= granted
        return granted

    def give_back(self) -> None:
        """A retry that was paid for was not made."""
        self._add(1)

    def _add(self, tokens: float) -> None:
        with LOCK:
            self._tokens = min(self._most, self._tokens + tokens)


@dataclasses.dataclass(frozen=True)
class Services:
    """The shared services of a runtime; an engine holds them, a strategy never touches them."""

    provider: Provider
    tools: ToolRegistry
    journal: Journal
    gate: PolicyGate
    limits: Limits
    approver: Approver | Suspend | None
    breakers: CircuitBreakers
    context: ContextPolicy
    observers: tuple[Observer, ...]
    providers: Mapping[str, Provider]
    clock: Clock
    on_unknown: OnUnknown
    lease: float | None
    threads: WorkerThreads
    prices: Prices
    retry_budgets: dict[str, RetryBudget]
    redactor: Redactor
    user: User | None
    classifier: Classifier | None
    listener: Listener
    setups: dict[
        tuple[str, Sampling, bool], str
    ]  # what model calls are made with, worked out once for each kind

    def with_tools(self, tools: ToolRegistry) -> Self:
        """The same services with other tools, and what these know and nobody is to be told."""
        other = copy.copy(self)
        vars(other).update(
            tools=tools, setups={}, redactor=self.redactor.knowing(tools.secrets)
        )
        return other

    def named_provider(self, name: str, option: str = "provider") -> Provider:
        """The provider of that name; `ConfigError` naming the option if there is none."""
        if name not in self.providers:
            known = ", ".join(self.providers) or "none"
            raise ConfigError(
                f"{option}: {name!r} is not among Runtime(providers=...), which has {known}"
            )
        return self.providers[name]

    def retry_budget(self, provider: Provider) -> RetryBudget:
        """The retry budget of one provider and model."""
        return self.retry_budgets.setdefault(
            f"{provider.name}/{provider.model}", RetryBudget()
        )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """An engine's `runtime` field is checked by its class alone."""
        hint = "needs a Runtime, like ReActEngine(Runtime(provider))"
        return custom_error_schema(
            is_instance_schema(Services),
            custom_error_type="runtime_type",
            custom_error_message=hint,
        )
