"""Structured questions to a model: schema, strict reading, at most two repairs; never a default."""

import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...errors import AskFailed
from ...messages import Completion, Conversation, JsonObject
from ...parsing.thinking import strip_thinking
from ...providers.base import OutputSchema, Provider, Sampling
from .inference import Question, Reply
from .output_type import OutputType

T = TypeVar("T")
MAX_REPAIRS = 2
BLANK_TEXT = "Your reply was empty. Reply with the text."
CUT_TEXT = "Your reply reached the limit of length and was cut. Write it again, whole and in fewer words."
INSTRUCTION = (
    "Reply with one JSON value and nothing else. It must fit this JSON schema:\n"
)

Settle = Callable[[Question], Awaitable[Reply]]


def _text_of(completion: Completion) -> str:
    """Return the text of a reply, without the thinking in front of it."""
    answer = completion.answer
    return strip_thinking(completion.text if answer is None else answer)


async def ask_text(
    settle: Settle,
    conversation: Conversation,
    sampling: Sampling,
    provider: Provider,
    purpose: str = "",
    again: bool = False,
    schema: JsonObject | None = None,
) -> str:
    """Return a model's plain reply; with `again` a blank or cut one is asked for once more.

    A provider that can holds it to a `schema`, which changes nothing about what is asked.
    Raises `AskFailed` for a reply that cannot be used, or was cut.
    """
    can_hold = schema is not None and provider.capabilities.json_schema
    output = OutputSchema(purpose or "reply", schema or {}) if can_hold else None
    question = Question(
        "ask", conversation, provider, into="str", schema=output, sampling=sampling, purpose=purpose
    )  # fmt: skip
    reply = await settle(question)
    completion = reply.completion
    text = _text_of(completion)
    is_usable = text.strip() != "" and not completion.is_cut
    if again and completion.problem is None and not is_usable:
        hint = CUT_TEXT if completion.is_cut else BLANK_TEXT
        replied = conversation.add(*reply.delivered).assistant(text, origin="model")
        asked = replied.user(hint, origin="runtime")
        return await ask_text(settle, asked, sampling, provider, purpose, schema=schema)
    problem = _find_problem(completion)
    if problem is not None:
        model = f"{provider.name}/{provider.model}"
        raise AskFailed(f"{model}: {problem}", text=text, cut=completion.is_cut)
    return text


def _find_problem(completion: Completion) -> str | None:
    """Return why a reply is not a text that can be used."""
    if completion.problem is not None:
        return completion.problem
    if completion.calls:
        return "it called a tool instead of answering"
    if completion.is_cut:
        return "the reply reached the limit of output tokens"
    return None


async def ask_model(
    settle: Settle,
    conversation: Conversation,
    into: OutputType[T],
    sampling: Sampling,
    provider: Provider,
    purpose: str = "",
) -> T:
    """Return a model's reply as `into`; raise `AskFailed` after the last repair."""
    value, _ = await ask_document(
        settle, conversation, into, sampling, provider, purpose
    )
    return value


async def ask_document(
    settle: Settle,
    conversation: Conversation,
    into: OutputType[T],
    sampling: Sampling,
    provider: Provider,
    purpose: str = "",
) -> tuple[T, str]:
    """Return a model's reply as `into`, and its text; each repair is a separate effect.

    Raises `AskFailed` after the last.
    """
    output: OutputSchema | None = None
    if provider.capabilities.json_schema:
        output = into.as_schema()
    else:
        encoded = json.dumps(into.schema, ensure_ascii=False)
        conversation = conversation.user(INSTRUCTION + encoded)
    problem, text, cut = "", "", False
    for _ in range(1 + MAX_REPAIRS):
        question = Question(
            "ask", conversation, provider, into=into.name, schema=output, sampling=sampling,
            purpose=purpose, read=into.read,
        )  # fmt: skip
        reply = await settle(question)
        text, cut = _text_of(reply.completion), reply.completion.is_cut
        try:
            return _read_reply(reply.completion, text, into), text
        except ValueError as error:
            problem = str(error)
        repair = f"That cannot be used: {problem}. Reply with the corrected JSON and nothing else."
        replied = conversation.add(*reply.delivered).assistant(text, origin="model")
        conversation = replied.user(repair, origin="runtime")
    raise AskFailed(
        f"no valid {into.name} after {MAX_REPAIRS} repairs: {problem}",
        text=text,
        cut=cut,
    )


def _read_reply(completion: Completion, text: str, into: OutputType[T]) -> T:
    if completion.problem is not None and not text:
        raise ValueError(completion.problem)
    return into.read(text)
