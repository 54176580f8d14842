"""What the goal cycle does after a step: by rules where they suffice, as pure functions of the situation."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, TypeAlias

from ..parsing.goal_replies import DecisionReply, Quality

Move: TypeAlias = Literal[
    "continue", "repeat", "adjust", "ask_user", "done", "summary", "stuck"
]
"""What comes next: the next step, the same step again, a new plan, a question, the answer, a summary, the end."""
TREND = 0.3
"""The mean change of a score from which on a trend is one."""
Trend: TypeAlias = Literal["improving", "stable", "DEGRADING"]


@dataclasses.dataclass(frozen=True)
class Situation:
    """Where a run is after a step.

    Args:
        failures: failures in a row: of steps, and of replies that could not be read.
        steps_left: steps of the plan that were not made.
        quality: how good the output of the last step is; `None` if it has none.
        recent: the steps that were made, as a key of skill and input, the last ones.
        adjusts: the new plans of high confidence so far.
        attempts: how often the last step was made.
        by_person: whether a person ordered the last step.
        unread: the failures since the last step, which are decisions that could not be read.
    """

    failures: int = 0
    steps_left: int = 0
    quality: Quality | None = None
    recent: tuple[str, ...] = ()
    adjusts: int = 0
    attempts: int = 1
    by_person: bool = False
    unread: int = 0


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The options of the engine that decide; see `GoalCycleEngine`."""

    stuck_threshold: int = 3
    done_confidence: float = 0.7
    max_adjusts: int = 3
    max_step_attempts: int = 2


@dataclasses.dataclass(frozen=True)
class GoalDecided:
    """Fact: what comes next after a step, and why.

    `by` is "rule" where no model was asked, "model" where it decided, and "person" after a step that a person ordered.
    """

    move: Move
    by: Literal["rule", "model", "person"]
    reason: str
    confidence: float | None = None


def decide_by_rule(situation: Situation, bounds: Bounds) -> GoalDecided | None:
    """Return what comes next where no model need be asked, else `None`; the first rule that fits counts."""
    if situation.failures >= bounds.stuck_threshold:
        reason = f"{situation.failures} failures in a row"
        if situation.unread:
            reason += f", {situation.unread} of them decisions that could not be read; a larger model as decider may help"
        return GoalDecided("stuck", "rule", reason)
    is_last = situation.steps_left == 0
    is_clean = situation.failures == 0
    if is_last and is_clean and situation.quality == "good":
        return GoalDecided("summary", "rule", "every step is made, the last one well")
    repetition = find_repetition(situation.recent)
    if repetition:
        return GoalDecided("stuck", "rule", repetition)
    if situation.by_person:
        move: Move = "summary" if is_last else "continue"
        return GoalDecided(move, "person", "a person ordered the last step")
    if not is_last and is_clean:
        return GoalDecided("continue", "rule", "no failure, and steps are left")
    return None


def settle_reply(
    reply: DecisionReply, situation: Situation, bounds: Bounds
) -> GoalDecided:
    """Return what comes next after a model decided."""
    move, reason = _choose_move(reply, situation, bounds)
    return GoalDecided(move, "model", reason or reply.reason, reply.confidence)


def _choose_move(
    reply: DecisionReply, situation: Situation, bounds: Bounds
) -> tuple[Move, str]:
    """Return the move, and the reason where it is not the model's."""
    is_sure = (reply.confidence or 0.0) >= bounds.done_confidence
    match reply.action:
        case "done":
            if is_sure:
                return "done", ""
            return "repeat", f"done, but with low confidence: {reply.reason}"
        case "adjust":
            if is_sure and situation.adjusts + 1 >= bounds.max_adjusts:
                return "summary", f"a new plan was wanted {situation.adjusts + 1} times"
            return "adjust", ""
        case "ask_user" | "stuck":
            return reply.action, ""
        case "continue":
            return _continue(situation)


def _continue(situation: Situation) -> tuple[Move, str]:
    """Return the next step; one that failed is made again, and without steps left there is a summary."""
    if situation.quality in (None, "failed"):
        return "repeat", ""
    if situation.steps_left:
        return "continue", ""
    return "summary", "every step is made"


def find_repetition(recent: Sequence[str]) -> str:
    """Return in words how the last steps repeat themselves; empty if they do not."""
    if len(recent) >= 3 and len(set(recent[-3:])) == 1:
        return "the same step three times"
    last = recent[-4:]
    if len(last) == 4 and last[:2] == last[2:]:
        return "the same two steps twice, one after the other"
    return ""


def find_trend(scores: Sequence[float]) -> Trend | None:
    """Return where scores go: by the mean of the changes between them; `None` for fewer than two."""
    if len(scores) < 2:
        return None
    change = (scores[-1] - scores[0]) / (len(scores) - 1)
    if change > TREND:
        return "improving"
    return "DEGRADING" if change < -TREND else "stable"
