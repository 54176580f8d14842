"""Endpoints by name, so that "ollama:qwen3" is a provider: each but OpenAI's own is an `OpenAIProvider` with its quirks.

The environment variable `<NAME>_BASE_URL` overrides the base URL, and `<NAME>_API_KEY` holds the API key. None of these
endpoints receives the key of OpenAI.
"""

import os
from urllib.parse import urlsplit

from ...errors import ConfigError
from .provider import DEFAULT_URL, OpenAIProvider
from .quirks import (
    CEREBRAS,
    DEEPSEEK,
    FIREWORKS,
    GROQ,
    LLAMACPP,
    LMSTUDIO,
    MISTRAL,
    OLLAMA,
    OPENROUTER,
    TOGETHER,
    VLLM,
    XAI,
    Quirks,
)
from .responses.provider import URL_VARIABLE, OpenAIResponsesProvider

OLLAMA_PORT = 11434
LISTENING_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - a server listens there, but a client cannot call it


def openai(model: str = "") -> OpenAIProvider | OpenAIResponsesProvider:
    """Return a model of OpenAI by the Responses API, or of the endpoint at OPENAI_BASE_URL by Chat Completions."""
    url = os.environ.get(URL_VARIABLE, "").strip().rstrip("/")
    if url in ("", DEFAULT_URL):
        return OpenAIResponsesProvider.from_env(model or None)
    return OpenAIProvider.from_env(model or None)


def openrouter(model: str = "") -> OpenAIProvider:
    """Return a model at OpenRouter: "openrouter:qwen/qwen3-32b"; raise `ConfigError` without OPENROUTER_API_KEY."""
    return _build_hosted(
        "openrouter", model, "https://openrouter.ai/api/v1", OPENROUTER
    )


def ollama(model: str = "") -> OpenAIProvider:
    """Return a model of Ollama, at OLLAMA_HOST or on this machine: "ollama:qwen3"."""
    return _build_provider(
        "ollama", model, build_ollama_url(os.environ.get("OLLAMA_HOST", "")), OLLAMA
    )


def vllm(model: str = "") -> OpenAIProvider:
    """Return a model that vLLM serves on this machine: "vllm:Qwen/Qwen3-8B"."""
    return _build_provider("vllm", model, "http://localhost:8000/v1", VLLM)


def llamacpp(model: str = "") -> OpenAIProvider:
    """Return the model that llama-server serves on this machine: "llamacpp:any-name"; it ignores the name."""
    return _build_provider("llamacpp", model, "http://localhost:8080/v1", LLAMACPP)


def lmstudio(model: str = "") -> OpenAIProvider:
    """Return a model of LM Studio on this machine: "lmstudio:qwen/qwen3-8b"."""
    return _build_provider("lmstudio", model, "http://localhost:1234/v1", LMSTUDIO)


def groq(model: str = "") -> OpenAIProvider:
    """Return a model at Groq: "groq:openai/gpt-oss-120b"; raise `ConfigError` without GROQ_API_KEY."""
    return _build_hosted("groq", model, "https://api.groq.com/openai/v1", GROQ)


def mistral(model: str = "") -> OpenAIProvider:
    """Return a model of Mistral: "mistral:mistral-large-latest"; raise `ConfigError` without MISTRAL_API_KEY."""
    return _build_hosted("mistral", model, "https://api.mistral.ai/v1", MISTRAL)


def deepseek(model: str = "") -> OpenAIProvider:
    """Return a model of DeepSeek: "deepseek:deepseek-chat"; raise `ConfigError` without DEEPSEEK_API_KEY."""
    return _build_hosted("deepseek", model, "https://api.deepseek.com/v1", DEEPSEEK)


def xai(model: str = "") -> OpenAIProvider:
    """Return a model of xAI: "xai:grok-4"; raise `ConfigError` without XAI_API_KEY."""
    return _build_hosted("xai", model, "https://api.x.ai/v1", XAI)


def together(model: str = "") -> OpenAIProvider:
    """Return a model at Together: "together:Qwen/Qwen3-235B-A22B"; raise `ConfigError` without TOGETHER_API_KEY."""
    return _build_hosted("together", model, "https://api.together.xyz/v1", TOGETHER)


def fireworks(model: str = "") -> OpenAIProvider:
    """Return a model at Fireworks: "fireworks:accounts/fireworks/models/qwen3-32b"; raise `ConfigError` without a key."""
    return _build_hosted(
        "fireworks", model, "https://api.fireworks.ai/inference/v1", FIREWORKS
    )


def cerebras(model: str = "") -> OpenAIProvider:
    """Return a model at Cerebras: "cerebras:gpt-oss-120b"; raise `ConfigError` without CEREBRAS_API_KEY."""
    return _build_hosted("cerebras", model, "https://api.cerebras.ai/v1", CEREBRAS)


def build_ollama_url(host: str) -> str:
    """Return the base URL for OLLAMA_HOST, which may be empty, a host, "host:port" or a URL.

    Raises:
        ConfigError: it is none of these.
    """
    given = host.strip().strip("\"'")
    scheme, separator, rest = given.partition("://")
    usual_port = {"https": 443, "http": 80}.get(scheme, OLLAMA_PORT)
    if not separator:
        scheme, rest, usual_port = "http", given, OLLAMA_PORT
    try:
        url = urlsplit(f"{scheme}://{rest}")
        name, port = url.hostname or "", url.port or usual_port
    except ValueError as error:
        raise ConfigError(
            f"OLLAMA_HOST: {given!r}: {error}: give a host, host:port or URL"
        ) from None
    address = LISTENING_ADDRESSES.get(name, name)
    if ":" in address:
        address = f"[{address}]"
    return f"{scheme}://{address}:{port}{url.path.rstrip('/')}/v1"


def _build_hosted(name: str, model: str, usual: str, quirks: Quirks) -> OpenAIProvider:
    """Return a model at a service that requires a key."""
    if model.strip() and not os.environ.get(quirks.key_variable, "").strip():
        raise ConfigError(f"api_key: {name} requires one; set {quirks.key_variable}")
    return _build_provider(name, model, usual, quirks)


def _build_provider(
    name: str, model: str, usual: str, quirks: Quirks
) -> OpenAIProvider:
    if not model.strip():
        raise ConfigError(f'model: missing; write "{name}:MODEL"')
    url = os.environ.get(f"{name.upper()}_BASE_URL", "").strip() or usual
    return OpenAIProvider(
        model,
        base_url=url,
        api_key=os.environ.get(quirks.key_variable, ""),
        quirks=quirks,
    )
