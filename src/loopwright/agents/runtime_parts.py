"""The parts of a runtime: what it has where nothing is given, and what it has besides services."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .._kernel.session.service_checks import check_providers
from ..clock import Clock, SystemClock
from ..followups.background import Background
from ..followups.registry import FollowUps, plan_follow_ups
from ..hooks.plan import plan_hooks
from ..journals.base import Journal
from ..journals.memory import MemoryJournal
from ..plugins import build_provider, load_hook
from ..providers.base import Provider
from ..security.redaction import Redactor
from .registry import Agents

T = TypeVar("T")


def build_own_parts(
    runtime: Any, owned: Provider | None, after: object, hooks: object, **more: object
) -> None:
    """Give a runtime what it has besides services: the provider to close, its agents, its follow-ups, and `more`."""
    known, background = FollowUps(), Background(runtime.resume)
    planned = plan_follow_ups(known, "", after, runtime)
    # The class is frozen, and these are not given to its constructor.
    vars(runtime).update(
        _owned_provider=owned,
        agents=Agents(),
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
