"""Structured questions to a model: schema, strict reading, at most two repairs; never a default."""

import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ..._internal.options import explain
from ...errors import AskFailed, format_error
from ...messages import Completion, Conversation
from ...parsing import read_json_document
from ...parsing.thinking import strip_thinking
from ...providers.base import OutputSchema, Provider, Sampling
from .inference import Question, Reply

M = TypeVar("M", bound=BaseModel)
MAX_REPAIRS = 2
INSTRUCTION = (
    "Reply with one JSON value and nothing else. It must fit this JSON schema:\n"
)

Settle = Callable[[Question], Awaitable[Reply]]


def read_model(text: str, model: type[M]) -> M:
    """The model's instance in `text`: strict JSON, alone or in a code fence. Raises ValueError saying what is wrong."""
    value = read_json_document(text)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ValueError(explain(error, model.__name__)) from None
    except Exception as error:
        raise ValueError(
            f"{model.__name__} cannot be made of it: {format_error(error)}"
        ) from error


def _said(completion: Completion) -> str:
    """What a reply says, without the thinking in front of it."""
    return strip_thinking(
        completion.answer if completion.answer is not None else completion.text
    )


async def ask_text(
    settle: Settle,
    conversation: Conversation,
    sampling: Sampling,
    provider: Provider,
    purpose: str = "",
) -> str:
    """A model's plain reply. Plain text is never repaired: one that cannot be used, or was cut, raises `AskFailed`."""
    question = Question(
        "ask",
        conversation,
        into="str",
        sampling=sampling,
        provider=provider,
        purpose=purpose,
    )
    reply = await settle(question)
    completion = reply.completion
    text = _said(completion)
    cut = completion.is_cut
    problem = completion.problem or (
        "it called a tool instead of answering" if completion.calls else None
    )
    if problem is not None or cut:
        told = problem or "the reply reached the limit of output tokens"
        raise AskFailed(f"{provider.name}/{provider.model}: {told}", text=text, cut=cut)
    return text


async def ask_model(
    settle: Settle,
    conversation: Conversation,
    into: type[M],
    sampling: Sampling,
    provider: Provider,
    purpose: str = "",
) -> M:
    """A model's reply as `into`; each repair is an effect of its own. Raises `AskFailed` after the last."""
    schema = into.model_json_schema()
    native = provider.capabilities.json_schema
    if not native:
        conversation = conversation.user(
            INSTRUCTION + json.dumps(schema, ensure_ascii=False)
        )
    problem, text, cut = "", "", False
    for _ in range(1 + MAX_REPAIRS):
        output = OutputSchema(into.__name__, schema) if native else None
        question = Question(
            "ask", conversation, into=into.__name__, schema=output, sampling=sampling, provider=provider,
            purpose=purpose,
        )  # fmt: skip
        reply = await settle(question)
        completion = reply.completion
        text = _said(completion)
        cut = completion.is_cut
        try:
            if completion.problem is not None and not text:
                raise ValueError(completion.problem)
            return read_model(text, into)
        except ValueError as error:
            problem = str(error)
        conversation = conversation.add(*reply.delivered).assistant(text, origin="model").user(
            f"That cannot be used: {problem}. Reply with the corrected JSON and nothing else.", origin="runtime"
        )  # fmt: skip
    raise AskFailed(
        f"no valid {into.__name__} after {MAX_REPAIRS} repairs: {problem}",
        text=text,
        cut=cut,
    )
