"""Functions that a model may call: the port, what is done when a call fails, and types for arguments."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .argument_types import Cidr as Cidr
    from .argument_types import Duration as Duration
    from .argument_types import DurationBetween as DurationBetween
    from .argument_types import Host as Host
    from .argument_types import HostName as HostName
    from .argument_types import IpAddress as IpAddress
    from .argument_types import Matching as Matching
    from .argument_types import PlainWord as PlainWord
    from .argument_types import Port as Port
    from .argument_types import SafeText as SafeText
    from .argument_types import SandboxedPath as SandboxedPath
    from .argument_types import TextType as TextType
    from .argument_types import WebUrl as WebUrl
    from .base import Compensate as Compensate
    from .base import Lookup as Lookup
    from .base import Tool as Tool
    from .base import ToolContext as ToolContext
    from .base import ToolSource as ToolSource
    from .base import ask_user as ask_user
    from .base import client_tool as client_tool
    from .base import tool as tool
    from .executor import ToolExecutor as ToolExecutor
    from .profile import ToolProfile as ToolProfile
    from .recovery import CachedResult as CachedResult
    from .recovery import CallOutcome as CallOutcome
    from .recovery import DeadLetter as DeadLetter
    from .recovery import Escalate as Escalate
    from .recovery import FailedCall as FailedCall
    from .recovery import Fallback as Fallback
    from .recovery import LlmRecovery as LlmRecovery
    from .recovery import RecoveryContext as RecoveryContext
    from .recovery import RecoveryStrategy as RecoveryStrategy
    from .recovery import Retry as Retry
    from .registry import ToolRegistry as ToolRegistry
    from .registry import Tools as Tools
    from .remote import RemoteCall as RemoteCall
    from .remote import RemoteExecutor as RemoteExecutor
    from .remote import RemoteTools as RemoteTools
    from .resolution import CallCompleted as CallCompleted
    from .resolution import CallNotExecuted as CallNotExecuted
    from .resolution import OutcomeUnknown as OutcomeUnknown
    from .resolution import Resolution as Resolution

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".argument_types": (
                "Cidr",
                "Duration",
                "DurationBetween",
                "Host",
                "HostName",
                "IpAddress",
                "Matching",
                "PlainWord",
                "Port",
                "SandboxedPath",
                "SafeText",
                "TextType",
                "WebUrl",
            ),
            ".base": (
                "Compensate",
                "Lookup",
                "Tool",
                "ToolContext",
                "ToolSource",
                "ask_user",
                "client_tool",
                "tool",
            ),
            ".profile": ("ToolProfile",),
            ".registry": ("ToolRegistry", "Tools"),
            ".executor": ("ToolExecutor",),
            ".remote": ("RemoteCall", "RemoteExecutor", "RemoteTools"),
            ".recovery": (
                "CachedResult",
                "DeadLetter",
                "Escalate",
                "Fallback",
                "CallOutcome",
                "FailedCall",
                "LlmRecovery",
                "RecoveryContext",
                "RecoveryStrategy",
                "Retry",
            ),
            ".resolution": (
                "CallCompleted",
                "CallNotExecuted",
                "OutcomeUnknown",
                "Resolution",
            ),
        },
    )
