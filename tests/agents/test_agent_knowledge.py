"""The knowledge of an agent: the runtime's, its own or none, in its runs, as a tool, after a handoff and after a run."""

from typing import Any

import pytest

from loopwright import ConfigError, MemoryJournal, ReActEngine, Runtime, tool
from loopwright.events import DriftNoticed, RunStarted
from loopwright.followups import Memories
from loopwright.journals.sqlite import SQLiteJournal
from loopwright.knowledge import KnowledgeBridge, MemoryKnowledge, Remembered
from loopwright.testing import ScriptedProvider, call, crashed

TAGS = {"user": "ada"}


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"the {what} is green"


class Ledger(MemoryKnowledge):
    """A store of another name."""


async def fill(store: MemoryKnowledge, *texts: str) -> MemoryKnowledge:
    for text in texts:
        await store.store(Remembered(text, scope="ada"), key=text)
    return store


def recalled(model: ScriptedProvider) -> list[str]:
    """What each request held from a store, in one line."""
    found: list[str] = []
    for request in model.requests:
        lines = [
            line
            for message in request.conversation.messages
            if message.origin == "memory"
            for line in message.content.splitlines()
            if line.startswith("- ")
        ]
        found.append(" ".join(lines))
    return found


def names(runtime: Runtime, agent: str) -> list[str]:
    return [one.name for one in runtime.agents[agent].engine.runtime.tools]


async def stores() -> tuple[MemoryKnowledge, Ledger]:
    shared = await fill(MemoryKnowledge(), "Invoices are sent on Mondays.")
    own = Ledger()
    await fill(own, "Invoices of Ada are paid by card.")
    return shared, own


async def test_an_agent_reads_its_own_store_and_one_with_none_reads_none() -> None:
    shared, own = await stores()
    model = ScriptedProvider(["one", "two", "three"])
    runtime = Runtime(model, tools=[look], knowledge=shared)
    tools = ["recall_knowledge", "store_knowledge"]
    runtime.agent("porter")
    runtime.agent("billing", knowledge=own)
    runtime.agent("clerk", tools=[look], knowledge=KnowledgeBridge(own, limit=1))
    runtime.agent("stranger", knowledge=None)

    for agent in ("porter", "billing", "stranger"):
        ended = runtime.agents[agent]
        await ended.run("When are invoices sent?", run_id=agent, tags=TAGS)

    assert recalled(model) == [
        "- Invoices are sent on Mondays. (fact)",
        "- Invoices of Ada are paid by card. (fact)",
        "",
    ]
    assert names(runtime, "porter") == ["look", *tools]
    assert names(runtime, "billing") == names(runtime, "clerk") == ["look", *tools]
    assert names(runtime, "stranger") == ["look"]
    recorded = [
        runtime.journal.read(one)[0].event for one in ("porter", "billing", "stranger")
    ]
    named = [one.setup.get("knowledge") for one in recorded if isinstance(one, RunStarted)]  # fmt: skip
    assert named == ["MemoryKnowledge", "Ledger", None]


async def test_tools_of_the_runtime_come_without_those_of_its_knowledge() -> None:
    shared, own = await stores()
    ask = call("recall_knowledge", query="invoices of Ada")
    model = ScriptedProvider([ask, "by card", "nothing"])
    runtime = Runtime(model, tools=[look], knowledge=KnowledgeBridge(shared, limit=1))
    billing = runtime.agent("billing", tools=runtime.tools, knowledge=own)
    listed = runtime.agent("listed", tools=list(runtime.tools), knowledge=own)
    none = runtime.agent("none", tools=runtime.tools, knowledge=None)

    await billing.run("How does Ada pay?", tags=TAGS)
    await none.run("How does Ada pay?", tags=TAGS)

    tools = ["recall_knowledge", "store_knowledge"]
    assert names(runtime, "billing") == names(runtime, listed.name) == ["look", *tools]
    assert names(runtime, "none") == ["look"]
    [recalled_text] = [
        m.content for m in model.requests[1].conversation if m.role == "tool"
    ]
    assert "paid by card" in recalled_text
    assert "Mondays" not in recalled_text
    assert not model.requests[-1].tools[1:]


async def test_tools_of_an_agent_with_its_own_store_write_to_that_alone() -> None:
    shared, own = await stores()
    script = [
        call("store_knowledge", subject="Ada", predicate="pays", object="in gold"),
        call("recall_knowledge", query="how does Ada pay in gold"),
        "Noted.",
    ]
    runtime = Runtime(ScriptedProvider(script), knowledge=shared)
    clerk = runtime.agent("clerk", tools=[look], knowledge=own)
    ended = await clerk.run("Remember how I pay.", tags=TAGS)

    [seen] = [m for m in ended.conversation if m.call_id and "gold" in m.content]
    assert "Ada pays in gold" in seen.content
    assert await shared.search("gold", scope="ada", threshold=0.1) == []


async def test_each_agent_of_a_handoff_and_of_a_tool_reads_its_own_store() -> None:
    shared, own = await stores()
    model = ScriptedProvider(
        [
            call("ask_ledger", task="Say when invoices are paid."),
            "by card",
            call("transfer_to_stranger"),
            "Farewell.",
        ]
    )
    runtime = Runtime(model, knowledge=shared)
    ledger = runtime.agent("ledger", knowledge=own)
    runtime.agent("stranger", knowledge=None)
    front = runtime.agent(
        "front", tools=[ledger.as_tool(name="ask_ledger")], handoffs=["stranger"]
    )
    ended = await front.run("When are invoices paid?", tags=TAGS)

    assert ended.answer == "Farewell."
    of_runtime, of_ledger = (
        "- Invoices are sent on Mondays. (fact)",
        "- Invoices of Ada are paid by card. (fact)",
    )
    assert recalled(model) == [of_runtime, of_ledger, of_runtime, ""]


async def test_a_run_cut_anywhere_resumes_with_the_agents_own_store() -> None:
    shared, own = await stores()
    script = [
        call("store_knowledge", subject="Ada", predicate="pays", object="in gold"),
        "Noted.",
    ]

    def build(*lines: Any, knowledge: Any, **options: Any) -> Runtime:
        runtime = Runtime(ScriptedProvider(lines), knowledge=shared, **options)
        runtime.agent("clerk", knowledge=knowledge)
        return runtime

    whole = build(*script, knowledge=own)
    await whole.agents["clerk"].run("Invoices: how do I pay?", run_id="r", tags=TAGS)
    entries = whole.journal.read("r")
    for keep in range(1, len(entries)):
        replies = sum(entry.kind == "model_replied" for entry in entries[:keep])
        again = build(*script[replies:], knowledge=own, journal=crashed(entries, keep))
        ended = await again.resume("r")
        events = [entry.event for entry in again.journal.read("r")]

        assert ended.answer == "Noted."
        assert not [one for one in events if isinstance(one, DriftNoticed)]
    assert len(await own.search("gold", scope="ada", threshold=0.1)) == 1
    assert await shared.search("gold", scope="ada", threshold=0.1) == []


async def test_another_store_on_resume_is_drift() -> None:
    shared, own = await stores()
    whole = Runtime(ScriptedProvider([call("look", what="sky"), "Green."]), tools=[look])  # fmt: skip
    whole.agent("clerk", knowledge=own)
    await whole.agents["clerk"].run("Sky?", run_id="r", tags=TAGS)
    again = Runtime(
        ScriptedProvider(["Green."]), tools=[look], journal=crashed(whole.journal.read("r"), 6), knowledge=own
    )  # fmt: skip
    again.agent("clerk", knowledge=shared)
    ended = await again.resume("r")
    events = [entry.event for entry in again.journal.read("r")]
    noted = [one for one in events if isinstance(one, DriftNoticed)]

    assert ended.answer == "Green."
    assert [(one.what, one.before, one.after) for one in noted if one.what == "knowledge"] == [
        ("knowledge", "Ledger", "MemoryKnowledge")
    ]  # fmt: skip


@pytest.mark.parametrize("after", ["agent", "runtime"])
async def test_memories_of_an_agent_are_stored_in_its_own_store(
    after: str, tmp_path: Any
) -> None:
    shared, own = MemoryKnowledge(), Ledger()
    path = tmp_path / "runs.db"
    given: dict[str, Any] = {"after": [Memories()]}
    runtime = Runtime(
        ScriptedProvider(["Noted."]), knowledge=KnowledgeBridge(shared, auto_persist=True),
        journal=SQLiteJournal(path), **(given if after == "runtime" else {}),
    )  # fmt: skip
    clerk = runtime.agent(
        "clerk", knowledge=KnowledgeBridge(own, auto_persist=after == "agent"),
        **(given if after == "agent" else {}),
    )  # fmt: skip
    await clerk.run("Hello, my name is Ada and I prefer metric units.", tags=TAGS)

    await runtime.drain()
    found = await own.search("metric Noted Ada prefers", scope="ada", threshold=0)
    kinds = {one.kind for one in found}
    assert "preference" in kinds
    assert ("answer" in kinds) == (after == "agent")
    assert await shared.search("metric Noted Ada", scope="ada", threshold=0) == []

    # A process without the agent leaves them to others: its store is another one.
    stranger = Runtime(
        ScriptedProvider([]), knowledge=shared, after=[Memories()], journal=SQLiteJournal(path)
    )  # fmt: skip
    works = [one for one in runtime.journal.runs() if one.engine == "follow-up"]
    assert {one.status for one in works} == {"completed"}
    for work in works:
        assert runtime.follow_ups.can_do(work)
        assert not stranger.follow_ups.can_do(work)
        with pytest.raises(ConfigError, match="'clerk' has knowledge of its own"):
            await stranger.resume(work.run_id)


async def test_deleting_a_thread_forgets_what_is_in_each_store_of_its_agents() -> None:
    shared, own = await stores()
    remember = call("store_knowledge", subject="Ada", predicate="pays", object="in gold")  # fmt: skip
    runtime = Runtime(
        ScriptedProvider([remember, "Yes.", remember, "Yes."]), knowledge=shared, journal=MemoryJournal()
    )  # fmt: skip
    clerk, porter = runtime.agent("clerk", knowledge=own), runtime.agent("porter")
    await clerk.thread("ada").run("Remember it.")
    await clerk.thread("ada").switch(porter)
    await porter.thread("ada").run("Remember it too.")
    gone = await clerk.thread("ada").delete()

    assert gone.knowledge == 2
    assert await own.search("gold", scope="ada", threshold=0.1) == []
    assert await shared.search("gold", scope="ada", threshold=0.1) == []


async def test_deleting_a_thread_forgets_what_went_to_the_store_of_the_runtime() -> (
    None
):
    """Before its agent had a store of its own, and by an engine that is one of its tools."""
    shared, journal = MemoryKnowledge(), MemoryJournal()
    remember = call("store_knowledge", subject="Ada", predicate="pays", object="in gold")  # fmt: skip
    before = Runtime(ScriptedProvider([remember, "Yes."]), knowledge=shared, journal=journal)  # fmt: skip
    await before.agent("clerk").thread("ada").run("Remember it.")
    script = [call("helper", task="Remember it."), remember, "Kept.", "Yes."]
    runtime = Runtime(ScriptedProvider(script), knowledge=shared, journal=journal)
    helper = ReActEngine(runtime).as_tool(name="helper")
    clerk = runtime.agent("clerk", tools=[helper], knowledge=Ledger())
    await clerk.thread("bob").run("Remember it too.")
    gone = [await clerk.thread(name).delete() for name in ("ada", "bob")]

    assert [one.knowledge for one in gone] == [1, 1]
    for name in ("ada", "bob"):
        assert await shared.search("gold", scope=name, threshold=0.1) == []


def test_what_is_not_a_store_is_refused_and_no_agent_is_defined() -> None:
    runtime = Runtime(ScriptedProvider([]), knowledge=MemoryKnowledge(), after=["memories"])  # fmt: skip
    for given, error in (
        ("sqlite:memory.db", "knowledge: must be a store"),
        (5, "knowledge: needs a store with a method `search`, got int"),
        (None, "after: 'memories' needs a store, got knowledge=None; pass knowledge=, or after=\\(\\) for none"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=error):
            runtime.agent("clerk", knowledge=given)  # type: ignore[arg-type]
    runtime.agent("clerk", knowledge=None, after=())
    assert list(runtime.agents) == ["clerk"]
