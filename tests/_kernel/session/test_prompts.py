"""No request has a secret that is registered now, also where it was none when a text was recorded."""

import asyncio
from typing import Any

import pytest

from loopwright import (
    Completion,
    Conversation,
    LoopEngine,
    MemoryJournal,
    ReActEngine,
    Result,
    Run,
    Runtime,
    tool,
)
from loopwright.errors import ReplayDivergence
from loopwright.messages import ToolCall
from loopwright.providers import Request
from loopwright.security.redaction import Redactor
from loopwright.testing import ScriptedProvider, call, crashed

SECRET = "blue-horse-77"
REDACTED = Redactor([SECRET])


@tool(effect="read")
async def look() -> str:
    """Look something up."""
    return f"the code is {SECRET}"


class Hanging(ScriptedProvider):
    """Replies so many times, then tells that it is asked, and does not reply."""

    def __init__(self, script: list[Any], count: int) -> None:
        super().__init__(script)
        self.asked, self._left = asyncio.Event(), count

    async def complete(self, request: Request) -> Completion:
        """Reply, or wait."""
        if self._left == 0:
            self.asked.set()
            await asyncio.Event().wait()
        self._left -= 1
        return await super().complete(request)


class Rewriting(LoopEngine):
    """Asks about the messages of its conversation in conversations of its own."""

    name = "rewriting"

    async def solve(self, run: Run) -> str:
        """Ask twice."""
        messages = run.conversation.messages
        await run.reason(Conversation(messages).user("Whole?"))
        proposal = await run.reason(Conversation(messages[:3]).user("The first?"))
        return proposal.answer or ""


class Quoting(LoopEngine):
    """Quotes in its prompts what an earlier run read."""

    name = "quoting"

    async def solve(self, run: Run) -> str:
        """Ask twice."""
        read = run.conversation.messages[2].content
        first = await run.ask(f"Judge: {read}")
        return await run.ask(f"Judge again: {read} {first}")


async def look_first(journal: MemoryJournal) -> Conversation:
    """Return the conversation of a run that read what is no secret yet."""
    runtime = Runtime(ScriptedProvider([call("look"), "Done."]), tools=[look], journal=journal)  # fmt: skip
    return (await ReActEngine(runtime).run("Look.", run_id="first")).conversation


async def interrupt(
    engine: type[LoopEngine], task: Conversation | str, journal: MemoryJournal, script: list[Any], count: int
) -> None:  # fmt: skip
    """Suspend a run while it waits for its model, which has replied so many times."""
    provider = Hanging(script, count)
    handle = engine(Runtime(provider, tools=[look], journal=journal)).start(task, run_id="second")  # fmt: skip
    ended = asyncio.create_task(handle.result())
    await provider.asked.wait()
    await handle.suspend()
    await asyncio.wait([ended])


async def resume(
    engine: type[LoopEngine], journal: MemoryJournal
) -> tuple[Result, list[Request]]:
    """Resume the run where the secret is registered; return the requests that were sent."""
    provider = ScriptedProvider(["One.", "Two.", "Three."])
    runtime = Runtime(provider, tools=[look], journal=journal, redactor=REDACTED)
    result = await engine(runtime).resume("second")
    return result, provider.requests


def list_texts(request: Request) -> list[str]:
    calls = [str(c) for message in request.conversation for c in message.calls]
    return [message.content for message in request.conversation] + calls


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("engine", [ReActEngine, Rewriting, Quoting])
async def test_secret_of_an_earlier_turn_is_not_sent_when_a_turn_is_resumed(
    engine: type[LoopEngine], count: int
) -> None:
    journal = MemoryJournal()
    given = (await look_first(journal)).user("More.")
    script = [call("look"), "One."] if engine is ReActEngine else ["One.", "Two."]
    await interrupt(engine, given, journal, script, count)

    result, requests = await resume(engine, journal)

    assert result.status == "completed"
    texts = [text for request in requests for text in list_texts(request)]
    assert any("the code is [redacted]" in text for text in texts)
    assert SECRET not in "".join(texts)
    last = max(e.key for e in journal.read("second") if e.kind == "model_requested")
    assert await journal.request("second", last) == requests[-1]


async def test_secret_of_its_own_task_is_not_sent_when_a_run_is_resumed() -> None:
    journal = MemoryJournal()
    await interrupt(ReActEngine, f"Use {SECRET}.", journal, [], 0)

    _, requests = await resume(ReActEngine, journal)

    assert list_texts(requests[0]) == ["Use [redacted]."]
    new = [e.body for e in journal.read("second")[3:] if e.kind == "model_requested"]
    assert new
    assert SECRET.encode() not in b"".join(new)


async def test_secret_of_another_run_is_not_sent_by_an_engine_that_has_its_messages() -> None:  # fmt: skip
    journal = MemoryJournal()
    examples = (await look_first(journal)).messages

    class Remembering(LoopEngine):
        name = "remembering"

        async def solve(self, run: Run) -> str:
            asked = Conversation([*examples, *run.conversation.messages])
            return (await run.reason(asked)).answer or ""

    provider = ScriptedProvider(["Done."])
    runtime = Runtime(provider, tools=[look], journal=journal, redactor=REDACTED)

    await Remembering(runtime).run("Go on.")

    assert "the code is [redacted]" in list_texts(provider.requests[0])[2]
    assert SECRET not in "".join(list_texts(provider.requests[0]))


async def test_divergence_does_not_quote_what_became_a_secret() -> None:
    journal = MemoryJournal()
    given = (await look_first(journal)).user("More.")
    await interrupt(Quoting, given, journal, ["One."], 1)

    class Changed(Quoting):
        async def solve(self, run: Run) -> str:
            return await run.ask("Something else?")

    with pytest.raises(ReplayDivergence, match="code is \\[redacted\\]") as raised:
        await resume(Changed, journal)

    assert SECRET not in str(raised.value)


async def test_promise_behind_a_secret_of_the_engine_is_replayed() -> None:
    """What is compared with the journal has no secrets, as what was recorded had none."""

    class Promised(LoopEngine):
        name = "promised"

        async def solve(self, run: Run) -> str:
            asked = run.conversation.user(f"Use {SECRET}.")
            proposal = await run.reason(asked)
            return f"{proposal.answer} {await run.ask('Sure?')}"

    journal = MemoryJournal()
    script = ["I will now call the tool look.", "It is 3.", "Yes."]
    before = Runtime(ScriptedProvider(script), tools=[look], journal=journal, redactor=REDACTED)  # fmt: skip
    result = await Promised(before).run("Go.", run_id="second")
    cut = crashed(journal.read("second"), 6)

    again, _ = await resume(Promised, cut)

    assert result.answer == "It is 3. Yes."
    assert again.answer == "It is 3. One."


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_end_of_a_run_has_no_secret_that_an_engine_kept(is_resumed: bool) -> None:
    """The last entry has whatever no other entry of the run has: what an engine wrote, and messages of earlier runs."""

    class Keeping(LoopEngine):
        name = "keeping"

        async def solve(self, run: Run) -> str:
            await run.ask("Ready?")
            first, *rest = run.conversation.messages
            run.keep(Conversation([*rest, first]).user(f"Kept {SECRET}."))
            return "Done."

    journal = MemoryJournal()
    task = Conversation.of(f"Use {SECRET}.").assistant("Yes.").user("More.")
    if is_resumed:
        await interrupt(Keeping, task, journal, [], 0)
        result, _ = await resume(Keeping, journal)
    else:
        runtime = Runtime(ScriptedProvider(["Yes."]), journal=journal, redactor=REDACTED)  # fmt: skip
        result = await Keeping(runtime).run(task, run_id="second")

    texts = [message.content for message in result.conversation]
    assert texts == ["Yes.", "More.", "Use [redacted].", "Kept [redacted].", "Done."]
    assert SECRET.encode() not in journal.read("second")[-1].body
    again, _ = await resume(Keeping, journal)
    assert again.conversation == result.conversation


@tool(effect="read")
async def repeat(text: str) -> str:
    """Repeat a text."""
    return f"{len(text)} characters"


@pytest.mark.parametrize("to", ["call", "child", "handoff"])
async def test_what_was_handed_on_before_it_was_a_secret_is_no_changed_code(
    to: str,
) -> None:
    class Handing(LoopEngine):
        """Hands on what an earlier run read, and asks once more."""

        name = "handing"

        async def solve(self, run: Run) -> str:
            read = run.conversation.messages[2].content
            run.note(read)
            if to == "call":
                await run.call(ToolCall("repeat", {"text": read}))
            elif to == "child":
                await run.delegate(ReActEngine(self.runtime), f"Judge: {read}")
            elif run.task == "More.":
                await run.handoff("second", run.conversation.user(f"Judge: {read}"))
            await run.ask(f"Is it {read}?")
            return await run.ask(f"Is it not {read}?")

    def build(provider: ScriptedProvider, **options: Any) -> LoopEngine:
        runtime = Runtime(provider, tools=[look, repeat], journal=journal, **options)
        first, second = Handing(runtime), Handing(runtime)
        runtime.agent("first", engine=first, instructions="Help.", handoffs=["second"])
        runtime.agent("second", engine=second, instructions=f"Never say {SECRET}.")
        return runtime.agents["first"].engine

    journal = MemoryJournal()
    given = (await look_first(journal)).user("More.")
    hanging = Hanging(["Fine."] * 2, 2 if to == "child" else 1)
    handle = build(hanging).start(given, run_id="second")
    ended = asyncio.create_task(handle.result())
    await hanging.asked.wait()
    await handle.suspend()
    await asyncio.wait([ended])
    count = len(journal.read("second"))
    provider = ScriptedProvider(["Two.", "Three."])

    result = await build(provider, redactor=REDACTED).resume("second")

    assert result.answer == "Two."
    assert not any(SECRET in text for r in provider.requests for text in list_texts(r))
    new = journal.read("second")[count:]
    assert [one.key for one in new if SECRET.encode() in one.body] == []
    assert "drift_noticed" not in [one.kind for one in new]
