"""A classifier of texts by what they look like: `numbers` knows persons' numbers, `told` what is said in words.

Secrets are what `Redactor` finds, and passwords that are told in words or in a table.
"""

from .classifier import PatternClassifier as PatternClassifier

__all__ = [
    "PatternClassifier",
]
