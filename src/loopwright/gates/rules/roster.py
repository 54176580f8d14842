"""The tenants and roles that a policy knows, so that a misspelled one is found when it is loaded."""

import difflib
from collections.abc import Iterable, Sequence

from ..._internal import dataclasses
from ...errors import ConfigError
from ...principals import check_name, check_roles
from .rule import Rule


@dataclasses.dataclass(frozen=True)
class Roster:
    """The tenants and the roles that rules may name.

    Args:
        tenants: names of tenants.
        roles: names of roles.
    """

    tenants: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    @classmethod
    def of(cls, tenants: object, roles: object) -> "Roster":
        """Return the roster of two lists; raise `ConfigError` for a name that cannot be one."""
        if isinstance(tenants, str) or not isinstance(tenants, Iterable):
            raise ConfigError(f"tenants: must be a list of names, got {tenants!r:.80}")
        named = tuple(check_name("tenants", one) for one in tenants)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return cls(named, check_roles("roles", roles))

    def check(self, rules: Sequence[Rule]) -> None:
        """Raise `ConfigError` for a rule that names a tenant or a role that is not in it."""
        for rule in rules:
            wanted = rule.approvals.role if rule.approvals else ""
            for tenant in rule.tenants or ():
                _check_known(rule, "tenants", tenant, self.tenants)
            for role in (*(rule.roles or ()), *([wanted] if wanted else ())):
                _check_known(rule, "roles", role, self.roles)


def _check_known(rule: Rule, field: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {list(known)}"
    raise ConfigError(
        f"rule {rule.name!r}: {field}: there is no {name!r}; {hint} "
        f'(the policy names all that there are: {field} = ["..."])'
    )
