"""How a 135-million-parameter model fares with goals over three skills: how many end completed, and with what is asked for.

Run it with `python tests/benchmarks/local_goals.py` (some minutes); `-v` prints every reply and fact, `--limit 3` takes the
first three goals.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Iterable

from loopwright import Conversation, Limits, Result, Runtime, ToolError, tool
from loopwright.engines import GoalCycleEngine
from loopwright.engines.goal_prompts import EXAMPLE_PROMPTS
from loopwright.events import Event, FactNoted, ModelReplied, ToolFinished
from loopwright.providers import LocalProvider, TextTools

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
GOALS = [
    ("What is the capital of Japan?", "Tokyo"),
    ("How many people live in Lima?", "10,092,000"),
    ("How many people live in the capital of Japan?", "14,178,000"),
    ("Which is larger, 17 or 23?", "23"),
    ("Find out how many people live in Oslo.", "717,000"),
    ("Look up the capital of Kenya.", "Nairobi"),
    ("Do more people live in Paris or in Rome?", "2,747,000"),
    ("Tell me the capital of Egypt and how many people live there.", "10,203,000"),
    ("How many people live in the capital of Poland?", "1,862,000"),
    ("Compare the capital of Spain with the capital of Greece by people.", "3,332,000"),
]  # fmt: skip


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


def print_event(event: Event) -> None:
    """Print what is worth reading of a run."""
    match event:
        case ModelReplied(completion=reply, seconds=seconds):
            print(f"    reply [{seconds:.1f} s] {reply.text!r}", flush=True)
        case FactNoted(name=name, value=value):
            print(f"    {name} {value!r}")
        case ToolFinished(tool=name, content=content):
            print(f"    {name} -> {content}")
        case _:
            pass


async def reach(provider: TextTools, goal: str, verbose: bool) -> Result:
    """Return the result of the goal cycle."""
    runtime = Runtime(
        provider, tools=[capital, population, compare], limits=Limits(timeout=600.0)
    )
    async with GoalCycleEngine(runtime, prompts=EXAMPLE_PROMPTS).start(goal) as run:
        async for entry in run:
            if verbose:
                print_event(entry.event)
        return await run.result()


async def measure(goals: Iterable[tuple[str, str]], verbose: bool) -> None:
    """Print how each goal ended, and the counts."""
    provider = TextTools(LocalProvider(), "json", typed_examples=EXAMPLES)
    completed = right = total = 0
    for goal, wanted in goals:
        began = time.perf_counter()
        result = await reach(provider, goal, verbose)
        seconds = time.perf_counter() - began
        total += 1
        completed += result.status == "completed"
        is_right = result.status == "completed" and wanted in (result.answer or "")
        right += is_right
        print(
            f"{'right' if is_right else '-':6} {result.status:10} {result.stop_reason:16} {result.llm_calls:3} calls "
            f"{seconds:5.1f} s  {goal}  ->  {result.answer!r:.120}",
            flush=True,
        )
    print(f"{total} goals: {completed} completed, {right} with what was asked for")


def main() -> None:
    """Measure the goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--limit", type=int, default=len(GOALS))
    given = parser.parse_args()
    asyncio.run(measure(GOALS[: given.limit], given.verbose))


if __name__ == "__main__":
    main()
