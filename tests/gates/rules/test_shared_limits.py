"""Limits by tenant, tool and principal, kept by all processes with a journal together."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Action,
    Allow,
    ConfigError,
    Deny,
    PolicyState,
    ReActEngine,
    Runtime,
    tool,
)
from loopwright.errors import JournalError
from loopwright.gates import Rule, RuleGate
from loopwright.journals import SQLiteRates
from loopwright.principals import Principal
from loopwright.testing import FakeClock, ScriptedProvider, call

ANN, BOB = Principal("ann", "acme"), Principal("bob", "acme")
EVE = Principal("eve", "umbrella")
STATE = PolicyState("r", "0#0", "react", 1, 1, 1)


def gate(per: Any, rates: Any, at_most: int = 2) -> RuleGate:
    rule = Rule(
        name="few", then="allow", at_most=at_most, every=60.0, per=per, shared=rates is not None
    )  # fmt: skip
    return RuleGate([rule], rates=rates)


def allowed(policy: RuleGate, who: Principal | None, name: str = "pay") -> bool:
    decided = policy.decide(Action(name, {}, principal=who), STATE)
    assert isinstance(decided, Allow | Deny)
    return isinstance(decided, Allow)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("per", "expected"),
    [
        ("tenant", [True, True, False, True, False, True]),
        ("tenant and tool", [True, True, False, True, True, True]),
        ("principal", [True, True, True, True, True, True]),
        ("all", [True, True, False, False, False, False]),
    ],
)
def test_calls_are_counted_for_the_tenant_the_tool_or_the_principal(
    tmp_path: Path, per: str, expected: list[bool], shared: bool
) -> None:
    policy = gate(per, SQLiteRates(tmp_path / "runs.db") if shared else None)
    calls = [(ANN, "pay"), (ANN, "pay"), (BOB, "pay"), (EVE, "pay"), (BOB, "fetch"), (None, "pay")]  # fmt: skip
    assert [allowed(policy, who, name) for who, name in calls] == expected


def test_gates_of_two_processes_count_together_and_forget_in_time(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    one, two = (
        gate("tenant", SQLiteRates(tmp_path / "runs.db", clock=clock)) for _ in "ab"
    )
    assert [allowed(one, ANN), allowed(two, BOB), allowed(one, ANN)] == [True, True, False]  # fmt: skip
    clock.advance(61)
    assert allowed(two, ANN)
    assert (tmp_path / "runs.db.rates").stat().st_mode & 0o777 == 0o600


def test_threads_at_the_same_time_get_exactly_the_limit(tmp_path: Path) -> None:
    found: list[bool] = []

    def work() -> None:
        policy = gate("tenant", SQLiteRates(tmp_path / "runs.db", busy_timeout=10), 7)
        found.extend(allowed(policy, ANN) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(found), len(found)) == (7, 20)


CHILD = """
import sys
from loopwright.journals import SQLiteRates
rates = SQLiteRates(sys.argv[1], busy_timeout=30)
print(sum(rates.take("k", 25, 600.0) for _ in range(20)))
"""


@pytest.mark.faults
def test_processes_at_the_same_time_get_exactly_the_limit(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path / "runs.db")]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    counts = [int(child.communicate()[0]) for child in children]
    assert sum(counts) == 25


async def test_a_count_that_cannot_be_made_denies_the_call(tmp_path: Path) -> None:
    (tmp_path / "runs.db.rates").write_text("no database, at least not one of these")
    ran: list[int] = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    rates = SQLiteRates(tmp_path / "runs.db")
    with pytest.raises(JournalError, match="not a database"):
        rates.take("k", 1, 1.0)
    model = ScriptedProvider([call("pay"), "No."])
    result = await ReActEngine(Runtime(model, tools=[pay], gate=gate("all", rates))).run("Pay.")  # fmt: skip
    assert (result.answer, ran) == ("No.", [])
    assert "the policy gate failed" in result.conversation.messages[-2].content


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"at_most": 1, "every": 1.0, "per": "all", "shared": True}, "'few': shared: pass what counts"),
        ({"shared": True}, "shared: only for a rule with a limit"),
        ({"then": "deny", "shared": True}, "shared: only for rules with then = allow or modify"),
        ({"at_most": 1, "every": 1.0, "per": "team"}, "per"),
    ],
)  # fmt: skip
def test_a_limit_that_no_process_keeps_is_an_error(
    options: dict[str, Any], problem: str
) -> None:
    given: dict[str, Any] = {"name": "few", "then": "allow", **options}
    with pytest.raises(ConfigError, match=problem):
        RuleGate([Rule(**given)])
