"""Kinds of secrets by the documentation of their vendors are found by their shape, and ordinary texts stay as they are."""

import json
import random

import pytest

from fault_sizes import figure
from loopwright.security import REDACTED, Redactor
from loopwright.security.redaction.vendors import VENDORS
from ordinary_texts import ORDINARY
from secret_kinds import KINDS
from stopwatch import quickest

REDACTOR = Redactor()


def test_nearly_all_kinds_of_secrets_are_found_by_their_shape() -> None:
    assert len(KINDS) >= 120
    missed = [
        kind
        for kind, (text, secret) in KINDS.items()
        if secret in REDACTOR.redact_text(text)
    ]

    figure("kinds of secrets", f"{len(KINDS) - len(missed)} of {len(KINDS)}: {missed}")
    assert missed == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_long_part_of_a_secret_is_left(kind: str) -> None:
    text, secret = KINDS[kind]
    left = REDACTOR.redact_text(f"It says: {text}\n")
    parts = [secret[start : start + 12] for start in range(len(secret) - 12)]

    assert REDACTED in left
    assert [part for part in parts if part in left and part.isalnum()] == []


def test_ordinary_texts_stay_as_they_are() -> None:
    changed = [text for text in ORDINARY if REDACTOR.redact_text(text) != text]

    figure("ordinary texts", f"{len(changed)} of {len(ORDINARY)} changed: {changed}")
    assert len(ORDINARY) == 100
    assert len(changed) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_shows_what_the_whole_text_shows(kind: str) -> None:
    text = f"It says: {KINDS[kind][0]}\nand that is all."
    whole = REDACTOR.redact_text(text)
    for size in (1, 7, 40):
        stream = REDACTOR.open_stream()
        chunks = (text[at : at + size] for at in range(0, len(text), size))
        shown = "".join(map(stream.feed, chunks)) + stream.end()
        assert shown == whole


@pytest.mark.parametrize("text", ORDINARY[:40])
def test_an_ordinary_stream_stays_as_it_is(text: str) -> None:
    stream = REDACTOR.open_stream()

    assert "".join(map(stream.feed, text)) + stream.end() == text


def test_the_value_beside_the_name_of_a_secret_is_removed_from_json() -> None:
    value = {
        "env": [
            {"name": "DB_PASSWORD", "value": "correct horse"},
            {"key": "API_TOKEN", "value": "Zx8Kq2mVt5Rw9"},
            {"name": "CITY", "value": "Paris"},
        ]
    }

    assert REDACTOR.redact_value(value) == {
        "env": [
            {"name": "DB_PASSWORD", "value": REDACTED},
            {"key": "API_TOKEN", "value": REDACTED},
            {"name": "CITY", "value": "Paris"},
        ]
    }
    assert set(REDACTOR.find_secrets(value)) == {"correct horse", "Zx8Kq2mVt5Rw9"}
    plain = {"name": "CITY", "value": "Paris"}
    assert REDACTOR.redact_value(plain) is plain


@pytest.mark.parametrize(
    "link",
    [
        "https://a.example/reset?token=9f8e7d6c5b4a39281706",
        "https://a.example/password-reset/token=?asfbuy3y2cdaqhvei",
        "https://a.example/confirm?access_token=a1b2c3d4e5f6a7b8c9d0",
    ],
)
def test_a_link_to_be_opened_once_stays_and_another_loses_its_token(link: str) -> None:
    other = "https://a.example/files?token=9f8e7d6c5b4a39281706"

    assert REDACTOR.redact_text(f"Open {link} now") == f"Open {link} now"
    assert REDACTED in REDACTOR.redact_text(f"Open {other} now")


HOSTILE = [
    hint * (150_000 // len(hint)) for pattern in VENDORS for hint in pattern.hints
] + [
    "login a password " * 9_000, "-u a:b" * 25_000, "<a>" * 50_000, "<a " + "b" * 150_000, "mnemonic " + "word " * 30_000,
    '"name": "' * 17_000, "name: a_password value: " * 6_000, "curl -u " * 18_000,
    "https://reset" * 11_000 + "?token=a1b2c3d4",
    "identified by '" * 10_000, "mysql -u " * 16_000, "$6$" + "a/" * 75_000, "a:5432:b:" * 16_000, "Q~" + "a.~" * 50_000,
]  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_text_takes_time_that_is_linear_in_its_length(number: int) -> None:
    text = HOSTILE[number]
    short, long = text[:50_000], text[:150_000]
    for one in (short, long):
        seconds = quickest(lambda one=one: REDACTOR.redact_text(one), 0.1)
        assert seconds < 0.1 * len(one) / 50_000, (text[:20], len(one))


def test_random_cuts_of_secrets_cost_no_more_than_others() -> None:
    source = random.Random(7)
    texts = [text for text, _ in KINDS.values()]
    mixed = " ".join(
        text[source.randrange(len(text)) :] for text in source.choices(texts, k=2_000)
    )[:100_000]

    assert quickest(lambda: REDACTOR.redact_text(mixed), 0.3) < 0.3
    assert json.loads(json.dumps(REDACTOR.redact_text(mixed)))
