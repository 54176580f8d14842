"""A gate of rules in a file."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazily

if TYPE_CHECKING:
    from .conditions import Condition as Condition
    from .gate import RuleGate as RuleGate
    from .rule import Rule as Rule

__all__ = [
    "Condition",
    "Rule",
    "RuleGate",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "Condition": ".conditions",
            "Rule": ".rule",
            "RuleGate": ".gate",
        },
    )
