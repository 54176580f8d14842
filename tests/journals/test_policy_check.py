"""`verify(policy=True)`: each call that was started was allowed, as the tool and with the arguments that it had."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from loopwright import (
    AllowAll,
    LoopEngine,
    MemoryJournal,
    Permit,
    ReActEngine,
    Run,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.events import CallsProposed, Entry, GateDecided, ToolStarted
from loopwright.events.entry import KINDS, chain_hash, encode_event
from loopwright.journals import SQLiteJournal
from loopwright.journals.base import Verification
from loopwright.journals.policy_check import allowed_calls, check_policy
from loopwright.testing import ScriptedProvider, call
from programs import PROGRAMS

RAN: list[str] = []


@tool(effect="read")
def look(what: str) -> str:
    """Look."""
    RAN.append(f"look {what}")
    return f"{what} is blue"


@tool
def wipe(what: str) -> str:
    """Wipe."""
    RAN.append(f"wipe {what}")
    return f"{what} wiped"


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"tiny"}))
async def test_every_call_of_every_engine_was_allowed(
    name: str, tmp_path: Path
) -> None:
    program, journal = PROGRAMS[name], SQLiteJournal(tmp_path / "runs.db")
    result = await program.engine(program.runtime(journal)).run(program.task)
    entries = journal.read(result.run_id)
    started = [entry for entry in entries if isinstance(entry.event, ToolStarted)]

    assert journal.verify(result.run_id, policy=True).ok
    assert list(allowed_calls(entries)) == [entry.key for entry in started]
    await journal.close()


async def entries_of_a_run() -> list[Entry]:
    journal = MemoryJournal()
    provider = ScriptedProvider([call("look", what="sky"), "blue"])
    runtime = Runtime(provider, tools=[look, wipe], journal=journal, gate=AllowAll())
    result = await ReActEngine(runtime).run("Go.")
    assert journal.verify(result.run_id, policy=True).ok
    return journal.read(result.run_id)


def rechained(entries: list[Entry], events: list[Any]) -> list[Entry]:
    """Return entries with other events, and a chain that is intact."""
    made: list[Entry] = []
    for entry, event in zip(entries, events, strict=True):
        new = dataclasses.replace(
            entry, kind=KINDS[type(event)], body=encode_event(event)
        )
        new.__dict__.pop("event", None)
        previous = made[-1].hash if made else ""
        made.append(dataclasses.replace(new, hash=chain_hash(previous, new)))
    return made


def renamed(event: Any) -> Any:
    return (
        dataclasses.replace(event, tool="wipe")
        if isinstance(event, ToolStarted)
        else event
    )


def with_other_arguments(event: Any) -> Any:
    if isinstance(event, ToolStarted):
        return dataclasses.replace(event, arguments_hash="0" * 64)
    return event


def denied(event: Any) -> Any:
    if isinstance(event, GateDecided):
        return dataclasses.replace(event, verdict="deny", reason="no")
    return event


def asked(event: Any) -> Any:
    return (
        dataclasses.replace(event, verdict="ask")
        if isinstance(event, GateDecided)
        else event
    )


def decided_otherwise(event: Any) -> Any:
    if isinstance(event, GateDecided | ToolStarted):
        return dataclasses.replace(event, arguments_hash="0" * 64)
    return event


def not_decided(event: Any) -> Any:
    if isinstance(event, GateDecided):
        return CallsProposed((), "", ())
    return event


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (renamed, "wipe (0#0) was started, and look was allowed"),
        (with_other_arguments, "look (0#0) was started with other arguments than were allowed"),
        (denied, "look (0#0) was started, and the last decision about it is 'deny'"),
        (asked, "look (0#0) was started, and the last decision about it is 'ask'"),
        (decided_otherwise, "the decision about 0#0 is not about its arguments"),
        (not_decided, "look (0#0) was started, and no policy decided about it"),
    ],
)  # fmt: skip
async def test_a_call_that_was_not_allowed_as_it_is_is_found_behind_an_intact_chain(
    change: Callable[[Any], Any], says: str
) -> None:
    entries = await entries_of_a_run()
    forged = rechained(entries, [change(entry.event) for entry in entries])
    chain = Verification("r", len(forged), forged[-1].hash)

    found = check_policy(chain, forged)
    assert found.problem == says
    assert found.seq is not None


class RenamingEngine(LoopEngine):
    """Gives a call that was allowed another name, or its permit another tool."""

    name: ClassVar[str] = "renaming"
    way: str

    async def solve(self, run: Run) -> str:
        cleared = await run.gate(run.propose(ToolCall("look", {"what": "sky"}, "c")))
        (permit,) = cleared.permits
        getattr(self, f"_{self.way}")(permit)
        (observation,) = await run.act(cleared)
        return observation.text

    def _call(self, permit: Permit) -> None:
        object.__setattr__(permit.call, "name", "wipe")

    def _other_call(self, permit: Permit) -> None:
        vars(permit)["call"] = ToolCall("wipe", {"what": "sky"}, "c")

    def _tool(self, permit: Permit) -> None:
        vars(permit)["tool"] = self.runtime.tools.get("wipe")

    def _both(self, permit: Permit) -> None:
        self._other_call(permit)
        self._tool(permit)


@pytest.mark.parametrize("way", ["call", "other_call", "tool", "both"])
async def test_a_call_that_is_renamed_behind_the_gate_is_not_run(way: str) -> None:
    RAN.clear()
    journal = MemoryJournal()
    runtime = Runtime(ScriptedProvider([]), tools=[look, wipe], journal=journal)
    result = await RenamingEngine(runtime, way=way).run("Go.", run_id="r")

    assert RAN == []
    assert result.status == "failed"
    assert "the permit of look is not for" in str(result.error)
    assert not [e for e in journal.read("r") if isinstance(e.event, ToolStarted)]
