"""Hook: tell a model which tools have worked in its conversation so far, and which have not."""

import re
from collections.abc import Iterable

from ..messages import Message
from .base import Before, Hook, ModelQuestion, Moment

FAILED = re.compile(r"\[tool_result tool=\S+ status=(?!ok)")
"""How the result of a call begins that did not work, as `TurnEngine` writes it."""
MIN_USES = 3
"""Calls of a tool before anything is said of it."""


class ToolSelection(Hook):
    """Observes the results of calls, and then suggests the tools that work.

    The score of a tool is the share of its calls that worked, with one of each kind added. Failures are known by the heads
    that `TurnEngine` gives to results.

    Args:
        observe: how many results are observed before anything is suggested.
        suggest: the least score of a tool that is suggested, 0 to 1.
    """

    name = "tool-selection"
    version = "1"
    priority = 31

    def __init__(self, observe: int = 10, suggest: float = 0.6) -> None:
        if not 0 <= suggest <= 1:
            raise ValueError(f"suggest: must be from 0 to 1, got {suggest}")
        self.observe, self.suggest = observe, suggest

    def before_model(self, at: Moment, asked: ModelQuestion) -> Before | None:
        """Say which tools work, once that differs from the last time."""
        counts = count_results(asked.conversation)
        if sum(total for _, total in counts.values()) < self.observe:
            return None
        offered = {tool.name for tool in asked.tools}
        scores = {
            name: (worked + 1) / (total + 2)
            for name, (worked, total) in counts.items()
            if name in offered and total >= MIN_USES
        }
        good = sorted(name for name in scores if scores[name] >= self.suggest)
        bad = sorted(name for name in scores if scores[name] <= 1 - self.suggest)
        listed = f"{', '.join(good)}|{', '.join(bad)}"
        if not scores or listed == "|" or at.state.get("listed") == listed:
            return None
        at.state["listed"] = listed
        parts = [f"Tools that worked so far: {', '.join(good)}."] if good else []
        parts += [f"Tools that mostly failed: {', '.join(bad)}."] if bad else []
        return Before(messages=(" ".join(parts),))


def count_results(conversation: Iterable[Message]) -> dict[str, tuple[int, int]]:
    """Return how many calls of each tool worked, and how many there were."""
    names: dict[str, str] = {}
    counts: dict[str, tuple[int, int]] = {}
    for message in conversation:
        names.update((call.id, call.name) for call in message.calls)
        if message.role == "tool" and message.call_id in names:
            name = names[message.call_id]
            worked, total = counts.get(name, (0, 0))
            has_failed = FAILED.match(message.content) is not None
            counts[name] = worked + (not has_failed), total + 1
    return counts
