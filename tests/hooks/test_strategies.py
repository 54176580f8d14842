"""Hooks with each strategy and a third party's: called, and the same when a run is resumed from any cut."""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from handoff_programs import STRATEGIES
from loopwright import plugins
from loopwright.events import HookRan
from loopwright.hooks import Hook, Moment
from loopwright.testing import call, crashed
from programs import PROGRAMS, look, turns
from programs import program as find_program
from third_party_package import install_third_party


@pytest.fixture(scope="module", autouse=True)
def _third_party() -> Iterator[None]:
    sys.path.insert(0, str(install_third_party()))
    plugins._find_installed.cache_clear()
    yield
    sys.path.remove(str(install_third_party()))
    plugins._find_installed.cache_clear()


class Everywhere(Hook):
    """Counts what it is called for, and marks results and the answer."""

    name = "everywhere"
    purposes = ("*",)

    def before_model(self, at: Moment, asked: Any) -> None:
        """Count."""
        at.state["calls"] = int(str(at.state.get("calls", 0))) + 1

    async def after_model(self, at: Moment, text: str) -> None:
        """Look at a reply."""
        assert text

    def after_tool(self, at: Moment, text: str) -> str:
        """Mark a result."""
        return f"{text} (seen)"

    def before_answer(self, at: Moment, answer: str) -> str:
        """Mark the answer, whose engine may have had children."""
        return f"{answer.removesuffix('!')}!"


@pytest.mark.parametrize("name", STRATEGIES)
async def test_hooks_work_with_each_strategy_and_a_replay_goes_the_same_way(
    name: str,
) -> None:
    program = dataclasses.replace(find_program(name), hooks=(Everywhere(),))
    runtime = program.runtime()
    whole = await program.engine(runtime).run(program.task, run_id="r")
    entries = runtime.journal.read("r")
    ran = [entry.event for entry in entries if isinstance(entry.event, HookRan)]

    assert whole.answer == f"{program.answer}!"
    assert {one.stage for one in ran} >= {"before_model", "before_answer"}
    assert [one.error for one in ran if one.error] == []
    for keep in range(1, len(entries), 3):
        again = program.runtime(crashed(entries, keep))
        result = await program.engine(again).resume("r")

        assert (result.answer, result.status) == (whole.answer, "completed")


async def test_a_packaged_hook_is_found_by_name_and_resumes_by_name() -> None:
    """The run is resumed by its recorded name and options alone, by a runtime of another process."""
    stamp: Any = {"hook": "stamp", "mark": "#7"}
    model = turns(call("look", what="sky"), "blue")
    program = dataclasses.replace(PROGRAMS["react"], model=model, tools=(look,))
    runtime = program.runtime()
    whole = await runtime.engine("react", hooks=[stamp]).run(program.task, run_id="r")
    entries = runtime.journal.read("r")
    told = [one.content for one in whole.conversation if one.role == "tool"]

    assert all("#7" in text for text in told)
    assert entries[0].event.options["hooks"] == [stamp]  # type: ignore[union-attr]
    for keep in range(1, len(entries)):
        again = await program.runtime(crashed(entries, keep)).resume("r")
        assert again.conversation == whole.conversation
