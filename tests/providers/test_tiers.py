"""Models by weight: which one serves a tier that was not given, and how engines choose."""

from typing import Any

import pytest

from loopwright import PlanExecuteEngine, ReActEngine, Request, Runtime, tool
from loopwright.errors import ConfigError
from loopwright.providers import Provider, Tiers
from loopwright.testing import ScriptedProvider


def model(name: str) -> ScriptedProvider:
    return ScriptedProvider([], model=name)


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ("local light medium heavy", "local light medium heavy"),
        ("medium", "medium medium medium medium"),
        ("local heavy", "local heavy heavy heavy"),
        ("light medium", "light light medium medium"),
        ("local", "local local local local"),
        ("local light", "local light light light"),
    ],
)
def test_a_missing_tier_is_served_by_the_next_heavier_one_else_the_lighter(
    given: str, served: str
) -> None:
    tiers = Tiers(**{name: model(name) for name in given.split()})

    assert {name: provider.model for name, provider in tiers.items()} == dict(
        zip(["local", "light", "medium", "heavy"], served.split(), strict=True)
    )
    assert len(tiers) == 4
    assert "heaviest" not in tiers


def test_it_is_shown_by_what_was_given() -> None:
    assert (
        repr(Tiers(light=model("a"), heavy=model("b")))
        == "Tiers(light=scripted/a, heavy=scripted/b)"
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "Tiers needs one of local, light, medium, heavy"),
        ({"medium": "gpt"}, "medium: must be a provider, such as .*, got 'gpt'"),
        (
            {"medium": model("a"), "heavy": ScriptedProvider},
            "heavy: must be a provider",
        ),
    ],
)
def test_what_is_no_provider_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Tiers(**given)


async def test_closing_them_closes_each_provider_once_also_where_one_fails() -> None:
    closed: list[str] = []

    class Closing(ScriptedProvider):
        async def aclose(self) -> None:
            closed.append(self.model)
            if self.model == "b":
                raise OSError("stuck")

    twice = Closing([], model="a")

    with pytest.raises(OSError, match="stuck"):
        await Tiers(
            local=model("c"), light=twice, medium=Closing([], model="b"), heavy=twice
        ).aclose()
    assert sorted(closed) == ["a", "b"]


@tool(effect="read")
def search(query: str) -> str:
    """Find pages."""
    return f"all about {query}"


async def test_an_engine_plans_with_a_heavy_model_and_does_the_rest_with_a_medium_one() -> (
    None
):
    asked: list[str] = []

    def speaking(name: str, *lines: str) -> Provider:
        left = list(lines)

        def speak(request: Request) -> str:
            asked.append(name)
            return left.pop(0)

        return ScriptedProvider(speak, model=name)

    tiers = Tiers(
        light=speaking("light"),
        medium=speaking("medium", "The colour of the sky is blue."),
        heavy=speaking("heavy", '1. search("sky")\n2. join()'),
    )
    runtime = Runtime(tiers["medium"], tools=[search], providers=tiers)
    result = await PlanExecuteEngine(runtime, planner="heavy").run(
        "What colour is the sky?"
    )

    assert (result.status, result.answer, result.tool_calls) == (
        "completed",
        "The colour of the sky is blue.",
        1,
    )
    assert asked == ["heavy", "medium"]


def test_unknown_tier_raises_with_the_known_names() -> None:
    tiers = Tiers(medium=model("a"))
    runtime = Runtime(tiers["medium"], providers=tiers)

    with pytest.raises(
        ConfigError,
        match=r"planner: 'huge' is not among .* local, light, medium, heavy",
    ):
        PlanExecuteEngine(runtime, planner="huge")


async def test_one_tier_alone_is_a_runtime_like_any_other() -> None:
    tiers = Tiers(local=ScriptedProvider(["yes"]))

    assert (
        await ReActEngine(Runtime(tiers["heavy"], providers=tiers)).run("q")
    ).answer == "yes"
