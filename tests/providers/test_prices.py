"""What model calls cost: prices that the application supplies, what providers charge, and the limit on it."""

import dataclasses
from typing import Any

import pytest
import structlog

from loopwright import (
    Completion,
    ConfigError,
    Journal,
    Limits,
    MemoryJournal,
    Price,
    ProviderError,
    ReActEngine,
    Runtime,
    Usage,
)
from loopwright.providers import Request
from loopwright.providers.prices import Prices
from loopwright.testing import ScriptedProvider, call, crashed
from sample_tools import look

MILLION = 1_000_000


def said(
    usage: Usage, *, model: str = "script", calls: tuple[Any, ...] = ()
) -> Completion:
    """A reply that used so much."""
    return Completion(
        "" if calls else "blue",
        calls,
        answer=None if calls else "blue",
        usage=usage,
        model=model,
    )


def runtime(
    script: Any, prices: dict[str, Price] | None = None, **parts: Any
) -> Runtime:
    return Runtime(ScriptedProvider(script), tools=[look], prices=prices, **parts)


async def cost_of(
    usage: Usage, prices: dict[str, Price], *, model: str = "script"
) -> float | None:
    """What a run of one call costs."""
    return (
        await ReActEngine(runtime([said(usage, model=model)], prices)).run("go")
    ).usage.cost


# --- what a call costs ---


async def test_a_run_costs_what_its_calls_cost() -> None:
    script = [
        said(Usage(MILLION, 1000), calls=(call("look", what="sky"),)),
        said(Usage(2 * MILLION, 3000)),
    ]

    result = await ReActEngine(runtime(script, {"script": Price(0.4, 1.6)})).run("go")

    assert result.usage.cost == pytest.approx(3 * 0.4 + 4000 * 1.6 / MILLION)
    assert result.usage.total_tokens == 3_004_000


@pytest.mark.parametrize(
    ("price", "usage", "cost"),
    [
        (Price(2, 10), Usage(MILLION, 0), 2.0),
        (Price(2, 10), Usage(0, MILLION), 10.0),
        (Price(2, 10), Usage(MILLION, MILLION, cached_tokens=MILLION // 2), 12.0),
        (Price(2, 10, cached=0.5), Usage(MILLION, 0, cached_tokens=MILLION // 2), 1.25),
        (Price(2, 10, cached=0), Usage(MILLION, 0, cached_tokens=MILLION), 0.0),
        (Price(2, 10, cached=0.2, cache_write=2.5),
         Usage(MILLION, 0, cached_tokens=500_000, cache_write_tokens=200_000),
         0.3 * 2 + 0.5 * 0.2 + 0.2 * 2.5),
        (Price(2, 10), Usage(0, MILLION, reasoning_tokens=MILLION // 2), 10.0),
        (Price(2, 10, cached=1), Usage(100, 0, cached_tokens=MILLION), 1.0),
        (Price(0, 0), Usage(MILLION, MILLION), 0.0),
    ],
)  # fmt: skip
def test_parts_of_the_tokens_are_not_paid_twice(
    price: Price, usage: Usage, cost: float
) -> None:
    assert price.cost(usage) == pytest.approx(cost)


async def test_what_the_provider_charged_counts_and_not_the_table() -> None:
    assert (
        await cost_of(Usage(MILLION, 0, cost=0.123), {"script": Price(99, 99)}) == 0.123
    )
    assert await cost_of(Usage(MILLION, 0, cost=0.0), {"script": Price(99, 99)}) == 0.0


async def test_without_prices_a_run_costs_what_its_provider_said_or_nothing_is_known() -> (
    None
):
    assert await cost_of(Usage(MILLION, 0), {}) is None
    assert await cost_of(Usage(MILLION, 0, cost=0.5), {}) == 0.5


async def test_estimated_tokens_are_paid_as_estimates() -> None:
    result = await ReActEngine(
        runtime(
            [Completion("blue", answer="blue")], {"script": Price(MILLION, MILLION)}
        )
    ).run("go")

    assert result.usage.estimated
    assert result.usage.cost == result.usage.total_tokens


# --- which price counts ---


@pytest.mark.parametrize(
    ("provider", "asked", "replied", "names", "found"),
    [
        ("openai", "gpt-4.1-mini", "gpt-4.1-mini-2025-04-14", ["gpt-4.1-mini"], "gpt-4.1-mini"),
        ("openai", "gpt-4.1-mini", "gpt-4.1-mini-2025-04-14", ["gpt-4.1-mini", "gpt-4.1-mini-2025-04-14"],
         "gpt-4.1-mini-2025-04-14"),
        ("openai", "gpt-4.1-mini-2025-04-14", "", ["gpt-4.1-mini"], "gpt-4.1-mini"),
        ("anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5-20250929", ["claude-sonnet-4-5"], "claude-sonnet-4-5"),
        ("vertex", "claude-sonnet-4-5@20250929", "", ["claude-sonnet-4-5"], "claude-sonnet-4-5"),
        ("openai", "gpt-4.1-mini", "gpt-4.1-mini", ["gpt-4.1-mini", "openai/gpt-4.1-mini"], "openai/gpt-4.1-mini"),
        ("openai", "gpt-4.1-mini", "gpt-4.1-mini-2025-04-14", ["gpt-4.1-mini-2025-04-14", "openai/gpt-4.1-mini"],
         "openai/gpt-4.1-mini"),
        ("host", "gpt-4.1-mini", "gpt-4.1-mini", ["openai/gpt-4.1-mini"], None),
        ("openrouter.ai", "openai/gpt-4.1-mini", "gpt-4.1-mini", ["gpt-4.1-mini", "openrouter.ai/openai/gpt-4.1-mini"],
         "openrouter.ai/openai/gpt-4.1-mini"),
        ("localhost:8080", "default", "qwen3-4b.gguf", ["default"], "default"),
        ("openai", "gpt-4.1", "gpt-4.1-mini", ["gpt-4.1", "gpt-4.1-mini"], "gpt-4.1-mini"),
        ("openai", "gpt-4.1", "gpt-4.1", ["gpt-4.1-mini", "gpt-4", "gpt"], None),
        ("openai", "o1-2024", "", ["o1"], None),
        ("openai", "", "", ["gpt"], None),
    ],
)  # fmt: skip
def test_the_most_exact_name_of_the_model_that_replied_has_the_price(
    provider: str, asked: str, replied: str, names: list[str], found: str | None
) -> None:
    table = {name: Price(place, place) for place, name in enumerate(names, 1)}

    with structlog.testing.capture_logs():
        assert Prices(table).find(provider, asked, replied) == (
            None if found is None else table[found]
        )


async def test_a_provider_that_falls_back_on_another_model_costs_what_that_one_costs() -> (
    None
):
    class Fallback:
        """Asks one model after the other, under a name of its own."""

        name, model, capabilities = (
            "fallback",
            "dear",
            ScriptedProvider([]).capabilities,
        )

        async def complete(self, request: Request) -> Completion:
            """The first one is down."""
            return said(Usage(MILLION, 0), model="cheap-2025-01-01")

    parts = Runtime(Fallback(), prices={"dear": Price(10, 10), "cheap": Price(1, 1)})

    assert (await ReActEngine(parts).run("go")).usage.cost == 1.0


async def test_a_model_without_a_price_is_logged_once_and_counted_by_its_tokens() -> (
    None
):
    parts = runtime(
        lambda _: said(Usage(100, 0)),
        {"another": Price(1, 1)},
        limits=Limits(max_tokens=10_000),
    )

    with structlog.testing.capture_logs() as logged:
        results = [await ReActEngine(parts).run("go") for _ in range(3)]

    assert [(result.usage.cost, result.usage.total_tokens) for result in results] == [
        (None, 100)
    ] * 3
    [line] = [line for line in logged if line["event"] == "price_unknown"]
    assert (line["provider"], line["model"], line["log_level"]) == (
        "scripted",
        "script",
        "warning",
    )
    assert (
        line["cure"]
        == "Runtime(prices={'script': Price(input=..., output=...)}), per million tokens"
    )


async def test_a_limit_on_cost_without_any_price_is_logged_as_what_it_cannot_see() -> (
    None
):
    parts = runtime([said(Usage(100, 0))], limits=Limits(max_cost=1.0))

    with structlog.testing.capture_logs() as logged:
        result = await ReActEngine(parts).run("go")

    assert (result.status, result.usage.cost) == ("completed", None)
    [line] = [line for line in logged if line["event"] == "price_unknown"]
    assert "max_cost does not see them" in line["effect"]


async def test_without_prices_and_without_a_limit_on_cost_nothing_is_logged() -> None:
    with structlog.testing.capture_logs() as logged:
        await ReActEngine(runtime([said(Usage(100, 0))])).run("go")

    assert logged == []


async def test_every_model_without_a_price_is_logged_by_itself() -> None:
    prices = Prices({"known": Price(1, 1)})

    with structlog.testing.capture_logs() as logged:
        for model, replied in [
            ("a", ""),
            ("b", ""),
            ("a", "other"),
            ("a", ""),
            ("known", ""),
        ]:
            prices.find("host", model, replied)

    assert [(line["model"], line["replied"]) for line in logged] == [
        ("a", ""),
        ("b", ""),
        ("a", "other"),
    ]


# --- the limit, and what is kept ---


async def test_the_limit_on_cost_stops_a_run_without_asking_for_a_best_answer() -> None:
    script = [
        said(Usage(MILLION, 0), calls=(call("look", what=what),))
        for what in ("sky", "sea", "cup")
    ]
    parts = runtime(
        script, {"script": Price(0.5, 1)}, limits=Limits(max_cost=1.0, max_tokens=None)
    )

    result = await ReActEngine(parts).run("go")

    assert (result.status, result.stop_reason, result.usage.cost) == (
        "limit",
        "max_cost",
        1.0,
    )
    assert (result.llm_calls, result.answer) == (2, None)


async def test_a_resumed_run_has_what_was_paid_and_pays_nothing_twice() -> None:
    def model(request: Request) -> Completion:
        seen = sum(message.role == "tool" for message in request.conversation.messages)
        calls = (call("look", what=("sky", "sea")[seen]),) if seen < 2 else ()
        return said(Usage(MILLION, 0), calls=calls)

    prices, limits = {"script": Price(1, 1)}, Limits(max_tokens=None)
    whole = runtime(model, prices, limits=limits)
    await ReActEngine(whole).run("go", run_id="r")
    entries = whole.journal.read("r")

    for keep in range(1, len(entries)):
        journal: Journal = crashed(entries, keep, MemoryJournal())
        parts = runtime(model, {"script": Price(1, 1)}, limits=limits, journal=journal)
        result = await ReActEngine(parts).resume("r")

        assert result.usage.cost == 3.0


async def test_a_price_that_changed_meanwhile_changes_no_call_that_was_paid() -> None:
    script = [
        said(Usage(MILLION, 0), calls=(call("look", what="sky"),)),
        said(Usage(MILLION, 0)),
    ]
    limits = Limits(max_tokens=None)
    whole = runtime(script, {"script": Price(1, 1)}, limits=limits)
    await ReActEngine(whole).run("go", run_id="r")
    entries = whole.journal.read("r")
    keep = next(entry.seq for entry in entries if entry.kind == "tool_finished")

    parts = runtime(
        [said(Usage(MILLION, 0))],
        {"script": Price(5, 5)},
        limits=limits,
        journal=crashed(entries, keep),
    )
    result = await ReActEngine(parts).resume("r")

    assert result.usage.cost == 6.0


async def test_failed_calls_cost_nothing_that_is_known() -> None:
    result = await ReActEngine(
        runtime([ProviderError("no")], {"script": Price(1, 1)})
    ).run("go")

    assert (result.status, result.usage.cost) == ("failed", None)


# --- bad tables ---


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (5, "prices: must be a mapping of models to Price(...), got 5"),
        (
            [("a", Price(1, 1))],
            "prices: must be a mapping of models to Price(...), got [(",
        ),
        ({"a": 5}, "prices['a']: must be a Price(...), got 5"),
        ({"a": (1, 2)}, "prices['a']: must be a Price(...), got (1, 2)"),
        ({5: Price(1, 1)}, "prices: a model's name must be a text, got 5"),
        ({" ": Price(1, 1)}, "prices: a model's name must be a text, got ' '"),
    ],
)
def test_a_bad_table_is_refused_by_name(table: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Runtime(ScriptedProvider([]), prices=table)

    assert str(refused.value).startswith(told)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "1", True, [1]])
@pytest.mark.parametrize("field", ["input", "output", "cached", "cache_write"])
def test_a_bad_amount_is_refused_by_its_field(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        dataclasses.replace(Price(1, 1), **{field: value})

    assert (
        str(refused.value)
        == f"Price: {field} must be a number, 0 or more, got {value!r}"
    )
