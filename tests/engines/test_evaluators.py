"""Evaluators: exact match, heuristics, self-written tests, a model as judge, a function."""

import contextlib
import io
import math
from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from loopwright import (
    AllowAll,
    Completion,
    ConfigError,
    Conversation,
    Deny,
    Limits,
    LoopEngine,
    Message,
    ReflexionEngine,
    Result,
    Run,
    Runtime,
    ToolCall,
    ToolError,
    tool,
)
from loopwright.engines import Evaluation, Trajectory
from loopwright.engines.evaluators import (
    JUDGE_PROMPTS,
    TEST_PROMPTS,
    ExactMatch,
    Heuristics,
    ModelJudge,
    SelfTests,
    as_evaluator,
    evaluate,
)
from loopwright.parsing.self_tests import (
    build_test_program,
    find_syntax_error,
    read_code,
    read_outcomes,
    read_tests,
)
from loopwright.testing import ScriptedProvider, crashed

TASK = "Write add(a, b)."
RIGHT = "```python\ndef add(a, b):\n    return a + b\n```"
WRONG = "```python\ndef add(a, b):\n    return a - b\n```"
TESTS = "Here:\n```python\nassert add(1, 2) == 3\nassert add(0, 0) == 0\nassert add(1,2)==3\n```"
PROGRAMS: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    PROGRAMS.clear()


@tool(effect="idempotent")
async def run_python(code: str) -> str:
    """Run a program and give back what it prints."""
    PROGRAMS.append(code)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, {"__name__": "__main__"})
        except BaseException as error:  # noqa: BLE001 - a model's code may do anything
            raise ToolError(f"{printed.getvalue()}{error!r}") from None
    return printed.getvalue()


class Asking(LoopEngine):
    """Has one attempt evaluated, and keeps what was said."""

    name = "asking"
    evaluator: Any
    attempt: Any

    async def solve(self, run: Run) -> str:
        said = await evaluate(self.evaluator, run, self.attempt)
        run.note(said)
        return "done"


def attempt_of(
    answer: str | None = "a",
    *steps: tuple[str, str],
    earlier: tuple[Evaluation, ...] = (),
) -> Trajectory:
    messages = [Message("user", TASK)]
    for index, (name, observation) in enumerate(steps):
        messages += [
            Message("assistant", "", (ToolCall(name, {"x": 1}, f"c{index}"),)),
            Message("tool", observation, call_id=f"c{index}"),
        ]
    return Trajectory(
        1,
        TASK,
        answer,
        "completed",
        "answered",
        Conversation(messages),
        given=1,
        earlier=earlier,
    )


async def said_of(
    evaluator: Any, attempt: Trajectory | None = None, script: Any = (), **options: Any
) -> tuple[Result, Evaluation | None, Runtime]:
    parts = Runtime(
        ScriptedProvider(script), tools=options.pop("tools", [run_python]), **options
    )
    result = await Asking(
        parts, evaluator=evaluator, attempt=attempt or attempt_of()
    ).run(TASK, run_id="r")
    noted = [
        entry.event for entry in parts.journal.read("r") if entry.kind == "fact_noted"
    ]
    value: Any = noted[-1].value if noted else None  # type: ignore[union-attr]
    return (
        result,
        Evaluation(**{**value, "tests": tuple(value["tests"])}) if value else None,
        parts,
    )


# --- exact match ---


@pytest.mark.parametrize(
    ("expected", "answer", "passed"),
    [
        ('Jonny" Craig', "Jonny Craig", True),
        ("super-regional shopping mall", "a super-regional shopping mall", True),
        ("yes", "Yes.", True),
        ("yes", "no", False),
        ("1941", "1941-45", False),
        (["no", "London"], "the london", True),
        ("A", "a", True),
        ("A", "the", False),
        ("+", "-", False),
        ("Virginia", "West Virginia", False),
        ("Beyonc\u00e9", "beyonc\u00e9", True),
    ],
)
async def test_exact_match_compares_normalised_texts(
    expected: Any, answer: str, passed: bool
) -> None:
    _, said, parts = await said_of(ExactMatch(expected), attempt_of(answer))

    told = "" if passed else "The answer is not the one that was expected."
    assert said == Evaluation(passed, float(passed), told)
    assert parts.provider.requests == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("expected", ["", " ", [], ["a", ""]])
def test_exact_match_needs_something_to_compare_with(expected: Any) -> None:
    with pytest.raises(ConfigError, match="expected"):
        ExactMatch(expected)


# --- heuristics ---


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([], ""),
        ([("look", "x")] * 3, ""),
        (
            [("look", "x")] * 4,
            "The attempt went in circles: look gave the same observation 4 times running.",
        ),
        ([("look", "x"), ("look", "y")] * 5, ""),
        ([("look", str(i)) for i in range(30)], ""),
        (
            [("look", str(i)) for i in range(31)],
            "The attempt took 31 steps; 30 should do.",
        ),
    ],
)
async def test_heuristics_find_circles_and_long_ways(
    steps: list[tuple[str, str]], told: str
) -> None:
    _, said, _ = await said_of(Heuristics(), attempt_of("a", *steps))

    assert said == Evaluation(not told, feedback=told)


async def test_what_heuristics_let_through_is_left_to_the_other_evaluator() -> None:
    _, passed, _ = await said_of(Heuristics(then=ExactMatch("a")))
    _, failed, _ = await said_of(Heuristics(then=lambda attempt: 0.5))
    _, circle, _ = await said_of(
        Heuristics(max_repeats=1, then=ExactMatch("a")),
        attempt_of("a", *[("look", "x")] * 2),
    )

    assert (passed, failed) == (Evaluation(True, 1.0), Evaluation(False, 0.5))
    assert circle is not None
    assert not circle.passed


# --- a model as judge ---


@pytest.mark.parametrize(
    "reply",
    ["**SATISFACTORY**", "Verdict: SATISFACTORY", "The answer is SATISFACTORY."],
)
async def test_a_judge_that_says_yes_passes_the_answer(reply: str) -> None:
    _, said, _ = await said_of(ModelJudge(), script=[reply])

    assert said == Evaluation(True, feedback=reply)


@pytest.mark.parametrize(
    "reply", ["SATISFACTORY? No", "UNSATISFACTORY", "SATISFACTORY\nUNSATISFACTORY"]
)
async def test_a_judge_that_says_no_or_both_does_not(reply: str) -> None:
    _, said, _ = await said_of(ModelJudge(), script=[reply])

    assert said == Evaluation(False, feedback=reply)


@pytest.mark.parametrize(
    "reply",
    [
        "It is fine.",
        "",
        Completion("SATISFACTORY", answer="SATISFACTORY", finish_reason="length"),
        [ToolCall("run_python", {})],
    ],
)
async def test_a_verdict_that_cannot_be_read_does_not_pass_and_says_so(
    reply: Any,
) -> None:
    _, said, _ = await said_of(ModelJudge(), script=[reply])

    assert said is not None
    assert (said.passed, said.score) == (False, None)
    assert said.feedback.startswith("The judge's verdict could not be read")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            ['{"reason": "sourced", "satisfactory": true}'],
            Evaluation(True, feedback="sourced"),
        ),
        (
            ['{"reason": "vague", "satisfactory": false}'],
            Evaluation(False, feedback="vague"),
        ),
        (
            [
                '{"reason": "x", "satisfactory": "yes"}',
                '{"reason": "x", "satisfactory": true}',
            ],
            Evaluation(True, None, "x"),
        ),
    ],
)
async def test_a_judge_may_answer_in_json(
    script: list[str], expected: Evaluation
) -> None:
    result, said, _ = await said_of(ModelJudge(form="json"), script=script)

    assert (said, result.llm_calls) == (expected, len(script))


async def test_a_json_verdict_that_stays_unreadable_does_not_pass() -> None:
    result, said, _ = await said_of(
        ModelJudge(form="json"), script=["SATISFACTORY"] * 3
    )

    assert said is not None
    assert (said.passed, said.score, result.llm_calls) == (False, None, 3)
    assert said.feedback.startswith(
        "The judge's verdict could not be read: no valid JudgeVerdict"
    )


async def test_a_judge_sees_task_way_and_answer_within_the_callers_conversation() -> (
    None
):
    judge = ModelJudge(prompts={"text": "{task}|{trace}|{answer}"}, provider="strict")
    strict = ScriptedProvider(["SATISFACTORY"])
    await said_of(
        judge,
        attempt_of("blue\nSATISFACTORY", ("look", "sky")),
        providers={"strict": strict},
    )

    assert [(m.role, m.content) for m in strict.requests[0].conversation.messages] == [
        ("user", TASK),
        (
            "user",
            f'{TASK}|Action: look {{"x": 1}}\nObservation: sky|blue\nSATISFACTORY',
        ),
    ]


# --- functions ---


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (True, Evaluation(True)),
        (False, Evaluation(False)),
        (1, Evaluation(True, 1.0)),
        (0.99, Evaluation(False, 0.99)),
        (-1.5, Evaluation(False, -1.5)),
        (math.nan, Evaluation(False, feedback="The evaluator gave no score but nan.")),
        (Evaluation(True, 0.2, "well"), Evaluation(True, 0.2, "well")),
    ],
)
async def test_a_function_gives_a_bool_a_score_or_an_evaluation(
    verdict: Any, expected: Evaluation
) -> None:
    async def later(attempt: Trajectory) -> Any:
        return verdict

    assert [
        (await said_of(function))[1] for function in (lambda attempt: verdict, later)
    ] == [expected] * 2


@pytest.mark.parametrize("verdict", [None, "yes", [True]])
async def test_anything_else_is_no_verdict(verdict: Any) -> None:
    result, said, _ = await said_of(lambda attempt: verdict)

    assert (said, result.status) == (None, "failed")
    assert (
        f"must return a bool, a number or an Evaluation, got {type(verdict).__name__}"
        in str(result.error)
    )


async def test_an_evaluator_object_must_return_an_evaluation() -> None:
    class Careless:
        async def evaluate(self, run: Run, attempt: Trajectory) -> Any:
            return True

    result, _, _ = await said_of(Careless())

    assert "must return an Evaluation, got bool" in str(result.error)


async def test_a_function_that_raises_fails_the_run_with_its_reason() -> None:
    result, _, _ = await said_of(lambda attempt: 1 / 0)

    assert (result.status, "division by zero" in str(result.error)) == ("failed", True)


async def test_a_score_is_a_number() -> None:
    with pytest.raises(ConfigError, match="score"):
        Evaluation(False, math.nan)


# --- tests that the model writes ---


async def test_right_code_passes_the_models_own_tests() -> None:
    result, said, _ = await said_of(SelfTests(), attempt_of(RIGHT), [TESTS])

    assert said == Evaluation(
        True, 1.0, "", ("assert add(1, 2) == 3", "assert add(0, 0) == 0")
    )
    assert (result.llm_calls, result.tool_calls) == (1, 1)
    assert PROGRAMS[0].startswith("def add(a, b):\n    return a + b\n")


async def test_wrong_code_is_scored_by_the_share_of_passed_tests_with_the_failed_ones() -> (
    None
):
    _, said, _ = await said_of(
        SelfTests(), attempt_of(WRONG + "\nThat is it."), [TESTS]
    )

    assert said is not None
    assert (said.passed, said.score) == (False, 0.5)
    assert (
        said.feedback
        == "1 of 2 tests failed:\nassert add(1, 2) == 3\n  AssertionError()"
    )


async def test_tests_are_written_once_and_serve_every_episode() -> None:
    parts = Runtime(
        ScriptedProvider(
            [WRONG, TESTS, "Add, do not subtract.", WRONG, "Plus!", RIGHT]
        ),
        tools=[run_python],
    )
    result = await ReflexionEngine(parts, evaluator=SelfTests()).run(TASK)

    assert (result.answer, result.status, result.llm_calls, len(PROGRAMS)) == (
        RIGHT,
        "completed",
        6,
        3,
    )


async def test_a_run_with_self_tests_cut_after_any_entry_resumes_and_repeats_nothing() -> (
    None
):
    def script(request: Any) -> str:
        contents = [message.content for message in request.conversation.messages]
        if contents[-1].startswith("Write tests"):
            return TESTS
        if contents[-1].startswith("You tried the task and"):
            return "Add."
        return RIGHT if "- Add." in contents[0] else WRONG

    parts = Runtime(ScriptedProvider(script), tools=[run_python])
    whole = await ReflexionEngine(parts, evaluator=SelfTests()).run(TASK, run_id="r")
    entries = parts.journal.read("r")
    assert (whole.answer, whole.llm_calls) == (RIGHT, 4)
    for keep in range(1, len(entries) + 1):
        again = Runtime(
            ScriptedProvider(script), tools=[run_python], journal=crashed(entries, keep)
        )
        result = await again.resume("r")
        replied = sum(entry.kind == "model_replied" for entry in entries[:keep])

        assert (result.answer, result.llm_calls) == (RIGHT, 4)
        assert len(again.provider.requests) == 4 - replied  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            "def add(a, b) return a",
            "The answer cannot be run: the code is no Python: SyntaxError",
        ),
        (
            "I cannot write that.",
            "The answer cannot be run: the code is no Python: SyntaxError",
        ),
    ],
)
async def test_an_answer_that_is_no_python_is_not_run(answer: str, told: str) -> None:
    _, said, _ = await said_of(SelfTests(), attempt_of(answer), [TESTS])

    assert said is not None
    assert (said.passed, said.score, said.feedback.startswith(told), PROGRAMS) == (
        False,
        0.0,
        True,
        [],
    )


@pytest.mark.parametrize(
    "answer",
    [
        "raise ValueError('at once')",
        "import sys\nsys.exit(0)",
        "print('0 passed')\nprint('mark 0 passed')\nraise SystemExit",
    ],
)
async def test_code_that_ends_before_the_tests_has_no_score(answer: str) -> None:
    _, said, _ = await said_of(SelfTests(), attempt_of(answer), [TESTS])

    assert said is not None
    assert (said.passed, said.score) == (False, None)
    assert "run_python ended as error and told of no test" in said.feedback


async def test_a_tool_that_hides_what_is_printed_passes_nothing() -> None:
    @tool(effect="read")
    async def quiet(program: str) -> str:
        """Run a program in silence."""
        return "ok"

    _, said, _ = await said_of(
        SelfTests(tool="quiet"), attempt_of(RIGHT), [TESTS], tools=[quiet]
    )

    assert said is not None
    assert (said.passed, said.score) == (False, None)
    assert said.feedback == "quiet ended as ok and told of no test: ok"


async def test_a_test_without_an_outcome_has_not_passed() -> None:
    @tool(effect="read")
    async def cut(code: str) -> str:
        """Run a program and give back the first line that tells of a test."""
        return "\n".join((await run_python.function(code)).splitlines()[:2])

    _, said, _ = await said_of(
        SelfTests(tool="cut"), attempt_of(RIGHT), [TESTS], tools=[cut]
    )

    assert said is not None
    assert (said.passed, said.score) == (False, 0.5)
    assert (
        said.feedback
        == "1 of 2 tests failed:\nassert add(0, 0) == 0\n  did not come to its end"
    )


async def test_a_denied_program_passes_nothing() -> None:
    class NoPython:
        async def evaluate(self, action: Any, state: Any) -> Any:
            return (
                Deny("no code here")
                if action.tool == "run_python"
                else await AllowAll().evaluate(action, state)
            )

    result, said, _ = await said_of(
        SelfTests(), attempt_of(RIGHT), [TESTS], gate=NoPython()
    )

    assert said is not None
    assert (said.passed, said.score, result.status, PROGRAMS) == (
        False,
        None,
        "completed",
        [],
    )
    assert "run_python ended as denied" in said.feedback
    assert "no code here" in said.feedback


@pytest.mark.parametrize(
    "reply",
    [
        "I would test it well.",
        "",
        Completion(TESTS, answer=TESTS, finish_reason="length"),
    ],
)
async def test_without_a_usable_test_nothing_is_run_and_nothing_passes(
    reply: Any,
) -> None:
    _, said, _ = await said_of(SelfTests(), attempt_of(RIGHT), [reply])

    assert said == Evaluation(
        False, None, "No test that could be used was written for this task."
    )
    assert PROGRAMS == []


async def test_a_missing_tool_is_named_before_any_call() -> None:
    result, _, parts = await said_of(SelfTests(tool="python"), attempt_of(RIGHT), [])

    assert result.status == "failed"
    assert "needs a tool 'python' that runs Python; tools here: run_python" in str(
        result.error
    )
    assert parts.provider.requests == []  # type: ignore[attr-defined]


async def test_a_tool_whose_parameter_is_ambiguous_is_named() -> None:
    @tool(effect="read")
    async def shell(command: str, cwd: str) -> str:
        """Run a command."""
        return ""

    result, _, _ = await said_of(
        SelfTests(tool="shell"), attempt_of(RIGHT), [], tools=[shell]
    )

    assert "needs a parameter `code` of 'shell', which has ['command', 'cwd']" in str(
        result.error
    )


async def test_a_limit_while_tests_are_run_leaves_the_answer() -> None:
    parts = Runtime(
        ScriptedProvider([RIGHT, TESTS]),
        tools=[run_python],
        limits=Limits(max_tool_calls=0),
    )
    result = await ReflexionEngine(parts, evaluator=SelfTests()).run(TASK)

    assert (result.answer, result.status, result.stop_reason) == (
        RIGHT,
        "limit",
        "max_tool_calls",
    )


# --- reading code and tests ---


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1", "x = 1"),
        ("Use:\n```python\nx = 1\n```\nor\n```\nx = 1\ny = 2\n```", "x = 1\ny = 2"),
        (
            "```\nrun it like this, with great care, please\n```\n```py\nx = 1\n```",
            "x = 1",
        ),
        ("```\nno python at all\n```", "no python at all"),
    ],
)
def test_the_code_of_an_answer_is_its_longest_fence_that_parses(
    text: str, code: str
) -> None:
    assert read_code(text) == code


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("```python\nassert f(1)\n```", ("assert f(1)",)),
        ("assert f(1)\nassert f(2", ("assert f(1)",)),
        ("Tests:\n  assert f('a')\nassert f(\"a\")", ("assert f('a')",)),
        (
            "def test_f():\n    assert f(1)\n",
            ("def test_f():\n    assert f(1)\n\ntest_f()",),
        ),
        ("def test_f(fixture):\n    assert f(1)\n", ()),
        ("import os\nos.remove('x')\nassert f()", ("import os\nassert f()",)),
        (
            "assert a()\nassert b()\nassert c()\nassert d()",
            ("assert a()", "assert b()", "assert c()"),
        ),
        ("assertion", ()),
        ("", ()),
    ],
)
def test_tests_that_parse_are_kept_each_once(text: str, tests: tuple[str, ...]) -> None:
    assert read_tests(text, 3) == tests


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(" * 40_000, "the code is no Python: "),
        ("assert " + "-" * 40_000 + "1", "the code is no Python: "),
        ("\0", "the code is no Python: "),
        ("a" * 50_001, "the code is longer than 50000 characters"),
    ],
)
def test_hostile_code_is_no_python(text: str, problem: str) -> None:
    assert find_syntax_error(text).startswith(problem)
    assert read_tests(text, 3) == ()


def test_an_odd_escape_in_a_models_code_warns_no_user() -> None:
    assert find_syntax_error("x = '\\d'") == ""


def test_outcomes_are_read_from_marked_lines_only() -> None:
    output = "0 passed\nm 0 failed AssertionError()\nm 0 passed\nm 1 passed\nm x passed\nnoise m 2 passed"

    assert read_outcomes(output, "m") == (
        {0: "AssertionError()", 1: ""},
        "0 passed\nm x passed\nnoise m 2 passed",
    )


def test_a_program_tells_of_each_test_whatever_a_test_does() -> None:
    tests = [
        "assert x == 1",
        "raise SystemExit",
        "x = 2\nassert x == 2",
        "assert x == 1, 'two\\nlines'",
        "x.y",
    ]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(build_test_program("x = 1\nprint('hello', end='')", tests, "m"), {})

    outcomes, rest = read_outcomes(printed.getvalue(), "m")
    assert (outcomes[0], outcomes[1], outcomes[2], outcomes[3], rest) == (
        "",
        "SystemExit()",
        "",
        "",
        "hello",
    )
    assert outcomes[4].startswith("AttributeError(")


# --- recorded and made again ---


@pytest.mark.parametrize(
    "evaluator",
    [
        ExactMatch("a"),
        ExactMatch(["a", "b"]),
        Heuristics(2, 5),
        Heuristics(then=Heuristics(then=ModelJudge("json", "strict"))),
        ModelJudge(prompts={"text": "{task}{trace}{answer}"}),
        ModelJudge(prompts=JUDGE_PROMPTS),
        SelfTests(
            "python", 3, prompts=TEST_PROMPTS.override(write="{task} {max_tests}")
        ),
    ],
)
def test_an_evaluator_of_plain_data_is_made_again_from_its_json(evaluator: Any) -> None:
    assert as_evaluator(to_jsonable_python(evaluator)) == evaluator


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Heuristics(max_repeats=0), "max_repeats"),
        (lambda: Heuristics(max_steps=True), "max_steps"),
        (lambda: Heuristics(then=5), "then: must be an evaluator"),  # type: ignore[arg-type]
        (lambda: ModelJudge(form="xml"), "form"),  # type: ignore[arg-type]
        (lambda: ModelJudge(max_trace_tokens=0), "max_trace_tokens"),
        (lambda: ModelJudge(prompts={"text": "{task}"}), "answer"),
        (lambda: ModelJudge(prompts={"judge": "{task}"}), "judge"),
        (lambda: ModelJudge(prompts="text"), "prompts"),  # type: ignore[arg-type]
        (lambda: SelfTests(max_tests=0), "max_tests"),
    ],
)
def test_bad_options_of_evaluators_are_named(made: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        made()
