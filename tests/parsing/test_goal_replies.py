"""Replies of the goal cycle, read leniently: the recorded cases of AlexClaw, and what its parser did not read."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from loopwright.parsing.goal_replies import (
    StepDraft,
    normalize_steps,
    read_confidence,
    read_evaluation,
    read_goal_decision,
    read_goal_plan,
    read_named_text,
    read_rating,
    read_step_input,
)
from recordings import MISSING, fixture
from stopwatch import quickest

CASES = fixture("alexclaw_parser_cases.json")
READERS: Mapping[str, Callable[[str], Any]] = {
    "plan": read_goal_plan,
    "execution": read_step_input,
    "evaluation": read_evaluation,
    "decision": read_goal_decision,
}


def load(name: str) -> list[Any]:
    if not CASES.exists():
        return []
    return json.loads(CASES.read_text())[name]


def describe(reply: Any, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a reply what a case expects."""
    steps = getattr(reply, "steps", ())
    new = getattr(reply, "new_plan", ())
    found = {
        "ok": True,
        "n_steps": len(steps),
        "skills": [step.skill for step in steps],
        "input_descriptions": [step.input_description for step in steps],
        "step_numbers": [step.number for step in steps],
        "n_new_plan": len(new),
        "new_plan_skills": [step.skill for step in new],
        "new_plan_inputs": [step.input_description for step in new],
        **{
            name: getattr(reply, name, None)
            for name in ("quality", "action", "final_answer", "working_memory")
        },
    }
    return {name: value for name, value in found.items() if name in expected}


@pytest.mark.skipif(not CASES.exists(), reason=MISSING)
def test_every_recorded_case_is_read_as_it_was() -> None:
    cases = load("cases")
    assert len(cases) == 18
    for case in cases:
        expected = {
            key: value for key, value in case["expect"].items() if key != "note"
        }
        read = READERS[case["parser"]]
        if expected["ok"]:
            assert describe(read(case["raw"]), expected) == expected, case
            continue
        with pytest.raises(ValueError, match=expected["reason_contains"] or "."):
            read(case["raw"])


@pytest.mark.skipif(not CASES.exists(), reason=MISSING)
def test_every_recorded_step_is_normalized_as_it_was() -> None:
    for case in load("normalize_plan_steps"):
        found = [
            {"step": step.number}
            | ({"skill": step.skill} if step.skill else {})
            | ({"input_description": step.input_description} if step.input_description else {})
            for step in normalize_steps(case["steps"])
        ]  # fmt: skip
        assert found == case["out"]


@pytest.mark.parametrize(
    "reply",
    [
        '```json\n{"steps": [{"skill": "a"}]}\n```',
        'Sure.\n```\n{"steps": [{"skill": "a"}]}\n```\nThat is it.',
        '{"thought": 1} {"steps": [{"skill": "a"}]}',
        "{'steps': [{'skill': 'a'}]}",
        '{"steps": [{"skill": "a",},],}',
        '[{"skill": "a"}]',
        '{"Steps": [{"step": "a"}]}',
        '{"plan": [{"tool_name": "a"}]}',
        'Not {this} but {"tasks": [{"name": "a"}]}',
    ],
)
def test_a_plan_is_read_however_it_is_wrapped(reply: str) -> None:
    assert [step.skill for step in read_goal_plan(reply).steps] == ["a"]


@pytest.mark.parametrize(
    "reply",
    ["", " ", "no JSON", "{", '{"steps": []}', '{"steps": "a"}', '{"a": 1, "a": 2}', "[1]", '{"steps": [{"skill": "a"'],
)  # fmt: skip
def test_what_is_not_a_plan_says_what_is_missing(reply: str) -> None:
    with pytest.raises(ValueError, match=r"steps|empty|object"):
        read_goal_plan(reply)


def test_a_goal_that_cannot_be_reached_is_an_error_of_the_plan() -> None:
    reply = read_goal_plan('{"error": "no skill flies", "working_memory": "grounded"}')

    assert (reply.steps, reply.error, reply.working_memory) == ((), "no skill flies", "grounded")  # fmt: skip


def test_an_input_may_be_a_text_or_arguments_by_name() -> None:
    assert read_step_input('{"input": "sky"}').input == "sky"
    assert read_step_input('{"arguments": {"what": "sky"}}').input == {"what": "sky"}
    assert read_step_input('{"input": 5}').input == 5


@pytest.mark.parametrize(
    ("given", "confidence"),
    [
        (0.85, 0.85), ("0.85", 0.85), ("85%", 0.85), (85, 0.85), ("85", 0.85), (1, 1.0), ("100 %", 1.0), (0, 0.0),
        (101, None), (-1, None), (True, None), (None, None), ("high", None), ("4/5", None), ([], None),
    ],
)  # fmt: skip
def test_a_confidence_is_a_number_from_0_to_1(
    given: Any, confidence: float | None
) -> None:
    assert read_confidence(given) == confidence


@pytest.mark.parametrize(
    ("given", "score"),
    [(4, 4.0), ("4", 4.0), ("4/5", 4.0), ("3.5", 3.5), (0, None), (6, None), ("80%", None), (True, None), ("good", None)],
)  # fmt: skip
def test_a_score_is_a_number_from_1_to_5(given: Any, score: float | None) -> None:
    assert read_rating(given) == score


@pytest.mark.parametrize(
    ("scores", "stated", "quality"),
    [
        ((4, 3), "good", "good"), ((4, 3), "other", "good"), ((3, 3), "other", "partial"), ((2, 2), "other", "partial"),
        ((1, 2), "other", "failed"), ((), "good", "good"), ((), "other", "failed"),
        ((2, 2), "good", "partial"), ((5, 5), "failed", "failed"),  # the lower of the two
        ((4, 4, 3, 4), None, "good"), ((2, 1, 3, 2), None, "partial"), ((1, 1, 2, 1), None, "failed"),
    ],
)  # fmt: skip
def test_a_quality_is_good_from_3_5_and_partial_from_2(
    scores: tuple[int, ...], stated: str | None, quality: str
) -> None:
    names = ("relevance", "completeness", "usability", "goal_progress")
    fields = {**dict(zip(names, scores, strict=False)), "quality": stated}

    assert read_evaluation(json.dumps(fields)).quality == quality


def test_an_evaluation_without_its_quality_needs_all_scores() -> None:
    scores = '"relevance": "4", "Completeness": 5, "usability": "4/5"'
    whole = read_evaluation(f'Well.\n```json\n{{{scores}, "progress": 4}}\n```')

    assert (whole.quality, whole.mean) == ("good", 4.25)
    for missing in ("", ', "progress": 6'):
        with pytest.raises(ValueError, match='"quality"'):
            read_evaluation(f"{{{scores}{missing}}}")


def test_a_text_field_is_the_reply_itself_where_that_is_not_json() -> None:
    assert read_named_text('{"answer": "blue"}', "answer") == "blue"
    assert read_named_text('```json\n{"result": "blue"}\n```', "answer") == "blue"
    assert read_named_text("It is blue.", "answer") == "It is blue."
    assert read_named_text('{"answer": "blu', "answer") == ""
    assert read_named_text('{"answer": {"colour": "blue"}}', "answer") == '{"colour":"blue"}'  # fmt: skip
    assert read_named_text('```json\n{"compressed": "short"}\n```', "compressed") == "short"  # fmt: skip


@pytest.mark.parametrize(
    "hostile",
    ["{" * 200_000, '{"a":' * 50_000, "```" * 80_000, '{"steps": [' + '{"skill": "a"},' * 20_000, "{'a': " * 40_000],
    ids=["braces", "objects", "fences", "steps", "literals"],
)  # fmt: skip
def test_a_hostile_reply_is_refused_quickly(hostile: str) -> None:
    def read_all() -> None:
        for read in READERS.values():
            with pytest.raises(ValueError, match=r"\w"):
                read(hostile)

    assert quickest(read_all, 0.4) < 0.4  # 50 ms for each, twice over


def test_a_step_without_fields_has_only_its_number() -> None:
    assert normalize_steps(["a", 1, {}]) == (StepDraft(1), StepDraft(2), StepDraft(3))
