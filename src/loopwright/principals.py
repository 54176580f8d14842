"""Who starts runs and sends them commands: principals, their tenants and roles, and whose approvals count."""

import dataclasses
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from .errors import ConfigError

MAX_NAME = 256  # characters: those of the value of a tag
MAX_PEOPLE = 10
ROLE_PATTERN = r"^([A-Za-z0-9][A-Za-z0-9._:/-]{0,63})?$"
"""The names of roles, and none."""
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
_PARTS = re.compile(r"(?P<id>[^:@][^:]*?)(?:@(?P<tenant>[^@:]+))?(?::(?P<roles>.*))?")
TENANT_TAG, USER_TAG = "tenant", "user"
"""The tags of a run that has a principal: its tenant, and its id."""


@dataclasses.dataclass(frozen=True)
class Principal:
    """A person or a service that acts: who started a run, or who sends it a command.

    The application says who it is, once it has authenticated them; nothing a model writes is one.

    Args:
        id: its name, of 1 to 256 printable characters, unique within the tenant.
        tenant: the customer or the organisation that it belongs to; empty for none.
        roles: what it may act as: letters, digits and ``. _ : / -``.
    """

    id: str
    tenant: str = ""
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a name that is none."""
        check_name("id", self.id)
        if self.tenant != "":
            check_name("tenant", self.tenant)
        object.__setattr__(self, "roles", check_roles("roles", self.roles))

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """Return the principal that a text names: "ann", "ann@acme" or "ann@acme:buyer,approver"."""
        found = _PARTS.fullmatch(text)
        if found is None:
            raise ConfigError(
                f'principal: must be like "ann@acme:buyer,approver", got {text!r:.80}'
            )
        roles = (found["roles"] or "").split(",") if found["roles"] is not None else []
        return cls(found["id"], found["tenant"] or "", tuple(roles))

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags of the runs that it starts, by which a journal finds them."""
        tenant = {TENANT_TAG: self.tenant} if self.tenant else {}
        return {**tenant, USER_TAG: self.id}

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"id": self.id, "tenant": self.tenant, "roles": list(self.roles)}

    def is_same(self, other: "Principal") -> bool:
        """Whether both are the same person, whatever their roles."""
        return (self.id, self.tenant) == (other.id, other.tenant)

    def may_reach(self, tenant: str) -> bool:
        """Whether it may act on what is of a tenant: its own, or all if it is of none."""
        return self.tenant in ("", tenant)

    def __str__(self) -> str:
        return f"{self.id}@{self.tenant}" if self.tenant else self.id


FindPrincipal: TypeAlias = Callable[
    [Principal], Principal | Awaitable[Principal | None] | None
]
"""Returns a principal that was recorded as it is now, with its roles; `None` for one that may start nothing any more."""


Sender: TypeAlias = str | Principal
"""Who sends a command: a name that is only recorded, or a principal."""


@dataclasses.dataclass(frozen=True)
class ApprovalRule:
    """Whose approvals let a call run: `run(..., approvals=ApprovalRule(role="manager", people=2))`.

    Only approvals of a `Principal` count under a rule, for this call with these arguments. Every denial counts.

    Args:
        role: the role that each of them needs; empty for any.
        people: how many different people, 1 to 10.
        not_starter: whether the principal that started the run is none of them.
    """

    role: str = ""
    people: int = 1
    not_starter: bool = False

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a rule that cannot be met."""
        if self.role != "":
            check_roles("role", (self.role,))
        if self.people not in range(1, MAX_PEOPLE + 1) or self.people is True:
            raise ConfigError(
                f"people: must be 1 to {MAX_PEOPLE}, got {self.people!r:.40}"
            )

    def counts(self, sender: Principal, starter: Principal | None) -> bool:
        """Whether an approval by that principal counts for a run that another one started."""
        if self.role and self.role not in sender.roles:
            return False
        is_starter = starter is not None and sender.is_same(starter)
        return not (self.not_starter and is_starter)

    def __str__(self) -> str:
        people = "a person" if self.people == 1 else f"{self.people} people"
        role = f" with the role {self.role!r}" if self.role else ""
        return f"{people}{role}{', not who started the run' * self.not_starter}"


def check_name(field: str, name: object) -> str:
    """Return the name of a principal or a tenant; raise `ConfigError` if it cannot be one."""
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable():
        return name
    raise ConfigError(
        f"{field}: must be 1 to {MAX_NAME} printable characters, got {name!r:.80}"
    )


def check_roles(field: str, roles: object) -> tuple[str, ...]:
    """Return names of roles, each once; raise `ConfigError` for one that cannot be one."""
    if isinstance(roles, str) or not isinstance(roles, Iterable):
        raise ConfigError(
            f'{field}: must be a list, like ["manager"], got {roles!r:.80}'
        )
    named = tuple(dict.fromkeys(cast("Iterable[object]", roles)))
    for role in named:
        if not (isinstance(role, str) and _ROLE.fullmatch(role)):
            raise ConfigError(
                f"{field}: a role has letters, digits and . _ : / -, at most 64, got {role!r:.80}"
            )
    return cast("tuple[str, ...]", named)


def sign_body(body: Mapping[str, Any], by: Sender | None) -> dict[str, Any]:
    """Return the body of a command with its sender, if one is named."""
    if isinstance(by, Principal):
        return {**body, "by": by.id, "principal": by.to_json()}
    return {**body, "by": by} if by else dict(body)


def read_principal(value: object) -> Principal | None:
    """Return the principal that JSON says; `None` if it says none."""
    if not isinstance(value, Mapping):
        return None
    fields = cast("Mapping[str, Any]", value)
    try:
        return Principal(
            fields["id"], fields.get("tenant", ""), tuple(fields.get("roles", ()))
        )
    except (ConfigError, KeyError, TypeError):
        return None


@dataclasses.dataclass(frozen=True)
class Quorum:
    """Whose approvals a call needs: all of these rules, in a run that `starter` started.

    Without a rule one approval is enough.
    """

    rules: tuple[ApprovalRule, ...] = ()
    starter: Principal | None = None

    def count_enough(self, senders: Sequence[object]) -> int:
        """Return how many of these approvals, the newest first, are enough; 0 if all of them are not.

        Each is given by its sender as JSON, or by what else a command has there.
        """
        if not self.rules:
            return min(len(senders), 1)
        known = list(map(read_principal, senders))
        numbers = range(1, len(known) + 1)
        return next((n for n in numbers if self._is_enough(known[:n])), 0)

    def find_counting(self, senders: Sequence[object]) -> tuple[Principal, ...]:
        """Return the different principals among these whose approvals count under every rule."""
        counting = self._list_counting(map(read_principal, senders), self.rules)
        return tuple(counting.values())

    def _is_enough(self, senders: Sequence[Principal | None]) -> bool:
        return all(
            len(self._list_counting(senders, (rule,))) >= rule.people
            for rule in self.rules
        )

    def _list_counting(
        self, senders: Iterable[Principal | None], rules: tuple[ApprovalRule, ...]
    ) -> dict[tuple[str, str], Principal]:
        """Return the different people whose approvals count under these rules."""
        return {
            (one.id, one.tenant): one
            for one in senders
            if one is not None and all(rule.counts(one, self.starter) for rule in rules)
        }


ONE_APPROVAL = Quorum()
"""One approval is enough."""


def tag_principal(
    tags: Mapping[str, str], principal: Principal | None
) -> dict[str, str]:
    """Return the tags of a run with those of its principal; raise `ConfigError` if they say another one."""
    own = {} if principal is None else principal.tags
    for name, value in own.items():
        if tags.get(name, value) != value:
            raise ConfigError(
                f"tags[{name!r}]: is {tags[name]!r}, and the principal says {value!r}; leave it out"
            )
    return {**tags, **own}
