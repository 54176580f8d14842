"""One rule of a policy: which calls it speaks of, and what becomes of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, StrictBool

from ..._internal.options import Options
from ...errors import ConfigError
from ...labels import Label, at_least
from ...messages import Effect, Json, JsonObject, canonical_json
from ..base import RESPOND, Action, PolicyState
from ..json_pointer import Pointer, put, read_pointer
from ..matching import globs
from ..time_window import Hours
from .conditions import Condition, Texts, Told, both, teller

Then: TypeAlias = Literal["allow", "deny", "ask", "modify"]
Per: TypeAlias = Literal["run", "tool", "all"]

ANSWER = "respond"
"""What rules call giving the answer of a run, which is the action `RESPOND`; and a tool of that name, if there is."""

ONLY: Mapping[str, tuple[Then, ...]] = {
    "reason": ("deny", "modify"),
    "question": ("ask",),
    "set": ("modify",),
    "at_most": ("allow", "modify"),
}
"""Fields that only rules of some kinds have."""


class Rule(Options):
    """A rule of a `RuleGate`: what it says about a call of which all that it names is true.

    Args:
        name: what it is called; the model reads it when the rule refuses a call.
        then: "allow", "deny", "ask" (a person), or "modify": set arguments, and allow the call once they are so.
        tools: globs of tool names, of which one fits: `*` is any text, `?` one character; case counts.
            `respond` is the answer of the run, too.
        effects: "read", "idempotent", "write" or "destructive".
        engines: names of engines.
        when: conditions on the arguments, which all have to hold.
        labels: the run has read something that is labelled so or higher.
        untrusted: whether the run has read something that came from outside.
        hours: stretches of the week; the time is in one of them.
        reason: why it refuses or changes a call.
        question: what a person is asked.
        set: values by JSON pointer, "/options/force": what "modify" sets.
        at_most: so many calls it allows in any `every` seconds; what is more is refused.
        every: seconds.
        per: whether each run is counted by itself, each tool, or all calls together.

    An "allow" rule applies where all its conditions hold for certain; a "deny" or "ask" rule also where one cannot be
    told (see `Condition`). A "modify" rule of which that cannot be told refuses the call. Raises `ConfigError`.
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
    reason: str = ""
    question: str = ""
    set: Annotated[dict[str, JsonValue], Field(min_length=1)] | None = None
    at_most: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    every: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None
    per: Per | None = None

    def __post_init__(self) -> None:
        """Check what the types do not tell."""
        if not self.name.isprintable():
            raise ConfigError("name: has to be one line that can be shown")
        for field, kinds in ONLY.items():
            if getattr(self, field) and self.then not in kinds:
                raise ConfigError(
                    f"{field}: only for rules that {' or '.join(kinds)}, and this one says {self.then!r}"
                )
        if (self.then == "modify") is (self.set is None):
            raise ConfigError(
                'set: say which arguments to set, like {"/path" = "/tmp/x"}'
            )
        given = {"at_most": self.at_most, "every": self.every, "per": self.per}
        lacking = [field for field, value in given.items() if value is None]
        if 0 < len(lacking) < len(given):
            raise ConfigError(
                f'{lacking[0]}: a limit is all three: at_most = 5, every = 60, per = "run", "tool" or "all"'
            )
        values_to_set(self)


def check_names(rules: Sequence[Rule]) -> None:
    """Raises `ConfigError` if two rules have one name."""
    numbers: dict[str, int] = {}
    for number, rule in enumerate(rules, 1):
        if numbers.setdefault(rule.name, number) != number:
            raise ConfigError(
                f"rule {number} {rule.name!r}: name: rule {numbers[rule.name]} has it too"
            )


def values_to_set(rule: Rule) -> dict[Pointer, Json]:
    """The values that a rule sets, by the steps to them. Raises `ConfigError`."""
    values: dict[Pointer, Json] = {}
    for text, value in sorted((rule.set or {}).items()):
        try:
            pointer = read_pointer(text)
            canonical_json(value)
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"set: {text}: {error}") from None
        if "*" in pointer or "-" in pointer:
            raise ConfigError(f"set: {text}: names no single place")
        if any(pointer[: len(other)] == other for other in values):
            raise ConfigError(f"set: {text}: lies within another value that is set")
        values[pointer] = value
    return values


def _names(tool: str) -> tuple[str, ...]:
    """What rules may call a tool, or the answer."""
    return (ANSWER, RESPOND) if tool == RESPOND else (tool,)


class Applied:
    """A rule, made ready to be asked."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._fits: Callable[[str], bool] | None = (
            globs(rule.tools) if rule.tools else None
        )
        self._tellers = tuple(map(teller, rule.when or ()))
        self._values = values_to_set(rule)

    def applies(self, action: Action, state: PolicyState) -> Told:
        """Whether the rule applies to a call; `None` where its conditions on the arguments do not tell."""
        if not self._speaks_of(action, state):
            return False
        return both(tell(action.filled) for tell in self._tellers)

    def _speaks_of(self, action: Action, state: PolicyState) -> bool:
        rule = self.rule
        return (
            (self._fits is None or any(map(self._fits, _names(action.tool))))
            and (rule.effects is None or action.effect in rule.effects)
            and (rule.engines is None or state.engine in rule.engines)
            and (rule.labels is None or at_least(state.label, rule.labels))
            and rule.untrusted in (None, state.untrusted)
            and (
                rule.hours is None
                or any(hours.include(state.at) for hours in rule.hours)
            )
        )

    def set(self, arguments: JsonObject) -> JsonObject | None:
        """The arguments with the rule's values: the same object if they are so already, `None` if they cannot be."""
        changed = put(arguments, self._values)
        return (
            arguments
            if changed is not None
            and canonical_json(changed) == canonical_json(arguments)
            else changed
        )
