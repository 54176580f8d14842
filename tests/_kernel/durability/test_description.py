"""A divergence says in words what the journal holds and what the code asks for now."""

from collections.abc import Awaitable, Callable

import pytest
from pydantic import BaseModel

from function_engine import FunctionEngine
from loopwright import Conversation, MemoryJournal, Run, Runtime, ToolCall, tool
from loopwright._kernel.durability.description import MAX_QUOTE, quote, shorten
from loopwright.errors import ReplayDivergence
from loopwright.events import ModelRequested
from loopwright.security.redaction import Redactor
from loopwright.testing import ScriptedProvider, crashed

Body = Callable[[Run], Awaitable[object]]


class Plan(BaseModel):
    steps: int


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return "blue"


def engine(body: Body, journal: MemoryJournal) -> FunctionEngine:
    provider = ScriptedProvider(['{"steps": 1}'] * 9)
    return FunctionEngine(Runtime(provider, tools=[look], journal=journal), body=body)


async def diverge(old: Body, new: Body) -> ReplayDivergence:
    """Return the error of new code that resumes a run of old code which has all but its end."""
    journal = MemoryJournal()
    await engine(old, journal).run("Go.", run_id="r")
    entries = journal.read("r")
    with pytest.raises(ReplayDivergence) as raised:
        await engine(new, crashed(entries, len(entries) - 1)).resume("r")
    return raised.value


def asking(prompt: str | Conversation, into: type[object] = str) -> Body:
    async def body(run: Run) -> object:
        return await run.ask(prompt, into=into)  # type: ignore[call-overload]

    return body


def looking(what: str) -> Body:
    async def body(run: Run) -> object:
        return await run.call(ToolCall("look", {"what": what}))

    return body


async def doing(run: Run) -> object:
    async def count() -> int:
        return 1

    return await run.effect("count", count, into=int)


async def gathering(run: Run) -> object:
    return await run.gather(asking("a"), asking("b"))


def delegating(task: str) -> Body:
    async def body(run: Run) -> object:
        return await run.delegate(engine(asking("a"), MemoryJournal()), task)

    return body


LONG = "Plan the journey to Paris with all that it needs, " * 3
TALK = Conversation.of("Where to?", system="Be brief.")
CASES = {
    "prompt": (asking("one"), asking("two"), "ask 'one'", "ask 'two'"),
    "type": (asking("one"), asking("one", Plan), "ask 'one'", "ask into Plan 'one'"),
    "conversation": (
        asking(TALK),
        asking(TALK.user("To Paris.")),
        "ask 2 messages, 'Be brief.' to 'Where to?'",
        "ask 3 messages, 'Be brief.' to 'To Paris.'",
    ),
    "end of a long prompt": (
        asking(LONG + "x"),
        asking(LONG + "y"),
        f"ask '{shorten(LONG)}'",
        f"ask '{shorten(LONG)}', with other content",
    ),
    "call": (
        looking("sky"),
        looking("sea"),
        'propose look(what="sky")',
        'propose look(what="sea")',
    ),
    "effect": (doing, asking("one"), "effect count", "ask 'one'"),
    "question": (asking("one"), doing, "ask 'one'", "effect count"),
    "gather": (asking("one"), gathering, "ask 'one'", "gather"),
    "branches": (gathering, asking("one"), "ask 'a'", "nothing"),
    "task": (
        delegating("this"),
        delegating("that"),
        "delegate doing 'this'",
        "delegate doing 'that'",
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_divergence_names_what_is_recorded_and_what_is_asked(name: str) -> None:
    old, new, recorded, now = CASES[name]
    error = await diverge(old, new)

    assert (error.expected, error.found) == (recorded, now)
    assert f"recorded: {error.expected}; now: {error.found}." in str(error)


async def test_an_effect_that_is_gone_is_named() -> None:
    async def both(run: Run) -> object:
        return await run.ask("one") + await run.ask("two")

    error = await diverge(both, asking("one"))

    assert (error.key, error.expected, error.found) == ("1", "ask 'two'", "nothing")


async def test_the_words_hold_no_secret_and_stay_short() -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    journal = MemoryJournal()
    await engine(asking(f"Use {secret} now. " * 9), journal).run("Go.", run_id="r")
    events = [entry.event for entry in journal.read("r")]
    [asked] = [event for event in events if isinstance(event, ModelRequested)]

    assert secret[:20] not in asked.about
    assert len(asked.about) <= MAX_QUOTE + len("ask ''")


def test_a_quote_is_one_line_of_valid_unicode() -> None:
    assert quote(Redactor(), "a\n  b\ud800") == "'a b?'"
