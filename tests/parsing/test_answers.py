"""Reading answers: one of a kind or none, never a guess; the same answer in other words; votes; linear time."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from loopwright.parsing.answers import (
    AnswerKind,
    canonicalize_answer,
    normalize_answer,
    read_answer,
    read_closing_answer,
)
from stopwatch import quickest

KINDS = get_args(AnswerKind)


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("42", "42"),
        ("42.", "42"),
        ("**42**", "42"),
        ("$1,234.50", "1234.50"),
        ("100,000 people", "100000"),
        ("-5", "-5"),
        ("\u22125 °C", "-5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("minus 5", "-5"),
        ("+5", "5"),
        (".5", ".5"),
        ("3/4", "3/4"),
        ("1e5", "1e5"),
        ("5 km", "5"),
        ("17 in", "17"),
        ("10%", "10"),
        ("- 5", "5"),  # a bullet
        ("(5)", "5"),
        ("\\boxed{42}", "42"),
        ("6 × 7 = 42", "42"),  # noqa: RUF001
        ("16 - 3 - 4 = 9 eggs", "9"),
        ("x = 5, since 2x = 10", "5"),
        ("18 dollars (3 * 6)", "18"),
        ("**18** (3 * 6)", "18"),
        ("18, because 16 - 3 = 13 is not all", "18"),
        ("18. Because 16 - 3 - 4 = 9, twice.", "18"),
        ("16 eggs less 7 are 9, so the answer is 18.", "18"),
        ("Answer: 18, as 9 * 2 shows.", "18"),
        ("1 is no answer.\nFinal answer: 2", "2"),
    ],
)
def test_a_number_is_the_only_one_or_the_one_that_a_reply_begins_with(
    reply: str, number: str
) -> None:
    assert read_answer(reply, "number") == number


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "none",
        "forty-two",
        "3 times 4 is 12",
        "between 3 and 4",
        "3-4",
        "3, 4 or 5",
        "3 eggs, or 4",
        "Take 18, since 16 - 3 = 13",
        "5,5",
        "1,2,3",
        "1,0000",
        "6*6",
        "6 * 6",
        "42 - 6 groups of 7",
        "42 * (6 + 1)",
        "42*(6+1)",
        "18 since 16 - 3 = 13 remain",
        "6 x 6",
        "12:30",
        "2024-01-05",
        "1/2/3",
        "3/0",
        "3.5/2",
        "1e5/3",
        "3 million",
        "$1.5 million",
        "3 dozen",
        "50k",
        "\u221a2",
        "\\sqrt{2}",
        "half of 5",
        "2\u03c0",
        "2\\pi",
        "5 squared",
        "5\u00b2",
        "10\u2076",
        "5\u00bd",
        "v1.2.3",
        "B12",
        "B-52",
        "not 5",
        "The answer is not 5",
        "If it were 5",
        "1. Count the eggs.\n2. Sell them.",
        "FINAL ANSWER:",
    ],
)
def test_what_is_no_number_or_more_than_one_is_none(reply: str) -> None:
    assert read_answer(reply, "number") is None


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("C", "C"),
        ("c", "C"),
        ("(c)", "C"),
        ("**E**", "E"),
        ("C) 42 eggs", "C"),
        ("Option D", "D"),
        ("The answer is (B).", "B"),
        ("A is correct", "A"),
        ("C. Since A and B are too small.", "C"),
        ("(C) because (A) is too small", "C"),
        ("A", "A"),
        ("F", None),
        ("B or C", None),
        ("Not A", None),
        ("B is incorrect; the correct option is A", None),
        ("B is wrong. A.", None),
        ("B cannot be right. C", None),
        ("C is not the answer", None),
        ("(A) is not correct, (B) is", None),
        ("The answer is A or B", None),
        ("Neither A nor B", None),
        ("A dog has four legs", None),
        ("I can't decide", None),
        ("a cab", None),
        ("", None),
    ],
)
def test_a_letter_is_one_of_a_to_e_that_the_reply_settles_on(
    reply: str, letter: str | None
) -> None:
    assert read_answer(reply, "letter") == letter


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("Yes", "yes"),
        ("NO", "no"),
        ("no.", "no"),
        ("**Yes.**", "yes"),
        ("No, because yes would need water.", "no"),
        ("Yes it can", "yes"),
        ("So the answer is no.", "no"),
        ("No one knows", None),
        ("There is no doubt that it can", None),
        ("yes and no", None),
        ("I cannot say yes", None),
        ("maybe", None),
        ("", None),
    ],
)
def test_yes_and_no_are_said_and_not_merely_mentioned(
    reply: str, said: str | None
) -> None:
    assert read_answer(reply, "yes_no") == said


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("  Paris ", "Paris"),
        ("**Paris**", "Paris"),
        ("`x = 1`", "x = 1"),
        ("**Paris** and **Rome**", "**Paris** and **Rome**"),
        ("The answer is Paris.", "Paris"),
        ("The answer is the U.S.", "the U.S."),
        ("FINAL ANSWER: **Paris**", "Paris"),
        ("Paris,\nFrance", "Paris,\nFrance"),
        (
            "Paris. (Many think the answer is Lyon.)",
            "Paris. (Many think the answer is Lyon.)",
        ),
        (
            "Paris is right. Some say the answer is Lyon.",
            "Paris is right. Some say the answer is Lyon.",
        ),
        (" ", None),
        ("FINAL ANSWER:", None),
    ],
)
def test_a_text_is_the_reply_without_the_markup_around_it(
    reply: str, text: str | None
) -> None:
    assert read_answer(reply, "text") == text


@pytest.mark.parametrize(
    ("reasoning", "kind", "answer"),
    [
        ("Think.\nFINAL ANSWER: 42", "number", "42"),
        ("Think.\nFinal Answer:\n\n42", "number", "42"),
        ("Think.\n## Answer: 42", "number", "42"),
        ("Straße ß ßß FINAL ANSWER: 8", "number", "8"),
        ("Think. So the final answer is: $8.", "number", "8"),
        ("FINAL ANSWER: Paris,\nFrance", "text", "Paris,\nFrance"),
        ("FINAL ANSWER: 41\nWait: 42.", "number", None),
        ("```\nFINAL ANSWER: 41\n```\nThat is the form.", "text", None),
        ("FINAL ANSWER: 41\n```\n6 * 7\nAnswer: 42", "text", None),
        ("The answer is not Paris", "text", None),
        ("So the answer is 41.\nIs it? No.", "text", None),
        ("Is the answer is 41?", "text", None),
        ("The answer is 5. Wait, that is wrong: it is 6.", "number", None),
        ("The answer is 5? No, 6.", "number", None),
        ("The answer is Paris. Wait, no. It is Lyon.", "text", None),
        ("The answer is 3.5/2", "number", None),
        ("The answer is 3.5/2", "text", "3.5/2"),
        ("The answer is not 41", "number", None),
        ("Suppose the answer is 41", "number", None),
        ("It doesn't follow that the answer is 41", "number", None),
        ("It is 42", "number", None),
        ("", "text", None),
    ],
)
def test_an_answer_ends_the_reasoning_or_there_is_none(
    reasoning: str, kind: Any, answer: str | None
) -> None:
    assert read_closing_answer(reasoning, kind) == answer


class Quote(BaseModel):
    """What somebody said."""

    said: str = Field(alias="words")


@pytest.mark.parametrize(
    ("reply", "whole", "at_the_end"),
    [
        ('{"words": "5"}', '{"words":"5"}', '{"words":"5"}'),
        ('{"words": "the answer is 5"}', '{"words":"the answer is 5"}', None),
        ('```json\n{"words": "5"}\n```', '{"words":"5"}', None),
        ('It is {"words": "5"}', None, None),
        ('{"words": 5}', None, None),
        ('{"words": "5"', None, None),
        ("", None, None),
    ],
)
def test_a_model_is_read_from_json_alone(
    reply: str, whole: str | None, at_the_end: str | None
) -> None:
    assert read_answer(reply, Quote) == whole
    assert read_closing_answer(f"So be it.\nFINAL ANSWER: {reply}", Quote) == at_the_end


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1,000", "$1000.00", True),
        ("0.75", "3/4", True),
        ("The  Red house.", "red house", True),
        ('"Paris"', "Paris", True),
        ("-5", "5", False),
        ("3.5", "35", False),
        ("C", "C++", False),
        ("x = 1/2", "x = 12", False),
        ("3.5/2", "1.75", False),
        ("1e5/3", "3.5/2", False),
    ],
)
def test_answers_are_the_same_by_value_and_not_by_what_is_left_of_them(
    one: str, other: str, same: bool
) -> None:
    assert (
        canonicalize_answer(one, "text") == canonicalize_answer(other, "text")
    ) is same


def test_a_number_of_any_length_is_compared() -> None:
    assert canonicalize_answer("9" * 5_000, "number") == "9" * 5_000


def test_normalized_drops_case_punctuation_and_articles() -> None:
    assert normalize_answer("The  Red-House, an inn!") == "redhouse inn"


PIECES = """
    FINAL_ANSWER: the_answer_is Answer: ** ` 42 - 1,000 3/0 1e999 A (b) no yes ? . = $ not ``` ß İ ٣ ½ \x85 \ud800
""".split()  # noqa: SIM905 - a list would be a page
FRAGMENTS = st.sampled_from(
    [*(piece.replace("_", " ") for piece in PIECES), "\n", " ", "9" * 5_000]
)


@given(
    st.one_of(st.text(), st.lists(FRAGMENTS, max_size=12).map("".join)),
    st.sampled_from(KINDS),
)
def test_every_text_is_read_without_an_error_and_to_an_answer_that_is_read_again(
    text: str, kind: Any
) -> None:
    for answer in (read_answer(text, kind), read_closing_answer(text, kind)):
        if answer is not None:
            assert answer.strip() == answer != ""
            assert canonicalize_answer(answer, kind) != ""
        if answer is not None and kind != "text":
            assert read_answer(answer, kind) == answer


HOSTILE = {
    "digits": "9",
    "commas": "1,",
    "groups": "1,000,",
    "points": "1.",
    "slashes": "1/",
    "operators": "1+",
    "equals": "1=",
    "currency": "$",
    "signs": "-",
    "marks": "FINAL ANSWER: ",
    "spoken": "the answer is ",
    "doubted": "not the answer is ",
    "asked": "the answer is 1? ",
    "lines": "Answer: 1\n",
    "open": "**Answer: ",
    "stars": "*",
    "brackets": "(A",
    "letters": "A ",
    "noes": "no ",
    "blanks": " ",
    "line ends": "\n",
    "stops": ". ",
    "steps": "\n2 ",
    "words": "if not ",
}


@pytest.mark.faults
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_read_in_linear_time(name: str) -> None:
    text = "x" + HOSTILE[name] * (262_144 // len(HOSTILE[name])) + "x"
    for kind in KINDS:

        def read(kind: str = kind) -> None:
            read_answer(text, kind)
            read_closing_answer(text, kind)
            canonicalize_answer(text, kind)

        assert quickest(read, 1.0) < 1.0  # quadratic reading takes minutes
