"""Ask the model what to do next, and deliver what people and the runtime have to say."""

import dataclasses
from typing import TypedDict

from ...errors import Unreadable
from ...messages import Completion, Conversation, Message, Proposal
from ...parsing.promises import is_promise
from ...providers.base import Sampling
from .cycle import Cycle
from .inference import Asked, Question, Reply
from .overrides import make_overrides

ACT = "You said what you are going to do, and called no tool. Call it now, or give the final answer."
CUT = "The reply reached the limit of output tokens and was cut. Say it more briefly."
ANSWERING = ("", "reason")
"""The purposes of a question that the run's answer may be the reply to."""
MAX_REPAIRS = 3  # how often in a row an unreadable reply goes back to the model


class ReasonOptions(TypedDict, total=False):
    """The options of a question about what to do next."""

    tools: bool
    """Whether the model may call tools; without it, it may only answer."""
    sampling: Sampling
    """The settings of the call."""
    provider: str | None
    """The name of one of `Runtime(providers=...)`; the run's own model by default."""
    purpose: str
    """What the call is for, in a word."""


async def reason(cycle: Cycle, question: Question) -> Proposal:
    """Return the model's proposal; an unreadable reply goes back to it with the reason."""
    question = expect_output(cycle, question)
    conversation = question.conversation
    await cycle.renew_tools()
    cycle.keep(conversation)
    asked = conversation
    delivered: tuple[Message, ...] = ()
    problem: str | None = None
    may_promise = cycle.session.revision >= 1 and question.tools
    for _ in range(1 + MAX_REPAIRS):
        again = dataclasses.replace(question, conversation=asked)
        reply = await settle(cycle, again)
        delivered += reply.delivered
        completion = reply.completion
        problem = completion.problem or (CUT if completion.is_cut else None)
        asked = asked.add(*reply.delivered)
        if may_promise and _is_only_promise(completion, problem):
            may_promise = False
            to_act = _ask_again(asked, completion, ACT)
            again = dataclasses.replace(question, conversation=to_act)
            problem = ACT if _is_asked_to_act(cycle, again) else None
        if problem is None:
            if completion.answer is not None:
                cycle.keep(conversation.add(*delivered))
            return cycle.issue_proposal(reply.key, completion, delivered)
        asked = _ask_again(asked, completion, problem)
    raise Unreadable(
        f"the model's replies could not be read {1 + MAX_REPAIRS} times running, last: {problem}"
    )


def _ask_again(
    asked: Conversation, completion: Completion, problem: str
) -> Conversation:
    """Return a conversation with a reply that does not do, and why it does not."""
    unreadable = Message(
        "assistant", completion.text, origin="model", reasoning=completion.reasoning
    )
    return asked.add(unreadable).user(problem, origin="runtime")


def _is_only_promise(completion: Completion, problem: str | None) -> bool:
    return problem is None and is_promise(completion.answer or "")


def _is_asked_to_act(cycle: Cycle, question: Question) -> bool:
    """Whether a model that promised to call a tool is asked to do so: as recorded, else where it has tools."""
    was_asked = cycle.inference.was_asked(cycle.scope.upcoming(), question)
    return len(cycle.services.tools) > 0 if was_asked is None else was_asked


def expect_output(cycle: Cycle, question: Question) -> Question:
    """Return a question whose answer is the engine's, with the schema of the output that its caller wants.

    A branch and a call for a purpose of its own ask for something else.
    """
    scope, session = cycle.scope, cycle.session
    schema = session.answer_schema if scope.is_root else scope.answer_schema
    if schema is None or question.purpose not in ANSWERING:
        return question
    return dataclasses.replace(question, into=schema.name, schema=schema)


async def settle(cycle: Cycle, question: Question) -> Reply:
    """Return the reply to a question of the engine, and count it as the engine's own.

    Calls that people ordered are made first. Their texts, and the nudges of the
    runtime, are delivered with the question.
    """
    asked = await deliver(cycle, question)
    scope = cycle.scope
    reply = await cycle.inference.settle(
        scope.next_key(), question, asked.delivered, scope.iteration, asked.commands
    )
    scope.delivered = max((scope.delivered, *reply.commands))
    scope.engine_usage.add_reply(reply.completion)
    return reply


async def deliver(cycle: Cycle, question: Question) -> Asked:
    """Return a question with what people and the runtime have to say, once the calls that they ordered are made."""
    scope, session = cycle.scope, cycle.session
    if session.command_log.commands or not session.is_new:
        await make_overrides(cycle, question.verb)
    guidance: tuple[Message, ...] = ()
    commands: tuple[int, ...] = ()
    if session.command_log.last > scope.delivered:
        guidance, commands = session.command_log.guidance_after(scope.delivered)
    nudges, scope.nudges = scope.nudges, []
    return Asked(question, (*nudges, *guidance), scope.iteration, commands)
