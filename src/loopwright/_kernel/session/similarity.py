"""Compare the texts of errors."""

ALIKE = 0.85
"""Errors of this similarity are one error, unless the rules say otherwise, as in Symbiont's progress tracker."""
COMPARED = 300
"""The characters of an error's text that are compared: the first and the last 150."""


def similarity(a: str, b: str) -> float:
    """Return how similar two texts are, from 0 to 1: 1 - Levenshtein distance / length of the longer text."""
    longer = max(len(a), len(b))
    return 1 - _distance(a, b) / longer if longer else 1.0


def is_alike(a: str, b: str, threshold: float = ALIKE) -> bool:
    """Return whether two error texts are so similar, from 0 to 1; takes less than a millisecond."""
    a, b = without_middle(a), without_middle(b)
    if a == b:
        return True
    longer = max(len(a), len(b))
    # With such a difference in length, no text can be similar enough.
    if 1 - abs(len(a) - len(b)) / longer < threshold:
        return False
    return similarity(a, b) >= threshold


def without_middle(text: str) -> str:
    """Return the compared ends of a text: errors begin with what failed and often end with why."""
    half = COMPARED // 2
    return text if len(text) <= COMPARED else text[:half] + text[-half:]


def _distance(a: str, b: str) -> int:
    """Return the Levenshtein distance; a column of the table is two numbers (Myers 1999, in Hyyrö's form)."""
    if not a:
        return len(b)
    places: dict[str, int] = {}
    for i, character in enumerate(a):
        places[character] = places.get(character, 0) | 1 << i
    every, last, distance = (1 << len(a)) - 1, 1 << (len(a) - 1), len(a)
    more, less = (
        every,
        0,
    )  # where a cell is one more than the cell above it, and one less
    for character in b:
        same = places.get(character, 0)
        diagonal = (((same & more) + more) ^ more) | same | less
        right_more, right_less = less | ~(diagonal | more), more & diagonal
        distance += bool(right_more & last) - bool(right_less & last)
        right_more, right_less = right_more << 1 | 1, right_less << 1
        more, less = (
            (right_less | ~(diagonal | right_more)) & every,
            right_more & diagonal & every,
        )
    return distance
