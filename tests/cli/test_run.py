"""`loopwright run`: the answer on standard output, all else on standard error, and an exit status for each ending."""

import json
from pathlib import Path

import pytest

from .scripted_cli import HOSTILE
from .using import Invoke, hide_seconds

CAPITAL = (
    "run",
    "What is the capital of France?",
    "--provider",
    "scripted:capital",
    "--tools",
    "scripted_cli:capital",
)


def test_the_answer_is_alone_on_stdout_and_progress_is_a_line_for_each_event(
    invoke: Invoke,
) -> None:
    done = invoke(*CAPITAL, "--run-id", "r1")

    assert (done.exit_code, done.stdout) == (0, "It is Paris.\n")
    assert [line[9:] for line in hide_seconds(done.stderr).splitlines()] == [
        "run      r1",
        "engine   react",
        "task     What is the capital of France?",
        "model    scripted/capital, turn 1: 0.0 s, about 51 + 10 tokens",
        "thought  Let me see.",
        'call     capital(country="France") [allowed]',
        "result   Paris",
        "model    scripted/capital, turn 2: 0.0 s, 10 + 5 tokens",
        "reply    It is Paris.",
        "end      completed: answered",
        "usage    2 model calls, 1 tool call, about 61 + 15 tokens",
    ]


def test_quiet_leaves_the_answer_only(invoke: Invoke) -> None:
    done = invoke(*CAPITAL, "--quiet")

    assert (done.exit_code, done.stdout, done.stderr) == (0, "It is Paris.\n", "")


def test_json_is_the_whole_result(invoke: Invoke) -> None:
    done = invoke(*CAPITAL, "--run-id", "r1", "--json", "--price", "1000000,2000000")

    told = json.loads(done.stdout)
    assert len(told.pop("head_hash")) == 64
    assert told == {
        "run_id": "r1",
        "status": "completed",
        "stop_reason": "answered",
        "answer": "It is Paris.",
        "output": None,
        "error": None,
        "pending": [],
        "iterations": 2,
        "llm_calls": 2,
        "tool_calls": 1,
        "usage": {
            "input_tokens": 61,
            "output_tokens": 15,
            "cached_tokens": None,
            "cache_write_tokens": None,
            "reasoning_tokens": None,
            "cost": 61 + 2 * 15.0,
            "estimated": True,
        },
        "facts": [],
    }


def test_the_question_may_come_from_standard_input(invoke: Invoke) -> None:
    done = invoke(
        "run", "-", "--provider", "scripted:what", "-q", input="Who\nis there?\n"
    )

    assert done.stdout == "user Who\nis there?\n []\n"


def test_a_system_message_and_attachments_go_with_the_question(
    invoke: Invoke, folder: Path
) -> None:
    (folder / "dot.bin").write_bytes(b"\x89PNG\r\n\x1a\n0000")
    (folder / "notes").write_text("a note")

    attached = (
        "--attach",
        "dot.bin",
        "--attach",
        "notes",
        "--attach",
        "https://example.com/a.pdf",
    )
    done = invoke(
        "run",
        "Look.",
        "--provider",
        "scripted:what",
        "-q",
        "--system",
        "Be brief.",
        *attached,
    )

    kinds = "['image/png', 'text/plain', 'application/pdf']"
    assert done.stdout == f"system Be brief. [] | user Look. {kinds}\n"


def test_tools_come_from_this_folder_from_lists_and_from_toolboxes(
    invoke: Invoke, folder: Path
) -> None:
    (folder / "my_tools.py").write_text(
        'def shout(word: str) -> str:\n    """Shout."""\n    return word.upper()\n'
    )

    tools = (
        "--tools",
        "my_tools:shout",
        "--tools",
        "box:wipe",
        "--tools",
        "scripted_cli:capital",
    )
    done = invoke(
        "run",
        "Go.",
        "--provider",
        "scripted:same",
        "-q",
        *tools,
        "--max-iterations",
        "1",
        "--json",
    )
    assert json.loads(done.stdout)["tool_calls"] == 1

    twice = invoke(
        "run",
        "Go.",
        "--provider",
        "scripted:same",
        "--tools",
        "scripted_cli:both",
        "--tools",
        "box",
    )
    assert twice.exit_code == 2
    assert "two tools are named 'capital'" in twice.stderr


def test_options_of_the_engine_are_json_text_code_or_engines(invoke: Invoke) -> None:
    actor = '{"engine": "react", "options": {"max_iterations": 4}}'
    options = (
        "-o",
        "max_episodes=2",
        "-o",
        "strategy=both",
        "-o",
        "evaluator=@scripted_cli:is_paris",
        "-o",
    )
    done = invoke(
        *CAPITAL, "--run-id", "r1", "-e", "reflexion", *options, f"actor={actor}"
    )

    assert (done.exit_code, done.stdout) == (0, "It is Paris.\n")
    started = json.loads(invoke("show", "r1", "--json").stdout.splitlines()[0])["event"]
    assert started["options"].items() >= {"max_episodes": 2, "strategy": "both"}.items()
    assert started["options"]["actor"]["options"]["max_iterations"] == 4
    assert started["opaque"] == ["evaluator"]


CRITIC = ("run", "Write.", "--provider", "scripted:critic", "-e", "director-critic", "--run-id", "r1")  # fmt: skip


def test_a_director_and_a_critic_are_shown_with_each_review(invoke: Invoke) -> None:
    done = invoke(*CRITIC)
    shown = invoke("show", "r1").stdout

    assert (done.exit_code, done.stdout) == (0, "draft 1\n")
    assert shown.count(", review: ") == shown.count(", draft: ") == 2
    assert 'fact     DraftReview {"round":1,' in shown
    assert '"score":0.9,"approved":true,"reason":"target_reached"' in shown


def test_a_person_reviews_a_draft_by_the_command_line(invoke: Invoke) -> None:
    waits = invoke(*CRITIC, "-o", 'critic={"kind": "human"}', "--wait")
    wrong = invoke("answer", "r1", '{"score": 8}')
    invoke("answer", "r1", '{"score": 0.8, "feedback": "Good."}')
    done = invoke("resume", "r1", "--provider", "scripted:critic")

    assert waits.exit_code == 5
    assert wrong.exit_code == 2
    assert "score: 8 is greater than the maximum of 1" in wrong.stderr
    assert (done.exit_code, done.stdout) == (0, "draft 0\n")


def test_an_output_model_makes_the_answer_json(invoke: Invoke) -> None:
    done = invoke(
        "run",
        "Which?",
        "--provider",
        "scripted:city",
        "--output",
        "scripted_cli:City",
        "-q",
    )

    assert (done.exit_code, json.loads(done.stdout)) == (0, {"name": "Paris"})


@pytest.mark.parametrize("dialect", [(), ("--dialect", "react")])
def test_a_model_without_tool_calls_gets_a_dialect_by_itself(
    invoke: Invoke, dialect: tuple[str, ...]
) -> None:
    done = invoke(
        "run",
        "2 + 2?",
        "--provider",
        "scripted:text",
        "--tools",
        "scripted_cli:capital",
        "-q",
        *dialect,
    )

    assert (done.exit_code, done.stdout) == (0, "4\n")


def test_what_tools_print_does_not_get_between_the_answer(invoke: Invoke) -> None:
    done = invoke(
        "run", "Go.", "--provider", "scripted:hostile", "--tools", "scripted_cli:loud"
    )

    assert "LOUD" not in done.stdout
    assert "LOUD \\x1b[31mred" in done.stderr


def test_tools_may_print_bytes(invoke: Invoke) -> None:
    done = invoke(
        "run",
        "Go.",
        "--provider",
        "scripted:prints_bytes",
        "--tools",
        "scripted_cli:prints_bytes",
        "-q",
    )

    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        "It printed.\n",
        "BYTES é é \\xff\n",
    )


def test_json_has_null_for_a_number_that_json_cannot_say(invoke: Invoke) -> None:
    go = (
        "run",
        "How warm?",
        "--provider",
        "scripted:reading",
        "--output",
        "scripted_cli:Reading",
        "-q",
    )
    whole = invoke(*go, "--json", "--price", "1e308,1e308", "--run-id", "r1")
    output = invoke(*go)

    told = json.loads(whole.stdout, parse_constant=pytest.fail)
    assert (told["output"], told["usage"]["cost"]) == (
        {"celsius": None, "where": HOSTILE},
        None,
    )
    assert json.loads(output.stdout, parse_constant=pytest.fail) == {
        "celsius": None,
        "where": HOSTILE,
    }
    shown = invoke("show", "r1", "--json").stdout
    assert [
        json.loads(line, parse_constant=pytest.fail)["seq"]
        for line in shown.splitlines()
    ] == [1, 2, 3, 4]


def test_no_control_character_of_a_model_or_tool_is_printed(invoke: Invoke) -> None:
    done = invoke(
        "run",
        "Go.",
        "--provider",
        "scripted:hostile",
        "--tools",
        "scripted_cli:loud",
        "--run-id",
        "h",
    )
    outputs = [done.stdout, done.stderr]
    outputs += [
        invoke("show", "h", *more).stdout for more in ((), ("--full",), ("--json",))
    ]
    outputs.append(
        invoke("resume", "h", "--provider", "scripted:hostile", "--json").stdout
    )

    assert done.exit_code == 0
    for output in outputs:
        assert "red" in output
        assert not set(output) & {
            chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E)
        }


# --- how a run ends ---


def test_a_limit_is_3_and_gives_the_best_answer_so_far(invoke: Invoke) -> None:
    done = invoke(
        "run",
        "Go.",
        "--provider",
        "scripted:capital",
        "--tools",
        "box",
        "--max-iterations",
        "1",
    )

    assert (done.exit_code, done.stdout) == (3, "It is Paris.\n")
    assert done.stderr.splitlines()[-1] == "error: the loop ran its 1 iteration"


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (("--max-llm-calls", "1"), "max_llm_calls"),
        (("--max-tokens", "1"), "max_tokens"),
        (("--max-tool-calls", "0"), "max_tool_calls"),
        (("--max-cost", "0.5", "--price", "1000000,0"), "max_cost"),
        (("--timeout", "1e-9"), "timeout"),
    ],
)
def test_each_limit_can_be_set(
    invoke: Invoke, limit: tuple[str, ...], reason: str
) -> None:
    done = invoke(*CAPITAL, "--json", *limit)

    assert (done.exit_code, json.loads(done.stdout)["stop_reason"]) == (3, reason)


def test_a_stuck_run_is_4(invoke: Invoke) -> None:
    done = invoke(
        "run", "Go.", "--provider", "scripted:same", "--tools", "scripted_cli:capital"
    )

    assert done.exit_code == 4
    assert done.stderr.splitlines()[-1] == "error: capital was called again and again"


def test_a_failed_run_is_1_with_one_line_and_no_answer(invoke: Invoke) -> None:
    done = invoke("run", "Go.", "--provider", "scripted:fails", "-q")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "error: the model is not to be had\\x1b[2J\n"


def test_debug_shows_where_an_error_comes_from(invoke: Invoke) -> None:
    plain = invoke("run", "Go.", "--provider", "scripted:typo", "-q")
    debugged = invoke("--debug", "run", "Go.", "--provider", "scripted:typo", "-q")

    assert "Traceback" not in plain.stderr
    assert "Traceback" in debugged.stderr
    assert "a bug in the provider" in debugged.stderr
    assert plain.exit_code == debugged.exit_code == 1


def test_without_a_terminal_a_destructive_call_is_denied_with_the_remedy(
    invoke: Invoke,
) -> None:
    done = invoke(
        "run", "Go.", "--provider", "scripted:wipe", "--tools", "scripted_cli:wipe"
    )

    assert done.exit_code == 0
    assert (
        "no terminal to ask at (--yes approves everything, --wait keeps the run waiting"
        in done.stdout
    )
    assert invoke("run", "Go.", "--provider", "scripted:wipe", "--ask").stderr == (
        "error: --ask: there is no terminal to ask at; choose --yes or --wait\n"
    )


def test_yes_approves_and_a_gate_still_denies(invoke: Invoke) -> None:
    wipe = (
        "run",
        "Go.",
        "--provider",
        "scripted:wipe",
        "--tools",
        "scripted_cli:wipe",
        "-q",
    )

    assert invoke(*wipe, "--yes").stdout == "I was told: wiped\n"
    assert invoke(*wipe, "--gate", "allow-all").stdout == "I was told: wiped\n"
    assert (
        invoke(*wipe, "--yes", "--gate", "deny-all").stdout
        == "I was told: no tool may run here\n"
    )


def test_a_run_that_waits_is_5_and_says_how_to_go_on(invoke: Invoke) -> None:
    given = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    done = invoke("run", "Go.", *given, "--wait", "--run-id", "r1")

    assert (done.exit_code, done.stdout) == (5, "")
    command = "loopwright resume r1 --provider scripted:wipe --tools scripted_cli:wipe"
    assert (
        done.stderr.splitlines()[-1] == f"waiting for a decision; resume it: {command}"
    )
    assert invoke(*command.split()[1:], "--yes", "-q").stdout == "I was told: wiped\n"


# --- what is wrong with the command line ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--provider", "nobody:x"),
            "error: provider: 'nobody:x' does not begin with an installed provider",
        ),
        (
            ("--provider", "openai:gpt-4.1-mini"),
            "error: --provider: api_key: OpenAI requires one; set OPENAI_API_KEY",
        ),
        (
            ("--tools", "nowhere:tool"),
            "error: --tools: 'nowhere:tool' cannot be loaded: ModuleNotFoundError",
        ),
        (
            ("--tools", "scripted_cli:none"),
            "error: --tools: 'scripted_cli:none' cannot be loaded: AttributeError",
        ),
        (
            ("--tools", "scripted_cli"),
            "error: --tools: write package.module:object, got 'scripted_cli'",
        ),
        (("--tools", "scripted_cli:a_number"), "error: tools: 3 is not a function"),
        (
            ("--tools", "box:nothing"),
            "error: --tools: plug-in 'box' of scripted-cli 1.0 failed: KeyError",
        ),
        (
            ("--engine", "recat"),
            "error: engines: there is no 'recat'; did you mean react?",
        ),
        (
            ("--option", "beam_width"),
            "error: --option: write name=value, like beam_width=3, got 'beam_width'",
        ),
        (
            ("--option", "beam_width=3"),
            "error: ReActEngine: beam_width: ReActEngine has no such option",
        ),
        (("--option", "max_iterations=0"), "error: ReActEngine: max_iterations: "),
        (
            ("--option", "name=zz"),
            "error: ReActEngine: name: ReActEngine has no such option",
        ),
        (
            ("--option", 'x={"engine": 5}'),
            'error: --option x: "engine" must be the name of an engine, got 5',
        ),
        (
            ("--option", 'x={"engine": "recat"}'),
            "error: --option x: engines: there is no 'recat'",
        ),
        (
            ("--option", 'x={"engine": "react", "options": 3}'),
            'error: --option x: "options" must be a JSON object',
        ),
        (
            ("--option", 'x={"engine": "react", "options": null}'),
            'error: --option x: "options" must be a JSON object',
        ),
        (
            (
                "--option",
                'x={"engine": "reflexion", "options": {"actor": {"engine": 5}}}',
            ),
            'error: --option x.actor: "engine" must be the name of an engine, got 5',
        ),
        (
            ("--option", "x=" + "[" * 20_000),
            "error: --option x: this is nested too deeply",
        ),
        (
            (
                "--option",
                "x=" + '{"engine":"react","options":{"a":' * 5000 + "1" + "}}" * 5000,
            ),
            "error: --option x: this is nested too deeply",
        ),
        (("--gate", "no-gate"), "error: --gate: gates: there is no 'no-gate'"),
        (("--dialect", "klingon"), "error: dialect: there is no 'klingon'"),
        (
            ("--price", "cheap"),
            "error: --price: must be the price of a million input and output tokens",
        ),
        (
            ("--price", "-1,2"),
            "error: --price: Price: input must be a number, 0 or more",
        ),
        (
            ("--output", "scripted_cli:capital"),
            "error: --output: scripted_cli:capital is not a pydantic model class",
        ),
        (
            ("--attach", "nothing.png"),
            "error: --attach: 'nothing.png' cannot be read: No such file",
        ),
        (("--max-llm-calls", "0"), "error: Limits: max_llm_calls: "),
        (("--journal", "no/such/folder/runs.db"), "error: "),
        (("--run-id", "not an id"), "error: run_id 'not an id': use letters"),
    ],
)
def test_what_is_wrong_is_2_and_one_line_that_names_the_option(
    invoke: Invoke, folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = invoke("run", "Go.", "--provider", "scripted:capital", "-q", *arguments)

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(words)
    assert len(done.stderr.splitlines()) == 1
    assert list(folder.glob("*.db")) == []


def test_without_a_provider_it_says_what_can_be_named(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = invoke("run", "Go.")
    assert done.exit_code == 2
    assert done.stderr.startswith(
        'error: --provider: name the model, like "openai:gpt-4.1-mini"'
    )
    assert "scripted" in done.stderr

    monkeypatch.setenv("LOOPWRIGHT_PROVIDER", "scripted:hello")
    assert invoke("run", "Go.", "-q").stdout == "hello\n"


@pytest.mark.parametrize("question", ["", "   ", "-"])
def test_an_empty_question_is_refused(invoke: Invoke, question: str) -> None:
    done = invoke("run", question, "--provider", "scripted:capital", input="")

    assert (done.exit_code, done.stderr) == (
        2,
        "error: question: is empty; pass the task to do\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "x", "--max-tokens", "many"),
        ("nothing",),
        ("run", "x", "--wait", "--yes"),
    ],
)
def test_wrong_usage_is_2(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    done = invoke(
        *arguments, *(("--provider", "scripted:x") if len(arguments) > 1 else ())
    )

    assert done.exit_code == 2
    assert "Usage: loopwright" in done.stderr


def test_the_journal_is_where_the_option_or_the_environment_says(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = ("run", "Go.", "--provider", "scripted:hello", "-q")
    invoke(*go)
    invoke(*go, "--journal", "a.db")
    invoke(*go, "--journal", "memory")
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL", "sqlite:b.db")
    invoke(*go)

    assert sorted(path.name for path in folder.glob("*.db")) == [
        "a.db",
        "b.db",
        "loopwright.db",
    ]
