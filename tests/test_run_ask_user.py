"""Typed questions to the user: checked where they are answered, with choices and a time to answer in."""

import enum
import json
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel

from function_engine import FunctionEngine
from loopwright import ConfigError, MemoryJournal, Result, Run, Runtime, Worker
from loopwright.errors import QuestionExpired
from loopwright.events import EffectFinished, RunSuspended
from loopwright.journals import SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider, crashed

Body = Callable[[Run], Awaitable[object]]
HOUR = 3600.0


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    street: str
    number: int


def check_even(number: int) -> int:
    if number % 2:
        raise ValueError("an even number is needed")
    return number


Even = Annotated[int, AfterValidator(check_even)]


def asking(question: str, **options: Any) -> Body:
    async def body(run: Run) -> object:
        return repr(await run.ask_user(question, **options))

    return body


def runtime(journal: Any = None, **options: Any) -> Runtime:
    journal = MemoryJournal(clock=options.get("clock")) if journal is None else journal
    return Runtime(ScriptedProvider([]), journal=journal, **options)


async def answered(
    runtime: Runtime, body: Body, refused: tuple[str, ...], accepted: str
) -> Result:
    """Ask, see that each of the `refused` texts is an error to the person alone, and resume with the accepted one."""
    engine = FunctionEngine(runtime, body=body)
    waiting = await engine.run("Go.", run_id="r")
    assert (waiting.status, waiting.stop_reason) == ("waiting", "question")
    before = len(runtime.journal.read("r"))
    for text in refused:
        with pytest.raises(ConfigError, match="text: does not answer 'Which"):
            await runtime.control("r").answer(text)
    assert runtime.journal.inbox("r", 0) == []
    assert len(runtime.journal.read("r")) == before
    await runtime.control("r").answer(accepted)
    return await engine.resume("r")


@pytest.mark.parametrize(
    ("options", "refused", "accepted", "value"),
    [
        ({}, (), "the blue one", "'the blue one'"),
        ({"choices": ("Paris", "Rome")}, ("Oslo", "par"), " paris", "'Paris'"),
        ({"into": int}, ("five", "5.5", "[5]"), "5", "5"),
        ({"into": int, "choices": (1, 2)}, ("3", "one"), "2", "2"),
        ({"into": bool}, ("perhaps", "5"), "Yes", "True"),
        ({"into": date}, ("tomorrow", "5"), "2026-02-01", "datetime.date(2026, 2, 1)"),
        ({"into": Literal["a", "b"]}, ("c",), "B", "'b'"),
        ({"into": Size}, ("huge",), "large", "<Size.LARGE: 'large'>"),
        ({"into": list[str]}, ("a, b",), '["a", "b"]', "['a', 'b']"),
        (
            {"into": Address},
            ("Elm Street 5", '{"street": "Elm"}', '{"street": "Elm", "number": "x"}'),
            '{"street": "Elm", "number": 5}',
            "Address(street='Elm', number=5)",
        ),
    ],
    ids=["text", "choices", "int", "ints", "bool", "date", "literal", "enum", "list", "model"],
)  # fmt: skip
async def test_an_answer_that_does_not_fit_is_an_error_to_the_person_alone(
    options: dict[str, Any], refused: tuple[str, ...], accepted: str, value: str
) -> None:
    parts = runtime()

    result = await answered(parts, asking("Which?", **options), refused, accepted)

    assert (result.status, result.answer) == ("completed", value)
    entries = parts.journal.read("r")
    for keep in range(2, len(entries)):  # wherever the process dies
        copy = runtime(crashed(entries, keep))
        is_asked = any(isinstance(one.event, RunSuspended) for one in entries[:keep])
        if is_asked:  # an inbox outlives the process
            copy.journal.send(
                "r", "answer", {"key": "0", "question": 3, "text": accepted}
            )
        again = await FunctionEngine(copy, body=asking("Which?", **options)).resume("r")
        assert again.answer == (value if is_asked else None)


async def test_a_handle_refuses_what_does_not_answer_the_question_of_its_run() -> None:
    engine = FunctionEngine(runtime(), body=asking("Which?", into=int))
    async with engine.start("Go.", run_id="r") as handle:
        assert (await handle.result()).status == "waiting"
        with pytest.raises(ConfigError, match="'five' is not of type 'integer'"):
            await handle.answer("five")
        await handle.answer("5")

    assert (await engine.resume("r")).answer == "5"


async def test_what_only_the_code_of_the_run_knows_to_be_wrong_is_asked_again() -> None:
    parts = runtime()
    engine = FunctionEngine(parts, body=asking("Which?", into=Even))
    await engine.run("Go.", run_id="r")
    await parts.control("r").answer("3")

    again = await engine.resume("r")

    [question] = again.pending
    assert again.status == "waiting"
    assert "an even number is needed" in question.problem
    await parts.control("r").answer("4")
    assert (await engine.resume("r")).answer == "4"


async def test_a_callback_is_asked_again_until_its_answer_fits() -> None:
    asked: list[str] = []

    async def user(question: str) -> str:
        asked.append(question)
        return "Oslo" if len(asked) == 1 else "rome"

    parts = runtime(user=user)
    body = asking("Which city?", choices=("Paris", "Rome"))
    result = await FunctionEngine(parts, body=body).run("Go.")

    assert result.answer == "'Rome'"
    assert asked == [
        "Which city?\nOne of: Paris, Rome",
        "Which city?\nOne of: Paris, Rome\n"
        "That cannot be the answer: must be one of 'Paris', 'Rome', got 'Oslo'",
    ]


async def test_a_callback_that_never_answers_is_the_error_of_the_callback() -> None:
    async def user(question: str) -> str:
        return "Oslo"

    body = asking("Which?", into=int)
    result = await FunctionEngine(runtime(user=user), body=body).run("Go.")

    assert result.status == "failed"
    assert isinstance(result.error, ConfigError)
    assert "gave no answer in 5 attempts" in str(result.error)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"choices": "ab"}, "choices: must be a sequence of values, got 'ab'"),
        ({"choices": ("a", "A ")}, "choices: must be different texts"),
        ({"choices": ("a", " ")}, "choices: must be different texts"),
        ({"into": int, "choices": (1, "two")}, "choices: int: value: .* got 'two'"),
        ({"into": Runtime}, "into: must be a type that pydantic can read"),
        ({"expires": 0}, "expires: must be more than 0"),
        ({"expires": -1}, "expires: must be a number from 0"),
        ({"expires": "soon"}, "expires: must be a number from 0"),
    ],
    ids=str,
)
async def test_a_question_that_cannot_be_asked_says_which_field_is_wrong(
    options: dict[str, Any], told: str
) -> None:
    parts = runtime()
    result = await FunctionEngine(parts, body=asking("Which?", **options)).run("Go.")

    assert isinstance(result.error, ConfigError)
    with pytest.raises(ConfigError, match=told):
        result.raise_for_status()


# --- until when it can be answered ---


def either(**options: Any) -> Body:
    async def body(run: Run) -> object:
        try:
            return await run.ask_user("Which one?", expires=HOUR, **options)
        except QuestionExpired as expired:
            return f"none: {expired}"

    return body


async def test_a_question_expires_an_hour_after_it_was_first_asked(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "runs.db", clock=clock)
    parts = runtime(journal, clock=clock)
    engine = FunctionEngine(parts, body=either())
    waiting = await engine.run("Go.", run_id="r")
    first = waiting.pending[0].expires
    assert first == pytest.approx(clock.wall() + HOUR, abs=0.01)

    clock.advance(HOUR / 2)
    again = await engine.resume("r")  # asked again, in the same hour
    assert (again.status, again.pending[0].expires) == ("waiting", first)
    clock.advance(HOUR / 2 + 1)
    with pytest.raises(ConfigError, match="until its time was over"):
        await parts.control("r").answer("the blue one")
    # What another process sends all the same has no effect.
    asked = next(one for one in journal.read("r") if one.kind == "run_suspended")
    body = {"key": "0", "question": asked.seq, "text": "late"}
    journal.send("r", "answer", body)
    result = await engine.resume("r")

    assert (result.status, result.answer) == (
        "completed",
        "none: there was no answer in time: Which one?",
    )
    entries = journal.read("r")
    assert (await engine.resume("r")).answer == result.answer
    await journal.close()
    for keep in range(2, len(entries)):
        copy = runtime(crashed(entries, keep), clock=clock)
        again = await FunctionEngine(copy, body=either()).resume("r")
        has_expired = "asked:0" in [entry.key for entry in entries[:keep]]
        assert (again.answer == result.answer) == has_expired


async def test_an_answer_in_time_counts_also_when_the_run_is_resumed_late() -> None:
    clock = FakeClock()
    parts = runtime(clock=clock)
    engine = FunctionEngine(parts, body=either())
    await engine.run("Go.", run_id="r")
    await parts.control("r").answer("the blue one")
    clock.advance(HOUR * 2)

    assert (await engine.resume("r")).answer == "the blue one"


async def test_a_worker_continues_a_run_whose_question_expired() -> None:
    clock = FakeClock()
    parts = runtime(clock=clock, lease=30.0)
    waits = FunctionEngine(parts, body=either())
    await waits.run("Go.", run_id="r")
    worker = Worker(parts, engines=[waits])
    assert await worker.drain() == []
    clock.advance(HOUR + 1)

    [result] = await worker.drain()

    assert result.answer == "none: there was no answer in time: Which one?"


async def test_a_question_without_answer_in_time_fails_a_run_that_has_no_other() -> (
    None
):
    clock = FakeClock()
    body = asking("Which?", expires=timedelta(hours=1))
    engine = FunctionEngine(runtime(clock=clock), body=body)
    await engine.run("Go.", run_id="r")
    clock.advance(HOUR + 1)

    result = await engine.resume("r")

    assert (result.status, result.stop_reason) == ("failed", "question")
    assert isinstance(result.error, QuestionExpired)


async def test_a_fork_asks_anew_what_had_expired() -> None:
    clock = FakeClock()
    parts = runtime(clock=clock)
    engine = FunctionEngine(parts, body=either())
    await engine.run("Go.", run_id="r")
    cut = parts.journal.read("r")[-1].seq
    clock.advance(HOUR + 1)

    fork = await engine.fork("r", at=cut)

    assert (await engine.resume(fork)).status == "waiting"
    await parts.control(fork).answer("blue")
    assert (await engine.resume(fork)).answer == "blue"


async def test_a_question_of_text_is_recorded_as_before() -> None:
    parts = runtime()
    engine = FunctionEngine(parts, body=asking("Which?"))
    await engine.run("Go.", run_id="r")
    await parts.control("r").answer("red")
    await engine.resume("r")

    entries = parts.journal.read("r")
    [stored] = json.loads(entries[2].body)["pending"]
    assert set(stored) == {
        "key", "text", "tool", "arguments", "call_id", "about", "arguments_hash", "policy_version", "expires",
    }  # fmt: skip
    assert [one.key for one in entries if one.key] == ["0#0", "0"]
    answered = EffectFinished("ask_user", "red", label="public")
    assert [one.event for one in entries if one.key == "0"] == [answered]


async def test_a_message_to_a_thread_that_does_not_answer_is_an_error_to_its_sender() -> (
    None
):
    parts = runtime()
    engine = FunctionEngine(parts, body=asking("Which year?", into=int))
    agent = parts.agent("helper", engine=engine)
    thread = agent.thread("ada")
    waiting = await thread.run("Look it up.")
    assert (waiting.status, waiting.pending[0].text) == ("waiting", "Which year?")

    with pytest.raises(ConfigError, match="does not answer 'Which year\\?'"):
        await thread.run("long ago")
    result = await thread.run("1889")

    assert (result.status, result.answer) == ("completed", "1889")
