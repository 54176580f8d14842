"""Check what a runtime is given: settings, versions of the application, and the methods of its services."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..._internal.regex import compile_late
from ...errors import ConfigError
from ...gates.base import Suspend
from ...journals.access import check_reads
from ...limits import Limits, ProgressRules
from ...providers.base import Provider

_APP_VERSION = compile_late(r"[!-~]{0,128}")
_METHODS = {
    "provider": "complete", "journal": "barrier", "gate": "evaluate", "breakers": "get",
    "clock": "monotonic", "redactor": "redact_text", "user": "__call__", "classifier": "label", "profile": "choose",
    "settings": "read", "executor": "execute",
}  # fmt: skip
"""A method of each service that other objects lack."""


def check_settings(
    limits: object,
    approver: object,
    on_unknown: object,
    lease: object,
    providers: object,
    observers: object,
    progress: object = None,
) -> tuple[Any, ...]:
    """Return the observers; raise `ConfigError` for an invalid setting."""
    is_number = isinstance(lease, (int, float))
    if lease is not None and not (is_number and 0 < cast(float, lease) < math.inf):
        raise ConfigError(f"lease: must be seconds above 0, or None, got {lease!r}")
    if on_unknown not in ("tell", "ask", "stop"):
        raise ConfigError(
            f'on_unknown: must be "tell", "ask" or "stop", got {on_unknown!r}'
        )
    if limits is not None and not isinstance(limits, Limits):
        raise ConfigError(f"limits: must be Limits(...), got {limits!r}")
    is_approver = isinstance(approver, Suspend) or callable(approver)
    if approver is not None and not is_approver:
        raise ConfigError(
            f"approver: must be None, Suspend() or an async function, got {approver!r}"
        )
    if providers is not None and not isinstance(providers, Mapping):
        raise ConfigError(f"providers: must be a mapping, got {providers!r}")
    if not isinstance(observers, Iterable):
        raise ConfigError(f"observers: must be a list, got {observers!r}")
    if progress is not None and not isinstance(progress, ProgressRules):
        raise ConfigError(f"progress: must be ProgressRules(...), got {progress!r:.80}")
    return tuple(observers)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def check_version(version: object, field: str = "app_version") -> str:
    if isinstance(version, str) and _APP_VERSION.fullmatch(version):
        return version
    raise ConfigError(
        f"{field}: must be at most 128 printable characters without spaces, got {version!r}"
    )


def check_providers(
    provider: object, named: Mapping[str, Provider] | None
) -> dict[str, Provider]:
    """Return the named providers; raise `ConfigError` for one without the method of a provider."""
    _check_method("provider", provider, _METHODS["provider"])
    found = dict(named or {})
    for name, other in found.items():
        _check_method(f"providers[{name!r}]", other, _METHODS["provider"])
    return found


def check_services(observers: Iterable[object], **services: object) -> None:
    """Raise `ConfigError` for a service without the method of its kind."""
    for observer in observers:
        _check_method("observers", observer, "__call__")
    for field, service in services.items():
        if service is not None:
            _check_method(field, service, _METHODS[field])
    check_reads(services.get("journal"))


def _check_method(field: str, service: object, method: str) -> None:
    if not isinstance(service, type) and callable(getattr(service, method, None)):
        return
    hint = ""
    if field == "journal" and isinstance(service, str):
        hint = f", like SQLiteJournal({service!r})"
    found = type(service).__name__
    if isinstance(service, type):
        found = f"the class {service.__name__}"
    raise ConfigError(
        f"{field}: needs an object with a method `{method}`{hint}, got {found}"
    )


def accepted_versions(own: str, accepts: Iterable[str]) -> frozenset[str] | None:
    """Return the versions whose runs are taken by code of the version `own`, `None` for all."""
    if not isinstance(accepts, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigError(f"accepts: must be a list of versions, got {accepts!r}")
    named = (accepts,) if isinstance(accepts, str) else accepts
    others = frozenset(check_version(version, "accepts") for version in named)
    if own:
        return others | {own}
    if others:
        raise ConfigError(
            f"accepts: a worker without a version takes every run, got {sorted(others)}; "
            "pass Runtime(app_version=...) or leave it out"
        )
    return None
