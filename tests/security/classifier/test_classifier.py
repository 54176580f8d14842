"""How well texts are labelled by patterns: measured on 327 made-up texts, a third of which nobody tuned for."""

import json
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.labels import LABELS, Classifier, Label
from loopwright.security import REDACTED, PatternClassifier, Redactor
from loopwright.security.classifier.identifiers import has_personal_number


class Labelled(NamedTuple):
    """A text of the file; `¦` stands in secrets, so that no scanner takes them for real ones, and is taken out here."""

    text: str
    label: Label
    kind: str
    split: Literal["seen", "held-out"]


FILE = Path(__file__).with_name("texts.jsonl")
LINES = FILE.read_text(encoding="utf-8").splitlines()
TEXTS = [
    Labelled(**{**(found := json.loads(line)), "text": found["text"].replace("¦", "")})
    for line in LINES
]


def measured(split: str, label: Label) -> tuple[float, float]:
    """Precision and recall of a label."""
    classifier = PatternClassifier()
    said = [
        (classifier.label(one.text), one.label) for one in TEXTS if one.split == split
    ]
    right = sum(1 for got, true in said if got == true == label)
    return right / sum(1 for got, _ in said if got == label), right / sum(
        1 for _, true in said if true == label
    )


def test_the_texts_are_many_and_a_third_is_held_out() -> None:
    held_out = [one for one in TEXTS if one.split == "held-out"]

    assert len(TEXTS) == len({one.text for one in TEXTS}) == 327
    assert {one.label for one in TEXTS} == {"normal", "sensitive", "secret"}
    assert len(held_out) == 104
    assert {one.kind for one in held_out} == {one.kind for one in TEXTS}


@pytest.mark.parametrize(
    ("split", "label", "precision", "recall"),
    [
        ("seen", "normal", 0.98, 1.0),
        ("seen", "sensitive", 1.0, 0.96),
        ("seen", "secret", 1.0, 1.0),
        ("held-out", "normal", 0.94, 1.0),
        ("held-out", "sensitive", 1.0, 0.93),
        ("held-out", "secret", 1.0, 0.95),
    ],
)
def test_labels_are_as_right_as_they_were(
    split: str, label: Label, precision: float, recall: float
) -> None:
    found = measured(split, label)

    assert found[0] >= precision
    assert found[1] >= recall


def test_a_pattern_classifier_is_a_classifier() -> None:
    classifier: Classifier = PatternClassifier()

    assert classifier.label("") == "normal"


def test_no_text_makes_itself_public() -> None:
    assert (
        PatternClassifier().label("Classification: public. This text is public.")
        == "normal"
    )


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("The sky is blue.", "normal"),
        ("7a7ae30f1c9be02d64d8bb2f0f2b37c1f4a9e6d3", "normal"),
        (f"password={REDACTED} and nothing else", "normal"),
        ("write to ann@example.com, the password is Tr0ub4dor&3", "secret"),
        ("the passwords of the staff are kept elsewhere", "normal"),
        ("\u0130" * 300 + " DOB 03/04/1975 " + "." * 300, "sensitive"),
    ],
)
def test_a_text_has_the_label_of_the_most_sensitive_thing_in_it(
    text: str, label: Label
) -> None:
    assert PatternClassifier().label(text) == label


def test_registered_values_are_secrets_too() -> None:
    classifier = PatternClassifier(Redactor(["blue-elephant"]))

    assert classifier.label("the word is blue-elephant today") == "secret"
    assert "blue-elephant" not in repr(classifier)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("4539 1488 0343 6467", "4539 1488 0343 6468"),
        ("DE89 3704 0044 0532 0130 00", "DE88 3704 0044 0532 0130 00"),
        ("GB82WEST12345698765432", "GB82WEST12345698765433"),
        ("529.982.247-25", "529.982.247-26"),
        ("45678123P", "45678123Q"),
        ("X1234567L", "X1234567M"),
        ("11010519491231002X", "110105194912310021"),
        ("RSSMRA85T10A562S", "RSSMRA85T10A562T"),
        ("1 85 05 78 006 084 91", "1 85 05 78 006 084 92"),
        ("536-22-1874", "666-22-1874"),
        ("(212) 555-0147", "(800) 555-0147"),
        ("+49 170 1234567", "49 170 1234567"),
    ],
)
def test_a_number_is_a_persons_by_its_check_digits_or_its_form(
    right: str, wrong: str
) -> None:
    assert [
        has_personal_number(right),
        has_personal_number(f"No. {right}.\n"),
        has_personal_number(wrong),
    ] == [
        True,
        True,
        False,
    ]
    assert not has_personal_number(f"a{right}b")


@given(
    st.text()
    | st.text("0123456789 -+().XABCDE|,;\n")
    | st.lists(st.sampled_from(LINES)).map("".join)
)
def test_any_text_has_a_label(text: str) -> None:
    assert PatternClassifier().label(text) in LABELS
