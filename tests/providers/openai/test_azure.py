"""OpenAI's models on Azure: addresses, versions, deployments, keys and tokens; and services by name."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from loopwright.compose import load
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
        chosen = {"endpoint": ENDPOINT, "client": client, **options}
        provider = build("mine-gpt-5", **chosen)
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
        (AzureOpenAIProvider, "preview", f"{ENDPOINT}/openai/v1/responses?api-version=preview"),
        (AzureChatProvider, "v1", f"{ENDPOINT}/openai/v1/chat/completions"),
        (AzureChatProvider, "preview", f"{ENDPOINT}/openai/v1/chat/completions?api-version=preview"),
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


V1, DATED = "/openai/v1/responses", "/openai/responses?api-version=2025-04-01-preview"


@pytest.mark.parametrize(
    ("shown", "path"),
    [
        ("/", V1),
        ("/openai", V1),
        ("/openai/v1/", V1),
        ("/openai/v1/responses", V1),
        ("/openai/v1/chat/completions", V1),
        ("/openai/responses?api-version=2025-04-01-preview", DATED),
        ("/openai/deployments/d/chat/completions?api-version=2025-04-01-preview", DATED),
        ("/models-of-mine/openai/v1", f"/models-of-mine{V1}"),
    ],
)  # fmt: skip
async def test_address_that_the_portal_shows_is_that_of_its_resource(
    shown: str, path: str
) -> None:
    request = await ask(AzureOpenAIProvider, endpoint=ENDPOINT + shown, api_key=KEY)
    assert str(request.url) == ENDPOINT + path


@pytest.mark.parametrize("build", [AzureOpenAIProvider, AzureChatProvider])
def test_deployments_of_a_resource_are_other_sources_of_opaque_data(build: Any) -> None:
    def find_source(deployment: str, **options: Any) -> str:
        source: str = build(deployment, endpoint=ENDPOINT, **options).source
        return source

    with_key = {name: find_source(name, api_key=KEY) for name in ("one", "two")}
    by_token = {
        name: find_source(name, token=lambda: "entra") for name in ("one", "two")
    }

    assert len({*with_key.values(), *by_token.values()}) == 4
    assert with_key["one"] == find_source("one", api_key=KEY, api_version="preview")
    assert not any(KEY in source for source in with_key.values())


@pytest.mark.parametrize("build", [AzureOpenAIProvider, AzureChatProvider])
def test_model_of_a_deployment_says_what_it_takes(build: Any) -> None:
    def describe(deployment: str, model: str | None = None) -> Any:
        options = {"endpoint": ENDPOINT, "api_key": KEY, "model": model}
        able = build(deployment, **options).capabilities
        return able.context_tokens, able.max_output_tokens, able.images

    assert describe("mine") == (None, None, True)
    assert describe("mine", "gpt-4.1") == (1_047_576, 32_768, True)
    assert describe("gpt-4.1-of-mine", "o3-mini") == (200_000, 100_000, False)


def test_file_of_agents_has_the_options_of_azure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_KEY", KEY)
    path = tmp_path / "agents.toml"
    table = (
        'model = "mine"\napi_key = "env:AZURE_KEY"\napi_version = "preview"\n'
        f'deployed_model = "gpt-4.1"\nbase_url = "{ENDPOINT}"\n'
    )
    path.write_text(
        f'[runtime]\nprovider = "a"\n[providers.a]\nprovider = "azure-chat"\n{table}'
        f'[providers.b]\nprovider = "azure"\n{table}[engines.e]\nengine = "react"\n'
        '[engines.p]\nengine = "plan-execute"\nplanner = "b"\n'
    )
    providers = load(path).runtime.providers

    for name in ("a", "b"):
        assert f"{ENDPOINT}/openai/v1" in repr(providers[name])
        assert providers[name].capabilities.context_tokens == 1_047_576


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
        ({"api_key": KEY, "endpoint": "ftp://mine"}, "endpoint: must be the address"),
        (
            {"api_key": KEY, "endpoint": f"{ENDPOINT}?key=x"},
            r"endpoint: takes no query but api-version, got \['key'\]",
        ),
        (
            {"api_key": KEY, "endpoint": ENDPOINT, "api_version": "24-10-21"},
            "api_version: must be a date such as 2024-10-21, preview or v1, got '24-10-21'",
        ),
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
    assert isinstance(build_provider("azure-chat:mine"), AzureChatProvider)
    for name in ("azure", "azure-chat"):
        with pytest.raises(ConfigError, match="deployment: missing"):
            build_provider(name)


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
