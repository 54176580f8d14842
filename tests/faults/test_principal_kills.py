"""kill -9 of a run with a principal: the process that continues it knows who started it, and so do its gates."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright import Action, Allow, Deny, PolicyState, ReActEngine, Runtime, tool
from loopwright.gates import Decision, InstantGate
from loopwright.journals import Journal, RunFilter, SQLiteJournal
from loopwright.principals import ApprovalRule, Principal
from loopwright.providers import Request
from loopwright.testing import Line, ScriptedProvider, call
from loopwright.testing.killing_journal import KillingJournal

ADA = Principal("ada", "acme", ("clerk",))
RULE = ApprovalRule(role="manager", people=2, not_starter=True)


class ClerksOfAcme(InstantGate):
    """Allows what clerks of one tenant ask for."""

    version = "clerks-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        who = action.principal
        is_clerk = who is not None and who.tenant == "acme" and "clerk" in who.roles
        return Allow() if is_clerk and state.principal == who else Deny("who asks?")


@tool(effect="idempotent")
def book(place: str) -> str:
    """Book a place."""
    return f"{place} is booked"


def build_engine(journal: Journal) -> ReActEngine:
    def says(request: Request) -> Line:
        told = [one for one in request.conversation if one.role == "tool"]
        return told[0].content if told else call("book", place="Ulm")

    gate = ClerksOfAcme()
    runtime = Runtime(ScriptedProvider(says), tools=[book], journal=journal, gate=gate)
    return ReActEngine(runtime)


def begin(folder: str, barrier: str) -> None:
    """Begin the run in a process that is killed at a barrier."""
    journal = KillingJournal(SQLiteJournal(f"{folder}/runs.db"), int(barrier), "after")
    build_engine(journal).run_sync("Book.", run_id="one", principal=ADA, approvals=RULE)


@pytest.mark.parametrize("barrier", [1, 2])
def test_a_killed_run_is_still_that_of_its_principal(
    tmp_path: Path, barrier: int
) -> None:
    code = f"import {Path(__file__).stem} as own; own.begin({str(tmp_path)!r}, {barrier})"  # fmt: skip
    killed = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, check=False, timeout=60
    )
    journal = SQLiteJournal(tmp_path / "runs.db")
    begun = journal.read("one")

    assert killed.returncode == -9
    assert begun
    assert begun[-1].kind != "run_finished"
    result = asyncio.run(build_engine(journal).resume("one"))
    assert result.answer == "Ulm is booked"
    [started] = [one.event for one in journal.read("one") if one.kind == "run_started"]
    assert (started.principal, started.approvals) == (ADA, RULE)  # type: ignore[union-attr]
    found = journal.runs(where=RunFilter(tenant="acme", principal="ada"))
    assert [info.run_id for info in found] == ["one"]
