"""`runs`, `show`, `resume`, `fork` and `verify`: what a journal tells, and going on from it."""

import asyncio
import contextlib
import dataclasses
import json
import re
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from journal_entries import header, write
from loopwright import ChainOfThoughtEngine, PlanExecuteEngine, ReActEngine, Runtime
from loopwright.journals import SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider, call
from loopwright.testing.contracts.entries import AWAY, another_machine

from .scripted_cli import both, capital
from .using import Invoke, hide_seconds

CAPITAL = (
    "run",
    "What is the capital of France?",
    "--provider",
    "scripted:capital",
    "--tools",
    "scripted_cli:capital",
)
AGAIN = ("--provider", "scripted:capital", "--tools", "scripted_cli:capital", "-q")


@pytest.fixture
def three_runs(invoke: Invoke) -> None:
    """r1 completed, r2 failed, r3 waiting."""
    invoke(*CAPITAL, "--run-id", "r1")
    invoke("run", "Go.", "--provider", "scripted:fails", "--run-id", "r2")
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    invoke("run", "Go.", *wipe, "--run-id", "r3", "--wait")


def entries(invoke: Invoke, run_id: str) -> list[str]:
    return [
        json.loads(line)["kind"]
        for line in invoke("show", run_id, "--json").stdout.splitlines()
    ]


@pytest.mark.usefixtures("three_runs")
def test_runs_of_versions_that_are_not_served_are_marked(invoke: Invoke) -> None:
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    invoke("run", "Go.", *wipe, "--run-id", "r4", "--wait", "--app-version", "1")

    def missing(*words: str) -> dict[str, str]:
        rows = map(json.loads, invoke("runs", "--json", *words).stdout.splitlines())
        return {row["run_id"]: row["missing"] for row in rows if row["missing"]}

    assert missing() == {}
    assert missing("--app-version", "2") == {"r3": "version", "r4": "version"}
    assert missing("--app-version", "2", "--accepts", "1") == {"r3": "version"}
    shown = invoke("runs", "--app-version", "2", "--status", "waiting").stdout
    assert "waiting, version 1 not served" in shown
    assert "waiting, version unnamed not served" in shown
    refused = invoke("runs", "--accepts", "1")
    assert (refused.exit_code, "accepts: a worker without" in refused.stderr) == (
        2,
        True,
    )


@pytest.mark.usefixtures("three_runs")
def test_runs_are_listed_newest_first(invoke: Invoke) -> None:
    done = invoke("runs")

    heading, *rows = (line.split() for line in done.stdout.splitlines())
    assert heading == ["run", "engine", "status", "created", "entries", "parent"]
    assert [(row[0], row[1], row[2], row[5]) for row in rows] == [
        ("r3", "react", "waiting", "5"), ("r2", "react", "failed", "4"), ("r1", "react", "completed", "9"),
    ]  # fmt: skip
    assert {
        datetime.fromisoformat(f"{row[3]} {row[4]}").year > 2000 for row in rows
    } == {True}


@pytest.mark.usefixtures("three_runs")
def test_runs_can_be_chosen_by_status_and_told_as_json(invoke: Invoke) -> None:
    done = invoke("runs", "--status", "waiting", "--json")

    (told,) = map(json.loads, done.stdout.splitlines())
    assert told.pop("created") > 0
    assert len(told.pop("head_hash")) == 64
    assert told.pop("version")
    assert told == {
        "run_id": "r3", "engine": "react", "status": "waiting", "entries": 5, "parent_run": None, "fork_seq": None,
        "orphaned": False, "installed": True, "missing": "", "lease_until": None, "app_version": "", "tags": {},
        "thread": "", "agent": "", "wake_at": 0.0, "damage": "",
    }  # fmt: skip


def test_a_journal_that_is_not_there_has_no_runs_and_is_not_made(
    invoke: Invoke, folder: Path
) -> None:
    done = invoke("runs")
    waiting = invoke("runs", "--status", "waiting", "--journal", "my.db")

    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        "",
        "no runs in loopwright.db\n",
    )
    assert waiting.stderr == "no waiting runs in my.db\n"
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("three_runs")
def test_a_run_is_shown_as_a_timeline_with_numbers_to_fork_at(invoke: Invoke) -> None:
    assert hide_seconds(invoke("show", "r1").stdout).splitlines() == [
        "1           run      r1",
        "1           engine   react",
        "1           task     What is the capital of France?",
        "3  0        model    scripted/capital, turn 1: 0.0 s, about 51 + 10 tokens",
        "3  0        thought  Let me see.",
        '4  0#0      call     capital(country="France") [allowed]',
        "6  0#0      result   Paris",
        "8  1        model    scripted/capital, turn 2: 0.0 s, 10 + 5 tokens",
        "8  1        reply    It is Paris.",
        "9           answer   It is Paris.",
        "9           end      completed: answered",
        "9           usage    2 model calls, 1 tool call, about 61 + 15 tokens",
    ]
    shown = invoke("show", "r3").stdout.splitlines()
    assert shown.pop(-3).startswith("  until 20")
    assert [line.partition("@")[0] for line in shown[-7:]] == [
        '4  0#0      call     wipe(path="/tmp/x") [asks: wipe is destructive: run it?]',
        "5           question wipe is destructive: run it?",
        "5           end      suspended: waiting",
        "wipe is destructive: run it?",
        '  wipe({"path":"/tmp/x"})',
        "  approve it: loopwright approve r3 '0#0",
        "  or deny it: loopwright deny r3 '0#0",
    ]


@pytest.mark.usefixtures("three_runs")
def test_every_entry_is_told_as_json(invoke: Invoke, folder: Path) -> None:
    lines = [
        json.loads(line) for line in invoke("show", "r1", "--json").stdout.splitlines()
    ]

    kept = SQLiteJournal(folder / "loopwright.db").read("r1")
    assert lines == [
        {
            "seq": e.seq,
            "key": e.key,
            "kind": e.kind,
            "at": e.at,
            "event": json.loads(e.body),
        }
        for e in kept
    ]


def test_long_texts_are_cut_unless_all_is_asked_for(invoke: Invoke) -> None:
    question = "A long line. " * 40 + "\nThe end."
    invoke("run", question, "--provider", "scripted:hello", "--run-id", "r1", "-q")

    short = [
        line for line in invoke("show", "r1").stdout.splitlines() if "task" in line
    ]
    whole = invoke("show", "r1", "--full").stdout
    assert [(len(line), line[-1]) for line in short] == [(240, "…")]
    assert "A long line. \n" + " " * 21 + "The end.\n" in whole


async def in_journal(folder: Path) -> None:
    """r-plan has a child and a fact, r-vote branches, r-bad a call that cannot be."""
    journal = SQLiteJournal(folder / "loopwright.db")
    plan = '1. capital("France")\n2. Say something about $1\njoin()'
    runtime = Runtime(
        ScriptedProvider([plan, "It is big.", "Paris is big."]),
        tools=both,
        journal=journal,
    )
    await PlanExecuteEngine(runtime).run("Capital?", run_id="r-plan")
    runtime = Runtime(ScriptedProvider(lambda _: "The answer is 4."), journal=journal)
    await ChainOfThoughtEngine(runtime, samples=2).run("2 + 2?", run_id="r-vote")
    bad = ScriptedProvider(
        [
            [call("capitol", country="France"), call("capital", land="France")],
            "I cannot say.",
        ]
    )
    await ReActEngine(Runtime(bad, tools=[capital], journal=journal)).run(
        "Capital?", run_id="r-bad"
    )
    await journal.close()


def test_children_branches_facts_and_refusals_are_shown_in_their_places(
    invoke: Invoke, folder: Path
) -> None:
    asyncio.run(in_journal(folder))
    plan = invoke("show", "r-plan").stdout.splitlines()
    vote = hide_seconds(invoke("show", "r-vote").stdout).splitlines()
    bad = invoke("show", "r-bad").stdout.splitlines()

    assert [line[4:] for line in plan if line.split()[1].startswith("1.")] == [
        '1.0.0#0      call     capital(country="France") [allowed]',
        "1.0.0#0      result   Paris",
        "1.0        branch   0 has ended",
        "1.1.0#0      gate     delegate [allowed]",
        "1.1.0        child    react starts",
        "1.1.0.0        model    scripted/script, turn 1: 0.0 s, 10 + 5 tokens",
        "1.1.0.0        reply    It is big.",
        "1.1.0        child    react ended, completed: answered: It is big.",
        "1.1        branch   1 has ended",
    ]
    assert next(line for line in plan if " fact " in line).startswith(
        ' 4  0        fact     Plan {"steps":[{"id":1,'
    )
    assert [line[3:] for line in vote if " fact " in line or " reply " in line] == [
        "0.0.0        reply    The answer is 4.",
        "0.1.0        reply    The answer is 4.",
        '0        fact     Vote {"counts":{"4.":2},"winner":"4.","agreement":1.0,"samples":2,"asked":2}',
    ]
    refused = [line for line in bad if " call " in line or " result " in line]
    assert [line.partition("[")[2][:7] for line in refused] == ["invalid", "invalid"]


def test_a_run_that_is_not_there_is_2(invoke: Invoke, folder: Path) -> None:
    missing = f"error: no run 'r9' in journal '{folder / 'loopwright.db'}'\n"
    for command in (
        ("show", "r9"),
        ("verify", "r9"),
        ("fork", "r9", "--at", "1"),
        ("resume", "r9", *AGAIN),
    ):
        done = invoke(*command)
        assert (done.exit_code, done.stderr) == (2, missing), command


# --- going on ---


def test_a_fork_goes_on_from_the_entry_that_was_named(
    invoke: Invoke, log: Callable[[], list[str]]
) -> None:
    invoke(*CAPITAL, "--run-id", "r1")
    before = len(log())

    forked = invoke("fork", "r1", "--at", "6", "--new-id", "f1")
    assert (forked.exit_code, forked.stdout) == (0, "f1\n")
    assert forked.stderr == "resume it: loopwright resume f1 --provider ...\n"
    assert invoke("resume", "f1", *AGAIN).stdout == "It is Paris.\n"
    assert log()[before:] == ["model capital"]  # the tool's result is recorded
    assert entries(invoke, "f1")[6:8] == ["run_forked", "run_resumed"]
    assert invoke("runs").stdout.splitlines()[1].endswith("r1 at 6")


@pytest.mark.parametrize("at", ["0", "9", "99"])
def test_a_fork_at_an_entry_that_is_not_there_is_2(invoke: Invoke, at: str) -> None:
    invoke(*CAPITAL, "--run-id", "r1")

    done = invoke("fork", "r1", "--at", at)

    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"error: at: run 'r1' can be forked after its entries 1 to 8, got {at}\n"
    )


@pytest.mark.parametrize("new_id", ["-x", "not an id \x1b[31m", "$(reboot)"])
def test_a_fork_s_id_is_a_plain_one(invoke: Invoke, new_id: str) -> None:
    invoke(*CAPITAL, "--run-id", "r1")

    done = invoke("fork", "r1", "--at", "6", "--new-id", new_id)

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: run_id {new_id!r}: use letters")


def test_the_command_that_goes_on_with_a_fork_is_quoted_and_cleaned(
    invoke: Invoke,
) -> None:
    journal = ("--journal", "my \x1b[31mruns; ls.db")
    invoke(*CAPITAL, "--run-id", "r1", *journal)

    forked = invoke("fork", "r1", "--at", "6", "--new-id", "f1", *journal)

    assert forked.stderr == (
        "resume it: loopwright resume f1 --journal 'my \\x1b[31mruns; ls.db' --provider ...\n"
    )


def test_resuming_tells_calls_with_the_arguments_that_were_recorded_before(
    invoke: Invoke,
) -> None:
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    invoke("run", "Go.", *wipe, "--run-id", "r1", "--wait")

    done = invoke("resume", "r1", *wipe, "--yes")

    assert (done.exit_code, done.stdout) == (0, "I was told: wiped\n")
    assert [line[9:] for line in hide_seconds(done.stderr).splitlines()][1:4] == [
        'call     wipe(path="/tmp/x") [allowed]',
        "result   wiped",
        "model    scripted/wipe, turn 2: 0.0 s, 10 + 5 tokens",
    ]


def test_a_finished_run_gives_its_recorded_result(
    invoke: Invoke, log: Callable[[], list[str]]
) -> None:
    first = invoke(*CAPITAL, "--run-id", "r1", "--json")
    before = log()

    again = invoke("resume", "r1", *AGAIN, "--json")

    assert again.exit_code == 0
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert log() == before


@pytest.mark.parametrize("given", [(), ("--output", "scripted_cli:City")])
def test_a_finished_run_s_output_is_printed_as_it_is_recorded(
    invoke: Invoke, given: tuple[str, ...]
) -> None:
    city = ("--provider", "scripted:city", "-q")
    first = invoke(
        "run", "Which?", *city, "--output", "scripted_cli:City", "--run-id", "r1"
    )

    again = invoke("resume", "r1", *city, *given)
    told = invoke("resume", "r1", *city, *given, "--json")

    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert (told.exit_code, json.loads(told.stdout)["output"]) == (0, {"name": "Paris"})


def test_limits_and_options_are_those_of_the_run_unless_given(invoke: Invoke) -> None:
    invoke(
        "run",
        "Go.",
        *AGAIN,
        "--run-id",
        "r1",
        "--max-llm-calls",
        "7",
        "-o",
        "max_iterations=3",
    )
    invoke("fork", "r1", "--at", "6", "--new-id", "kept")
    invoke("fork", "r1", "--at", "6", "--new-id", "given")

    invoke("resume", "kept", *AGAIN)
    changed = invoke("resume", "given", *AGAIN, "--max-llm-calls", "1", "--json")

    assert "drift" not in " ".join(entries(invoke, "kept"))
    assert json.loads(changed.stdout)["stop_reason"] == "max_llm_calls"


def test_an_option_that_is_code_must_be_given_again(invoke: Invoke) -> None:
    code = ("-o", "evaluator=@scripted_cli:is_paris")
    invoke(*CAPITAL, "--run-id", "r1", "-e", "reflexion", *code)
    invoke("fork", "r1", "--at", "7", "--new-id", "f1")

    without = invoke("resume", "f1", *AGAIN)
    given = invoke("resume", "f1", *AGAIN, *code)

    assert without.exit_code == 2
    assert without.stderr.endswith(
        "pass it again: --option evaluator=@package.module:object\n"
    )
    assert (given.exit_code, given.stdout) == (0, "It is Paris.\n")


def test_another_engine_than_the_run_s_is_refused(invoke: Invoke) -> None:
    invoke(*CAPITAL, "--run-id", "r1")
    invoke("fork", "r1", "--at", "3", "--new-id", "f1")

    done = invoke("resume", "f1", *AGAIN, "--engine", "self-ask")

    assert (done.exit_code, done.stdout) == (2, "")


# --- verify ---


@pytest.mark.usefixtures("three_runs")
def test_whole_runs_verify(invoke: Invoke) -> None:
    done = invoke("verify", "--all")
    head = json.loads(invoke("runs", "--json").stdout.splitlines()[0])["head_hash"]

    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == f"r3: 5 entries, intact; head {head}"
    assert invoke("verify", "r3", "--head", head).exit_code == 0


@pytest.mark.usefixtures("three_runs")
def test_a_changed_entry_is_1_and_named_and_the_other_runs_are_still_checked(
    invoke: Invoke, folder: Path
) -> None:
    with (
        contextlib.closing(sqlite3.connect(folder / "loopwright.db")) as database,
        database,
    ):
        database.execute(
            "UPDATE events SET at = at + 1 WHERE run_id = 'r2' AND seq = 2"
        )
    database.close()

    every = invoke("verify", "--all")

    assert every.exit_code == 1
    assert [line.partition(":")[2][:11] for line in every.stdout.splitlines()] == [
        " 5 entries,", " damaged at", " 9 entries,",
    ]  # fmt: skip
    assert (
        invoke("verify", "r2").stdout == "r2: damaged at entry 2: entry 2 was changed\n"
    )
    assert (invoke("verify", "r2").exit_code, invoke("verify", "r1").exit_code) == (
        1,
        0,
    )


@pytest.mark.usefixtures("three_runs")
def test_a_head_that_is_not_the_end_is_1(invoke: Invoke) -> None:
    done = invoke("verify", "r1", "--head", "0" * 64)

    assert done.exit_code == 1
    assert "does not end in the head hash" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("r1", "--all"), ("--all", "--head", "00")])
def test_verify_wants_one_run_or_all(
    invoke: Invoke, arguments: tuple[str, ...]
) -> None:
    done = invoke("verify", *arguments)

    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")


def test_a_run_of_another_machine_is_shown_with_the_end_that_its_clock_says(
    invoke: Invoke, folder: Path
) -> None:
    async def begin() -> None:
        journal = SQLiteJournal(folder / "loopwright.db", clock=FakeClock())
        with another_machine():
            claim = journal.create(dataclasses.replace(header(owner=AWAY), lease=60))
            await write(journal, claim, b"{}")
        await journal.close()

    asyncio.run(begin())

    shown = r"running \(leased to another machine until .* by its clock\)"
    assert re.search(rf"^r1 +react +{shown}", invoke("runs").stdout, re.M)
    assert json.loads(invoke("runs", "--json").stdout)["orphaned"] is False
