"""The forms in which values may have been recorded when only some of their secrets were known."""

from typing import Any

import pytest

from loopwright.security.redaction import Redactor
from loopwright.security.redaction.forms import MAX_SECRETS, list_forms

ONE, TWO, THREE = "blue-horse-77", "green-cow-88", "grey-goose-99"
SECRETS = [ONE, TWO, THREE]
KNOWN = [[], [ONE], [TWO], [THREE], [ONE, TWO], [ONE, THREE], [TWO, THREE], SECRETS]
VALUES: list[Any] = [
    {"text": f"Use {ONE} and {TWO}, or {THREE}."},
    {"texts": [ONE, f"no {TWO}", 5, None], "more": {"deep": [f"{THREE}!"]}},
    {"text": f"{ONE} {TWO} {THREE}"},
    {"number": 3, "text": f"[redacted] stands for {ONE}"},
    {"text": "nothing"},
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("known", KNOWN)
def test_forms_have_what_any_of_the_secrets_left(value: Any, known: list[str]) -> None:
    clean = Redactor(SECRETS).redact_value(value)

    assert Redactor(known).redact_value(value) in list_forms(value, clean)


def test_forms_have_nothing_that_was_not_there() -> None:
    plain: Any = {"amount": 5, "token": ONE, "to": "bob"}
    forms = [*list_forms(plain, Redactor(SECRETS).redact_value(plain))]

    assert {form["token"] for form in forms} == {ONE, "[redacted]"}
    assert all((form["amount"], form["to"]) == (5, "bob") for form in forms)


def test_forms_are_as_many_as_choices_of_different_secrets_within_a_bound() -> None:
    plain: Any = {"texts": [ONE] * 50, "text": f"{TWO} {ONE} " * 50}
    many = [f"secret-number-{number}" for number in range(50)]

    assert len([*list_forms(plain, Redactor(SECRETS).redact_value(plain))]) == 4
    value: Any = {"many": many}
    forms = list_forms(value, Redactor(many).redact_value(value))
    assert len([*forms]) == 2**MAX_SECRETS
