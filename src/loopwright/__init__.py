"""Loopwright: pluggable agent-loop engines behind one door, with policy, budgets, breakers and a durable journal."""

from typing import TYPE_CHECKING

from .lazy import lazily

if TYPE_CHECKING:
    from .attachments import Attachment as Attachment
    from .breaker import CircuitBreaker as CircuitBreaker
    from .breaker import CircuitBreakers as CircuitBreakers
    from .control import RunControl as RunControl
    from .doubt import Done as Done
    from .doubt import NotDone as NotDone
    from .doubt import Unknown as Unknown
    from .engine import LoopEngine as LoopEngine
    from .engine import ProviderName as ProviderName
    from .engines.attempts import Attempt as Attempt
    from .engines.attempts import Evaluation as Evaluation
    from .engines.chain_of_thought import ChainOfThoughtEngine as ChainOfThoughtEngine
    from .engines.critic import CriticEngine as CriticEngine
    from .engines.evaluators import Evaluator as Evaluator
    from .engines.evaluators import ExactMatch as ExactMatch
    from .engines.evaluators import Heuristics as Heuristics
    from .engines.evaluators import ModelJudge as ModelJudge
    from .engines.evaluators import SelfTests as SelfTests
    from .engines.plan_execute import PlanExecuteEngine as PlanExecuteEngine
    from .engines.react import ReActEngine as ReActEngine
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
    from .events import Entry as Entry
    from .events import Question as Question
    from .handle import RunHandle as RunHandle
    from .journal import Journal as Journal
    from .journal import MemoryJournal as MemoryJournal
    from .label_patterns import PatternClassifier as PatternClassifier
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
    from .policy import Action as Action
    from .policy import Allow as Allow
    from .policy import AllowAll as AllowAll
    from .policy import Ask as Ask
    from .policy import Cleared as Cleared
    from .policy import Decision as Decision
    from .policy import DefaultGate as DefaultGate
    from .policy import Deny as Deny
    from .policy import DenyAll as DenyAll
    from .policy import Modify as Modify
    from .policy import Permit as Permit
    from .policy import PolicyGate as PolicyGate
    from .policy import PolicyState as PolicyState
    from .policy import Suspend as Suspend
    from .prices import Price as Price
    from .prompts import PromptSet as PromptSet
    from .prompts import Template as Template
    from .provider import CallDelta as CallDelta
    from .provider import Capabilities as Capabilities
    from .provider import Delta as Delta
    from .provider import Provider as Provider
    from .provider import Request as Request
    from .provider import Sampling as Sampling
    from .provider import StreamingProvider as StreamingProvider
    from .recommend import Recommendation as Recommendation
    from .recommend import recommend_engine as recommend_engine
    from .recovery import CachedResult as CachedResult
    from .recovery import DeadLetter as DeadLetter
    from .recovery import Escalate as Escalate
    from .recovery import Fallback as Fallback
    from .recovery import LlmRecovery as LlmRecovery
    from .recovery import Retry as Retry
    from .result import Result as Result
    from .run import Run as Run
    from .runtime import Runtime as Runtime
    from .tool_profile import ToolProfile as ToolProfile
    from .tools import Tool as Tool
    from .tools import ToolContext as ToolContext
    from .tools import ToolRegistry as ToolRegistry
    from .tools import ToolSource as ToolSource
    from .tools import ask_user as ask_user
    from .tools import tool as tool
    from .worker import Worker as Worker

_HOMES = {  # loaded at first use, so that importing the package costs next to nothing
    ".attachments": ("Attachment",),
    ".doubt": (
        "Done",
        "NotDone",
        "Unknown",
    ),
    ".prices": ("Price",),
    ".recommend": (
        "Recommendation",
        "recommend_engine",
    ),
    ".engines.evaluators": (
        "Evaluator",
        "ExactMatch",
        "Heuristics",
        "ModelJudge",
        "SelfTests",
    ),
    ".engines.attempts": (
        "Attempt",
        "Evaluation",
    ),
    ".engines.reflections": (
        "FileReflections",
        "MemoryReflections",
        "ReflectionStore",
    ),
    ".engines.thoughts": (
        "TextThoughts",
        "ThoughtProblem",
    ),
    ".prompts": (
        "PromptSet",
        "Template",
    ),
    ".breaker": (
        "CircuitBreaker",
        "CircuitBreakers",
    ),
    ".engine": (
        "LoopEngine",
        "ProviderName",
    ),
    ".handle": ("RunHandle",),
    ".engines.chain_of_thought": ("ChainOfThoughtEngine",),
    ".engines.react": ("ReActEngine",),
    ".engines.tree_of_thoughts": ("TreeOfThoughtsEngine",),
    ".engines.critic": ("CriticEngine",),
    ".engines.self_ask": ("SelfAskEngine",),
    ".engines.reflexion": ("ReflexionEngine",),
    ".engines.plan_execute": ("PlanExecuteEngine",),
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
    ".events": (
        "Entry",
        "Question",
    ),
    ".journal": (
        "Journal",
        "MemoryJournal",
    ),
    ".limits": ("Limits",),
    ".messages": (
        "Reasoning",
        "Completion",
        "Conversation",
        "Message",
        "Observation",
        "Proposal",
        "ToolCall",
        "ToolSpec",
        "Usage",
    ),
    ".plugins": ("available_engines",),
    ".policy": (
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
    ".provider": (
        "StreamingProvider",
        "Delta",
        "CallDelta",
        "Capabilities",
        "Provider",
        "Request",
        "Sampling",
    ),
    ".recovery": (
        "CachedResult",
        "DeadLetter",
        "Escalate",
        "Fallback",
        "LlmRecovery",
        "Retry",
    ),
    ".result": ("Result",),
    ".run": ("Run",),
    ".runtime": ("Runtime",),
    ".tools": (
        "Tool",
        "ToolContext",
        "ToolRegistry",
        "ToolSource",
        "ask_user",
        "tool",
    ),
    ".worker": ("Worker",),
    ".control": ("RunControl",),
    ".labels": (
        "Classifier",
        "Label",
    ),
    ".tool_profile": ("ToolProfile",),
    ".label_patterns": ("PatternClassifier",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Aborted",
    "Action",
    "Allow",
    "AllowAll",
    "Ask",
    "AskFailed",
    "Attachment",
    "Attempt",
    "CachedResult",
    "CallDelta",
    "Capabilities",
    "CapabilityError",
    "ChainOfThoughtEngine",
    "CircuitBreaker",
    "CircuitBreakers",
    "CircuitOpen",
    "Classifier",
    "Cleared",
    "Completion",
    "ConfigError",
    "ContextTooLong",
    "Conversation",
    "CriticEngine",
    "DeadLetter",
    "Decision",
    "DefaultGate",
    "Delta",
    "Denied",
    "Deny",
    "DenyAll",
    "Done",
    "EngineError",
    "Entry",
    "Escalate",
    "Evaluation",
    "Evaluator",
    "ExactMatch",
    "Fallback",
    "Fenced",
    "FileReflections",
    "Heuristics",
    "InvalidOutput",
    "Journal",
    "JournalError",
    "Label",
    "LimitReached",
    "Limits",
    "LlmRecovery",
    "LoopEngine",
    "LoopwrightError",
    "MemoryJournal",
    "MemoryReflections",
    "Message",
    "ModelJudge",
    "Modify",
    "NotDone",
    "Observation",
    "PatternClassifier",
    "Permit",
    "PhaseError",
    "PlanExecuteEngine",
    "PolicyGate",
    "PolicyState",
    "Price",
    "PromptSet",
    "Proposal",
    "Provider",
    "ProviderError",
    "ProviderName",
    "ProviderTimeout",
    "Question",
    "ReActEngine",
    "Reasoning",
    "Recommendation",
    "ReflectionStore",
    "ReflexionEngine",
    "ReplayDivergence",
    "Request",
    "Result",
    "Retry",
    "Run",
    "RunBusy",
    "RunControl",
    "RunHandle",
    "RunSignal",
    "Runtime",
    "Sampling",
    "SelfAskEngine",
    "SelfTests",
    "StreamingProvider",
    "Stuck",
    "Suspend",
    "Suspended",
    "Template",
    "TextThoughts",
    "ThoughtProblem",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolProfile",
    "ToolRegistry",
    "ToolSource",
    "ToolSpec",
    "TreeOfThoughtsEngine",
    "UndoFailed",
    "Unknown",
    "UnknownOutcome",
    "UnknownRun",
    "Unreadable",
    "Usage",
    "Worker",
    "ask_user",
    "available_engines",
    "recommend_engine",
    "tool",
]


if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    _load = lazily(__name__, _HOME_OF)

    def __getattr__(name: str) -> object:
        value = globals()[name] = _load(name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
