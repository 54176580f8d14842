"""Questions to people, and what becomes of answers that are none: from the user, from gates, from the inbox."""

from typing import Any

import pytest
from pydantic import BaseModel

from erase_tool import RAN, erase, react
from erase_tool import nothing_ran as nothing_ran
from held_tool import HeldTool
from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Decision,
    Deny,
    MemoryJournal,
    Modify,
    PolicyState,
    Suspend,
)
from loopwright._kernel.control.questions import open_questions
from loopwright.gates import RESPOND, InstantGate
from loopwright.labels import LabelledText, Untrusted
from loopwright.testing import call, crashed

# --- the user ---


async def breaks(question: str) -> str:
    raise OSError("the terminal is gone")


async def says_nothing(question: str) -> Any:
    return None


@pytest.mark.parametrize(
    ("user", "told"),
    [(breaks, "failed: the terminal is gone"), (says_nothing, "got None")],
)
async def test_a_user_who_cannot_be_asked_is_an_error_that_says_so(
    user: Any, told: str
) -> None:
    result = await react(
        MemoryJournal(), call("ask_user", question="Which?"), user=user
    ).run("Go.")

    assert (result.status, result.answer) == ("failed", None)
    assert isinstance(result.error, ConfigError)
    assert told in str(result.error)


async def test_an_answered_question_is_not_asked_again_wherever_the_process_dies() -> (
    None
):
    asked: list[str] = []

    async def user(question: str) -> str:
        asked.append(question)
        return "the blue one"

    journal, script = (
        MemoryJournal(),
        [call("ask_user", question="Which?"), "the blue one, then"],
    )
    await react(journal, *script, user=user).run("Go.", run_id="r")
    entries = journal.read("r")
    for keep in range(1, len(entries)):
        asked.clear()
        replied = [e.kind for e in entries[:keep]].count("model_replied")
        again = react(crashed(entries, keep), *script[replied:], user=user)

        assert (await again.resume("r")).answer == "the blue one, then"
        assert len(asked) == (
            not any(entry.kind == "tool_finished" for entry in entries[:keep])
        )


async def test_a_question_whose_policy_changed_before_it_was_put_is_not_put() -> None:
    class Changing(InstantGate):
        version = "1"

        def decide(self, action: Action, state: PolicyState) -> Decision:
            return Allow()

    gate = Changing()

    class Slow(MemoryJournal):
        async def barrier(self, claim: Any) -> None:
            if any(entry.kind == "tool_started" for entry in self.read(claim.run_id)):
                gate.version = "2"
            await super().barrier(claim)

    engine = react(
        Slow(), call("ask_user", question="Which?"), "then not", gate=gate, user=breaks
    )
    result = await engine.run("Go.")

    [told] = [m.content for m in result.conversation.messages if m.role == "tool"]
    assert (result.answer, told.startswith("ask_user was not run")) == (
        "then not",
        True,
    )


# --- what gates make of an answer ---


class City(BaseModel):
    """An answer as data."""

    name: str


class Rewriting:
    """Puts another answer in its place."""

    answers = True
    version = "rewriting-1"

    def __init__(self, answer: str) -> None:
        self._answer = answer

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        return (
            Modify({**action.arguments, "answer": self._answer}, "other")
            if action.tool == RESPOND
            else Allow()
        )


async def test_an_answer_that_a_gate_changed_is_read_again() -> None:
    parts = {"gate": Rewriting('{"name": "Rome"}')}

    result = await react(MemoryJournal(), '{"name": "Paris"}', **parts).run(
        "Where?", output=City
    )

    assert (result.status, result.output) == ("completed", City(name="Rome"))


async def test_an_answer_that_a_gate_changed_into_no_output_is_invalid() -> None:
    result = await react(
        MemoryJournal(), '{"name": "Paris"}', gate=Rewriting("[hidden]")
    ).run("Where?", output=City)

    assert (result.status, result.output, result.stop_reason) == (
        "failed",
        None,
        "invalid_output",
    )
    assert "the gate changed the answer" in str(result.error)


async def test_an_answer_that_is_withheld_has_no_output_either() -> None:
    class Silent(Rewriting):
        async def evaluate(self, action: Action, state: PolicyState) -> Decision:
            return Deny("hidden") if action.tool == RESPOND else Allow()

    result = await react(MemoryJournal(), '{"name": "Paris"}', gate=Silent("")).run(
        "Where?", output=City
    )

    assert (result.status, result.answer, result.output) == ("failed", None, None)


# --- leave ---


async def test_a_call_that_a_person_wants_made_is_asked_about_like_any() -> None:
    held = HeldTool()

    class Asks(InstantGate):
        version = "asks-1"

        def decide(self, action: Action, state: PolicyState) -> Decision:
            return Ask("run it?") if action.tool == "erase" else Allow()

    journal = MemoryJournal()
    options: dict[str, Any] = {"tools": [*held.tools(), erase], "gate": Asks()}
    async with react(journal, call("hold", what="a"), **options).start(
        "Go.", run_id="r"
    ) as run:
        await held.reached.wait()
        await run.override("erase", {"what": "disk"})
        held.go.set()
        waiting = await run.result()
    [question] = waiting.pending
    assert (waiting.status, question.tool, question.arguments, RAN) == (
        "waiting",
        "erase",
        {"what": "disk"},
        [],
    )

    await react(journal).runtime.control("r").approve(question.key)
    result = await react(journal, "done", **options).resume("r")

    assert (result.status, RAN) == ("completed", ["disk"])
    assert open_questions(journal.read("r")) == ()


@pytest.mark.parametrize(
    "wrong", [{"holds": 0}, {"expires": -1.0}, {"expires": 0}, {"holds": float("nan")}]
)
def test_times_of_leave_are_above_0(wrong: dict[str, float]) -> None:
    [option] = wrong
    with pytest.raises(
        ConfigError, match=f"Suspend: {option}: must be seconds above 0"
    ):
        Suspend(**wrong)


@pytest.mark.parametrize(
    ("word", "given"), [("steer", " "), ("add_context", None), ("follow_up", "")]
)
async def test_words_that_say_nothing_are_refused(word: str, given: Any) -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk")).run("Go.", run_id="r")

    with pytest.raises(ConfigError, match=f"{word}: needs a text"):
        await getattr(react(journal).runtime.control("r"), word)(given)


@pytest.mark.parametrize("word", ["steer", "add_context", "follow_up", "message"])
async def test_text_that_is_not_trusted_is_no_guidance(word: str) -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk")).run("Go.", run_id="r")
    control = react(journal).runtime.control("r")

    with pytest.raises(ConfigError, match=f"{word}: the text is untrusted"):
        await getattr(control, word)(Untrusted("the text of a mail"))
    with pytest.raises(ConfigError, match=f"{word}: the text is labelled 'secret'"):
        await getattr(control, word)(LabelledText("the code", label="secret"))
    await getattr(control, word)(str(Untrusted("I vouch for it")))


async def test_a_label_that_is_none_is_refused() -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk")).run("Go.", run_id="r")
    wrong: Any = "harmless"

    with pytest.raises(
        ConfigError,
        match="label: must be one of public, normal, sensitive, secret, got 'harmless'",
    ):
        await react(journal).runtime.control("r").declassify(wrong, "I say so")
