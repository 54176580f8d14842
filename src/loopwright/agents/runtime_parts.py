"""The parts of a runtime: what it has where nothing is given, and what it has besides services."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from .._kernel.session.service_checks import (
    check_providers,
    check_services,
    check_settings,
    check_version,
)
from ..clock import Clock, SystemClock
from ..followups.background import Background
from ..followups.registry import FollowUps, plan_follow_ups
from ..gates.base import DefaultGate
from ..hooks.plan import plan_hooks
from ..journals.base import Journal
from ..journals.memory import MemoryJournal
from ..limits import Limits, ProgressRules
from ..plugins import build_provider, load_hook
from ..providers.base import Provider
from ..providers.context.choice import choose_policy
from ..providers.prices import Prices
from ..resilience.circuit_breaker import CircuitBreakers
from ..security.redaction import Redactor
from ..security.secret_store import check_store
from ..toolboxes.knowledge import build_registry
from ..tools.default_recovery import list_default_recovery
from .registry import Agents

T = TypeVar("T")
CHECKED = (
    "journal", "gate", "breakers", "clock", "redactor", "user", "classifier", "profile", "settings", "executor",
)  # fmt: skip
"""The services that are known by a method of theirs."""
KEPT = (
    "approver", "lease", "user", "classifier", "on_unknown", "settings", "executor", "find_principal",
)  # fmt: skip
"""The services that are kept as they are given."""


def build_services(
    provider: Provider | str, **given: Any
) -> tuple[dict[str, Any], Provider | None]:
    """Return the services of a runtime by name, and the provider to close with it; raise `ConfigError`."""
    fields = ("limits", "approver", "on_unknown", "lease", "providers", "observers", "progress")  # fmt: skip
    observers = check_settings(*(given[field] for field in fields))
    chosen, owned, named = resolve_provider(provider, given["providers"])
    check_services(observers, **{name: given[name] for name in CHECKED})
    clock, journal = choose_storage(given["clock"], given["journal"])
    secrets = check_store(given["secrets"])
    known, bridge, own = build_registry(
        given["tools"], given["profile"], given["knowledge"]
    )
    services = {name: given[name] for name in KEPT} | {
        "provider": chosen,
        "providers": named,
        "tools": known,
        "knowledge": bridge,
        "knowledge_tools": own,
        "observers": observers,
        "clock": clock,
        "journal": journal,
        "gate": choose(given["gate"], DefaultGate),
        "breakers": choose(given["breakers"], lambda: CircuitBreakers(clock=clock)),
        "limits": choose(given["limits"], Limits),
        "progress": choose(given["progress"], ProgressRules),
        "context": choose_policy(given["context"]),
        "prices": Prices(given["prices"]),
        "app_version": check_version(given["app_version"]),
        "secrets": secrets,
        "redactor": build_redactor(
            given["redactor"], chosen, *named.values(), known
        ).with_new_secrets(secrets),
        "default_recovery": list_default_recovery(given["default_recovery"]),
    }
    return services, owned


def build_own_parts(
    runtime: Any, owned: Provider | None, after: object, hooks: object, **more: object
) -> None:
    """Give a runtime what it has besides services: the provider to close, its agents, its follow-ups, and `more`."""
    agents = Agents()
    known, background = FollowUps(agents), Background(runtime.resume)
    planned = plan_follow_ups(known, "", after, runtime)
    # The class is frozen, and these are not given to its constructor.
    fields = cast("dict[str, Any]", vars(runtime))
    fields.update(
        _owned_provider=owned,
        agents=agents,
        follow_ups=known,
        after=planned,
        start_due=background.start,
        hooks=plan_hooks(hooks, load_hook, objects=True),
        load_hook=load_hook,
        _background=background,
        **more,
    )


def choose_storage(
    clock: Clock | None, journal: Journal | None
) -> tuple[Clock, Journal]:
    """Return the clock and the journal, the machine's own and one in memory where none is given."""
    chosen = choose(clock, SystemClock)
    return chosen, choose(journal, lambda: MemoryJournal(clock=chosen))


def resolve_provider(
    provider: Provider | str, named: Mapping[str, Provider] | None
) -> tuple[Provider, Provider | None, dict[str, Provider]]:
    """Return the provider, built if it is a name; the one to close with the runtime; and those that have names.

    Raises `ConfigError` for one without the method of a provider.
    """
    built = build_provider(provider) if isinstance(provider, str) else provider
    owned = built if isinstance(provider, str) else None
    return built, owned, check_providers(built, named)


def choose(value: T | None, build: Callable[[], T]) -> T:
    """Return a value, or what is built where there is none."""
    return build() if value is None else value


def build_redactor(redactor: Redactor | None, *sources: object) -> Redactor:
    """Return the redactor with the secrets that providers and tools report in an attribute `secrets`."""
    secrets = [getattr(source, "secrets", ()) for source in sources]
    return choose(redactor, Redactor).with_new_secrets(*secrets)
