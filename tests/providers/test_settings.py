"""Settings of providers, engines, runs and calls: who comes first, what is refused, what is left out, headers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from loopwright import ConfigError, ReActEngine, Runtime, Sampling
from loopwright.engines import ChainOfThoughtEngine
from loopwright.errors import ProviderError
from loopwright.events.effects import ModelRequested
from loopwright.events.run import RunStarted
from loopwright.journals import SQLiteJournal
from loopwright.messages import Completion, Conversation, JsonObject, Usage
from loopwright.providers import (
    AnthropicProvider,
    BedrockProvider,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Provider,
    Quirks,
    Request,
    SamplingProvider,
)
from loopwright.providers.openai.quirks import OPENAI
from loopwright.run import Run
from loopwright.testing import ScriptedProvider, crashed

Build = Callable[..., Any]
URL, KEY = "http://api.example/v1", "key-of-account-1"
REPLY = {
    "choices": [{"message": {"content": "ok"}}],
    "content": [{"type": "text", "text": "ok"}],
    "candidates": [{"content": {"parts": [{"text": "ok"}]}, "finishReason": "STOP"}],
    "stopReason": "end_turn",
}
ITEM = {"type": "message", "content": [{"type": "output_text", "text": "ok"}]}


def chat(**options: Any) -> Provider:
    return OpenAIProvider("m", base_url=URL, api_key=KEY, **options)


def stopless(**options: Any) -> Provider:
    return chat(quirks=Quirks(stop=False), **options)


def responses(**options: Any) -> Provider:
    return OpenAIResponsesProvider("gpt-5.2", base_url=URL, api_key=KEY, **options)


def claude(**options: Any) -> Provider:
    return AnthropicProvider("claude-sonnet-4-5", base_url=URL, api_key=KEY, **options)


def new_claude(**options: Any) -> Provider:
    return AnthropicProvider("claude-opus-4-7", base_url=URL, api_key=KEY, **options)


def thinking_claude(**options: Any) -> Provider:
    return claude(thinking=2000, **options)


def old_claude(**options: Any) -> Provider:
    return AnthropicProvider("claude-3-5-sonnet-20241022", base_url=URL, **options)


def gemini(**options: Any) -> Provider:
    return GeminiProvider("gemini-2.5-pro", base_url=URL, api_key=KEY, **options)


def old_gemini(**options: Any) -> Provider:
    return GeminiProvider("gemini-2.0-flash", base_url=URL, api_key=KEY, **options)


def bedrock(**options: Any) -> Provider:
    return BedrockProvider(
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", region="eu-west-1",
        base_url=URL, api_key=KEY, **options,
    )  # fmt: skip


class Server:
    """Answers every API, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        url = str(request.url)
        if "converse" in url:
            output: Any = {"message": {"content": [{"text": "ok"}]}}
        else:
            output = [ITEM]
        return httpx.Response(200, json={**REPLY, "output": output})

    @property
    def body(self) -> Any:
        return json.loads(self.asked[-1].content)


async def ask(build: Build, settings: Sampling, **options: Any) -> Server:
    server = Server()
    provider = build(client=server.client, **options)
    await provider.complete(Request(Conversation.of("x"), sampling=settings))
    return server


UNKNOWN = [
    (responses, "temperature", 0.5),
    (responses, "top_p", 0.9),
    (responses, "stop", ("END",)),
    (responses, "seed", 7),
    (claude, "seed", 7),
    (new_claude, "temperature", 0.5),
    (new_claude, "top_p", 0.9),
    (thinking_claude, "temperature", 0.5),
    (thinking_claude, "top_p", 0.5),
    (stopless, "stop", ("END",)),
]
REFUSED = [
    (new_claude, "top_k", 5),
    (thinking_claude, "top_k", 5),
    (old_claude, "effort", "low"),
    (old_gemini, "effort", "low"),
    (bedrock, "seed", 7),
    *((build, "n", 3) for build in (responses, claude, bedrock)),
]


@pytest.mark.parametrize(("build", "name", "value"), UNKNOWN)
async def test_what_an_engine_sets_is_left_out_where_the_model_does_not_know_it(
    build: Build, name: str, value: Any
) -> None:
    server = await ask(build, Sampling(**{name: value}))

    assert json.dumps(value) not in server.asked[0].content.decode()


@pytest.mark.parametrize(("build", "name", "value"), UNKNOWN)
async def test_what_a_person_set_is_refused_by_its_name(
    build: Build, name: str, value: Any
) -> None:
    chosen, server = Sampling(**{name: value}), Server()
    with pytest.raises(ProviderError, match=f"Sampling.{name}"):
        await ask(build, Sampling(), sampling=chosen)

    for engine, options in (
        (ReActEngine(Runtime(build(client=server.client)), sampling=chosen), {}),
        (ReActEngine(Runtime(build(client=server.client))), {"sampling": chosen}),
    ):
        result = await engine.run("x", **options)  # type: ignore[arg-type]
        assert result.stop_reason == "provider_error"
        assert f"Sampling.{name}" in str(result.error)
    assert server.asked == []


@pytest.mark.parametrize(("build", "name", "value"), REFUSED)
async def test_other_settings_are_refused_by_their_names_whoever_set_them(
    build: Build, name: str, value: Any
) -> None:
    with pytest.raises(ProviderError, match=f"Sampling.{name}"):
        await ask(build, Sampling(**{name: value}))


async def test_temperature_that_a_person_chose_for_an_engine_is_refused() -> None:
    server = Server()
    runtime = Runtime(responses(client=server.client))

    chosen = await ChainOfThoughtEngine(runtime, temperature=0.3).run("x")
    own = await ChainOfThoughtEngine(runtime, samples=2).run("x")

    assert "Sampling.temperature" in str(chosen.error)
    assert own.answer == "ok"


async def test_setting_of_a_call_in_place_of_a_required_one_may_be_left_out() -> None:
    own = Sampling(temperature=0.2)

    server = await ask(chat, Sampling(temperature=0.7), sampling=own)
    assert server.body["temperature"] == 0.7
    server = await ask(responses, Sampling(temperature=0.7), sampling=own)
    assert "temperature" not in server.body


# --- several replies ---


def openai_chat(**options: Any) -> Any:
    return chat(quirks=OPENAI, **options)


SEVERAL: dict[Build, Any] = {
    openai_chat: {
        "choices": [
            {"index": 0, "message": {"content": "one"}, "finish_reason": "stop"},
            {"index": 1, "message": {"refusal": "no"}, "finish_reason": "stop"},
            {"index": 2, "message": {"content": "two"}, "finish_reason": "length"},
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 6},
    },
    gemini: {
        "candidates": [
            {"content": {"parts": [{"text": "one"}]}, "finishReason": "STOP"},
            {"finishReason": "SAFETY"},
            {"content": {"parts": [{"text": "two"}]}, "finishReason": "MAX_TOKENS"},
        ],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 6},
    },
}


@pytest.mark.parametrize("build", SEVERAL)
async def test_several_replies_come_by_one_request_without_the_refused(
    build: Build,
) -> None:
    bodies: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json=SEVERAL[build])

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    provider: SamplingProvider = build(client=client)
    asked = Request(Conversation.of("x"), sampling=Sampling(n=3, temperature=1.0))
    one, two = await provider.sample(asked)

    assert (one.answer, one.usage) == ("one", Usage(9, 6))
    assert (two.text, two.is_cut, two.usage) == ("two", True, Usage())
    settings = bodies[0].get("generationConfig") or bodies[0]
    assert settings["temperature"] == 1.0
    assert settings.get("n") == 3 or settings.get("candidateCount") == 3


@pytest.mark.parametrize("build", SEVERAL)
async def test_provider_whose_replies_are_all_refused_fails(build: Build) -> None:
    whole = SEVERAL[build]
    name = "choices" if "choices" in whole else "candidates"
    refused = {**whole, name: [whole[name][1]]}
    client = httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, json=refused))
    )
    provider: SamplingProvider = build(client=client)

    with pytest.raises(ProviderError, match="refused"):
        await provider.sample(Request(Conversation.of("x"), sampling=Sampling(n=2)))


@pytest.mark.parametrize("build", SEVERAL)
async def test_one_call_has_one_reply(build: Build) -> None:
    with pytest.raises(ProviderError, match=r"Sampling.n: one call has one reply"):
        await ask(build, Sampling(n=2))
    with pytest.raises(ProviderError, match=r"Sampling.n: one call has one reply"):
        await ask(build, Sampling(), sampling=Sampling(n=2))


# --- headers ---

EVERY = [chat, responses, claude, gemini, bedrock]


@pytest.mark.parametrize("build", EVERY)
async def test_headers_of_the_call_come_before_those_of_the_provider(
    build: Build,
) -> None:
    own = Sampling(extra_headers={"X-Title": "one", "User-Agent": "mine"})

    server = await ask(build, Sampling(), sampling=own)
    assert server.asked[0].headers["x-title"] == "one"
    assert server.asked[0].headers.get_list("user-agent") == ["mine"]
    assert "extra_headers" not in server.body

    server = await ask(build, Sampling(extra_headers={"x-title": "two"}), sampling=own)
    assert server.asked[0].headers.get_list("x-title") == ["two"]


@pytest.mark.parametrize("build", EVERY)
@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"Authorization": "Bearer other"}, "'authorization' is set by the library"),
        ({"X-API-Key": "other"}, "'x-api-key' is set by the library"),
        ({"Content-Length": "1"}, "'content-length' is set by the library"),
        ({"x-a": "two\r\nlines"}, "'x-a' is not a name with a text"),
        ({"x a": "b"}, "'x a' is not a name with a text"),
        ({"x-a": "ü"}, "'x-a' is not a name with a text"),
    ],
)
async def test_header_that_cannot_be_set_is_refused_by_its_name(
    build: Build, headers: dict[str, str], problem: str
) -> None:
    with pytest.raises(ProviderError, match=problem) as raised:
        await ask(build, Sampling(extra_headers=headers))

    assert "other" not in str(raised.value)


# --- engines and runs ---


class Asked(ScriptedProvider):
    """Notes the settings of each request."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(replies)
        self.asked: list[JsonObject] = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.sampling.options)
        return await super().complete(request)


class Outer(ReActEngine):
    """Asks once itself, and has another engine answer."""

    name = "outer"
    inner: ReActEngine

    async def solve(self, run: Run) -> str:
        await run.reason(run.conversation, sampling=Sampling(top_k=1))
        result = await run.delegate(self.inner, run.task)
        return result.answer or ""


async def test_settings_of_call_run_engine_and_provider_come_in_that_order() -> None:
    provider = Asked("one", "two")
    runtime = Runtime(provider)
    inner = ReActEngine(runtime, sampling=Sampling(seed=3, top_p=0.3))
    own = Sampling(seed=2, top_k=2, max_tokens=200)

    result = await Outer(runtime, inner=inner, sampling=own).run(
        "x", sampling=Sampling(max_tokens=100)
    )

    assert result.answer == "two"
    assert provider.asked == [
        {"max_tokens": 100, "seed": 2, "top_k": 1},
        {"max_tokens": 100, "seed": 3, "top_p": 0.3},
    ]


async def test_settings_of_an_engine_are_for_its_own_model() -> None:
    provider, other = Asked("one", "two"), Asked("three")
    inner = ReActEngine(Runtime(other), sampling=Sampling(seed=3))

    runtime = Runtime(provider)
    await Outer(runtime, inner=inner).run("x", sampling=Sampling(seed=1))

    assert provider.asked == [{"seed": 1, "top_k": 1}]
    assert other.asked == [{"seed": 3}]


async def test_settings_of_an_engine_are_recorded_and_resumed(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    own = Sampling(temperature=0.2, stop=("END",))
    first = Runtime(Asked("done"), journal=journal)
    await ReActEngine(first, sampling=own).run("x", run_id="r")
    entries = journal.read("r")
    started = entries[0].event
    assert isinstance(started, RunStarted)
    assert started.options["sampling"] == {"temperature": 0.2, "stop": ["END"]}

    again = Asked("done")
    resumed = await Runtime(again, journal=crashed(entries, 2)).resume("r")

    assert resumed.answer == "done"
    assert again.asked == [{"temperature": 0.2, "stop": ["END"]}]


async def test_engine_without_settings_records_none() -> None:
    runtime = Runtime(ScriptedProvider(["done"]))
    await ReActEngine(runtime).run("x", run_id="r")

    started = runtime.journal.read("r")[0].event
    assert isinstance(started, RunStarted)
    assert "sampling" not in started.options


SECRET = "correct-horse-battery-9"


async def test_secret_in_the_settings_of_a_run_is_refused() -> None:
    from loopwright.security import Redactor

    provider = Asked("done")
    runtime = Runtime(provider, redactor=Redactor([SECRET]))
    headers = Sampling(extra_headers={"x-token": SECRET})

    with pytest.raises(ConfigError, match="sampling: holds a secret") as raised:
        await ReActEngine(runtime).run("x", sampling=headers)
    assert SECRET not in str(raised.value)

    # An engine's settings may hold one: it is sent, and recorded nowhere.
    result = await ReActEngine(runtime, sampling=headers).run("x", run_id="r")
    assert result.answer == "done"
    assert provider.asked == [{"extra_headers": {"x-token": SECRET}}]
    entries = runtime.journal.read("r")
    assert SECRET not in "".join(entry.body.decode() for entry in entries)
    assert any(isinstance(entry.event, ModelRequested) for entry in entries)


async def test_settings_of_another_type_are_a_configuration_error() -> None:
    runtime = Runtime(ScriptedProvider([]))

    with pytest.raises(ConfigError, match="sampling: must be like Sampling"):
        await ReActEngine(runtime).run("x", sampling={"temperature": 0})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sampling"):
        ReActEngine(runtime, sampling=3)  # type: ignore[arg-type]
