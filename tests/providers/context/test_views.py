"""A context policy selects what each model call sends: what it is given, what is recorded, what it may ask."""

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel

from journal_positions import cut_after
from loopwright import ConfigError, Limits, Message, ReActEngine, Result, Runtime, tool
from loopwright.errors import AskFailed, ContextTooLong
from loopwright.events import ModelRequested, RequestChanged
from loopwright.messages import Conversation
from loopwright.providers.context import ContextView, View, Window
from loopwright.testing import ScriptedProvider, call, crashed

NOTE = Message("user", "[earlier turns are left out]", origin="runtime")


class Gist(BaseModel):
    """What a summary says."""

    text: str


@tool(effect="read", repeatable=True, trusted=True)
async def look(n: int) -> str:
    """Look something up."""
    return f"{n} " + "x" * 400


@dataclasses.dataclass
class Newest:
    """Sends the task and the newest turns; notes what it was given."""

    turns: int = 2
    given: list[ContextView] = dataclasses.field(default_factory=list[ContextView])

    async def view(self, at: ContextView) -> View:
        self.given.append(at)
        length = len(at.conversation)
        start = max(length - 2 * self.turns, 1)
        if start == 1:
            return View.whole(at.conversation)
        return View(length, ((0, 1), (start, length)), notes=(NOTE,))


@dataclasses.dataclass
class Keeping:
    """Leaves out the first two turns once five are there, and asks a model about them; later it adds what is new."""

    previous: list[View | None] = dataclasses.field(default_factory=list[View | None])

    async def view(self, at: ContextView) -> View:
        self.previous.append(at.previous)
        view = (at.previous or View.whole(at.conversation)).extend(at.conversation)
        if len(at.conversation) < 11 or view.notes:
            return view
        gist = await at.ask("Say it in a word.", Gist, covers=5)
        note = Message("user", gist.value.text, origin="memory")
        spans = ((0, 1), (gist.covers, view.length))
        return View(view.length, spans, notes=(note,), summary_key=gist.key, summarized=gist.covers)  # fmt: skip


async def run(*script: Any, **options: Any) -> tuple[Result, ScriptedProvider, Runtime]:
    provider = ScriptedProvider(script)
    runtime = Runtime(provider, tools=[look], **options)
    return await ReActEngine(runtime).run("The task."), provider, runtime


def looks(count: int) -> list[Any]:
    return [call("look", n=n) for n in range(count)]


def intents(runtime: Runtime, run_id: str) -> dict[str, ModelRequested]:
    entries = runtime.journal.read(run_id)
    return {e.key: e.event for e in entries if isinstance(e.event, ModelRequested)}


def texts(conversation: Conversation) -> list[str]:
    return [message.content[:3] for message in conversation]


async def test_view_of_a_policy_is_what_the_model_reads() -> None:
    result, provider, _ = await run(*looks(4), "done", context=Newest())

    sent = provider.requests[-1].conversation
    assert [m.content for m in sent][:2] == ["The task.", NOTE.content]
    assert texts(sent)[2:] == ["", "2 x", "[Wh", "", "3 x"]
    assert len(result.conversation) == 10, "what is kept stays whole"


async def test_view_is_recorded_and_the_request_is_read_back() -> None:
    result, provider, runtime = await run(*looks(4), "done", context=Newest())

    request = intents(runtime, result.run_id)["4"].request
    assert request is not None
    assert request.view is not None
    assert request.view.spans == ((0, 1), (5, 9))
    assert (request.left_out, len(request.view.notes)) == (4, 1)
    journal: Any = runtime.journal
    read = await journal.request(result.run_id, "4")
    assert read.conversation == provider.requests[-1].conversation


async def test_result_and_timeline_say_that_something_was_left_out() -> None:
    result, _, runtime = await run(*looks(4), "done", context=Newest())
    whole, _, _ = await run(*looks(4), "done")

    assert (result.trimmed, whole.trimmed) == (2, 0)
    lines = [intent.summary() for intent in intents(runtime, result.run_id).values()]
    assert lines[-1].endswith("turn 5, 4 left out")
    again = await ReActEngine(runtime).resume(result.run_id)
    assert again.trimmed == 2


async def test_policy_is_given_the_view_before_and_room_in_tokens() -> None:
    policy = Newest()
    await run(*looks(3), "done", context=policy, limits=Limits(context_tokens=900))

    previous = [at.previous for at in policy.given]
    assert previous[0] is None
    assert [view.length for view in previous if view] == [1, 3, 5]
    assert 700 < policy.given[0].room <= 900
    assert policy.given[0].target == pytest.approx(policy.given[0].room / 2, abs=1)
    last = policy.given[-1]
    assert last.count(View.whole(last.conversation)) == last.count(last.conversation)


async def test_summary_is_an_effect_below_the_call_and_moves_no_key() -> None:
    script = [*looks(5), '{"text": "early looks"}', call("look", n=9), "done"]
    result, provider, runtime = await run(*script, context=Keeping())

    assert list(intents(runtime, result.run_id)) == [
        "0", "1", "2", "3", "4", "5~c0", "5", "6"
    ]  # fmt: skip
    asked = intents(runtime, result.run_id)["5~c0"]
    assert (asked.purpose, asked.covers) == ("context", 5)
    assert (result.llm_calls, result.answer) == (8, "done")
    for request in provider.requests[6:]:
        assert texts(request.conversation)[:2] == ["The", "ear"]


@pytest.mark.parametrize("entry", range(1, 40))
async def test_summary_is_not_asked_for_twice_wherever_a_run_is_cut(entry: int) -> None:
    script = [*looks(5), '{"text": "early looks"}', call("look", n=9), "done"]
    result, before, runtime = await run(*script, context=Keeping())
    entries = runtime.journal.read(result.run_id)
    if entry >= len(entries):
        return
    replies = sum(e.kind == "model_replied" for e in entries[:entry])
    policy, after = Keeping(), ScriptedProvider(script[replies:])
    resumed = Runtime(after, tools=[look], context=policy, journal=crashed(entries, entry))  # fmt: skip

    again = await ReActEngine(resumed).resume(result.run_id)

    assert (again.answer, again.llm_calls) == ("done", result.llm_calls)
    assert len(after.requests) == len(script) - replies
    sent = [request.conversation for request in after.requests]
    assert sent == [request.conversation for request in before.requests[replies:]]


async def test_resumed_run_continues_the_view_that_is_recorded() -> None:
    script = [*looks(5), '{"text": "early looks"}', call("look", n=9), "done"]
    result, _, runtime = await run(*script, context=Keeping())
    entries = runtime.journal.read(result.run_id)

    policy = Keeping()
    cut = cut_after(entries, "tool_finished", 6)
    resumed = Runtime(
        ScriptedProvider(["done"]), tools=[look], context=policy, journal=crashed(entries, cut)
    )  # fmt: skip
    await ReActEngine(resumed).resume(result.run_id)

    [view] = policy.previous
    assert view is not None
    assert view.spans == ((0, 1), (5, 11))
    assert (view.summary_key, view.summarized) == ("5~c0", 5)
    assert [note.content for note in view.notes] == ["early looks"]


async def test_summary_is_budgeted_and_never_ends_a_run_by_itself() -> None:
    class Asking(Newest):
        async def view(self, at: ContextView) -> View:
            if len(at.conversation) > 4:
                with pytest.raises(AskFailed, match="3 of 3 model calls are used"):
                    await at.ask("What?", Gist)
            return View.whole(at.conversation)

    limits = Limits(max_llm_calls=3, best_effort=False)
    result, provider, _ = await run(*looks(2), "done", context=Asking(), limits=limits)

    assert (result.answer, len(provider.requests)) == ("done", 3)


async def test_too_long_a_request_gives_the_policy_half_of_its_room() -> None:
    policy = Newest(turns=3)
    given: list[int] = []

    class Halving(Newest):
        async def view(self, at: ContextView) -> View:
            given.append(at.room)
            return await dataclasses.replace(policy, turns=3 if len(given) < 5 else 1).view(at)  # fmt: skip

    script = [*looks(3), ContextTooLong("too long"), "done"]
    result, provider, runtime = await run(*script, context=Halving())

    assert result.answer == "done"
    assert len(provider.requests[-1].conversation) == 5
    assert given[4] < given[3]
    changed = [
        entry.event
        for entry in runtime.journal.read(result.run_id)
        if isinstance(entry.event, RequestChanged)
    ]
    assert [event.request.left_out for event in changed] == [4]


async def test_view_that_parts_a_call_from_its_result_is_named() -> None:
    class Parting(Newest):
        async def view(self, at: ContextView) -> View:
            length = len(at.conversation)
            return View(length, ((max(length - 1, 0), length),))

    result, _, _ = await run(*looks(1), "done", context=Parting())

    assert result.status == "failed"
    assert "context: the policy returned a view without whole turns" in str(result.error)  # fmt: skip


@pytest.mark.parametrize("context", [object(), Newest, 7])
def test_what_is_no_policy_is_refused(context: Any) -> None:
    with pytest.raises(ConfigError, match="context: needs an object with a method"):
        Runtime(ScriptedProvider([]), context=context)


class OnlyNewest(Window):
    """Sends the task and the newest message, also where all has room."""

    async def view(self, at: ContextView) -> View:
        whole, length = await super().view(at), len(at.conversation)
        return dataclasses.replace(whole, spans=((0, 1), (length - 1, length)))


class OnlyNewestOfLong(OnlyNewest):
    """Says again that it sends what fits."""

    sends_what_fits = True
    view = OnlyNewest.view


@pytest.mark.parametrize(("policy", "sent"), [(OnlyNewest(), 2), (OnlyNewestOfLong(), 6), (Window(), 6)])  # fmt: skip
async def test_subclass_with_a_view_of_its_own_is_asked(policy: Window, sent: int) -> None:  # fmt: skip
    provider = ScriptedProvider(["done"])
    given = Conversation([Message("user", f"message {n}") for n in range(6)])
    await ReActEngine(Runtime(provider, context=policy)).run(given)

    [request] = provider.requests
    without = [m for m in request.conversation if not m.content.startswith("[What")]
    assert len(without) == sent
