"""Hook: send an answer back that leaves out a part of a task with several parts."""

import re

from .base import Hook, Moment

_ITEM = re.compile(r"^[ \t]*(?:\d+[.)]|[-*])[ \t]+(\S.*)$", re.MULTILINE)
_QUESTION = re.compile(r"[^.?!\n]{8,400}\?")
_WORD = re.compile(r"[^\W_]{4,}")
STEM = 5
"""Letters by which words are compared."""
MAX_PARTS = 12
COMMON = frozenset(
    """about also answer could does each every explain find from give have here into list many much name only please shall
    should show some tell than that their them then there they this those what when where which will with would write
    your""".split()  # noqa: SIM905 - a list would be a page
)


class CompletionCheck(Hook):
    """Looks for each part of a list, or each of several questions, in the answer; once in a run.

    A part counts as answered if the answer holds one of its words. For engines with the stage `pre_output`.
    """

    name = "completion-check"
    version = "1"
    priority = 20

    def stage(self, at: Moment, name: str) -> str | None:
        """Return which parts are missing."""
        if name != "pre_output" or at.state.get("asked"):
            return None
        missing = find_missing(at.task, at.text)
        if not missing:
            return None
        at.state["asked"] = True
        listed = "\n".join(f"- {part}" for part in missing)
        return f"The answer says nothing about this:\n{listed}\nAdd it, or say why it cannot be answered."


def find_missing(task: str, answer: str) -> list[str]:
    """Return the parts of a task that share no word with an answer; of a task with one part, nothing."""
    parts = _ITEM.findall(task) or _QUESTION.findall(task)
    if not 2 <= len(parts) <= MAX_PARTS:
        return []
    stems = _read_stems(answer)
    return [part.strip() for part in parts if not _is_answered(part, stems)]


def _is_answered(part: str, stems: set[str]) -> bool:
    wanted = _read_stems(part)
    return not wanted or bool(wanted & stems)


def _read_stems(text: str) -> set[str]:
    words = (word.lower() for word in _WORD.findall(text))
    return {word[:STEM] for word in words if word not in COMMON}
