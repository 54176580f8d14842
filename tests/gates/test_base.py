"""What a gate is told of the run by its state."""

import dataclasses

from loopwright import PolicyState
from loopwright.gates.run_facts import PastCall, RunFacts


def test_a_state_says_for_its_own_call_whether_the_plan_has_it() -> None:
    past = (
        PastCall("0#0", "look", True),
        PastCall("1#0", "look", True),
        PastCall("1#1", "send", False),
    )
    facts = RunFacts(plan=("look", "send", "look"), history=past)
    second = PolicyState("r", "1#0", "react", 1, 1, 0, facts=lambda: facts)
    third = dataclasses.replace(second, key="2#0")

    assert [second.is_in_plan(tool) for tool in ("look", "send", "pay")] == [True, True, False]  # fmt: skip
    assert [second.is_planned(tool) for tool in ("look", "send", "pay")] == [True, True, False]  # fmt: skip
    assert [third.is_planned(tool) for tool in ("look", "send")] == [False, True]


def test_a_state_of_a_run_without_a_plan_has_no_call_planned() -> None:
    state = PolicyState("r", "0#0", "react", 1, 1, 0)

    assert (state.is_in_plan("look"), state.is_planned("look")) == (False, False)
