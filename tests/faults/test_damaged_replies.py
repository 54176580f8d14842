"""Damaged replies of every provider form: each gives a completion or a `ProviderError`, and nothing else."""

import asyncio
import binascii
import copy
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from fault_sizes import figure, sized
from loopwright.errors import ProviderError
from loopwright.messages import Completion, Conversation
from loopwright.providers import Request
from recordings import MISSING, rows
from wire_checks import encode_response
from wire_replay import PROVIDERS, read_model_name

Row = dict[str, Any]
DAMAGES = sized(120, 10_000)
MAX_SECONDS = 5.0  # for one reply, on a busy machine
JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 2**70, 1e308, "", "x", "\u0000", "[]", [], {}, [None], [[]], {"": None}, {"type": None},
    "9" * 400, [0] * 50, {"a": {"b": {"c": [{}]}}},
)  # fmt: skip

SAMPLES: dict[str, list[tuple[Row, bool]]] = {
    family: [
        (interaction, row["streaming"])
        for row in rows(f"wire/{family}.jsonl")
        for interaction in row["interactions"]
        if len(encode_response(interaction["response"])) < 40_000
    ]
    for family in PROVIDERS
}
pytestmark = pytest.mark.skipif(not any(SAMPLES.values()), reason=MISSING)


@pytest.mark.timeout(sized(120, 7_200))
@pytest.mark.parametrize("family", PROVIDERS)
async def test_damaged_reply_gives_a_completion_or_a_provider_error(
    family: str,
) -> None:
    chance = random.Random(f"damaged {family}")
    outcomes = {"completion": 0, "error": 0}
    for _ in range(DAMAGES):
        interaction, streaming = chance.choice(SAMPLES[family])
        body, status = damage(chance, interaction["response"])
        head = httpx.Response(
            status,
            headers={"content-type": choose_type(chance, interaction)},
            content=body,
        )
        try:
            async with asyncio.timeout(MAX_SECONDS):
                outcome = await decode(family, interaction, head, streaming=streaming)
        except ProviderError:
            outcomes["error"] += 1
            continue
        assert isinstance(outcome, Completion), body
        outcomes["completion"] += 1
    assert min(outcomes.values()) > 0
    figure(f"damaged replies of {family}", str(outcomes))


async def decode(
    family: str, interaction: Row, head: httpx.Response, *, streaming: bool
) -> Completion | None:
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: head))
    model = read_model_name(interaction["request"])
    provider = PROVIDERS[family](
        model, base_url="http://api.example/v1", api_key="k", client=client
    )
    request = Request(Conversation.of("x"))
    if not streaming:
        return await provider.complete(request)
    completion = None
    async for delta in provider.stream(request):
        completion = delta.completion
    return completion


def choose_type(chance: random.Random, interaction: Row) -> str:
    recorded = str(interaction["response"]["content_type"])
    others = ["application/json", "text/event-stream", "text/html", ""]
    return chance.choice(others) if chance.random() < 0.05 else recorded


def damage(chance: random.Random, response: Row) -> tuple[bytes, int]:
    """Return the body of a response with some damage, and its status."""
    body = encode_response(response)
    status = response["status"]
    if chance.random() < 0.05:
        status = chance.choice((200, 204, 301, 400, 401, 404, 413, 429, 500, 503, 529))
    if chance.random() < 0.75:
        body = damage_values(chance, body, response)
    if chance.random() < 0.4:
        body = chance.choice(BYTE_DAMAGES)(chance, body)
    return body, status


def damage_values(chance: random.Random, body: bytes, response: Row) -> bytes:
    """Return the body with other JSON values in one to three places."""
    if "events_base64" in response:
        return damage_frames(chance, body)
    if "sse" in response:
        return damage_events(chance, body)
    return (
        json.dumps(replace_values(chance, json.loads(body))).encode()
        if is_json(body)
        else body
    )


def is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def replace_values(chance: random.Random, value: Any) -> Any:
    """Return a JSON value with something else, or nothing, in one to three places."""
    value = copy.deepcopy(value)
    for _ in range(chance.randrange(1, 4)):
        places = list_places(value)
        if not places:
            return chance.choice(JUNK)
        holder, key = chance.choice(places)
        if key not in (holder if isinstance(holder, dict) else range(len(holder))):
            continue
        if chance.random() < 0.25:
            del holder[key]
        else:
            others = [chance.choice(JUNK), chance.choice(places)[0]]
            holder[key] = copy.deepcopy(chance.choice(others))
    return value


def list_places(value: Any) -> list[tuple[Any, Any]]:
    """Return each container in a value with each of its keys."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            found += [(inner, key) for key in inner]
            waiting += inner.values()
        elif isinstance(inner, list):
            found += [(inner, number) for number in range(len(inner))]
            waiting += inner
    return found


def damage_events(chance: random.Random, body: bytes) -> bytes:
    """Return an event stream with damaged, missing, doubled or exchanged events."""
    events = body.split(b"\n\n") if b"\r\n" not in body else body.split(b"\r\n\r\n")
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(events))
        head, mark, data = events[place].partition(b"data:")
        if mark and is_json(data) and chance.random() < 0.6:
            other = json.dumps(replace_values(chance, json.loads(data))).encode()
            events[place] = head + b"data: " + other
        else:
            reorder(chance, events, place)
    return b"\n\n".join(events)


def reorder(chance: random.Random, events: list[bytes], place: int) -> None:
    """Drop an event, double it, or exchange it with another."""
    kind = chance.randrange(3)
    if kind == 0 and len(events) > 1:
        del events[place]
    elif kind == 1:
        events.insert(place, events[place])
    else:
        other = chance.randrange(len(events))
        events[place], events[other] = events[other], events[place]


def damage_frames(chance: random.Random, body: bytes) -> bytes:
    """Return an AWS event stream with damaged, missing, doubled or exchanged messages, their checksums right."""
    frames = split_frames(body)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(frames))
        headers, payload = frames[place]
        if is_json(payload) and chance.random() < 0.6:
            other = json.dumps(replace_values(chance, json.loads(payload))).encode()
            frames[place] = headers, other
        else:
            packed = [pack_frame(*frame) for frame in frames]
            reorder(chance, packed, place)
            return b"".join(packed)
    return b"".join(pack_frame(*frame) for frame in frames)


def split_frames(body: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers and the payload of each message."""
    frames: list[tuple[bytes, bytes]] = []
    while body:
        total, size = struct.unpack(">II", body[:8])
        frames.append((body[12 : 12 + size], body[12 + size : total - 4]))
        body = body[total:]
    return frames


def pack_frame(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
    start = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return start + struct.pack(">I", binascii.crc32(start))


def cut(chance: random.Random, body: bytes) -> bytes:
    return body[: chance.randrange(len(body) + 1)]


def flip(chance: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.randrange(1, 9) if changed else 0):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def take_out(chance: random.Random, body: bytes) -> bytes:
    start = chance.randrange(len(body) + 1)
    return body[:start] + body[start + chance.randrange(200) :]


def put_in(chance: random.Random, body: bytes) -> bytes:
    place = chance.randrange(len(body) + 1)
    piece = chance.choice(
        (
            b"\xff\xfe",
            b"\x00",
            b"{",
            b"]}",
            b"\n\n",
            b"data: ",
            b"\xed\xa0\x80",
            b"1" * 5_000,
        )
    )
    return body[:place] + piece + body[place:]


BYTE_DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    cut,
    flip,
    take_out,
    put_in,
)
