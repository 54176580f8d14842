"""Map-reduce: the same for each item, and the results put together."""

import json
from typing import Any

import pytest

from loopwright import Limits, ProviderError, Request, Result, Runtime
from loopwright.testing import ScriptedProvider


def model(request: Request) -> Any:
    """Lists three items, does them, and joins what it reads."""
    asked = request.conversation.messages[-1].content
    if asked.startswith("List the items"):
        return json.dumps(["Dom", "Eiger", "Jura"])
    if "Put them together" in asked:
        found = [line for line in asked.splitlines() if line.endswith(" m")]
        return f"{'one' if 'some of the results' in asked else 'all'}: {', '.join(found)} m"
    if "Jura" in asked:
        return ProviderError("no such mountain", retryable=False)
    return f"{asked.split()[-1]} is 4,000 m"


def run(task: str, **options: Any) -> tuple[Result, ScriptedProvider]:
    provider = ScriptedProvider(model)
    engine = Runtime(provider).engine("map-reduce", **options)
    return engine.run_sync(task, run_id="r"), provider


def mapped(result: Result) -> list[tuple[Any, ...]]:
    values: list[Any] = [f.value for f in result.facts if f.name == "ItemMapped"]
    fields = ("number", "status", "content")
    found = [tuple(value[field] for field in fields) for value in values]
    return sorted(found)


def test_an_item_that_fails_loses_no_other() -> None:
    result, provider = run("How high are they?")
    reduced = provider.requests[-1].conversation.messages[-1].content

    assert result.answer == "all: Dom is 4,000 m, Eiger is 4,000 m m"
    assert mapped(result) == [
        (1, "completed", "Dom is 4,000 m"),
        (2, "completed", "Eiger is 4,000 m"),
        (3, "failed", ""),
    ]
    assert "Item 3:\n(no result)" in reduced


def test_if_no_item_has_a_result_the_run_fails_with_the_first_error() -> None:
    result, _ = run("How high?", items=("Jura", "Jura again"))

    assert (result.status, result.stop_reason) == ("failed", "provider_error")
    assert (str(result.error), result.answer) == ("no such mountain", None)


@pytest.mark.parametrize(
    ("split", "task", "seen"),
    [
        ("lines", "How high?\nDom\n\nEiger", ["Dom", "Eiger"]),
        ("paragraphs", "How high?\n\nin the\nDom\n\n\nEiger", ["in the\nDom", "Eiger"]),
        ("lines", "Dom", ["Dom"]),
    ],
)
def test_a_task_split_by_code_shows_each_mapper_its_item_alone(
    split: str, task: str, seen: list[str]
) -> None:
    result, provider = run(task, split=split, max_concurrency=1)
    maps = [request.conversation for request in provider.requests[:-1]]

    assert result.facts[0].value == {"items": seen}
    for conversation, item in zip(maps, seen, strict=True):
        assert len(conversation) == 1
        assert conversation.messages[-1].content.endswith(f"\n\n{item}")
        for other in set(seen) - {item}:
            assert other not in conversation.messages[-1].content


def test_more_items_than_allowed_are_joined_with_neighbours_and_none_is_lost() -> None:
    result, _ = run("High?", items=tuple("abcdefg"), max_items=3)

    assert result.facts[0].value == {"items": ["a\n\nb", "c\n\nd\n\ne", "f\n\ng"]}


def test_many_results_are_put_together_in_levels() -> None:
    result, provider = run("High?", items=tuple("abcde"), reduce_width=2)
    levels = [f.value for f in result.facts if f.name == "ResultsReduced"]
    counts = sorted((v["level"], v["results"]) for v in levels if isinstance(v, dict))

    assert counts == [(1, 1), (1, 2), (1, 2), (2, 1), (2, 2), (3, 2)]
    assert result.answer is not None
    assert result.answer.startswith("all: ")
    assert len(provider.requests) == 5 + 6


def test_at_a_limit_the_results_so_far_are_the_answer() -> None:
    limits = Limits(max_llm_calls=3, best_effort=False)
    engine = Runtime(ScriptedProvider(model), limits=limits).engine(
        "map-reduce", items=("a", "b", "c")
    )
    result = engine.run_sync("High?")

    assert result.status == "limit"
    assert result.answer == (
        "Item 1:\na is 4,000 m\n\nItem 2:\nb is 4,000 m\n\nItem 3:\nc is 4,000 m"
    )
