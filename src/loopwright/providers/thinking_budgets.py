"""The tokens of thinking that an effort stands for, for models that know budgets alone."""

from collections.abc import Mapping

MIN_BUDGET = 1_024
"""The smallest budget of thinking, in tokens, that Claude takes."""
BUDGETS: Mapping[str, int] = {
    "minimal": MIN_BUDGET,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
}
