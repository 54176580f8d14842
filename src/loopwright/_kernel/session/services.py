"""Services: what the engines of one runtime share, as one frozen dataclass."""

import copy
import functools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

from pydantic import GetCoreSchemaHandler
from pydantic_core.core_schema import (
    CoreSchema,
    custom_error_schema,
    is_instance_schema,
)

from ..._internal import dataclasses
from ...clock import Clock
from ...errors import ConfigError
from ...events.entry import Entry
from ...events.followups import PlannedFollowUp
from ...gates.base import Approver, PolicyGate, Suspend
from ...hooks.base import PlannedHook
from ...journals.base import Journal
from ...journals.renewals import Renewals
from ...knowledge.bridge import KnowledgeBridge
from ...labels import Classifier
from ...limits import Limits, ProgressRules
from ...messages import Conversation
from ...principals import FindPrincipal
from ...providers.base import Provider, Request, Sampling
from ...providers.context.base import ContextPolicy
from ...providers.context.tokens import TokenMeter
from ...providers.prices import Prices
from ...resilience.circuit_breaker import CircuitBreakers
from ...resilience.retry_budget import RetryBudget
from ...resilience.timeouts import WorkerThreads
from ...security.redaction import Redactor
from ...security.secret_store import NO_SECRETS, SecretStore
from ...security.signed_commands import CommandSigner
from ...settings.base import Settings
from ...tools.base import Tool
from ...tools.executor import ToolExecutor
from ...tools.recovery import RecoveryStrategy
from ...tools.registry import ToolRegistry
from ..control.journal_poller import JournalPoller
from ..control.run_feeds import RunFeeds
from .instructions import Instructions
from .turn_queue import TurnQueue
from .unwatched_runs import UnwatchedRuns

User: TypeAlias = Callable[[str], Awaitable[str]]
Observer: TypeAlias = Callable[[Entry], None]
RequestObserver: TypeAlias = Callable[[str, Sequence[str], Request], None]
"""Is shown the run, the keys of its model calls, and what they send."""
REQUEST_OBSERVER = "observe_request"
"""The method of an observer that is one."""
OnUnknown: TypeAlias = Literal["tell", "ask", "stop"]


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
    prices: Prices
    redactor: Redactor
    user: User | None
    classifier: Classifier | None
    worker_threads: WorkerThreads = dataclasses.field(default_factory=WorkerThreads)
    retry_budgets: dict[str, RetryBudget] = dataclasses.field(
        default_factory=dict[str, RetryBudget]
    )
    setups: dict[tuple[str, Sampling, bool], str] = dataclasses.field(
        default_factory=dict[tuple[str, Sampling, bool], str]
    )
    """What model calls are made with, worked out once for each kind."""
    token_meters: defaultdict[str, TokenMeter] = dataclasses.field(
        default_factory=lambda: defaultdict(TokenMeter)
    )
    turn_ends: dict[str, Conversation] = dataclasses.field(
        default_factory=dict[str, Conversation]
    )
    """The conversations with which turns of threads ended, by the hash of their last entry: a few of them."""
    turn_queues: dict[tuple[int, str], TurnQueue] = dataclasses.field(
        default_factory=dict[tuple[int, str], TurnQueue]
    )
    """The messages that wait for their turn, by event loop and thread."""
    unwatched: UnwatchedRuns = dataclasses.field(default_factory=UnwatchedRuns)
    """The runs whose watchers went away, and that continue."""
    inbox_poller: JournalPoller = dataclasses.field(init=False)
    renewals: Renewals = dataclasses.field(init=False)
    """Renews the leases of the runs at work."""
    feeds: RunFeeds = dataclasses.field(init=False)
    app_version: str = ""
    knowledge: KnowledgeBridge | None = None
    knowledge_tools: tuple[Tool, ...] = ()
    """The tools of that store, which are among `tools` unless an agent has tools of its own."""
    has_own_knowledge: bool = False
    """Whether the store, or that there is none, is the agent's and not the runtime's."""
    runtime_knowledge: KnowledgeBridge | None = None
    """The store of the runtime, of an agent with knowledge of its own."""
    replaced_tools: tuple[Tool, ...] = ()
    """The tools of the runtime's knowledge, of an agent that has its own, or none."""
    hooks: tuple[PlannedHook, ...] = ()
    """The hooks of the runs of these services, but for those of an engine itself."""
    load_hook: Callable[[str], Any] | None = None
    """Returns what the name of a hook stands for."""
    agents: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """The agents of the runtime by name, to hand a run off to."""
    command_signer: CommandSigner | None = None
    """Signs the commands that this process sends, and checks those that its runs take."""
    agent_name: str = ""
    """The name of the agent that these services are for; empty for none."""
    instructions: Instructions | None = None
    """What stands in front of each request of that agent."""
    after: tuple[PlannedFollowUp, ...] = ()
    """The follow-ups of the runs that begin."""
    default_recovery: tuple[RecoveryStrategy, ...] = ()
    """The strategies for tools without any of their own."""
    progress: ProgressRules = dataclasses.field(default_factory=ProgressRules)
    """When a run makes no progress, and what happens then."""
    executor: ToolExecutor | None = None
    """Runs the functions of the tools that it accepts; the others run here."""
    secrets: SecretStore = NO_SECRETS
    """What tools ask for by name."""
    settings: Settings | None = None
    """What is changed while the application runs, read by each run as it begins."""
    find_principal: FindPrincipal | None = None
    """Returns a recorded principal as it is now."""
    start_due: Callable[[tuple[str, ...]], None] | None = None
    """Begins runs that are due in the background."""

    def __post_init__(self) -> None:
        """Make what follows from the journal."""
        poller, feeds = JournalPoller(self.journal), RunFeeds(self.journal)
        vars(self).update(inbox_poller=poller, feeds=feeds)  # of a frozen class
        vars(self).update(renewals=Renewals(self.journal))

    @functools.cached_property
    def request_observers(self) -> tuple[RequestObserver, ...]:
        """The `observe_request` of the observers that have one, which are shown what model calls send."""
        observers: list[Any] = [*self.observers]
        found = (getattr(one, REQUEST_OBSERVER, None) for one in observers)
        return tuple(one for one in found if one is not None)

    def with_tools(self, tools: ToolRegistry) -> Self:
        """Return the same services with other tools, and a redactor that knows their secrets."""
        other = copy.copy(self)
        vars(other).update(
            tools=tools,
            setups={},
            redactor=self.redactor.with_new_secrets(tools.secrets),
        )
        return other

    def with_knowledge(
        self, bridge: KnowledgeBridge | None, tools: tuple[Tool, ...]
    ) -> Self:
        """Return the same services with another store of knowledge, or none, and its tools for those of the one before."""
        kept = self.tools.without_tools(self.knowledge_tools)
        other = self.with_tools(kept.with_tools(*tools))
        vars(other).update(knowledge=bridge, knowledge_tools=tools)
        vars(other).update(has_own_knowledge=True, runtime_knowledge=self.knowledge)
        vars(other).update(replaced_tools=self.knowledge_tools)
        return other

    def with_agent(
        self,
        agent: str,
        instructions: Instructions | None,
        *,
        tools: ToolRegistry | None,
        limits: Limits,
        after: tuple[PlannedFollowUp, ...] | None = None,
        context: ContextPolicy | None = None,
        hooks: tuple[PlannedHook, ...] = (),
    ) -> Self:
        """Return the services of an agent: the same but for what it has of its own; `hooks` are beside theirs."""
        other = self.with_tools(self.tools if tools is None else tools)
        vars(other).update(agent_name=agent, instructions=instructions, limits=limits)
        vars(other).update(after=self.after if after is None else after)
        vars(other).update(context=context or self.context)
        vars(other).update(hooks=(*hooks, *self.hooks))
        return other

    def with_model(self, name: str) -> Self:
        """Return the same services with a named provider as their own."""
        other = copy.copy(self)
        vars(other).update(provider=self.named_provider(name, "model"))
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
        """Return the retry budget of one provider and model."""
        name = f"{provider.name}/{provider.model}"
        budget = self.retry_budgets.get(name)
        if budget is None:
            budget = self.retry_budgets.setdefault(name, RetryBudget(clock=self.clock))
        return budget

    def token_meter(self, provider: Provider) -> TokenMeter:
        """Return the token meter of one provider and model."""
        name = f"{provider.name}/{provider.model}"
        return self.token_meters[name]

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
