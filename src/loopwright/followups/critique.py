"""Critique: after a run, a model looks back at its answer, and then attacks it."""

from typing import ClassVar

from ..events.run import Status
from ..run import Run
from .base import EndedRun, FollowUp
from .reflection import Reflected, reflect


class Critique(FollowUp):
    """Notes what a model finds in the answer of a run, once in favour and once as its adversary, as facts `Reflected`.

    The facts are those of the follow-up's own run. `Memories(adversarial=True)` stores patterns of the same look.

    Args:
        reflection: whether the model first looks back at the answer; a call.
        adversarial: whether a second, hostile look assumes that it is wrong; a call.
    """

    name: ClassVar[str] = "critique"
    statuses: ClassVar[tuple[Status, ...]] = ("completed", "limit", "stuck")
    reflection: bool = True
    adversarial: bool = True

    async def follow(self, run: Run, ended: EndedRun) -> str:
        """Look back, and attack; return what was found in a line."""
        looks = [(False, self.reflection), (True, self.adversarial)]
        found = [
            _describe(await reflect(run, ended, hostile=hostile), hostile)
            for hostile, is_wanted in looks
            if is_wanted
        ]
        return "; ".join(found) or "nothing to do"


def _describe(reflected: Reflected | None, hostile: bool) -> str:
    look = "hostile" if hostile else "look back"
    if reflected is None:
        return f"{look}: unreadable"
    return f"{look}: quality {reflected.quality:g}, {len(reflected.issues)} issues"
