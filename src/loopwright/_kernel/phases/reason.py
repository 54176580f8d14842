"""Ask the model what to do next, and deliver what people and the runtime have to say."""

from typing import TypedDict

from ..._internal import dataclasses
from ...errors import Unreadable
from ...messages import Completion, Conversation, Message, Proposal
from ...parsing.promises import is_promise
from ...providers.base import Sampling
from .cycle import Cycle
from .hooked_question import hook_question
from .hooked_texts import hook_reply
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
    if cycle.services.tools.has_sources:
        await cycle.renew_tools()
    cycle.keep(conversation)
    asked = conversation
    delivered: tuple[Message, ...] = ()
    problem: str | None = None
    may_act = question.tools and getattr(cycle.engine, "asks_to_act", True)
    may_promise = cycle.session.revision >= 1 and may_act
    for _ in range(1 + MAX_REPAIRS):
        again = dataclasses.replace(question, conversation=asked)
        reply = await settle(
            cycle, again, hooked=not delivered and asked is conversation
        )
        delivered += reply.delivered
        completion = reply.completion
        problem = completion.problem or (CUT if completion.is_cut else None)
        asked = asked.add(*reply.delivered)
        answer = None if problem else completion.answer
        if may_promise and answer and is_promise(answer):
            may_promise = False
            to_act = _ask_again(asked, completion, ACT)
            again = dataclasses.replace(question, conversation=to_act)
            problem = ACT if _is_asked_to_act(cycle, again) else None
        if problem is None:
            if not cycle.hooks.is_empty:
                reply = await hook_reply(cycle, question, reply)
            completion = reply.completion
            if completion.answer is not None:
                cycle.keep(conversation.add(*delivered))
            return cycle.issue_proposal(
                reply.key, completion, delivered, is_changed=reply.is_changed
            )
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
    read = session.read_answer if scope.is_root else None
    return dataclasses.replace(question, into=schema.name, schema=schema, read=read)


async def settle(cycle: Cycle, question: Question, *, hooked: bool = True) -> Reply:
    """Return the reply to a question of the engine, and count it as the engine's own.

    Hooks look at it first if it is `hooked`, and at the reply unless it belongs to a `reason`, which lets them do so
    once it can be read.

    Calls that people ordered are made first. Their texts, and the nudges of the
    runtime, are delivered with the question.
    """
    asked = await deliver(cycle, question)
    scope, may_hook = cycle.scope, hooked and not cycle.hooks.is_empty
    is_hooked = may_hook and question.verb != "best_answer"
    key, delivered = scope.next_key(), asked.delivered
    if is_hooked:
        question, messages = await hook_question(cycle, key, question)
        delivered = (*messages, *delivered)
    reply = await cycle.inference.settle(
        key, question, delivered, scope.iteration, asked.commands
    )
    scope.delivered = max((scope.delivered, *reply.commands))
    scope.engine_usage.add_reply(reply.completion)
    if is_hooked and question.verb == "ask":
        return await hook_reply(cycle, question, reply)
    return reply


async def deliver(cycle: Cycle, question: Question) -> Asked:
    """Return a question with what people and the runtime have to say, once the calls that they ordered are made."""
    scope, session = cycle.scope, cycle.session
    if session.command_log.commands or not session.is_new:
        await make_overrides(cycle, question.verb)
    guidance: tuple[Message, ...] = ()
    commands: tuple[int, ...] = ()
    if session.command_log.last > scope.delivered:
        guidance, commands = session.command_log.guidance_after(
            scope.delivered, scope.received
        )
    nudges, scope.nudges = scope.nudges, []
    return Asked(question, (*nudges, *guidance), scope.iteration, commands)
