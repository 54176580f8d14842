"""Write what a model is always told once something is left out: its task, plan, open approvals and failed approaches."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from ...events.effect_key import EffectKey
from ...events.effects import FactNoted
from ...messages import Json, Message, canonical_json
from ...security.spotlighting import fence
from ..session.session import Session

HEADING = "[What to keep in mind, since earlier messages are left out]"
MAX_TASK = 300
"""Characters of the task."""
MAX_LINE = 200
MAX_FAILURES = 5
MAX_FACTS = 200
"""How many of the newest facts are looked through."""
PLAN, LESSON = "Plan", "Reflection"
"""The names of the facts that are a plan, and what was learnt of a failure."""


def write_pinned_block(
    session: Session, path: str, shown: Sequence[Message], limit: int
) -> Message:
    """Return the block for the model calls of a scope; `shown` are the messages beside it, `limit` is in characters.

    It is as sensitive, and as little trusted, as what the run has read.
    """
    asked = (m for m in reversed(shown) if m.role == "user" and m.origin == "caller")
    task = next((" ".join(one.content.split())[:MAX_TASK] for one in asked), "")
    head = [HEADING, f"task: {task}"] if task else [HEADING]
    body = "\n".join(_list_lines(session, path))[:limit]
    read = session.sensitivity
    if body and read.untrusted:
        body = fence(body, source="this run", delimiter=session.delimiter)
    text = "\n".join([*head, body] if body else head)
    return Message(
        "user", text, origin="runtime", label=read.label, untrusted=read.untrusted
    )


def _list_lines(session: Session, path: str) -> Iterator[str]:
    facts = dict[str, FactNoted]()
    for key, fact in itertools.islice(reversed(session.facts.items()), MAX_FACTS):
        if fact.name in (PLAN, LESSON) and EffectKey.parse(key).is_inside(path):
            facts.setdefault(fact.name, fact)
    if PLAN in facts:
        yield f"plan: {'; '.join(_list_steps(facts[PLAN].value))}"
    for question in session.pending:
        asked = canonical_json(dict(question.arguments)).decode()
        yield f"waiting for a decision: {question.tool}({asked[:MAX_LINE]})"
    if LESSON in facts:
        yield f"lesson: {_shorten(facts[LESSON].value)}"
    for failure in session.failures.list_newest(MAX_FAILURES):
        yield f"failed: {failure.tool}: {failure.text}"


def _list_steps(plan: Json) -> Iterable[str]:
    """Return the steps of a plan, each in a line; a plan of another form as it is."""
    steps = plan.get("steps") if isinstance(plan, dict) else None
    if not isinstance(steps, list):
        return [_shorten(plan)]
    return map(_shorten, steps)


def _shorten(value: Json) -> str:
    """Return a value in a line; of a step, what is to be done."""
    if isinstance(value, dict):
        goal, tool = value.get("goal") or value.get("text"), value.get("tool")
        value = goal or (f"{tool}({value.get('arguments', '')})" if tool else value)
    text = value if isinstance(value, str) else canonical_json(value).decode()
    return " ".join(text.split())[:MAX_LINE]
