"""Verdicts: one word or its contrary, read strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.parsing.verdicts import read_verdict
from stopwatch import quickest

WORD = "SATISFACTORY"


@pytest.mark.parametrize(
    "text",
    [
        "SATISFACTORY",
        "satisfactory",
        "**SATISFACTORY**",
        "__SATISFACTORY__",
        "_SATISFACTORY_",
        "`SATISFACTORY`",
        "## SATISFACTORY",
        "Verdict: SATISFACTORY",
        "The answer is SATISFACTORY.",
        "SATISFACTORY\nAnswer is complete.",
        "SATISFACTORY? Yes",
        "SATISFACTORY: yes",
        '{"satisfactory": true}',
        "SATISFACTORY. No further changes are needed.",
        "SATISFACTORY, no issues found",
        "SATISFACTORY - no problems",
        "SATISFACTORY, although it does not cite sources",
        "SATISFACTORY: the answer is not vague",
        "SATISFACTORY\nThe style is not satisfactory, though.",
        "No errors. SATISFACTORY",
        "It is not wrong. SATISFACTORY",
        "Is it satisfactory?\nSATISFACTORY",
        "not only SATISFACTORY but excellent",
    ],
)
def test_a_plain_statement_is_yes(text: str) -> None:
    assert read_verdict(text, WORD) is True


@pytest.mark.parametrize(
    "text",
    [
        "UNSATISFACTORY",
        "SATISFACTORY? No",
        "**SATISFACTORY?** No",
        "SATISFACTORY? **No**",
        "SATISFACTORY? No, UNSATISFACTORY",
        "SATISFACTORY?",
        "SATISFACTORY? Hardly.",
        "SATISFACTORY? Not at all.",
        "SATISFACTORY: No",
        "SATISFACTORY: false",
        '{"satisfactory": false}',
        "SATISFACTORY = no",
        "SATISFACTORY - No.",
        "SATISFACTORY\nUNSATISFACTORY",
        "SATISFACTORY: no\nSATISFACTORY",
        "UNSATISFACTORY\nSATISFACTORY",
        "SATISFACTORY or UNSATISFACTORY: SATISFACTORY",
        "satisfactory in style but unsatisfactory in substance",
        "not satisfactory",
        "NOT_SATISFACTORY",
        "non-SATISFACTORY",
        "UN-SATISFACTORY",
        "un satisfactory",
        "DISSATISFACTORY",
        "isn't SATISFACTORY",
        "It isn\u2019t SATISFACTORY",
        "never really SATISFACTORY",
        "almost SATISFACTORY",
        "far from satisfactory",
        "It would be SATISFACTORY if it cited",
        "To be SATISFACTORY, it must",
        "SATISFACTORY cannot be given",
        "SATISFACTORY is not the verdict",
        "half SATISFACTORY",
        "mostly SATISFACTORY",
        "SATISFACTORY, except the height, which is wrong",
        "SATISFACTORY apart from the height",
        "SATISFACTORY only in part",
        "SATISFACTORY with corrections: it is 4,545 m",
        "SATISFACTORY with minor reservations",
        "SATISFACTORY to be wrong",
    ],
)
def test_the_contrary_a_reserve_a_question_or_both_is_no(text: str) -> None:
    assert read_verdict(text, WORD) is False


@pytest.mark.parametrize(
    "text", ["", "OK", "It is fine.", "done SATISFACTORILY", "SATISFACTORY " * 101]
)
def test_a_text_that_says_neither_is_no_verdict(text: str) -> None:
    assert read_verdict(text, WORD) is None


def test_other_words_are_read_in_the_same_way() -> None:
    assert [read_verdict(text, "CORRECT") for text in ("CORRECT", "INCORRECT", "not correct", "right")] == [
        True, False, False, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "SATISFACTORY\n" * 20_000,
        "SATISFACTORY\n" + "satisfactory " * 20_000,
        "SATISFACTORY" + " " * 256_000,
        "SATISFACTORY " + "* " * 128_000,
        "not " * 64_000 + "SATISFACTORY",
        "un" * 128_000,
        "n't " * 64_000,
        "a " * 128_000,
    ],
)
def test_hostile_text_is_read_in_time(text: str) -> None:
    assert quickest(lambda: read_verdict(text, WORD), 0.5) < 0.5  # some 30 ms


@given(st.text(), st.sampled_from(["UNSATISFACTORY", "SATISFACTORY: no."]), st.text())
def test_a_contrary_on_a_line_of_its_own_is_never_outvoted(
    before: str, contrary: str, behind: str
) -> None:
    assert read_verdict(f"{before}\n{contrary}\n{behind}", WORD) is False


@pytest.mark.parametrize(
    "said", ["OVERSATISFACTORY", "semisatisfactory", "2SATISFACTORY"]
)
def test_the_end_of_another_word_says_nothing(said: str) -> None:
    assert read_verdict(f"It is {said}.", WORD) is None
    assert read_verdict(f"It is {said}.\nSATISFACTORY", WORD) is True
