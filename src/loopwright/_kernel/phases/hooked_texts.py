"""Let hooks change texts: the reply of a model, the result of a tool, the answer of a run."""

import dataclasses
from collections.abc import Sequence

from ...hooks.base import about_purpose
from ...hooks.changes import find_check, find_purpose, read_text, replace_reply
from ...result import RunOutcome
from .cycle import Cycle
from .hooked_results import Check, change_text
from .human import ANSWERED
from .inference import Question, Reply


async def hook_reply(
    cycle: Cycle, question: Question, reply: Reply, keys: Sequence[str] = ()
) -> Reply:
    """Return a reply as hooks left it, and let watchers see it; `keys` are those of all replies to the question."""
    hooks, completion = cycle.hooks, reply.completion
    purpose = find_purpose(question.purpose, question.verb)
    text = read_text(completion)
    if text and hooks.select("after_model", purpose):
        is_over = any(has_used(cycle, key) for key in keys or (reply.key,))
        changed = await change_text(
            hooks,
            "after_model",
            reply.key,
            text,
            is_over,
            find_check(question.read, text),
            about_purpose(purpose),
        )
        if changed != text:
            reply = dataclasses.replace(
                reply, completion=replace_reply(completion, changed), is_changed=True
            )
    is_answer = completion.answer is not None and bool(hooks.select("before_answer"))
    cycle.session.held.speak(reply.key, reply.completion, reply.is_changed, is_answer)
    return reply


def has_used(cycle: Cycle, key: str) -> bool:
    """Whether the journal shows that the engine was given a reply."""
    scope, scopes = cycle.scope, cycle.session.replay.scopes
    if cycle.session.is_new:
        return False
    return scopes.has_begun("gate", key) or scope.has_gone_on()


async def hook_answer(
    cycle: Cycle,
    outcome: RunOutcome,
    check: Check | None = None,
    key: str = ANSWERED,
    hooks_around: tuple[str, ...] = (),
    is_over: bool = False,
) -> RunOutcome:
    """Return the outcome with the answer as hooks left it; those of the engine around are called at its own answer."""
    answer, hooks = outcome.answer, cycle.hooks
    if answer is None or outcome.is_paused or not hooks.select("before_answer"):
        return outcome
    if hooks_around:
        hooks = hooks.without(hooks_around)
    is_decided = cycle.session.replay.approvals.decision(key) is not None
    is_over = is_over or is_decided
    changed = await change_text(hooks, "before_answer", key, answer, is_over, check)
    return dataclasses.replace(outcome, answer=changed)
