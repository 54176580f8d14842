"""Chunks of replies beside the entries of a run: a message is whole, and void text is said to be."""

from collections.abc import Iterable

import pytest

from loopwright import Delta, ReActEngine, Runtime
from loopwright.console.ag_ui.events import EventWriter
from loopwright.events import Entry, ModelRequested
from loopwright.testing import ScriptedProvider

REPLY = "It is gone."


async def write_run(deltas: Iterable[Delta]) -> list[tuple[str, str]]:
    """The types of the events of a run of one reply, whose chunks come after its request, and their texts."""
    runtime = Runtime(ScriptedProvider([REPLY]))
    result = await ReActEngine(runtime).run("Delete it.")
    writer = EventWriter(result.run_id, "t", "r", lambda seq: False)
    items: list[Entry | Delta] = []
    for entry in runtime.journal.read(result.run_id):
        items.append(entry)
        if isinstance(entry.event, ModelRequested):
            items += deltas
    events = [event for item in items for event in writer.write(item)]
    named = [(str(one.type.value), str(getattr(one, "delta", ""))) for one in events]
    return [one for one in named if "STATE" not in one[0]]


@pytest.mark.parametrize(
    "chunks", [[], ["It "], ["It ", "is ", "gone."], ["It is gone.\n"]], ids=len
)
async def test_a_message_is_whole_however_many_chunks_came(chunks: list[str]) -> None:
    events = await write_run([Delta(text=one, key="0") for one in chunks])

    said = "".join(text for kind, text in events if kind == "TEXT_MESSAGE_CONTENT")
    assert said.strip() == REPLY
    assert [kind for kind, _ in events][-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]


async def test_text_of_an_attempt_that_failed_is_void() -> None:
    chunks = [
        Delta(reasoning="Hm.", key="0"),
        Delta(text="It wa", key="0"),
        Delta(text="It is ", key="0", attempt=2),
    ]

    kinds = [kind for kind, _ in await write_run(chunks)]

    assert kinds == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "CUSTOM",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]


async def test_text_that_the_reply_does_not_have_is_void() -> None:
    events = await write_run([Delta(text="Action: delete", key="0")])

    assert [kind for kind, _ in events][:5] == [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "CUSTOM",
        "TEXT_MESSAGE_START",
    ]
    assert events[5] == ("TEXT_MESSAGE_CONTENT", REPLY)
