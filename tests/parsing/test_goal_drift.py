"""Goal drift: another goal is noticed, and what is none never is."""

import pytest

from loopwright.parsing.goal_drift import find_goal, is_goal, measure_drift

GOAL = "Fix the login bug in auth.py and run the tests"


@pytest.mark.parametrize(
    "text",
    [
        "thanks", "Thank you very much!", "ok", "Great, that works.", "yes please", "Why?", "and in Bergen?", "never mind",
        "What about the tests?", "run the tests again", "Is it done now?", "good job, thanks!", "",
    ],
)  # fmt: skip
def test_what_is_no_goal_never_counts_as_drift(text: str) -> None:
    assert not is_goal(text)
    assert not measure_drift(text, GOAL).is_drift
    assert not measure_drift(GOAL, text).is_drift


def test_another_goal_is_drift_and_the_same_in_other_words_is_less() -> None:
    other = measure_drift("Book a table for two in Oslo tonight", GOAL)
    same = measure_drift("Fix the login bug in auth.py and then run the tests", GOAL)

    assert other.is_drift
    assert not same.is_drift
    assert same.score < other.score


def test_the_score_is_half_the_divergence_and_a_part_for_each_keyword() -> None:
    plain = measure_drift("alpha beta gamma delta", "alpha beta epsilon zeta")
    told = measure_drift("Actually, alpha beta gamma instead", "alpha beta gamma")

    assert (plain.divergence, plain.score) == (round(1 - 2 / 6, 3), 0.333)
    assert told.keywords == ("actually", "instead")
    assert told.score == round(0.5 * (1 - 3 / 5) + 0.3, 3)
    many = "actually instead forget about never mind scratch that new plan: build boats"
    assert measure_drift(many, "walk a dog in Rome").score == 1.0


def test_the_previous_goal_is_the_last_message_that_is_one() -> None:
    assert find_goal([GOAL, "thanks", "ok"]) == GOAL
    assert find_goal(["hello", "thanks"]) == ""
