"""What OpenTelemetry calls things: the GenAI semantic conventions for entries, and `loopwright.*` for what they lack.

Source: github.com/open-telemetry/semantic-conventions-genai, status "development".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from pydantic_core import to_json

from ..events.control import CommandReceived, Declassified, RunContinued
from ..events.effects import (
    BreakerChanged,
    CallDeadLettered,
    ChildFinished,
    ModelReplied,
    ModelRequested,
    RecoveryTriggered,
    ToolFinished,
    UndoBegun,
    UndoFinished,
    UnknownOutcomeResolved,
)
from ..events.entry import Event
from ..events.run import RunFinished, RunStarted
from ..messages import Completion, JsonObject, Message, Reasoning, ToolCall, Usage
from .span_tracker import Activity

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
}  # the end of a host name, and who is behind it; the last one has no name in the conventions
SAMPLING = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "stop": "gen_ai.request.stop_sequences",
    "seed": "gen_ai.request.seed",
}


def provider_attributes(name: str) -> Attributes:
    """Who serves a model; a provider that goes by its host is named by who is behind it, with address and port."""
    host, port = _host(name)
    if not host:
        return {"gen_ai.provider.name": name} if name else {}
    behind = next(
        (who for end, who in HOSTS.items() if host == end or host.endswith(f".{end}")),
        "",
    )
    port = port or (443 if behind else 0)  # the scheme of any other is not told
    found: Attributes = {"gen_ai.provider.name": behind or host, "server.address": host}
    return {**found, "server.port": port} if port else found


def _host(name: str) -> tuple[str, int]:
    """Host and port in a provider's name: `localhost:8080`, `[::1]`, `openrouter.ai`; no host if it is none."""
    host, _, port = name.rpartition(":")
    if not (host and port.isascii() and port.isdigit()):
        host, port = name, ""
    if (
        not port
        and "." not in host
        and not host.startswith("[")
        and host != "localhost"
    ):
        return "", 0
    return host.strip("[]"), int(port or 0)


def operation(activity: Activity) -> str:
    """The name of an operation, as metrics and spans have it."""
    return {
        "agent": "invoke_agent",
        "model": "chat",
        "tool": "execute_tool",
        "effect": "effect",
    }[activity.kind]


def model_attributes(activity: Activity) -> Attributes:
    """Which model is asked, and of whom: few values, fit for metrics."""
    request = activity.intent
    if not isinstance(request, ModelRequested):
        return {"gen_ai.operation.name": "chat"}
    asked: Attributes = {"gen_ai.request.model": request.model} if request.model else {}
    return {
        "gen_ai.operation.name": "chat",
        **provider_attributes(request.provider),
        **asked,
    }


def request_attributes(request: ModelRequested) -> Attributes:
    """How the model is asked, and what for."""
    found: Attributes = {}
    for name, value in request.sampling.items():
        if name == "stop" and isinstance(value, list):
            found[SAMPLING[name]] = [str(one) for one in value]
        elif name in SAMPLING and isinstance(value, (int, float)):
            found[SAMPLING[name]] = value
    if request.purpose:
        found["loopwright.purpose"] = request.purpose
    return {
        **found,
        "loopwright.verb": request.verb,
        "loopwright.iteration": request.iteration,
    }


def reply_attributes(completion: Completion) -> Attributes:
    """What the model replied with, but not what it said."""
    found: Attributes = {"gen_ai.response.finish_reasons": [completion.finish_reason]}
    if completion.model:
        found["gen_ai.response.model"] = completion.model
    return {**found, **usage_attributes(completion.usage)}


def usage_attributes(usage: Usage) -> Attributes:
    """Tokens and their cost; what is not known is left out."""
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


def tool_attributes(activity: Activity) -> Attributes:
    """Which tool runs: few values, fit for metrics."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": activity.name,
        "gen_ai.tool.type": "function",
    }


def agent_attributes(activity: Activity) -> Attributes:
    """Which engine is at work: few values, fit for metrics."""
    named: Attributes = {"gen_ai.agent.name": activity.name} if activity.name else {}
    return {"gen_ai.operation.name": "invoke_agent", **named}


def ending_attributes(outcome: Event | None) -> Attributes:
    """How an engine ended."""
    if not isinstance(outcome, (RunFinished, ChildFinished)):
        return {}
    return {
        "loopwright.status": outcome.status,
        "loopwright.stop_reason": outcome.stop_reason,
        "loopwright.iterations": outcome.iterations,
    }


def recovery_labels(
    event: RecoveryTriggered | UnknownOutcomeResolved | CallDeadLettered | UndoFinished,
) -> Attributes:
    """What became of a call that failed, was in doubt or is undone: few values, fit for metrics."""
    tool: Attributes = {
        "gen_ai.tool.name": event.tool
    }  # one that there is: only what was let through comes so far
    match event:
        case RecoveryTriggered():
            return {**tool, "loopwright.recovery.strategy": event.strategy}
        case UnknownOutcomeResolved():
            return {
                **tool,
                "loopwright.doubt.by": event.by,
                "loopwright.doubt.verdict": event.verdict,
            }
        case CallDeadLettered():
            return {**tool, "loopwright.recovery.queue": event.queue}
        case UndoFinished():
            return {**tool, "loopwright.tool.status": event.status}


def recovery_attributes(
    event: RecoveryTriggered
    | UnknownOutcomeResolved
    | CallDeadLettered
    | UndoBegun
    | UndoFinished,
    *,
    content: bool,
) -> Attributes:
    """The same for an event of a span; with the texts if they are asked for."""
    if isinstance(event, UndoBegun):
        ending: Attributes = {
            "loopwright.status": event.status,
            "loopwright.stop_reason": event.stop_reason,
        }
        return {**ending, "loopwright.undo.calls": len(event.calls)}
    found = {**recovery_labels(event), "gen_ai.tool.call.id": event.call_id}
    match event:
        case RecoveryTriggered():
            found["loopwright.tool.status"] = event.status
            found["loopwright.recovery.attempt"] = event.attempt
            found["loopwright.delay"] = event.delay
            text = {"exception.message": event.error}
        case UnknownOutcomeResolved():
            text = {"gen_ai.tool.call.result": event.result} if event.result else {}
        case CallDeadLettered():
            found["loopwright.tool.status"] = event.status
            text = {
                "gen_ai.tool.call.arguments": _json(event.arguments),
                "exception.message": event.error,
            }
        case UndoFinished():
            text = {"gen_ai.tool.call.result": event.content}
    return {**found, **text} if content else found


def change_attributes(
    event: CommandReceived | RunContinued | Declassified | BreakerChanged,
) -> Attributes:
    """What a person said, without the words, and what changed in the run as a whole."""
    match event:
        case BreakerChanged():
            return {
                "loopwright.breaker.name": event.name,
                "loopwright.breaker.before": event.before,
                "loopwright.breaker.after": event.after,
            }
        case CommandReceived():
            return {
                "loopwright.command": event.command,
                "loopwright.command.number": event.number,
            }
        case RunContinued():
            return {"loopwright.paused": event.lasted}
        case Declassified():
            return {
                "loopwright.label": event.label,
                "loopwright.command.number": event.command,
            }


# --- content, which is left out unless it is asked for ---


def opening_content(activity: Activity) -> Attributes:
    """What an engine is asked, or what a tool is given."""
    if isinstance(activity.intent, RunStarted):
        messages = activity.intent.messages
        system = [
            {"type": "text", "content": one.content}
            for one in messages
            if one.role == "system"
        ]
        asked = [_message(one) for one in messages if one.role != "system"]
        return {
            **({"gen_ai.system_instructions": _json(system)} if system else {}),
            "gen_ai.input.messages": _json(asked),
        }
    if activity.kind == "tool" and activity.arguments is not None:
        return {"gen_ai.tool.call.arguments": _json(activity.arguments)}
    return {}


def outcome_content(outcome: Event | None) -> Attributes:
    """What a model said, a tool returned, or an engine answered."""
    match outcome:
        case ModelReplied():
            said = outcome.completion
            parts = [
                *_reasoning(said.reasoning),
                *_text(said.text or said.answer or ""),
                *_calls(said.calls),
            ]
            return _output(parts, said.finish_reason)
        case ToolFinished():
            return {"gen_ai.tool.call.result": outcome.content}
        case RunFinished() | ChildFinished() if outcome.answer is not None:
            return _output(_text(outcome.answer), "stop")
        case _:
            return {}


def _output(parts: Sequence[JsonObject], finish_reason: str) -> Attributes:
    message = {"role": "assistant", "parts": parts, "finish_reason": finish_reason}
    return {"gen_ai.output.messages": _json([message])}


def _message(message: Message) -> JsonObject:
    if message.role == "tool":
        parts: list[JsonObject] = [
            {
                "type": "tool_call_response",
                "id": message.call_id,
                "result": message.content,
            }
        ]
    else:
        attached = [
            {"type": one.kind, "mime_type": one.media_type, "name": one.name}
            for one in message.attachments
        ]
        parts = [
            *attached,
            *_reasoning(message.reasoning),
            *_text(message.content),
            *_calls(message.calls),
        ]
    return {"role": message.role, "parts": parts}  # type: ignore[dict-item]


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
