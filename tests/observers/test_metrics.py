"""Metrics: what is counted and measured, by attributes that have few values."""

from typing import Any

import pytest

from loopwright import (
    Completion,
    Limits,
    LoopEngine,
    Price,
    ProviderError,
    ReActEngine,
    Run,
    Runtime,
    Usage,
)
from loopwright.observers.semconv import provider_attributes
from loopwright.testing import FakeClock, ScriptedProvider, call
from sample_tools import look
from telemetry import Telemetry

CHAT = (
    ("gen_ai.operation.name", "chat"),
    ("gen_ai.provider.name", "scripted"),
    ("gen_ai.request.model", "script"),
    ("gen_ai.response.model", "script"),
)


def runtime(script: Any, told: Telemetry, **parts: Any) -> Runtime:
    parts.setdefault("clock", FakeClock())
    return Runtime(
        ScriptedProvider(script), tools=[look], observers=[told.observer], **parts
    )


async def test_calls_tokens_and_durations_of_a_run_are_measured() -> None:
    told, clock = Telemetry(), FakeClock()

    def first(_: Any) -> Any:
        clock.advance(2)
        return call("look", what="sky")

    await ReActEngine(runtime([first, "blue"], told, clock=clock)).run("go")

    assert told.measured() == {
        "gen_ai.client.operation.duration": {CHAT: (2, 2.0)},
        "gen_ai.client.token.usage": {
            (*CHAT, ("gen_ai.token.type", "input")): (2, 20),
            (*CHAT, ("gen_ai.token.type", "output")): (2, 10),
        },
        "gen_ai.execute_tool.duration": {
            (
                ("gen_ai.operation.name", "execute_tool"),
                ("gen_ai.tool.name", "look"),
                ("gen_ai.tool.type", "function"),
            ): (1, 0.0)
        },
        "gen_ai.invoke_agent.duration": {
            (
                ("gen_ai.agent.name", "react"),
                ("gen_ai.operation.name", "invoke_agent"),
            ): (1, 2.0)
        },
        "loopwright.gate.decisions": {
            (("gen_ai.tool.name", "look"), ("loopwright.verdict", "allow")): 1
        },
        "loopwright.model.calls": {
            tuple(sorted((("gen_ai.agent.name", "react"), *CHAT))): 2
        },
        "loopwright.runs": {
            (
                ("gen_ai.agent.name", "react"),
                ("loopwright.status", "completed"),
                ("loopwright.stop_reason", "answered"),
            ): 1
        },
        "loopwright.tool.calls": {
            (("gen_ai.tool.name", "look"), ("loopwright.tool.status", "ok")): 1
        },
    }


async def test_retries_limits_and_breakers_are_counted() -> None:
    told = Telemetry()
    down = [ProviderError("down", status=503) for _ in range(9)]
    parts = runtime([*down, "yes"], told)

    await ReActEngine(parts).run("go")
    limited = runtime(
        [call("look", what="sky"), "x"], told, limits=Limits(max_llm_calls=2)
    )
    await ReActEngine(limited).run("go")

    assert told.count("loopwright.model.retries") == {(): 9}
    assert told.count(
        "loopwright.breaker.changes",
        "loopwright.breaker.name",
        "loopwright.breaker.after",
    ) == {
        ("scripted/script", "open"): 5,
        ("scripted/script", "half-open"): 5,
        ("scripted/script", "closed"): 1,
    }
    assert told.count("loopwright.limits", "loopwright.limit") == {"max_llm_calls": 1}
    assert told.count("loopwright.model.calls", "error.type") == {None: 3}
    assert told.count("loopwright.runs", "loopwright.status", "loopwright.stop_reason") == {
        ("completed", "answered"): 1, ("limit", "max_llm_calls"): 1,
    }  # fmt: skip


async def test_cost_is_counted_by_model() -> None:
    told = Telemetry()
    reply = Completion(
        "so", answer="so", usage=Usage(1_000_000, 100_000), model="script"
    )

    await ReActEngine(runtime([reply], told, prices={"script": Price(2.0, 10.0)})).run(
        "go"
    )

    assert told.count("loopwright.cost", "gen_ai.request.model") == {"script": 3.0}


async def test_estimated_tokens_are_flagged_in_spans_and_left_out_of_measurements() -> (
    None
):
    told = Telemetry()

    await ReActEngine(runtime([Completion("so", answer="so")], told)).run("go")

    assert "gen_ai.client.token.usage" not in told.measured()
    assert (told.span("chat script").attributes or {})[
        "loopwright.usage.estimated"
    ] is True


async def test_names_that_a_model_made_up_are_counted_as_other() -> None:
    told = Telemetry()
    script = [
        [call(f"no such tool {number}", a=1) for number in range(5)],
        call("look", what="sky"),
        "done",
    ]

    await ReActEngine(runtime(script, told)).run("go")

    assert told.count("loopwright.tool.calls", "gen_ai.tool.name", "loopwright.tool.status") == {
        ("_OTHER", "rejected"): 5, ("look", "ok"): 1,
    }  # fmt: skip
    assert told.count("loopwright.gate.decisions", "gen_ai.tool.name", "loopwright.verdict") == {
        ("_OTHER", "invalid"): 5, ("look", "allow"): 1,
    }  # fmt: skip


async def test_measurements_name_no_run() -> None:
    told = Telemetry()
    parts = runtime(lambda _: "blue", told)

    for number in range(10):
        await ReActEngine(parts).run(f"task {number}", run_id=f"run-number-{number}")

    assert {
        len(points) for name, points in told.measured().items() if "token" not in name
    } == {1}
    assert "run-number" not in str(told.measured())


async def test_a_purpose_is_told_in_spans_and_is_no_dimension_of_measurements() -> None:
    told = Telemetry()

    class Chatty(LoopEngine):
        name = "chatty"

        async def solve(self, run: Run) -> str:
            return "".join(
                [await run.ask("?", purpose=f"purpose {number}") for number in range(3)]
            )

    await Chatty(runtime(lambda _: "a", told)).run("go")

    assert [(s.attributes or {}).get("loopwright.purpose") for s in told.spans][1:] == [
        "purpose 0", "purpose 1", "purpose 2",
    ]  # fmt: skip
    assert len(told.measured()["loopwright.model.calls"]) == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openai", ("openai", None, None)),
        ("anthropic", ("anthropic", None, None)),
        ("local", ("local", None, None)),
        ("openrouter.ai", ("openrouter", "openrouter.ai", 443)),
        ("api.deepseek.com", ("deepseek", "api.deepseek.com", 443)),
        (
            "my-resource.openai.azure.com",
            ("azure.ai.openai", "my-resource.openai.azure.com", 443),
        ),
        (
            "generativelanguage.googleapis.com",
            ("gcp.gemini", "generativelanguage.googleapis.com", 443),
        ),
        ("evil-openrouter.ai", ("evil-openrouter.ai", "evil-openrouter.ai", None)),
        ("localhost:8080", ("localhost", "localhost", 8080)),
        ("localhost", ("localhost", "localhost", None)),
        ("127.0.0.1:11434", ("127.0.0.1", "127.0.0.1", 11434)),
        ("[::1]:8000", ("::1", "::1", 8000)),
        ("[::1]", ("::1", "::1", None)),
        ("gpu-box:8000", ("gpu-box", "gpu-box", 8000)),
        ("", (None, None, None)),
    ],
)
def test_a_provider_is_named_by_who_is_behind_its_host(
    name: str, told: tuple[Any, ...]
) -> None:
    found = provider_attributes(name)

    assert (
        found.get("gen_ai.provider.name"),
        found.get("server.address"),
        found.get("server.port"),
    ) == told
