"""What a caller can get wrong: each mistake is named, with the field and the cure, before anything happens."""

import asyncio
import copy
import os
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from loopwright import (
    ChainOfThoughtEngine,
    Completion,
    ConfigError,
    Conversation,
    Entry,
    LimitReached,
    Limits,
    LoopwrightError,
    MemoryJournal,
    Message,
    ReActEngine,
    Request,
    RunBusy,
    Runtime,
    Suspend,
    ToolCall,
    tool,
)
from loopwright.errors import JournalError, Stuck, UnknownRun
from loopwright.journals import SQLiteJournal
from loopwright.providers import Capabilities, OpenAIProvider
from loopwright.testing import ScriptedProvider, call


@tool(effect="destructive")
async def erase(what: str) -> str:
    """Erase something."""
    return f"erased {what}"


def runtime(*script: Any, **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(script), **options)


def refusal(build: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        build()
    return str(refused.value)


# --- engines and options ---


def test_an_unknown_engine_is_answered_with_near_names_and_the_installed_ones() -> None:
    words = refusal(lambda: runtime().engine("raect"))

    assert words.startswith("engines: there is no 'raect'; did you mean react?")
    assert "chain-of-thought" in words


def test_an_unknown_option_of_an_engine_is_named_with_the_known_ones() -> None:
    options = "max_iterations, fallback, prompts"
    expected = f"ReActEngine: max_iteration: ReActEngine has no such option (its own options: {options})"

    assert refusal(lambda: ReActEngine(runtime(), max_iteration=3)) == expected  # type: ignore[call-arg]
    assert refusal(lambda: runtime().engine("react", max_iteration=3)) == expected


@pytest.mark.parametrize("value", [0, -1, "many", 1.5])
def test_a_bad_value_of_an_engine_s_option_is_named(value: Any) -> None:
    words = refusal(lambda: ReActEngine(runtime(), max_iterations=value))

    assert words.startswith("ReActEngine: max_iterations: ")
    assert f"got {value!r}" in words


def test_a_mistake_is_named_in_the_same_words_however_often_it_is_made() -> None:
    Limits()
    ReActEngine(runtime())

    for _ in range(3):
        assert refusal(lambda: Limits(max_tokens=0)).startswith("Limits: max_tokens: ")
        assert refusal(lambda: ReActEngine(runtime(), max_iterations=0)).startswith(
            "ReActEngine: max_iterations: "
        )


def test_an_engine_without_a_runtime_is_refused() -> None:
    assert refusal(ReActEngine) == "ReActEngine: runtime: required"


@pytest.mark.parametrize("given", ["runtime", ScriptedProvider([])])
def test_something_else_in_the_place_of_the_runtime_is_named(given: Any) -> None:
    assert refusal(lambda: ReActEngine(given)).startswith("ReActEngine: runtime: ")


def test_an_engine_s_options_cannot_be_changed_later() -> None:
    engine = ReActEngine(runtime(), max_iterations=3)

    with pytest.raises(AttributeError):
        engine.max_iterations = 4  # type: ignore[misc]


# --- the runtime ---


def test_a_negative_limit_is_named() -> None:
    assert (
        refusal(lambda: Limits(timeout=-1))
        == "Limits: timeout: Input should be greater than 0, got -1"
    )


@pytest.mark.parametrize("given", [None, 4, object()])
def test_something_else_in_the_place_of_the_provider_is_named(given: Any) -> None:
    words = refusal(lambda: Runtime(given))

    assert (
        words
        == f"provider: needs an object with a method `complete`, got {type(given).__name__}"
    )


def test_a_model_without_the_name_of_its_provider_names_the_right_form() -> None:
    words = refusal(lambda: Runtime("gpt-4.1-mini"))

    assert words.startswith(
        "provider: 'gpt-4.1-mini' does not begin with an installed provider's name ("
    )
    assert words.endswith('write it like "openai:gpt-4.1-mini"')


@pytest.mark.parametrize("given", [erase, print, 5])
def test_tools_that_are_not_a_list_are_named(given: Any) -> None:
    assert refusal(lambda: runtime(tools=given)).startswith(
        "tools: pass a list of functions and Tool values, got "
    )


def test_a_wrong_word_for_on_unknown_is_named() -> None:
    assert (
        refusal(lambda: runtime(on_unknown="panic"))
        == 'on_unknown: must be "tell", "ask" or "stop", got \'panic\''
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("limits", {"max_iterations": 3}), ("journal", "runs.db"), ("gate", "deny"), ("providers", ["x"]),
     ("approver", True), ("observers", [5])],
)  # fmt: skip
def test_a_part_of_the_wrong_kind_is_named(field: str, value: Any) -> None:
    assert refusal(lambda: runtime(**{field: value})).startswith(f"{field}: ")


def test_the_class_of_a_provider_is_not_a_provider() -> None:
    assert refusal(lambda: Runtime(ScriptedProvider)).startswith("provider: ")  # type: ignore[arg-type]


async def test_tools_for_a_model_that_can_call_none_are_refused_with_the_cure() -> None:
    provider = ScriptedProvider([], capabilities=Capabilities(native_tools=False))

    with pytest.raises(
        ConfigError,
        match=r"has no native tool calls: wrap it, Runtime\(TextTools\(provider\)",
    ):
        await ReActEngine(Runtime(provider, tools=[erase])).run("Go.")


# --- tasks ---


@pytest.mark.parametrize("task", ["", "   ", "\n\t"])
async def test_an_empty_task_is_refused(task: str) -> None:
    with pytest.raises(
        ConfigError, match="task: give the engine something to do, got an empty text"
    ):
        await ReActEngine(runtime("never")).run(task)


@pytest.mark.parametrize(
    "task",
    [None, 5, ["Go."], Conversation()],
    ids=["None", "5", "list", "empty conversation"],
)
async def test_a_value_that_is_not_a_task_is_refused(task: Any) -> None:
    with pytest.raises(ConfigError, match="task: "):
        await ReActEngine(runtime("never")).run(task)


async def test_a_task_that_is_not_valid_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="task: "):
        await ReActEngine(runtime("never")).run("half a pair: \ud83d")


async def test_a_conversation_with_an_orphan_call_is_refused() -> None:
    orphan = Conversation.of("Go.").add(
        Message("assistant", "", (ToolCall("erase", {"what": "x"}, "c1"),))
    )

    with pytest.raises(
        ConfigError,
        match=r"task: the conversation is not complete: calls \['c1'\] at the end have no",
    ):
        await ReActEngine(runtime("never")).run(orphan)


async def test_a_conversation_with_an_orphan_result_is_refused() -> None:
    orphan = Conversation.of("Go.").add(Message("tool", "erased", call_id="c9"))

    with pytest.raises(
        ConfigError, match="message 1 is a result of 'c9', which no open call asked for"
    ):
        await ReActEngine(runtime("never")).run(orphan)


async def test_an_output_that_is_no_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="output: "):
        await ReActEngine(runtime("never", "never")).run("Go.", output=7)  # type: ignore[arg-type]


# --- run ids ---


@pytest.mark.parametrize(
    "run_id", ["", " ", "two words", "../up", "x" * 129, "snow\u2603", "line\n"]
)
async def test_a_run_id_of_other_letters_is_refused(run_id: str) -> None:
    with pytest.raises(
        ConfigError, match=r"use letters, digits and \. _ : @ / -, at most 128"
    ):
        await ReActEngine(runtime("never")).run("Go.", run_id=run_id)


async def test_a_run_id_that_is_not_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="run_id"):
        await ReActEngine(runtime("never")).run("Go.", run_id=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_run_id_that_is_taken_is_refused_and_the_first_run_stays_as_it_was(
    kind: str, tmp_path: Path
) -> None:
    journal: Any = (
        MemoryJournal() if kind == "memory" else SQLiteJournal(tmp_path / "runs.db")
    )
    engine = ReActEngine(runtime("one", "two", journal=journal))
    first = await engine.run("Go.", run_id="r1")
    before = journal.read("r1")

    with pytest.raises(
        ConfigError, match="run_id 'r1' exists already: resume it, or choose another id"
    ):
        await engine.run("Go again.", run_id="r1")

    assert journal.read("r1") == before
    assert (await engine.resume("r1")).answer == first.answer == "one"
    await journal.close()


# --- resume ---


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_unknown_run_cannot_be_resumed(kind: str, tmp_path: Path) -> None:
    journal: Any = (
        MemoryJournal() if kind == "memory" else SQLiteJournal(tmp_path / "runs.db")
    )
    parts = runtime(journal=journal)

    with pytest.raises(UnknownRun, match="no run 'nope'"):
        await ReActEngine(parts).resume("nope")
    with pytest.raises(UnknownRun, match="no run 'nope'"):
        await parts.resume("nope")
    assert os.listdir(tmp_path) == []
    await journal.close()


async def test_a_run_cannot_be_resumed_by_another_engine_and_is_not_harmed_by_the_attempt() -> (
    None
):
    parts = runtime(call("erase", what="disk"), tools=[erase], approver=Suspend())
    waiting = await ReActEngine(parts).run("Go.", run_id="r1")

    with pytest.raises(
        ConfigError, match="run 'r1' is of engine 'react', not 'chain-of-thought'"
    ):
        await ChainOfThoughtEngine(parts).resume("r1")

    again = await ReActEngine(parts).resume("r1")
    assert (again.status, again.pending) == ("waiting", waiting.pending)


async def test_a_run_that_is_being_worked_on_is_busy() -> None:
    goes_on = asyncio.Event()

    class Slow(ScriptedProvider):
        async def complete(self, request: Request) -> Completion:
            await goes_on.wait()
            return await super().complete(request)

    engine = ReActEngine(Runtime(Slow(["done"])))
    async with engine.start("Go.", run_id="r1") as handle:
        async for _ in handle:
            break
        with pytest.raises(RunBusy):
            await engine.resume("r1")
        goes_on.set()
        assert (await handle.result()).answer == "done"


async def test_a_run_with_an_output_model_needs_it_again() -> None:
    class Forecast(BaseModel):
        degrees: int

    parts = runtime(call("erase", what="disk"), tools=[erase], approver=Suspend())
    await ReActEngine(parts).run("Go.", run_id="r1", output=Forecast)

    with pytest.raises(
        ConfigError, match="output: run 'r1' answers as Forecast: pass output= again"
    ):
        await ReActEngine(parts).resume("r1")


async def test_a_run_with_deps_needs_them_again() -> None:
    parts = runtime(call("erase", what="disk"), tools=[erase], approver=Suspend())
    await ReActEngine(parts).run("Go.", run_id="r1", deps={"user": 1})

    with pytest.raises(
        ConfigError,
        match="deps: run 'r1' was started with deps for its tools: pass deps= again",
    ):
        await ReActEngine(parts).resume("r1")


async def test_a_run_whose_id_is_taken_reaches_no_observer(tmp_path: Path) -> None:
    told: list[Entry] = []
    parts = runtime(
        "done",
        "done",
        journal=SQLiteJournal(tmp_path / "runs.db"),
        observers=[told.append],
    )
    await ReActEngine(parts).run("Go.", run_id="r1")
    before = list(told)

    async with ReActEngine(parts).start("Go again.", run_id="r1") as handle:
        seen = [entry async for entry in handle]
        with pytest.raises(ConfigError, match="exists already"):
            await handle.result()

    assert (seen, told) == ([], before)
    assert parts.journal.read("r1") == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            [{"role": "user", "content": "x"}],
            "conversation: holds messages, like Message(",
        ),
        ("hello", "conversation: holds messages, like Message("),
        (
            [Message("human", "x")],
            "conversation: a message's role is one of system, user, assistant, tool, got 'human'",
        ),
    ],
)
def test_a_conversation_of_something_else_is_named(given: Any, said: str) -> None:
    assert refusal(lambda: Conversation(given)).startswith(said)


def test_an_engine_of_a_provider_asks_for_a_runtime() -> None:
    words = refusal(lambda: ReActEngine(ScriptedProvider([])))  # type: ignore[arg-type]

    assert "runtime: needs a Runtime, like ReActEngine(Runtime(provider))" in words


def test_a_journal_by_its_path_names_the_right_form() -> None:
    assert "like SQLiteJournal('runs.db')" in refusal(
        lambda: runtime(journal="runs.db")
    )


@pytest.mark.parametrize(
    "error",
    [Stuck("denied", "again"), LimitReached("max_cost", "too dear"), RunBusy("busy")],
)
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],
)
def test_errors_can_be_copied(error: LoopwrightError, copied: Any) -> None:
    again = copied(error)

    assert (type(again), str(again), vars(again)) == (
        type(error),
        str(error),
        vars(error),
    )


# --- journals ---


def test_a_journal_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(lambda: SQLiteJournal(tmp_path))


def test_a_journal_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "nowhere" in refusal(lambda: SQLiteJournal(tmp_path / "nowhere" / "runs.db"))


async def ended(path: Path) -> LoopwrightError:
    """How a run that must not start ends: as a failed result, or as a refusal of the file."""
    ran: list[str] = []

    @tool
    async def send() -> str:
        """Send."""
        ran.append("sent")
        return "sent"

    try:
        journal = SQLiteJournal(path)
    except ConfigError as refused:
        return refused
    result = await ReActEngine(
        runtime(call("send"), "done", tools=[send], journal=journal)
    ).run("Go.")
    await journal.close()

    assert (result.status, result.stop_reason, ran) == ("failed", "journal_error", [])
    assert isinstance(result.error, JournalError)
    return result.error


async def test_a_file_that_is_not_a_journal_stops_a_run_before_anything_happens(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    path.write_text("This is a diary. " * 500)

    assert "runs.db" in str(await ended(path))
    assert path.read_text().startswith("This is a diary.")


@pytest.mark.skipif(
    not Path("/proc").is_dir(),
    reason="needs a folder in which not even root may make a file",
)
async def test_a_folder_that_cannot_be_written_stops_a_run_before_anything_happens() -> (
    None
):
    assert "runs.db" in str(await ended(Path("/proc/runs.db")))


# --- endpoints ---


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_a_missing_key_is_named_with_where_to_put_it() -> None:
    words = refusal(lambda: OpenAIProvider("gpt-4.1-mini"))

    assert "OPENAI_API_KEY" in words
    assert "api_key" in words


def test_an_endpoint_of_one_s_own_needs_no_key(closed_port: int) -> None:
    assert (
        OpenAIProvider("llama", base_url=f"http://127.0.0.1:{closed_port}/v1").model
        == "llama"
    )


@pytest.mark.parametrize(
    "url", ["not a url", "ftp://host/v1", "http://", "host:8080/v1"]
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    assert "base_url" in refusal(lambda: OpenAIProvider("llama", base_url=url))


async def test_an_endpoint_that_is_down_suspends_the_run_and_names_the_url(
    closed_port: int,
) -> None:
    url = f"http://127.0.0.1:{closed_port}/v1"
    result = await ReActEngine(
        Runtime(
            OpenAIProvider("llama", base_url=url), limits=Limits(max_provider_wait=0)
        )
    ).run("Go.")

    assert (result.status, result.stop_reason, result.answer) == (
        "suspended",
        "provider_unavailable",
        None,
    )
    assert url in str(result.error)
