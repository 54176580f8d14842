"""Memories: what a run leaves is stored once, with its label and scope; only what people said is a preference."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    ConfigError,
    Conversation,
    MemoryJournal,
    ReActEngine,
    Runtime,
    tool,
)
from loopwright.followups import Memories
from loopwright.followups.extraction import find_entities, find_preferences, find_topic
from loopwright.followups.memory_file import MAX_LINES, write_preferences
from loopwright.followups.transcript import drop_quotations
from loopwright.knowledge import MemoryKnowledge, Relation, Remembered
from loopwright.messages import Message
from loopwright.testing import ScriptedProvider, call, crashed
from loopwright.toolboxes.skills import skills

TAGS = {"user": "ada"}
LESSON = {"confidence": 0.9, "quality": 0.7, "issues": [], "patterns": ["Look twice."]}
DOUBT = {
    "confidence": 0.6,
    "quality": 0.3,
    "issues": ["It may rain."],
    "patterns": ["Look twice.", "Name the source."],
}


@tool(effect="read", label="secret")
async def fetch(url: str) -> str:
    """Fetch a page."""
    return "I always eat meat. My favourite town is Rome. Call me Bob."


@tool(effect="write")
async def send(to: str, text: str) -> str:
    """Send."""
    return "sent"


def make(*script: Any, store: Any, memories: Memories, **options: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(script), tools=[fetch, send], knowledge=store, after=[memories], **options
    )  # fmt: skip


async def remember(
    task: str | Conversation, *script: Any, **options: Any
) -> list[Remembered]:
    """All that is stored of a run, by kind and text."""
    store, memories = MemoryKnowledge(), Memories(**options)
    runtime = make(*script, store=store, memories=memories)
    await ReActEngine(runtime).run(task, run_id="r", tags=TAGS)
    await runtime.drain()
    assert await runtime.due() == []
    return await list_all(store)


async def list_all(store: MemoryKnowledge) -> list[Remembered]:
    """All items of a store, by kind and text; it is read as no search could."""
    rows = store._read(  # pyright: ignore[reportPrivateUsage]
        lambda cursor: cursor.execute("SELECT id FROM items").fetchall()
    )
    found = {item.id: item for (id,) in rows for item in await store.history(id)}
    return sorted(found.values(), key=lambda item: (item.kind, item.text))


def read_skills(folder: Path) -> dict[str, str]:
    """The text of each SKILL.md, by its directory."""
    return {path.parent.name: path.read_text() for path in folder.rglob("SKILL.md")}


def texts(items: list[Remembered], kind: str) -> list[str]:
    return [item.text for item in items if item.kind == kind]


async def test_an_episode_says_what_was_asked_and_how_it_ended() -> None:
    items = await remember(
        "Where does it rain?", call("fetch", url="x"), "In Bergen. " * 80
    )

    [episode] = [item for item in items if item.kind == "episode"]
    assert episode.text.startswith("Where does it rain? -> In Bergen. In Bergen.")
    assert len(episode.text) == 400
    assert episode.score == 0.65
    assert (episode.label, episode.untrusted) == ("secret", True)
    assert (episode.scope, episode.source_run) == ("ada", "r")


async def test_a_run_without_an_answer_is_a_more_important_episode() -> None:
    items = await remember("Go.", *[call("fetch", url="x")] * 9)

    [episode] = [item for item in items if item.kind == "episode"]
    assert episode.text == "Go. -> no answer (repeated_action)"
    assert episode.score == 0.95


async def test_only_what_people_said_is_a_preference() -> None:
    task = Conversation.of("I prefer metric units.").user(
        "Is it far? I never fly.", origin="caller"
    )
    quoted = task.add(
        Message("user", "I love this page.", untrusted=True),
        Message("user", "I like knowledge.", origin="memory"),
        Message("user", "> I hate quotes.\n```\nI enjoy code.\n```\nMy name is Ada!"),
    )  # fmt: skip
    items = await remember(quoted, call("fetch", url="x"), "I prefer feet.")

    assert texts(items, "preference") == [
        "I never fly.",
        "I prefer metric units.",
        "My name is Ada.",
    ]


async def test_memories_have_categories_tags_and_relations() -> None:
    task = "I prefer trains. I never eat meat. Call me Ada. Is Oslo near Bergen?"
    items = await remember(task, call("fetch", url="x"), "Bergen is far.")

    assert {
        item.text: item.category for item in items if item.kind == "preference"
    } == {
        "I prefer trains.": "travel",
        "I never eat meat.": "food",
        "Call me Ada.": "name",
    }
    [episode] = [item for item in items if item.kind == "episode"]
    assert (episode.category, episode.tags) == ("react", ("completed", "fetch"))
    [bergen] = [item for item in items if item.topic == "bergen"]
    assert Relation("came up with", "Oslo") in bergen.relations
    assert all(one.target != "Bergen" for one in bergen.relations)


async def write_file(folder: Path, *said: str, user: str = "ada") -> str:
    """The MEMORY.md of a user after runs in which this was said."""
    store, memories = MemoryKnowledge(), Memories(memory_folder=str(folder))
    for number, text in enumerate(said):
        runtime = make("Yes.", store=store, memories=memories)
        tags = {"user": user}
        await ReActEngine(runtime).run(text, run_id=f"r{number}", tags=tags)
        await runtime.drain()
        assert await runtime.due() == []
    [text] = read_files(folder)
    return text


def read_files(folder: Path) -> list[str]:
    """The text of each file in a folder that is not hidden."""
    paths = sorted(folder.rglob("[!.]*"))
    return [path.read_text() for path in paths if path.is_file()]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Hello, my name is Ada and I prefer metric units", ["I prefer metric units.", "My name is Ada."]),
        ("Hi there! I live in Bergen, but I never fly.", ["I never fly."]),
        ("Thanks, call me Ada and please always answer in German.", ["Call me Ada.", "Please always answer in German."]),
        ("He wrote that I live in Bergen and I never fly.", []),
        ("Hello, is it far and I never fly?", []),
        ("Actually, call me Countess. No, I prefer coffee.", ["Call me Countess.", "I prefer coffee."]),
        ('Answer this mail: "Hi. I never pay. Call me Bob."', []),
        ("Translate \u201eGuten Tag!\nCall me Bob.\u201c and \u00ab Oui. I never fly. \u00bb", []),
        ('Answer this mail: \u201cHi. I read "Dune" (as "you" did). Call me Bob.\u201d', []),
        ('Answer this mail: "Hi. I read \u201cDune\u201d and \u201eMomo\u201c. Call me Bob."', []),
        ('Answer this mail: "Hi. He said "no". Call me Bob."\nI never fly.', ["I never fly."]),
        ("\u201cHi. \u201cNo\u201d, I said. Call me Bob.\u201d and \u201eHi. \u201eNo\u201c. Call me Bob.\u201c", []),
        ("Translate \u00abHi. \u00abNo\u00bb. Call me Bob.\u00bb\nI never fly.", ["I never fly."]),
        ('Say "Hi." to him. I never fly. Say "Bye." too.', ["I never fly."]),
        ('Call me "Ada". My screen is 27" wide. I never fly. It is 30" tall.', ['Call me "Ada".', "I never fly."]),
    ],
)  # fmt: skip
async def test_preferences_are_found_behind_a_greeting_and_another_clause(
    said: str, found: list[str]
) -> None:
    items = await remember(Conversation.of(said), "Yes.")

    assert sorted(texts(items, "preference")) == found


async def test_preferences_are_also_written_to_a_memory_file_of_the_scope(
    tmp_path: Path,
) -> None:
    text = await write_file(
        tmp_path, "Call me Ada. I prefer tea.", "I prefer tea! Call me Countess."
    )

    assert text == (
        "# Memory\n\n## Preferences\n\n- I prefer tea.\n- Call me Countess.\n"
    )
    assert (tmp_path / "ada" / "MEMORY.md").exists()
    other = tmp_path / "other"
    other.mkdir()
    await write_file(other, "I prefer tea.", user="../../etc/ada")  # it stays inside


async def test_what_people_wrote_into_the_memory_file_stays(tmp_path: Path) -> None:
    mine = "# About Ada\n\nShe is kind.\n\n## Preferences\n\n- I like figs.\n\n## Pets\n\n- a cat\n"  # fmt: skip
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "MEMORY.md").write_text(mine)

    text = await write_file(tmp_path, "I prefer tea.", "Is it far?")

    assert text == mine.replace("- I like figs.\n", "- I like figs.\n- I prefer tea.\n")


async def test_confidential_preferences_and_a_missing_folder_write_no_file(
    tmp_path: Path,
) -> None:
    store, memories = MemoryKnowledge(), Memories(memory_folder=str(tmp_path))
    runtime = make(call("fetch", url="x"), "Yes.", store=store, memories=memories)
    await ReActEngine(runtime).run("I prefer tea.", run_id="r", tags=TAGS)
    await runtime.drain()
    gone = Memories(memory_folder=str(tmp_path / "gone"))
    failing = make("Yes.", store=MemoryKnowledge(), memories=gone)
    await ReActEngine(failing).run("I prefer tea.", run_id="s", tags=TAGS)
    await failing.drain()
    [due] = await failing.due()

    assert read_files(tmp_path) == []  # what it read is secret
    assert due.info.status == "failed"


def test_the_oldest_preferences_of_a_full_memory_file_go_first(tmp_path: Path) -> None:
    for number in range(MAX_LINES + 2):
        write_preferences(str(tmp_path), "ada", [f"I like number {number}."])

    lines = (tmp_path / "ada" / "MEMORY.md").read_text().splitlines()[4:]
    assert (len(lines), lines[0]) == (MAX_LINES, "- I like number 2.")
    assert write_preferences(str(tmp_path), "ada", ["I like number 5."]) == 0


async def test_what_a_person_says_on_the_way_counts_and_added_context_does_not() -> (
    None
):
    store, told = MemoryKnowledge(), asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait until the person has spoken."""
        await told.wait()
        return "waited"

    model = ScriptedProvider([call("wait"), "Fine."])
    runtime = Runtime(model, tools=[wait], knowledge=store, after=[Memories()])
    async with ReActEngine(runtime).start("Go.", run_id="r", tags=TAGS) as handle:
        await handle.steer("I always pay in cash.")
        await handle.add_context("I never pay in cash.")
        told.set()
        await handle.result()
    await runtime.drain()

    assert texts(await list_all(store), "preference") == ["I always pay in cash."]


async def test_the_same_preference_twice_is_one_row_and_a_name_is_superseded() -> None:
    store = MemoryKnowledge()
    said = ("Call me Ada. I prefer tea.", "I  prefer tea!", "Call me Countess.")
    for number, text in enumerate(said):
        runtime = make("Yes.", store=store, memories=Memories())
        await ReActEngine(runtime).run(text, run_id=f"r{number}", tags=TAGS)
        await runtime.drain()

    items = [item for item in await list_all(store) if item.kind == "preference"]
    assert [(item.text, item.valid_to is None) for item in items] == [
        ("Call me Ada.", False),
        ("Call me Countess.", True),
        ("I prefer tea.", True),
    ]


async def test_entities_are_names_without_stop_words_at_most_20() -> None:
    names = " and ".join(f"Town{number}" for number in range(30))
    items = await remember(f"The trip of Ada Lovelace goes to {names}.", "Yes.")

    entities = texts(items, "entity")
    assert len(entities) == 20
    assert entities[0].startswith("Ada Lovelace: came up in 'The trip of Ada Lovelace")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Where is Bergen? Bergen is wet.", ["Bergen"]),
        ("Nice weather. However it rains.", []),
        ("SQLite is small.", ["SQLite"]),
        ("We met The Rolling Stones at AT&T.", ["Rolling Stones", "AT&T"]),
        ("I am in New York City today", ["New York City"]),
        ("Send Ada Lovelace a card.", ["Ada Lovelace"]),
    ],
)
def test_what_begins_a_sentence_is_no_name_by_that(text: str, names: list[str]) -> None:
    assert find_entities([text]) == names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I prefer tea. Do I like coffee? I like it hot", ["I prefer tea.", "I like it hot."]),
        ("please always answer in German", ["Please always answer in German."]),
        ("Never mind.", []),
        ("My favorite colour is blue!", ["My favorite colour is blue."]),
        ("I'm allergic to nuts; what is safe?", []),
        ("I'm allergic to nuts.", ["I'm allergic to nuts."]),
        ("I\u2019m vegan, thanks. I don\u2019t like fish", ["I'm vegan, thanks.", "I don't like fish."]),
        ("I like cafe\u0301s.", ["I like caf\u00e9s."]),
        ("Remember that the key is below the mat.", ["Remember that the key is below the mat."]),
        ("He says I like fish.", []),
        ("I like " + "very " * 60 + "much.", []),
        ("I want a taxi to the airport.", []),
        ("I never said that.", []),
    ],
)  # fmt: skip
def test_preferences_are_sentences_that_say_what_is_always_wanted(
    text: str, found: list[str]
) -> None:
    assert find_preferences([text]) == found


def test_topics_are_of_preferences_of_which_there_is_one() -> None:
    assert find_topic("My favorite Colour is blue.") == "favourite colour"
    assert find_topic("My name is Ada.") == find_topic("Call me Bob.") == "name"
    assert find_topic("I prefer tea.") == ""


def test_quotations_are_no_words_of_a_person() -> None:
    text = 'a\n> b\n=== 12 begins: data from "page" ===\nc\n=== 12 ends ===\nd\n```\ne'
    assert drop_quotations(text) == "a\nd"


async def test_reflections_are_kept_once_and_a_hostile_one_adds_to_them() -> None:
    items = await remember(
        "Go.", "Yes.", LESSON_TEXT, DOUBT_TEXT, reflection=True, adversarial=True
    )

    lessons = [item for item in items if item.kind == "reflection"]
    assert [(item.text, item.score) for item in lessons] == [
        ("Look twice.", 0.9),
        ("Name the source.", 0.6),
    ]


async def test_a_reflection_that_cannot_be_read_invents_no_score() -> None:
    items = await remember("Go.", "Yes.", *["no JSON"] * 3, reflection=True)

    assert texts(items, "reflection") == []
    assert texts(items, "episode") == ["Go. -> Yes."]


async def test_what_was_stored_is_a_fact_of_the_follow_up() -> None:
    store = MemoryKnowledge()
    memories = Memories(reflection=True, entities=False)
    runtime = make("Yes.", LESSON_TEXT, store=store, memories=memories)
    await ReActEngine(runtime).run("I like tea.", run_id="r", tags=TAGS)
    await runtime.drain()
    done = await runtime.resume("r@after:memories")

    assert done.answer == "stored: 1 episode, 1 preference, 1 reflection"
    assert done.fact("Reflected")["quality"] == 0.7
    assert done.llm_calls == 1


async def test_a_skill_has_the_steps_and_no_text_of_the_run(tmp_path: Path) -> None:
    fetched = [call("fetch", url="https://secret.example"), call("fetch", url="b")]
    steps = [fetched, call("send", to="ada@example.com", text="hello")]
    for _ in range(2):
        await remember("Write to Ada.", *steps, "Sent.", skills_folder=str(tmp_path))

    [(name, text)] = read_skills(tmp_path).items()
    for private in ("secret.example", "ada", "hello", "Write to"):
        assert private not in text
    assert "1. Call `fetch` with url={url}.\n2. Call `send` with to={to}, text={text}." in text  # fmt: skip
    [loaded] = skills(tmp_path)
    assert loaded.name == f"skill_{name}"
    assert loaded.description.startswith("Use fetch, then send, as a run did")


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        ([call("fetch", url="a"), call("fetch", url="b")], {}),  # one tool
        ([call("fetch", url="a")], {}),
        ([call("fetch", url="a"), call("send", to="b", text="c")], {"skills_from": 3}),
        ([call("fetch", url="a"), call("send", to="b", text="c")], {"skills_from": 0}),
        ([call("fetch", url="a"), call("send", to="b")], {}),  # the second fails
    ],
    ids=["one tool", "one call", "too few", "off", "one failed"],
)
async def test_what_is_no_skill_is_not_written(
    steps: list[Any], options: dict[str, Any], tmp_path: Path
) -> None:
    await remember("Go.", *steps, "Done.", skills_folder=str(tmp_path), **options)

    assert read_skills(tmp_path) == {}


async def test_resumed_at_every_entry_everything_is_stored_once(tmp_path: Path) -> None:
    store, folder = MemoryKnowledge(), str(tmp_path)
    memories = Memories(reflection=True, skills_folder=folder)
    script = (
        call("fetch", url="x"),
        call("send", to="b", text="c"),
        "Done in Oslo, Ada.",
    )
    whole = make(*script, LESSON_TEXT, store=store, memories=memories)
    await ReActEngine(whole).run("I like tea.", run_id="r", tags=TAGS)
    await whole.drain()
    expected = await list_all(store)
    ended, followed = (whole.journal.read(id) for id in ("r", "r@after:memories"))
    assert len(expected) == 5
    skill = read_skills(tmp_path)
    assert len(skill) == 1

    for keep in range(1, len(followed)):
        replies = sum(e.kind == "model_replied" for e in followed[:keep])
        journal = crashed(ended, len(ended), MemoryJournal())
        journal = crashed(followed, keep, journal)
        again = make(
            *[LESSON_TEXT][replies:], store=store, memories=memories, journal=journal
        )
        done = await again.resume("r@after:memories")
        assert done.status == "completed", done.error
    assert await list_all(store) == expected
    assert read_skills(tmp_path) == skill


async def test_what_was_forgotten_does_not_come_back() -> None:
    store = MemoryKnowledge()
    whole = make("Yes.", store=store, memories=Memories())
    await ReActEngine(whole).run("I like tea.", run_id="r", tags=TAGS)
    await whole.drain()
    entries = whole.journal.read("r@after:memories")
    assert await store.forget(source_run="r") == 2
    ended = whole.journal.read("r")
    journal = crashed(ended, len(ended), MemoryJournal())

    again = make(store=store, memories=Memories(), journal=crashed(entries, 2, journal))
    done = await again.resume("r@after:memories")

    assert done.answer == "stored: nothing"
    assert await list_all(store) == []


async def test_memories_of_a_secret_run_make_the_run_that_recalls_them_secret() -> None:
    store = MemoryKnowledge()
    first = make(call("fetch", url="x"), "Oslo.", store=store, memories=Memories())
    await ReActEngine(first).run("Where is the violin of Ada?", tags=TAGS)
    await first.drain()

    second = Runtime(ScriptedProvider(["In Oslo."]), knowledge=store)
    result = await ReActEngine(second).run("Which violin?", tags=TAGS)
    other = await ReActEngine(Runtime(ScriptedProvider(["?"]), knowledge=store)).run(
        "Which violin?", tags={"user": "bob"}
    )

    assert (result.label, result.untrusted) == ("secret", True)
    assert (other.label, other.untrusted) == ("normal", False)


async def test_a_run_without_a_scope_leaves_a_failure_that_says_so() -> None:
    runtime = make("Yes.", store=MemoryKnowledge(), memories=Memories())
    result = await ReActEngine(runtime).run("Go.", run_id="r")
    await runtime.drain()

    [due] = await runtime.due()
    failed = await runtime.resume(due.info.run_id)
    assert result.status == "completed"
    assert "scope: is empty" in str(failed.error)


def test_memories_without_a_store_are_refused() -> None:
    with pytest.raises(ConfigError, match="after: 'memories' needs a store"):
        Runtime(ScriptedProvider([]), after=[Memories()])
    with pytest.raises(ConfigError, match="after: 'memories' needs a store"):
        Runtime(ScriptedProvider([])).agent("a", after=["memories"])
    with pytest.raises(ConfigError, match="skills_from: "):
        Memories(skills_from=-1)


async def test_memories_by_name_are_done_where_only_their_name_is_known() -> None:
    store, journal = MemoryKnowledge(), MemoryJournal()
    first = Runtime(
        ScriptedProvider(["Yes."]), knowledge=store, journal=journal, after=["memories"]
    )
    vars(first).update(start_due=None)
    await ReActEngine(first).run("I like tea.", run_id="r", tags=TAGS)

    other = Runtime(ScriptedProvider([]), knowledge=store, journal=journal)
    [done] = await other.drain()
    assert done.answer == "stored: 1 episode, 1 preference"


LESSON_TEXT, DOUBT_TEXT = (str(reply).replace("'", '"') for reply in (LESSON, DOUBT))
