"""Well-known endpoints by name, so that "ollama:qwen3" is a provider: each is an `OpenAIProvider` with its quirks.

A base URL is overridden by the environment variable `<NAME>_BASE_URL`, and an API key is read from `<NAME>_API_KEY`;
the key of OpenAI is sent to none of them.
"""

import os
from urllib.parse import urlsplit

from ...errors import ConfigError
from .provider import OpenAIProvider
from .quirks import LLAMACPP, LMSTUDIO, OLLAMA, OPENROUTER, VLLM, Quirks

OLLAMA_PORT = 11434
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where a server listens is no place to call


def openrouter(model: str = "") -> OpenAIProvider:
    """A model at OpenRouter: "openrouter:qwen/qwen3-32b". Raises `ConfigError` without OPENROUTER_API_KEY."""
    if model.strip() and not os.environ.get(OPENROUTER.key_variable, "").strip():
        raise ConfigError(
            f"api_key: OpenRouter wants one: set {OPENROUTER.key_variable}"
        )
    return _provider("openrouter", model, "https://openrouter.ai/api/v1", OPENROUTER)


def ollama(model: str = "") -> OpenAIProvider:
    """A model of Ollama: "ollama:qwen3", at OLLAMA_HOST or on this machine."""
    return _provider(
        "ollama", model, ollama_url(os.environ.get("OLLAMA_HOST", "")), OLLAMA
    )


def vllm(model: str = "") -> OpenAIProvider:
    """A model that vLLM serves on this machine: "vllm:Qwen/Qwen3-8B"."""
    return _provider("vllm", model, "http://localhost:8000/v1", VLLM)


def llamacpp(model: str = "") -> OpenAIProvider:
    """A model that llama-server serves on this machine: "llamacpp:any-name"; it has one model and reads no name."""
    return _provider("llamacpp", model, "http://localhost:8080/v1", LLAMACPP)


def lmstudio(model: str = "") -> OpenAIProvider:
    """A model of LM Studio on this machine: "lmstudio:qwen/qwen3-8b"."""
    return _provider("lmstudio", model, "http://localhost:1234/v1", LMSTUDIO)


def ollama_url(host: str) -> str:
    """The base URL that OLLAMA_HOST means: "", "host", "host:port" or a URL. Raises `ConfigError` if it means none."""
    given = host.strip().strip("\"'")
    scheme, is_url, rest = given.partition("://")
    if not is_url:
        scheme, rest = "http", given
    try:
        place = urlsplit(f"{scheme}://{rest}")
        name = place.hostname or ""
        port = place.port or {"https": 443, "http": 80}.get(
            scheme if is_url else "", OLLAMA_PORT
        )
    except ValueError as error:
        raise ConfigError(
            f"OLLAMA_HOST: {given!r}: {error}: give a host, host:port or URL"
        ) from None
    name = ANYWHERE.get(name, name)
    shown = f"[{name}]" if ":" in name else name
    return f"{scheme}://{shown}:{port}{place.path.rstrip('/')}/v1"


def _provider(name: str, model: str, usual: str, quirks: Quirks) -> OpenAIProvider:
    if not model.strip():
        raise ConfigError(f'model: name one: write "{name}:MODEL"')
    url = os.environ.get(f"{name.upper()}_BASE_URL", "").strip() or usual
    return OpenAIProvider(
        model,
        base_url=url,
        api_key=os.environ.get(quirks.key_variable, ""),
        quirks=quirks,
    )
