"""`worker` and `resolve`: runs that were left are taken up, once, under their limits, and told what they wait for."""

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loopwright.clock import SystemClock
from loopwright.events import ToolFinished
from loopwright.journals import SQLiteJournal
from loopwright.testing.truncated_journal import NO_PROCESS

from .using import Invoke, Process, Start

SLOW = ("--provider", "scripted:slow", "--tools", "scripted_cli:slow")
PAY = ("--provider", "scripted:pay", "--tools", "scripted_cli:pay")
DOOR = ("--provider", "scripted:door", "--tools", "scripted_cli:door")
STUBBORN = '''\
import time
from scripted_cli import log
from loopwright import tool

@tool(effect="read")
def slow(seconds: float) -> str:
    """Take long, in a thread."""
    log("slow")
    time.sleep(600)
    return "late"
'''
Log = Callable[[], list[str]]
EXPIRED = 20.0
"""A lease, in seconds, that is over once a clock which is `Behind` gave it."""


class Behind(SystemClock):
    """Shows what the clocks of this machine showed half a minute before."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start."""
        return time.monotonic() - 30.0

    def boot(self) -> float:
        """Return seconds since the machine was started."""
        return SystemClock.boot() - 30.0

    def wall(self) -> float:
        """Return seconds since the Unix epoch."""
        return time.time() - 30.0


def until(happened: Callable[[], bool], *processes: Process) -> None:
    """Wait for something that processes do."""
    end = time.monotonic() + 60
    while not happened():
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def quick() -> dict[str, str]:
    return {**os.environ, "SCRIPTED_SECONDS": "0"}


def long() -> dict[str, str]:
    return {**os.environ, "SCRIPTED_SECONDS": "600"}


def statuses(folder: Path) -> dict[str, str]:
    return {
        info.run_id: info.status
        for info in SQLiteJournal(folder / "loopwright.db").runs()
    }


def killed(
    start: Start, log: Log, *arguments: str, run_id: str = "r1", begun: str
) -> None:
    """A run whose process was killed while its tool was at work."""
    before = log().count(begun)
    process = start("run", "Go.", *arguments, "--run-id", run_id, "-q", env=long())
    until(lambda: log().count(begun) > before, process)
    process.kill()
    process.communicate()


# --- worker ---


@pytest.mark.faults
def test_a_run_whose_process_was_killed_is_taken_up_and_told(
    start: Start, invoke: Invoke, log: Log
) -> None:
    killed(start, log, *SLOW, begun="slow")
    assert "running (its process is gone)" in invoke("runs").stdout

    worker = start("worker", "--once", *SLOW, env=quick())
    printed, told = worker.communicate()

    assert (worker.returncode, printed) == (0, "r1\tcompleted\n")
    assert told.splitlines() == [
        "loopwright.db  claiming the runs that can be resumed",
        "r1  claimed",
        "r1  completed: answered",
    ]
    assert log().count("model slow") == 2  # the first reply is recorded
    again = start("worker", "--once", *SLOW, "-q")
    assert (again.communicate(), again.returncode) == (("", ""), 0)


@pytest.mark.faults
def test_json_is_the_whole_result_of_each_run(start: Start, log: Log) -> None:
    killed(start, log, *SLOW, begun="slow")

    printed, _ = start("worker", "--once", "--json", *SLOW, env=quick()).communicate()

    (told,) = map(json.loads, printed.splitlines())
    assert (told["run_id"], told["answer"]) == ("r1", "done")


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_and_releases_its_runs(
    start: Start, invoke: Invoke, log: Log, folder: Path, number: signal.Signals
) -> None:
    killed(start, log, *SLOW, begun="slow")
    worker = start("worker", "--poll", "0.05", *SLOW, env=long())
    until(lambda: log().count("slow") == 2, worker)
    assert re.search(
        r"^r1 +react +running \(leased for \d+ s\)", invoke("runs").stdout, re.M
    )

    worker.send_signal(number)
    _, told = worker.communicate()

    assert worker.returncode == 0
    assert told.splitlines() == [
        "loopwright.db  claiming runs that can be resumed; Ctrl-C or SIGTERM releases them",
        "r1  claimed",
        "r1  suspended: released",
    ]
    assert statuses(folder) == {"r1": "released"}
    assert "released (to a worker)" in invoke("runs", "--status", "released").stdout
    assert (
        start("worker", "--once", *SLOW, "-q", env=quick()).communicate()[0]
        == "r1\tcompleted\n"
    )


@pytest.mark.faults
def test_two_workers_share_one_file_and_take_over_from_a_killed_third(
    start: Start, log: Log, folder: Path
) -> None:
    names = [f"r{number}" for number in range(3)]
    for name in names:
        killed(start, log, *SLOW, run_id=name, begun="slow")
    third = start("worker", "--poll", "0.05", *SLOW, "-q", env=long())
    until(lambda: log().count("slow") == 6, third)
    third.kill()
    third.communicate()

    workers = [
        start(
            "worker",
            "--poll",
            "0.05",
            *SLOW,
            env={**quick(), "SCRIPTED_SECONDS": "0.3"},
        )
        for _ in "ab"
    ]
    until(lambda: set(statuses(folder).values()) == {"completed"}, *workers)
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    told = [worker.communicate()[1] for worker in workers]

    taken = [
        line.split()[0]
        for lines in told
        for line in lines.splitlines()
        if line.endswith("claimed")
    ]
    assert sorted(taken) == names  # each once
    journal = SQLiteJournal(folder / "loopwright.db")
    assert [journal.verify(name).ok for name in names] == [True] * 3


@pytest.mark.faults
def test_a_run_that_ctrl_c_suspended_is_left_to_the_person(
    start: Start, log: Log, folder: Path
) -> None:
    process = start("run", "Go.", *SLOW, "--run-id", "r1", "-q", env=long())
    until(lambda: "slow" in log(), process)
    process.send_signal(signal.SIGINT)
    process.communicate()

    assert start("worker", "--once", *SLOW, env=quick()).communicate()[0] == ""
    assert statuses(folder) == {"r1": "suspended"}


@pytest.mark.faults
def test_a_run_keeps_the_limits_and_options_that_it_was_started_with(
    start: Start, log: Log
) -> None:
    chatty = ("--provider", "scripted:slow", "--tools", "scripted_cli:slow")
    killed(
        start,
        log,
        *chatty,
        "--max-llm-calls",
        "1",
        "-o",
        "max_iterations=3",
        begun="slow",
    )
    killed(start, log, *chatty, run_id="r2", begun="slow")

    printed, _ = start("worker", "--once", *chatty, env=quick()).communicate()

    assert sorted(printed.splitlines()) == ["r1\tlimit", "r2\tcompleted"]
    listed, _ = start("show", "r1", "--json").communicate()
    assert "drift_noticed" not in [
        json.loads(line)["kind"] for line in listed.splitlines()
    ]


@pytest.mark.faults
def test_an_option_that_is_code_is_given_to_the_worker_and_a_run_without_it_is_left(
    start: Start, log: Log, folder: Path
) -> None:
    code = ("-o", "evaluator=@scripted_cli:is_paris")
    killed(start, log, *SLOW, "-e", "reflexion", *code, begun="slow")

    _, told = start("worker", "--once", *SLOW, env=quick()).communicate()
    assert "pass it again: --option evaluator=@package.module:object" in told
    assert statuses(folder) == {"r1": "running"}

    again = ("worker", "--once", *SLOW, *code, "-q")
    assert start(*again, env=quick()).communicate()[0].startswith("r1\t")


@pytest.mark.faults
def test_a_call_that_needs_a_yes_waits_for_a_person(
    start: Start, log: Log, folder: Path
) -> None:
    wipe = (
        "--provider",
        "scripted:slow_wipe",
        "--tools",
        "scripted_cli:slow",
        "--tools",
        "scripted_cli:wipe",
    )
    killed(start, log, *wipe, begun="slow")

    assert (
        start("worker", "--once", *wipe, "-q", env=quick()).communicate()[0]
        == "r1\twaiting\n"
    )
    assert start("worker", "--once", *wipe, "-q", env=quick()).communicate()[0] == ""
    assert statuses(folder) == {"r1": "waiting"}
    assert "wipe /tmp/x" not in log()
    assert (
        start("resume", "r1", *wipe, "-q", "--yes").communicate()[0]
        == "I was told: wiped\n"
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ("--journal", "memory"),
            "--journal: a worker needs a journal that outlives the processes",
        ),
        (("--lease", "0"), "lease: must be seconds above 0"),
        (("--max-concurrency", "0"), "max_concurrency: must be at least 1"),
        (("--poll", "0"), "poll: must be seconds above 0"),
        (("--provider", "nobody:x"), "provider"),
    ],
)
def test_a_worker_that_cannot_be_is_2(
    invoke: Invoke, options: tuple[str, ...], complaint: str
) -> None:
    done = invoke("worker", "--once", *SLOW, *options)

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert complaint in done.stderr


def test_a_journal_that_is_not_there_has_nothing_to_take_up_and_is_not_made(
    invoke: Invoke, folder: Path
) -> None:
    done = invoke("worker", "--once", *SLOW, "-q")

    assert (done.exit_code, done.output, list(folder.iterdir())) == (0, "", [])


@pytest.mark.parametrize(
    ("owner", "lease", "told", "orphaned"),
    [
        ("elsewhere|1||x", 60.0, r"running \(leased for (60|[1-5]\d) s\)", False),
        ("elsewhere|1||x", EXPIRED, r"running \(its lease has expired\)", True),
        ("elsewhere|1||x", None, r"running  ", False),
        (
            f"{socket.gethostname()}|{NO_PROCESS}||x",
            None,
            r"running \(its process is gone\)",
            True,
        ),
    ],
)
def test_runs_says_in_words_whether_somebody_is_at_work(
    invoke: Invoke,
    folder: Path,
    owner: str,
    lease: float | None,
    told: str,
    orphaned: bool,
) -> None:
    invoke(
        "run",
        "Go.",
        "--provider",
        "scripted:wipe",
        "--tools",
        "scripted_cli:wipe",
        "--run-id",
        "r1",
        "--wait",
    )

    async def claim() -> None:
        clock = Behind() if lease == EXPIRED else SystemClock()
        journal = SQLiteJournal(folder / "loopwright.db", clock=clock)
        claimed = await journal.claim("r1", owner, take_over=True, lease=lease)
        journal.append(claimed, [], status="running")
        await journal.barrier(claimed)
        await journal.close()

    asyncio.run(claim())

    assert re.search(rf"^r1 +react +{told}", invoke("runs").stdout, re.M)
    (as_json,) = map(
        json.loads, invoke("runs", "--status", "running", "--json").stdout.splitlines()
    )
    assert (as_json["orphaned"], as_json["lease_until"] is None) == (
        orphaned,
        lease is None,
    )


@pytest.mark.faults
def test_a_second_signal_ends_a_worker_at_once(
    start: Start, log: Log, folder: Path
) -> None:
    """A tool in a thread that cannot be stopped does not keep the process."""
    (folder / "stubborn.py").write_text(STUBBORN)
    stubborn = ("--provider", "scripted:slow", "--tools", "stubborn:slow")
    killed(start, log, *stubborn, begun="slow")
    worker = start("worker", "--poll", "0.05", *stubborn, "-q", env=long())
    until(lambda: log().count("slow") == 2, worker)

    worker.send_signal(signal.SIGTERM)
    until(lambda: statuses(folder) == {"r1": "released"}, worker)
    assert worker.poll() is None
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == -signal.SIGTERM


# --- resolve ---


def in_doubt(start: Start, log: Log, *options: str) -> str:
    """A run that waits for a word about its payment; gives what its resumption said on standard error."""
    killed(start, log, *PAY, *options, begun="pay")
    resumed = start(
        "resume", "r1", *PAY, "--on-unknown", "ask", "-q", *options, env=quick()
    )
    _, told = resumed.communicate()
    assert resumed.returncode == 5
    return told


@pytest.mark.faults
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--done", "paid at noon"), "I was told: paid at noon"),
        (("--not-done",), "I was told: paid 500"),
        (
            ("--unknown",),
            "I was told: This call was interrupted and it is not known whether it took effect.",
        ),
    ],
)
def test_a_person_says_what_came_of_a_call_and_the_run_goes_on(
    start: Start, log: Log, words: tuple[str, ...], answer: str
) -> None:
    told = in_doubt(start, log).splitlines()
    assert told.pop(1) == '  pay({"cents":500})'
    assert told == [
        "pay was interrupted: did it take effect?",
        "  resolve it: loopwright resolve r1 '0#0' --done TEXT, or --not-done, or --unknown",
        "waiting for a decision; resume it: loopwright resume r1 --provider scripted:pay "
        "--on-unknown ask --tools scripted_cli:pay",
    ]

    typed = shlex.split(told[1].partition("resolve it: ")[2].partition(" --done")[0])
    said = start(*typed[1:], *words)

    assert said.communicate() == (
        "",
        "queued; takes effect when the run is resumed, by you or by a worker\n",
    )
    go_on = shlex.split(told[2].partition("resume it: ")[2])
    printed, _ = start(*go_on[1:], "-q", env=quick()).communicate()
    assert printed.startswith(answer)
    assert log().count("pay") == 1 + (words == ("--not-done",))


@pytest.mark.faults
def test_a_worker_asks_and_takes_the_run_up_when_it_is_told(
    start: Start, log: Log, folder: Path
) -> None:
    killed(start, log, *PAY, "--journal", "my runs.db", begun="pay")
    worker = start(
        "worker",
        "--journal",
        "my runs.db",
        "--on-unknown",
        "ask",
        "--poll",
        "0.05",
        *PAY,
        "--json",
        env=quick(),
    )
    journal = SQLiteJournal(folder / "my runs.db")
    until(lambda: journal.runs()[0].status == "waiting", worker)

    said = start(
        "resolve",
        "r1",
        "0#0",
        "--done",
        "paid, says the bank",
        "--journal",
        "my runs.db",
    )
    assert said.wait() == 0
    until(lambda: journal.runs()[0].status == "completed", worker)
    worker.send_signal(signal.SIGTERM)
    _, told = worker.communicate()

    assert (
        "  resolve it: loopwright resolve r1 '0#0' --journal 'my runs.db' --done TEXT, or --not-done, or --unknown"
        in (told.splitlines())
    )
    assert told.splitlines()[-1] == "r1  completed: answered"
    assert log().count("pay") == 1


def test_show_ends_with_what_a_run_asks_and_a_failure_is_asked_about_too(
    invoke: Invoke,
) -> None:
    done = invoke("run", "Go.", *DOOR, "--run-id", "r1")

    assert done.exit_code == 5
    shown = invoke("show", "r1").stdout
    asked = "  resolve it: loopwright resolve r1 '0#0' --done TEXT, or --not-done, or --unknown"
    assert shown.splitlines()[-1] == asked
    assert asked in done.stderr.splitlines()
    assert [
        line.split()[2:4] for line in shown.splitlines() if " recovery " in line
    ] == [["recovery", "door:"]] * 2
    assert "; retry\n" in shown
    assert "; escalate\n" in shown
    assert not set(shown + done.stderr) & {"\x1b", "\x07", "\x9b", "\u202e"}

    invoke("resolve", "r1", "0#0", "--done", "I opened it \x1b[31m")
    again = invoke("resume", "r1", *DOOR)
    assert (
        again.stdout == "I was told: I opened it \n"
    )  # no model reads what a terminal would obey
    assert (
        "outcome  door: completed, according to a person: I opened it \\x1b[31m"
        in again.stderr
    )
    assert "say it" not in invoke("show", "r1").stdout


def test_the_line_to_type_is_quoted_and_cleaned(invoke: Invoke) -> None:
    journal = ("--journal", "my \x1b[31mruns; ls.db")
    done = invoke("run", "Go.", *DOOR, "--run-id", "r1", "-q", *journal)

    command = "loopwright resolve r1 '0#0' --journal 'my \\x1b[31mruns; ls.db'"
    line = f"  resolve it: {command} --done TEXT, or --not-done, or --unknown"
    assert line in done.stderr.splitlines()
    assert invoke("show", "r1", *journal).stdout.splitlines()[-1] == line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("r1", "0#0"),
            "resolution: pass exactly one of --done TEXT, --not-done and --unknown",
        ),
        (("r1", "0#0", "--done", "x", "--unknown"), "resolution: pass exactly one"),
        (("r1", "0#0", "--not-done", "--unknown"), "resolution: pass exactly one"),
        (("r9", "0#0", "--unknown"), "no run 'r9'"),
        (
            ("r1", "7#0", "--unknown"),
            "does not ask about the outcome of '7#0'; it asks about '0#0'",
        ),
        (
            ("r2", "0#0", "--unknown"),
            "does not ask about the outcome of '0#0'; it asks about no call",
        ),
        (
            ("r1", "\x1b[31m", "--unknown"),
            "does not ask about the outcome of '\\x1b[31m'",
        ),
    ],
)
def test_a_word_that_nobody_asked_for_is_2(
    invoke: Invoke, arguments: tuple[str, ...], complaint: str
) -> None:
    invoke("run", "Go.", *DOOR, "--run-id", "r1", "-q")
    invoke("run", "Go.", "--provider", "scripted:hello", "--run-id", "r2", "-q")

    done = invoke("resolve", *arguments)

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr
    assert SQLiteJournal("loopwright.db").inbox("r1") == []


# --- what was set aside or undone ---


def test_a_saga_is_undone_and_its_timeline_says_so(invoke: Invoke, log: Log) -> None:
    go = (
        "run",
        "Go.",
        "--provider",
        "scripted:book",
        "--tools",
        "scripted_cli:book",
        "--run-id",
        "r1",
    )
    done = invoke(*go, "--saga")

    assert done.exit_code == 1
    entries = SQLiteJournal("loopwright.db").read(
        "r1"
    )  # the two calls ran at the same time: this is how they ended
    last, first = reversed(
        [entry.key for entry in entries if isinstance(entry.event, ToolFinished)]
    )
    what = {"0#0": "hotel", "0#1": "car"}
    really = [line for line in log() if "book" in line and "model" not in line]
    assert sorted(really[:2]) == ["book car", "book hotel"]
    assert really[2:] == [f"unbook {what[last]}", f"unbook {what[first]}"]
    shown = [
        line.split(maxsplit=1)[1] for line in invoke("show", "r1").stdout.splitlines()
    ]
    begun = next(number for number, line in enumerate(shown) if line.startswith("undo"))
    assert shown[begun : begun + 5] == [
        "undo     failed: provider_error; 2 calls to undo",
        f'{last}      call     book:undo(what="{what[last]}") [allowed]',
        f"{last}      undone   book: ok: cancelled",
        f'{first}      call     book:undo(what="{what[first]}") [allowed]',
        f"{first}      undone   book: ok: cancelled",
    ]


def test_a_call_that_was_set_aside_is_told(invoke: Invoke) -> None:
    done = invoke(
        "run",
        "Go.",
        "--provider",
        "scripted:letter",
        "--tools",
        "scripted_cli:letter",
        "--run-id",
        "r1",
    )

    assert done.exit_code == 0
    assert [
        line[9:]
        for line in done.stderr.splitlines()
        if "recovery" in line or "dead letter " in line or "queue" in line
    ] == [
        "recovery letter: error: OSError: no stamps; dead letter",
        'dead letter letter(to="Ada") [default]: OSError: no stamps',
        "result   error: OSError: no stamps [The call was put in a queue for a person to handle later; "
        "do not make it again.]",
    ]
