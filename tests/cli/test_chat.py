"""`loopwright chat` at a real terminal: history, streaming, guidance, approvals, and how to stop and to leave."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE

import pytest

from loopwright.events import RunStarted
from loopwright.journals import SQLiteJournal

from .test_processes import until
from .using import AtTerminal, Invoke, Start

TALK = ("chat", "scripted:talk", "--thread", "ada")
TOOLS = ("--tools", "scripted_cli:wipe", "--tools", "scripted_cli:slow")
ENTER, INTERRUPT, LEAVE = "\r", "\x03", "\x04"
ENVIRONMENT: Mapping[str, str] = {"PROMPT_TOOLKIT_NO_CPR": "1", "SCRIPTED_SECONDS": "1"}
DRAWING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|>\x08")


def lines(screen: str) -> list[str]:
    """What is on the screen, without how it was drawn."""
    return [line.strip() for line in DRAWING.sub("", screen).splitlines()]


def test_a_conversation_is_shown_again_and_continued(at_terminal: AtTerminal) -> None:
    ended, screen = at_terminal(
        *TALK,
        typed=[
            (">", f"hello{ENTER}"),
            ("1: hello", f"and again{ENTER}"),
            ("2: and again", LEAVE),
        ],
        env=ENVIRONMENT,
    )
    assert ended == 0
    assert (
        lines(screen)[-1] == "continue it: loopwright chat scripted:talk --thread ada"
    )

    ended, screen = at_terminal(
        *TALK,
        typed=[("2: and again", f"third{ENTER}"), ("3: third", LEAVE)],
        env=ENVIRONMENT,
    )
    shown = [line for line in lines(screen) if line]
    assert ended == 0
    assert shown[:4] == ["> hello", "1: hello", "> and again", "2: and again"]


def test_a_reply_is_shown_as_it_is_made(at_terminal: AtTerminal) -> None:
    ended, screen = at_terminal(
        *TALK,
        typed=[(">", f"some words{ENTER}"), ("word14", ""), ("1: some words", LEAVE)],
        env=ENVIRONMENT,
    )

    assert ended == 0
    assert (
        screen.index("word0") < screen.index("word14") < screen.index("1: some words")
    )


def test_what_is_typed_while_a_tool_is_at_work_guides_the_answer(
    at_terminal: AtTerminal,
) -> None:
    ended, screen = at_terminal(
        *TALK,
        *TOOLS,
        typed=[
            (">", f"slow{ENTER}"),
            ("call     slow", f"be brief{ENTER}"),
            ("the tool said late", LEAVE),
        ],
        env=ENVIRONMENT,
    )
    answer = next(line for line in lines(screen) if line.startswith("the tool said"))

    assert ended == 0
    assert "you said slow | " in answer
    assert SQLiteJournal("loopwright.db").count_runs() == {"completed": 1}


def test_what_was_typed_too_late_for_the_answer_is_the_next_message(
    at_terminal: AtTerminal,
) -> None:
    ended, screen = at_terminal(
        *TALK,
        typed=[
            (">", f"some words{ENTER}"),
            ("word3", f"more{ENTER}"),
            ("2: more", LEAVE),
        ],
        env=ENVIRONMENT,
    )

    assert ended == 0
    assert screen.index("1: some words") < screen.index("2: more")


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(
    at_terminal: AtTerminal,
) -> None:
    ended, screen = at_terminal(
        *TALK,
        typed=[
            (">", f"endless words{ENTER}"),
            ("word3", INTERRUPT),
            ("[no answer: aborted]", f"hello{ENTER}"),
            ("2: hello", INTERRUPT),
            ("(Ctrl-D leaves)", LEAVE),
        ],
        env=ENVIRONMENT,
    )

    assert ended == 0
    assert SQLiteJournal("loopwright.db").count_runs() == {"aborted": 1, "completed": 1}
    assert "word3" in lines(screen)[lines(screen).index("[no answer: aborted]") - 1]


@pytest.mark.parametrize(
    "option",
    [
        ("--gate", "deny-all"), ("--max-cost", "0"), ("--max-llm-calls", "1"), ("--tools", "scripted_cli:wipe"),
        ("--journal", "other.db"), ("--engine", "self-ask"), ("--system", "Rhyme."), ("--provider", "scripted:talk"),
    ],
)  # fmt: skip
def test_an_option_that_an_agent_would_not_heed_is_refused(
    invoke: Invoke, option: tuple[str, str]
) -> None:
    Path("clerk_app.py").write_text(CLERK)
    done = invoke("chat", "clerk_app:clerk", *option, input="hello\n")

    assert done.exit_code == 2
    assert done.stderr.startswith(
        f"error: {option[0]}: agent 'clerk_app:clerk' has its own"
    )
    assert done.stdout == ""


@pytest.mark.parametrize("option", ["--json", "--wait"])
def test_an_option_that_a_chat_cannot_heed_is_refused(
    invoke: Invoke, option: str
) -> None:
    done = invoke(*TALK, *TOOLS, option, input="hello\n")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {option}: a chat ")


def test_yes_approves_each_call_but_for_an_agent_with_an_approver(
    invoke: Invoke,
) -> None:
    Path("clerk_app.py").write_text(CLERK)
    for whom in ((*TALK, *TOOLS), ("chat", "clerk_app:clerk")):
        said = invoke(*whom, "--yes", input="wipe\n")
        assert (said.exit_code, "the tool said wiped" in said.stdout) == (0, True)

    Path("asked_app.py").write_text(
        CLERK.replace("tools=[wipe],", "tools=[wipe], approver=Suspend(),").replace(
            "import Runtime", "import Runtime, Suspend"
        )
    )
    done = invoke("chat", "asked_app:clerk", "--yes", input="wipe\n")
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "error: --yes: agent 'asked_app:clerk' has an approver of its own"
    )


@pytest.mark.parametrize(
    ("typed", "said"),
    [("y", "the tool said wiped"), ("not today", "the tool said not today")],
)
def test_a_call_is_approved_or_denied_in_the_conversation(
    at_terminal: AtTerminal, typed: str, said: str
) -> None:
    ended, screen = at_terminal(
        *TALK,
        *TOOLS,
        typed=[
            (">", f"wipe{ENTER}"),
            ("denies it", typed + ENTER),
            ("the tool said", ""),
            ("you said wipe", LEAVE),
        ],
        env=ENVIRONMENT,
    )

    assert ended == 0
    assert 'wipe({"path":"/tmp/x"})' in screen
    assert said in screen


CLERK = """
from scripted_cli import provider, wipe
from loopwright import Runtime
from loopwright.journals import SQLiteJournal

runtime = Runtime(provider("talk"), tools=[wipe], journal=SQLiteJournal("clerk.db"))
clerk = runtime.agent("clerk", instructions="Be brief.")
"""


def test_calls_of_an_agent_without_an_approver_are_decided_at_the_terminal(
    at_terminal: AtTerminal,
) -> None:
    Path("clerk_app.py").write_text(CLERK)
    ended, screen = at_terminal(
        "chat", "clerk_app:clerk", "--thread", "ada",
        typed=[
            (">", f"wipe{ENTER}"), ("denies it", f"y{ENTER}"), ("you said wipe", LEAVE)
        ], env=ENVIRONMENT,
    )  # fmt: skip

    assert ended == 0
    assert "the tool said wiped" in screen


def test_a_question_that_was_left_is_asked_again(at_terminal: AtTerminal) -> None:
    left, _ = at_terminal(
        *TALK, *TOOLS,
        typed=[(">", f"wipe{ENTER}"), ("denies it", LEAVE)], env=ENVIRONMENT,
    )  # fmt: skip
    waiting = SQLiteJournal("loopwright.db").count_runs()
    ended, screen = at_terminal(
        *TALK, *TOOLS,
        typed=[("denies it", f"yes{ENTER}"), ("you said wipe", LEAVE)], env=ENVIRONMENT,
    )  # fmt: skip

    assert (left, waiting, ended) == (0, {"waiting": 1}, 0)
    assert "the tool said wiped" in screen


@pytest.mark.faults
def test_an_answer_that_a_killed_chat_owed_is_shown_by_the_next(
    start: Start, at_terminal: AtTerminal, log: Callable[[], list[str]]
) -> None:
    endless = {**os.environ, "SCRIPTED_SECONDS": "600"}
    killed = start(*TALK, *TOOLS, stdin=PIPE, env=endless)
    assert killed.stdin is not None
    killed.stdin.write("slow\n")
    killed.stdin.close()
    until(lambda: "slow" in log(), killed)

    beside, _ = at_terminal(
        *TALK, *TOOLS, typed=[("another process is at work", LEAVE)], env=ENVIRONMENT
    )
    killed.kill()
    killed.wait()
    ended, screen = at_terminal(
        *TALK, *TOOLS, typed=[("the tool said late", LEAVE)], env=ENVIRONMENT
    )

    assert (beside, ended) == (0, 0)
    assert "> slow" in lines(screen)
    assert SQLiteJournal("loopwright.db").count_runs() == {"completed": 1}


def test_ctrl_c_at_a_question_stops_the_turn(at_terminal: AtTerminal) -> None:
    ended, _ = at_terminal(
        *TALK, *TOOLS,
        typed=[(">", f"wipe{ENTER}"), ("denies it", INTERRUPT), ("no answer: aborted", LEAVE)],
        env=ENVIRONMENT,
    )  # fmt: skip

    assert ended == 0
    assert SQLiteJournal("loopwright.db").count_runs() == {"aborted": 1}


def test_lines_of_a_pipe_are_a_turn_each(start_python: Start) -> None:
    process = start_python(*TALK, stdin=PIPE)
    output, errors = process.communicate("hello\r\n\nand again\n", timeout=60)

    assert (process.returncode, output) == (0, "1: hello\n2: and again\n")
    assert "continue it:" in errors
    journal = SQLiteJournal("loopwright.db")
    started = [journal.read(info.run_id)[0].event for info in journal.runs()]
    messages = [one.messages[-1] for one in started if isinstance(one, RunStarted)]
    assert {one.content for one in messages} == {"hello", "and again"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("chat", "nobody"), "error: AGENT: 'nobody' is neither a model nor an agent"),
        (("chat", "no_module:agent"), "error: AGENT: 'no_module:agent' cannot be loaded"),
        (("chat", "scripted_cli:wipe"), "error: AGENT: 'scripted_cli:wipe' is not an agent but a Tool"),
        (("chat",), "error: --provider: name the model"),
        (("chat", "scripted:talk", "--provider", "scripted:talk"), "error: --provider: the model is named already"),
        (("chat", "scripted:talk", "--thread", ""), "error: id: must be a text"),
        (("chat", "scripted:talk", "--engine", "none"), "error: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_asked(
    invoke: Invoke, arguments: tuple[str, ...], problem: str
) -> None:
    done = invoke(*arguments, input="hello\n")

    assert done.exit_code == 2
    assert done.stderr.startswith(problem)
