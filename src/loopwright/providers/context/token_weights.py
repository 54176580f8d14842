"""How many tokens a model makes of words, letters, digits and signs, learned from what its replies report."""

import operator
import re
from collections.abc import Iterable
from typing import TypeAlias

from pydantic_core import to_json

from ...messages import ATTACHMENT_SIZE, Message, ToolSpec

Features: TypeAlias = tuple[float, ...]
"""How many there are of what has a weight, in the order of `PRIOR`."""
PRIOR = (
    (1.0, 0.25),  # a word of ASCII letters
    (1 / 60, 0.03),  # each of its letters
    (0.1, 0.5),  # each capital one: mixed case, base64
    (1 / 10, 0.1),  # a letter beyond `WORD_LENGTH` for each word
    (0.3, 0.3),  # a run of digits
    (0.7, 0.3),  # each digit
    (1.0, 0.3),  # a run of other signs
    (1.0, 0.5),  # a character that is not ASCII
    # A run of one sign in long white space; long runs count as several.
    (0.55, 0.2),
    (4.0, 2.0),  # what a chat template writes around a message
    (12.0, 10.0),  # what it writes around a tool
    (ATTACHMENT_SIZE / 4, ATTACHMENT_SIZE / 8),  # an image or a document
    (0.0, 0.2),  # a token of a tool's result: the results of a run are of a kind
)
"""The tokens of each feature, and the standard deviation of that from one tokenizer to another.

Compared with the tokenizers of GPT-4, GPT-4o, Claude and SmolLM2.
"""
MASK_START = "[result of "
"""What stands in the place of a masked result begins with it."""
CALL_FRAMES = 2.5
"""How much more than around a message a chat template writes around a call."""
WORD_LENGTH = 8
"""Letters of a word that tokenizers know."""
NOISE, RELATIVE_NOISE = 3.0, 0.03
"""The standard deviation of a text from what its features say: in tokens, and as a share of it."""
EXPECTED = 0.01
"""How far a report may be from what was expected, as a share, and teach nothing: most do, which saves their time."""
DRIFT = 0.001
"""The share of its first variance that a weight regains with each report, since an endpoint may change its model."""
LONG_BLANK = 16
"""Characters of white space in a row from which on they are counted; shorter ones are in the tokens of what follows."""
BLANK_SPACES, BLANK_OTHERS = 60, 8
"""How many spaces, and how many line ends or tabs, of long white space count as one run more."""
SAMPLE = 2_000
"""Bytes at the beginning and in the middle of a longer text that it is measured by."""
_FIRST_WEIGHTS = [weight for weight, _ in PRIOR]
_VARIANCES = [deviation**2 for _, deviation in PRIOR]
_DIGITS = bytes(range(48, 58))
_CAPITALS = bytes(range(65, 91))
_ALPHABETIC = _CAPITALS + bytes(range(97, 123))
_SIGNS = bytes(c for c in range(33, 127) if c not in _DIGITS + _ALPHABETIC)
_BLANKS = b"\t\n\v\f\r "
_AS_SPACES = bytes.maketrans(_BLANKS, b" " * len(_BLANKS))
_NOT_FIRST = bytes(range(0xC0))
"""Every byte but the first of a character that is not ASCII."""


def _keep(kept: bytes) -> bytes:
    """Return the table that puts a space in the place of each other byte."""
    return bytes(c if c in kept else 32 for c in range(256))


_ONLY_ALPHABETIC, _ONLY_DIGITS, _ONLY_SIGNS = map(_keep, (_ALPHABETIC, _DIGITS, _SIGNS))


def measure_message(message: Message) -> Features:
    """Return the features of a message as chat templates write it: its text and its calls, without ids and reasoning."""
    text, attached = (
        message.content.encode("utf-8", "replace"),
        len(message.attachments),
    )
    is_result = message.role == "tool" and not message.content.startswith(MASK_START)
    features = _measure_text(text, frames=1, attachments=attached, is_result=is_result)
    for call in message.calls:
        called = _measure_text(to_json([call.name, call.arguments]), frames=CALL_FRAMES)
        features = add_features((features, called))
    return features


def measure_tool(tool: ToolSpec) -> Features:
    """Return the features of a tool as a request describes it."""
    return _measure_text(to_json([tool.name, tool.description, tool.schema]), tools=1)


def add_features(some: Iterable[Features]) -> Features:
    """Return the features of several parts of a request together."""
    return tuple(map(sum, zip(*some, strict=True)))


def _measure_text(
    text: bytes,
    *,
    frames: float = 0,
    tools: int = 0,
    attachments: int = 0,
    is_result: bool = False,
) -> Features:
    size = len(text)
    if size > 2 * SAMPLE:
        middle = size // 2
        text = text[:SAMPLE] + b" " + text[middle : middle + SAMPLE]
    share = size / len(text) if size else 1.0
    alphabetic = len(text) - len(text.translate(None, _ALPHABETIC))
    words = len(text.translate(_ONLY_ALPHABETIC).split())
    counts = (
        share * words,
        share * alphabetic,
        share * (len(text) - len(text.translate(None, _CAPITALS))),
        share * max(alphabetic - WORD_LENGTH * words, 0),
        share * len(text.translate(_ONLY_DIGITS).split()),
        share * (len(text) - len(text.translate(None, _DIGITS))),
        share * len(text.translate(_ONLY_SIGNS).split()),
        share * len(text.translate(None, _NOT_FIRST)),
        share * _measure_blanks(text),
    )
    tokens = _multiply(_FIRST_WEIGHTS, counts) if is_result else 0.0
    return *counts, frames, tools, attachments, tokens


def _measure_blanks(text: bytes) -> float:
    """Return how many runs of one sign long white space has, and shares of its characters; other white space is free."""
    if b" " * LONG_BLANK not in text.translate(_AS_SPACES):
        return 0.0
    found = re.findall(rb"[%b]{%d,}" % (_BLANKS, LONG_BLANK), text)
    total = 0.0
    for one in found:
        signs = one.replace(b"\r\n", b"\n")
        spaces = signs.count(b" ")
        total += 1 + sum(map(operator.ne, signs, signs[1:]))
        total += spaces / BLANK_SPACES + (len(signs) - spaces) / BLANK_OTHERS
    return total


class TokenWeights:
    """The tokens of each feature, by recursive least squares from a prior.

    Each report is one equation in the unknown weights. With weights that drift, this is the Kalman filter of a random
    walk (Haykin, Adaptive Filter Theory, chapters on recursive least squares and Kalman filters).
    """

    def __init__(self) -> None:
        self._weights = _FIRST_WEIGHTS
        self._covariance = [[0.0] * len(PRIOR) for _ in PRIOR]
        for index, variance in enumerate(_VARIANCES):
            self._covariance[index][index] = variance

    def estimate(self, features: Features) -> float:
        """Return about how many tokens a text with these features has."""
        return max(_multiply(self._weights, features), 0.0)

    def learn(self, features: Features, tokens: float) -> None:
        """Take in that a text with these features has so many tokens."""
        error = tokens - _multiply(self._weights, features)
        if abs(error) <= EXPECTED * tokens:
            return
        gains = [_multiply(row, features) for row in self._covariance]
        noise = NOISE**2 + (RELATIVE_NOISE * tokens) ** 2
        variance = noise + _multiply(gains, features)
        steps = [gain / variance for gain in gains]
        pairs = zip(self._weights, steps, strict=True)
        self._weights = [weight + step * error for weight, step in pairs]
        self._covariance = [
            [one - step * gain for one, gain in zip(row, gains, strict=True)]
            for row, step in zip(self._covariance, steps, strict=True)
        ]
        for index, variance in enumerate(_VARIANCES):
            if self._covariance[index][index] < variance:
                self._covariance[index][index] += DRIFT * variance


def _multiply(some: Iterable[float], others: Iterable[float]) -> float:
    total: float = sum(map(operator.mul, some, others))
    return total
