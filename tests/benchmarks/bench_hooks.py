"""What hooks that do nothing cost a model call: CPU of turns with twelve of them and without any.

Each turn is measured by itself, and of all rounds its cheapest counts, so that what else the machine does counts little.
"""

import asyncio
import gc
import itertools
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from loopwright import Completion, Request, Runtime, tool
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


class TimedProvider(ScriptedProvider):
    """Notes the CPU of this thread at each call."""

    def __init__(self, script: Sequence[Any]) -> None:
        super().__init__(script)
        self.marks: list[float] = []

    async def complete(self, request: Request) -> Completion:
        """Note the time and reply."""
        self.marks.append(time.thread_time())
        return await super().complete(request)


async def measure(hooks: int) -> list[float]:
    """Return the CPU of this thread from each model call of a run to the next, in seconds."""
    script: list[str | Completion] = [
        Completion("I look.", thought="I look.", calls=(call("look", what=str(n)),))
        for n in range(TURNS)
    ]
    provider = TimedProvider([*script, "blue"])
    runtime = Runtime(
        provider,
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
    result = await runtime.engine("react").run("What is blue?")
    assert result.answer == "blue", result
    gc.enable()
    return [after - before for before, after in itertools.pairwise(provider.marks)]


async def compare() -> tuple[float, float]:
    """Return the CPU of a turn without hooks, and what twelve idle ones add, in microseconds: medians over the turns."""
    plain: list[list[float]] = []
    hooked: list[list[float]] = []
    for _ in range(ROUNDS):
        plain.append(await measure(0))
        hooked.append(await measure(HOOKS))
    without, with_hooks = map(find_cheapest, (plain, hooked))
    added = [more - less for less, more in zip(without, with_hooks, strict=True)]
    return 1e6 * median(without), 1e6 * median(added)


def find_cheapest(rounds: list[list[float]]) -> list[float]:
    """Return for each turn the least time that it took in any round."""
    return [min(turn) for turn in zip(*rounds, strict=True)]


def main() -> None:
    """Print the figures."""
    plain, added = asyncio.run(compare())
    print(
        f"a turn: {plain:.0f} us; {HOOKS} idle hooks add {added:.1f} us to a model call"
    )


if __name__ == "__main__":
    main()
