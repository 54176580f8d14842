"""The command as a process: pipes that break, Ctrl-C, kill -9, terminals, and what it loads."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loopwright._internal.version import __version__

from .using import AtTerminal, Invoke, Process, Start

pytestmark = (
    pytest.mark.faults
)  # each starts processes, which are killed, cut off or left without a reader

CAPITAL = ("--provider", "scripted:capital", "--tools", "scripted_cli:capital")
SLOW = ("--provider", "scripted:slow", "--tools", "scripted_cli:slow")
CHATTY = (
    "--provider",
    "scripted:chatty",
    "--tools",
    "scripted_cli:capital",
    "--max-iterations",
    "1000000",
)
NO_LIMITS = (
    "--max-llm-calls",
    "1000000",
    "--max-tool-calls",
    "1000000",
    "--max-tokens",
    "100000000",
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def until(happened: Callable[[], bool], process: Process) -> None:
    """Wait for something that a process does; the test's own time-out ends a wait in vain."""
    while not happened():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def status(start: Start, run_id: str, journal: str = "loopwright.db") -> str:
    listed, _ = start("runs", "--json", "--journal", journal).communicate()
    return {
        told["run_id"]: told["status"] for told in map(json.loads, listed.splitlines())
    }[run_id]


# --- pipes ---


def test_in_a_pipe_there_are_plain_lines_and_the_answer_apart(
    start_python: Start,
) -> None:
    process = start_python("run", "Capital?", *CAPITAL)
    answer, progress = process.communicate()

    assert (process.returncode, answer) == (0, "It is Paris.\n")
    assert progress.splitlines()[-2].split() == ["end", "completed:", "answered"]
    assert not set(progress) & {"\x1b", "\r"}


def test_what_started_programs_print_does_not_get_between_the_answer(
    start_python: Start,
) -> None:
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    go = (
        "run",
        "Go.",
        "--provider",
        "scripted:starts",
        "--tools",
        "scripted_cli:starts",
        "--json",
    )
    process = start_python(*go, env=buffered)
    answer, progress = process.communicate()

    assert json.loads(answer)["answer"] == "It started."
    assert {"FROM é", "HANDED TO é", "FROM THE STREAM ITSELF"} <= set(
        progress.splitlines()
    )


def test_a_line_that_does_not_end_is_printed_in_pieces(
    start: Start, folder: Path
) -> None:
    dots = 'def dots() -> str:\n    """Dots."""\n    for _ in range(200_000):\n        print(".", end="")\n    return ""\n'
    (folder / "dotted.py").write_text(dots)
    process = start(
        "run", "Go.", "--provider", "scripted:dots", "--tools", "dotted:dots", "-q"
    )
    answer, printed = process.communicate()

    assert (answer, printed.count(".")) == ("It .\n", 200_000)
    assert max(map(len, printed.splitlines())) <= 65_536 + 1


CLOSED = "standard output is closed: redirect it to /dev/null to discard the output"


@pytest.mark.parametrize(
    ("question", "closing", "ended"),
    [
        ("Capital?", ">&-", (2, "", f"error: {CLOSED}\n")),
        ("Capital?", "2>&-", (0, "It is Paris.\n", "")),
        ("Capital?", "<&-", (0, "It is Paris.\n", "")),
        (
            "-",
            "<&-",
            (
                2,
                "",
                "error: question: is empty; pass the task to do\n",
            ),
        ),
        ("Capital?", ">&- 2>&- <&-", (2, "", "")),
    ],
)
def test_a_stream_that_is_closed_is_minded(
    folder: Path, question: str, closing: str, ended: tuple[int, str, str]
) -> None:
    command = shlex.join(
        [
            sys.executable,
            "-m",
            "loopwright",
            "run",
            question,
            *CAPITAL,
            "-q",
            "--run-id",
            "r1",
        ]
    )
    done = subprocess.run(
        f"{command} {closing}", shell=True, capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout, done.stderr) == ended
    assert (folder / "loopwright.db").exists() == (ended[0] == 0)


@pytest.mark.parametrize("env", [{"PYTHONIOENCODING": "utf-8"}, {"LC_ALL": "C"}])
def test_a_question_that_is_no_text_is_2(folder: Path, env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "loopwright", "run", "-", *CAPITAL]
    done = subprocess.run(
        command,
        input=b"a\xff",
        capture_output=True,
        env={**os.environ, **env},
        timeout=60,
    )

    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert done.stderr.startswith(b"error: question: is not UTF-8 text: ")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_any_text_can_be_written_in_any_encoding(
    start_python: Start, encoding: str
) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    process = start_python(
        "run",
        "Où est 東京?",
        "--provider",
        "scripted:é",
        "--run-id",
        "r1",
        "-q",
        env=env,
    )
    answer, errors = process.communicate()

    assert (process.returncode, errors) == (0, "")
    assert answer == {"utf-8": "é\n", "ascii": "\\xe9\n"}[encoding]
    assert start_python("show", "r1", env=env).communicate()[1] == ""


@pytest.mark.parametrize(
    "command", [("plugins",), ("engines", "react"), ("runs",), ("show", "r1", "--json")]
)
def test_a_broken_pipe_ends_quietly(start: Start, command: tuple[str, ...]) -> None:
    start("run", "Capital?", *CAPITAL, "--run-id", "r1").communicate()
    reading, writing = os.pipe()
    os.close(reading)
    process = start(*command, stdout=writing)
    os.close(writing)

    _, errors = process.communicate()

    assert (process.returncode, errors) == (141, "")


def test_a_run_whose_progress_nobody_reads_any_more_is_suspended_quietly(
    start: Start,
) -> None:
    process = start("run", "Go.", *CHATTY, *NO_LIMITS, "--run-id", "r1")
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.close()
    assert process.stdout is not None
    answer = process.stdout.read()

    assert (process.wait(), answer) == (141, "")
    assert status(start, "r1") == "suspended"


def test_a_resumed_run_whose_progress_nobody_reads_any_more_is_suspended_too(
    start: Start,
) -> None:
    process = start("run", "Go.", *CHATTY, *NO_LIMITS, "--run-id", "r1")
    until(lambda: os.path.exists("loopwright.db"), process)
    assert process.stderr is not None
    for _ in range(20):
        process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate()

    again = start("resume", "r1", *CHATTY)
    assert again.stderr is not None
    again.stderr.readline()
    again.stderr.close()

    assert again.wait() == 141
    assert status(start, "r1") == "suspended"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_an_answer_that_cannot_be_written_is_1(start: Start) -> None:
    with Path("/dev/full").open("w") as full:
        process = start("run", "Capital?", *CAPITAL, "-q", stdout=full)
        _, errors = process.communicate()

    assert process.returncode == 1
    assert errors == "error: [Errno 28] No space left on device\n"


# --- interrupts and crashes ---


def test_ctrl_c_suspends_the_run_and_says_how_to_go_on(
    start: Start, log: Callable[[], list[str]]
) -> None:
    process = start("run", "Go.", *SLOW, "--run-id", "r1", "--journal", "my runs.db")
    until(lambda: "slow" in log(), process)
    process.send_signal(signal.SIGINT)
    answer, progress = process.communicate()

    command = "loopwright resume r1 --journal 'my runs.db' --provider scripted:slow --tools scripted_cli:slow"
    assert (process.returncode, answer) == (130, "")
    assert progress.splitlines()[-1] == f"interrupted; resume it: {command}"
    assert status(start, "r1", "my runs.db") == "suspended"
    again = start(
        "resume",
        "r1",
        "--journal",
        "my runs.db",
        *SLOW,
        env={**os.environ, "SCRIPTED_SECONDS": "0"},
    )
    assert again.communicate()[0] == "done\n"
    assert log() == ["model slow", "slow", "slow", "model slow"]


def test_a_run_that_cannot_be_resumed_says_only_that_it_was_interrupted(
    start: Start, log: Callable[[], list[str]]
) -> None:
    process = start("run", "Go.", *SLOW, "--journal", "memory")
    until(lambda: "slow" in log(), process)
    process.send_signal(signal.SIGINT)

    assert process.communicate()[1].splitlines()[-1] == "interrupted"
    assert process.returncode == 130


def test_a_killed_run_is_resumed_and_a_live_one_is_not(
    start: Start, log: Callable[[], list[str]]
) -> None:
    process = start("run", "Go.", *SLOW, "--run-id", "r1")
    until(lambda: "slow" in log(), process)
    busy = start("resume", "r1", *SLOW, "-q")
    refused = busy.communicate()[1]
    process.kill()
    process.communicate()
    again = start(
        "resume", "r1", *SLOW, "-q", env={**os.environ, "SCRIPTED_SECONDS": "0"}
    )

    assert busy.returncode == 1
    who = f"process {process.pid} on {socket.gethostname()}"
    assert (
        refused
        == f"error: run 'r1' is running in {who}: wait for it to end, or take it over with --take-over\n"
    )
    assert again.communicate()[0] == "done\n"
    assert log().count("model slow") == 2


def test_a_live_run_can_be_taken_over(
    start: Start, log: Callable[[], list[str]]
) -> None:
    process = start("run", "Go.", *SLOW, "--run-id", "r1", "-q")
    until(lambda: "slow" in log(), process)
    taker = start(
        "resume",
        "r1",
        *SLOW,
        "-q",
        "--take-over",
        env={**os.environ, "SCRIPTED_SECONDS": "0"},
    )

    assert taker.communicate()[0] == "done\n"


# --- terminals ---


def test_on_a_terminal_the_timeline_grows_and_the_answer_comes_last(
    at_terminal: AtTerminal,
) -> None:
    ended, screen = at_terminal("run", "Capital?", *CAPITAL)

    assert ended == 0
    assert "\x1b[36mcapital(country=" in screen
    assert COLOURS.sub("", screen).endswith("It is Paris.\n")


def test_words_are_shown_as_they_come_and_ctrl_c_suspends(
    at_terminal: AtTerminal, start: Start
) -> None:
    endless = ("run", "Go.", "--provider", "scripted:endless", "--run-id", "r1")
    ended, screen = at_terminal(*endless, typed=[("word word word", "\x03")])

    assert ended == 130
    assert screen.endswith(
        "interrupted; resume it: loopwright resume r1 --provider scripted:endless\n"
    )
    assert "\x1b[?25h" in screen  # the cursor is there again
    assert status(start, "r1") == "suspended"


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y\n", "I was told: wiped"),
        (" YES \n", "I was told: wiped"),
        ("\n", "I was told: a person refused it"),
        ("n\n", "I was told: a person refused it"),
        ("yeah\n", "I was told: a person refused it: yeah"),
        ("too dangerous\n", "I was told: a person refused it: too dangerous"),
        ("\x04", "I was told: a person refused it"),
    ],
)
def test_the_person_at_the_terminal_is_asked(
    at_terminal: AtTerminal, typed: str, answer: str
) -> None:
    wipe = ("run", "Go.", "--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    ended, screen = at_terminal(*wipe, typed=[("denies it: ", typed)])

    assert ended == 0
    assert (
        'wipe is destructive: run it?\n  wipe({"path":"/tmp/x"})  [destructive]\n'
        in screen
    )
    assert screen.endswith(f"{answer}\n")


def test_what_was_typed_before_the_question_is_no_answer(
    at_terminal: AtTerminal,
) -> None:
    wipe = ("run", "Go.", "--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    ended, screen = at_terminal(*wipe, typed=[("", "y\n"), ("denies it: ", "no\n")])

    assert ended == 0
    assert screen.endswith("I was told: a person refused it\n")


def test_a_run_can_be_interrupted_while_the_person_is_asked(
    at_terminal: AtTerminal, start: Start
) -> None:
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    ended, _ = at_terminal(
        "run", "Go.", *wipe, "--run-id", "r1", typed=[("denies it: ", "\x03")]
    )

    assert ended == 130
    assert status(start, "r1") == "suspended"
    ended, screen = at_terminal("resume", "r1", *wipe, typed=[("denies it: ", "y\n")])
    assert (ended, screen.endswith("I was told: wiped\n")) == (0, True)


@pytest.mark.parametrize("columns", [20, 60])
def test_nothing_of_a_model_or_tool_steers_the_terminal_at_any_width(
    at_terminal: AtTerminal, columns: int
) -> None:
    hostile = (
        "run",
        "Go.",
        "--provider",
        "scripted:hostile",
        "--tools",
        "scripted_cli:loud",
        "--run-id",
        "h",
    )
    ended, screen = at_terminal(*hostile, columns=columns)
    _, shown = at_terminal("show", "h", "--full", columns=columns)

    assert ended == 0
    assert "\x1b[31m" not in screen + shown  # red
    assert not set(screen + shown) & {"\x07", "\x9b", "\u202e"}
    assert "\x1b]" not in screen + shown


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_there_are_none(
    at_terminal: AtTerminal, env: dict[str, str]
) -> None:
    ended, screen = at_terminal("run", "Capital?", *CAPITAL, env=env)

    assert ended == 0
    assert re.findall(r"\x1b\[[0-9;]*3[0-9]m", screen) == []
    assert ("\x1b" in screen) == (env.get("TERM") != "dumb")


def test_runs_and_plugins_are_drawn_as_tables(
    at_terminal: AtTerminal, start: Start
) -> None:
    start("run", "Capital?", *CAPITAL, "--run-id", "r1").communicate()

    _, runs = at_terminal("runs", columns=40)
    assert max(len(line) for line in COLOURS.sub("", runs).splitlines()) <= 40
    assert "completed" in re.sub(r"\s", "", COLOURS.sub("", at_terminal("runs")[1]))


# --- the start ---


def test_help_teaches_and_loads_no_provider_journal_or_http(folder: Path) -> None:
    script = (
        "import sys; sys.argv = ['loopwright', '--help']\n"
        "from loopwright.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print('status', end.code)\n"
        "print(*sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout

    loaded = set(said.splitlines()[-1].split())
    assert "status 0" in said
    assert "loopwright resume RUN --provider" in said
    assert (
        loaded
        & {
            "httpx",
            "sqlite3",
            "structlog",
            "tenacity",
            "jsonschema",
            "loopwright.providers.openai.provider",
        }
        == set()
    )


def test_the_garbage_collector_works_and_leaves_out_what_was_imported() -> None:
    script = (
        "import atexit, gc, sys; sys.argv = ['loopwright', '--version']\n"
        "show = lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000)\n"
        "from loopwright.cli import main\n"
        "atexit.register(show)\n"
        "main()"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert said.stdout.splitlines()[-1] == "True True"


@pytest.mark.parametrize(
    "command",
    [
        "engines",
        "run",
        "resume",
        "worker",
        "resolve",
        "fork",
        "runs",
        "show",
        "verify",
        "plugins",
    ],
)
def test_each_command_s_help_has_an_example_and_the_exit_statuses(
    invoke: Invoke, command: str
) -> None:
    helped = invoke(command, "--help")

    assert helped.exit_code == 0
    assert re.search(r"Examples?:\s+loopwright ", helped.stdout)
    assert "Exit status: " in helped.stdout


def test_the_version_is_told(start_python: Start) -> None:
    assert start_python("--version").communicate()[0] == f"loopwright {__version__}\n"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from loopwright.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: the loopwright command needs {missing}, which is not installed: pip install 'loopwright[cli]'\n"
    )


def test_the_command_is_installed(folder: Path) -> None:
    command = Path(sys.executable).with_name("loopwright")
    if not command.exists():
        pytest.skip("the package is not installed here, only importable")
    done = subprocess.run(
        [command, "--version"], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (0, f"loopwright {__version__}\n")
