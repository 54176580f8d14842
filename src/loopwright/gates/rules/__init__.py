"""A gate of rules in a file."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .conditions import Condition as Condition
    from .gate import RuleGate as RuleGate
    from .rule import Rule as Rule

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".conditions": ("Condition",),
            ".gate": ("RuleGate",),
            ".rule": ("Rule",),
        },
    )
