"""Hook: send back an answer that only announces what the model is about to do."""

import re

from ..parsing.promises import is_promise
from .base import Hook, Moment

COMPLETED = re.compile(
    r"\b(?:done|finished|completed?|here (?:is|are)|the answer is|in summary|result)\b",
    re.IGNORECASE,
)
INTENT = re.compile(r"\b(?:i'll|i\u2019ll|i will|let me|i am going to|i'm going to|next,? i)\b", re.IGNORECASE)  # fmt: skip
MAX_CHARS = 300
REMARK = "You say what you are going to do, and end there. Do it now with a tool, or give the final answer."


class PromiseCheck(Hook):
    """Sends a promise back, for engines with the stage `pre_output`.

    Args:
        max_asks: how often in a run.
    """

    name = "promise"
    version = "1"
    priority = 20

    def __init__(self, max_asks: int = 1) -> None:
        self.max_asks = max_asks

    def stage(self, at: Moment, name: str) -> str | None:
        """Return the remark for an answer that only promises."""
        if name != "pre_output" or not _promises(at.text):
            return None
        asked = int(str(at.state.get("asked", 0)))
        if asked >= self.max_asks:
            return None
        at.state["asked"] = asked + 1
        return REMARK


def _promises(text: str) -> bool:
    if is_promise(text):
        return True
    if len(text) > MAX_CHARS or text.rstrip().endswith("?"):
        return False
    return INTENT.search(text) is not None and COMPLETED.search(text) is None
