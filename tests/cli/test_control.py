"""`approvals`, `approve`, `deny`, `answer` and the words to a run: what comes into the inbox, and what comes of it."""

import asyncio
import contextlib
import json
import re
import shlex
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Action,
    Allow,
    Ask,
    Decision,
    LoopEngine,
    PolicyState,
    ReActEngine,
    Run,
    Runtime,
    Suspend,
    ask_user,
    tool,
)
from loopwright.events import RunPaused
from loopwright.gates import RESPOND
from loopwright.journals import SQLiteJournal
from loopwright.messages import hash_arguments, hash_each
from loopwright.testing import FakeClock, ScriptedProvider, call
from waiting import eventually

from .scripted_cli import HOSTILE, door, pay, wipe
from .test_worker import until
from .using import AtTerminal, Invoke, Start, hide_seconds

WIPE = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
ASK = ("--provider", "scripted:ask", "--tools", "loopwright:ask_user")
KEY = "sk-proj-" + "a1B2" * 12  # looks like a key of OpenAI's, and is none
MARK = re.compile("@[0-9a-f]{8}")  # of the arguments, behind the key of a question
NOTED = (0, "", "queued; takes effect when the run is resumed\n")
Log = Callable[[], list[str]]


@pytest.fixture
def waiting(invoke: Invoke) -> None:
    """r1 waits for leave to wipe /tmp/x."""
    invoke("run", "Go.", *WIPE, "--run-id", "r1", "--wait", "-q")


def said(invoke: Invoke, *words: str) -> tuple[int, str, str]:
    """What a command says."""
    done = invoke(*words)
    return done.exit_code, done.stdout, done.stderr


def inbox(run_id: str = "r1", path: str = "loopwright.db") -> list[tuple[str, Any]]:
    return [
        (command.kind, command.body) for command in SQLiteJournal(path).inbox(run_id)
    ]


@tool(effect="destructive")
def reset() -> str:
    """Begin from nothing."""
    return "empty"


class Guarded:
    """Asks about what destroys, and about answers."""

    answers = True
    version = "guarded-1"

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        return (
            Ask(f"May it?{HOSTILE}")
            if action.tool in (RESPOND, "wipe", "reset")
            else Allow()
        )


async def five_runs(path: Path) -> None:
    """Runs that ask for leave, their user, what came of a failure, and whether to say their answer; r5 asks nothing."""
    journal = SQLiteJournal(path)

    def engine(*script: Any, **parts: Any) -> ReActEngine:
        tools = [wipe, reset, door, ask_user]
        return ReActEngine(
            Runtime(
                ScriptedProvider(script),
                tools=tools,
                journal=journal,
                approver=Suspend(),
                **parts,
            )
        )

    both = [call("wipe", path=f"b{HOSTILE}\x7f"), call("reset")]
    await engine(both, gate=Guarded()).run("Go.", run_id="r1")
    await engine(call("ask_user", question=f"Which\none?{HOSTILE}")).run(
        "Go.", run_id="r2"
    )
    await engine(call("door", number=7)).run("Go.", run_id="r3")
    await engine("It is\n42.", gate=Guarded()).run("Go.", run_id="r4")
    await engine("hello").run("Go.", run_id="r5")
    await journal.close()


# --- approvals ---


def test_every_kind_of_question_is_listed_with_its_exact_arguments_and_what_to_type(
    invoke: Invoke, folder: Path
) -> None:
    asyncio.run(five_runs(folder / "my runs.db"))

    status, listed, told = said(invoke, "approvals", "--journal", "my runs.db")

    hostile = r"\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]not bold[/bold] \x9b2J \u202eabc end"
    exact = r"\u001b[31mred\u001b[0m \u001b]0;title\u0007 [bold]not bold[/bold] \u009b2J \u202eabc end\r\u007f"
    varying = re.compile(
        r"^(  until) \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}$|^(r3  0#0  door failed)[^\x00-\x1f]*$"
    )
    where = "--journal 'my runs.db'"
    assert (status, told) == (0, "")
    assert [
        varying.sub(r"\1\2", MARK.sub("@…", line)) for line in listed.splitlines()
    ] == [
        rf"r4  respond:  May it?{hostile}\x0d",
        '  run:respond({"answer":"It is\\n42.","status":"completed","stop_reason":"answered"})',
        "  until",
        f"  approve it: loopwright approve r4 respond:@… {where}",
        f"  or deny it: loopwright deny r4 respond:@… {where} --reason TEXT",
        "r3  0#0  door failed",
        '  door({"number":7})',
        f"  resolve it: loopwright resolve r3 '0#0' {where} --done TEXT, or --not-done, or --unknown",
        rf"r2  0#0  Which one?{hostile}\x0d",
        f"  answer it: loopwright answer r2 --question '0#0' {where} TEXT",
        rf"r1  0#0  May it?{hostile}\x0d",
        f'  wipe({{"path":"b{exact}"}})',
        "  until",
        f"  approve it: loopwright approve r1 '0#0@…' {where}",
        f"  or deny it: loopwright deny r1 '0#0@…' {where} --reason TEXT",
        rf"r1  0#1  May it?{hostile}\x0d",
        "  reset({})",
        "  until",
        f"  approve it: loopwright approve r1 '0#1@…' {where}",
        f"  or deny it: loopwright deny r1 '0#1@…' {where} --reason TEXT",
    ]


def test_a_question_whose_time_is_over_says_so_and_how_to_answer_it_no_more(
    invoke: Invoke, folder: Path
) -> None:
    model = ScriptedProvider([call("wipe", path="a")])
    journal = SQLiteJournal(folder / "loopwright.db")
    parts = Runtime(
        model, tools=[wipe], journal=journal, approver=Suspend(), clock=FakeClock()
    )

    async def ask() -> None:
        await ReActEngine(parts).run("Go.", run_id="r1")
        await journal.close()

    asyncio.run(ask())

    status, listed, told = said(invoke, "approvals")

    assert (status, told) == (0, "")
    assert listed.splitlines()[2].startswith("  until 2023-11-1")
    assert listed.splitlines()[3:] == [
        "  expired: the run continues without the call when it is resumed"
    ]
    status, _, told = said(invoke, "approve", "r1", "0#0")
    assert (status, "until its time was over" in told, inbox()) == (2, True, [])


def test_questions_are_told_as_json_with_their_exact_texts(
    invoke: Invoke, folder: Path
) -> None:
    asyncio.run(five_runs(folder / "loopwright.db"))

    status, listed, _ = said(invoke, "approvals", "--json")

    told = [json.loads(line) for line in listed.splitlines()]
    assert status == 0
    assert listed.isascii()
    assert [
        (each["run_id"], each["question"]["key"], each["question"]["about"])
        for each in told
    ] == [
        ("r4", "respond:", "approval"),
        ("r3", "0#0", "failure"),
        ("r2", "0#0", "question"),
        ("r1", "0#0", "approval"),
        ("r1", "0#1", "approval"),
    ]
    question = told[3]["question"]
    assert question.pop("expires") > 0
    assert question.pop("call_id")
    arguments = {"path": f"b{HOSTILE}\x7f"}
    assert question == {
        "key": "0#0", "text": f"May it?{HOSTILE}", "tool": "wipe", "arguments": arguments, "about": "approval",
        "arguments_hash": hash_arguments(arguments), "policy_version": "guarded-1", "destinations": ["path"],
    }  # fmt: skip


@pytest.mark.parametrize("journal", ["none.db", "memory"])
def test_where_nobody_asks_anything_that_is_said(
    invoke: Invoke, folder: Path, journal: str
) -> None:
    assert said(invoke, "approvals", "--journal", journal) == (
        0,
        "",
        "no run waits for a decision\n",
    )
    assert list(folder.iterdir()) == []


def test_a_damaged_run_does_not_hide_the_questions_of_the_others(
    invoke: Invoke, folder: Path
) -> None:
    asyncio.run(five_runs(folder / "loopwright.db"))
    with (
        contextlib.closing(sqlite3.connect(folder / "loopwright.db")) as database,
        database,
    ):
        database.execute(
            "UPDATE events SET body = x'00' WHERE run_id = 'r2' AND seq = 3"
        )
    database.close()

    status, listed, told = said(invoke, "approvals", "--json")

    assert status == 1
    assert [json.loads(line)["run_id"] for line in listed.splitlines()] == [
        "r4",
        "r3",
        "r1",
        "r1",
    ]
    assert re.fullmatch(r"error: .*\n", told)


# --- what is said comes into the inbox ---


@pytest.mark.usefixtures("waiting")
def test_every_word_comes_into_the_inbox_of_its_run(invoke: Invoke) -> None:
    bound = {
        "key": "0#0", "question": 4, "tool": "wipe", "arguments_hash": hash_arguments({"path": "/tmp/x"}),
        "policy_version": "default-1",
    }  # fmt: skip
    same = hash_each({"path": "/tmp/x"}, ["path"])
    words: dict[tuple[str, ...], tuple[str, Any]] = {
        ("steer", "r1", "Mind it."): ("steer", {"text": "Mind it."}),
        ("steer", "r1", "--", "-x"): ("steer", {"text": "-x"}),
        ("add-context", "r1", "It is May."): ("add_context", {"text": "It is May."}),
        ("follow-up", "r1", "And now?"): ("follow_up", {"text": "And now?"}),
        ("override", "r1", "pay", '{"cents": 3}'): ("override", {"tool": "pay", "arguments": {"cents": 3}}),
        ("pause", "r1"): ("pause", {}),
        ("unpause", "r1"): ("resume", {}),
        ("stop", "r1"): ("stop", {}),
        ("abort", "r1"): ("abort", {}),
        ("declassify", "r1", "public", "--reason", "known"): ("declassify", {"label": "public", "reason": "known"}),
        ("approve", "r1", "0#0", "--by", "Ada"): ("approve", {**bound, "by": "Ada"}),
        ("approve", "r1", "0#0", "--for", "1.5"): (
            "approve", {**bound, "by": "", "seconds": 1.5, "same": same, "destinations": ["path"]},
        ),
        ("approve", "r1", "0#0", "--arguments", '{"path": "/b"}'): (
            "approve", {**bound, "by": "", "arguments": {"path": "/b"}},
        ),
        ("deny", "r1", "0#0", "--reason", "no", "--by", "Ada"): ("deny", {**bound, "reason": "no", "by": "Ada"}),
    }  # fmt: skip

    assert {each: said(invoke, *each) for each in words} == dict.fromkeys(words, NOTED)
    assert inbox() == list(words.values())


def test_an_answer_is_bound_to_the_question_that_stands(invoke: Invoke) -> None:
    invoke("run", "Go.", *ASK, "--run-id", "r1", "-q")
    asked = len(SQLiteJournal("loopwright.db").read("r1"))

    assert said(invoke, "answer", "r1", "blue") == NOTED
    assert said(invoke, "answer", "r1", "red", "--question", "0#0") == NOTED
    assert inbox() == [
        ("answer", {"key": "0#0", "question": asked, "text": text})
        for text in ("blue", "red")
    ]


@pytest.mark.usefixtures("waiting")
def test_secrets_are_taken_out_of_what_is_said(invoke: Invoke) -> None:
    assert said(invoke, "steer", "r1", f"Use {KEY}.") == NOTED
    assert said(invoke, "deny", "r1", "0#0", "--reason", f"It has {KEY}.") == NOTED
    assert said(invoke, "override", "r1", "pay", json.dumps({"cents": KEY})) == (
        2, "", "error: override: the arguments hold a secret, which no inbox keeps: put it into deps\n",
    )  # fmt: skip
    assert (
        said(invoke, "approve", "r1", "0#0", "--arguments", json.dumps({"path": KEY}))[
            0
        ]
        == 2
    )

    assert [body.get("text", body.get("reason")) for _, body in inbox()] == [
        "Use [redacted].",
        "It has [redacted].",
    ]


def test_a_journal_is_named_by_the_option_or_the_environment(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("a.db", "b.db"):
        invoke("run", "Go.", *WIPE, "--run-id", "r1", "--wait", "-q", "--journal", path)
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL", "sqlite:b.db")

    assert said(invoke, "steer", "r1", "to a", "--journal", "sqlite:a.db") == NOTED
    assert said(invoke, "steer", "r1", "to b") == NOTED

    assert inbox(path="a.db") == [("steer", {"text": "to a"})]
    assert inbox(path="b.db") == [("steer", {"text": "to b"})]
    assert (
        invoke("approvals").stdout.splitlines()[-1]
        == "  or deny it: loopwright deny r1 '0#0@cb1533f3' --reason TEXT"
    )


# --- what cannot be said ---


@pytest.mark.usefixtures("waiting")
def test_what_cannot_be_said_is_2_on_one_line_and_nothing_comes_into_the_inbox(
    invoke: Invoke, folder: Path
) -> None:
    invoke("run", "Go.", "--provider", "scripted:hello", "--run-id", "r2", "-q")
    nobody = f"no run 'r9' in journal '{folder / 'loopwright.db'}'"
    ended = "run 'r2' has ended: it receives no more commands"
    complaints = {
        ("steer", "r9", "x"): nobody,
        ("approve", "r9", "0#0"): nobody,
        ("abort", "r9"): nobody,
        ("steer", "r2", "x"): ended,
        ("pause", "r2"): ended,
        ("override", "r2", "pay", "{}"): ended,
        ("declassify", "r2", "public", "--reason", "x"): ended,
        (
            "approve",
            "r1",
            "9#0",
        ): "question: run 'r1' does not ask '9#0'; it asks '0#0'",
        (
            "deny",
            "r1",
            "\x1b[31m",
        ): r"question: run 'r1' does not ask '\x1b[31m'; it asks '0#0'",
        ("answer", "r1", "blue"): "question: run 'r1' asks nothing of the kind",
        ("steer", "r1", ""): "steer: needs a text, got ''",
        ("follow-up", "r1", " \n"): r"follow_up: needs a text, got ' \n'",
        ("declassify", "r1", "public", "--reason", ""): "reason: needs a text, got ''",
        ("approve", "r1", "0#0", "--arguments", "x"): (
            "--arguments: is not JSON: Expecting value: line 1 column 1 (char 0)"
        ),
        (
            "approve",
            "r1",
            "0#0",
            "--arguments",
            "[1]",
        ): "--arguments: must be a JSON object, got [1]",
        (
            "approve",
            "r1",
            "0#0",
            "--for",
            "-1",
        ): "seconds: must be a number above 0, and at most 1e+11, got -1.0",
        (
            "approve",
            "r1",
            "0#0",
            "--for",
            "nan",
        ): "seconds: must be a number above 0, and at most 1e+11, got nan",
        ("override", "r1", "pay", "{"): (
            "JSON: is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
        ),
        (
            "override",
            "r1",
            "pay",
            '"\x1b[31m"',
        ): "JSON: is not JSON: Invalid control character at: line 1 column 2 (char 1)",
        ("override", "r1", "pay", "7"): "JSON: must be a JSON object, got 7",
        (
            "override",
            "r1",
            "pay",
            '{"cents": NaN}',
        ): "override: arguments must be a JSON object, got {'cents': nan}",
    }

    assert {each: said(invoke, *each) for each in complaints} == {
        each: (2, "", f"error: {complaint}\n") for each, complaint in complaints.items()
    }
    assert said(invoke, "override", "r1", "pay", "[" * 100_000)[:2] == (2, "")
    assert said(invoke, "steer", "r1", "x" * 70_000)[:2] == (2, "")
    assert inbox() == inbox("r2") == []


@pytest.mark.usefixtures("waiting")
def test_a_label_that_is_none_and_words_that_are_missing_are_wrong_usage(
    invoke: Invoke,
) -> None:
    unknown = invoke("declassify", "r1", "top", "--reason", "x")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert (
        "LABEL: must be one of public, normal, sensitive, secret, got 'top'"
        in unknown.stderr
    )

    for words in (
        ("declassify", "r1", "public"),
        ("steer", "r1"),
        ("approve", "r1"),
        ("override", "r1", "pay"),
    ):
        assert invoke(*words).exit_code == 2
    assert inbox() == []


# --- what comes of it ---


@pytest.mark.parametrize(
    ("words", "answer", "done"),
    [
        (("approve", "r1", "0#0"), "wiped", ["wipe /tmp/x"]),
        (
            ("approve", "r1", "0#0", "--arguments", '{"path": "/b"}'),
            "wiped",
            ["wipe /b"],
        ),
        (("deny", "r1", "0#0", "--reason", "not on a Friday"), "not on a Friday", []),
    ],
)
@pytest.mark.usefixtures("waiting")
def test_a_decision_counts_where_the_run_is_resumed_and_nobody_is_there_to_ask(
    invoke: Invoke, log: Log, words: tuple[str, ...], answer: str, done: list[str]
) -> None:
    invoke(*words)

    resumed = invoke("resume", "r1", *WIPE, "-q")

    assert (resumed.exit_code, resumed.stdout) == (0, f"I was told: {answer}\n")
    assert [line for line in log() if line.startswith("wipe ")] == done
    assert said(invoke, "approvals") == (0, "", "no run waits for a decision\n")


@pytest.mark.usefixtures("waiting")
def test_somebody_who_is_asked_to_decide_now_has_the_last_word(
    invoke: Invoke, log: Log
) -> None:
    invoke("deny", "r1", "0#0")

    assert invoke("resume", "r1", *WIPE, "-q", "--yes").stdout == "I was told: wiped\n"


def test_the_calls_that_come_after_a_decision_from_outside_wait_too(
    invoke: Invoke, log: Log, folder: Path
) -> None:
    async def two_calls() -> None:
        journal = SQLiteJournal(folder / "loopwright.db")
        parts = Runtime(
            ScriptedProvider(script), tools=[wipe], journal=journal, approver=Suspend()
        )
        await ReActEngine(parts).run("Go.", run_id="r1")
        await journal.close()

    script = [[call("wipe", path="/a"), call("wipe", path="/b")]]
    asyncio.run(two_calls())
    invoke("approve", "r1", "0#0")

    resumed = invoke("resume", "r1", *WIPE, "-q")

    assert (resumed.exit_code, resumed.stdout) == (5, "")
    told = [MARK.sub("@…", line) for line in resumed.stderr.splitlines()]
    assert told.pop(2).startswith("  until 20")
    assert told == [
        "wipe is destructive: run it?",
        '  wipe({"path":"/b"})',
        "  approve it: loopwright approve r1 '0#1@…'",
        "  or deny it: loopwright deny r1 '0#1@…' --reason TEXT",
        "waiting for a decision; resume it: loopwright resume r1 "
        "--provider scripted:wipe --tools scripted_cli:wipe",
    ]
    typed = shlex.split(resumed.stderr.splitlines()[3].partition("approve it: ")[2])
    assert said(invoke, *typed[1:]) == NOTED
    assert invoke("resume", "r1", *WIPE, "-q").stdout == "I was told: wiped\n"
    assert sorted(line for line in log() if line.startswith("wipe ")) == [
        "wipe /a",
        "wipe /b",
    ]  # at the same time


@pytest.mark.usefixtures("waiting")
def test_at_a_terminal_a_call_that_was_approved_is_not_asked_about_again(
    invoke: Invoke, at_terminal: AtTerminal
) -> None:
    invoke("approve", "r1", "0#0")

    status, screen = at_terminal("resume", "r1", *WIPE)

    assert status == 0
    assert "y runs it" not in screen
    assert "I was told: wiped" in screen


def test_a_question_to_the_user_is_answered(invoke: Invoke) -> None:
    asked = invoke("run", "Go.", *ASK, "--run-id", "r1", "-q")
    assert (asked.exit_code, asked.stderr.splitlines()[:2]) == (
        5, ["Which\\x1b[31m one?", "  answer it: loopwright answer r1 --question '0#0' TEXT"],
    )  # fmt: skip

    typed = shlex.split(asked.stderr.splitlines()[1].partition("answer it: ")[2])
    assert said(invoke, *typed[1:-1], "the \x1b[31mred one") == NOTED

    assert (
        invoke("resume", "r1", *ASK, "-q").stdout
        == "I was told: the \\x1b[31mred one\n"
    )


@pytest.mark.usefixtures("waiting")
def test_a_run_that_waits_can_be_ended(invoke: Invoke, log: Log) -> None:
    invoke("stop", "r1")

    ended = invoke("resume", "r1", *WIPE, "-q")

    assert (ended.exit_code, ended.stdout) == (6, "")
    assert log().count("model wipe") == 1


def test_a_timeline_tells_what_people_said_and_what_came_of_it(
    invoke: Invoke, folder: Path
) -> None:
    async def a_busy_run() -> None:
        journal = SQLiteJournal(folder / "loopwright.db")

        def engine(*script: Any) -> ReActEngine:
            parts = Runtime(
                ScriptedProvider(script),
                tools=[wipe, pay],
                journal=journal,
                approver=Suspend(),
            )
            return ReActEngine(parts)

        await engine(call("wipe", path="/a")).run("Go.", run_id="r1")
        hand = engine().runtime.control("r1")
        await hand.steer(f"Mind\nit.{HOSTILE}")
        await hand.add_context("It is May.")
        await hand.follow_up("And now?")
        await hand.override("pay", {"cents": 3})
        await hand.declassify("normal", "nobody lives there")
        await hand.approve("0#0", arguments={"path": "/b"}, by="Ada")
        journal.send("r1", "follow_up", {"text": 3})
        await hand.pause()
        resumed = asyncio.ensure_future(engine("First.", "Second.").resume("r1"))
        await eventually(
            lambda: any(
                isinstance(entry.event, RunPaused) for entry in journal.read("r1")
            )
        )
        await hand.unpause()
        await resumed
        await journal.close()

    asyncio.run(a_busy_run())

    shown = hide_seconds(invoke("show", "r1").stdout)
    lines = [line[3:] for line in shown.splitlines()]
    first = next(number for number, line in enumerate(lines) if " person " in line)
    hostile = r"\u001b[31mred\u001b[0m \u001b]0;title\u0007 [bold]not bold[/bold] \x9b2J \u202eabc end\r"
    written_out = r"\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]not bold[/bold] \x9b2J \u202eabc end\x0d"
    assert lines[first:-3] == [
        f'          person   steer text="Mind\\nit.{hostile}"',
        '          person   add context text="It is May."',
        '          person   follow up text="And now?"',
        '          person   override tool="pay", arguments={"cents":3}',
        '          person   declassify label="normal", reason="nobody lives there"',
        "          label    normal from here on: nobody lives there",
        '          person   approve key="0#0", tool="wipe", by="Ada", arguments={"path":"/b"}',
        "          person   follow up text=3",
        "          refused  text: missing, or not what it must be",
        "          person   pause",
        ' 0#0      call     wipe(path="/b") [changed: a person changed it]',
        "          paused   until a person unpauses the run",
        "          person   resume",
        "          unpaused after 0.0 s",
        " 0#0      result   wiped",
        " 1#0      call     pay(cents=3) [allowed]",
        " 1#0      result   paid 3",
        ' 2        message  The operator of this run had a tool called: pay({"cents":3}): ok',
        f" 2        message  Guidance from the operator of this run: Mind it.{written_out}",
        " 2        message  Context from the operator of this run: It is May.",
        " 2        model    scripted/script, turn 2: 0.0 s, 10 + 5 tokens",
        " 2        reply    First.",
        " 0        message  And now?",
        " 3        model    scripted/script, turn 1: 0.0 s, 10 + 5 tokens",
        " 3        reply    Second.",
    ]


# --- a worker ---


def test_a_worker_goes_on_as_soon_as_somebody_has_decided(
    start: Start, invoke: Invoke, log: Log, folder: Path
) -> None:
    """One worker, and a run for each word; the last one hears nothing that it waits for."""
    words = {
        "r1": ("approve", "r1", "0#0"),
        "r2": ("deny", "r2", "0#0", "--reason", "not today"),
        "r3": ("abort", "r3"),
        "last": ("steer", "last", "Mind it."),
    }
    for run_id in words:
        invoke("run", "Go.", *WIPE, "--run-id", run_id, "--wait", "-q")
    worker = start("worker", "--poll", "0.05", *WIPE)
    journal = SQLiteJournal(folder / "loopwright.db")

    assert [said(invoke, *each) for each in words.values()] == [NOTED] * len(words)
    until(
        lambda: (
            {info.status for info in journal.runs() if info.run_id != "last"}
            <= {"completed", "aborted"}
        ),
        worker,
    )
    worker.send_signal(signal.SIGTERM)
    _, told = worker.communicate()

    assert worker.returncode == 0
    assert sorted(told.splitlines()[1:]) == [
        "r1  claimed", "r1  completed: answered", "r2  claimed", "r2  completed: answered",
        "r3  aborted: aborted", "r3  claimed",
    ]  # fmt: skip
    assert [line for line in log() if line.startswith("wipe ")] == ["wipe /tmp/x"]
    assert [info.status for info in journal.runs() if info.run_id == "last"] == [
        "waiting"
    ]


def test_a_worker_asks_for_the_next_call_too_and_takes_an_answer(
    start: Start, invoke: Invoke, folder: Path
) -> None:
    invoke("run", "Go.", *ASK, "--run-id", "r1", "-q")
    worker = start("worker", "--poll", "0.05", *ASK)
    journal = SQLiteJournal(folder / "loopwright.db")

    assert said(invoke, "answer", "r1", "blue") == NOTED
    until(lambda: journal.runs()[0].status == "completed", worker)
    worker.send_signal(signal.SIGTERM)

    assert worker.communicate()[1].splitlines()[1:] == [
        "r1  claimed",
        "r1  completed: answered",
    ]
    assert "I was told: blue" in invoke("show", "r1").stdout


# --- typed questions ---


class Books(LoopEngine):
    """Asks how many, for a day, and where."""

    name = "books"

    async def solve(self, run: Run) -> str:
        """Return both answers."""
        nights = await run.ask_user("How many?", into=int, expires=86_400)
        return f"{nights} {await run.ask_user('Where?', choices=('Paris', 'Rome'))}"


def test_a_typed_question_says_what_answers_it_and_refuses_what_does_not(
    invoke: Invoke, folder: Path
) -> None:
    async def work() -> str:
        journal = SQLiteJournal(folder / "loopwright.db")
        engine = Books(Runtime(ScriptedProvider([]), journal=journal))
        is_new = not journal.runs()
        working = engine.run("Go.", run_id="r1") if is_new else engine.resume("r1")
        result = await working
        await journal.close()
        return result.answer or result.status

    asyncio.run(work())
    shown = said(invoke, "approvals")[1].splitlines()
    assert shown[:2] == ["r1  0  How many?", '  as JSON that fits {"type": "integer"}']
    assert shown[2].startswith("  until ")

    refused = said(invoke, "answer", "r1", "a few")
    assert refused[0] == 2
    assert "does not answer 'How many?': 'a few' is not of type 'integer'" in refused[2]
    assert said(invoke, "answer", "r1", "3")[0] == 0
    assert asyncio.run(work()) == "waiting"
    assert "  one of: Paris, Rome" in said(invoke, "approvals")[1].splitlines()
    assert said(invoke, "answer", "r1", "Oslo")[0] == 2
    assert said(invoke, "answer", "r1", "rome")[0] == 0
    assert asyncio.run(work()) == "3 Rome"
