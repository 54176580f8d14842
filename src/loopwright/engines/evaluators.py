"""Evaluators of an attempt: exact match, heuristics, tests that the model writes itself, a model as judge, a function.

An evaluator that is made of plain data is recorded with the run, so that `Runtime.resume` can make it again.
"""

import dataclasses
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, Protocol, TypeAlias, cast

from pydantic import BaseModel, ConfigDict

from ..errors import AskFailed, ConfigError
from ..messages import ToolCall, ToolSpec
from ..parsing.answers import normalize_answer
from ..parsing.self_tests import (
    build_test_program,
    find_syntax_error,
    read_code,
    read_outcomes,
    read_tests,
)
from ..parsing.verdicts import read_verdict
from ..prompts import PromptSet
from ..run import Run
from .trajectory import Evaluation, Trajectory

SHOWN = 500  # characters of foreign text in a feedback

JUDGED = """\
Judge an answer that was given to the task. Do not solve the task yourself.

Task:
{task}

How the answer was found:
{trace}

Answer:
{answer}

Is the answer complete, right, and borne out by how it was found? """
JUDGE_PROMPTS = PromptSet(
    text=JUDGED
    + "Write SATISFACTORY or UNSATISFACTORY alone on the first line. Say below it what is missing or wrong.",
    json=JUDGED + "Give the reason, then whether it is satisfactory.",
)
TEST_PROMPTS = PromptSet(
    write="""\
Write tests for the Python code that the task asks for. Do not write that code.

Task:
{task}

Write at most {max_tests} tests in one Python code fence. Each is one `assert` statement on a line of its own that \
calls the code by the names the task gives and needs nothing else. Cover the usual case, the edges, and what is easy \
to get wrong.""",
)


class Evaluator(Protocol):
    """Says whether an attempt solved its task; a plain function of the attempt will do in its place."""

    async def evaluate(self, run: Run, attempt: Trajectory) -> Evaluation:
        """Look at an attempt that has an answer. Reach models and tools through `run` only."""
        ...


Verdict: TypeAlias = bool | float | Evaluation
Judgement: TypeAlias = Callable[[Trajectory], Verdict | Awaitable[Verdict]]


@dataclasses.dataclass(frozen=True)
class ExactMatch:
    """Passes an answer that equals one of those expected, without regard to case, punctuation, articles and blanks.

    The feedback does not tell what was expected. After exact match in SQuAD (Rajpurkar et al., arXiv:1606.05250).
    """

    expected: str | Sequence[str]
    kind: Literal["exact-match"] = dataclasses.field(default="exact-match", init=False)

    def __post_init__(self) -> None:
        """Check that there is something to compare with."""
        accepted = (
            (self.expected,) if isinstance(self.expected, str) else tuple(self.expected)
        )
        if not accepted or not all(str(text).strip() for text in accepted):
            raise ConfigError(
                f"expected: must be an answer or several, none of them blank; got {self.expected!r}"
            )
        object.__setattr__(self, "expected", accepted)

    async def evaluate(self, run: Run, attempt: Trajectory) -> Evaluation:
        """Compare; no model is asked."""
        passed = attempt.answer is not None and _form(attempt.answer) in map(
            _form, self.expected
        )
        return Evaluation(
            passed,
            float(passed),
            "" if passed else "The answer is not the one that was expected.",
        )


def _form(answer: str) -> str:
    """What is compared: of an answer that is nothing but articles or punctuation, the answer as it is."""
    return normalize_answer(answer) or answer.strip().casefold()


@dataclasses.dataclass(frozen=True)
class Heuristics:
    """Fails an attempt that went in circles or on and on; the others are passed, or left to another evaluator.

    Args:
        max_repeats: how often running the same call may give the same observation.
        max_steps: how many calls there may be.
        then: evaluates what shows no such sign; `None` passes it.
    """

    max_repeats: int = 3
    max_steps: int = 30
    then: "Evaluator | Judgement | None" = None
    kind: Literal["heuristics"] = dataclasses.field(default="heuristics", init=False)

    def __post_init__(self) -> None:
        """Check the numbers, and make the inner evaluator again if it comes from a journal."""
        for name in ("max_repeats", "max_steps"):
            _check_positive(name, getattr(self, name))
        try:
            object.__setattr__(self, "then", as_evaluator(self.then))
        except ValueError as error:
            raise ConfigError(f"then: {error}") from None

    async def evaluate(self, run: Run, attempt: Trajectory) -> Evaluation:
        """Look at the calls of the attempt first."""
        sign = self._sign(attempt)
        if sign:
            return Evaluation(False, feedback=sign)
        return (
            Evaluation(True)
            if self.then is None
            else await evaluate(self.then, run, attempt)
        )

    def _sign(self, attempt: Trajectory) -> str:
        actions = attempt.actions
        if len(actions) > self.max_steps:
            return f"The attempt took {len(actions)} steps; {self.max_steps} should do."
        running, last = 0, None
        for call, observation in actions:
            this = call.name, call.arguments, observation
            running = running + 1 if this == last else 1
            last = this
            if running > self.max_repeats:
                return f"The attempt went in circles: {call.name} gave the same observation {running} times running."
        return ""


class JudgeVerdict(BaseModel):
    """A judge's verdict in JSON."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reason: str
    satisfactory: bool


@dataclasses.dataclass(frozen=True)
class ModelJudge:
    """Asks a model whether an answer is satisfactory; anything but a clear yes is no.

    Args:
        form: "text" reads SATISFACTORY or its contrary; "json" asks for a JSON object, with at most two repairs.
        provider: one of `Runtime(providers=...)`; `None` is the runtime's own.
        max_trace_tokens: how much of what the actor did it gets to see.
        prompts: overrides of `text` or `json`, which have {task}, {trace} and {answer}.
    """

    form: Literal["text", "json"] = "text"
    provider: str | None = None
    max_trace_tokens: int = 1600
    prompts: Mapping[str, Any] = dataclasses.field(
        default_factory=dict[str, str], hash=False
    )
    kind: Literal["model-judge"] = dataclasses.field(default="model-judge", init=False)

    def __post_init__(self) -> None:
        """Check form, size and prompts."""
        if self.form not in ("text", "json"):
            raise ConfigError(f'form: must be "text" or "json", got {self.form!r}')
        _check_positive("max_trace_tokens", self.max_trace_tokens)
        object.__setattr__(self, "prompts", _changes(self.prompts, JUDGE_PROMPTS))

    async def evaluate(self, run: Run, attempt: Trajectory) -> Evaluation:
        """Ask once; a reply that is no verdict does not pass."""
        prompt = JUDGE_PROMPTS.override(**self.prompts).fill(
            self.form,
            task=attempt.task,
            trace=attempt.trace(self.max_trace_tokens, answer=False),
            answer=attempt.answer or "",
        )
        conversation = run.conversation.user(prompt)
        try:
            if self.form == "json":
                verdict = await run.ask(
                    conversation,
                    into=JudgeVerdict,
                    provider=self.provider,
                    purpose="judge",
                )
                return Evaluation(verdict.satisfactory, feedback=verdict.reason)
            text = await run.ask(conversation, provider=self.provider, purpose="judge")
        except AskFailed as error:
            return Evaluation(
                False, feedback=f"The judge's verdict could not be read: {error}"
            )
        said = read_verdict(text, "SATISFACTORY")
        unread = (
            ""
            if said is not None
            else "The judge's verdict could not be read. It said: "
        )
        return Evaluation(said is True, feedback=unread + text.strip())


@dataclasses.dataclass(frozen=True)
class SelfTests:
    """Runs Python code that is the answer against tests that the model wrote from the task alone.

    The tests are written once, when the first attempt is evaluated, and serve all later ones. They may be wrong: then
    right code fails (the paper saw that on MBPP). The score is the share of tests passed.

    Args:
        tool: the tool that runs Python; it takes the program as `code`, or as its only parameter, and gives back what
            the program prints.
        max_tests: how many tests are kept.
        provider: who writes them, one of `Runtime(providers=...)`; `None` is the runtime's own.
        prompts: override of `write`, which has {task} and {max_tests}.
    """

    tool: str = "run_python"
    max_tests: int = 6
    provider: str | None = None
    prompts: Mapping[str, Any] = dataclasses.field(
        default_factory=dict[str, str], hash=False
    )
    kind: Literal["self-tests"] = dataclasses.field(default="self-tests", init=False)

    def __post_init__(self) -> None:
        """Check number and prompts."""
        _check_positive("max_tests", self.max_tests)
        object.__setattr__(self, "prompts", _changes(self.prompts, TEST_PROMPTS))

    async def evaluate(self, run: Run, attempt: Trajectory) -> Evaluation:
        """Write the tests if there are none yet, and run code and tests as one program through the gate."""
        parameter = self._parameter(run)
        tests = next(
            (e.tests for e in reversed(attempt.earlier) if e.tests), ()
        ) or await self._written(run, attempt)
        if not tests:
            return Evaluation(
                False, feedback="No test that could be used was written for this task."
            )
        code = read_code(attempt.answer or "")
        problem = find_syntax_error(code)
        if problem:
            return Evaluation(
                False, 0.0, f"The answer cannot be run: {problem}.", tests
            )
        mark = (
            run.new_id()
        )  # so that what the code prints by itself is not taken for a result
        observation = await run.call(
            ToolCall(self.tool, {parameter: build_test_program(code, tests, mark)})
        )
        outcomes, printed = read_outcomes(observation.text, mark)
        if not outcomes:
            told = f"{self.tool} ended as {observation.status} and told of no test: {printed[:SHOWN]}"
            return Evaluation(False, None, told, tests)
        return _scored(tests, outcomes, printed)

    def _parameter(self, run: Run) -> str:
        spec = next((spec for spec in run.tools if spec.name == self.tool), None)
        if spec is None:
            known = ", ".join(spec.name for spec in run.tools) or "none"
            raise ConfigError(
                f"evaluator: SelfTests needs a tool {self.tool!r} that runs Python; tools here: {known}"
            )
        names = _parameters(spec)
        if "code" not in names and len(names) != 1:
            raise ConfigError(
                f"evaluator: SelfTests needs a parameter `code` of {self.tool!r}, which has {names}"
            )
        return "code" if "code" in names else names[0]

    async def _written(self, run: Run, attempt: Trajectory) -> tuple[str, ...]:
        prompts = TEST_PROMPTS.override(**self.prompts)
        prompt = prompts.fill("write", task=attempt.task, max_tests=self.max_tests)
        try:
            said = await run.ask(
                run.conversation.user(prompt), provider=self.provider, purpose="tests"
            )
            return read_tests(said, self.max_tests)
        except AskFailed:
            return ()


def _parameters(spec: ToolSpec) -> list[str]:
    found = spec.schema.get("properties")
    return list(found) if isinstance(found, dict) else []


def _scored(
    tests: tuple[str, ...], outcomes: Mapping[int, str], printed: str
) -> Evaluation:
    failed = [
        f"{test}\n  {outcomes.get(number, 'did not come to its end')}"
        for number, test in enumerate(tests)
        if outcomes.get(number) != ""
    ]
    told = (
        f"{len(failed)} of {len(tests)} tests failed:\n" + "\n".join(failed)
        if failed
        else ""
    )
    shown = f"\nThe program printed: {printed[:SHOWN]}" if failed and printed else ""
    return Evaluation(
        not failed, (len(tests) - len(failed)) / len(tests), told + shown, tests
    )


async def evaluate(
    evaluator: "Evaluator | Judgement", run: Run, attempt: Trajectory
) -> Evaluation:
    """What an evaluator says; a plain function is asked once, as an effect of the run named `evaluate`."""
    if not callable(evaluator) or hasattr(evaluator, "evaluate"):
        given = cast(Evaluator, evaluator)
        said = await given.evaluate(run, attempt)
        if not isinstance(said, Evaluation):  # pyright: ignore[reportUnnecessaryIsInstance] - foreign code
            raise ConfigError(
                f"evaluator: evaluate() must return an Evaluation, got {type(said).__name__}"
            )
        return said

    async def judged() -> Evaluation:
        said = evaluator(attempt)
        return _evaluation(await said if inspect.isawaitable(said) else said)

    return await run.effect("evaluate", judged, into=Evaluation)


def _evaluation(said: object) -> Evaluation:
    """A function's verdict: a number is a score, and 1 or more passes."""
    if isinstance(said, Evaluation):
        return said
    if isinstance(said, bool):
        return Evaluation(said)
    if not isinstance(said, Real):
        raise ConfigError(
            f"evaluator: must return a bool, a number or an Evaluation, got {type(said).__name__}"
        )
    score = float(said)
    if not math.isfinite(score):
        return Evaluation(False, feedback=f"The evaluator gave no score but {score}.")
    return Evaluation(score >= 1, score)


def as_evaluator(given: object) -> Any:
    """An evaluator or a function as it is, a recorded evaluator made again; ValueError for anything else."""
    if isinstance(given, Mapping):
        fields = dict(cast("Mapping[str, Any]", given))
        made = BUILT_IN.get(fields.pop("kind", ""))
        if made is None or not fields.keys() <= {
            field.name for field in dataclasses.fields(made)
        }:
            raise ValueError(
                f"is not one of {', '.join(BUILT_IN)}, so it cannot be made again"
            )
        return made(**fields)
    if isinstance(given, type) or not (
        given is None or callable(getattr(given, "evaluate", None)) or callable(given)
    ):
        raise ValueError(
            "must be an evaluator, such as ModelJudge(), or a function of the attempt"
        )
    return given


def _check_positive(name: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ConfigError(f"{name}: must be a whole number, 1 or more, got {number!r}")


def _changes(prompts: object, default: PromptSet) -> dict[str, str]:
    """What is overridden, as plain texts."""
    if isinstance(prompts, PromptSet):
        return default.override(**prompts.texts).changes(default)
    if not isinstance(prompts, Mapping):
        raise ConfigError("prompts: must be a PromptSet or texts by name")
    texts = {
        str(name): str(text)
        for name, text in cast("Mapping[object, object]", prompts).items()
    }
    return default.override(**texts).changes(default)


BUILT_IN: dict[str, Any] = {
    made.kind: made
    for made in (
        ExactMatch,
        Heuristics,
        ModelJudge,
        SelfTests,
    )  # the recorded name of each
}
