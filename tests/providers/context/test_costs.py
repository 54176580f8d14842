"""What the policy costs a step does not grow with the run, and tokens are counted as the provider reports them."""

import itertools
import json
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from loopwright import Limits, ReActEngine, Runtime, tool
from loopwright.messages import Completion, Usage
from loopwright.providers import Request
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
    """Looks on, and counts the functions, of C too, that are called in some steps: at 250, and late in the run."""

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
        self.calls[begin] += event in ("call", "c_call")


@pytest.mark.faults
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


def split_finely(request: Request) -> int:
    """Count pieces of words of five characters, digits and signs, which is more for masks than tokenizers in use have."""
    texts = [m.content + str([c.arguments for c in m.calls]) for m in request.conversation]  # fmt: skip
    texts += [f"{one.name} {one.description} {one.schema}" for one in request.tools]
    pieces = sum(len(re.findall(r"\w{1,5}|[^\w\s]", text)) for text in texts)
    return pieces + 4 * len(texts)


SPLITS = re.compile(r"'(?:[sdmt]|ll|ve|re)|[^\W\d_]{1,9}|\d{1,3}| ?[^\s\w]{1,3}|\s+(?!\S)")  # fmt: skip
"""As the tokenizer of GPT-4 splits a text before it looks for pairs; a longer word is taken to have two tokens."""


def split_as_models_do(request: Request) -> int:
    texts = [one.content for one in request.conversation]
    calls = [one for message in request.conversation for one in message.calls]
    texts += [json.dumps({"name": c.name, "arguments": c.arguments}) for c in calls]
    texts += [json.dumps([t.name, t.description, t.schema]) for t in request.tools]
    return sum(len(SPLITS.findall(text)) for text in texts) + 4 * len(texts)


def split_digits_one_by_one(request: Request) -> int:
    """Count tokens as a model that has one for each digit, and long ones for nothing but words."""
    texts = [m.content + str([c.arguments for c in m.calls]) for m in request.conversation]  # fmt: skip
    texts += [f"{one.name} {one.description} {one.schema}" for one in request.tools]
    pieces = sum(len(re.findall(r"[^\W\d_]{1,7}|\d|[^\s\w]{1,2}|_", text)) for text in texts)  # fmt: skip
    return pieces + 3 * len(texts)


PAGES: dict[str, Callable[[int], str]] = {
    "prose": lambda n: "The quick brown fox jumps over the lazy dog. " * 12,
    "log": lambda n: "\n".join(
        f"2026-11-26T08:{i:02}:11.{n * i % 997:03}Z INFO worker[{i * n}] GET /api/items/{i * 913} took {i * 3.7:.2f} ms"
        for i in range(8)
    ),
    "json": lambda n: json.dumps(
        [{"id": i * n, "name": f"Item {i}", "tags": ["a", "b"]} for i in range(12)]
    ),
    "code": lambda n: "def find(self, name: str) -> str | None:\n    return self._rows.get(name, (None, 0))[0]\n" * 6,
}  # fmt: skip


class Reports:
    """Reads pages, and compares what each request was counted as with what its reply reports."""

    def __init__(self, count: Callable[[Request], int]) -> None:
        self._count = count
        self.counted: list[int] = []
        self.reported: list[int] = []
        self.runtime: Runtime

    def __call__(self, request: Request) -> Completion:
        tokens = self._count(request)
        meter = self.runtime.token_meter(self.runtime.provider)
        self.counted.append(meter.count_request(request))
        self.reported.append(tokens)
        usage = Usage(input_tokens=tokens, output_tokens=9)
        number = len(self.reported)
        if number > 80:
            return Completion(answer="done", usage=usage)
        return Completion(calls=(call("read", n=number),), usage=usage)

    def list_errors(self) -> tuple[list[float], list[float]]:
        """Return by how much the counts were wrong from the fourth request on: right after cuts, and between them."""
        cuts, others = list[float](), list[float]()
        pairs = zip(self.counted, self.reported, strict=True)
        errors = [abs(a / b - 1) for a, b in pairs]
        for number, (before, after) in enumerate(itertools.pairwise(self.reported), 1):
            if number >= 3:
                (others if after > before else cuts).append(errors[number])
        return cuts, others


async def measure_errors(
    count: Callable[[Request], int], page: Callable[[int], str], context: str
) -> tuple[list[float], list[float]]:
    @tool(effect="read", repeatable=True, trusted=True)
    async def read(n: int) -> str:
        """Read a page."""
        return f"Page {n}. {page(n)}"

    reports = Reports(count)
    provider = ScriptedProvider([reports] * 100)
    limits = Limits(context_tokens=4_000, **ENDLESS)
    reports.runtime = Runtime(provider, tools=[read], limits=limits, context=context)
    await ReActEngine(reports.runtime).run("Read all pages.")
    return reports.list_errors()


@pytest.mark.parametrize("context", ["masking", "window"])
@pytest.mark.parametrize("kind", PAGES)
async def test_counts_are_within_5_percent_of_reports_at_cuts_too(
    kind: str, context: str
) -> None:
    cuts, others = await measure_errors(split_as_models_do, PAGES[kind], context)

    assert len(cuts) >= 3
    assert max(cuts) < 0.05
    assert max(others) < 0.05


@pytest.mark.parametrize("context", ["masking", "window"])
@pytest.mark.parametrize("count", [split_as_models_do, split_digits_one_by_one])
async def test_counts_are_right_where_results_are_of_many_kinds(
    count: Callable[[Request], int], context: str
) -> None:
    def page(number: int) -> str:
        return list(PAGES.values())[number % 7 % len(PAGES)](number)

    cuts, others = await measure_errors(count, page, context)

    assert len(cuts) >= 3
    assert max(cuts) < 0.05
    assert max(others) < 0.05


def split_long_white_space(request: Request) -> int:
    """Count two characters of white space as one token beside what other models have."""
    texts = [one.content for one in request.conversation]
    blanks = sum(len(text) - len("".join(text.split())) for text in texts)
    return split_as_models_do(request) + blanks // 2


@pytest.mark.parametrize("context", ["masking", "window"])
async def test_counts_are_right_where_results_are_white_space(context: str) -> None:
    def page(number: int) -> str:
        return "\n\t \n" * 150 if number % 2 else PAGES["prose"](number)

    cuts, others = await measure_errors(split_long_white_space, page, context)

    assert len(cuts) >= 3
    assert max(cuts) < 0.05
    assert max(others) < 0.05


async def test_what_masks_have_is_learned_by_the_first_cut() -> None:
    cuts, others = await measure_errors(split_finely, PAGES["prose"], "masking")

    assert max(others) < 0.05
    assert cuts[0] < 0.15, "a mask has more tokens than of a tokenizer in use"
    assert max(cuts[1:]) < 0.05
