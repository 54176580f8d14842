"""What a run records of its follow-ups: work that is due once it has ended, each in a run of its own."""

import hashlib

from .._internal import dataclasses
from ..messages import JsonObject

FOLLOW_UP = "follow-up"
"""The engine of the runs that do follow-ups; no other engine or agent has this name."""
OWN_KNOWLEDGE = "knowledge"
"""The option of a follow-up's run that names the store of its agent, where that has one of its own."""
MAX_ID = 128


@dataclasses.dataclass(frozen=True)
class PlannedFollowUp:
    """A follow-up as a run records it when it begins.

    It is due if the run ends with one of the `statuses`. `options` are those of the follow-up; `opaque` names the ones
    that are code or live objects and cannot be rebuilt.
    """

    name: str
    options: JsonObject
    statuses: tuple[str, ...] = ("completed",)
    opaque: tuple[str, ...] = ()


def follow_up_id(run_id: str, name: str) -> str:
    """Return the id of the run that does a follow-up of a run: the same each time, so that it is done at most once."""
    id = f"{run_id}@after:{name}"
    if len(id) <= MAX_ID:
        return id
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:32]
    return f"run-{digest}@after:{name}"
