"""The reader of Self-Ask's lines."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import ToolCall, ToolSpec
from loopwright.messages import Json
from loopwright.parsing.follow_ups import (
    FollowUp,
    ParsedFollowUps,
    quote_markers,
    read_final_answer,
    read_follow_ups,
    read_sub_answer,
)
from stopwatch import quickest

LINES = [
    "Follow up:",
    "Follow up: A?",
    "Intermediate answer: a",
    "So the final answer is:",
    "Final answer: x",
    "Tool: t",
]
LINES += [
    "Tool Input:",
    'Tool Input: {"a": 1}',
    "Question: Q?",
    "Are follow up questions needed here: Yes.",
    "prose",
]
LINES += [
    "Follow up: none",
    "**Follow up: B?**",
    "```",
    "~~~",
    "",
    "x" * 40,
    "Tool Input: {",
    "\u2028Follow up: C?\r",
]


def asked(text: str, **how: Any) -> list[str]:
    return [follow_up.question for follow_up in read_follow_ups(text, **how).follow_ups]


# --- follow-ups ---


@pytest.mark.parametrize(
    "line",
    [
        "Follow up: A?",
        "Follow-up: A?",
        "Followup: A?",
        "FOLLOW UP:A?",
        "follow_up : A?",
        "  Follow up 2: A?",
        "**Follow up:** A?",
        "**Follow up: A?**",
        "Follow up: **A?**",
        "### Follow up: A?",
        "Follow up question: A?",
        "Follow up:\nA?",
    ],
)
def test_a_follow_up_is_read_however_its_marker_is_written(line: str) -> None:
    text = f"Yes.\n{line}"

    assert read_follow_ups(text) == ParsedFollowUps(text, (FollowUp("A?", len(text)),))


def test_a_follow_up_keeps_its_own_colons() -> None:
    assert asked("Follow up: What is X: Y?") == ["What is X: Y?"]


@pytest.mark.parametrize(
    "text",
    [
        "I could write Follow up: A? here.",
        "```\nFollow up: A?\n```",
        "> Follow up: A?",
        "Follow up:",
        "Follow up: None.",
    ],
)
def test_a_follow_up_in_prose_in_a_code_fence_or_without_a_question_is_none(
    text: str,
) -> None:
    assert read_follow_ups(text) == ParsedFollowUps(text)


def test_follow_ups_one_below_the_other_are_all_asked() -> None:
    assert asked("Follow up: A?\n\nFollow up: B?\nFollow up: C?\n") == [
        "A?",
        "B?",
        "C?",
    ]


def test_what_stands_behind_prose_or_a_self_written_answer_is_dropped() -> None:
    assert read_follow_ups("Follow up: A?\nIt is a.\nFollow up: B?") == ParsedFollowUps(
        "Follow up: A?", (FollowUp("A?", 13),), None, "It is a.\nFollow up: B?"
    )
    assert read_follow_ups(
        "Follow up: A?\nIntermediate answer: made up\nSo the final answer is: fake"
    ) == ParsedFollowUps(
        "Follow up: A?",
        (FollowUp("A?", 13),),
        None,
        "Intermediate answer: made up\nSo the final answer is: fake",
    )
    assert read_follow_ups("Follow up: A?\nSo the final answer is: fake").answer is None


def test_only_the_first_follow_ups_count_if_there_are_too_many() -> None:
    reading = read_follow_ups(
        "Yes.\nFollow up: A?\nFollow up: B?\nFollow up: C?\nprose"
    )

    assert reading.first(3) is reading
    assert reading.first(1) == ParsedFollowUps(
        "Yes.\nFollow up: A?",
        (FollowUp("A?", 18),),
        None,
        "Follow up: B?\nFollow up: C?\nprose",
    )


# --- calls ---


def test_a_named_tool_is_read_with_its_input() -> None:
    text = "I need a lookup.\nTool: lookup\nTool Input: capital of France"

    assert read_follow_ups(text).follow_ups == (
        FollowUp("capital of France", len(text), "lookup", "capital of France"),
    )


def test_a_named_tool_answers_the_follow_up_above_it_even_behind_prose() -> None:
    text = 'Follow up: A?\nI take the map.\nTool: map\nTool Input: {"x": 1,\n "y": 2}\nFollow up: B?'

    assert read_follow_ups(text).follow_ups == (
        FollowUp("A?", text.index("\nFollow up: B"), "map", '{"x": 1,\n "y": 2}'),
        FollowUp("B?", len(text)),
    )


def test_two_calls_one_below_the_other_are_two_sub_questions() -> None:
    text = "Tool: a\nTool Input: one\nTool: b\nTool Input: {}"

    assert [(f.question, f.tool, f.input) for f in read_follow_ups(text).follow_ups] == [
        ("one", "a", "one"), ("b {}", "b", "{}")
    ]  # fmt: skip


@pytest.mark.parametrize("item", ["- ", "* ", "+ ", "\u2022 ", "1. ", "2) ", "  - **"])
def test_a_list_of_follow_ups_is_follow_ups(item: str) -> None:
    assert asked(f"Yes.\n{item}Follow up: A?\n{item}Follow up: B?") == ["A?", "B?"]
    assert read_follow_ups(f"{item}So the final answer is: 12").answer == "12"
    assert read_final_answer(f"{item}Follow up: A?") is None


@pytest.mark.parametrize(
    "text", ["Tool: hammer\nFollow up: A?", "Tool Input: x\nFollow up: A?"]
)
def test_half_a_call_is_none(text: str) -> None:
    assert [(f.question, f.tool) for f in read_follow_ups(text).follow_ups] == [
        ("A?", "")
    ]


def test_a_call_takes_the_registered_spelling_and_reads_objects_and_plain_text() -> (
    None
):
    one: dict[str, Json] = {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    }
    two: dict[str, Json] = {
        "type": "object",
        "properties": {"x": {}, "y": {}},
        "required": ["x", "y"],
    }
    tools = [ToolSpec("Look_up", "", one), ToolSpec("map", "", two)]

    assert FollowUp("q", 0, "`look_up`", "Paris").call(tools) == ToolCall(
        "Look_up", {"query": "Paris"}
    )
    assert FollowUp("q", 0, "map", '```json\n{"x": 1, "y": 2}\n```').call(
        tools
    ) == ToolCall("map", {"x": 1, "y": 2})
    with pytest.raises(
        ValueError, match=r"There is no tool 'web'. Tools: Look_up, map."
    ):
        FollowUp("q", 0, "web", "Paris").call(tools)
    with pytest.raises(ValueError, match="The input of map must be a JSON object"):
        FollowUp("q", 0, "map", "Paris").call(tools)


def test_the_same_question_in_other_letters_is_the_same_but_another_sign_is_another() -> (
    None
):
    assert FollowUp("Who  is it?", 0).key == FollowUp("who is it", 9).key
    assert FollowUp("What is 2+2?", 0).key != FollowUp("What is 2-2?", 0).key
    assert FollowUp("x", 0, "map", "x").key != FollowUp("x", 0).key


# --- final answers ---


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So the final answer is: Paris.", "Paris."),
        ("No.\nso THE final answer is:Paris", "Paris"),
        ("**So the final answer is:** Paris", "Paris"),
        ("**So the final answer is: Paris**", "Paris"),
        ("So the final answer is: **Paris**", "Paris"),
        ("The final answer is: Paris", "Paris"),
        ("Final Answer: Paris", "Paris"),
        (
            "So the final answer is:\n\n- Paris\n- Rome: the city\n",
            "- Paris\n- Rome: the city",
        ),
        ("So the final answer is: Rome\nSo the final answer is: Paris", "Paris"),
        (
            "So the final answer is: a saw\nTool: a hammer\nQuestion: which?",
            "a saw\nTool: a hammer\nQuestion: which?",
        ),
        ("So the final answer is: these\nTool Input: x", "these\nTool Input: x"),
        ("Intermediate answer: as you say\nSo the final answer is: Paris", "Paris"),
        ("Follow up: none\nSo the final answer is: Paris", "Paris"),
        ("Follow up: None.\nI know it.\nSo the final answer is: Paris", "Paris"),
        (
            "Question: Q?\nAre follow up questions needed here: No.\nSo the final answer is: Paris",
            "Paris",
        ),
    ],
)
def test_a_final_answer_is_read_whole_and_without_markup(
    text: str, answer: str
) -> None:
    assert read_follow_ups(text).answer == answer


def test_a_question_that_the_model_invents_behind_its_answer_is_dropped() -> None:
    invented = "Question: R?\nAre follow up questions needed here: Yes.\nFollow up: S?"

    assert read_follow_ups(
        f"So the final answer is: Paris\n\n{invented}"
    ) == ParsedFollowUps("So the final answer is: Paris", (), "Paris", invented)


def test_an_empty_final_answer_is_none_and_a_follow_up_behind_it_counts() -> None:
    assert read_follow_ups("So the final answer is:") == ParsedFollowUps(
        "So the final answer is:"
    )
    assert asked("So the final answer is: \nFollow up: A?") == ["A?"]


# --- replies that were cut short ---


def test_the_line_at_which_a_reply_was_cut_is_not_trusted() -> None:
    assert read_follow_ups("Yes.\nFollow up: Who is th", cut=True) == ParsedFollowUps(
        "Yes."
    )
    assert read_follow_ups(
        "Follow up: A?\nFollow up: Who is th", cut=True
    ) == ParsedFollowUps(
        "Follow up: A?", (FollowUp("A?", 13),), None, "Follow up: Who is th"
    )
    assert asked("Follow up: A?\n", cut=True) == ["A?"]
    assert asked('Tool: map\nTool Input: {"x": 1,\n "y"', cut=True) == []


def test_a_final_answer_that_was_cut_is_none_unless_more_was_said_behind_it() -> None:
    assert read_follow_ups(
        "No.\nSo the final answer is: A,\nB,\nand", cut=True
    ) == ParsedFollowUps("No.")
    assert (
        read_follow_ups("So the final answer is: A\nFollow up: an", cut=True).answer
        == "A"
    )


# --- bare answers ---


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" Paris. ", "Paris."),
        ("**Paris**", "Paris"),
        ("**a** and **b**", "**a** and **b**"),
        ("So the final answer is: Paris", "Paris"),
        ("So the final answer is 12.", "12"),
        ("No. The final answer is: 12", "12"),
        ("", None),
        ("****", None),
        ("Follow up: A?", None),
        ("Intermediate answer: Paris", None),
        ("Tool: map\nTool Input: x", None),
        ("Based on the above:", None),
    ],
)
def test_an_answer_alone_is_taken_as_it_is_but_protocol_text_or_a_lead_in_is_none(
    text: str, answer: str | None
) -> None:
    assert read_final_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("In 1906.", "In 1906."),
        ("In 1906.\nFollow up: B?", "In 1906."),
        ("Intermediate answer: In 1906.\nSo the final answer is: yes", "In 1906."),
        ("So the final answer is: 4", "4"),
        ("Follow up: B?", ""),
        ("", ""),
    ],
)
def test_a_sub_answer_is_what_stands_before_the_protocol_goes_on(
    text: str, answer: str
) -> None:
    assert read_sub_answer(text) == answer


# --- whatever the text ---


@given(
    st.lists(st.sampled_from(LINES)).map("\n".join), st.booleans(), st.integers(1, 3)
)
def test_any_text_is_read_and_nothing_of_it_is_both_asked_and_answered(
    text: str, cut: bool, most: int
) -> None:
    reading = read_follow_ups(text, cut=cut).first(most)

    assert not (reading.follow_ups and reading.answer)
    assert len(reading.follow_ups) <= most
    assert text.strip().startswith(reading.text.strip())
    assert all(
        f.question and text.strip().startswith(text[: f.end].strip())
        for f in reading.follow_ups
    )
    assert [f.end for f in reading.follow_ups] == sorted(
        {f.end for f in reading.follow_ups}
    )


@given(st.lists(st.sampled_from(LINES)).map("\n".join))
def test_a_quoted_text_says_nothing_to_the_reader(text: str) -> None:
    assert read_follow_ups(quote_markers(text)) == ParsedFollowUps(
        quote_markers(text).strip()
    )


@pytest.mark.parametrize(
    "line",
    [
        *LINES,
        "**Follow up:",
        "Follow up",
        "Tool: t\nTool Input: x",
        "Tool",
        "** ",
        "Tool: \n",
    ],
)
def test_hostile_text_is_read_in_linear_time(line: str) -> None:
    text = (f"{line}\n" * (262_144 // (len(line) + 1)))[:262_144]

    assert (
        quickest(lambda: read_follow_ups(text), 0.2) < 0.2
    )  # 0.05 on a machine that does nothing else
