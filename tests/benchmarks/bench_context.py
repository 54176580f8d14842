"""Measure what the context policy costs a step as a run grows, what requests share, and how well tokens are counted.

    python tests/benchmarks/bench_context.py [STEPS] [POLICY]

CPU seconds of this process are measured with a model and a tool that cost nothing. The quarter of each 250 steps that took
least is compared, since other processes on the machine slow down the others.
"""

import asyncio
import sys
import time
from typing import Any

from loopwright import Limits, ReActEngine, Runtime, tool
from loopwright.messages import Message, encode_message
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider, call

BLOCK = 250
WINDOW = 8_000
ENDLESS: dict[str, Any] = dict.fromkeys(
    ("max_iterations", "max_llm_calls", "max_tool_calls", "max_tokens", "timeout")
)


@tool(effect="read", repeatable=True, trusted=True)
async def look(n: int) -> str:
    """Look something up."""
    return f"{n} " + "x" * 400


class Model:
    """Looks so often, notes the CPU time of each step, and how much of a request the one before began with."""

    def __init__(self, steps: int) -> None:
        self.steps, self.step = steps, 0
        self.costs: list[float] = []
        """CPU seconds of each step, without this model."""
        self._began = 0.0
        self.shared = self.sent = 0
        self.used: list[float] = []
        self._before: tuple[Message, ...] = ()

    def __call__(self, request: Request) -> Any:
        if request.conversation.messages[-1].content.startswith("Summarize"):
            return '{"goal": "look"}'
        ended = time.process_time()
        if self.step:
            self.costs.append(ended - self._began)
        self._compare(request)
        self.step += 1
        self._began = time.process_time()
        return call("look", n=self.step) if self.step <= self.steps else "done"

    def _compare(self, request: Request) -> None:
        messages = request.conversation.messages
        for one, other in zip(self._before, messages, strict=False):
            if one is not other and one != other:
                break
            self.shared += len(one.encoded(encode_message))
        self.sent += request.conversation.size
        self.used.append(request.conversation.size / 4 / WINDOW)
        self._before = messages


async def measure(steps: int, policy: str) -> Model:
    """Return the measured model of a run of so many steps."""
    model = Model(steps)
    provider = ScriptedProvider([model] * (steps + 1_000))
    limits = Limits(context_tokens=WINDOW, **ENDLESS)
    runtime = Runtime(provider, tools=[look], limits=limits, context=policy)
    result = await ReActEngine(runtime).run("The task.")
    assert result.answer == "done", result
    return model


def main() -> None:
    """Print a line for each 250 steps."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    policy = sys.argv[2] if len(sys.argv) > 2 else "masking"
    model = asyncio.run(measure(steps, policy))
    for start in range(0, steps - BLOCK + 1, BLOCK):
        block = sorted(model.costs[start : start + BLOCK])
        quick = sum(block[: BLOCK // 4]) / (BLOCK // 4)
        mean = sum(block) / BLOCK
        end = start + BLOCK
        print(
            f"{policy}, steps to {end:5}: {1_000 * quick:.3f} ms of CPU a step (mean {1_000 * mean:.3f})"
        )
    print(f"shared with the request before: {model.shared / model.sent:.1%}")
    full = model.used[100:]
    print(f"used of the window: {sum(full) / len(full):.1%} on average")


if __name__ == "__main__":
    main()
