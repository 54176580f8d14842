"""What Cedar policies know of who started a run: the principal's id, and its tenant and roles as entities."""

from collections.abc import Iterable

from ..._internal import dataclasses
from ...messages import Json
from ...principals import Principal, check_name, check_roles

TENANT, ROLE = "Tenant", "Role"


@dataclasses.dataclass(frozen=True)
class Roster:
    """The tenants and roles that policies may name; Cedar's validator refuses any other.

    Without any, the schema and the requests are as they are for policies that do not ask who.

    Args:
        tenants: names of tenants.
        roles: names of roles.
    """

    tenants: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    @classmethod
    def of(cls, tenants: Iterable[str], roles: Iterable[str]) -> "Roster":
        """Return the roster of two lists; raise `ConfigError` for a name that cannot be one."""
        named = tuple(check_name("tenants", one) for one in tenants)
        return cls(named, check_roles("roles", roles))

    @property
    def entity_types(self) -> dict[str, Json]:
        """Return the types of the entities, which list them all."""
        known = {TENANT: self.tenants, ROLE: self.roles}
        return {kind: {"enum": [*names]} for kind, names in known.items() if names}

    @property
    def attributes(self) -> dict[str, Json]:
        """Return the attributes of `context` in the schema."""
        found: dict[str, Json] = {}
        if self.tenants or self.roles:
            found["user"] = {"type": "String", "required": False}
        if self.tenants:
            found["tenant"] = {"type": "Entity", "name": TENANT, "required": False}
        if self.roles:
            element: Json = {"type": "Entity", "name": ROLE}
            found["roles"] = {"type": "Set", "element": element}
        return found

    def describe(self, principal: Principal | None) -> dict[str, Json]:
        """Return the attributes of a request; a tenant or a role that is not in the roster is left out."""
        found: dict[str, Json] = {}
        known = () if principal is None else principal.roles
        if principal is not None and self.attributes:
            found["user"] = principal.id
        if principal is not None and principal.tenant in self.tenants:
            found["tenant"] = _entity(TENANT, principal.tenant)
        if self.roles:
            found["roles"] = [_entity(ROLE, one) for one in known if one in self.roles]
        return found


NO_ROSTER = Roster()
"""The roster of policies that do not ask who."""


def _entity(kind: str, name: str) -> Json:
    return {"__entity": {"type": kind, "id": name}}
