"""Policy gates: rules, Cedar, OPA, approval, an LLM supervisor, and several gates as one."""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .all_of import AllOf as AllOf
    from .approval import ApprovalGate as ApprovalGate
    from .cedar import CedarGate as CedarGate
    from .conditions import Condition as Condition
    from .hours import Hours as Hours
    from .opa import OpaGate as OpaGate
    from .rule import Rule as Rule
    from .rules import RuleGate as RuleGate
    from .supervisor import SupervisorGate as SupervisorGate

__all__ = ["AllOf", "ApprovalGate", "CedarGate", "Condition", "Hours", "OpaGate", "Rule", "RuleGate", "SupervisorGate"]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "AllOf": ".all_of",
            "ApprovalGate": ".approval",
            "CedarGate": ".cedar",
            "Condition": ".conditions",
            "Hours": ".hours",
            "OpaGate": ".opa",
            "Rule": ".rule",
            "RuleGate": ".rules",
            "SupervisorGate": ".supervisor",
        },
    )
