"""ProgressRules: how often is a loop, how similar errors are one, and what happens then; a resumed run keeps its own."""

from pathlib import Path
from typing import Any

import pytest

from loopwright import ConfigError, ReActEngine, Runtime, Suspend, ToolError, tool
from loopwright.gates import Action
from loopwright.journals import SQLiteJournal
from loopwright.limits import ProgressRules
from loopwright.testing import ScriptedProvider, call

LOOK = call("look", thing="desk")


def runtime(replies: list[Any], made: list[str], **services: Any) -> Runtime:
    """A runtime whose tools count their calls."""

    @tool(effect="read")
    def look(thing: str) -> str:
        """Look."""
        made.append(thing)
        return "a desk"

    @tool(effect="read")
    def fail(number: int) -> str:
        """Fail."""
        made.append(str(number))
        raise ToolError(f"the door number {number} does not open today")

    return Runtime(ScriptedProvider(replies), tools=[look, fail], **services)


@pytest.mark.parametrize("repeats", [2, 3, 5])
async def test_call_is_blocked_after_so_many_repeats(repeats: int) -> None:
    made: list[str] = []
    script = [LOOK] * (repeats + 2) + ["The best: a desk."]
    rules = ProgressRules(repeats=repeats)
    result = await ReActEngine(runtime(script, made, progress=rules)).run("Look.")

    assert (result.status, result.stop_reason) == ("stuck", "repeated_action")
    assert (len(made), result.answer) == (repeats, "The best: a desk.")


@pytest.mark.parametrize(("similarity", "calls"), [(0.85, 4), (1.0, 6)])
async def test_errors_are_one_from_the_similarity_on(
    similarity: float, calls: int
) -> None:
    made: list[str] = []
    script = [*(call("fail", number=number) for number in range(6)), "I give up.", "So."]  # fmt: skip
    rules = ProgressRules(similarity=similarity)
    await ReActEngine(runtime(script, made, progress=rules)).run("Open it.")

    assert len(made) == calls


async def test_run_that_is_stuck_ends_at_once_by_abort() -> None:
    made: list[str] = []
    services = runtime([LOOK] * 5, made, progress=ProgressRules(then="abort"))
    result = await ReActEngine(services).run("Look.")

    assert (result.status, result.answer, result.llm_calls) == ("stuck", None, 5)


async def test_person_is_asked_whether_the_call_is_made_all_the_same() -> None:
    made: list[str] = []
    asked: list[str] = []

    async def approver(action: Action, question: str) -> bool:
        asked.append(question)
        return len(asked) == 1

    script = [*[LOOK] * 6, "A desk."]
    rules = ProgressRules(then="ask")
    services = runtime(script, made, progress=rules, approver=approver)
    result = await ReActEngine(services).run("Look.")

    assert (result.status, result.answer) == ("completed", "A desk.")
    assert len(made) == 4  # three, one is blocked, one is approved, one is denied
    assert len(asked) == 2
    assert "makes no progress" in asked[0]


async def test_question_about_a_loop_waits_and_its_approval_resumes(
    tmp_path: Path,
) -> None:
    made: list[str] = []

    def build(script: list[Any]) -> Runtime:
        journal, rules = SQLiteJournal(tmp_path / "runs.db"), ProgressRules(then="ask")
        return runtime(script, made, progress=rules, approver=Suspend(), journal=journal)  # fmt: skip

    waiting = await ReActEngine(build([LOOK] * 5)).run("Look.", run_id="one")
    after = build(["A desk."])
    (question,) = waiting.pending
    await after.control("one").approve(question.id)
    result = await after.resume("one")

    assert (waiting.status, waiting.stop_reason) == ("waiting", "approval")
    assert "makes no progress" in question.text
    assert (result.status, result.answer, len(made)) == ("completed", "A desk.", 4)


async def test_resumed_run_keeps_the_rules_that_it_began_with(tmp_path: Path) -> None:
    made: list[str] = []

    def build(script: list[Any], rules: ProgressRules | None) -> Runtime:
        journal = SQLiteJournal(tmp_path / "runs.db")
        return runtime(script, made, progress=rules, journal=journal)

    first = build([LOOK] * 3 + [RuntimeError("gone")], ProgressRules(repeats=2))
    async with ReActEngine(first).start("Look.", run_id="one") as run:
        async for entry in run:
            if entry.kind == "tool_finished" and len(made) == 2:
                await run.suspend()
    resumed = await build([LOOK, LOOK, "A desk."], None).resume("one")

    assert (resumed.status, resumed.error and len(made)) == ("stuck", 2)
    (begun, *_) = first.journal.read("one")
    assert begun.event.progress == {"repeats": 2}  # type: ignore[union-attr]


async def test_usual_rules_are_not_recorded() -> None:
    services = runtime(["A desk."], [])
    await ReActEngine(services).run("Look.", run_id="one")

    assert services.journal.read("one")[0].event.progress == {}  # type: ignore[union-attr]


def test_rules_out_of_range_are_refused() -> None:
    for wrong in ({"repeats": 1}, {"similarity": 0}, {"then": "give up"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ProgressRules(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"progress: must be ProgressRules\(...\), got 3"):  # fmt: skip
        Runtime(ScriptedProvider([]), progress=3)  # type: ignore[arg-type]
