"""A text of an engine that became a secret since it was recorded is no changed code, and is recorded no more."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    Action,
    Allow,
    Ask,
    Completion,
    Conversation,
    Deny,
    Entry,
    LoopEngine,
    MemoryJournal,
    Modify,
    PolicyState,
    ReActEngine,
    Result,
    Run,
    Runtime,
    Suspend,
    tool,
)
from loopwright.errors import Denied, ReplayDivergence
from loopwright.hooks import Before, Hook, ModelQuestion, Moment
from loopwright.messages import ToolCall
from loopwright.providers import Request
from loopwright.security.redaction import Redactor
from loopwright.testing import ScriptedProvider, crashed

SECRET = "blue-horse-77"
REDACTED = Redactor([SECRET])

CHILD = ScriptedProvider(lambda request: "Yes.")
"""The model of a child engine."""

Verb = Callable[[Run], Awaitable[object]]


@tool(effect="write")
async def repeat(text: str) -> str:
    """Repeat a text."""
    return f"{len(text)} characters"


async def call(run: Run) -> object:
    return await run.call(ToolCall("repeat", {"text": f"Is it {SECRET}?"}))


async def ask_user(run: Run) -> object:
    return await run.ask_user(f"Is it {SECRET}?")


async def permit(run: Run) -> None:
    await run.permit("plan", {"steps": [f"Use {SECRET}."]})


async def delegate(run: Run) -> object:
    child = ReActEngine(Runtime(CHILD))  # its own redactor knows no secret
    return await run.delegate(child, f"Use {SECRET}.")


async def hand_off(run: Run) -> object:
    if run.task == "Go.":
        await run.handoff("second", Conversation.of(f"Use {SECRET}."))
    return None


async def quarantined(run: Run) -> object:
    return await run.quarantined(f"Has it {SECRET}?", f"It has {SECRET}.", into=str)


async def sample(run: Run) -> object:
    return await run.samples(Conversation.of(f"Use {SECRET}."), 2)


async def look_up(run: Run) -> object:
    async def read() -> str:
        return SECRET

    value = await run.lookup("read", read, into=str)
    return await run.ask(f"Is it {value}?")


async def note(run: Run) -> object:
    run.note({"text": SECRET})
    run.endorse(f"It is {SECRET}.", f"{SECRET} is checked")
    return None


async def gather(run: Run) -> object:
    async def work(branch: Run) -> str:
        return await branch.ask(f"Is it {SECRET}?")

    return await run.gather(work, work, names=[SECRET, f"not {SECRET}"])


VERBS: dict[str, Verb] = {
    one.__name__: one
    for one in (call, ask_user, permit, delegate, hand_off, quarantined, sample, look_up, note, gather)
}  # fmt: skip


class Gate:
    """Allows all, or asks about the verb, or changes or denies the answer in words with the secret."""

    version = "1"
    answers = True

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def evaluate(self, action: Action, state: PolicyState) -> Any:
        """Decide."""
        is_answer = "answer" in action.arguments
        if self.kind == "ask" and not is_answer:
            return Ask(f"Shall {action.tool} be done?")
        if self.kind == "modify" and is_answer:
            return Modify({**action.arguments, "answer": f"No, it is {SECRET}."}, "")
        if self.kind == "deny" and not is_answer:
            return Deny(f"{SECRET} is not for this")
        return Allow()


class Talking(LoopEngine):
    """Uses one verb between two questions, and quotes a text in its answer."""

    name = "talking"
    verb: str

    async def solve(self, run: Run) -> str:
        await run.ask("Ready?")
        try:
            await VERBS[self.verb](run)
        except Denied as denied:
            return f"It may not be: {denied}"
        await run.ask(f"Done with {SECRET}?")
        return "It is noted." if self.verb == "note" else f"It is {SECRET}."


def build(journal: MemoryJournal, verb: str, kind: str, **options: Any) -> Any:
    async def answer(question: str) -> str:
        return "Yes."

    runtime = Runtime(
        ScriptedProvider(lambda request: "Yes."), tools=[repeat], journal=journal, gate=Gate(kind), user=answer,
        approver=Suspend(), **options,
    )  # fmt: skip
    engine = Talking(runtime, verb=verb)
    if verb == "hand_off":
        runtime.agent("second", engine=engine, instructions=f"Say {SECRET}.")
    return engine


def is_free(engine: LoopEngine, entries: list[Entry]) -> bool:
    """Whether neither the new entries nor the requests hold the secret."""
    provider: Any = engine.runtime.provider
    requests = [*provider.requests, *CHILD.requests]
    sent = str([request.conversation.messages for request in requests])
    bodies = b"".join(entry.body for entry in entries)
    return SECRET not in sent and SECRET.encode() not in bodies


@pytest.mark.parametrize(
    ("verb", "kind"),
    [*((verb, "allow") for verb in VERBS), ("note", "modify"), ("permit", "deny"), ("call", "deny")],
)  # fmt: skip
async def test_a_run_cut_anywhere_goes_on_with_texts_that_became_secret(
    verb: str, kind: str
) -> None:
    journal = MemoryJournal()
    result = await build(journal, verb, kind).run("Go.", run_id="r")
    entries = journal.read("r")
    ended = "completed", str(result.answer).replace(SECRET, "[redacted]")

    for cut in range(1, len(entries)):
        again = crashed(entries, cut)
        CHILD.requests.clear()
        resumed = build(again, verb, kind, redactor=REDACTED)
        seen = await resumed.resume("r")
        at = f"cut after {cut}: {entries[cut - 1].kind}"
        assert (seen.status, seen.answer) == ended, at
        assert is_free(resumed, again.read("r")[cut:]), at


@pytest.mark.parametrize("known", ["before approval", "after approval"])
@pytest.mark.parametrize("verb", ["call", "ask_user", "permit", "delegate", "hand_off"])
async def test_an_approval_counts_for_a_text_that_became_secret(
    verb: str, known: str
) -> None:
    journal = MemoryJournal()
    before = build(journal, verb, "ask")
    waiting = await before.run("Go.", run_id="r")
    [question] = waiting.pending
    count = len(journal.read("r"))
    CHILD.requests.clear()
    resumed = build(journal, verb, "ask", redactor=REDACTED)
    if known == "before approval":
        [question] = (await resumed.resume("r")).pending
        assert SECRET not in str(question)
        await resumed.runtime.control("r").approve(question.key)
    else:
        await before.runtime.control("r").approve(question.key)

    result = await resumed.resume("r")

    assert (result.status, result.answer) == ("completed", "It is [redacted].")
    assert is_free(resumed, journal.read("r")[count:])


class Paying(LoopEngine):
    """Has policy decide about a payment with two secrets, and then asks its model."""

    name = "paying"
    amount: int = 5

    async def solve(self, run: Run) -> str:
        note = f"By {SECRET} and {OTHER}."
        await run.permit("pay", {"amount": self.amount, "note": note})
        return await run.ask("Go on?")


OTHER = "green-cow-88"


@pytest.mark.parametrize("known", [[], [SECRET], [OTHER], [SECRET, OTHER]])
async def test_a_permit_beside_secrets_is_for_the_other_arguments_too(
    known: list[str],
) -> None:
    def build_engine(entries: list[Entry], amount: int, secrets: list[str]) -> Paying:
        provider, redactor = ScriptedProvider(["Yes."]), Redactor(secrets)
        journal = crashed(entries, len(entries)) if entries else MemoryJournal()
        runtime = Runtime(provider, journal=journal, redactor=redactor)
        return Paying(runtime, amount=amount)

    first = build_engine([], 5, known)
    await first.run("Go.", run_id="r")
    entries = first.runtime.journal.read("r")
    permitted = entries[: cut_after(entries, "effect_finished")]

    same = build_engine(permitted, 5, [SECRET, OTHER])
    assert (await same.resume("r")).answer == "Yes."

    with pytest.raises(ReplayDivergence, match="pay with other arguments"):
        await build_engine(permitted, 5000, [SECRET, OTHER]).resume("r")


class WithBoth(LoopEngine):
    """Does something with two secrets, and then asks its model."""

    name = "with-both"
    verb: str = "ask"

    async def solve(self, run: Run) -> str:
        both = f"Use {SECRET} and {OTHER}."
        match self.verb:
            case "ask":
                await run.ask(both)
            case "reason":
                conversation = run.conversation
                for turn in range(20):
                    conversation = conversation.user(f"{turn}: {SECRET}, {OTHER}")
                await run.reason(conversation)
            case "call":
                await run.call(ToolCall("repeat", {"text": both}))
            case "delegate":
                await run.delegate(ReActEngine(self.runtime), both)
            case _:
                await run.samples(Conversation.of(both), 2)
        return await run.ask("Go on?")


@pytest.mark.parametrize("verb", ["ask", "reason", "call", "delegate", "samples"])
async def test_a_second_secret_of_a_text_that_becomes_known_is_no_changed_code(
    verb: str,
) -> None:
    def build_engine(journal: MemoryJournal, *known: str) -> WithBoth:
        model = ScriptedProvider(lambda request: "Yes.")
        runtime = Runtime(
            model, tools=[repeat], journal=journal, redactor=Redactor(known)
        )
        return WithBoth(runtime, verb=verb)

    journal = MemoryJournal()
    await build_engine(journal, OTHER).run("Go.", run_id="r")
    entries = journal.read("r")
    CHILD.requests.clear()

    for cut in range(1, len(entries)):
        again = crashed(entries, cut)
        resumed = build_engine(again, SECRET, OTHER)
        result = await resumed.resume("r")
        assert (result.status, result.answer, cut) == ("completed", "Yes.", cut)
        assert is_free(resumed, again.read("r")[cut:]), cut


class Confirming(Paying):
    """Asks its user about the payment."""

    name = "confirming"

    async def solve(self, run: Run) -> str:
        note = f"by {SECRET} and {OTHER}"
        return await run.ask_user(f"Pay {self.amount} {note}?")


@pytest.mark.parametrize("known", [[], [OTHER], [SECRET, OTHER]])
async def test_an_answer_counts_for_the_question_that_was_asked_beside_secrets(
    known: list[str],
) -> None:
    async def answer(amount: int) -> Result:
        journal, asked = MemoryJournal(), Redactor(known)
        first = Confirming(
            Runtime(ScriptedProvider([]), journal=journal, redactor=asked)
        )
        await first.run("Go.", run_id="r")
        await first.runtime.control("r").answer("Yes.")
        redactor = Redactor([SECRET, OTHER])
        later = Runtime(ScriptedProvider([]), journal=journal, redactor=redactor)
        return await Confirming(later, amount=amount).resume("r")

    assert (await answer(5)).answer == "Yes."
    with pytest.raises(ReplayDivergence, match="ask_user with other arguments"):
        await answer(5000)


class Quoting(Hook):
    """Tells the model a text with the secret."""

    name = "quoting"

    def before_model(self, at: Moment, asked: ModelQuestion) -> Before:
        return Before((f"Use {SECRET}.",))


class Heard(ScriptedProvider):
    """A model during whose first reply a person says a text with the secret."""

    control: Any = None

    async def complete(self, request: Request) -> Completion:
        """Reply."""
        if self.control is not None and not self.requests:
            await self.control.steer(f"Use {SECRET}.")
        return await super().complete(request)


class Reasoning(LoopEngine):
    """Asks in one conversation, with what was delivered to the model in it."""

    name = "reasoning"

    async def solve(self, run: Run) -> str:
        conversation = run.conversation
        for _ in range(3):
            proposal = await run.reason(conversation)
            conversation = run.latest.user("More?")
        return proposal.answer or ""


@pytest.mark.parametrize("said", ["by a hook", "by a person"])
async def test_what_was_delivered_is_not_recorded_again_as_a_secret(said: str) -> None:
    def build_engine(journal: MemoryJournal, **options: Any) -> LoopEngine:
        hooks = [Quoting()] if said == "by a hook" else []
        runtime = Runtime(Heard(["Yes."] * 3), journal=journal, hooks=hooks, **options)
        return Reasoning(runtime)

    journal = MemoryJournal()
    first = build_engine(journal)
    handle = first.start("Go.", run_id="r")
    if said == "by a person":
        heard: Any = first.runtime.provider
        heard.control = handle
    await handle.result()
    entries = journal.read("r")
    assert [entry.kind for entry in entries].count("model_requested") == 3
    assert any(
        SECRET.encode() in e.body for e in entries if e.kind == "model_requested"
    )

    for cut in range(1, len(entries)):
        second = crashed(entries, cut)
        resumed = build_engine(second, redactor=REDACTED)
        result = await resumed.resume("r")
        assert result.status == "completed"
        written = second.read("r")
        assert is_free(resumed, written[cut:]), f"cut after {cut}"
        for again in range(cut + 1, len(written)):
            third = crashed(written, again)
            resumed = build_engine(third, redactor=REDACTED)
            assert (await resumed.resume("r")).status == "completed", (cut, again)
            assert is_free(resumed, third.read("r")[again:]), (cut, again)
