"""What models write that was once read as something else: tables of replies and what they mean."""

import pytest

from loopwright import ToolSpec
from loopwright.parsing.answers import (
    canonicalize_answer,
    read_answer,
    read_closing_answer,
)
from loopwright.parsing.critiques import is_null_answer, read_critique
from loopwright.parsing.follow_ups import read_final_answer, read_follow_ups
from loopwright.parsing.plans.calls import read_call_arguments
from loopwright.parsing.plans.checks import check_plan
from loopwright.parsing.plans.reader import read_plan
from loopwright.parsing.thinking import strip_thinking
from loopwright.parsing.verdicts import read_verdict

TEXT = {"type": "string"}
SEARCH = ToolSpec(
    "search",
    "",
    {"type": "object", "properties": {"query": TEXT}, "required": ["query"]},
)
SEND = ToolSpec(
    "send",
    "",
    {
        "type": "object",
        "properties": {"to": TEXT, "text": TEXT},
        "required": ["to", "text"],
    },
)
NUMBERS = {"type": "array", "items": {"type": "number"}}
TOTAL = ToolSpec(
    "total",
    "",
    {"type": "object", "properties": {"values": NUMBERS}, "required": ["values"]},
)
TOOLS = (SEARCH, SEND, TOTAL)
NAMES = [tool.name for tool in TOOLS]


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 5. Wait, that is wrong: 2+2+2 = 6.",
        "So the answer is 5? No.",
        "The answer is 5. Hmm, let me check.",
    ],
)
def test_an_ending_that_is_taken_back_is_none(text: str) -> None:
    assert read_closing_answer(text, "number") is None


def test_an_answer_that_tells_of_anothers_is_read_whole() -> None:
    reply = "Paris. (Many people think the answer is Lyon, which is false.)"

    assert read_answer(reply, "text") == reply


@pytest.mark.parametrize(
    "text", ["3 million", "50k", "√2", "10⁶", "5 squared", "5½", "2π"]
)
def test_a_part_of_a_number_is_no_number(text: str) -> None:
    assert read_answer(text, "number") is None


@pytest.mark.parametrize("text", ["3.5/2", "1e5/3"])
def test_odd_fractions_break_nothing(text: str) -> None:
    assert isinstance(canonicalize_answer(text, "number"), str)
    assert isinstance(canonicalize_answer(text, "text"), str)


@pytest.mark.parametrize(
    "text",
    [
        "The answer is A or B",
        "Neither A nor B",
        "C is not the answer",
        "B is incorrect",
    ],
)
def test_a_letter_that_is_denied_or_one_of_two_is_none(text: str) -> None:
    assert read_answer(text, "letter") is None


@pytest.mark.parametrize(
    "text",
    [
        "VERIFIED, except the height, which is wrong.",
        "half VERIFIED",
        "VERIFIED to be wrong",
        "VERIFIED with corrections",
    ],
)
def test_a_verdict_with_a_reserve_is_none(text: str) -> None:
    assert read_verdict(text, "VERIFIED") is False


@pytest.mark.parametrize(
    "text",
    [
        "No changes are needed.",
        "The original answer is correct as it stands.",
        "None needed.",
    ],
)
def test_a_revision_that_changes_nothing_is_null(text: str) -> None:
    assert is_null_answer(text)


def test_a_quoted_line_of_evidence_is_no_verdict() -> None:
    said = read_critique(
        "The page says:\n> VERIFIED since 2001\n> 4,546 m\nSo the height in the answer is off."
    )

    assert said.verdict != "verified"


@pytest.mark.parametrize(
    "text",
    [
        "The evidence supports the claim, so nothing has to be changed.",
        "I apologize, but I was not able to confirm this.",
        "The answer above is right.",
    ],
)
def test_a_remark_about_the_critique_is_no_answer(text: str) -> None:
    assert not read_critique(text).is_plain


@pytest.mark.parametrize(
    "text", ["Revised 1.", "Mount Elbert is 4,401 m high.", "Paris"]
)
def test_plain_words_may_be_the_answer(text: str) -> None:
    assert read_critique(text).is_plain


def test_listed_follow_ups_are_asked_and_never_the_answer() -> None:
    reading = read_follow_ups("- Follow up: Who is A?\n- Follow up: Who is B?")

    assert [one.question for one in reading.follow_ups] == ["Who is A?", "Who is B?"]
    assert read_final_answer("- Follow up: Who is A?") is None
    assert read_final_answer("So the final answer is 12.") == "12"


@pytest.mark.parametrize(
    "written", ["{step1}", "{{step1}}", "${step1}", "$step1", "<result of step 1>"]
)
def test_a_reference_in_another_spelling_is_sent_back(written: str) -> None:
    plan = read_plan(f'1. search("x")\n2. send("bob", "It is {written}.")', NAMES)

    with pytest.raises(ValueError, match=r"is no reference; write `\$k`"):
        check_plan(plan, TOOLS, 10)


def test_bare_evidence_is_a_reference_in_rewoo() -> None:
    plan = read_plan(
        "Plan: look\nE1 = search[x]\nPlan: send\nE2 = search[more of E1]", NAMES
    )

    assert plan.steps[1].depends_on == (1,)


def test_a_last_goal_without_references_waits_for_all_before_it() -> None:
    plan = read_plan(
        '1. search("x")\n2. search("$1")\n3. Write a summary table of the findings.',
        NAMES,
    )

    assert plan.steps[2].depends_on == (1, 2)


def test_a_dependency_in_words_is_one() -> None:
    plan = read_plan(
        '1. send("bob", "first")\n2. send("bob", "second") (after step 1)\n3. send("eve", "$2")',
        NAMES,
    )

    assert plan.steps[1].depends_on == (1,)


def test_a_call_that_is_done_is_not_made_again_in_another_spelling() -> None:
    done = read_plan('1. send("bob", "hi")', NAMES).steps
    for written in (
        """Send("bob", "hi")""",
        """send('bob','hi')""",
        """send(to="bob", text="hi")""",
    ):
        again = read_plan(f"2. {written}", NAMES, first=2, done=[1])
        with pytest.raises(ValueError, match="repeats step 1"):
            check_plan(again, TOOLS, 10, done)


def test_results_in_a_list_become_what_its_items_are() -> None:
    assert read_call_arguments("[$1, $2]", TOTAL, {1: "4", 2: "5.5"}) == {
        "values": [4, 5.5]
    }


def test_a_call_under_a_heading_is_not_lost() -> None:
    with pytest.raises(ValueError, match="search"):
        read_plan(
            '## Step 1: Find the capital\nsearch("capital")\n## Step 2: Tell it', NAMES
        )
    plan = read_plan(
        '{"steps": [{"function": "search", "arguments": {"query": "x"}}]}', NAMES
    )
    assert [step.tool for step in plan.steps] == ["search"]


def test_nothing_more_to_find_out_is_an_empty_plan() -> None:
    assert read_plan("join()", NAMES, first=3, done=[1, 2]).steps == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>\nb", "b"),
        ("<think>never ends", ""),
        ("b <think>a</think>", "b <think>a</think>"),
        ("plain", "plain"),
    ],
)
def test_thinking_in_front_is_left_out(text: str, said: str) -> None:
    assert strip_thinking(text) == said
