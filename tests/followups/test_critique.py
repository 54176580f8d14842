"""Critique: after a run, a model looks back at its answer and attacks it; both are facts of a run of their own."""

from typing import Any

import pytest

from loopwright import Request, Runtime
from loopwright.followups import Critique
from loopwright.testing import ScriptedProvider

KIND = '{"confidence": 0.9, "quality": 0.8, "patterns": ["Look at maps."]}'
HOSTILE = '{"confidence": 0.7, "quality": 0.3, "issues": ["It names no day.", "No fare."], "patterns": ["Name the day."]}'


def build(*replies: str, **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(["It goes at 8:25.", *replies]), after=[Critique(**options)])  # fmt: skip


async def follow(runtime: Runtime, run_id: str = "r") -> Any:
    """The result of the follow-up, whose caller has the answer first."""
    async with runtime:
        result = await runtime.engine("react").run("Which train? " * 60, run_id=run_id)
        assert result.answer == "It goes at 8:25."
        await runtime.drain()
        return await runtime.resume(f"{run_id}@after:critique")


async def test_a_hostile_second_look_follows_the_first_and_both_are_facts() -> None:
    runtime = build(KIND, HOSTILE)
    found = await follow(runtime)
    facts: list[Any] = [fact.value for fact in found.facts if fact.name == "Reflected"]
    requests: list[Request] = runtime.provider.requests  # type: ignore[attr-defined]
    prompts = [one.conversation.messages[-1].content for one in requests[1:]]

    assert found.answer == "look back: quality 0.8, 0 issues; hostile: quality 0.3, 2 issues"  # fmt: skip
    assert [(one["hostile"], one["quality"]) for one in facts] == [(False, 0.8), (True, 0.3)]  # fmt: skip
    assert facts[1]["issues"] == ["It names no day.", "No fare."]
    assert "Assume that the answer below is wrong" in prompts[1]
    assert prompts[0].count("Which train?") == 30  # of 400 characters


@pytest.mark.parametrize(
    ("options", "replies", "said"),
    [
        ({"reflection": False}, [HOSTILE], "hostile: quality 0.3, 2 issues"),
        ({"adversarial": False}, [KIND], "look back: quality 0.8, 0 issues"),
        ({"reflection": False}, ["no", "no", "no"], "hostile: unreadable"),
        ({"reflection": False, "adversarial": False}, [], "nothing to do"),
    ],
)
async def test_each_look_can_be_off_and_an_unreadable_one_has_no_invented_score(
    options: Any, replies: list[str], said: str
) -> None:
    found = await follow(build(*replies, **options))

    assert found.answer == said
    is_read = replies in ([HOSTILE], [KIND])
    assert any(fact.name == "Reflected" for fact in found.facts) is is_read
