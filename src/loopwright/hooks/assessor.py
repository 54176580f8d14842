"""Hook: assess the task before the first model call of a run, and tell the model what follows."""

from ..parsing.assessment import Assessment, assess
from .base import Before, Hook, ModelQuestion, Moment

ADVICE = {
    "ask_first": "Ask the user before you do anything ({reason}).",
    "delegate": "Hand parts of this to other agents where a tool does that ({agents}).",
    "parallelize": "The parts of this do not need each other: call the tools for all of them in one turn.",
    "plan_with_rollback": "Write a plan first, and how each step is undone if a later one fails.",
}


class Assessor(Hook):
    """Gives an engine that has no assessment of its own one as advice; it is recorded in the state of the hook.

    `TurnEngine` assesses by itself, and acts on it.

    Args:
        escalate: whether to ask first about a task that would be done at once with a confidence below 0.35.
    """

    name = "assessor"
    version = "1"
    priority = 5

    def __init__(self, escalate: bool = True) -> None:
        self.escalate = escalate

    def before_model(self, at: Moment, asked: ModelQuestion) -> Before | None:
        """Advise the model at the first call."""
        if at.state.get("decision"):
            return None
        before = asked.conversation.messages[:-1]
        has_context = any(one.role == "assistant" for one in before)
        task = asked.conversation.task
        found = assess(task, asked.tools, context=has_context, escalate=self.escalate)
        at.state.update(decision=found.decision, confidence=found.confidence)
        text = _advise(found)
        return Before(messages=(text,)) if text else None


def _advise(found: Assessment) -> str:
    advice = ADVICE.get(found.decision, "")
    agents = ", ".join(found.agents) or "any"
    return advice.format(reason=found.reason, agents=agents)
