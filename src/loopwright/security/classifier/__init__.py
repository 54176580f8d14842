"""A classifier of texts by patterns: `identifiers` has personal numbers, `personal_data` statements
in words.

Secrets are what `Redactor` finds, and passwords in a sentence or in a table.
"""

from .classifier import PatternClassifier as PatternClassifier

__all__ = [
    "PatternClassifier",
]
