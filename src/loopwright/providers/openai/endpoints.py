"""Endpoints by name, so that "ollama:qwen3" is a provider: each but OpenAI's own is an `OpenAIProvider` with its quirks.

The environment variable `<NAME>_BASE_URL` overrides the base URL, `<NAME>_API_KEY` holds the API key, and `<NAME>_MODEL`
the model of a name without one. None of these endpoints receives the key of OpenAI.
"""

import os
from typing import Unpack
from urllib.parse import urlsplit

from ..._internal import dataclasses
from ...errors import ConfigError
from ..settings import EndpointOptions, find_model
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
OLLAMA_CONTEXT_VARIABLE = "OLLAMA_CONTEXT_LENGTH"
LISTENING_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - a server listens there, but a client cannot call it


def openai(
    model: str = "", **options: Unpack[EndpointOptions]
) -> OpenAIProvider | OpenAIResponsesProvider:
    """Return a model of OpenAI by the Responses API, or of the endpoint at OPENAI_BASE_URL by Chat Completions."""
    url = options.get("base_url") or os.environ.get(URL_VARIABLE, "")
    if url.strip().rstrip("/") in ("", DEFAULT_URL):
        return OpenAIResponsesProvider.from_env(model or None, **options)
    return OpenAIProvider.from_env(model or None, **options)


def openrouter(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model at OpenRouter: "openrouter:qwen/qwen3-32b"; raise `ConfigError` without OPENROUTER_API_KEY."""
    return _build_hosted(
        "openrouter", model, "https://openrouter.ai/api/v1", OPENROUTER, **options
    )


def ollama(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model of Ollama, at OLLAMA_HOST or on this machine: "ollama:qwen3".

    It serves OLLAMA_CONTEXT_LENGTH tokens, the variable that the server reads too; without it, that is unknown.
    """
    url = build_ollama_url(os.environ.get("OLLAMA_HOST", ""))
    quirks = dataclasses.replace(OLLAMA, context_tokens=_read_ollama_context())
    return _build_provider("ollama", model, url, quirks, **options)


def vllm(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model that vLLM serves on this machine: "vllm:Qwen/Qwen3-8B"."""
    return _build_provider("vllm", model, "http://localhost:8000/v1", VLLM, **options)


def llamacpp(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return the model that llama-server serves on this machine: "llamacpp:any-name"; it ignores the name."""
    return _build_provider(
        "llamacpp", model, "http://localhost:8080/v1", LLAMACPP, **options
    )


def lmstudio(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model of LM Studio on this machine: "lmstudio:qwen/qwen3-8b"."""
    return _build_provider(
        "lmstudio", model, "http://localhost:1234/v1", LMSTUDIO, **options
    )


def groq(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model at Groq: "groq:openai/gpt-oss-120b"; raise `ConfigError` without GROQ_API_KEY."""
    return _build_hosted(
        "groq", model, "https://api.groq.com/openai/v1", GROQ, **options
    )


def mistral(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model of Mistral: "mistral:mistral-large-latest"; raise `ConfigError` without MISTRAL_API_KEY."""
    return _build_hosted(
        "mistral", model, "https://api.mistral.ai/v1", MISTRAL, **options
    )


def deepseek(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model of DeepSeek: "deepseek:deepseek-chat"; raise `ConfigError` without DEEPSEEK_API_KEY."""
    return _build_hosted(
        "deepseek", model, "https://api.deepseek.com/v1", DEEPSEEK, **options
    )


def xai(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model of xAI: "xai:grok-4"; raise `ConfigError` without XAI_API_KEY."""
    return _build_hosted("xai", model, "https://api.x.ai/v1", XAI, **options)


def together(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model at Together: "together:Qwen/Qwen3-235B-A22B"; raise `ConfigError` without TOGETHER_API_KEY."""
    return _build_hosted(
        "together", model, "https://api.together.xyz/v1", TOGETHER, **options
    )


def fireworks(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model at Fireworks: "fireworks:accounts/fireworks/models/qwen3-32b"; raise `ConfigError` without a key."""
    return _build_hosted(
        "fireworks",
        model,
        "https://api.fireworks.ai/inference/v1",
        FIREWORKS,
        **options,
    )


def cerebras(model: str = "", **options: Unpack[EndpointOptions]) -> OpenAIProvider:
    """Return a model at Cerebras: "cerebras:gpt-oss-120b"; raise `ConfigError` without CEREBRAS_API_KEY."""
    return _build_hosted(
        "cerebras", model, "https://api.cerebras.ai/v1", CEREBRAS, **options
    )


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


def _read_ollama_context() -> int | None:
    given = os.environ.get(OLLAMA_CONTEXT_VARIABLE, "").strip()
    if not given:
        return None
    if not given.isascii() or not given.isdecimal():
        raise ConfigError(
            f"{OLLAMA_CONTEXT_VARIABLE}: must be a number of tokens, got {given!r}; correct it"
        )
    return int(given) or None  # 0 leaves it to the server


def _build_hosted(
    name: str,
    model: str,
    usual: str,
    quirks: Quirks,
    **options: Unpack[EndpointOptions],
) -> OpenAIProvider:
    """Return a model at a service that requires a key."""
    model = find_model(name, model)
    key = options.get("api_key") or os.environ.get(quirks.key_variable, "").strip()
    if not key:
        raise ConfigError(f"api_key: {name} requires one; set {quirks.key_variable}")
    return _build_provider(name, model, usual, quirks, **options)


def _build_provider(
    name: str,
    model: str,
    usual: str,
    quirks: Quirks,
    **options: Unpack[EndpointOptions],
) -> OpenAIProvider:
    usual = os.environ.get(f"{name.upper()}_BASE_URL", "").strip() or usual
    return OpenAIProvider(
        find_model(name, model),
        base_url=options.get("base_url") or usual,
        api_key=options.get("api_key") or os.environ.get(quirks.key_variable, ""),
        sampling=options.get("sampling"),
        quirks=quirks,
    )
