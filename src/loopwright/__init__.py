"""Pluggable agent-loop engines with policy, budgets, circuit breakers and a durable journal.

These are the names that an application starts with; `docs/upgrading.md` lists the public
modules beside them (errors, tools, gates, providers, journals, engines, events, testing).
"""

from typing import TYPE_CHECKING

from ._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from ._kernel.control.run_control import RunControl as RunControl
    from ._kernel.control.run_watch import RunWatch as RunWatch
    from .attachments import Attachment as Attachment
    from .engine import LoopEngine as LoopEngine
    from .engines.chain_of_thought import ChainOfThoughtEngine as ChainOfThoughtEngine
    from .engines.critic import CriticEngine as CriticEngine
    from .engines.plan_execute import PlanExecuteEngine as PlanExecuteEngine
    from .engines.react import ReActEngine as ReActEngine
    from .engines.recommend import recommend_engine as recommend_engine
    from .engines.reflexion import ReflexionEngine as ReflexionEngine
    from .engines.self_ask import SelfAskEngine as SelfAskEngine
    from .engines.tree_of_thoughts import TreeOfThoughtsEngine as TreeOfThoughtsEngine
    from .errors import ConfigError as ConfigError
    from .errors import Fenced as Fenced
    from .errors import LimitReached as LimitReached
    from .errors import LoopwrightError as LoopwrightError
    from .errors import ProviderError as ProviderError
    from .errors import ReplayDivergence as ReplayDivergence
    from .errors import RunBusy as RunBusy
    from .errors import ToolError as ToolError
    from .events.entry import Entry as Entry
    from .events.run import Question as Question
    from .gates.base import Action as Action
    from .gates.base import Allow as Allow
    from .gates.base import AllowAll as AllowAll
    from .gates.base import Ask as Ask
    from .gates.base import Cleared as Cleared
    from .gates.base import Decision as Decision
    from .gates.base import DefaultGate as DefaultGate
    from .gates.base import Deny as Deny
    from .gates.base import DenyAll as DenyAll
    from .gates.base import Modify as Modify
    from .gates.base import Permit as Permit
    from .gates.base import PolicyGate as PolicyGate
    from .gates.base import PolicyState as PolicyState
    from .gates.base import Suspend as Suspend
    from .handle import RunHandle as RunHandle
    from .journals.base import Journal as Journal
    from .journals.memory import MemoryJournal as MemoryJournal
    from .labels import Label as Label
    from .limits import Limits as Limits
    from .messages import Completion as Completion
    from .messages import Conversation as Conversation
    from .messages import Message as Message
    from .messages import Observation as Observation
    from .messages import Proposal as Proposal
    from .messages import Reasoning as Reasoning
    from .messages import ToolCall as ToolCall
    from .messages import ToolSpec as ToolSpec
    from .messages import Usage as Usage
    from .plugins import available_engines as available_engines
    from .prompts import PromptSet as PromptSet
    from .prompts import Template as Template
    from .providers.base import Capabilities as Capabilities
    from .providers.base import Delta as Delta
    from .providers.base import Provider as Provider
    from .providers.base import Request as Request
    from .providers.base import Sampling as Sampling
    from .providers.prices import Price as Price
    from .resilience.circuit_breaker import CircuitBreaker as CircuitBreaker
    from .resilience.circuit_breaker import CircuitBreakers as CircuitBreakers
    from .result import Result as Result
    from .run import Run as Run
    from .runtime import Runtime as Runtime
    from .tools.base import Tool as Tool
    from .tools.base import ToolContext as ToolContext
    from .tools.base import ToolSource as ToolSource
    from .tools.base import ask_user as ask_user
    from .tools.base import tool as tool
    from .tools.profile import ToolProfile as ToolProfile
    from .tools.registry import ToolRegistry as ToolRegistry
    from .worker import Worker as Worker

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            "._kernel.control.run_control": ("RunControl",),
            "._kernel.control.run_watch": ("RunWatch",),
            ".attachments": ("Attachment",),
            ".engine": ("LoopEngine",),
            ".engines.chain_of_thought": ("ChainOfThoughtEngine",),
            ".engines.critic": ("CriticEngine",),
            ".engines.plan_execute": ("PlanExecuteEngine",),
            ".engines.react": ("ReActEngine",),
            ".engines.recommend": ("recommend_engine",),
            ".engines.reflexion": ("ReflexionEngine",),
            ".engines.self_ask": ("SelfAskEngine",),
            ".engines.tree_of_thoughts": ("TreeOfThoughtsEngine",),
            ".errors": (
                "ConfigError",
                "Fenced",
                "LimitReached",
                "LoopwrightError",
                "ProviderError",
                "ReplayDivergence",
                "RunBusy",
                "ToolError",
            ),
            ".events.entry": ("Entry",),
            ".events.run": ("Question",),
            ".gates.base": (
                "Action",
                "Allow",
                "AllowAll",
                "Ask",
                "Cleared",
                "Decision",
                "DefaultGate",
                "Deny",
                "DenyAll",
                "Modify",
                "Permit",
                "PolicyGate",
                "PolicyState",
                "Suspend",
            ),
            ".handle": ("RunHandle",),
            ".journals.base": ("Journal",),
            ".journals.memory": ("MemoryJournal",),
            ".labels": ("Label",),
            ".limits": ("Limits",),
            ".messages": (
                "Completion",
                "Conversation",
                "Message",
                "Observation",
                "Proposal",
                "Reasoning",
                "ToolCall",
                "ToolSpec",
                "Usage",
            ),
            ".plugins": ("available_engines",),
            ".prompts": (
                "PromptSet",
                "Template",
            ),
            ".providers.base": (
                "Capabilities",
                "Delta",
                "Provider",
                "Request",
                "Sampling",
            ),
            ".providers.prices": ("Price",),
            ".resilience.circuit_breaker": (
                "CircuitBreaker",
                "CircuitBreakers",
            ),
            ".result": ("Result",),
            ".run": ("Run",),
            ".runtime": ("Runtime",),
            ".tools.base": (
                "Tool",
                "ToolContext",
                "ToolSource",
                "ask_user",
                "tool",
            ),
            ".tools.profile": ("ToolProfile",),
            ".tools.registry": ("ToolRegistry",),
            ".worker": ("Worker",),
        },
    )
