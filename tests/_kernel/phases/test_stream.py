"""Streaming: a run that is watched word by word is the run that is not, and its journal is the same."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loopwright import (
    Completion,
    Conversation,
    Delta,
    Entry,
    MemoryJournal,
    Message,
    ProviderError,
    ReActEngine,
    Reasoning,
    Request,
    Result,
    Runtime,
    Tool,
)
from loopwright.errors import ContextTooLong
from loopwright.providers import CallDelta
from loopwright.testing import FakeClock, ScriptedProvider, call
from sample_tools import add

RUN = "the-run"


SCRIPT: tuple[Any, ...] = (
    Completion(
        "I add. ",
        calls=(call("add", a=1, b=2),),
        reasoning=(Reasoning("Sums are easy.", "thinking"),),
    ),
    "It is 3.",
)


class Cut:
    """A provider whose first stream breaks off after some deltas."""

    name, model = "cut", "cut"
    capabilities = ScriptedProvider([]).capabilities

    def __init__(self, *before: Delta, error: ProviderError | None = None) -> None:
        self.before, self.error, self.asked = before, error, 0

    async def complete(self, request: Request) -> Completion:
        raise AssertionError("a watched run streams")

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.asked += 1
        if self.asked == 1:
            for delta in self.before:
                yield delta
            if self.error is not None:
                raise self.error
            return
        yield Delta(text="yes", completion=Completion("yes", answer="yes"))


def engine(
    provider: Any,
    *,
    journal: MemoryJournal | None = None,
    tools: tuple[Tool, ...] = (add,),
) -> ReActEngine:
    return ReActEngine(
        Runtime(provider, tools=tools, journal=journal, clock=FakeClock())
    )


async def watched(made: ReActEngine) -> tuple[list[Entry | Delta], Result]:
    async with made.start("What is 1 + 2?", run_id=RUN, deltas=True) as run:
        seen = [item async for item in run]
        return seen, await run.result()


async def test_a_streamed_run_and_a_plain_one_have_equal_journals() -> None:
    plain, streamed = MemoryJournal(), MemoryJournal()

    before = await engine(ScriptedProvider(SCRIPT), journal=plain).run(
        "What is 1 + 2?", run_id=RUN
    )
    seen, after = await watched(engine(ScriptedProvider(SCRIPT), journal=streamed))

    assert plain.read(RUN) == streamed.read(RUN)
    assert [item for item in seen if isinstance(item, Entry)] == streamed.read(RUN)
    assert before == after


async def test_deltas_come_before_the_entry_of_their_reply_and_carry_its_key() -> None:
    seen, _ = await watched(engine(ScriptedProvider(SCRIPT)))

    told = [item.kind if isinstance(item, Entry) else item for item in seen]
    start = told.index("model_requested")
    first = told[start + 1 : told.index("model_replied")]
    pieces = [item for item in first if isinstance(item, Delta)]
    assert len(pieces) > 3
    assert {piece.key for piece in pieces} == {"0"}
    assert "".join(piece.reasoning for piece in pieces) == "Sums are easy."
    assert "".join(piece.text for piece in pieces) == "I add. "
    calls = [piece.call for piece in pieces if piece.call is not None]
    assert calls == [CallDelta(0, "", "add"), CallDelta(0, arguments='{"a":1,"b":2}')]
    order = [
        "reasoning" if p.reasoning else "text" if p.text else "call"
        for p in pieces[:-1]
    ]
    assert order == sorted(order, key=["reasoning", "text", "call"].index)
    assert isinstance(first[-1], Delta)
    assert first[-1].completion is not None
    assert (
        "".join(d.text for d in seen if isinstance(d, Delta) and d.key == "1")
        == "It is 3."
    )


async def test_without_deltas_nobody_streams() -> None:
    class Mute(ScriptedProvider):
        stream: Any = None

    async with engine(Mute(SCRIPT)).start("What is 1 + 2?") as run:
        kinds = {type(item) for item in [item async for item in run]}

    assert kinds == {Entry}


async def test_a_provider_that_cannot_stream_is_watched_in_one_piece() -> None:
    class Mute(ScriptedProvider):
        stream: Any = None

    seen, result = await watched(engine(Mute(["Blue."]), tools=()))

    deltas = [item for item in seen if isinstance(item, Delta)]
    assert [delta.text for delta in deltas] == ["Blue."]
    assert result.answer == "Blue."


async def test_a_stream_that_breaks_before_its_first_word_is_tried_again() -> None:
    provider = Cut(error=ProviderError("gone", retryable=True))

    _, result = await watched(engine(provider, tools=()))

    assert (result.answer, provider.asked) == ("yes", 2)


@pytest.mark.parametrize(
    "told",
    [
        Delta(text="Half a "),
        Delta(reasoning="Half a "),
        Delta(call=CallDelta(0, name="add")),
    ],
)
async def test_a_stream_that_breaks_after_its_first_word_is_tried_again(
    told: Delta,
) -> None:
    provider = Cut(told, error=ProviderError("gone", retryable=True))

    seen, result = await watched(engine(provider, tools=()))

    deltas = [item for item in seen if isinstance(item, Delta)]
    assert (result.answer, provider.asked) == ("yes", 2)
    # A watcher drops what it showed of the attempt before.
    assert [delta.attempt for delta in deltas] == [1, 2]


async def test_a_stream_without_a_completion_is_an_error_and_no_answer() -> None:
    _, result = await watched(engine(Cut(Delta(text="ye")), tools=()))

    assert result.answer is None
    assert str(result.error) == "cut: the stream ended without a completion"


async def test_abort_closes_the_stream() -> None:
    closed = asyncio.Event()

    class Endless(Cut):
        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            try:
                while True:
                    yield Delta(text="on ")
                    await asyncio.sleep(0)
            finally:
                closed.set()

    async with engine(Endless(), tools=()).start("Go.", deltas=True) as run:
        async for item in run:
            if isinstance(item, Delta):
                break
        result = await run.abort()

    assert (result.status, closed.is_set()) == ("aborted", True)


async def test_reasoning_goes_back_with_the_turn_it_belongs_to() -> None:
    provider = ScriptedProvider(SCRIPT)

    await engine(provider).run("What is 1 + 2?")

    turn = provider.requests[1].conversation.messages[1]
    assert turn.reasoning == (Reasoning("Sums are easy.", "thinking"),)


async def test_a_stream_that_grows_too_long_is_asked_for_again_with_less() -> None:
    provider = Cut(Delta(text="Half a "), error=ContextTooLong("too long"))
    long = Conversation.of("first", system="be brief")
    for number in range(6):
        long = long.assistant(f"{number} " * 200).user("go on", origin="caller")

    async with engine(provider, tools=()).start(long, deltas=True) as run:
        deltas = [item async for item in run if isinstance(item, Delta)]
        result = await run.result()

    assert (result.answer, provider.asked) == ("yes", 2)
    assert [(delta.text, delta.attempt) for delta in deltas] == [
        ("Half a ", 1),
        ("yes", 2),
    ]


async def test_a_provider_that_cannot_stream_shows_its_thought_and_answer_and_no_protocol() -> (
    None
):
    class Mute(ScriptedProvider):
        stream: Any = None

    said = Completion("Thought: easy\nFinal Answer: 5", answer="5", thought="easy")
    seen, _ = await watched(engine(Mute([said]), tools=()))

    assert [(d.text, d.reasoning) for d in seen if isinstance(d, Delta)] == [
        ("5", "easy")
    ]


async def test_who_stops_reading_no_longer_has_the_model_stream() -> None:
    async with engine(ScriptedProvider([*SCRIPT])).start(
        "What is 1 + 2?", deltas=True
    ) as run:
        async for _ in run:
            break
        await asyncio.sleep(0)
        result = await run.result()

    assert result.answer == "It is 3."
    assert run._session.feed.delta_watchers == []


def test_reasoning_takes_no_room_in_the_context() -> None:
    thought = Reasoning("hm " * 10_000, "think")
    plain = Conversation([Message("user", "x"), Message("assistant", "y")])
    thoughtful = Conversation(
        [Message("user", "x"), Message("assistant", "y", reasoning=(thought,))]
    )

    assert thoughtful.size - plain.size < 100
