"""The contract of providers, kept by those of clouds and services by name over real connections to one server."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.providers.gemini.test_contract import candidate
from tests.providers.gemini.test_contract import reply_to as reply_by_gemini
from tests.providers.gemini.test_contract import stream as stream_by_gemini
from tests.providers.openai.responses.test_contract import (
    reply_to as reply_by_responses,
)
from tests.providers.openai.responses.test_contract import stream as stream_responses
from tests.providers.openai.test_contract import reply_to as reply_by_chat
from tests.providers.openai.test_contract import streamed as stream_chat

from loopback_api import EVENTS, JSON, ApiHandler, serving
from loopwright import ReActEngine, Runtime, tool
from loopwright.errors import ProviderError
from loopwright.messages import Conversation
from loopwright.plugins import build_provider
from loopwright.providers import (
    AzureChatProvider,
    AzureOpenAIProvider,
    GeminiProvider,
    Provider,
    Request,
)
from loopwright.testing import ProviderContract

KEY, TOKEN = "cloud-key-0123456789", "fresh-token-0123456789"
SERVICES = ("groq", "mistral", "deepseek", "xai", "together", "fireworks", "cerebras")
PROJECT = "/v1/projects/mine/locations/europe-west1/publishers/google"


class Cloud(ApiHandler):
    """Speaks the API of each path to who shows its key or token; other requests are refused, and their key is echoed."""

    def answer(self, body: bytes) -> tuple[int, str, bytes]:
        place = urlsplit(self.path)
        if not self._is_allowed(place.path):
            shown = f"{self.headers['api-key']} {self.headers['authorization']}"
            failure = {"error": {"message": f"access denied for {shown}"}}
            return 401, JSON, json.dumps(failure).encode()
        answer = self._choose(place.path, parse_qs(place.query))
        return 200, *answer(json.loads(body), place.path)

    def _is_allowed(self, path: str) -> bool:
        if path.startswith("/openai") and self.headers["api-key"] is not None:
            return self.headers["api-key"] == KEY
        is_service = path.startswith("/service")
        wanted = f"Bearer {KEY if is_service else TOKEN}"
        return self.headers["authorization"] == wanted

    def _choose(self, path: str, query: dict[str, list[str]]) -> Callable[..., Any]:
        if path.startswith(PROJECT):
            return answer_gemini
        if path == "/openai/v1/responses":
            return answer_responses
        is_deployment = path == "/openai/deployments/mine/chat/completions"
        if is_deployment and query == {"api-version": ["2024-10-21"]}:
            return answer_chat
        return answer_chat if path.endswith("/v1/chat/completions") else answer_nothing


def answer_chat(asked: Any, _: str) -> tuple[str, bytes]:
    reply = reply_by_chat(asked)
    if asked.get("stream"):
        return EVENTS, b"".join(stream_chat(reply))
    return JSON, json.dumps(reply).encode()


def answer_responses(asked: Any, _: str) -> tuple[str, bytes]:
    reply = reply_by_responses(asked)
    if asked.get("stream"):
        return EVENTS, b"".join(stream_responses(reply))
    return JSON, json.dumps(reply).encode()


def answer_gemini(asked: Any, path: str) -> tuple[str, bytes]:
    parts = reply_by_gemini(asked)
    if "streamGenerateContent" in path:
        return EVENTS, b"".join(stream_by_gemini(parts))
    return JSON, json.dumps(candidate(parts)).encode()


def answer_nothing(_: Any, path: str) -> tuple[str, bytes]:
    return "text/html", f"<html>nothing at {path}</html>".encode()


@pytest.fixture(scope="module", autouse=True)
def cloud() -> Iterator[None]:
    with serving(Cloud) as url:
        AtCloud.url = url
        yield


async def fetch_token() -> str:
    return TOKEN


class AtCloud:
    url = ""


def azure(**options: Any) -> Provider:
    chosen = {"api_key": KEY, **options}
    return AzureOpenAIProvider("mine", endpoint=AtCloud.url, model="gpt-5", **chosen)


def azure_with_entra() -> Provider:
    return AzureOpenAIProvider("mine", endpoint=AtCloud.url, token=fetch_token)


def azure_chat(**options: Any) -> Provider:
    chosen = {"api_key": KEY, **options}
    return AzureChatProvider(
        "mine", endpoint=AtCloud.url, api_version="2024-10-21", **chosen
    )


def vertex(token: Any = fetch_token) -> Provider:
    url = f"{AtCloud.url}{PROJECT}"  # what `on_vertex` makes, at another host
    return GeminiProvider("gemini-3-pro", base_url=url, api_key="", token=token)


class TestAzure(ProviderContract):
    def provider(self) -> Provider:
        return azure()

    def failing(self) -> Iterable[Provider]:
        yield azure(api_key="wrong-key-0123456789")


class TestAzureWithEntra(ProviderContract):
    def provider(self) -> Provider:
        return azure_with_entra()


class TestAzureChat(ProviderContract):
    def provider(self) -> Provider:
        return azure_chat()

    def failing(self) -> Iterable[Provider]:
        yield azure_chat(api_key="wrong-key-0123456789")


class TestVertex(ProviderContract):
    def provider(self) -> Provider:
        return vertex()

    def failing(self) -> Iterable[Provider]:
        yield vertex(lambda: "stale-token-0123456789")
        yield vertex(lambda: 1 / 0)


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SERVICES:
        monkeypatch.setenv(f"{name.upper()}_API_KEY", KEY)
        monkeypatch.setenv(f"{name.upper()}_BASE_URL", f"{AtCloud.url}/service/v1")


@pytest.mark.usefixtures("services")
class ServiceContract(ProviderContract):
    service = ""

    def provider(self) -> Provider:
        return build_provider(f"{self.service}:some-model")


class TestGroq(ServiceContract):
    service = "groq"


class TestMistral(ServiceContract):
    service = "mistral"


class TestDeepSeek(ServiceContract):
    service = "deepseek"


class TestXAI(ServiceContract):
    service = "xai"


class TestTogether(ServiceContract):
    service = "together"


class TestFireworks(ServiceContract):
    service = "fireworks"


class TestCerebras(ServiceContract):
    service = "cerebras"


BUILDS: dict[str, Callable[[], Provider]] = {
    "azure": azure,
    "azure-entra": azure_with_entra,
    "azure-chat": azure_chat,
    "vertex": vertex,
    **{name: lambda name=name: build_provider(f"{name}:m") for name in SERVICES},  # type: ignore[misc]
}


@pytest.mark.usefixtures("services")
@pytest.mark.parametrize("name", BUILDS)
async def test_key_and_token_are_shown_nowhere(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider = BUILDS[name]()

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    runtime = Runtime(provider, tools=[look])
    result = await ReActEngine(runtime).run("x", run_id="r")

    assert result.answer is not None, result.error
    entries = runtime.journal.read("r")
    shown = [repr(provider), str(vars(provider)), caplog.text, repr(result)]
    shown += [entry.body.decode() for entry in entries]
    for secret in (KEY, TOKEN):
        assert not any(secret in text for text in shown)


@pytest.mark.parametrize("build", [azure, azure_chat])
async def test_key_that_is_echoed_in_a_refusal_is_hidden(
    build: Callable[..., Provider],
) -> None:
    wrong = "wrong-key-0123456789"
    with pytest.raises(ProviderError, match="access denied") as raised:
        await build(api_key=wrong).complete(Request(Conversation.of("x")))

    assert wrong not in str(raised.value)
    assert (raised.value.status, raised.value.retryable) == (401, False)


async def test_token_that_is_echoed_in_a_refusal_is_hidden() -> None:
    stale = "stale-token-0123456789"
    with pytest.raises(ProviderError, match="access denied") as raised:
        await vertex(lambda: stale).complete(Request(Conversation.of("x")))

    assert stale not in str(raised.value)
