"""Hook: tell a model that it edits one file again and again, only searches, or looks for its own words."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..messages import Conversation, Message, ToolCall
from .base import Before, Hook, ModelQuestion, Moment

FILE_ARGUMENTS = ("path", "file", "filename", "file_path", "filepath")
QUERY_ARGUMENTS = ("query", "q", "search", "question")
READS = re.compile(r"read|list|search|look|get|find|fetch|show|stat|open|view|grep|cat\b", re.IGNORECASE)  # fmt: skip
SEARCHES = re.compile(r"search|look_?up|find|query|browse|google|wiki", re.IGNORECASE)
MIN_QUOTED = 20
"""Characters of a query that is compared with what the model wrote."""


class LoopDetection(Hook):
    """Looks at the calls of a conversation before each model call, and says what repeats; it keeps nothing.

    Args:
        edits: how often a file may be edited before the model is told.
        searches: how many turns in a row may do nothing but search.
    """

    name = "loop-detection"
    version = "1"
    priority = 12

    def __init__(self, edits: int = 5, searches: int = 3) -> None:
        self.edits, self.searches = edits, searches

    def before_model(self, at: Moment, asked: ModelQuestion) -> Before | None:
        """Say what repeats, where the newest calls are a part of it."""
        turns = [one for one in asked.conversation if one.calls]
        if not turns or not _is_newest(turns[-1], asked.conversation):
            return None
        found = (*self._find_edits(turns), *self._find_searches(turns, asked.conversation))  # fmt: skip
        return Before(messages=found) if found else None

    def _find_edits(self, turns: Sequence[Message]) -> Iterator[str]:
        counts = Counter(_list_edits(turns))
        for path in dict.fromkeys(_list_edits(turns[-1:])):
            if counts[path] >= self.edits:
                yield (
                    f"You have edited {path} {counts[path]} times. Stop and read it as a whole; then make one change "
                    "that is right, or say what is in the way."
                )

    def _find_searches(
        self, turns: Sequence[Message], conversation: Conversation
    ) -> Iterator[str]:
        recent = turns[-self.searches :]
        is_full = len(recent) == self.searches
        if is_full and all(SEARCHES.search(call.name) for call in _list_calls(recent)):
            yield (
                f"The last {self.searches} rounds only searched. Use what was found, or answer with what you know."
            )
        written = [one.content for one in conversation if one.role == "assistant"]
        for call in turns[-1].calls:
            query = _find_argument(call, QUERY_ARGUMENTS)
            if len(query) >= MIN_QUOTED and any(query in text for text in written):
                yield "You look for your own words. Search for what you do not know yet."


def _is_newest(turn: Message, conversation: Conversation) -> bool:
    """Whether nothing was said since a turn with calls but their results."""
    after = conversation.messages[::-1]
    spoken = next((one for one in after if one.role == "assistant"), None)
    return spoken is turn


def _list_calls(turns: Sequence[Message]) -> Iterator[ToolCall]:
    for turn in turns:
        yield from turn.calls


def _list_edits(turns: Sequence[Message]) -> Iterator[str]:
    for call in _list_calls(turns):
        path = _find_argument(call, FILE_ARGUMENTS)
        if path and not READS.search(call.name):
            yield path


def _find_argument(call: ToolCall, names: Sequence[str]) -> str:
    found = (call.arguments.get(name) for name in names)
    return next((text for text in found if isinstance(text, str)), "")
