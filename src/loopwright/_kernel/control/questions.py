"""The questions that a run asks people, read from its journal, and the bodies that answer them."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from ...errors import ConfigError
from ...events.effects import GateDecided
from ...events.entry import Entry
from ...events.run import Question, RunFinished, RunSuspended
from ...messages import JsonObject
from ...tools.resolution import CallCompleted, CallNotExecuted, Resolution
from ..durability.replay import Replay, last_event

ResolutionKind: TypeAlias = Literal["done", "not_done", "unknown"]


def open_questions(
    entries: Sequence[Entry], replay: Replay | None = None
) -> tuple[Question, ...]:
    """Return what a run wants decided; of a run at work, what its waiting branches do.

    `replay` is that of the entries, where the caller has read them already.
    """
    last = last_event(entries)
    if isinstance(last, RunFinished):
        return ()
    if isinstance(last, RunSuspended) and last.reason == "waiting":
        return last.pending  # what it asked before may be decided
    replay = replay or Replay(entries)
    approvals = replay.approvals
    asked = [
        _current_question(key, decision, replay)
        for key, decision in approvals.open_approvals().items()
    ]
    asked += [approvals.questions[key] for key in approvals.question_entries]
    return tuple(known for known in asked if not replay.is_cancelled(known.key))


def _current_question(key: str, decision: GateDecided, replay: Replay) -> Question:
    """Return the question as the run asked it when it was suspended, unless it asks another now.

    A run that was not suspended since has it as a decision alone, and its arguments as proposed.
    """
    proposed = replay.effects.proposed(key)
    arguments: JsonObject = {} if proposed is None else proposed.arguments
    question = build_question(key, decision, arguments)
    asked = replay.approvals.questions.get(key, question)
    return asked if _subject(asked) == _subject(question) else question


def _subject(question: Question) -> tuple[str, str, float]:
    """Return which arguments a question is about, under which policy, and for how long."""
    return question.arguments_hash, question.policy_version, question.expires


def build_question(key: str, known: GateDecided, proposed: JsonObject) -> Question:
    """Return the question that a decision asks; `proposed` are the call's arguments.

    They are not shown if it asks about others.
    """
    arguments = proposed if known.arguments is None else known.arguments
    return Question(
        key, known.reason, known.tool, arguments, known.call_id, "approval",
        known.arguments_hash, known.policy_version, known.until,
    )  # fmt: skip


def choose_question(
    questions: Iterable[Question], key: str | None, run_id: str
) -> Question:
    """Return the question with that key, or the only one; raise `ConfigError` naming those there are."""
    asked = list(questions)
    found = [known for known in asked if key in (None, known.key)]
    if len(found) == 1:
        return found[0]
    raise ConfigError(f"question: run {run_id!r} {_describe_asked(asked, key)}")


def _describe_asked(asked: list[Question], key: str | None) -> str:
    """Say that a run does not ask one question with that key, and what it does ask."""
    problem = f"does not ask {key!r}"
    if key is None:
        problem = "asks more than one question" if asked else "asks nothing"
    keys = ", ".join(repr(known.key) for known in asked)
    return f"{problem}; it asks {keys}" if asked else f"{problem} of the kind"


def build_resolve_body(
    run_id: str, entries: Sequence[Entry], key: str, resolution: Resolution
) -> JsonObject:
    """Return the body of the command that resolves a call, bound to the question about it.

    Raise `ConfigError` if the run does not ask about that call.
    """
    asked = Replay(entries).approvals.question_entries
    if key not in asked:
        about = ", ".join(map(repr, asked)) or "no call"
        raise ConfigError(
            f"key: run {run_id!r} does not ask about the outcome of {key!r}; it asks about {about}"
        )
    verdict, result = name_resolution(resolution)
    return {
        "key": key,
        "question": asked[key],
        "verdict": verdict,
        "result": result,
    }


def name_resolution(resolution: Resolution) -> tuple[ResolutionKind, str]:
    """Return how a journal names a resolution, and the result that it has."""
    if isinstance(resolution, CallCompleted):
        return "done", resolution.result
    if isinstance(resolution, CallNotExecuted):
        return "not_done", ""
    return "unknown", ""
