"""Scores, labels and choices in a judge's reply."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.parsing.scores import read_choice, read_label, read_score
from stopwatch import quickest


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("7.5", 7.5),
        ("11", 10.0),
        ("-3", 0.0),
        ("\u22123", 0.0),
        ("Score: 8/10", 8.0),
        ("Score: 8", 8.0),
        ("**Score: 8**", 8.0),
        ("**Score:** 8.5", 8.5),
        ("Final score: 6\n", 6.0),
        ("Rating: 6/10 - ok", 6.0),
        ("3\nWeak.", 3.0),
        ("It is 4 steps long and has 2 flaws.\nScore: 7", 7.0),
        ("8 out of 10", 8.0),
        ("This deserves 6/10, no more.", 6.0),
        ("Step 1 scores 9", 9.0),
        ("I'd rate it 6.", 6.0),
        ("I would give this a score of 7 out of 10", 7.0),
        ("on a scale of 0-10 I give 7", 7.0),
        ("On a scale from 0 to 10: 7", 7.0),
        ("scale of 0-10, I would say 7", 7.0),
        ("On the scale of step 2 I would say 7", 7.0),
        ("Score: 7 (good)", 7.0),
        ("It has 3 flaws; my score out of 10: 6", 6.0),
    ],
)
def test_a_score_that_is_said_plainly_is_read(text: str, score: float) -> None:
    assert read_score(text) == score


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "No idea.", "$40", "The score costs $40", "Step 1 is fine.", "There are 4 apples", "100%",
        "the score is 80%", "Score: high", "Score: nan", "Score: 1e9", "Score: 8/100", "score 4/5", "score of 3 or 4",
        "Score: 4\nScore: 7", "7/10 then 8/10", "I give 3. I rate it 9.", "1. good\n2. bad",
        "on a scale of 0-10 it is fine", "v2.0.1 of the score", "Score: 7\n" * 10_000,
    ],
)  # fmt: skip
def test_what_is_not_said_plainly_is_no_score(text: str) -> None:
    assert read_score(text) is None


@given(st.text(max_size=200))
def test_a_score_is_on_the_scale_whatever_the_text(text: str) -> None:
    score = read_score(text)

    assert score is None or 0 <= score <= 10


@given(st.integers(0, 10))
def test_a_score_on_its_own_line_is_read(score: int) -> None:
    assert read_score(f"Some words.\nScore: {score}") == score


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("sure", "sure"),
        ("2 + 3 = 5\nSURE\n\n", "sure"),
        ("so\n**Impossible.**", "impossible"),
        ("so\r\nlikely\r\n", "likely"),
        ("sure\nor likely", None),
        ("I am sure", None),
        ("surely", None),
        ("sure" + "\n" * 40_000, None),
        ("", None),
    ],
)
def test_a_label_is_the_whole_last_line(text: str, label: str | None) -> None:
    assert read_label(text, ["sure", "likely", "impossible"]) == label


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("The best choice is 3", 3),
        ("So the best choice is: **2**.", 2),
        ("Best choice: 4", 4),
        ("The best candidate is candidate 2, since 3 is weak", 2),
        ("best choice is {1}", 1),
        ("The best choice is 1. On second thought the best choice is 5.", 5),
        ("3", 3),
        ("**3.**\n", 3),
        ("The best choice is not 2", None),
        ("The best choice is 2 or 3", None),
        ("The best choice is 2, 3", None),
        ("The best choice is 2.5", None),
        ("The best choice is 9", None),
        ("The best choice is 0", None),
        ("The best choice is clear: 2", None),
        ("Choice 2 is good", None),
        ("2 is better than 3", None),
        ("\u00b2", None),
        ("", None),
    ],
)
def test_a_choice_is_one_number_that_is_on_the_list(
    text: str, choice: int | None
) -> None:
    assert read_choice(text, 5) == choice


def test_a_text_that_is_far_too_long_states_no_choice_and_no_label() -> None:
    text = "It is as it is. " * 20_000

    assert read_choice(f"{text}\nThe best choice is 2", 5) is None
    assert read_label(f"{text}\nsure", ["sure"]) is None


@pytest.mark.parametrize(
    "piece",
    [
        "0",
        "1 to ",
        "score is is ",
        "best choice is ((((",
        "9/",
        "out of ",
        "\n",
        "Score: 1\n",
        "- ",
        " ",
        "\u2212",
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        read_score,
        lambda text: read_label(text, ["sure"]),
        lambda text: read_choice(text, 5),
    ],
    ids=["s", "l", "c"],
)
@pytest.mark.parametrize("size", [262_144, 16_384])
def test_hostile_text_is_read_in_linear_time(
    piece: str, read: Callable[[str], object], size: int
) -> None:
    text = (piece * size)[:size]

    assert quickest(lambda: read(text), 0.05) < 0.05
