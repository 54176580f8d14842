"""Attributes of OpenTelemetry: the GenAI semantic conventions, and `loopwright.*` where they have no name.

Source: github.com/open-telemetry/semantic-conventions-genai, status "development".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic_core import to_json

from ..events.describe import Field, fields_of
from ..events.effects import ChildFinished, ModelReplied, ModelRequested, ToolFinished
from ..events.entry import Event
from ..events.run import ErrorRecord, RunFinished, RunStarted
from ..messages import Completion, JsonObject, Message, Reasoning, ToolCall, Usage
from ..providers.base import Request
from .span_tracker import Activity, ActivityKind

Attribute: TypeAlias = str | int | float | bool | Sequence[str]
Attributes: TypeAlias = dict[str, Attribute]

HOSTS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "amazonaws.com": "aws.bedrock",
    "api.mistral.ai": "mistral_ai",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.perplexity.ai": "perplexity",
    "api.moonshot.ai": "moonshot_ai",
    "api.x.ai": "x_ai",
    "openrouter.ai": "openrouter",
}  # the company behind the end of a host name; the conventions have no name for the last one
SAMPLING = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "stop": "gen_ai.request.stop_sequences",
    "seed": "gen_ai.request.seed",
    "top_k": "gen_ai.request.top_k",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}


OPERATIONS: dict[ActivityKind, str] = {
    "agent": "invoke_agent",
    "model": "chat",
    "tool": "execute_tool",
    "effect": "effect",
}
"""The name of an operation in metrics and spans."""


def provider_attributes(name: str) -> Attributes:
    """Return who serves a model; a provider with the name of a host gets its address and its company's name too."""
    host, port = _split_host(name)
    if not host:
        return {"gen_ai.provider.name": name} if name else {}
    company = _find_company(host)
    if company and not port:
        port = 443  # the scheme of any other host is not known
    found: Attributes = {
        "gen_ai.provider.name": company or host,
        "server.address": host,
    }
    return {**found, "server.port": port} if port else found


def _find_company(host: str) -> str:
    for end, company in HOSTS.items():
        if host == end or host.endswith(f".{end}"):
            return company
    return ""


def _split_host(name: str) -> tuple[str, int]:
    """Return host and port in a provider's name: `localhost:8080`, `[::1]`, `openrouter.ai`; no host if it is none."""
    host, _, port = name.rpartition(":")
    if host and port.isascii() and port.isdigit():
        return host.strip("[]"), int(port)
    is_host = "." in name or name.startswith("[") or name == "localhost"
    return (name.strip("[]"), 0) if is_host else ("", 0)


def activity_attributes(activity: Activity) -> Attributes:
    """Return which model, tool or engine is at work: few values, fit for metrics."""
    found: Attributes = {"gen_ai.operation.name": OPERATIONS[activity.kind]}
    match activity.kind:
        case "model":
            return {**found, **_model_attributes(activity)}
        case "tool":
            tool: Attributes = {"gen_ai.tool.name": activity.name}
            return {**found, **tool, "gen_ai.tool.type": "function"}
        case "agent":
            name: Attributes = {"gen_ai.agent.name": activity.name}
            return {**found, **name} if activity.name else found
        case "effect":
            return {}


def _model_attributes(activity: Activity) -> Attributes:
    request = activity.intent
    if not isinstance(request, ModelRequested):
        return {}
    model: Attributes = {"gen_ai.request.model": request.model} if request.model else {}
    return {**provider_attributes(request.provider), **model}


def sampling_attributes(request: ModelRequested) -> Attributes:
    """Return the options of sampling that a model call is made with."""
    found: Attributes = {}
    for name, attribute in SAMPLING.items():
        value = request.sampling.get(name)
        if isinstance(value, list):
            found[attribute] = [*map(str, value)]
        elif isinstance(value, (int, float)):
            found[attribute] = value
    return found


def reply_attributes(completion: Completion) -> Attributes:
    """Return how a reply ended, which model made it and what it used, without its text."""
    found: Attributes = {"gen_ai.response.finish_reasons": [completion.finish_reason]}
    if completion.model:
        found["gen_ai.response.model"] = completion.model
    return {**found, **usage_attributes(completion.usage)}


def usage_attributes(usage: Usage) -> Attributes:
    """Return the tokens and their cost, as far as they are known."""
    found: Mapping[str, Attribute | None] = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "loopwright.cost": usage.cost,
        "loopwright.usage.estimated": True if usage.estimated else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def event_attributes(event: Event, *, content: bool, tool: str = "") -> Attributes:
    """Return what a trace shows of an event, by what its fields declare.

    Args:
        event: any event.
        content: whether what models, tools and people wrote is shown too.
        tool: stands for the name of a tool that a model may have invented.
    """
    traced = [field for field in fields_of(type(event)) if field.exposure.attribute]
    return _read_fields(event, traced, content=content, tool=tool)


def metric_attributes(event: Event, tool: str) -> Attributes:
    """Return the values of an event by which metrics are broken down: few values."""
    measured = [field for field in fields_of(type(event)) if field.exposure.metric]
    return _read_fields(event, measured, content=False, tool=tool)


def _read_fields(
    event: Event, fields: Iterable[Field], *, content: bool, tool: str
) -> Attributes:
    found: Attributes = {}
    for field in fields:
        found |= _read_field(field, getattr(event, field.name), content, tool)
    return found


def _read_field(field: Field, value: Any, content: bool, tool: str) -> Attributes:
    attribute, privacy = field.exposure.attribute, field.exposure.privacy
    if isinstance(value, ErrorRecord):
        text: Attributes = {"exception.message": value.message} if content else {}
        return {attribute: value.code, **text}
    if privacy == "tool_name":
        return {attribute: value if content else tool}
    is_hidden = privacy == "content" and not content
    if is_hidden or value in (None, "", {}):
        return {}
    return {attribute: _json(value) if _is_object(value) else value}


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


# --- content, which is left out unless it is asked for ---


def opening_content(activity: Activity) -> Attributes:
    """Return the messages that an engine is given, or the arguments of a tool."""
    if isinstance(activity.intent, RunStarted):
        return _read_task(activity.intent.messages)
    if activity.kind == "tool" and activity.arguments is not None:
        return {"gen_ai.tool.call.arguments": _json(activity.arguments)}
    return {}


def request_content(request: Request) -> Attributes:
    """Return what a model call sends: its messages, its instructions apart, and the tools that it offers."""
    found = _read_task(request.conversation.messages)
    tools = [
        {
            "type": "function",
            "name": one.name,
            "description": one.description,
            "parameters": one.schema,
        }
        for one in request.tools
    ]
    return {**found, "gen_ai.tool.definitions": _json(tools)} if tools else found


def _read_task(messages: Sequence[Message]) -> Attributes:
    system = [
        {"type": "text", "content": one.content}
        for one in messages
        if one.role == "system"
    ]
    asked = [_message(one) for one in messages if one.role != "system"]
    found: Attributes = {"gen_ai.input.messages": _json(asked)}
    if system:
        found["gen_ai.system_instructions"] = _json(system)
    return found


def outcome_content(outcome: Event) -> Attributes:
    """Return the text of a model, the result of a tool or the answer of an engine."""
    match outcome:
        case ModelReplied(reply):
            parts = [
                *_reasoning(reply.reasoning),
                *_text(reply.text or reply.answer or ""),
                *_calls(reply.calls),
            ]
            return _output(parts, reply.finish_reason)
        case ToolFinished():
            return {"gen_ai.tool.call.result": outcome.content}
        case RunFinished() | ChildFinished() if outcome.answer is not None:
            return _output(_text(outcome.answer), "stop")
        case _:
            return {}


def _output(parts: Sequence[JsonObject], finish_reason: str) -> Attributes:
    message = {"role": "assistant", "parts": parts, "finish_reason": finish_reason}
    return {"gen_ai.output.messages": _json([message])}


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        result = {"id": message.call_id, "result": message.content}
        parts = [{"type": "tool_call_response", **result}]
        return {"role": message.role, "parts": parts}
    attached: list[JsonObject] = [
        {"type": one.kind, "mime_type": one.media_type, "name": one.name}
        for one in message.attachments
    ]
    text = [*_reasoning(message.reasoning), *_text(message.content)]
    return {
        "role": message.role,
        "parts": [*attached, *text, *_calls(message.calls)],
    }


def _text(text: str) -> list[JsonObject]:
    return [{"type": "text", "content": text}] if text else []


def _reasoning(reasoning: Iterable[Reasoning]) -> list[JsonObject]:
    return [{"type": "reasoning", "content": one.text} for one in reasoning if one.text]


def _calls(calls: Iterable[ToolCall]) -> list[JsonObject]:
    return [
        {
            "type": "tool_call",
            "id": one.id,
            "name": one.name,
            "arguments": dict(one.arguments),
        }
        for one in calls
    ]


def _json(value: object) -> str:
    return to_json(value, fallback=str).decode()
