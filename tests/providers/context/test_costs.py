"""What the policy costs a step does not grow with the run, and tokens are counted as the provider reports them."""

import itertools
import re
import sys
from types import FrameType
from typing import Any

import pytest

from loopwright import Limits, ReActEngine, Runtime, tool
from loopwright.messages import Completion, Usage
from loopwright.providers import Request
from loopwright.providers.context.tokens import measure_request
from loopwright.testing import ScriptedProvider, call

ENDLESS: dict[str, Any] = dict.fromkeys(
    ("max_iterations", "max_llm_calls", "max_tool_calls", "max_tokens", "timeout")
)
BLOCK = 90
"""Steps that are counted: some cuts are among them."""


@tool(effect="read", repeatable=True, trusted=True)
async def look(n: int) -> str:
    """Look something up."""
    return f"{n} " + "x" * 400


class CountingModel:
    """Looks on, and counts the Python functions that are called in some steps: at 250, and late in the run."""

    def __init__(self, steps: int) -> None:
        self.steps, self.step = steps, 0
        self.calls: dict[int, int] = {}
        self._begins = (250, steps - BLOCK - 5)

    def __call__(self, request: Request) -> Any:
        for begin in self._begins:
            if self.step == begin:
                self.calls[begin] = 0
                sys.setprofile(lambda f, e, a, begin=begin: self._count(begin, f, e))
            if self.step == begin + BLOCK:
                sys.setprofile(None)
        self.step += 1
        return call("look", n=self.step) if self.step <= self.steps else "done"

    def _count(self, begin: int, frame: FrameType, event: str) -> None:
        self.calls[begin] += event == "call"


@pytest.mark.parametrize("context", ["masking", "window"])
async def test_functions_called_in_a_step_do_not_grow_with_the_run(context: str) -> None:  # fmt: skip
    model = CountingModel(1_500)
    limits = Limits(context_tokens=4_000, **ENDLESS)
    provider = ScriptedProvider([model] * 1_600)
    runtime = Runtime(provider, tools=[look], limits=limits, context=context)
    before = sys.getprofile()
    try:
        await ReActEngine(runtime).run("The task.")
    finally:
        sys.setprofile(before)

    early, late = model.calls.values()
    assert early > BLOCK * 100, "something was counted"
    assert late == pytest.approx(early, rel=0.1)


def count_tokens(request: Request) -> int:
    """As a tokenizer of words counts: pieces of words, digits and signs, some more for each message and tool."""
    texts = [m.content + str([c.arguments for c in m.calls]) for m in request.conversation]  # fmt: skip
    texts += [f"{one.name} {one.description} {one.schema}" for one in request.tools]
    pieces = sum(len(re.findall(r"\w{1,5}|[^\w\s]", text)) for text in texts)
    return pieces + 4 * len(texts)


async def test_counts_are_within_5_percent_of_reports_between_cuts() -> None:
    counted: list[int] = []
    reported: list[int] = []

    @tool(effect="read", repeatable=True, trusted=True)
    async def read(n: int) -> str:
        """Read a page of prose."""
        return f"Page {n}. " + "The quick brown fox jumps over the lazy dog. " * 12

    def reply(request: Request) -> Completion:
        tokens = count_tokens(request)
        meter = runtime.token_meter(provider)
        counted.append(meter.estimate(measure_request(request)))
        reported.append(tokens)
        usage = Usage(input_tokens=tokens, output_tokens=9)
        number = len(reported)
        if number > 80:
            return Completion(answer="done", usage=usage)
        return Completion(calls=(call("read", n=number),), usage=usage)

    provider = ScriptedProvider([reply] * 100)
    limits = Limits(context_tokens=4_000, **ENDLESS)
    runtime = Runtime(provider, tools=[read], limits=limits)
    await ReActEngine(runtime).run("Read all pages.")

    errors = [abs(a / b - 1) for a, b in zip(counted, reported, strict=True)]
    grown = [after > before for before, after in itertools.pairwise(reported)]
    known = [e for e, is_grown in zip(errors[1:], grown, strict=True) if is_grown]
    cuts = [e for e, is_grown in zip(errors[1:], grown, strict=True) if not is_grown]
    assert max(known[2:]) < 0.05
    assert len(cuts) >= 3
    assert max(cuts) < 0.2, "right after a cut, masks are counted as pages were"
