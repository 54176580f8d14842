"""The published strategies, with their evaluators and stores."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .assignee import Assignee as Assignee
    from .board import Board as Board
    from .board import BoardTask as BoardTask
    from .chain import ChainEngine as ChainEngine
    from .chain_of_thought import ChainOfThoughtEngine as ChainOfThoughtEngine
    from .convergence import AdaptiveBreak as AdaptiveBreak
    from .convergence import FixedRounds as FixedRounds
    from .convergence import ScoreThreshold as ScoreThreshold
    from .critic import CriticEngine as CriticEngine
    from .director_critic import DirectorCriticEngine as DirectorCriticEngine
    from .evaluators import Evaluator as Evaluator
    from .evaluators import ExactMatch as ExactMatch
    from .evaluators import Heuristics as Heuristics
    from .evaluators import ModelJudge as ModelJudge
    from .evaluators import SelfTests as SelfTests
    from .goal_cycle import GoalCycleEngine as GoalCycleEngine
    from .map_reduce import MapReduceEngine as MapReduceEngine
    from .plan_execute import PlanExecuteEngine as PlanExecuteEngine
    from .pre_hydration import Hydrated as Hydrated
    from .pre_hydration import PreHydration as PreHydration
    from .react import ReActEngine as ReActEngine
    from .recommend import Recommendation as Recommendation
    from .recommend import recommend_engine as recommend_engine
    from .reflections import FileReflections as FileReflections
    from .reflections import MemoryReflections as MemoryReflections
    from .reflections import ReflectionStore as ReflectionStore
    from .reflexion import ReflexionEngine as ReflexionEngine
    from .reviews import DraftReview as DraftReview
    from .reviews import HumanCritic as HumanCritic
    from .reviews import LlmCritic as LlmCritic
    from .self_ask import SelfAskEngine as SelfAskEngine
    from .team import TeamEngine as TeamEngine
    from .thought_decomposition import TextThoughts as TextThoughts
    from .thought_decomposition import ThoughtProblem as ThoughtProblem
    from .thread import ThreadEngine as ThreadEngine
    from .trajectory import Evaluation as Evaluation
    from .trajectory import Trajectory as Trajectory
    from .tree_of_thoughts import TreeOfThoughtsEngine as TreeOfThoughtsEngine
    from .turn import Assessment as Assessment
    from .turn import TurnEngine as TurnEngine
    from .turn import assess as assess
    from .working_memory import MemorySnapshot as MemorySnapshot
    from .working_memory import WorkingMemory as WorkingMemory
    from .working_memory import WorkingNotes as WorkingNotes

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".trajectory": ("Trajectory", "Evaluation"),
            ".assignee": ("Assignee",),
            ".board": ("Board", "BoardTask"),
            ".chain": ("ChainEngine",),
            ".chain_of_thought": ("ChainOfThoughtEngine",),
            ".convergence": ("AdaptiveBreak", "FixedRounds", "ScoreThreshold"),
            ".critic": ("CriticEngine",),
            ".director_critic": ("DirectorCriticEngine",),
            ".evaluators": (
                "Evaluator",
                "ExactMatch",
                "Heuristics",
                "ModelJudge",
                "SelfTests",
            ),
            ".goal_cycle": ("GoalCycleEngine",),
            ".map_reduce": ("MapReduceEngine",),
            ".plan_execute": ("PlanExecuteEngine",),
            ".pre_hydration": ("Hydrated", "PreHydration"),
            ".react": ("ReActEngine",),
            ".recommend": ("Recommendation", "recommend_engine"),
            ".reflections": ("FileReflections", "MemoryReflections", "ReflectionStore"),
            ".reflexion": ("ReflexionEngine",),
            ".reviews": ("DraftReview", "HumanCritic", "LlmCritic"),
            ".self_ask": ("SelfAskEngine",),
            ".team": ("TeamEngine",),
            ".thought_decomposition": ("TextThoughts", "ThoughtProblem"),
            ".thread": ("ThreadEngine",),
            ".tree_of_thoughts": ("TreeOfThoughtsEngine",),
            ".turn": ("Assessment", "TurnEngine", "assess"),
            ".working_memory": ("MemorySnapshot", "WorkingMemory", "WorkingNotes"),
        },
    )
