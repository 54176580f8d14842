"""The rule gate: an ordered list of rules, of which the first that applies decides."""

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_args

from pydantic_core import to_jsonable_python

from ..._internal.log import logger
from ...clock import Clock, SystemClock
from ...errors import ConfigError
from ...messages import Json, canonical_json
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
from ..rate_limit import RateCounter, SharedRates
from .conditions import Truth
from .file import Otherwise, read_rule_file
from .roster import Roster
from .rule import ANSWER, LATER_FIELDS, CompiledRule, Rule, check_names

NOT_ALLOWED = "no rule allows it"


class RuleGate(InstantGate):
    """Evaluates rules in their order; the first that applies decides.

    A call that no rule covers is decided by `otherwise`: "deny", "ask" or "allow". A gate with a
    rule that names `respond` among its tools is also asked about the answer of a run; if none of
    its rules applies, the answer is allowed. Such a rule covers a tool of that name, too.

    Args:
        rules: the rules, each with a name of its own.
        otherwise: the decision about a call to which no rule applies.
        clock: the clock for the limits of rules.
        tenants: all tenants that there are, if rules name some: another one is an error.
        roles: all roles that there are, likewise.
        rates: counts calls for all processes, for rules that are `shared`: `SQLiteRates(path)` of a journal.

    Raises `ConfigError`. Threads and event loops may share a gate. Its `version` is a hash of the
    rules.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        otherwise: Otherwise = "deny",
        clock: Clock | None = None,
        tenants: Iterable[str] = (),
        roles: Iterable[str] = (),
        rates: SharedRates | None = None,
    ) -> None:
        self._clock, self._rates = clock or SystemClock(), rates
        self._path: Path | None = None
        rules = tuple(rules)
        Roster.of(tenants, roles).check(rules)
        self._use(rules, otherwise, {})

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        clock: Clock | None = None,
        rates: SharedRates | None = None,
    ) -> "RuleGate":
        """Return a gate with the rules in a TOML or YAML file.

        Raises `ConfigError` naming file, rule and field.
        """
        rules, otherwise, roster = read_rule_file(Path(path))
        gate = cls(
            rules, otherwise=otherwise, clock=clock,
            tenants=roster.tenants, roles=roster.roles, rates=rates,
        )  # fmt: skip
        gate._path = Path(path)
        return gate

    def check_tools(self, names: Iterable[str]) -> None:
        """Raise `ConfigError` if a rule names a tool that is not among these; globs are not compared."""
        known = {*names, ANSWER, RESPOND}
        for compiled, _ in self._rules[0]:
            for tool in compiled.rule.tools or ():
                is_glob = "*" in tool or "?" in tool
                if not is_glob and tool not in known:
                    raise ConfigError(_format_unknown(compiled.rule, tool, known))

    def reload(self) -> bool:
        """Read the file again, and return whether its rules are in force now.

        A bad file changes nothing: the log then has a warning `rules_not_reloaded` with the
        problem. The count of calls of a rule is kept for the rule of the same name. Raises
        `ConfigError` if there is no file.
        """
        if self._path is None:
            raise ConfigError(
                "reload: this gate was not made from a file; use RuleGate.from_file(path)"
            )
        counters = {compiled.rule.name: counter for compiled, counter in self._rules[0]}
        try:
            rules, otherwise, _ = read_rule_file(self._path)
            self._use(rules, otherwise, counters)
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
        self,
        rules: tuple[Rule, ...],
        otherwise: Otherwise,
        counters: Mapping[str, RateCounter],
    ) -> None:
        if otherwise not in get_args(Otherwise):
            raise ConfigError(f'otherwise: "deny", "ask" or "allow", got {otherwise!r}')
        check_names(rules)
        _check_rates(rules, self._rates)
        described = list(map(_describe, rules))
        content = canonical_json({"rules": described, "otherwise": otherwise})
        compiled = tuple(
            (CompiledRule(rule), counters.get(rule.name) or RateCounter())
            for rule in rules
        )
        # Before the version, so that no decision of the old rules counts under the new version.
        self._rules = (compiled, otherwise)
        self.plans = any((rule.planned, rule.in_plan) != (None, None) for rule in rules)
        self.answers = any({ANSWER, RESPOND} & set(rule.tools or ()) for rule in rules)
        self.version = f"rules-2-{hashlib.sha256(content).hexdigest()[:16]}"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Return the decision of the first rule that applies."""
        rules, otherwise = self._rules
        for compiled, counter in rules:
            applies = compiled.applies(action, state)
            if _is_decisive(compiled.rule, applies):
                is_certain = applies is not None
                return self._decide_by_rule(
                    compiled, counter, action, state, is_certain=is_certain
                )
        if otherwise == "allow" or (action.tool == RESPOND and self.answers):
            return Allow()
        if otherwise == "ask":
            return Ask(f"No rule covers {action.tool}: run it?")
        return Deny(NOT_ALLOWED)

    def _decide_by_rule(
        self,
        compiled: CompiledRule,
        counter: RateCounter,
        action: Action,
        state: PolicyState,
        *,
        is_certain: bool,
    ) -> Decision:
        rule = compiled.rule
        if rule.then == "ask":
            question = rule.question or _default_question(rule, action)
            return Ask(question, (rule.approvals,) if rule.approvals else ())
        if rule.then == "deny":
            return _refuse(rule, rule.reason)
        if rule.then == "modify":
            changed = compiled.set(action.arguments) if is_certain else None
            if changed is None:
                return _refuse(rule, "it cannot be applied to these arguments")
            if changed is not action.arguments:
                reason = rule.reason or f"changed by the rule {rule.name!r}"
                return Modify(changed, reason)
        if not self._is_within_limit(rule, counter, action, state):
            return _refuse(rule, "too many calls recently")
        return Allow()

    def _is_within_limit(
        self, rule: Rule, counter: RateCounter, action: Action, state: PolicyState
    ) -> bool:
        if rule.at_most is None or rule.every is None:
            return True
        key = _count_by(rule, action, state)
        if rule.shared and self._rates is not None:
            counted = canonical_json([rule.name, rule.per, key]).decode()
            return self._rates.take(counted, rule.at_most, rule.every)
        return counter.take(key, self._clock, rule.at_most, rule.every)


def _count_by(rule: Rule, action: Action, state: PolicyState) -> str:
    """Return what calls are counted for."""
    who = action.principal
    tenant, name = ("", "") if who is None else (who.tenant, who.id)
    keys = {
        "run": state.run_id,
        "tool": action.tool,
        "tenant": tenant,
        "tenant and tool": canonical_json([tenant, action.tool]).decode(),
        "principal": canonical_json([tenant, name]).decode(),
    }
    return keys.get(rule.per or "all", "")


def _check_rates(rules: Iterable[Rule], rates: SharedRates | None) -> None:
    """Raise `ConfigError` for a rule that is shared where nothing counts for all processes."""
    for rule in rules:
        if rule.shared and rates is None:
            raise ConfigError(
                f"rule {rule.name!r}: shared: pass what counts for all processes, "
                'RuleGate.from_file(path, rates=SQLiteRates("runs.db"))'
            )


def _describe(rule: Rule) -> dict[str, Json]:
    """Return a rule as JSON, without the later fields that it does not use."""
    fields: dict[str, Json] = to_jsonable_python(rule)
    unused = [name for name in LATER_FIELDS if fields[name] is None]
    return {name: value for name, value in fields.items() if name not in unused}


def _is_decisive(rule: Rule, applies: Truth) -> bool:
    """Whether the rule decides; an "allow" rule does so only if it certainly applies."""
    return applies or (applies is None and rule.then != "allow")


def _format_unknown(rule: Rule, tool: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(tool, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; correct it, or leave it out"
    return f"rule {rule.name!r}: tools: there is no tool {tool!r}{hint}"


def _default_question(rule: Rule, action: Action) -> str:
    return f"{action.tool} needs approval by the rule {rule.name!r}: run it?"


def _refuse(rule: Rule, reason: str) -> Deny:
    text = f"refused by the rule {rule.name!r}"
    return Deny(f"{text}: {reason}" if reason else text)
