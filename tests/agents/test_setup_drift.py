"""What the first entry names of the services of a run, and the drift that is noted where they differ."""

from typing import Any

import pytest

from loopwright import Runtime, Template, tool
from loopwright.events import DriftNoticed, RunStarted
from loopwright.knowledge import MemoryKnowledge
from loopwright.testing import ScriptedProvider, call, crashed


class Everything:
    """Shows a model all of a conversation."""

    def fit(self, conversation: Any, budget: int, size: Any) -> Any:
        return conversation


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


def build(*script: Any, **options: Any) -> Runtime:
    given: dict[str, Any] = {
        key: options.pop(key) for key in ("instructions", "tools") if key in options
    }
    runtime = Runtime(ScriptedProvider(script), tools=[look], **options)
    runtime.agent("painter", **given)
    return runtime


def find(runtime: Runtime, kind: type[Any]) -> list[Any]:
    entries = runtime.journal.read("r")
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


async def test_the_first_entry_names_tools_context_and_knowledge() -> None:
    runtime = build(
        "Blue.", instructions=Template("You paint."), context=Everything(), knowledge=MemoryKnowledge(shared=True)
    )  # fmt: skip
    await runtime.agents["painter"].run("Sky?", run_id="r")
    [started] = find(runtime, RunStarted)

    assert started.setup["tools"] == ["look", "recall_knowledge", "store_knowledge"]
    assert started.setup["context"] == "Everything"
    assert started.setup["knowledge"] == "MemoryKnowledge"
    assert len(started.setup["instructions"]) == 16
    assert "paint" not in str(started.setup)


async def test_a_run_without_services_of_its_own_records_nothing_of_them() -> None:
    runtime = Runtime(ScriptedProvider(["Blue."]))
    await runtime.engine("react").run("Sky?", run_id="r")
    [first, *_] = runtime.journal.read("r")

    assert find(runtime, RunStarted)[0].setup == {}
    assert b"setup" not in first.body


async def test_many_tools_are_recorded_as_their_number_and_a_hash() -> None:
    many = [
        tool(name=f"look_at_number_{number}", effect="read")(look.function)
        for number in range(40)
    ]
    runtime = Runtime(ScriptedProvider(["Blue."]), tools=many)
    await runtime.engine("react").run("Sky?", run_id="r")

    names = find(runtime, RunStarted)[0].setup["tools"]
    assert names.startswith("40 names, ")
    assert len(names) < 40


@pytest.mark.parametrize(
    ("before", "today", "expected"),
    [
        ({}, {"tools": []}, [("tools", "look", "none")]),
        ({}, {"knowledge": MemoryKnowledge(shared=True)}, [
            ("knowledge", "none", "MemoryKnowledge"), ("tools", "look", "look, recall_knowledge, store_knowledge"),
        ]),
        ({"instructions": "You paint."}, {"instructions": "You draw."}, [("instructions", "You paint.", "You draw.")]),
        ({"instructions": "You paint."}, {"instructions": "You paint."}, []),
    ],
)  # fmt: skip
async def test_what_differs_on_resume_is_drift(
    before: dict[str, Any], today: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    whole = build(call("look", what="sky"), "Blue.", **before)
    await whole.agents["painter"].run("Sky?", run_id="r")
    entries = whole.journal.read("r")
    keep = next(entry.seq for entry in entries if entry.kind == "tool_finished")
    again = build("Blue.", journal=crashed(entries, keep), **today)
    result = await again.resume("r")
    noted = [
        (drift.what, drift.before, drift.after)
        for drift in find(again, DriftNoticed)
        if drift.what != "setup"
    ]

    assert result.answer == "Blue."
    assert noted == expected


async def test_a_changed_template_is_drift_without_its_words() -> None:
    whole = build(call("look", what="sky"), "Blue.", instructions=Template("You paint."))  # fmt: skip
    await whole.agents["painter"].run("Sky?", run_id="r")
    again = build(
        "Blue.", journal=crashed(whole.journal.read("r"), 3), instructions=Template("You draw.")
    )  # fmt: skip
    again.provider._lines.insert(0, call("look", what="sky"))  # type: ignore[attr-defined]
    await again.resume("r")
    [drift] = find(again, DriftNoticed)

    assert drift.what == "instructions"
    assert "paint" not in drift.before
    assert drift.before != drift.after
