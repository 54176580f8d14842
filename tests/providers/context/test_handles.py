"""A handle gives the text that it stands for, however the conversation came to the run."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from loopwright import (
    Conversation,
    Limits,
    LoopEngine,
    MemoryJournal,
    ReActEngine,
    Result,
    Run,
    Runtime,
    tool,
)
from loopwright.messages import Message
from loopwright.providers import Request
from loopwright.security.redaction import Redactor
from loopwright.testing import ScriptedProvider, call
from loopwright.tools.recall import recall

MASK = re.compile(r'recall\("([^"]+)"\)')
ROOM = re.compile(r"room (\d+):")
WIDE = Limits(context_tokens=100_000)
SMALL = Limits(context_tokens=2_300, max_iterations=60, max_tool_calls=60)


@tool(effect="read", trusted=True)
async def look(n: int) -> str:
    """Look into a room."""
    return f"room {n}: " + f"word{n} " * 120


class Curious:
    """A model that looks into rooms, then reads each result again whose handle it saw."""

    def __init__(self, rooms: Sequence[int]) -> None:
        self._rooms = list(rooms)
        self.seen: dict[str, set[int]] = {}
        """The rooms by the handles that stood for what was seen there."""
        self.read: dict[str, str] = {}
        self._asked = ""

    def __call__(self, request: Request) -> Any:
        messages = request.conversation.messages
        self._note(messages)
        if self._asked:
            self.read[self._asked] = messages[-1].content
            self._asked = ""
        if self._rooms:
            return call("look", n=self._rooms.pop(0))
        left = [one for one in self.seen if one not in self.read]
        if not left:
            return "Done."
        self._asked = left[0]
        return call("recall", handle=left[0], lines="1")

    def _note(self, messages: Sequence[Message]) -> None:
        calls: dict[str, Any] = {}  # runs give their calls the same ids
        for message in messages:
            calls.update((one.id, one) for one in message.calls)
            found = MASK.search(message.content)
            if message.role == "tool" and found and calls[message.call_id].name == "look":  # fmt: skip
                room = calls[message.call_id].arguments["n"]
                self.seen.setdefault(found[1], set()).add(room)

    def check(self, rooms: Sequence[int]) -> None:
        """Check that each handle gave the text of its one room, and that these rooms had one."""
        found = {handle: {*map(int, ROOM.findall(text))} for handle, text in self.read.items()}  # fmt: skip
        assert found == self.seen
        assert set(rooms) <= set().union(*found.values())


async def ask(
    model: Curious, task: Conversation | str, journal: MemoryJournal, *,
    limits: Limits = SMALL, engine: type[LoopEngine] = ReActEngine, redactor: Redactor | None = None,
) -> Result:  # fmt: skip
    provider = ScriptedProvider([model] * 60)
    redacting: Any = {} if redactor is None else {"redactor": redactor}
    runtime = Runtime(provider, tools=[look], journal=journal, limits=limits, **redacting)  # fmt: skip
    return (await engine(runtime).run(task)).raise_for_status()


async def look_into(count: int, journal: MemoryJournal) -> Conversation:
    """Return the conversation of a run that looked into so many rooms, and was sent all of it."""
    result = await ask(Curious(range(1, count + 1)), "Look.", journal, limits=WIDE)
    return result.conversation


class Dropping(LoopEngine):
    """Goes on without the first call and its result."""

    name = "dropping"

    async def solve(self, run: Run) -> str:
        """Ask once."""
        first, _, _, *rest = run.conversation.messages
        proposal = await run.reason(Conversation([first, *rest]))
        return proposal.answer or ""


@pytest.mark.parametrize("how", ["plain", "secret", "journal"])
async def test_handle_in_a_conversation_that_continues_no_run_gives_its_text(
    how: str,
) -> None:
    journal, redactor = MemoryJournal(), None
    given = await look_into(6, journal)
    if how == "plain":
        given = Conversation(given.messages)
    elif how == "secret":
        redactor = Redactor(["word6 word6"])
    else:
        journal = MemoryJournal()
    model = Curious(range(101, 106))

    await ask(model, given.user("Go on."), journal, redactor=redactor)

    model.check(range(2, 7))


@pytest.mark.parametrize("is_read", [False, True])
async def test_handle_of_what_a_turn_left_out_gives_no_other_text(
    is_read: bool,
) -> None:
    """The second turn goes on without the first call, so each message behind it has another place from then on."""
    journal = MemoryJournal()
    plain = Conversation((await look_into(6, journal)).messages)
    first = Curious(range(101, 106))
    turn = await ask(first, plain.user("Go on."), journal)
    shorter = await ask(Curious([]), turn.conversation.user("Shorter."), journal, limits=WIDE, engine=Dropping)  # fmt: skip
    given = shorter.conversation
    if is_read:
        runtime = Runtime(ScriptedProvider([]), journal=journal)
        given = (await Dropping(runtime).resume(shorter.run_id)).conversation
    third = Curious([])
    given_before = [one for one in first.seen if "@" in one]
    gone = {given_before[0], given_before[-1]}
    third.seen = {handle: set() for handle in gone}

    room = Limits(context_tokens=4_000, max_iterations=60, max_tool_calls=60)
    await ask(third, given.user("Go on."), journal, limits=room)

    for handle in gone:
        assert "not part of the conversation any more" in third.read.pop(handle)
        assert not third.seen.pop(handle)
    third.check(range(102, 106))


async def test_handles_are_the_same_in_each_turn_and_after_a_restart() -> None:
    journal, seen = MemoryJournal(), dict[str, set[int]]()
    given: Conversation | str = "Look."
    room = Limits(context_tokens=3_000, max_iterations=60, max_tool_calls=60)
    for turn in range(1, 5):
        model = Curious(range(turn * 100, turn * 100 + 4))
        result = await ask(model, given, journal, limits=room)
        model.check([])
        given = result.conversation
        if turn % 2:  # another process goes on
            runtime = Runtime(ScriptedProvider([]), journal=journal)
            given = (await ReActEngine(runtime).resume(result.run_id)).conversation
        given = given.user("Go on.")
        seen |= model.seen

    rooms = [room for rooms in seen.values() for room in rooms]
    assert sorted(rooms) == sorted(set(rooms))
    assert {one.partition("/")[0] for one in seen} == {"1", "2", "3", "4"}


async def test_handle_in_a_run_whose_earlier_run_is_deleted_as_it_begins() -> None:
    journal = MemoryJournal()
    first = await ask(Curious(range(1, 7)), "Look.", journal, limits=WIDE)
    model = Curious(range(101, 106))
    runtime = Runtime(ScriptedProvider([model] * 60), tools=[look], journal=journal, limits=SMALL)  # fmt: skip
    handle = ReActEngine(runtime).start(first.conversation.user("Go on."))

    await journal.delete(first.run_id)
    second = (await handle.result()).raise_for_status()
    later = Curious(range(201, 204))
    await ask(later, second.conversation.user("Go on."), journal)

    model.check(range(3, 7))
    later.check([])
    assert {one.partition("/")[0] for one in model.seen} == {"1"}


async def test_messages_of_a_run_of_the_same_id_in_another_journal_keep_their_texts() -> None:  # fmt: skip
    first, second = MemoryJournal(), MemoryJournal()
    before = Runtime(ScriptedProvider([call("look", n=1), "One."]), tools=[look], journal=first)  # fmt: skip
    given = (await ReActEngine(before).run("Look.", run_id="chat")).conversation
    provider = ScriptedProvider([call("look", n=2), "Two."])
    runtime = Runtime(provider, tools=[look], journal=second)

    await ReActEngine(runtime).run(given.user("Again."), run_id="chat")

    keys = [e.key for e in second.read("chat") if e.kind == "model_requested"]
    assert [await second.request("chat", key) for key in keys] == provider.requests
    assert first.read("chat")[-1].event.added[-1] == given.messages[-1].entry[1]  # type: ignore[union-attr,index]


@pytest.mark.parametrize(
    "arguments",
    [
        {"handle": "2/0+0"},
        {"handle": "9" * 5_000 + "/0#0"},
        {"handle": "2/@" + "9" * 5_000},
        {"handle": "2/0+" + "9" * 5_000},
        {"handle": "2/0#0", "lines": "1-" + "9" * 5_000},
        {"handle": "1/@3"},
        {"handle": "1/@x"},
    ],
)
async def test_handle_that_was_never_given_is_an_error_and_no_end_of_the_run(
    arguments: dict[str, str],
) -> None:
    journal = MemoryJournal()
    given = await look_into(1, journal)
    script = [call("look", n=7), call("recall", **arguments), "Done."]
    provider = ScriptedProvider(script)
    runtime = Runtime(provider, tools=[look, recall], journal=journal, limits=WIDE)

    result = await ReActEngine(runtime).run(given.user("Go on."))

    assert result.status == "completed", result.error
    finished = [e.event for e in journal.read(result.run_id) if e.kind == "tool_finished"]  # fmt: skip
    assert [getattr(one, "status", "") for one in finished] == ["ok", "error"]
