"""The rule gate: an ordered list of rules, of which the first that applies decides."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from pydantic_core import to_jsonable_python

from ..._internal.log import logger
from ...clock import Clock, SystemClock
from ...errors import ConfigError
from ...messages import canonical_json
from ..base import (
    RESPOND,
    Action,
    Allow,
    Ask,
    Decision,
    Deny,
    InstantGate,
    Modify,
    PolicyState,
)
from ..rate_limit import Tally
from .file import Otherwise, read_rule_file
from .rule import ANSWER, Applied, Rule, check_names

NOT_ALLOWED = "no rule allows it"


class RuleGate(InstantGate):
    """Asks its rules in their order; the first that applies decides.

    What no rule speaks of is decided by `otherwise`: "deny", "ask" or "allow". The answer of a run is shown to a gate
    with a rule that names `respond` among its tools; where none applies to it, it is given. Such a rule speaks of a
    tool of that name, too.

    Args:
        rules: the rules, each with a name of its own.
        otherwise: what becomes of a call to which no rule applies.
        clock: where limits of rules read the time.

    Raises `ConfigError`. Threads and event loops may share a gate. Its `version` is a hash of the rules.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        otherwise: Otherwise = "deny",
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._path: Path | None = None
        self._use(tuple(rules), otherwise, {})

    @classmethod
    def from_file(cls, path: str | Path, *, clock: Clock | None = None) -> "RuleGate":
        """A gate with the rules in a TOML or YAML file. Raises `ConfigError` naming file, rule and field."""
        rules, otherwise = read_rule_file(Path(path))
        gate = cls(rules, otherwise=otherwise, clock=clock)
        gate._path = Path(path)
        return gate

    def reload(self) -> bool:
        """Read the file again; whether its rules are in force now.

        A bad file changes nothing: the log then has a warning `rules_not_reloaded` that says what is wrong with it.
        What was counted for a rule is kept for the rule of that name. Raises `ConfigError` if there is no file.
        """
        if self._path is None:
            raise ConfigError(
                "reload: this gate was not made from a file: use RuleGate.from_file(path)"
            )
        try:
            rules, otherwise = read_rule_file(self._path)
            self._use(
                rules,
                otherwise,
                {applied.rule.name: tally for applied, tally in self._rules[0]},
            )
        except ConfigError as error:
            logger().warning(
                "rules_not_reloaded",
                file=str(self._path),
                problem=str(error),
                version=self.version,
            )
            return False
        return True

    def _use(
        self, rules: tuple[Rule, ...], otherwise: Otherwise, tallies: dict[str, Tally]
    ) -> None:
        if otherwise not in get_args(Otherwise):
            raise ConfigError(f'otherwise: "deny", "ask" or "allow", got {otherwise!r}')
        check_names(rules)
        said = canonical_json(
            to_jsonable_python({"rules": rules, "otherwise": otherwise})
        )
        ready = tuple(
            (Applied(rule), tallies.get(rule.name) or Tally()) for rule in rules
        )
        self._rules = (
            ready,
            otherwise,
        )  # before the version: a decision shall not hold under one that it was not made by
        self.answers = any({ANSWER, RESPOND} & set(rule.tools or ()) for rule in rules)
        self.version = f"rules-2-{hashlib.sha256(said).hexdigest()[:16]}"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """What the first rule says that applies."""
        rules, otherwise = self._rules
        for applied, tally in rules:
            told = applied.applies(action, state)
            if told is False or (told is None and applied.rule.then == "allow"):
                continue
            return self._decided(
                applied, tally, action, state, certain=told is not None
            )
        if otherwise == "allow" or (action.tool == RESPOND and self.answers):
            return Allow()
        return (
            Ask(f"No rule speaks of {action.tool}: run it?")
            if otherwise == "ask"
            else Deny(NOT_ALLOWED)
        )

    def _decided(
        self,
        applied: Applied,
        tally: Tally,
        action: Action,
        state: PolicyState,
        *,
        certain: bool,
    ) -> Decision:
        rule = applied.rule
        if rule.then == "ask":
            return Ask(
                rule.question
                or f"{action.tool} needs leave by the rule {rule.name!r}: run it?"
            )
        if rule.then == "deny":
            return _refusal(rule, rule.reason)
        if rule.then == "modify":
            changed = applied.set(action.arguments) if certain else None
            if changed is None:
                return _refusal(rule, "it cannot be applied to these arguments")
            if changed is not action.arguments:
                return Modify(
                    changed, rule.reason or f"changed by the rule {rule.name!r}"
                )
        return (
            Allow()
            if self._within_limit(rule, tally, action, state)
            else _refusal(rule, "too many calls of late")
        )

    def _within_limit(
        self, rule: Rule, tally: Tally, action: Action, state: PolicyState
    ) -> bool:
        if rule.at_most is None or rule.every is None:
            return True
        key = {"run": state.run_id, "tool": action.tool}.get(rule.per or "all", "")
        return tally.take(key, self._clock, rule.at_most, rule.every)


def _refusal(rule: Rule, reason: str) -> Deny:
    return Deny(
        f"refused by the rule {rule.name!r}" + (f": {reason}" if reason else "")
    )
