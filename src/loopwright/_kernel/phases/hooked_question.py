"""Let hooks change a model call before it is made: what is recorded of it is what they left."""

import dataclasses
from collections.abc import Sequence

from ...hooks.base import ModelQuestion, about_purpose
from ...hooks.changes import (
    BeforeReader,
    find_name,
    find_purpose,
    narrow_tools,
    read_change,
)
from ...messages import Json, Message
from ...security.spotlighting import fence
from ..session.session import Session
from .cycle import Cycle
from .inference import Question


async def hook_question(
    cycle: Cycle, key: str, question: Question, keys: Sequence[str] = ()
) -> tuple[Question, tuple[Message, ...]]:
    """Return a model call as hooks left it, and what they tell the model; a recorded one as it was made.

    Where it brings several replies, `keys` are those of all, and it is hooked at the first one.
    """
    hooks, purpose, session = (
        cycle.hooks,
        find_purpose(question.purpose, question.verb),
        cycle.session,
    )
    selected = hooks.select("before_model", purpose)
    is_held = hooks.select("after_model", purpose) or hooks.select("before_answer")
    if is_held:
        for held in keys or (key,):
            session.held.hold(held)
    if session.replay.effects.intent(key) is not None:
        for record in hooks.recorded(key, "before_model"):
            hooks.replay([record], None)
            question = _apply(cycle, question, record.changed)
        return question, ()
    if not selected:
        return question, ()
    await hooks.reach(key)
    services = cycle.services
    asked, tools = _describe(cycle, question), services.tools.specs
    take = BeforeReader(asked, tools, services.providers, hooks.clean)
    about = about_purpose(purpose)
    await hooks.run(selected, "before_model", key, asked, take, about)
    for change in take.changes:
        question = _apply(cycle, question, change)
    return question, tuple(build_message(session, text) for text in take.cut())


def _describe(cycle: Cycle, question: Question) -> ModelQuestion:
    tools = cycle.services.tools.specs if question.tools else ()
    name = find_name(cycle.services.providers, question.provider)
    return ModelQuestion(question.conversation, tools, name, question.sampling)


def _apply(cycle: Cycle, question: Question, recorded: Json) -> Question:
    """Return a model call with a change that is recorded, as far as it still can be."""
    change = read_change(recorded)
    provider = cycle.services.providers.get(change.provider or "", question.provider)
    sampling = question.sampling.override(change.sampling)
    offered = narrow_tools(question.offered, change.tools)
    return dataclasses.replace(
        question, provider=provider, sampling=sampling, offered=offered
    )


def build_message(session: Session, text: str) -> Message:
    """Return a text of a hook as a model reads it: data, as sensitive and untrusted as the run is."""
    read = session.sensitivity
    shown = fence(text, source="hook", delimiter=session.delimiter)
    label = read.classify(text, read.label)
    return Message("user", shown, origin="hook", label=label, untrusted=read.untrusted)
