"""What a model makes of words, letters, digits and signs is learned from what its replies report."""

import base64
import random

import pytest

from loopwright import Message
from loopwright.attachments import Attachment
from loopwright.providers.context.token_counts import MAX_SCALE, MIN_SCALE
from loopwright.providers.context.token_weights import (
    PRIOR,
    Features,
    TokenWeights,
    add_features,
    measure_message,
)

FINE = (1.4, 0.05, 0.8, 0.15, 0.0, 1.0, 1.2, 1.8, 0.8, 3.0, 12.0, 1_500.0, 0.0)
"""The weights of a model that has a token for each digit, and more of all else than those of `PRIOR`."""
COARSE = (0.9, 0.01, 0.1, 0.1, 0.4, 0.3, 0.8, 0.6, 0.4, 5.0, 2.0, 300.0, 0.0)
MASK = '[result of read, 0.6 kB, kept as 1/12#0: read it with recall("1/12#0")]'


def write_text(rng: random.Random) -> str:
    """Return words, numbers, signs and names in a mixture of its own."""
    samples = (
        "the quick fox ",
        "2026-11-26 ",
        '{"id": 7}, ',
        "find_all_rows ",
        "Straße ",
    )
    weights = [rng.random() ** 2 for _ in samples]
    return "".join(rng.choices(samples, weights, k=rng.randint(5, 80)))


def measure(text: str) -> Features:
    return measure_message(Message("user", text))


def count(model: tuple[float, ...], features: Features) -> float:
    return sum(weight * one for weight, one in zip(model, features, strict=True))


def read_texts(weights: TokenWeights, model: tuple[float, ...], number: int) -> None:
    rng = random.Random(number)
    for _ in range(number):
        features = measure(write_text(rng))
        weights.learn(features, count(model, features))


def find_error(weights: TokenWeights, model: tuple[float, ...]) -> float:
    """Return by how much the count of a mask is wrong, of which no report told."""
    features = measure(MASK)
    return abs(weights.estimate(features) / count(model, features) - 1)


def test_a_text_of_another_kind_is_counted_by_what_was_learned() -> None:
    weights = TokenWeights()
    before = find_error(weights, FINE)
    read_texts(weights, FINE, 20)

    assert before > 0.15
    assert find_error(weights, FINE) < 0.05


def test_an_endpoint_that_changes_its_model_is_followed() -> None:
    weights = TokenWeights()
    read_texts(weights, FINE, 1_000)
    assert find_error(weights, COARSE) > 0.4
    read_texts(weights, COARSE, 150)

    assert find_error(weights, COARSE) < 0.05


def test_5_000_reports_of_one_text_leave_the_weights_bounded() -> None:
    weights, rng = TokenWeights(), random.Random(1)
    words, mask = measure("the quick fox " * 50), measure(MASK)
    for _ in range(5_000):
        weights.learn(words, count(FINE, words) * rng.uniform(0.8, 1.2))

    before = weights.estimate(mask)
    weights.learn(mask, 2 * before)
    taught = weights.estimate(mask) / before - 1
    assert 0.2 < taught < 0.8, "one report of a short text does not decide"
    read_texts(weights, FINE, 100)
    assert find_error(weights, FINE) < 0.1


def test_what_images_cost_is_not_learned_as_the_cost_of_words() -> None:
    weights = TokenWeights()
    image = Attachment("image", "image/png", data="aGk=")
    seen = measure_message(Message("user", "What is this?", attachments=(image,)))
    weights.learn(seen, 3_000)
    words = measure("What is this?")

    assert weights.estimate(seen) == pytest.approx(3_000, rel=0.05)
    prior = tuple(weight for weight, _ in PRIOR)
    assert weights.estimate(words) == pytest.approx(count(prior, words), rel=0.1)


def test_what_is_odd_in_all_results_of_a_run_changes_little_else() -> None:
    result = measure_message(Message("tool", "find_all_rows " * 40))
    mask = measure_message(Message("tool", MASK))
    weights, others = TokenWeights(), TokenWeights()
    expected, before = 1.5 * weights.estimate(result), weights.estimate(mask)
    for _ in range(10):
        weights.learn(result, expected)
        others.learn((*result[:-1], 0.0), expected)

    assert weights.estimate(result) == pytest.approx(expected, rel=0.02)
    assert weights.estimate(mask) == pytest.approx(before, rel=0.2)
    assert others.estimate(mask) > weights.estimate(mask)


def test_letters_in_mixed_case_do_not_make_words_dear() -> None:
    weights, rng, words = TokenWeights(), random.Random(3), measure(MASK)
    before = weights.estimate(words)
    for _ in range(10):
        text = base64.b64encode(rng.randbytes(400)).decode()
        weights.learn(measure(text), 0.72 * len(text))

    assert weights.estimate(words) == pytest.approx(before, rel=0.15)


def test_a_long_text_is_measured_by_its_parts() -> None:
    text = "\n".join(f"row {number} of the table" for number in range(5_000))
    parts = add_features([measure(text[start : start + 2_000]) for start in range(0, len(text), 2_000)])  # fmt: skip

    assert measure(text)[:4] == pytest.approx(parts[:4], rel=0.05)


@pytest.mark.parametrize(
    ("blanks", "tokens"),
    [
        # What the tokenizers of GPT-4, GPT-4o, Claude and SmolLM2 make of each, the least and the most.
        ("\n\t \n" * 1_000, (1_999, 2_000)),
        (" " * 4_000, (7, 63)),
        ("\n" * 4_000, (125, 1_000)),
        ("\t" * 4_000, (250, 500)),
        ("\r\n" * 2_000, (250, 1_000)),
        (("a" + " " * 30 + "b" + " " * 50) * 50, (200, 300)),
    ],
    ids=["mixed", "spaces", "lines", "tabs", "windows lines", "columns"],
)
def test_long_white_space_is_counted_so_that_reports_are_learned(
    blanks: str, tokens: tuple[int, int]
) -> None:
    least, most = tokens
    counted = TokenWeights().estimate(measure(blanks))

    assert most * MIN_SCALE < counted < least * MAX_SCALE


def test_white_space_of_different_signs_is_counted_as_tokenizers_do() -> None:
    counted = TokenWeights().estimate(measure("\n\t \n" * 1_000))

    assert counted == pytest.approx(2_000, rel=0.1)


def test_white_space_between_words_and_at_line_starts_is_free() -> None:
    lines, spread = (
        text * 50 for text in ("if a:\nb = c\n", "if  a:\n\n\t\t  b  = c \n")
    )

    assert measure(spread) == measure(lines)
