"""Quirks: the differences between endpoints for Chat Completions, one record for each known endpoint."""

import ipaddress
from typing import Literal
from urllib.parse import urlsplit

from ..._internal import dataclasses
from ...attachments import AttachmentKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quirks:
    """How an endpoint for Chat Completions differs from others; the defaults fit an unknown endpoint.

    Args:
        max_tokens_field: the name of the field for `Sampling.max_tokens`.
        native_tools: it accepts tool schemas and returns calls.
        json_schema: it accepts `response_format` with a JSON schema.
        schema_with_tools: it also does so in a request that offers tools. Many that constrain the tokens of a reply
            refuse it, or make no call then.
        strict_schema: it accepts `strict` in that schema.
        any_root: it accepts a schema of anything; without it, a choice between objects is sent as one object.
        stop: it accepts stop sequences.
        parallel_tool_calls: sent with the tools, unless it is `None`. llama.cpp makes several calls in one turn only if
            this is `True`.
        tool_choice_none: it obeys `tool_choice: "none"`; if not, a request for an answer is sent without tools.
        one_system_message: it accepts a system message at the beginning only, as many chat templates do; several are
            joined there.
        stream_usage: it accepts `stream_options: {"include_usage": true}`. Mistral and some gateways refuse it; without
            it the usage of most streams is unknown, and the runtime estimates it.
        attachments: the kinds that it accepts. Text documents are sent as text to every endpoint.
        fetches_images: it fetches images that are given by URL.
        user_after_tool: it takes a user's message right behind a tool's result. For Mistral, which does not, an
            assistant's "OK." comes between.
        send_reasoning: the form of reasoning to send back with the next request; with `None` that is
            `reasoning_details`, to the host and account that sent it.
        call_ids: the ids of calls that it takes, of another model's too: "any", "short" ones of at most 40 characters
            (OpenAI), or those of exactly "nine" letters and digits (Mistral). Another is replaced by a digest of it.
        effort: how `Sampling.effort` is sent: in the field `reasoning_effort`, in an object `reasoning`, or not at all.
        top_k: it accepts `Sampling.top_k`.
        max_samples: how many replies it gives to one request (`n`).
        context_tokens: the context that it serves: "model" is that of the model, as far as its name tells, a number
            that of a server which was started with less, and `None` is unknown.
        key_variable: the environment variable that holds its API key.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    native_tools: bool = True
    json_schema: bool = False
    schema_with_tools: bool = False
    strict_schema: bool = True
    any_root: bool = False
    stop: bool = True
    parallel_tool_calls: bool | None = None
    tool_choice_none: bool = True
    one_system_message: bool = False
    stream_usage: bool = False
    attachments: frozenset[AttachmentKind] = frozenset({"image"})
    fetches_images: bool = True
    user_after_tool: bool = True
    send_reasoning: (
        Literal["reasoning", "reasoning_content", "reasoning_details"] | None
    ) = None
    call_ids: Literal["any", "short", "nine"] = "any"
    effort: Literal["reasoning_effort", "reasoning"] | None = "reasoning_effort"
    top_k: bool = True
    max_samples: int = 1
    context_tokens: int | Literal["model"] | None = "model"
    key_variable: str = "OPENAI_API_KEY"

    @classmethod
    def guess(cls, base_url: str) -> "Quirks":
        """Return the known quirks of the endpoint behind a URL, by its host or, on this machine, by its usual port."""
        try:
            place = urlsplit(base_url)
            host, port = place.hostname or "", place.port
        except ValueError:
            return DEFAULT  # the transport reports what is wrong with the URL
        if not _is_this_machine(host):
            return BY_HOST.get(host, DEFAULT)
        return LOCAL if port is None else BY_PORT.get(port, LOCAL)


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


BOTH: frozenset[AttachmentKind] = frozenset({"image", "document"})

DEFAULT = Quirks()
OPENAI = Quirks(
    max_tokens_field="max_completion_tokens",
    json_schema=True,
    schema_with_tools=True,
    stream_usage=True,
    attachments=BOTH,
    call_ids="short",
    top_k=False,
    max_samples=128,
)
OPENROUTER = Quirks(
    effort="reasoning",
    stream_usage=True,
    attachments=BOTH,
    send_reasoning="reasoning_details",
    key_variable="OPENROUTER_API_KEY",
)
# Common to those below. Most of them serve less of a model's context than it has, as they were started, and do not say
# how much: Ollama 4,096 tokens on a small machine, and it drops what is longer without an error.
LOCAL = Quirks(json_schema=True, any_root=True, stream_usage=True, context_tokens=None)
VLLM = dataclasses.replace(
    LOCAL,
    one_system_message=True,
    max_samples=128,
    context_tokens="model",
    key_variable="VLLM_API_KEY",
)
LLAMACPP = dataclasses.replace(
    LOCAL,
    one_system_message=True,
    parallel_tool_calls=True,
    key_variable="LLAMACPP_API_KEY",
)
OLLAMA = dataclasses.replace(
    LOCAL,
    one_system_message=True,
    tool_choice_none=False,
    fetches_images=False,
    key_variable="OLLAMA_API_KEY",
)
LMSTUDIO = dataclasses.replace(
    LOCAL,
    one_system_message=True,
    fetches_images=False,
    key_variable="LMSTUDIO_API_KEY",
)

HOSTED = Quirks(stream_usage=True)  # common to those below
GROQ = dataclasses.replace(
    HOSTED, max_tokens_field="max_completion_tokens", key_variable="GROQ_API_KEY"
)
MISTRAL = Quirks(
    json_schema=True,
    effort=None,
    user_after_tool=False,
    call_ids="nine",
    max_samples=8,
    key_variable="MISTRAL_API_KEY",
)
DEEPSEEK = dataclasses.replace(
    HOSTED,
    send_reasoning="reasoning_content",
    effort=None,
    top_k=False,
    attachments=frozenset(),
    key_variable="DEEPSEEK_API_KEY",
)
XAI = dataclasses.replace(
    HOSTED, json_schema=True, top_k=False, key_variable="XAI_API_KEY"
)
TOGETHER = dataclasses.replace(
    HOSTED, json_schema=True, max_samples=128, key_variable="TOGETHER_API_KEY"
)
FIREWORKS = dataclasses.replace(
    HOSTED, json_schema=True, max_samples=128, key_variable="FIREWORKS_API_KEY"
)
CEREBRAS = dataclasses.replace(
    HOSTED,
    max_tokens_field="max_completion_tokens",
    json_schema=True,
    send_reasoning="reasoning",
    top_k=False,
    key_variable="CEREBRAS_API_KEY",
)

BY_HOST = {
    "api.openai.com": OPENAI,
    "openrouter.ai": OPENROUTER,
    "api.groq.com": GROQ,
    "api.mistral.ai": MISTRAL,
    "api.deepseek.com": DEEPSEEK,
    "api.x.ai": XAI,
    "api.together.xyz": TOGETHER,
    "api.fireworks.ai": FIREWORKS,
    "api.cerebras.ai": CEREBRAS,
}
BY_PORT = {11434: OLLAMA, 1234: LMSTUDIO, 8080: LLAMACPP, 8000: VLLM}
