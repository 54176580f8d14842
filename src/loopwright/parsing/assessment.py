"""Assess a task before work on it begins: do it at once, ask first, delegate, do parts together, or plan with a rollback."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from .._internal import dataclasses
from ..messages import ToolSpec
from .task_signals import MAX_SIMPLE, TaskSignals, read_signals

AssessedDecision: TypeAlias = Literal[
    "direct", "ask_first", "delegate", "parallelize", "plan_with_rollback"
]
MIN_DIRECT = 0.35
"""The confidence below which a task is not done at once, but asked about."""
AGENT_TOOLS = frozenset({"delegate", "ask_agent"})
"""The names of tools that hand a task to another agent."""


@dataclasses.dataclass(frozen=True)
class Assessment:
    """Fact: how a task is best begun.

    Args:
        decision: "direct", "ask_first", "delegate", "parallelize" or "plan_with_rollback".
        confidence: 0 to 1.
        signals: what it rests on, with weights or counts.
        agents: kinds of agents whose work it is, such as "code" and "research"; the most likely first.
        reason: why, in a few words.
        escalated: whether it would have been done at once, with too little confidence.
    """

    decision: AssessedDecision
    confidence: float
    signals: Mapping[str, float]
    agents: tuple[str, ...] = ()
    reason: str = ""
    escalated: bool = False


def assess(
    task: str,
    tools: Iterable[ToolSpec] | None = None,
    *,
    context: bool = False,
    escalate: bool = True,
) -> Assessment:
    """Assess a task by its words; a pure function, which asks no model.

    Args:
        task: what the user wrote (English).
        tools: the tools there are; with none a task is done at once or asked about. `None` is unknown.
        context: whether something before it, such as earlier turns or a document, says what "it" is.
        escalate: whether a task that would be done at once with a confidence below 0.35 is asked about.
    """
    found, known = read_signals(task), None if tools is None else tuple(tools)
    agents = _rank_agents(found)
    asked = _find_question(found, known, context)
    if asked is not None:
        reason, confidence = asked
        return Assessment("ask_first", confidence, {reason: 1.0}, agents, reason)
    if _is_simple(found):
        return Assessment("direct", 0.95, {"simple": 1.0}, agents, "simple")
    return _weigh(found, known, agents, escalate)


def _find_question(
    found: TaskSignals, tools: tuple[ToolSpec, ...] | None, context: bool
) -> tuple[str, float] | None:
    """Return why the user is asked first, and how sure that is; `None` where the task can begin."""
    can_act = tools is None or bool(tools)
    if found.is_confirmed and context:
        return None
    if found.is_ambiguous and not context:
        return "ambiguous", 0.9
    if found.resource and not context and not _is_named(found.resource, tools):
        return "unspecified", 0.8
    if found.is_destructive and can_act and not found.is_multi_step:
        return "destructive", 0.85
    return None


def _is_named(resource: str, tools: tuple[ToolSpec, ...] | None) -> bool:
    """Whether a tool says which server, database or the like there is."""
    word = resource.lower()
    return any(word in f"{one.name} {one.description}".lower() for one in tools or ())


def _is_simple(found: TaskSignals) -> bool:
    is_short = found.words <= MAX_SIMPLE and found.sequence < 2
    return is_short and not _is_code(found) and not _is_research(found)


def _is_code(found: TaskSignals) -> bool:
    return found.kinds.get("code", 0) >= 2


def _is_research(found: TaskSignals) -> bool:
    return found.kinds.get("research", 0) >= 2


def _weigh(
    found: TaskSignals,
    tools: tuple[ToolSpec, ...] | None,
    agents: tuple[str, ...],
    escalate: bool,
) -> Assessment:
    """Add up what speaks for each way; of equal ones the cheapest."""
    is_single_destructive = found.is_destructive and not found.is_multi_step
    is_parallel = found.is_independent and "research" in found.kinds
    scores: dict[AssessedDecision, float] = {
        "direct": 1.0 - 0.5 * is_single_destructive,
        "delegate": _score_delegation(found),
        "parallelize": 3.0 * is_parallel,
        "plan_with_rollback": _score_plan(found),
    }  # fmt: skip
    if tools is not None:
        names = {tool.name for tool in tools}
        scores["delegate"] *= bool(names & AGENT_TOOLS)
        scores["parallelize"] *= bool(names)
        scores["plan_with_rollback"] *= bool(names)
    best = max(scores, key=lambda decision: scores[decision])
    confidence = round(scores[best] / sum(scores.values()), 3)
    signals: dict[str, float] = {name: score for name, score in scores.items() if score}
    if best == "direct" and confidence < MIN_DIRECT and escalate:
        reason = "unsure"
        return Assessment("ask_first", confidence, signals, agents, reason, True)
    return Assessment(best, confidence, signals, agents, _find_reason(best))


def _find_reason(decision: AssessedDecision) -> str:
    return {
        "delegate": "work for other agents",
        "parallelize": "independent parts",
        "plan_with_rollback": "several steps that may fail",
    }.get(decision, "nothing speaks against it")


def _score_delegation(found: TaskSignals) -> float:
    kinds = found.kinds
    explores_code = "code" in kinds and "explore" in kinds and found.is_complex
    score = 2.0 * found.is_complex + (found.words > 30) + (found.words > 60)
    score += 3.0 * explores_code + _is_research(found)
    score += 2.0 * sum(kinds.get(kind, 0) >= 2 for kind in ("security", "debug"))
    others = ("devops", "data", "ui", "architect")
    return score + sum(kinds.get(kind, 0) >= 2 for kind in others)


def _score_plan(found: TaskSignals) -> float:
    if not found.is_multi_step:
        return 0.0
    return 1.0 + 2.0 * found.may_fail + 3.0 * found.is_destructive


def _rank_agents(found: TaskSignals) -> tuple[str, ...]:
    """Return the kinds of agents by how much of the task is theirs; one word alone says little."""
    counts = found.kinds
    likely = [kind for kind in counts if counts[kind] >= 2]
    return tuple(sorted(likely, key=lambda kind: -counts[kind]))
