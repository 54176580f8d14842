"""Redaction of what model calls send, for observers that are shown it."""

from typing import cast

from ..._internal import dataclasses
from ...messages import JsonObject, ToolSpec
from ...providers.base import Request
from .messages import redact_conversation
from .redactor import Redactor


def redact_request(redactor: Redactor, request: Request) -> Request:
    """Return the conversation and the tools of a request without secrets; `redacted` says whether it had any."""
    conversation = redact_conversation(redactor, request.conversation)
    tools = tuple(_redact_tool(redactor, one) for one in request.tools)
    is_clean = conversation is request.conversation and tools == request.tools
    return Request(
        conversation,
        tools,
        request.tool_choice,
        as_text=request.as_text,
        redacted=not is_clean,
        label=request.label,
    )


def _redact_tool(redactor: Redactor, tool: ToolSpec) -> ToolSpec:
    schema = cast("JsonObject", redactor.redact_value(tool.schema))
    description = redactor.redact_text(tool.description)
    return dataclasses.replace(tool, description=description, schema=schema)
