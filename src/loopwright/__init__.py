"""Loopwright: pluggable agent-loop engines behind one door, with policy, budgets, breakers and a durable journal."""

from typing import TYPE_CHECKING

from ._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from ._kernel.control.run_control import RunControl as RunControl
    from .attachments import Attachment as Attachment
    from .engine import LoopEngine as LoopEngine
    from .engine import ProviderName as ProviderName
    from .engines.attempt import Attempt as Attempt
    from .engines.attempt import Evaluation as Evaluation
    from .engines.chain_of_thought import ChainOfThoughtEngine as ChainOfThoughtEngine
    from .engines.critic import CriticEngine as CriticEngine
    from .engines.evaluators import Evaluator as Evaluator
    from .engines.evaluators import ExactMatch as ExactMatch
    from .engines.evaluators import Heuristics as Heuristics
    from .engines.evaluators import ModelJudge as ModelJudge
    from .engines.evaluators import SelfTests as SelfTests
    from .engines.plan_execute import PlanExecuteEngine as PlanExecuteEngine
    from .engines.react import ReActEngine as ReActEngine
    from .engines.recommend import Recommendation as Recommendation
    from .engines.recommend import recommend_engine as recommend_engine
    from .engines.reflections import FileReflections as FileReflections
    from .engines.reflections import MemoryReflections as MemoryReflections
    from .engines.reflections import ReflectionStore as ReflectionStore
    from .engines.reflexion import ReflexionEngine as ReflexionEngine
    from .engines.self_ask import SelfAskEngine as SelfAskEngine
    from .engines.thoughts import TextThoughts as TextThoughts
    from .engines.thoughts import ThoughtProblem as ThoughtProblem
    from .engines.tree_of_thoughts import TreeOfThoughtsEngine as TreeOfThoughtsEngine
    from .errors import Aborted as Aborted
    from .errors import AskFailed as AskFailed
    from .errors import CapabilityError as CapabilityError
    from .errors import CircuitOpen as CircuitOpen
    from .errors import ConfigError as ConfigError
    from .errors import ContextTooLong as ContextTooLong
    from .errors import Denied as Denied
    from .errors import EngineError as EngineError
    from .errors import Fenced as Fenced
    from .errors import InvalidOutput as InvalidOutput
    from .errors import JournalError as JournalError
    from .errors import LimitReached as LimitReached
    from .errors import LoopwrightError as LoopwrightError
    from .errors import PhaseError as PhaseError
    from .errors import ProviderError as ProviderError
    from .errors import ProviderTimeout as ProviderTimeout
    from .errors import ReplayDivergence as ReplayDivergence
    from .errors import RunBusy as RunBusy
    from .errors import RunSignal as RunSignal
    from .errors import Stuck as Stuck
    from .errors import Suspended as Suspended
    from .errors import ToolError as ToolError
    from .errors import UndoFailed as UndoFailed
    from .errors import UnknownOutcome as UnknownOutcome
    from .errors import UnknownRun as UnknownRun
    from .errors import Unreadable as Unreadable
    from .events.effects import Entry as Entry
    from .events.effects import Question as Question
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
    from .journals.base import MemoryJournal as MemoryJournal
    from .labels import Classifier as Classifier
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
    from .providers.base import CallDelta as CallDelta
    from .providers.base import Capabilities as Capabilities
    from .providers.base import Delta as Delta
    from .providers.base import Provider as Provider
    from .providers.base import Request as Request
    from .providers.base import Sampling as Sampling
    from .providers.base import StreamingProvider as StreamingProvider
    from .providers.prices import Price as Price
    from .resilience.circuit_breaker import CircuitBreaker as CircuitBreaker
    from .resilience.circuit_breaker import CircuitBreakers as CircuitBreakers
    from .result import Result as Result
    from .run import Run as Run
    from .runtime import Runtime as Runtime
    from .security.classifier import PatternClassifier as PatternClassifier
    from .tools.base import Tool as Tool
    from .tools.base import ToolContext as ToolContext
    from .tools.base import ToolRegistry as ToolRegistry
    from .tools.base import ToolSource as ToolSource
    from .tools.base import ask_user as ask_user
    from .tools.base import tool as tool
    from .tools.profile import ToolProfile as ToolProfile
    from .tools.recovery import CachedResult as CachedResult
    from .tools.recovery import DeadLetter as DeadLetter
    from .tools.recovery import Escalate as Escalate
    from .tools.recovery import Fallback as Fallback
    from .tools.recovery import LlmRecovery as LlmRecovery
    from .tools.recovery import Retry as Retry
    from .tools.resolution import CallCompleted as CallCompleted
    from .tools.resolution import CallNotExecuted as CallNotExecuted
    from .tools.resolution import OutcomeUnknown as OutcomeUnknown
    from .worker import Worker as Worker

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            "._kernel.control.run_control": ("RunControl",),
            ".attachments": ("Attachment",),
            ".engine": ("LoopEngine", "ProviderName"),
            ".engines.attempt": ("Attempt", "Evaluation"),
            ".engines.chain_of_thought": ("ChainOfThoughtEngine",),
            ".engines.critic": ("CriticEngine",),
            ".engines.evaluators": (
                "Evaluator",
                "ExactMatch",
                "Heuristics",
                "ModelJudge",
                "SelfTests",
            ),
            ".engines.plan_execute": ("PlanExecuteEngine",),
            ".engines.react": ("ReActEngine",),
            ".engines.recommend": ("Recommendation", "recommend_engine"),
            ".engines.reflections": (
                "FileReflections",
                "MemoryReflections",
                "ReflectionStore",
            ),
            ".engines.reflexion": ("ReflexionEngine",),
            ".engines.self_ask": ("SelfAskEngine",),
            ".engines.thoughts": ("TextThoughts", "ThoughtProblem"),
            ".engines.tree_of_thoughts": ("TreeOfThoughtsEngine",),
            ".errors": (
                "Aborted",
                "AskFailed",
                "CapabilityError",
                "CircuitOpen",
                "ConfigError",
                "ContextTooLong",
                "Denied",
                "EngineError",
                "Fenced",
                "InvalidOutput",
                "JournalError",
                "LimitReached",
                "LoopwrightError",
                "PhaseError",
                "ProviderError",
                "ProviderTimeout",
                "ReplayDivergence",
                "RunBusy",
                "RunSignal",
                "Stuck",
                "Suspended",
                "ToolError",
                "UndoFailed",
                "UnknownOutcome",
                "UnknownRun",
                "Unreadable",
            ),
            ".events.effects": ("Entry", "Question"),
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
            ".journals.base": ("Journal", "MemoryJournal"),
            ".labels": ("Classifier", "Label"),
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
            ".prompts": ("PromptSet", "Template"),
            ".providers.base": (
                "CallDelta",
                "Capabilities",
                "Delta",
                "Provider",
                "Request",
                "Sampling",
                "StreamingProvider",
            ),
            ".providers.prices": ("Price",),
            ".resilience.circuit_breaker": ("CircuitBreaker", "CircuitBreakers"),
            ".result": ("Result",),
            ".run": ("Run",),
            ".runtime": ("Runtime",),
            ".security.classifier": ("PatternClassifier",),
            ".tools.base": (
                "Tool",
                "ToolContext",
                "ToolRegistry",
                "ToolSource",
                "ask_user",
                "tool",
            ),
            ".tools.profile": ("ToolProfile",),
            ".tools.recovery": (
                "CachedResult",
                "DeadLetter",
                "Escalate",
                "Fallback",
                "LlmRecovery",
                "Retry",
            ),
            ".tools.resolution": ("CallCompleted", "CallNotExecuted", "OutcomeUnknown"),
            ".worker": ("Worker",),
        },
    )
