"""The seven published strategies, and their parts."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazily

if TYPE_CHECKING:
    from .attempt import Attempt as Attempt
    from .attempt import Evaluation as Evaluation
    from .chain_of_thought import ChainOfThoughtEngine as ChainOfThoughtEngine
    from .critic import CriticEngine as CriticEngine
    from .evaluators import Evaluator as Evaluator
    from .evaluators import ExactMatch as ExactMatch
    from .evaluators import Heuristics as Heuristics
    from .evaluators import ModelJudge as ModelJudge
    from .evaluators import SelfTests as SelfTests
    from .plan_execute import PlanExecuteEngine as PlanExecuteEngine
    from .react import ReActEngine as ReActEngine
    from .recommend import Recommendation as Recommendation
    from .recommend import recommend_engine as recommend_engine
    from .reflections import FileReflections as FileReflections
    from .reflections import MemoryReflections as MemoryReflections
    from .reflections import ReflectionStore as ReflectionStore
    from .reflexion import ReflexionEngine as ReflexionEngine
    from .self_ask import SelfAskEngine as SelfAskEngine
    from .thoughts import TextThoughts as TextThoughts
    from .thoughts import ThoughtProblem as ThoughtProblem
    from .tree_of_thoughts import TreeOfThoughtsEngine as TreeOfThoughtsEngine

__all__ = [
    "Attempt",
    "ChainOfThoughtEngine",
    "CriticEngine",
    "Evaluation",
    "Evaluator",
    "ExactMatch",
    "FileReflections",
    "Heuristics",
    "MemoryReflections",
    "ModelJudge",
    "PlanExecuteEngine",
    "ReActEngine",
    "Recommendation",
    "ReflectionStore",
    "ReflexionEngine",
    "SelfAskEngine",
    "SelfTests",
    "TextThoughts",
    "ThoughtProblem",
    "TreeOfThoughtsEngine",
    "recommend_engine",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "Attempt": ".attempt",
            "ChainOfThoughtEngine": ".chain_of_thought",
            "CriticEngine": ".critic",
            "Evaluation": ".attempt",
            "Evaluator": ".evaluators",
            "ExactMatch": ".evaluators",
            "FileReflections": ".reflections",
            "Heuristics": ".evaluators",
            "MemoryReflections": ".reflections",
            "ModelJudge": ".evaluators",
            "PlanExecuteEngine": ".plan_execute",
            "ReActEngine": ".react",
            "Recommendation": ".recommend",
            "ReflectionStore": ".reflections",
            "ReflexionEngine": ".reflexion",
            "SelfAskEngine": ".self_ask",
            "SelfTests": ".evaluators",
            "TextThoughts": ".thoughts",
            "ThoughtProblem": ".thoughts",
            "TreeOfThoughtsEngine": ".tree_of_thoughts",
            "recommend_engine": ".recommend",
        },
    )
