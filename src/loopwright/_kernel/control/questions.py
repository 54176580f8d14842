"""What a run asks people, rebuilt from its journal, and the bodies of the commands that answer it."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from ...errors import ConfigError
from ...events.effects import GateDecided
from ...events.entry import Entry
from ...events.run import Question
from ...messages import JsonObject
from ...tools.resolution import CallCompleted, CallNotExecuted, Resolution
from ..durability.replay import Replay

Verdict: TypeAlias = Literal["done", "not_done", "unknown"]


def question_of(key: str, known: GateDecided, proposed: JsonObject) -> Question:
    """The question that a decision is; `proposed` are the call's arguments, unless it is about others."""
    arguments = proposed if known.arguments is None else known.arguments
    return Question(
        key, known.reason, known.tool, arguments, known.call_id, "approval",
        known.arguments_hash, known.policy_version, known.until,
    )  # fmt: skip


def resolve_body(
    run_id: str, entries: Sequence[Entry], key: str, resolution: Resolution
) -> JsonObject:
    """The body of a command that says what came of the call at `key`, bound to the question that is asked about it.

    Raises `ConfigError` if the run does not ask about that call.
    """
    asked = Replay(entries).approvals.question_entries
    if key not in asked:
        asks = (
            f"it asks about {', '.join(map(repr, asked))}"
            if asked
            else "it asks about no call"
        )
        raise ConfigError(
            f"key: run {run_id!r} does not ask what came of {key!r}; {asks}"
        )
    result = resolution.result if isinstance(resolution, CallCompleted) else ""
    return {
        "key": key,
        "question": asked[key],
        "verdict": verdict_of(resolution),
        "result": result,
    }


def verdict_of(resolution: Resolution) -> Verdict:
    return (
        "done"
        if isinstance(resolution, CallCompleted)
        else "not_done"
        if isinstance(resolution, CallNotExecuted)
        else "unknown"
    )
