"""Compare a decoded reply with what an independent decoder read from the same recording."""

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from loopwright.messages import Completion

Row = dict[str, Any]


def encode_response(response: Row) -> bytes:
    """Return the bytes of a recorded response."""
    if "sse" in response:
        return str(response["sse"]).encode()
    if "events_base64" in response:
        return base64.b64decode(response["events_base64"])
    body = response["body"]
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def list_differences(completion: Completion, expected: Row) -> list[str]:
    """Return what differs between a reply and what is expected of it."""
    return [
        *_compare_text(completion, expected),
        *_compare_calls(completion, expected),
        *_compare_finish(completion, expected),
        *_compare_usage(completion, expected),
        *_compare_reasoning(completion, expected),
    ]


def _compare_text(completion: Completion, expected: Row) -> Iterator[str]:
    allowed = [expected["text"]]
    if "text_after_thinking" in expected:
        allowed.append(expected["text_after_thinking"])
    if completion.text.strip() not in [text.strip() for text in allowed]:
        yield f"text {completion.text[:80]!r}, expected {expected['text'][:80]!r}"


def _compare_calls(completion: Completion, expected: Row) -> Iterator[str]:
    calls = expected["calls"]
    if expected["finish"] == "length":
        if completion.calls:
            yield "a reply that was cut has calls"
        return
    if any("arguments_invalid" in call for call in calls):
        if not completion.problem:
            yield "no problem for arguments that are not JSON"
        return
    got = [(call.name, dict(call.arguments)) for call in completion.calls]
    wanted = [(call["name"], _arguments(call)) for call in calls]
    if got != wanted:
        yield f"calls {got}, expected {wanted} (problem: {completion.problem})"
    ids = [call.id for call in completion.calls]
    if any(ids) and ids != [call["id"] for call in calls]:
        yield f"ids {ids}"


def _arguments(call: Row) -> Row:
    if "input_text" in call:
        return {"input": call["input_text"]}
    return dict(call["arguments"])


def _compare_finish(completion: Completion, expected: Row) -> Iterator[str]:
    if completion.finish_reason != expected["finish"]:
        yield f"finish {completion.finish_reason!r}, expected {expected['finish']!r}"


def _compare_usage(completion: Completion, expected: Row) -> Iterator[str]:
    usage = completion.usage
    got = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cached_tokens,
        "reasoning": usage.reasoning_tokens,
    }
    wanted = {name: (expected["usage"] or {}).get(name) for name in got}
    if expected["usage"] and got != wanted:
        yield f"usage {got}, expected {wanted}"


def _compare_reasoning(completion: Completion, expected: Row) -> Iterator[str]:
    texts = [thought.text.strip() for thought in completion.reasoning]
    hashes = set(_hash_texts(list_blocks(completion)))
    for wanted in expected.get("reasoning") or ():
        text = (wanted.get("text") or "").strip()
        if text and text not in [*texts, "".join(texts)]:
            yield f"reasoning {texts}, expected {text[:80]!r}"
        seals = {wanted.get("signature_sha256"), wanted.get("signature_sha256_also")}
        if wanted.get("signature_sha256") and not seals & hashes:
            yield f"the signature of {wanted} is in no block"


def list_blocks(completion: Completion) -> list[Any]:
    """Return the opaque data of a reply."""
    blocks = [thought.block for thought in completion.reasoning]
    return [*blocks, *(call.block for call in completion.calls)]


def _hash_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield hashlib.sha256(value.encode()).hexdigest()
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _hash_texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _hash_texts(inner)


def list_sealed(value: Any) -> list[str]:
    """Return the signatures and the encrypted content in a request, in their order."""
    if isinstance(value, list):
        return [sealed for inner in value for sealed in list_sealed(inner)]
    if not isinstance(value, dict):
        return []
    names = (
        "encrypted_content",
        "encrypted_index",
        "signature",
        "thoughtSignature",
        "thought_signature",
        "redactedContent",
        "data",
    )
    own = [value[name] for name in names if isinstance(value.get(name), str)]
    return own + [sealed for inner in value.values() for sealed in list_sealed(inner)]
