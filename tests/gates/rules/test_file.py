"""Rules in files: read strictly, told apart by what they say, and exchanged only as a whole."""

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import structlog

from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Deny,
    PolicyState,
    ReActEngine,
    Runtime,
)
from loopwright.gates import Decision, Hours, Rule, RuleGate
from loopwright.plugins import build_gate
from loopwright.testing import FakeClock, ScriptedProvider

TOML = """
otherwise = "ask"

[[rules]]
name = "colleagues only"
tools = ["send_*"]
when = [{ argument = "/to/*", destinations = ["*@example.com"], negate = true }]
labels = "sensitive"
untrusted = true
then = "deny"
reason = "write to colleagues only"

[[rules]]
name = "small refunds"
tools = ["refund"]
effects = ["write", "idempotent"]
engines = ["react"]
when = [
  { argument = "/cents", more_than = 0, at_most = 5_000 },
  { argument = "/rate", less_than = 0.5 },
  { argument = "/currency", one_of = ["EUR", "USD"] },
  { argument = "/note", matches = "[a-z ]+", max_length = 80 },
]
then = "allow"
at_most = 5
every = 60
per = "run"

[[rules.hours]]
days = ["mon", "fri"]
start = "09:00"
end = "17:30"
zone = "Europe/Berlin"

[[rules]]
name = "dry"
then = "modify"
set = { "/dry" = true, "/options/n" = 1.5 }

[[rules]]
name = "rest"
then = "ask"
question = "Really?"
"""

YAML = r"""
rules:
  - name: colleagues only
    then: deny
    tools: [send_*]
    labels: sensitive
    untrusted: true
    when:
      - {argument: /to/*, negate: true, destinations: ["*@example.com"]}
    reason: "write to colleagues only"
  - name: small refunds
    then: allow
    tools: [refund]
    effects: [write, idempotent]
    engines: [react]
    when:
      - {argument: /cents, more_than: 0, at_most: 5000}
      - {argument: /rate, less_than: 0.5}
      - {argument: /currency, one_of: [EUR, USD]}
      - argument: /note
        matches: '[a-z ]+'
        max_length: 80
    at_most: 5
    every: 60.0
    per: run
    hours:
      - {days: [mon, fri], start: 09:00, end: 17:30, zone: Europe/Berlin}
  - {name: dry, then: modify, set: {/options/n: 1.5, /dry: true}}
  - name: rest
    then: ask
    question: Really?
otherwise: ask
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return tmp_path / "rules.toml"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def decide(gate: RuleGate, tool: str = "look") -> Decision:
    return gate.decide(
        Action(tool, {"dry": True, "options": {"n": 1.5}}),
        PolicyState("r", "0#0", "react", 1, 1, 1),
    )


def test_toml_and_yaml_of_the_same_rules_are_the_same_rules(tmp_path: Path) -> None:
    gates = [
        RuleGate.from_file(write(tmp_path / name, text))
        for name, text in (("a.toml", TOML), ("b.yaml", YAML), ("c.yml", YAML))
    ]

    assert len({gate.version for gate in gates}) == 1
    assert [decide(gate) for gate in gates] == [Allow()] * 3


def test_a_gate_is_found_by_name_and_file(rules: Path) -> None:
    gate = build_gate(f"rules:{write(rules, TOML)}")

    assert gate.version == RuleGate.from_file(rules).version  # type: ignore[attr-defined]


def test_yaml_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from loopwright.gates import RuleGate\n"
        f"RuleGate.from_file({str(write(tmp_path / 'r.toml', TOML))!r})\n"
        f"RuleGate.from_file({str(write(tmp_path / 'r.yaml', YAML))!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )

    assert (
        "r.yaml: YAML needs PyYAML: pip install 'loopwright[yaml]'"
        in done.stderr.splitlines()[-1]
    )


def rule(line: str = "", then: str = "allow") -> str:
    return f'[[rules]]\nname = "mail"\nthen = "{then}"\n{line}\n'


def when(condition: str) -> str:
    return rule(f"when = [{{ {condition} }}]")


RULE = "rule 1 'mail': "
BAD_TOML = {
    "": "rules: a list of at least one rule is needed ([[rules]] in TOML)",
    "rules = []": "rules: a list of at least one rule",
    "rules = 5": "rules: a list of at least one rule",
    "rules = [5]": "rule 1: a table with the fields name, then, tools",
    "[[rules]\n": "is not TOML: ",
    rule() + rule(): "rule 2 'mail': name: rule 1 has it too",
    "rule = 5": "rule: no such field; did you mean rules or roles?",
    'otherwise = "maybe"\n' + rule(): 'otherwise: "deny", "ask" or "allow", got \'maybe\'',
    "[[rules]]\nname = 'a'": "rule 1 'a': then: required",
    "[[rules]]\nthen = 'deny'": "rule 1: name: required",
    "[[rules]]\nname = 5\nthen = 'deny'": "rule 1: name: Input should be a valid string, got 5",
    "[[rules]]\nname = ''\nthen = 'deny'": "rule 1 '': name: ",
    "[[rules]]\nname = 'a\\u0007'\nthen = 'deny'".replace("'", '"'): "rule 1 'a\\x07': name: must be one printable line",
    rule(then="permit"): RULE + "then: Input should be 'allow', 'deny', 'ask' or 'modify', got 'permit'",
    rule("tool = ['x']"): RULE + "tool: no such field; did you mean tools?",
    rule("zzz = 1"): RULE + "zzz: no such field; there are name, then, tools",
    rule("tools = 'send_*'"): RULE + "tools: Input should be a list, got 'send_*'",
    rule("tools = []"): RULE + "tools: The list needs at least 1 item",
    rule("tools = [5]"): RULE + "tools.0: Input should be a valid string, got 5",
    rule("effects = ['delete']"): RULE + "effects.0: Input should be 'read', 'idempotent', 'write' or 'destructive'",
    rule("labels = 'top'"): RULE + "labels: Input should be 'public'",
    rule("untrusted = 'yes'"): RULE + "untrusted: Input should be a valid boolean",
    rule("question = 'x?'"): RULE + "question: only for rules with then = ask, got 'allow'",
    rule("reason = 'x'"): RULE + "reason: only for rules with then = deny or modify",
    rule("set = { '/a' = 1 }"): RULE + "set: only for rules with then = modify",
    rule(then="modify"): RULE + "set: a \"modify\" rule must say which arguments to set",
    rule("set = { 'a' = 1 }", "modify"): RULE + "set: a: 'a' is not a JSON pointer",
    rule("set = { '/a' = nan }", "modify"): RULE + "set./a: Input should be a finite",
    rule("set = { '/a' = 2026-01-01 }", "modify"): RULE + "set./a: ",
    rule("set = { '/a/-' = 1 }", "modify"): RULE + "set: /a/-: does not name a single value",
    rule("set = { '/a/*' = 1 }", "modify"): RULE + "set: /a/*: does not name a single value",
    rule("set = { '/a' = {}, '/a/b' = 1 }", "modify"): RULE + "set: /a/b: lies within another value that is set",
    rule("at_most = 5"): RULE + "every: a limit needs all of at_most",
    rule("at_most = 5\nevery = 60"): RULE + "per: a limit needs all of at_most",
    rule("every = 60"): RULE + "at_most: a limit needs all of at_most",
    rule("at_most = 0\nevery = 60\nper = 'run'"): RULE + "at_most: Input should be greater than or equal to 1, got 0",
    rule("at_most = true\nevery = 60\nper = 'run'"): RULE + "at_most: Input should be a valid integer, got True",
    rule("at_most = 5\nevery = inf\nper = 'run'"): RULE + "every: Input should be a finite number, got inf",
    rule("at_most = 5\nevery = 60\nper = 'day'"): RULE + "per: Input should be 'run', 'tool', 'all'",
    rule("at_most = 5\nevery = 60\nper = 'run'", "deny"): RULE + "at_most: only for rules with then = allow or modify",
    rule("when = []"): RULE + "when: The list needs at least 1 item",
    rule("when = [5]"): RULE + "when.0: a table with the fields argument, missing, equals",
    rule("when = { argument = '/a', equals = 1 }"): RULE + "when: Input should be a list",
    when("argument = '/a', equal = 1"): RULE + "when.0: equal: no such field; did you mean equals?",
    when("equals = 1"): RULE + "when.0: argument: required",
    when("argument = '/a'"): RULE + "when.0: /a: the condition has no test",
    when("argument = '/a', at_most = '5'"): RULE + "when.0: at_most.",
    when("argument = '/a', matches = '(?=x)'"): RULE + "when.0: matches: '(?=x)' is not a regular expression",
    when("argument = '/a', destinations = ['http://a.com']"): RULE + "when.0: destinations: 'http://a.com' is not",
    when("argument = '/a', within = ['../x']"): RULE + "when.0: within: '../x' does not name a directory",
    rule("hours = [{ start = '9:00' }]"): RULE + "hours.0: start: '9:00' is not a time of day; write it like \"09:00\"",
    rule("hours = [{ start = 09:00:00 }]"): RULE + "hours.0: start: Input should be a valid string",
    rule("hours = [{ end = '25:00' }]"): RULE + "hours.0: end: '25:00' is not a time of day",
    rule("hours = [{ start = '24:00' }]"): RULE + "hours.0: start: write \"00:00\"",
    rule("hours = [{ start = '09:00', end = '09:00' }]"): RULE + "hours.0: end: the same as start",
    rule("hours = [{ days = ['monday'] }]"): RULE + "hours.0: days.0: Input should be 'mon', 'tue'",
    rule("hours = [{ zone = 'Berlin' }]"): RULE + "hours.0: zone: 'Berlin' is not a known time zone",
    rule("hours = [{ zone = '../../etc/passwd' }]"): RULE + "hours.0: zone: ",
    rule("hours = [{ zone = 'Europe' }]"): RULE + "hours.0: zone: ",
    rule("hours = [{ from = '09:00' }]"): RULE + "hours.0: from: no such field",
    "a = " + "[" * 3000 + "]" * 3000: "is nested too deeply",
    rule("at_most = " + "9" * 5_000): "is not TOML: ",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"), BAD_TOML.items(), ids=[repr(text)[:60] for text in BAD_TOML]
)
def test_a_bad_file_is_told_by_file_rule_and_field(
    rules: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as told:
        RuleGate.from_file(write(rules, text))

    assert str(told.value).startswith(f"{rules}: {problem}")


BAD_YAML = {
    "": "a table with the fields rules, otherwise, tenants, roles is needed, got None",
    "- a": "a table with the fields rules, otherwise, tenants, roles is needed",
    "rules: [": "is not YAML: ",
    "rules: [{name: a, then: deny, then: allow}]": "line 1: the key 'then' is given twice",
    "rules:\n- name: a\n  1: x": "rule 1 'a': 1: no such field",
    "rules:\n- name: a\n  [x]: x": "line 3: a key that is not a text",
    "rules:\n- &x {name: a, then: deny}\n- *x": "line 2: an alias: write it out",
    "rules: &x [*x]": "line 1: an alias: write it out",
    "rules:\n- !!python/object/apply:os.system [ls]": "line 2: a tag ",
    "rules:\n- !secret {name: a}": "line 2: a tag '!secret'",
    "rules: []\n---\nrules: []": "is not YAML: ",
    "rules:\n- {name: a, then: deny}\n- {<<: x, name: b, then: deny}": "rule 2 'b': <<: no such field",
    "rules:\n- name: a\n  then: allow\n  tools:\n": "rule 1 'a': tools: has no value; give it one or remove the field",
    "rules:\n- {name: a, then: allow, untrusted: yes}": "rule 1 'a': untrusted: Input should be a valid boolean",
    "rules:\n- {name: no, then: off}": "rule 1 'no': then: Input should be 'allow'",
    "rules:\n- {name: a, then: allow, at_most: 1:30, every: 60, per: run}": "rule 1 'a': at_most: ",
    "a: " + "[" * 500 + "]" * 500: "is nested too deeply",
}


@pytest.mark.parametrize(
    ("text", "problem"), BAD_YAML.items(), ids=[repr(text)[:60] for text in BAD_YAML]
)
def test_bad_yaml_is_told_by_file_and_place(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = write(tmp_path / "rules.yaml", text)
    with pytest.raises(ConfigError) as told:
        RuleGate.from_file(path)

    assert str(told.value).startswith(f"{path}: {problem}")


def test_a_file_that_is_none_is_told_by_its_name(tmp_path: Path) -> None:
    bad = {
        tmp_path / "missing.toml": "cannot be read: No such file or directory",
        tmp_path: "cannot be read: Is a directory",
        write(
            tmp_path / "rules.json", "{}"
        ): "the suffix '.json' is not one that rules are read from; name the file .toml, .yaml or .yml",
        write(tmp_path / "long.toml", "#" * 1_000_001): "has more than 1,000,000 bytes",
        tmp_path / "latin.toml": "is not UTF-8 at byte 2",
    }
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    for path, problem in bad.items():
        with pytest.raises(ConfigError) as told:
            RuleGate.from_file(path)
        assert str(told.value) == f"{path}: {problem}"


# --- reload ---


def only(then: str, *more: str) -> str:
    return f'[[rules]]\nname = "it"\nthen = "{then}"\n' + "\n".join(more)


def test_new_rules_are_in_force_after_a_reload(rules: Path) -> None:
    gate = RuleGate.from_file(write(rules, only("allow")))
    before = gate.version
    write(rules, only("deny"))
    assert (decide(gate), gate.version) == (Allow(), before)

    assert gate.reload() is True
    assert decide(gate) == Deny("refused by the rule 'it'")
    assert gate.version == RuleGate.from_file(rules).version != before


async def test_a_rule_in_a_file_withholds_an_answer(rules: Path) -> None:
    mum = 'tools = ["respond"]\nwhen = [{ argument = "/answer", glob = ["*4711*"] }]'
    gate = RuleGate.from_file(write(rules, f'otherwise = "allow"\n{rule(mum, "deny")}'))
    for said, answer in (("It is 4711.", None), ("It is blue.", "It is blue.")):
        result = await ReActEngine(Runtime(ScriptedProvider([said]), gate=gate)).run(
            "What is it?"
        )

        assert result.answer == answer


def test_a_bad_file_leaves_the_rules_as_they_are_and_is_told_to_the_log(
    rules: Path,
) -> None:
    gate = RuleGate.from_file(write(rules, only("ask", 'question = "Go?"')))
    before = gate.version
    with structlog.testing.capture_logs() as log:
        for text in (only("permit"), "", "[[", rule("at_most = " + "9" * 5_000)):
            write(rules, text)
            assert gate.reload() is False
        rules.unlink()
        assert gate.reload() is False

    assert (decide(gate), gate.version) == (Ask("Go?"), before)
    assert [(line["event"], line["log_level"], line["version"]) for line in log] == [
        ("rules_not_reloaded", "warning", before)
    ] * 5
    assert log[0]["problem"].startswith(f"{rules}: rule 1 'it': then: ")


def test_a_reload_does_not_give_calls_back(rules: Path) -> None:
    limit = "at_most = 2\nevery = 60\nper = 'all'"
    gate = RuleGate.from_file(write(rules, only("allow", limit)), clock=FakeClock())
    assert decide(gate) == Allow()
    write(rules, only("allow", limit.replace("2", "1"), "untrusted = false"))
    assert gate.reload() is True

    assert decide(gate) == Deny("refused by the rule 'it': too many calls recently")


def test_a_gate_without_a_file_cannot_be_reloaded() -> None:
    with pytest.raises(
        ConfigError, match=r"^reload: this gate was not made from a file"
    ):
        RuleGate([]).reload()


# --- hours ---


def at(text: str, zone: str, fold: int = 0) -> float:
    return (
        datetime.fromisoformat(text)
        .replace(tzinfo=ZoneInfo(zone), fold=fold)
        .timestamp()
    )


WEEKDAYS = {"days": ("mon", "tue", "wed", "thu", "fri"), "zone": "Europe/Berlin"}
OFFICE = {**WEEKDAYS, "start": "09:00", "end": "17:30"}
NIGHT = {"days": ("fri",), "start": "22:00", "end": "06:00", "zone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("hours", "when", "included"),
    [
        (OFFICE, "2026-11-20T09:00", True),  # a Friday
        (OFFICE, "2026-11-20T08:59:59", False),
        (OFFICE, "2026-11-20T17:29:59", True),
        (OFFICE, "2026-11-20T17:30", False),
        (OFFICE, "2026-11-21T12:00", False),
        (WEEKDAYS, "2026-11-20T23:59:59", True),
        (WEEKDAYS, "2026-11-21T00:00", False),
        (NIGHT, "2026-11-20T21:59", False),
        (NIGHT, "2026-11-20T22:00", True),
        (NIGHT, "2026-11-21T00:00", True),
        (NIGHT, "2026-11-21T05:59", True),
        (NIGHT, "2026-11-21T06:00", False),
        (NIGHT, "2026-11-20T05:00", False),  # that night began on a Thursday
        (NIGHT, "2026-11-21T22:00", False),
        ({"days": ("sun",), "start": "22:00", "end": "00:00", "zone": "Europe/Berlin"}, "2026-11-22T23:59", True),
        ({"days": ("sun",), "start": "22:00", "end": "06:00", "zone": "Europe/Berlin"}, "2026-11-23T01:00", True),
    ],
)  # fmt: skip
def test_hours_are_those_of_the_clocks_on_the_wall(
    hours: dict[str, object], when: str, included: bool
) -> None:
    assert Hours(**hours).include(at(when, "Europe/Berlin")) is included  # type: ignore[arg-type]


def test_hours_keep_to_the_clocks_when_these_change() -> None:
    early = Hours(start="01:30", end="03:30", zone="Europe/Berlin")
    spring = (
        at("2026-03-29T01:59:59", "Europe/Berlin") + 1
    )  # the clocks go from 02:00 to 03:00
    assert [
        early.include(spring + minutes * 60) for minutes in (-31, -30, 0, 29, 30)
    ] == [
        False,
        True,
        True,
        True,
        False,
    ]

    autumn = at(
        "2026-10-25T02:00", "Europe/Berlin"
    )  # from 03:00 back to 02:00: the hour comes twice
    assert [early.include(autumn + minutes * 60) for minutes in (-31, -30, 30, 90, 149, 150)] == [
        False, True, True, True, True, False,
    ]  # fmt: skip
    nine = Hours(start="09:00", end="10:00", zone="America/New_York")
    assert [
        nine.include(at(f"2026-{day}T09:30", "America/New_York"))
        for day in ("03-07", "03-09", "11-02")
    ] == [True] * 3


def test_the_hours_of_a_rule_are_measured_at_the_time_of_the_question() -> None:
    rule = Rule(
        name="a",
        then="allow",
        hours=(Hours(start="09:00", end="10:00"), Hours(start="12:00", end="13:00")),
    )
    gate = RuleGate([rule])
    asked = [
        PolicyState("r", "0#0", "react", 1, 1, 1, at=hour * 3600.0)
        for hour in (8, 9, 10, 12, 13)
    ]

    assert [gate.decide(Action("x", {}), one) == Allow() for one in asked] == [
        False,
        True,
        False,
        True,
        False,
    ]
