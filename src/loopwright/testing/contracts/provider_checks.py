"""Checks of what a provider returns: completions, usage, deltas and errors."""

import dataclasses
import json
from collections.abc import Mapping
from typing import cast

from ...errors import ProviderError
from ...messages import Completion, Usage
from ...providers.base import Delta, Request
from ..assertions import assert_equal, assert_true, assert_type


def check_completion(completion: object, request: Request) -> None:
    """Check that the runtime can use a reply."""
    if not isinstance(completion, Completion):
        raise AssertionError(
            f"a reply of type {type(completion).__name__}, not a Completion"
        )
    set_ = [
        name
        for name in ("calls", "answer", "problem")
        if getattr(completion, name) not in ((), None)
    ]
    assert_true(
        len(set_) == 1,
        f"one of calls, answer and problem is to be set, got {set_}: {completion!r}",
    )
    offered = (
        {spec.name for spec in request.tools}
        if request.tool_choice == "auto"
        else set[str]()
    )
    for call in completion.calls:
        assert_true(
            call.name in offered,
            f"a call of {call.name!r}, which was not offered: return a problem",
        )
        assert_type(call.arguments, Mapping, "arguments that are not an object")
    ids = [call.id for call in completion.calls if call.id]
    assert_true(len(set(ids)) == len(ids), f"two calls have one id: {ids}")
    for text in (completion.text, completion.thought, completion.model):
        assert_type(text, str, "text, thought and model are texts")


def check_usage(usage: Usage) -> None:
    """Counts that can be true."""
    counts = {
        name: value
        for name, value in dataclasses.asdict(usage).items()
        if name.endswith("_tokens")
    }
    for name, count in counts.items():
        assert_true(
            count is None or (type(count) is int and count >= 0),
            f"usage.{name} is {count!r}",
        )
    assert_true(
        usage.input_tokens != 0, "usage.input_tokens is 0: what is not known is None"
    )
    for part, whole in (
        ("cached_tokens", "input_tokens"),
        ("cache_write_tokens", "input_tokens"),
        ("reasoning_tokens", "output_tokens"),
    ):
        known = counts[part] is not None and counts[whole] is not None
        assert_true(
            not known or counts[part] <= counts[whole],
            f"usage.{part} is part of {whole}: {usage!r}",
        )
    assert_true(usage.cost is None or usage.cost >= 0, f"usage.cost is {usage.cost!r}")


def check_deltas(deltas: list[Delta]) -> None:
    """The completion comes last and once, and the chunks are those of it."""
    assert_true(deltas, "a stream without a delta")
    whole = [delta.completion for delta in deltas if delta.completion is not None]
    assert_true(
        len(whole) == 1 and deltas[-1].completion is not None,
        "the completion comes once, in the last delta",
    )
    completion = whole[0]
    text = "".join(delta.text for delta in deltas)
    assert_true(
        text in ("", completion.text, completion.answer),
        f"streamed was {text!r}, the reply is {completion.text!r}",
    )
    chunks: dict[int, list[str]] = {}
    for call in (delta.call for delta in deltas if delta.call is not None):
        name, arguments = chunks.setdefault(call.index, ["", ""])
        chunks[call.index] = [name or call.name, arguments + call.arguments]
    if completion.calls and chunks:
        joined = [
            (name, json.loads(arguments or "{}"))
            for _, (name, arguments) in sorted(chunks.items())
        ]
        assert_equal(
            joined,
            [(call.name, dict(call.arguments)) for call in completion.calls],
            "the calls in chunks",
        )


def check_error(error: BaseException | None) -> None:
    """An error that the runtime knows what to do with."""
    assert_true(
        isinstance(error, ProviderError), f"ProviderError expected, got {error!r}"
    )
    failed = cast("ProviderError", error)
    assert_true(str(failed).strip(), "an error that says nothing")
    assert_type(failed.retryable, bool, "retryable")
    assert_true(
        failed.status is None or 100 <= failed.status <= 599,
        f"status: {failed.status!r}",
    )
    assert_true(
        failed.retry_after is None or failed.retry_after >= 0,
        f"retry_after: {failed.retry_after!r}",
    )
