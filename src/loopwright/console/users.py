"""Who uses the console: a person or a principal, and what their roles let them see and do."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, cast, get_args

from .._internal import dataclasses
from ..errors import ConfigError
from ..principals import ApprovalRule, Principal, Sender, check_roles

Right: TypeAlias = Literal["view", "operate", "approve", "admin", "chat"]
RIGHTS: tuple[Right, ...] = get_args(Right)
RIGHT_OF_ACTION: Mapping[str, Right] = {
    "approve": "approve",
    "deny": "approve",
    "resolve": "approve",
    "declassify": "admin",
    "delete": "admin",
}
"""What an action needs, where that is not the right to operate."""
OWN = frozenset[Right](("chat",))
"""What reaches one's own runs alone, so that it does not let a principal view those of others."""


def check_mapping(roles: object) -> Mapping[str, frozenset[Right]]:
    """Return what each role may do; raise `ConfigError` for a role or a right that cannot be."""
    own: dict[str, frozenset[Right]] = {one: frozenset((one,)) for one in RIGHTS}
    if roles is None:
        return own
    if not isinstance(roles, Mapping):
        raise ConfigError(
            f'roles: must be a mapping, like {{"manager": ("approve",)}}, got {roles!r:.80}'
        )
    given = cast("Mapping[str, object]", roles)
    check_roles("roles", tuple(given))
    return {**own, **{role: _check_rights(role, one) for role, one in given.items()}}


def _check_rights(role: str, given: object) -> frozenset[Right]:
    rights: object = (given,) if isinstance(given, str) else given
    is_several = isinstance(rights, Iterable)
    found = frozenset(cast("Iterable[object]", rights)) if is_several else None
    if found is None or not found <= frozenset(RIGHTS):
        raise ConfigError(
            f"roles[{role!r}]: must be of {', '.join(RIGHTS)}, got {given!r:.80}"
        )
    return cast("frozenset[Right]", found)


@dataclasses.dataclass(frozen=True)
class ConsoleUser:
    """One user of the console.

    Args:
        sender: who it is; each command is signed with that.
        rights: what it may do.
    """

    sender: Sender
    rights: frozenset[Right] = frozenset(RIGHTS)

    @classmethod
    def of(cls, sender: Sender, roles: Mapping[str, frozenset[Right]]) -> "ConsoleUser":
        """Return a user with the rights of its roles; a plain name has all of them, and those of every tenant."""
        if isinstance(sender, str):
            return cls(sender)
        found = frozenset[Right]().union(*(roles.get(one, ()) for one in sender.roles))
        if "admin" in found:
            return cls(sender)
        viewing: frozenset[Right] = frozenset(("view",) if found - OWN else ())
        chatting = OWN if "operate" in found else frozenset[Right]()
        return cls(sender, found | viewing | chatting)

    @property
    def name(self) -> str:
        """The name that is recorded, with the tenant."""
        return str(self.sender)

    @property
    def tenant(self) -> str:
        """The tenant whose runs it sees; empty for those of all."""
        return self.sender.tenant if isinstance(self.sender, Principal) else ""

    @property
    def admin(self) -> Principal:
        """The principal that it is where only one with the role `admin` may act; see `find_problem`."""
        if isinstance(self.sender, str):
            return Principal(self.sender, roles=("admin",))
        return Principal(
            self.sender.id, self.sender.tenant, (*self.sender.roles, "admin")
        )

    def find_problem(self, right: Right) -> str:
        """Return why it may not do what needs a right; empty if it may."""
        if right in self.rights:
            return ""
        return f"{self.name} may not: that needs the right to {right!r}, by a role"

    def find_problem_of_rule(
        self, rule: ApprovalRule | None, starter: Principal | None
    ) -> str:
        """Return why its approvals do not count in a run of that rule and starter; empty if they may."""
        if rule is None:
            return ""
        sender = self.sender
        if isinstance(sender, Principal) and rule.counts(sender, starter):
            return ""
        return f"the run takes approvals of {rule} alone"

    def reaches(self, tenant: str) -> bool:
        """Whether it may see what is of a tenant: its own, or all if it is of none."""
        return self.tenant in ("", tenant)
