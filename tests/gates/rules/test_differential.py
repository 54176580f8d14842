"""Random policies are decided as an evaluator decides them that was written from the documentation alone."""

import functools
import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fault_sizes import figure, sized
from loopwright import Action, Allow, Ask, ConfigError, Deny, Modify, PolicyState
from loopwright.gates import Condition, Rule, RuleGate
from loopwright.testing import FakeClock
from stopwatch import quickest

POLICIES = sized(4_000, 100_000)
CALLS = 3
LEVELS = ("public", "normal", "sensitive", "secret")
TOOLS = ("pay", "pay_all", "read", "send")
TEXTS = (
    "",
    "a",
    "ab",
    "abc",
    "b\n",
    "ba",
    "/srv/data/x",
    "/etc",
    "notes/a",
    "../a",
    "5",
)
VALUES = (0, 1, 2, 5, -1, 2.5, 5.0, True, False, None, *TEXTS, ["a", 2], [], {"x": 1})
POINTERS = ("/a", "/b", "/list/0", "/list/*", "/a/x", "/list", "/*")
GLOBS = ("*", "a*", "?b", "*b*", "ab?", "x", "/srv/*", "*\n")
PATTERNS = ("a+", "[ab]*", "a|ab", "(ab)?c?", ".*b.*", r"\d", ".{2}", "/srv/.*")
ROOTS = ("/srv", "/srv/data", "notes", "/")

# --- the evaluator: rules are dictionaries, undecided is None ---


def find(arguments: Any, pointer: str) -> list[tuple[str, Any]]:
    """What a pointer leads to: ("value", v), ("absent", None) or ("unreachable", None)."""
    found: list[tuple[str, Any]] = [("value", arguments)]
    for step in pointer[1:].split("/"):
        found = [after for before in found for after in follow(before, step)]
    return [("absent", None) if f == ("value", None) else f for f in found]


def follow(before: tuple[str, Any], step: str) -> list[tuple[str, Any]]:
    state, value = before
    if state != "value":
        return [before]
    if value is None:
        return [("absent", None)]
    if step == "*":
        if not isinstance(value, (dict, list)):
            return [("unreachable", None)]
        inner = list(value.values()) if isinstance(value, dict) else value
        return [("value", one) for one in inner] or [("absent", None)]
    if isinstance(value, dict):
        return [("value", value[step]) if step in value else ("absent", None)]
    if not isinstance(value, list) or not step.isdecimal():
        return [("unreachable", None)]
    return [("value", value[int(step)]) if int(step) < len(value) else ("absent", None)]


def kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else ""


def glob_matches(glob: str, text: str, stars: str = "any") -> bool:
    if not glob:
        return not text
    if glob[0] == "*":
        if glob_matches(glob[1:], text, stars):
            return True
        return (
            bool(text) and wild(text[0], stars) and glob_matches(glob, text[1:], stars)
        )
    if not text:
        return False
    fits = wild(text[0], stars) if glob[0] == "?" else glob[0] == text[0]
    return fits and glob_matches(glob[1:], text[1:], stars)


def wild(character: str, stars: str) -> bool:
    return stars == "any" or character not in "\r\n"


def decide_text(name: str, wanted: Any, text: str) -> bool | None:
    if name == "glob":
        if any(glob_matches(glob, text, "line") for glob in wanted):
            return True
        return None if any(glob_matches(glob, text) for glob in wanted) else False
    if name == "matches":
        if re.fullmatch(wanted, text):
            return True
        return None if re.fullmatch(wanted, text, re.DOTALL) else False
    return decide_path(wanted, text)


def decide_path(roots: Sequence[str], text: str) -> bool | None:
    if not text or not text.isprintable() or ".." in text.split("/"):
        return None
    same = [root for root in roots if root.startswith("/") == text.startswith("/")]
    if not same:
        return None
    names = [name for name in text.split("/") if name]
    cut = [[name for name in root.split("/") if name] for root in same]
    return any(names[: len(root)] == root for root in cut)


def decide_test(name: str, wanted: Any, value: Any) -> bool | None:
    kind = kind_of(value)
    if name in ("equals", "one_of"):
        choices = [wanted] if name == "equals" else wanted
        alike = [choice for choice in choices if kind and kind_of(choice) == kind]
        return (value in alike) if alike else None
    if name in ("more_than", "less_than", "at_least", "at_most"):
        if kind != "number":
            return None
        return {
            "more_than": value > wanted,
            "less_than": value < wanted,
            "at_least": value >= wanted,
            "at_most": value <= wanted,
        }[name]
    if name == "max_length":
        return len(value) <= wanted if isinstance(value, (str, list)) else None
    return decide_text(name, wanted, value) if kind == "text" else None


def decide_value(condition: dict[str, Any], found: tuple[str, Any]) -> bool | None:
    state, value = found
    if "missing" in condition:
        if state == "unreachable":
            return None
        return (state == "absent") is condition["missing"]
    if state == "unreachable":
        return None
    if state == "absent":
        return False
    tests = condition.keys() - {"argument", "negate"}
    results = [decide_test(name, condition[name], value) for name in tests]
    if False in results:
        passed: bool | None = False
    else:
        passed = None if None in results else True
    return passed if passed is None else passed is not condition.get("negate", False)


def decide_condition(condition: dict[str, Any], arguments: Any) -> bool | None:
    results = [
        decide_value(condition, f) for f in find(arguments, condition["argument"])
    ]
    return results[0] if len(set(results)) == 1 else None


def covers(rule: dict[str, Any], action: Action, state: PolicyState) -> bool:
    tests = [
        "tools" not in rule or any(glob_matches(g, action.tool) for g in rule["tools"]),
        "effects" not in rule or action.effect in rule["effects"],
        "engines" not in rule or state.engine in rule["engines"],
        "untrusted" not in rule or state.untrusted is rule["untrusted"],
        "labels" not in rule
        or LEVELS.index(state.label) >= LEVELS.index(rule["labels"]),
    ]
    return all(tests)


class Evaluator:
    """Decides by rules in their order; `name` of the decision is the kind of the answer."""

    def __init__(self, rules: list[dict[str, Any]], otherwise: str) -> None:
        self._rules, self._otherwise = rules, otherwise
        self._taken: dict[tuple[str, str], list[float]] = {}

    def decide(self, action: Action, state: PolicyState, now: float) -> str:
        for rule in self._rules:
            if not covers(rule, action, state):
                continue
            holds = [
                decide_condition(c, action.arguments) for c in rule.get("when", ())
            ]
            if False in holds:
                continue
            is_certain = None not in holds
            if not is_certain and rule["then"] == "allow":
                continue
            return self._by(rule, action, state, now, is_certain)
        return self._otherwise

    def _by(
        self,
        rule: dict[str, Any],
        action: Action,
        state: PolicyState,
        now: float,
        sure: bool,
    ) -> str:
        if rule["then"] in ("deny", "ask"):
            return str(rule["then"])
        if rule["then"] == "modify":
            if not sure:
                return "deny"
            name = next(iter(rule["set"]))[1:]
            wanted = rule["set"][f"/{name}"]
            known = action.arguments.get(name, "nothing")
            if json.dumps(known) != json.dumps(
                wanted
            ):  # 5 and 5.0 are written otherwise
                return "modify"
        if "at_most" not in rule:
            return "allow"
        key = {"run": state.run_id, "tool": action.tool, "all": ""}[rule["per"]]
        taken = self._taken.setdefault((rule["name"], key), [])
        taken[:] = [at for at in taken if at > now - rule["every"]]
        if len(taken) >= rule["at_most"]:
            return "deny"
        taken.append(now)
        return "allow"


# --- random policies and calls ---


def random_condition(source: random.Random) -> dict[str, Any]:
    condition: dict[str, Any] = {"argument": source.choice(POINTERS)}
    if source.random() < 0.15:
        return {**condition, "missing": source.random() < 0.5}
    scalars = [value for value in VALUES if kind_of(value)]
    makers = {
        "equals": lambda: source.choice(scalars),
        "one_of": lambda: source.sample(scalars, 2),
        "more_than": lambda: source.randint(-1, 4),
        "less_than": lambda: source.randint(0, 6),
        "at_least": lambda: source.choice((0, 2.5, 5)),
        "at_most": lambda: source.choice((1, 2.5, 5)),
        "max_length": lambda: source.randint(0, 3),
        "glob": lambda: source.sample(GLOBS, source.randint(1, 2)),
        "matches": lambda: source.choice(PATTERNS),
        "within": lambda: source.sample(ROOTS, source.randint(1, 2)),
    }
    for name in source.sample(sorted(makers), source.choice((1, 1, 2))):
        condition[name] = makers[name]()
    if source.random() < 0.2:
        condition["negate"] = True
    return condition


def random_rule(source: random.Random, number: int) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "name": f"rule {number}",
        "then": source.choice(("allow", "allow", "deny", "ask", "modify")),
    }
    options = {
        "tools": lambda: source.sample(("pay", "pay*", "?ead", "*", "x"), 2),
        "effects": lambda: source.sample(("read", "write", "destructive"), 2),
        "engines": lambda: ["react"],
        "labels": lambda: source.choice(LEVELS),
        "untrusted": lambda: source.random() < 0.5,
        "when": lambda: [random_condition(source) for _ in range(source.randint(1, 3))],
    }
    for name, make in options.items():
        if source.random() < (0.6 if name == "when" else 0.25):
            rule[name] = make()
    if rule["then"] == "modify":
        rule["set"] = {source.choice(("/a", "/b")): source.choice((1, 5.0, "ab", True))}
    if rule["then"] in ("allow", "modify") and source.random() < 0.3:
        per = source.choice(("run", "tool", "all"))
        rule |= {"at_most": source.randint(1, 2), "every": 10.0, "per": per}
    return rule


def random_call(source: random.Random) -> tuple[Action, PolicyState]:
    arguments = {
        name: source.choice(VALUES) for name in ("a", "b") if source.random() < 0.8
    }
    if source.random() < 0.6:
        arguments["list"] = [source.choice(VALUES) for _ in range(source.randint(0, 3))]
    effect: Any = source.choice(("read", "write", "destructive", "idempotent"))
    label: Any = source.choice(LEVELS)
    action = Action(source.choice(TOOLS), arguments, "c", effect)
    run, engine = source.choice(("r1", "r2")), source.choice(("react", "critic"))
    state = PolicyState(run, "0#0", engine, 1, 1, 0, label, source.random() < 0.5)
    return action, state


def build(rule: dict[str, Any]) -> Rule:
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in rule.items()
    }
    if "when" in fields:
        fields["when"] = tuple(
            Condition(
                **{n: tuple(v) if isinstance(v, list) else v for n, v in one.items()}
            )
            for one in fields["when"]
        )
    return Rule(**fields)


def compared(seed: int) -> Iterator[tuple[str, str, Any]]:
    """Decisions of a random policy about some calls: the gate's, the evaluator's, and the case."""
    source, clock = random.Random(seed), FakeClock()
    rules = [random_rule(source, number) for number in range(source.randint(1, 5))]
    otherwise: Any = source.choice(("deny", "ask", "allow"))
    gate = RuleGate(map(build, rules), otherwise=otherwise, clock=clock)
    evaluator, now = Evaluator(rules, otherwise), clock.monotonic()
    for _ in range(CALLS):
        action, state = random_call(source)
        decided = type(gate.decide(action, state)).__name__.lower()
        expected = evaluator.decide(action, state, now)
        yield decided, expected, (seed, rules, otherwise, action, state)
        step = source.choice((0.0, 4.0, 11.0))
        clock.advance(step)
        now += step


def test_random_policies_are_decided_as_the_documentation_says() -> None:
    counts: dict[str, int] = {}
    for seed in range(POLICIES):
        for decided, expected, case in compared(seed):
            assert decided == expected, case
            counts[decided] = counts.get(decided, 0) + 1

    figure("policies", f"{POLICIES}, {CALLS} calls each: {counts}")
    assert set(counts) == {k.__name__.lower() for k in (Allow, Ask, Deny, Modify)}
    assert min(counts.values()) > POLICIES / 50


# --- patterns ---


@pytest.mark.parametrize(
    "pattern", [r"(a{1,9}b){1,9}", r"((?:a{2})+x){3}", "a{2}{3}", "([[:alpha:]]{2}){2}"]
)
def test_a_counted_repeat_inside_another_is_refused_when_it_is_loaded(
    pattern: str,
) -> None:
    with pytest.raises(
        ConfigError, match=r"matches: .* a counted repeat inside another"
    ):
        Condition(argument="/a", matches=pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"[a{2}]{3}", r"\{2}(a{2})b{3}", r"\p{Greek}{3}", "(a{1}){5}", "[]a{2}]{3}"],
)
def test_what_only_looks_like_a_counted_repeat_is_none(pattern: str) -> None:
    Condition(argument="/a", matches=pattern)


@functools.cache
def hostile_texts() -> tuple[str, ...]:
    source = random.Random(1)
    random_ones = (
        "".join(source.choice(letters) for _ in range(256_000))
        for letters in ("ab", "abx =", "a\u00e9b\u03bb\u65e5 ", "01/-")
    )
    return ("a" * 256_000, "a" * 255_999 + "!", "a\n" * 128_000, *random_ones)


@pytest.mark.faults
@pytest.mark.parametrize(
    "test",
    [
        {"matches": r"(a+)+$"}, {"matches": r"(a|a)*b"}, {"matches": r"(a|aa)+!"}, {"matches": r"[ab]*a[ab]{300}"},
        {"matches": r".*a.{300}b.{300}x.*"}, {"matches": ".*[^a].{250}[^b].{250}z"}, {"matches": ".*a" + "." * 900},
        {"matches": ".*a" + "(?:a|b)" * 70}, {"matches": r".*\w{60}x.*"}, {"matches": r"(?:a?){300}a*"},
        {"glob": ("*" + "?" * 900 + "x",)}, {"glob": ("*a" * 300 + "b",)}, {"glob": ("*" + "a" * 900 + "b*c",)},
        {"destinations": ("example.com",)}, {"within": ("/srv",)},
    ],
    ids=lambda test: str(test)[:40],
)  # fmt: skip
def test_no_pattern_takes_over_50_ms_whatever_the_text(
    test: dict[str, Any],
) -> None:
    gate = RuleGate(
        [Rule(name="one", then="allow", when=(Condition(argument="/a", **test),))]
    )
    state = PolicyState("r", "0#0", "react", 1, 1, 0)
    for text in hostile_texts():
        for size in (700, 2_400, 9_999, 256_000):
            action = Action("read", {"a": text[:size]})
            decide = functools.partial(gate.decide, action, state)
            assert quickest(decide, 0.05) < 0.05, (text[:9], size)
