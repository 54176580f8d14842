"""What hooks that do nothing cost a model call: CPU of turns with twelve of them and without any."""

import asyncio
import gc
import time
from statistics import median
from typing import Any

from loopwright import Completion, Runtime, tool
from loopwright.hooks import Hook, Moment
from loopwright.limits import Limits
from loopwright.testing import ScriptedProvider, call

HOOKS = 12
TURNS = 300
ROUNDS = 15


@tool(effect="read", trusted=True, repeatable=True)
async def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


class Idle(Hook):
    """Looks at all stages and does nothing."""

    def __init__(self, number: int) -> None:
        self.name = f"idle-{number}"  # type: ignore[misc]

    async def before_model(self, at: Moment, asked: Any) -> None:
        """Look."""

    async def after_model(self, at: Moment, text: str) -> None:
        """Look."""

    async def before_answer(self, at: Moment, answer: str) -> None:
        """Look."""


async def measure(hooks: int) -> float:
    """Return the CPU of this thread in a run, in seconds."""
    script: list[str | Completion] = [
        Completion("I look.", thought="I look.", calls=(call("look", what=str(n)),))
        for n in range(TURNS)
    ]
    runtime = Runtime(
        ScriptedProvider([*script, "blue"]),
        tools=[look],
        hooks=[Idle(number) for number in range(hooks)],
        limits=Limits(
            max_iterations=None,
            max_llm_calls=None,
            max_tool_calls=None,
            max_tokens=None,
        ),
    )
    gc.collect()
    gc.disable()  # it runs when a run's history has grown, whoever is at work then
    began = time.thread_time()
    result = await runtime.engine("react").run("What is blue?")
    assert result.answer == "blue", result
    seconds = time.thread_time() - began
    gc.enable()
    return seconds


async def compare() -> tuple[float, float]:
    """Return the CPU of a turn without hooks, and what twelve idle ones add, in microseconds: medians of pairs."""
    plain: list[float] = []
    hooked: list[float] = []
    for _ in range(ROUNDS):
        plain.append(await measure(0))
        hooked.append(await measure(HOOKS))
    per_turn = 1e6 / TURNS
    added = [more - less for less, more in zip(plain, hooked, strict=True)]
    return median(plain) * per_turn, median(added) * per_turn


def main() -> None:
    """Print the figures."""
    plain, added = asyncio.run(compare())
    print(
        f"a turn: {plain:.0f} us; {HOOKS} idle hooks add {added:.1f} us to a model call"
    )


if __name__ == "__main__":
    main()
