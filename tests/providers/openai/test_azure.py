"""OpenAI's models on Azure: addresses, versions, deployments, keys and tokens; and services by name."""

import json
from typing import Any

import httpx
import pytest

from loopwright.errors import ConfigError, ProviderError
from loopwright.messages import Conversation
from loopwright.plugins import build_provider
from loopwright.providers import (
    AzureChatProvider,
    AzureOpenAIProvider,
    OpenAIProvider,
    Request,
)

ENDPOINT = "https://mine.openai.azure.com"
KEY = "azure-key-123456"
ASKED = Request(Conversation.of("x"))
CHAT = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "hi", "annotations": []}],
}
RESPONSE = {"status": "completed", "output": [MESSAGE]}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AZURE_OPENAI_API_KEY",
        "AZURE_OPENAI_ENDPOINT",
        "OPENAI_API_VERSION",
        "AZURE_OPENAI_DEPLOYMENT",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-itself-123")


async def ask(build: Any, **options: Any) -> httpx.Request:
    """Return the one request that a call becomes."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(
            200, json=RESPONSE if "responses" in str(request.url) else CHAT
        )

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        provider = build("mine-gpt-5", endpoint=ENDPOINT, client=client, **options)
        reply = await provider.complete(ASKED)
    assert reply.answer == "hi"
    assert provider.name == "azure"
    [request] = asked
    return request


@pytest.mark.parametrize(
    ("build", "version", "url"),
    [
        (AzureOpenAIProvider, None, f"{ENDPOINT}/openai/v1/responses"),
        (AzureOpenAIProvider, "2025-04-01-preview", f"{ENDPOINT}/openai/responses?api-version=2025-04-01-preview"),
        (AzureChatProvider, None, f"{ENDPOINT}/openai/v1/chat/completions"),
        (
            AzureChatProvider, "2024-10-21",
            f"{ENDPOINT}/openai/deployments/mine-gpt-5/chat/completions?api-version=2024-10-21",
        ),
    ],
)  # fmt: skip
async def test_the_address_has_version_and_deployment(
    build: Any, version: str | None, url: str
) -> None:
    request = await ask(build, api_version=version, api_key=KEY)
    assert str(request.url) == url
    assert request.headers["api-key"] == KEY
    assert "authorization" not in request.headers
    assert json.loads(request.content)["model"] == "mine-gpt-5"


@pytest.mark.parametrize("build", [AzureOpenAIProvider, AzureChatProvider])
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_entra_token_is_fetched_for_each_request(
    build: Any, is_async: bool
) -> None:
    async def fetch() -> str:
        return "entra-token"

    request = await ask(build, token=fetch if is_async else lambda: "entra-token")
    assert request.headers["authorization"] == "Bearer entra-token"
    assert "api-key" not in request.headers


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (lambda: "two\r\nlines", "must return a token as text"),
        (lambda: None, "must return a token as text"),
        (lambda: 1 / 0, "the callback that was given raised ZeroDivisionError"),
    ],
)
async def test_a_callback_without_a_token_is_a_provider_error(
    token: Any, message: str
) -> None:
    provider = AzureOpenAIProvider("d", endpoint="http://127.0.0.1:9", token=token)
    with pytest.raises(ProviderError, match=message):
        await provider.complete(ASKED)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": ENDPOINT}, "api_key: missing; pass one or a token"),
        ({"api_key": KEY}, "endpoint: must be the address of a resource"),
        ({"api_key": KEY, "endpoint": "mine"}, "endpoint: must be the address"),
    ],
)
def test_what_is_missing_is_named(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AzureOpenAIProvider("d", **options)


def test_a_deployment_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", ENDPOINT)
    provider: Any = build_provider("azure:mine-gpt-5")
    assert (provider.name, provider.model, provider.secrets) == (
        "azure",
        "mine-gpt-5",
        (KEY,),
    )
    assert KEY not in repr(provider)
    with pytest.raises(ConfigError, match="deployment: missing"):
        build_provider("azure")


SERVICES = {
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
    "together": ("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "fireworks": ("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
}


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url, variable = SERVICES[name]
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(
        ConfigError, match=f"api_key: {name} requires one; set {variable}"
    ):
        build_provider(f"{name}:m")
    monkeypatch.setenv(variable, "service-key-123")
    provider: Any = build_provider(f"{name}:some/model")
    assert isinstance(provider, OpenAIProvider)
    assert (provider.model, provider.secrets) == ("some/model", ("service-key-123",))
    assert url in repr(provider)
    monkeypatch.setenv(f"{name.upper()}_BASE_URL", "http://127.0.0.1:9/v1")
    assert "127.0.0.1:9" in repr(build_provider(f"{name}:m"))
