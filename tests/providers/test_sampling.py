"""Sampling: each setting is sent in the provider's own form, or refused by its name."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from loopwright import ConfigError, Limits, ReActEngine, Runtime, Sampling, tool
from loopwright.errors import ProviderError
from loopwright.events.effects import ModelRequested
from loopwright.events.run import RunStarted
from loopwright.journals import SQLiteJournal
from loopwright.messages import Completion, Conversation, JsonObject
from loopwright.providers import (
    AnthropicProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Provider,
    Quirks,
    Request,
)
from loopwright.run import Run
from loopwright.testing import ScriptedProvider, call, crashed

Row = dict[str, Any]
REPLY = {
    "choices": [{"message": {"content": "ok"}}],
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "ok"}]}],
    "content": [{"type": "text", "text": "ok"}],
}
Build = Callable[[httpx.AsyncClient], Provider]
URL = "http://api.example/v1"


def chat(client: httpx.AsyncClient) -> Provider:
    return OpenAIProvider("m", base_url=URL, client=client)


def openai_chat(client: httpx.AsyncClient) -> Provider:
    return OpenAIProvider("gpt-4.1", api_key="sk-test-1234567", client=client)


def openrouter(client: httpx.AsyncClient) -> Provider:
    return OpenAIProvider("m", base_url="https://openrouter.ai/api/v1", client=client)


def no_effort(client: httpx.AsyncClient) -> Provider:
    return OpenAIProvider("m", base_url=URL, client=client, quirks=Quirks(effort=None))


def responses(client: httpx.AsyncClient) -> Provider:
    return OpenAIResponsesProvider("gpt-5.2", base_url=URL, client=client)


def plain_responses(client: httpx.AsyncClient) -> Provider:
    return OpenAIResponsesProvider("gpt-4.1", base_url=URL, client=client)


def claude(client: httpx.AsyncClient) -> Provider:
    return AnthropicProvider("claude-sonnet-4-6", base_url=URL, client=client)


def old_claude(client: httpx.AsyncClient) -> Provider:
    return AnthropicProvider("claude-sonnet-4-5", base_url=URL, client=client)


async def ask(build: Build, sampling: Sampling) -> Row:
    """Return the body that a provider sends with these settings."""
    asked: list[Row] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(200, json=REPLY)

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    question = Request(Conversation.of("x"), sampling=sampling)
    await build(client).complete(question)
    return asked[0]


@pytest.mark.parametrize(
    ("build", "sampling", "expected"),
    [
        (chat, Sampling(effort="low"), {"reasoning_effort": "low"}),
        (openai_chat, Sampling(effort="none"), {"reasoning_effort": "none"}),
        (openrouter, Sampling(effort="high"), {"reasoning": {"effort": "high"}}),
        (
            chat,
            Sampling(top_k=5, presence_penalty=0.5),
            {"top_k": 5, "presence_penalty": 0.5},
        ),
        (openai_chat, Sampling(frequency_penalty=1.0), {"frequency_penalty": 1.0}),
        (chat, Sampling(extra_body={"guided_regex": "a+"}), {"guided_regex": "a+"}),
        (responses, Sampling(effort="minimal"), {"reasoning": {"effort": "minimal"}}),
        (
            responses,
            Sampling(extra_body={"truncation": "auto"}),
            {"truncation": "auto"},
        ),
        (claude, Sampling(effort="none"), {"thinking": {"type": "disabled"}}),
        (claude, Sampling(effort="minimal"), {"output_config": {"effort": "low"}}),
        (claude, Sampling(effort="high"), {"output_config": {"effort": "high"}}),
        (claude, Sampling(top_k=3), {"top_k": 3}),
        (
            old_claude,
            Sampling(effort="low", max_tokens=5_000),
            {
                "thinking": {"type": "enabled", "budget_tokens": 2048},
                "max_tokens": 5_000,
            },
        ),
        (
            old_claude,
            Sampling(effort="low", max_tokens=100),
            {"thinking": None, "max_tokens": 100},
        ),
    ],
)
async def test_setting_is_sent_in_the_form_of_the_api(
    build: Build, sampling: Sampling, expected: Row
) -> None:
    body = await ask(build, sampling)

    assert {name: body.get(name) for name in expected} == expected
    assert "effort" not in body
    assert "extra_body" not in body


@pytest.mark.parametrize(
    ("build", "sampling", "name"),
    [
        (openai_chat, Sampling(top_k=5), "top_k"),
        (no_effort, Sampling(effort="low"), "effort"),
        (responses, Sampling(top_k=5), "top_k"),
        (responses, Sampling(presence_penalty=1.0), "presence_penalty"),
        (responses, Sampling(frequency_penalty=1.0), "frequency_penalty"),
        (plain_responses, Sampling(effort="low"), "effort"),
        (claude, Sampling(presence_penalty=1.0), "presence_penalty"),
        (chat, Sampling(extra_body={"messages": []}), "extra_body: 'messages'"),
        (responses, Sampling(extra_body={"store": True}), "extra_body: 'store'"),
        (claude, Sampling(extra_body={"model": "x"}), "extra_body: 'model'"),
    ],
)
async def test_setting_that_the_model_does_not_know_is_refused_by_its_name(
    build: Build, sampling: Sampling, name: str
) -> None:
    with pytest.raises(ProviderError, match=f"Sampling.{name}") as raised:
        await ask(build, sampling)

    assert not raised.value.retryable


async def test_settings_of_the_call_take_precedence_over_those_of_the_provider() -> (
    None
):
    def build(client: httpx.AsyncClient) -> Provider:
        own = Sampling(effort="low", top_k=5)
        return OpenAIProvider("m", base_url=URL, client=client, sampling=own)

    body = await ask(build, Sampling(effort="high"))

    assert (body["reasoning_effort"], body["top_k"]) == ("high", 5)


class Settings(ScriptedProvider):
    """Notes the settings of each request."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(replies)
        self.asked: list[JsonObject] = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.sampling.options)
        return await super().complete(request)


class TwoCalls(ReActEngine):
    """Asks twice, the second time with settings of its own."""

    name = "two-calls"

    async def solve(self, run: Run) -> str:
        first = await run.reason(run.conversation)
        second = await run.reason(
            run.conversation.user(first.answer or ""),
            sampling=Sampling(effort="high"),
            purpose="again",
        )
        other = await run.ask("Other?", provider="other")
        return f"{second.answer} {other}"


async def test_settings_of_a_run_reach_the_calls_of_its_own_model() -> None:
    provider, other = Settings("one", "two"), Settings("three")
    runtime = Runtime(provider, providers={"other": other})

    result = await TwoCalls(runtime).run("x", sampling=Sampling(effort="low", seed=7))

    assert result.answer == "two three"
    assert provider.asked == [
        {"effort": "low", "seed": 7},
        {"effort": "high", "seed": 7},
    ]
    assert other.asked == [{}]
    events = [entry.event for entry in runtime.journal.read(result.run_id)]
    asked = [event for event in events if isinstance(event, ModelRequested)]
    assert [one.purpose for one in asked] == ["", "again", ""]
    assert asked[0].sampling == {"effort": "low", "seed": 7}


async def test_resumed_run_keeps_its_settings(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    down = ProviderError("down", status=503)
    first = Settings(down)
    sampling = Sampling(effort="low", stop=("END",), extra_body={"a": 1})
    runtime = Runtime(first, journal=journal, limits=Limits(max_provider_wait=0))
    left = await ReActEngine(runtime).run("x", run_id="kept", sampling=sampling)

    again = Settings("done")
    resumed = await ReActEngine(Runtime(again, journal=journal)).resume("kept")

    assert (left.status, resumed.answer) == ("suspended", "done")
    assert again.asked == [{"effort": "low", "stop": ["END"], "extra_body": {"a": 1}}]
    started = journal.read("kept")[0].event
    assert isinstance(started, RunStarted)
    assert Sampling.from_options(started.sampling) == sampling


def test_overriding_keeps_what_the_other_leaves_open() -> None:
    own = Sampling(temperature=0.2, stop=("a",), effort="low")

    assert own.override(Sampling()) is own
    merged = own.override(Sampling(temperature=0.0, top_k=3))
    assert merged == Sampling(temperature=0.0, stop=("a",), effort="low", top_k=3)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("temperature", "0.5", "a number or None"),
        ("temperature", True, "a number or None"),
        ("top_p", float("nan"), "a number or None"),
        ("presence_penalty", Decimal(1), "a number or None"),
        ("max_tokens", 10.0, "a whole number or None"),
        ("seed", "7", "a whole number or None"),
        ("top_k", False, "a whole number or None"),
        ("stop", "END", "a tuple of texts"),
        ("stop", (1,), "a tuple of texts"),
        ("stop", None, "a tuple of texts"),
    ],
)
def test_setting_of_another_type_is_refused_where_it_is_given(
    name: str, value: Any, what: str
) -> None:
    with pytest.raises(ConfigError, match=rf"Sampling\.{name}: must be {what}, got "):
        Sampling(**{name: value})


@pytest.mark.parametrize("where", ["engine", "run"])
async def test_run_with_a_setting_of_an_earlier_version_is_resumed(where: str) -> None:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "found"

    earlier = Sampling.from_options({"temperature": "0.5", "stop": ["END"]})
    asked = ScriptedProvider([call("look"), "Done."])
    runtime = Runtime(asked, tools=[look])
    given: dict[str, Any] = {"sampling": earlier}
    engine = ReActEngine(runtime, **(given if where == "engine" else {}))
    await engine.run("Go.", run_id="r", **(given if where == "run" else {}))
    entries = runtime.journal.read("r")
    kinds = [entry.kind for entry in entries]
    cut = crashed(entries, kinds.index("tool_finished") + 1)
    model = ScriptedProvider(["Done."])
    resumed = await Runtime(model, tools=[look], journal=cut).resume("r")

    assert resumed.answer == "Done."
    assert model.requests[0].sampling.options == earlier.options
    assert asked.requests[1].sampling == model.requests[0].sampling


def test_setting_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="Sampling: has no heat; it has temperature"):
        Sampling.from_options({"heat": 1})
