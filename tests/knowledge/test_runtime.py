"""Knowledge in runs: recalled before model calls, stored by tools and at the end, once, with its label."""

import asyncio
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    Action,
    Allow,
    ConfigError,
    Decision,
    MemoryJournal,
    PlanExecuteEngine,
    PolicyState,
    ReActEngine,
    Request,
    Runtime,
    tool,
)
from loopwright.errors import KnowledgeError
from loopwright.events import KnowledgeUnavailable, ModelRequested
from loopwright.knowledge import KnowledgeBridge, MemoryKnowledge, Remembered, scope_of
from loopwright.labels import Untrusted
from loopwright.testing import ScriptedProvider, call, crashed
from loopwright.toolboxes.knowledge import knowledge_tools

TAGS = {"user": "ada"}


@tool(effect="read", label="secret")
async def vault() -> str:
    """Read the vault."""
    return "the combination is 1815"


@tool(effect="write")
async def send(text: str) -> str:
    """Send."""
    return "sent"


class Watching:
    """Remembers in which state it was asked about each tool."""

    version = "watching-1"

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool]] = []

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        self.seen.append((action.tool, state.label, state.untrusted))
        return Allow()


class BrokenKnowledge(MemoryKnowledge):
    """A store that is down."""

    async def search(self, query: str, **options: Any) -> Sequence[Remembered]:
        raise KnowledgeError("the disk of the store is gone")

    async def store(self, item: Remembered, *, key: str) -> str:
        raise KnowledgeError("the disk of the store is gone")


class HangingKnowledge(MemoryKnowledge):
    """A store that does not answer."""

    async def search(self, query: str, **options: Any) -> Sequence[Remembered]:
        await asyncio.sleep(600)
        return []


def fact(text: str, **options: Any) -> Remembered:
    return Remembered(text, **{"scope": "ada", **options})


async def filled(*items: Remembered) -> MemoryKnowledge:
    store = MemoryKnowledge()
    for number, item in enumerate(items):
        await store.store(item, key=str(number))
    return store


def runtime(
    *script: Any, knowledge: Any = None, **options: Any
) -> tuple[Runtime, ScriptedProvider]:
    model = ScriptedProvider(script)
    return Runtime(model, tools=[vault, send], knowledge=knowledge, **options), model


def bodies(model: ScriptedProvider) -> list[list[tuple[str, str]]]:
    """What each request held."""
    return [
        [(m.role, m.content) for m in r.conversation.messages] for r in model.requests
    ]


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        ("Ada bor i Tromsø.", "Hva med Tromsø?"),
        ("עדה גרה בתל אביב.", "איפה עדה גרה?"),
        ("شاي أخضر مع نعناع", "أي شاي؟"),
        ("अदा को हरी चाय पसंद है।", "हरी चाय?"),
    ],
)
async def test_short_words_of_a_script_without_capitals_are_looked_for(
    known: str, asked: str
) -> None:
    used, model = runtime("Yes.", knowledge=await filled(fact(known)))
    await ReActEngine(used).run(asked, tags=TAGS)

    assert known in bodies(model)[0][0][1]


async def test_a_model_reads_what_matches_as_fenced_text_of_no_part_of_the_talk() -> (
    None
):
    store = await filled(
        fact("Ada keeps her violin in the attic."),
        fact("Bob plays chess."),
        fact("violin", scope="bob"),
    )
    used, model = runtime("In the attic.", knowledge=store)

    result = await ReActEngine(used).run(
        "Where is my violin?", system="Be brief.", tags=TAGS
    )

    [messages] = bodies(model)
    assert messages[0] == ("system", "Be brief.")
    assert messages[2] == ("user", "Where is my violin?")
    role, shown = messages[1]
    assert role == "user"
    assert 'begins: data from "knowledge"' in shown
    assert "- Ada keeps her violin in the attic. (fact)" in shown
    assert "chess" not in shown
    assert "- violin" not in shown
    assert [m.content for m in result.conversation.messages] == [
        "Be brief.",
        "Where is my violin?",
        "In the attic.",
    ]


async def test_each_of_25_turns_reads_what_its_own_question_asks_for() -> None:
    places = ("library", "swimming pool", "bakery", "museum", "garage")
    days = ("Monday", "Tuesday", "Friday", "Saturday", "Sunday")
    hours = [(place, day) for place in places for day in days]
    rules = [f"The {place} closes at {number} on {day}." for number, (place, day) in enumerate(hours)]  # fmt: skip
    store = await filled(*map(fact, rules))
    used, model = runtime(*["Yes."] * 27, knowledge=store)
    thread = used.agent("guide").thread("visitor", tags=TAGS)
    for place, day in hours:
        await thread.run(f"When does the {place} close on {day}?")
    await thread.run("When does the museum close on Friday?")
    await thread.run("And on Sunday?")
    first = [shown_items(request)[0] for request in model.requests]

    assert first[:25] == rules
    assert rules[hours.index(("museum", "Sunday"))] in shown_items(model.requests[26])


def shown_items(request: Request) -> list[str]:
    """What a model was shown of a store, the best first."""
    [message] = [m for m in request.conversation if m.origin == "memory"]
    lines = [line for line in message.content.splitlines() if line.startswith("- ")]
    return [line.removeprefix("- ").removesuffix(" (fact)") for line in lines]


async def test_without_a_match_requests_and_entries_are_as_without_knowledge() -> None:
    journals = MemoryJournal(), MemoryJournal()
    script = call("send", text="hello"), "Done."
    plain, first = runtime(*script, journal=journals[0])
    bridge = KnowledgeBridge(await filled(fact("glaciers")), tools=False)
    used, second = runtime(*script, journal=journals[1], knowledge=bridge)

    for one in (plain, used):
        await ReActEngine(one).run("Say hello.", run_id="r", tags=TAGS)

    assert first.requests == second.requests
    assert [(e.key, e.kind) for e in journals[0].read("r")] == [
        (e.key, e.kind) for e in journals[1].read("r")
    ]
    fingerprints = [
        [
            e.event.fingerprint
            for e in j.read("r")
            if isinstance(e.event, ModelRequested)
        ]
        for j in journals
    ]
    assert fingerprints[0] == fingerprints[1]


async def test_what_was_injected_is_injected_again_although_the_store_has_changed() -> (
    None
):
    store = await filled(fact("Ada likes violin music.", topic="likes"))
    script = call("send", text="violin"), "Done."
    used, _ = runtime(*script, journal=MemoryJournal(), knowledge=store)
    whole = await ReActEngine(used).run("What violin music?", run_id="r", tags=TAGS)
    entries = used.journal.read("r")
    await store.store(fact("Ada likes violin music duets.", topic="likes"), key="later")

    for keep in range(1, len(entries)):
        kept = [e.event for e in entries[:keep]]
        replies = sum(e.kind == "model_replied" for e in kept)
        again, model = runtime(
            *script[replies:], journal=crashed(entries, keep), knowledge=store
        )
        resumed = await ReActEngine(again).resume("r")
        recorded = sum(isinstance(event, ModelRequested) for event in kept)
        events = [e.event for e in again.journal.read("r")]
        requests = [e for e in events if isinstance(e, ModelRequested)]

        assert resumed.answer == whole.answer
        for number, request in enumerate(requests):
            [message] = [m for m in request.delivered if m.origin == "memory"]
            assert ("duets" in message.content) == (number >= recorded)
        for number, request in enumerate(model.requests, replies):
            text = str([m.content for m in request.conversation.messages])
            assert ("duets" in text) == (number >= recorded)


async def test_a_run_that_began_without_knowledge_resumes_with_it() -> None:
    script = call("send", text="violin"), "Done."
    plain, _ = runtime(*script, journal=MemoryJournal())
    await ReActEngine(plain).run("What violin music?", run_id="r", tags=TAGS)
    entries = plain.journal.read("r")
    store = await filled(fact("Ada likes violin music."))

    for keep in range(1, len(entries)):
        replies = sum(e.kind == "model_replied" for e in entries[:keep])
        again, _ = runtime(
            *script[replies:], journal=crashed(entries, keep), knowledge=store
        )
        assert (await ReActEngine(again).resume("r")).answer == "Done."


async def test_a_store_that_is_down_leaves_an_entry_and_the_run_goes_on() -> None:
    for store, problem in (
        (BrokenKnowledge(), "the disk of the store is gone"),
        (HangingKnowledge(), "no answer to search within 0.05 s"),
    ):
        bridge = KnowledgeBridge(store, timeout=0.05, auto_persist=False)
        used, _ = runtime("Fine.", journal=MemoryJournal(), knowledge=bridge)
        result = await ReActEngine(used).run(
            "Where is my violin?", run_id="r", tags=TAGS
        )
        [failed] = [
            e.event
            for e in used.journal.read("r")
            if isinstance(e.event, KnowledgeUnavailable)
        ]

        assert result.answer == "Fine."
        assert (failed.verb, problem in failed.error.message) == ("search", True)


async def test_a_store_that_is_down_and_required_fails_the_run() -> None:
    bridge = KnowledgeBridge(BrokenKnowledge(), required=True)
    used, model = runtime("Fine.", knowledge=bridge)

    result = await ReActEngine(used).run("Where is my violin?", tags=TAGS)

    assert (result.status, result.answer) == ("failed", None)
    assert isinstance(result.error, KnowledgeError)
    assert model.requests == []


async def test_a_run_without_a_scope_is_said_to_have_none() -> None:
    bridge = KnowledgeBridge(MemoryKnowledge(), required=True)
    used, _ = runtime("Fine.", knowledge=bridge)

    result = await ReActEngine(used).run("Where is my violin?")

    assert "scope: is empty" in str(result.error)


async def test_a_fact_of_a_run_that_read_a_secret_makes_the_next_one_secret() -> None:
    store = MemoryKnowledge()
    learning = call(
        "store_knowledge", subject="the safe", predicate="opens with", object="1815"
    )
    first, _ = runtime(call("vault"), learning, "Stored.", knowledge=store)
    await ReActEngine(first).run("Learn it.", tags=TAGS)

    script = call("send", text="x"), "Done."
    gate = Watching()
    bridged, _ = runtime(*script, knowledge=store, gate=gate, journal=MemoryJournal())
    await ReActEngine(bridged).run("How do I open the safe?", run_id="r", tags=TAGS)
    assert gate.seen == [("send", "secret", True)]

    entries, resumed_gate = bridged.journal.read("r"), Watching()
    kept = crashed(entries, cut_after(entries, "model_replied"))
    again, _ = runtime("Done.", gate=resumed_gate, journal=kept)
    await ReActEngine(again).resume("r")
    assert resumed_gate.seen == [("send", "secret", True)]

    asking = call("recall_knowledge", query="safe"), call("send", text="x"), "Done."
    asked_gate = Watching()
    model, tools = ScriptedProvider(asking), [send, *knowledge_tools(store)]
    asked = Runtime(model, tools=tools, gate=asked_gate)
    await ReActEngine(asked).run("Hello.", tags=TAGS)
    assert asked_gate.seen[-1] == ("send", "secret", True)


async def test_a_labelled_text_that_a_tool_returns_labels_the_run() -> None:
    @tool(effect="read", trusted=True)
    async def look() -> list[str]:
        """Look."""
        return ["plain", Untrusted("from a page", label="sensitive")]

    gate = Watching()
    model = ScriptedProvider([call("look"), call("send", text="x"), "Done."])
    await ReActEngine(Runtime(model, tools=[look, send], gate=gate)).run("Go.")

    assert gate.seen[-1] == ("send", "sensitive", True)


async def test_tools_store_within_the_scope_of_the_run_and_only_narrow_it() -> None:
    store = MemoryKnowledge()
    script = [
        call("store_knowledge", subject="Ada", predicate="lives in", object="Oslo"),
        call("store_knowledge", subject="ada", predicate="LIVES in", object="Bergen"),
        call("recall_knowledge", query="where does Ada live"),
        call("recall_knowledge", query="where does Ada live", scope="work/../bob"),
        call("recall_knowledge", query="where does Ada live", scope="bob"),
        call("recall_knowledge", query="where does Ada live", scope="work"),
        "Done.",
    ]
    used, model = runtime(*script, knowledge=KnowledgeBridge(store))
    await store.store(fact("Ada lives in the office.", scope="ada/work"), key="w")
    await store.store(fact("Ada lives in Bob's house.", scope="bob"), key="b")

    await ReActEngine(used).run("Hi.", tags=TAGS)

    results = [
        m.content for m in model.requests[-1].conversation.messages if m.role == "tool"
    ]
    assert results[:2] == ["Stored.", "Stored."]
    assert "Bergen" in results[2]
    assert "office" in results[2]
    assert "Oslo" not in results[2]
    assert "Bob" not in results[2]
    assert results[3] == results[4] == "Nothing is known about that."
    assert "office" in results[5]
    assert "Bergen" not in results[5]


async def test_a_subject_is_the_same_in_other_spaces_and_forms_of_unicode() -> None:
    store = MemoryKnowledge()
    composed, decomposed = (unicodedata.normalize(f, "Zoë") for f in ("NFC", "NFD"))
    facts = (
        (composed, "lives in", "Oslo"),
        (decomposed, "lives in", "Rome"),
        (f" {composed}", "Lives  in ", "Bergen"),
        ("Zoë|lives", "in", "two halves"),
        ("Zoë", "lives|in", "three parts"),
    )
    script = [
        call("store_knowledge", subject=subject, predicate=predicate, object=object)
        for subject, predicate, object in facts
    ]
    used, _ = runtime(*script, "Done.", knowledge=KnowledgeBridge(store))

    await ReActEngine(used).run("Hi.", tags=TAGS)

    found = await store.search("who lives there?", scope="ada", threshold=0.0)
    ends = {item.text.rpartition(" ")[2] for item in found}
    assert ends == {"Bergen", "halves", "parts"}


async def test_a_fact_is_stored_once_wherever_the_run_was_cut() -> None:
    script = (
        call("store_knowledge", subject="Ada", predicate="has", object="a violin"),
        "Done.",
    )
    whole_store = MemoryKnowledge()
    used, _ = runtime(*script, journal=MemoryJournal(), knowledge=whole_store)
    await ReActEngine(used).run("Learn.", run_id="r", tags=TAGS)
    entries = used.journal.read("r")

    for keep in range(1, len(entries)):
        replies = sum(e.kind == "model_replied" for e in entries[:keep])
        again, _ = runtime(
            *script[replies:], journal=crashed(entries, keep), knowledge=whole_store
        )
        await ReActEngine(again).resume("r")
        found = await whole_store.search("violin", scope="ada")
        assert [item.text for item in found] == ["Ada has a violin"]
        assert len(await whole_store.history(found[0].id)) == 1


async def test_the_gist_of_an_answer_is_stored_once() -> None:
    store = MemoryKnowledge()
    bridge = KnowledgeBridge(store, auto_persist=True)
    script = call("vault"), "The safe opens with 1815."
    used, _ = runtime(*script, journal=MemoryJournal(), knowledge=bridge)
    await ReActEngine(used).run("How does the safe open?", run_id="r", tags=TAGS)
    await used.drain()
    entries = used.journal.read("r")

    for keep in range(1, len(entries)):
        replies = sum(e.kind == "model_replied" for e in entries[:keep])
        again, _ = runtime(
            *script[replies:], journal=crashed(entries, keep), knowledge=bridge
        )
        await ReActEngine(again).resume("r")
        await again.drain()
        assert await again.due() == []

    [item] = await store.search("safe", scope="ada", limit=100)
    assert item.text == "How does the safe open?: The safe opens with 1815."
    assert (item.kind, item.label, item.untrusted, item.source_run) == (
        "answer",
        "secret",
        True,
        "r",
    )


async def test_what_was_forgotten_is_not_stored_again_by_a_run_that_is_resumed() -> (
    None
):
    store = MemoryKnowledge()
    bridge = KnowledgeBridge(store, auto_persist=True)
    learning = call(
        "store_knowledge", subject="Ada", predicate="has", object="a violin"
    )
    used, _ = runtime(learning, "A violin.", journal=MemoryJournal(), knowledge=bridge)
    await ReActEngine(used).run("What has Ada?", run_id="r", tags=TAGS)
    await used.drain()
    entries = used.journal.read("r")
    assert await store.forget(source_run="r") == 2

    for keep in range(1, len(entries)):
        replies = sum(e.kind == "model_replied" for e in entries[:keep])
        script = (learning, "A violin.")[replies:]
        again, _ = runtime(*script, journal=crashed(entries, keep), knowledge=bridge)
        await ReActEngine(again).resume("r")
        await again.drain()

    assert await store.search("violin", scope="ada") == []


async def test_an_answer_that_cannot_be_stored_is_given_all_the_same() -> None:
    bridge = KnowledgeBridge(BrokenKnowledge(), auto_persist=True)
    used, _ = runtime("Fine.", journal=MemoryJournal(), knowledge=bridge)
    result = await ReActEngine(used).run("Hm?", run_id="r", tags=TAGS)
    await used.drain()
    [failed] = await used.due()
    stored = await used.resume(failed.info.run_id)

    assert (result.status, result.answer) == ("completed", "Fine.")
    assert failed.info.run_id == "r@after:answer-gist"
    assert "the disk of the store is gone" in str(stored.error)


async def test_a_plan_is_made_with_knowledge_and_a_judge_has_none() -> None:
    store = await filled(fact("Ada keeps her violin in the attic."))

    def answer(request: Request) -> Any:
        return (
            "1. join()"
            if "plan" in str(request.conversation.messages[0].content).lower()
            else "Done."
        )

    model = ScriptedProvider(answer)
    used = Runtime(
        model, journal=MemoryJournal(), knowledge=KnowledgeBridge(store, tools=False)
    )
    await PlanExecuteEngine(used).run("Fetch my violin.", run_id="r", tags=TAGS)
    asked = [
        e.event for e in used.journal.read("r") if isinstance(e.event, ModelRequested)
    ]

    recalled = {
        event.purpose: any(m.origin == "memory" for m in event.delivered)
        for event in asked
    }
    assert recalled["plan"]
    assert not any(has for purpose, has in recalled.items() if purpose != "plan")


def test_a_scope_is_the_tenant_the_user_or_the_thread() -> None:
    assert scope_of({"user": "a/b", "tenant": "acme"}, "t") == "acme"
    assert scope_of({"user": "a/b"}, "t") == "a%2Fb"
    assert scope_of({}, "t") == "t"
    assert scope_of({}, "") == ""


def test_a_text_in_the_place_of_kinds_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kinds: must be a collection of texts"):
        KnowledgeBridge(MemoryKnowledge(), kinds="fact")  # type: ignore[arg-type]


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="knowledge: needs a store"):
        Runtime(ScriptedProvider(["x"]), knowledge=object())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="timeout"):
        KnowledgeBridge(MemoryKnowledge(), timeout=0)
