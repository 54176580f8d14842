"""One rule of a policy: the calls that it covers, and the decision about them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, StrictBool

from ..._internal.options import Options
from ...errors import ConfigError
from ...labels import Label, is_at_least
from ...messages import Effect, Json, JsonObject, canonical_json
from ...principals import ApprovalRule, Principal
from ..base import RESPOND, Action, PolicyState
from ..json_pointer import Pointer, parse_pointer, replace_values
from ..matching import compile_globs
from ..provenance import Provenance
from ..run_facts import Author
from ..time_window import Hours
from .conditions import Condition, Texts, Truth, all_hold, compile_condition

Then: TypeAlias = Literal["allow", "deny", "ask", "modify"]
Per: TypeAlias = Literal["run", "tool", "all", "tenant", "tenant and tool", "principal"]
Filter: TypeAlias = Callable[[Action, PolicyState], bool]
"""Whether a rule covers a call, as far as one of its fields decides."""

ANSWER = "respond"
"""The name that rules use for the action `RESPOND`, and for a tool of that name."""

Kinds: TypeAlias = Annotated[tuple[Provenance, ...], Field(min_length=1)]
ALL, DESTINATIONS = "*", "destinations"
"""What stands for all arguments of a call, and for those that decide where it goes."""
LATER_FIELDS = (
    "outbound", "tool_sources", "authors", "planned", "provenance",
    "tenants", "roles", "principals", "approvals", "shared", "in_plan", "copied",
)  # fmt: skip
"""Fields that the version of rules without them leaves out, so that it is as it was."""

KINDS_WITH_FIELD: Mapping[str, tuple[Then, ...]] = {
    "reason": ("deny", "modify"),
    "question": ("ask",),
    "set": ("modify",),
    "at_most": ("allow", "modify"),
    "approvals": ("ask",),
    "shared": ("allow", "modify"),
}
"""Fields that only rules of some kinds have."""


class Rule(Options):
    """A rule of a `RuleGate`: the decision about calls for which all its fields are true.

    Args:
        name: its name; the model reads it when the rule refuses a call.
        then: "allow", "deny", "ask" (a person), or "modify": set arguments, and allow the call
            once they are set.
        tools: globs of tool names, one of which must match: `*` is any text, `?` one character;
            case counts. `respond` is also the answer of the run.
        effects: "read", "idempotent", "write" or "destructive".
        engines: names of engines.
        when: conditions on the arguments, all of which must hold.
        labels: the run has read something with this label or a higher one.
        untrusted: whether the run has read something that came from outside.
        hours: stretches of the week; the time is in one of them.
        outbound: whether data leaves by the call.
        tool_sources: globs of where its tool is from: "own", "manifest", ``mcp:*``; "engine" for what no
            tool does.
        authors: who wrote it: "model", "engine", "operator" (a person) or "code".
        planned: whether it is a step of the plan that was decided before the run read text from
            outside; for such a rule the model is asked for a plan before the engine begins.
        in_plan: whether that plan has its tool, however often it was called.
        copied: whether it names no destination and carries a phrase out of a longer text from outside.
        provenance: where arguments come from, by their names: each is one of these kinds ("caller",
            "lookup", "address", "text", "derived"). "destinations" stands for all that decide where
            the call goes; ``*`` for all, of which there must be one that says something.
        tenants: tenants, one of which is that of the principal that started the run.
        roles: roles, one of which that principal has.
        principals: globs of the id of that principal. A rule with one of these three covers no run without a principal.
        reason: why it refuses or changes a call.
        question: the question for the person who approves.
        approvals: whose approvals that takes: a role, how many people, whether who started the run counts.
        set: values by JSON pointer, "/options/force": the values that "modify" sets.
        at_most: the number of calls that it allows in any `every` seconds; more are refused.
        every: seconds.
        per: whether calls are counted for each "run", "tool", "tenant", "tenant and tool" or "principal", or "all" together.
        shared: whether all processes count together, by the gate's `rates`.

    An "allow" rule applies if all its conditions certainly hold; a "deny" or "ask" rule also if one
    cannot be decided (see `Condition`). A "modify" rule that cannot be decided refuses the call.
    Raises `ConfigError`.
    """

    name: Annotated[str, Field(min_length=1, max_length=100)]
    then: Then
    tools: Texts | None = None
    effects: Annotated[tuple[Effect, ...], Field(min_length=1)] | None = None
    engines: Texts | None = None
    when: Annotated[tuple[Condition, ...], Field(min_length=1)] | None = None
    labels: Label | None = None
    untrusted: StrictBool | None = None
    hours: Annotated[tuple[Hours, ...], Field(min_length=1)] | None = None
    outbound: StrictBool | None = None
    tool_sources: Texts | None = None
    authors: Annotated[tuple[Author, ...], Field(min_length=1)] | None = None
    planned: StrictBool | None = None
    in_plan: StrictBool | None = None
    copied: StrictBool | None = None
    provenance: Annotated[dict[str, Kinds], Field(min_length=1)] | None = None
    tenants: Texts | None = None
    roles: Texts | None = None
    principals: Texts | None = None
    reason: str = ""
    question: str = ""
    approvals: ApprovalRule | None = None
    set: Annotated[dict[str, JsonValue], Field(min_length=1)] | None = None
    at_most: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    every: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None
    per: Per | None = None
    shared: StrictBool | None = None

    def __post_init__(self) -> None:
        """Check what the types do not express."""
        if not self.name.isprintable():
            raise ConfigError(f"name: must be one printable line, got {self.name!r}")
        for field, kinds in KINDS_WITH_FIELD.items():
            if getattr(self, field) and self.then not in kinds:
                raise ConfigError(
                    f"{field}: only for rules with then = {' or '.join(kinds)}, "
                    f"got {self.then!r}"
                )
        if (self.then == "modify") is (self.set is None):
            raise ConfigError(
                'set: a "modify" rule must say which arguments to set, '
                'like {"/path" = "/tmp/x"}'
            )
        _check_limit(self)
        parse_values(self)


def _check_limit(rule: Rule) -> None:
    limit = {"at_most": rule.at_most, "every": rule.every, "per": rule.per}
    lacking = [field for field, value in limit.items() if value is None]
    if 0 < len(lacking) < len(limit):
        raise ConfigError(
            f'{lacking[0]}: a limit needs all of at_most = 5, every = 60, per = "run", '
            '"tool" or "all"'
        )
    if rule.shared and rule.at_most is None:
        raise ConfigError("shared: only for a rule with a limit; give it at_most = 5")


def check_names(rules: Sequence[Rule]) -> None:
    """Raise `ConfigError` if two rules have the same name."""
    numbers: dict[str, int] = {}
    for number, rule in enumerate(rules, 1):
        first = numbers.setdefault(rule.name, number)
        if first != number:
            raise ConfigError(
                f"rule {number} {rule.name!r}: name: rule {first} has it too"
            )


def parse_values(rule: Rule) -> dict[Pointer, Json]:
    """Return the values that a rule sets, by the steps to them. Raises `ConfigError`."""
    values: dict[Pointer, Json] = {}
    for text, value in sorted((rule.set or {}).items()):
        try:
            pointer = parse_pointer(text)
            canonical_json(value)
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"set: {text}: {error}") from None
        if "*" in pointer or "-" in pointer:
            raise ConfigError(f"set: {text}: does not name a single value")
        if any(pointer[: len(other)] == other for other in values):
            raise ConfigError(f"set: {text}: lies within another value that is set")
        values[pointer] = value
    return values


def _list_names(tool: str) -> tuple[str, ...]:
    """Return the names that rules may use for a tool, or for the answer."""
    return (ANSWER, RESPOND) if tool == RESPOND else (tool,)


class CompiledRule:
    """A rule that is ready to be evaluated."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._filters = tuple(_compile_filters(rule))
        self._conditions = tuple(map(compile_condition, rule.when or ()))
        self._values = parse_values(rule)

    def applies(self, action: Action, state: PolicyState) -> Truth:
        """Whether the rule applies to a call; `None` if its conditions cannot be decided."""
        for covers in self._filters:
            if not covers(action, state):
                return False
        return all_hold(holds(action.filled) for holds in self._conditions)

    def set(self, arguments: JsonObject) -> JsonObject | None:
        """Return the arguments with the rule's values; `None` if they cannot be set.

        Returns the same object if the arguments have these values already.
        """
        changed = replace_values(arguments, self._values)
        if changed is None:
            return None
        is_same = canonical_json(changed) == canonical_json(arguments)
        return arguments if is_same else changed


def _compile_filters(rule: Rule) -> Iterable[Filter]:
    """Return the tests of a call for the fields that the rule has."""
    if rule.tools is not None:
        yield _compile_tools(rule.tools)
    if rule.effects is not None:
        yield _compile_effects(rule.effects)
    if rule.engines is not None:
        yield _compile_engines(rule.engines)
    if rule.labels is not None:
        yield _compile_label(rule.labels)
    if rule.untrusted is not None:
        yield lambda _, state: state.untrusted is rule.untrusted
    if rule.hours is not None:
        yield _compile_hours(rule.hours)
    yield from _compile_flow_filters(rule)
    if (rule.tenants, rule.roles, rule.principals) != (None, None, None):
        yield _compile_principals(rule)


def _compile_flow_filters(rule: Rule) -> Iterable[Filter]:
    """Return the tests of who wrote a call, what it does with data, and where its values come from."""
    if rule.outbound is not None:
        yield lambda action, _: action.outbound is rule.outbound
    if rule.tool_sources is not None:
        is_named = compile_globs(rule.tool_sources)
        yield lambda action, _: is_named(action.source)
    if rule.authors is not None:
        authors = rule.authors
        yield lambda _, state: state.author in authors
    if rule.planned is not None:
        yield lambda action, state: state.is_planned(action.tool) is rule.planned
    if rule.in_plan is not None:
        yield lambda action, state: state.is_in_plan(action.tool) is rule.in_plan
    if rule.copied is not None:
        yield lambda action, _: bool(action.copied) is rule.copied
    for name, kinds in (rule.provenance or {}).items():
        yield _compile_provenance(name, kinds)


def _compile_principals(rule: Rule) -> Filter:
    """Return the test of who started the run; without a principal it fails."""
    tenants, roles = rule.tenants, rule.roles
    is_named = compile_globs(rule.principals or ("*",))

    def covers(principal: Principal) -> bool:
        if tenants is not None and principal.tenant not in tenants:
            return False
        if roles is not None and not {*roles} & {*principal.roles}:
            return False
        return is_named(principal.id)

    return lambda action, _: action.principal is not None and covers(action.principal)


def _compile_provenance(name: str, kinds: Sequence[Provenance]) -> Filter:
    def covers(action: Action, state: PolicyState) -> bool:
        provenance = action.provenance
        if name == ALL:
            names: Sequence[str] = [*provenance] if provenance.says_something else [""]
        elif name == DESTINATIONS:
            names = action.destinations
        else:
            names = [name]
        return all(_kind_of(action, one) in kinds for one in names)

    return covers


def _kind_of(action: Action, name: str) -> Provenance | None:
    """Return where an argument comes from; `None` for one that is not there."""
    provenance = action.provenance
    if name not in provenance:
        return None
    kind = provenance.kind_of(name)
    return provenance[name].kind if kind == "derived" else kind


def _compile_tools(globs: Iterable[str]) -> Filter:
    matches = compile_globs(globs)
    return lambda action, _: any(map(matches, _list_names(action.tool)))


def _compile_effects(effects: Sequence[Effect]) -> Filter:
    return lambda action, _: action.effect in effects


def _compile_engines(engines: Sequence[str]) -> Filter:
    return lambda _, state: state.engine in engines


def _compile_label(label: Label) -> Filter:
    return lambda _, state: is_at_least(state.label, label)


def _compile_hours(stretches: Sequence[Hours]) -> Filter:
    return lambda _, state: any(hours.include(state.at) for hours in stretches)
