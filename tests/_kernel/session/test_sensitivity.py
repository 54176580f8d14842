"""Labels: a run is as sensitive as the most sensitive thing that it has read, until a person says otherwise."""

from typing import Any

import pytest

from loopwright import (
    Action,
    Allow,
    Decision,
    Deny,
    LoopEngine,
    MemoryJournal,
    PolicyState,
    ReActEngine,
    Run,
    Runtime,
    tool,
)
from loopwright._kernel.phases import side_effects
from loopwright.events import Declassified, RunStarted, ToolFinished
from loopwright.labels import Label, highest, is_at_least
from loopwright.testing import ScriptedProvider, call, crashed
from loopwright.tools.value import as_text
from waiting import eventually


class Watching:
    """Remembers what it is told of each call, and keeps private data at home."""

    version = "watching-1"

    def __init__(self) -> None:
        self.seen: list[tuple[str, Label, bool, frozenset[str]]] = []

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        self.seen.append((action.tool, state.label, state.untrusted, action.labels))
        private = action.tool == "send" and is_at_least(state.label, "sensitive")
        return Deny("private data stays here") if private else Allow()


@tool(effect="read", trusted=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(effect="read", label="public")
async def page() -> str:
    """A page."""
    return "a page"


@tool(effect="read", label="sensitive")
async def people() -> str:
    """People."""
    return "Ada, born 1815"


@tool
async def send(text: str) -> str:
    """Send."""
    return "sent"


TOOLS = [add, page, people, send]


def runtime(*script: Any, gate: Any = None, **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(script), tools=TOOLS, gate=gate, **options)


async def test_gates_see_label_and_origin_of_all_that_the_run_has_read() -> None:
    gate = Watching()
    script = [
        call("add", a=1, b=2),
        call("page"),
        call("people"),
        call("send", text="x"),
        call("add", a=1, b=1),
        "done",
    ]

    result = await ReActEngine(runtime(*script, gate=gate)).run("Go.")

    assert gate.seen == [
        ("add", "normal", False, frozenset()),
        ("page", "normal", False, frozenset()),
        ("people", "normal", True, frozenset({"untrusted"})),
        ("send", "sensitive", True, frozenset({"untrusted", "sensitive"})),
        ("add", "sensitive", True, frozenset({"untrusted", "sensitive"})),
    ]
    assert [m.content for m in result.conversation.messages if m.role == "tool"][
        3
    ] == "private data stays here"


async def test_the_label_is_that_of_the_journal_wherever_the_run_goes_on() -> None:
    script = [call("people"), call("send", text="x"), "done"]
    first = runtime(*script, gate=Watching())
    await ReActEngine(first).run("Go.", run_id="r")
    entries = first.journal.read("r")
    read = next(e.seq for e in entries if isinstance(e.event, ToolFinished))

    again = runtime(*script[1:], gate=Watching(), journal=crashed(entries, read))
    result = await ReActEngine(again).resume("r")

    assert [m.content for m in result.conversation.messages if m.role == "tool"][
        1
    ] == "private data stays here"


async def test_only_a_person_declassifies_and_the_journal_has_it() -> None:
    journal = MemoryJournal()
    first = runtime(
        call("people"),
        RuntimeError("the process dies"),
        gate=Watching(),
        journal=journal,
    )
    await ReActEngine(first).run("Go.", run_id="r")
    entries = [e for e in journal.read("r") if e.kind != "run_finished"]
    cut = crashed(
        entries, next(e.seq for e in entries if isinstance(e.event, ToolFinished))
    )
    again = runtime(call("send", text="x"), "done", gate=Watching(), journal=cut)
    await again.control("r").declassify("normal", "these people are long dead")

    result = await ReActEngine(again).resume("r")

    assert [m.content for m in result.conversation.messages if m.role == "tool"][
        1
    ] == "sent"
    assert [e.event for e in cut.read("r") if isinstance(e.event, Declassified)] == [
        Declassified("normal", "these people are long dead", 1)
    ]


async def test_declassifying_never_raises_a_label() -> None:
    journal = MemoryJournal()
    gate = Watching()

    @tool(effect="read", trusted=True)
    async def wait() -> str:
        """Wait."""
        await first.control("r").declassify("secret", "by mistake")
        await eventually(
            lambda: any(
                isinstance(entry.event, Declassified) for entry in journal.read("r")
            )
        )
        return "waited"

    first = Runtime(ScriptedProvider([call("wait"), call("add", a=1, b=1), "done"]), tools=[*TOOLS, wait], gate=gate,
                    journal=journal)  # fmt: skip
    await ReActEngine(first).run("Go.", run_id="r")

    assert [label for _, label, _, _ in gate.seen] == ["normal", "normal"]


class Shouting:
    """Finds capitals sensitive."""

    def label(self, text: str) -> Label:
        return "secret" if text.isupper() else "public"


async def test_a_classifier_labels_the_task_and_what_tools_say() -> None:
    @tool(effect="read")
    async def shout() -> str:
        """Shout."""
        return "ALL OF IT"

    gate = Watching()
    given = Runtime(ScriptedProvider([call("page"), call("shout"), call("page"), "done"]), tools=[page, shout],
                    gate=gate, classifier=Shouting())  # fmt: skip
    result = await ReActEngine(given).run("quietly")
    assert [label for _, label, _, _ in gate.seen] == ["public", "public", "secret"]

    loud = await ReActEngine(
        Runtime(ScriptedProvider(["done"]), classifier=Shouting())
    ).run("LOUD")
    assert loud.answer == "done"
    started = given.journal.read(result.run_id)[0].event
    assert isinstance(started, RunStarted)
    assert started.label == "public"


@pytest.mark.parametrize(("classifier", "made"), [(None, 0), (Shouting(), 1)])
async def test_the_text_of_an_effect_is_made_for_a_classifier_alone(
    monkeypatch: pytest.MonkeyPatch, classifier: Shouting | None, made: int
) -> None:
    texts: list[Any] = []

    def counting(value: Any) -> str:
        texts.append(value)
        return as_text(value)

    class Reading(LoopEngine):
        name = "reading"

        async def solve(self, run: Run) -> str:
            return "".join(await run.effect("read", words, into=list[str]))

    async def words() -> list[str]:
        return ["A", "B"]

    monkeypatch.setattr(side_effects, "as_text", counting)
    result = await Reading(Runtime(ScriptedProvider([]), classifier=classifier)).run(
        "go"
    )
    assert (result.answer, texts) == ("AB", [["A", "B"]] * made)


def test_the_highest_of_labels() -> None:
    assert highest([]) == "public"
    assert highest(["normal", "secret", "sensitive"]) == "secret"
    assert [is_at_least("sensitive", least) for least in ("public", "normal", "sensitive", "secret")] == [
        True, True, True, False,
    ]  # fmt: skip


async def test_every_message_says_whether_a_stranger_had_a_hand_in_it() -> None:
    result = await ReActEngine(runtime(call("people"), "done")).run(
        "Go.", system="Be brief."
    )

    assert [(m.role, m.trusted) for m in result.conversation.messages] == [
        ("system", True), ("user", True), ("assistant", False), ("tool", False), ("assistant", False),
    ]  # fmt: skip
