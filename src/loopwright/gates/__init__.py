"""Policy gates: the port, rules, Cedar, OPA, information flow, approval, an LLM supervisor, and several gates as one."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .all_of import AllOf as AllOf
    from .approval import ApprovalGate as ApprovalGate
    from .base import RESPOND as RESPOND
    from .base import Action as Action
    from .base import Allow as Allow
    from .base import AllowAll as AllowAll
    from .base import Approver as Approver
    from .base import Ask as Ask
    from .base import Cleared as Cleared
    from .base import Decision as Decision
    from .base import DefaultGate as DefaultGate
    from .base import Denial as Denial
    from .base import Deny as Deny
    from .base import DenyAll as DenyAll
    from .base import InstantGate as InstantGate
    from .base import Modify as Modify
    from .base import Permit as Permit
    from .base import PolicyGate as PolicyGate
    from .base import PolicyState as PolicyState
    from .base import Suspend as Suspend
    from .cedar.gate import CedarGate as CedarGate
    from .content_safety import ContentSafetyGate as ContentSafetyGate
    from .flow.gate import FlowGate as FlowGate
    from .ladder import choose_gate as choose_gate
    from .opa import OpaGate as OpaGate
    from .provenance import ArgumentProvenance as ArgumentProvenance
    from .provenance import CallProvenance as CallProvenance
    from .provenance import ValueProvenance as ValueProvenance
    from .provenance import ValueSource as ValueSource
    from .provenance import ValueTracer as ValueTracer
    from .rate_limit import SharedRates as SharedRates
    from .rules.conditions import Condition as Condition
    from .rules.gate import RuleGate as RuleGate
    from .rules.rule import Rule as Rule
    from .run_facts import PastCall as PastCall
    from .run_facts import RunFacts as RunFacts
    from .supervisor import SupervisorGate as SupervisorGate
    from .time_window import Hours as Hours

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".all_of": ("AllOf",),
            ".approval": ("ApprovalGate",),
            ".base": (
                "RESPOND",
                "Action",
                "Allow",
                "AllowAll",
                "Approver",
                "Ask",
                "Cleared",
                "Decision",
                "DefaultGate",
                "Denial",
                "Deny",
                "DenyAll",
                "InstantGate",
                "Modify",
                "Permit",
                "PolicyGate",
                "PolicyState",
                "Suspend",
            ),
            ".cedar.gate": ("CedarGate",),
            ".content_safety": ("ContentSafetyGate",),
            ".flow.gate": ("FlowGate",),
            ".ladder": ("choose_gate",),
            ".opa": ("OpaGate",),
            ".provenance": (
                "ArgumentProvenance",
                "CallProvenance",
                "ValueProvenance",
                "ValueSource",
                "ValueTracer",
            ),
            ".rate_limit": ("SharedRates",),
            ".rules.conditions": ("Condition",),
            ".rules.gate": ("RuleGate",),
            ".rules.rule": ("Rule",),
            ".run_facts": ("PastCall", "RunFacts"),
            ".supervisor": ("SupervisorGate",),
            ".time_window": ("Hours",),
        },
    )
