"""Evaluators of a trajectory: exact match, heuristics, self-written tests, a model as judge, a function.

An evaluator that consists of plain data is recorded with the run, so that `Runtime.resume` can rebuild it.
"""

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, Protocol, TypeAlias, cast

from pydantic import BaseModel, ConfigDict

from .._internal import dataclasses
from ..errors import AskFailed, ConfigError
from ..messages import Conversation, ToolCall, ToolSpec
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

MAX_QUOTED_CHARS = 500  # of a tool's text in a feedback

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
    """Decides whether a trajectory solved its task; a plain function of the trajectory works as well."""

    async def evaluate(self, run: Run, trajectory: Trajectory) -> Evaluation:
        """Evaluate a trajectory that has an answer. Reach models and tools through `run` only."""
        ...


Verdict: TypeAlias = bool | float | Evaluation
Judgement: TypeAlias = Callable[[Trajectory], Verdict | Awaitable[Verdict]]


@dataclasses.dataclass(frozen=True)
class ExactMatch:
    """Passes an answer that equals an expected one, ignoring case, punctuation, articles and whitespace.

    The feedback does not reveal the expected answer. After exact match in SQuAD (Rajpurkar et al., arXiv:1606.05250).
    """

    expected: str | Sequence[str]
    kind: Literal["exact-match"] = dataclasses.field(default="exact-match", init=False)

    def __post_init__(self) -> None:
        """Raise `ConfigError` if there is nothing to compare with."""
        is_single = isinstance(self.expected, str)
        accepted = (self.expected,) if is_single else tuple(self.expected)
        if not accepted or not all(str(text).strip() for text in accepted):
            raise ConfigError(
                f"expected: must be an answer or several, none of them blank; got {self.expected!r}"
            )
        object.__setattr__(self, "expected", accepted)

    async def evaluate(self, run: Run, trajectory: Trajectory) -> Evaluation:
        """Compare without a model call."""
        expected = {_normalize(answer) for answer in self.expected}
        answer = trajectory.answer
        if answer is not None and _normalize(answer) in expected:
            return Evaluation(True, 1.0)
        return Evaluation(False, 0.0, "The answer is not the one that was expected.")


def _normalize(answer: str) -> str:
    """Return the form to compare; an answer of only articles or punctuation stays as it is."""
    return normalize_answer(answer) or answer.strip().casefold()


@dataclasses.dataclass(frozen=True)
class Heuristics:
    """Fails a trajectory that repeats itself or is too long; passes the others to another evaluator.

    Args:
        max_repeats: how often in sequence the same call may give the same observation.
        max_steps: the maximum number of calls.
        then: evaluates a trajectory without these symptoms; `None` passes it.
    """

    max_repeats: int = 3
    max_steps: int = 30
    then: "Evaluator | Judgement | None" = None
    kind: Literal["heuristics"] = dataclasses.field(default="heuristics", init=False)

    def __post_init__(self) -> None:
        """Check the numbers, and rebuild the inner evaluator if it comes from a journal."""
        for name in ("max_repeats", "max_steps"):
            _check_positive(name, getattr(self, name))
        try:
            object.__setattr__(self, "then", as_evaluator(self.then))
        except ValueError as error:
            raise ConfigError(f"then: {error}") from None

    async def evaluate(self, run: Run, trajectory: Trajectory) -> Evaluation:
        """Check the calls of the trajectory first."""
        problem = self._find_problem(trajectory)
        if problem:
            return Evaluation(False, feedback=problem)
        if self.then is None:
            return Evaluation(True)
        return await evaluate(self.then, run, trajectory)

    def _find_problem(self, trajectory: Trajectory) -> str:
        actions = trajectory.actions
        if len(actions) > self.max_steps:
            return f"The attempt took {len(actions)} steps; {self.max_steps} should do."
        repeats, last = 0, None
        for call, observation in actions:
            current = call.name, call.arguments, observation
            repeats = repeats + 1 if current == last else 1
            last = current
            if repeats > self.max_repeats:
                return f"The attempt went in circles: {call.name} gave the same observation {repeats} times running."
        return ""


class JudgeVerdict(BaseModel):
    """A judge's verdict in JSON."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reason: str
    satisfactory: bool


@dataclasses.dataclass(frozen=True)
class ModelJudge:
    """Asks a model whether an answer is satisfactory; anything but a clear yes does not pass.

    Args:
        form: "text" reads SATISFACTORY or UNSATISFACTORY; "json" asks for a JSON object, with at most two repairs.
        provider: one of `Runtime(providers=...)`; `None` is the runtime's own.
        max_trace_tokens: how much of the trajectory the judge reads.
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
        object.__setattr__(
            self, "prompts", _find_overrides(self.prompts, JUDGE_PROMPTS)
        )

    async def evaluate(self, run: Run, trajectory: Trajectory) -> Evaluation:
        """Ask once; an unreadable verdict does not pass."""
        prompt = JUDGE_PROMPTS.override(**self.prompts).fill(
            self.form,
            task=trajectory.task,
            trace=trajectory.trace(self.max_trace_tokens, answer=False),
            answer=trajectory.answer or "",
        )
        conversation = run.conversation.user(prompt)
        try:
            if self.form == "json":
                return await self._ask_for_json(run, conversation)
            text = await run.ask(
                conversation, provider=self.provider, purpose="judge", again=False
            )
        except AskFailed as error:
            return Evaluation(
                False, feedback=f"The judge's verdict could not be read: {error}"
            )
        passed = read_verdict(text, "SATISFACTORY")
        if passed is None:
            feedback = "The judge's verdict could not be read. It said: "
            return Evaluation(False, feedback=feedback + text.strip())
        return Evaluation(passed, feedback=text.strip())

    async def _ask_for_json(self, run: Run, conversation: Conversation) -> Evaluation:
        verdict = await run.ask(
            conversation, into=JudgeVerdict, provider=self.provider, purpose="judge"
        )
        return Evaluation(verdict.satisfactory, feedback=verdict.reason)


@dataclasses.dataclass(frozen=True)
class SelfTests:
    """Runs the Python code of an answer against tests that the model wrote from the task alone.

    The tests are written once, when the first trajectory is evaluated, and used for all later ones. They may be wrong:
    then correct code fails (the paper observed that on MBPP). The score is the share of tests passed.

    Args:
        tool: the tool that runs Python; it takes the program as `code`, or as its only parameter, and returns what the
            program prints.
        max_tests: the maximum number of tests.
        provider: the provider that writes them, one of `Runtime(providers=...)`; `None` is the runtime's own.
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
        object.__setattr__(self, "prompts", _find_overrides(self.prompts, TEST_PROMPTS))

    async def evaluate(self, run: Run, trajectory: Trajectory) -> Evaluation:
        """Write the tests if there are none yet; run code and tests as one program through the gate."""
        parameter = self._find_parameter(run)
        tests = await self._get_tests(run, trajectory)
        if not tests:
            return Evaluation(
                False, feedback="No test that could be used was written for this task."
            )
        code = read_code(trajectory.answer or "")
        problem = find_syntax_error(code)
        if problem:
            return Evaluation(
                False, 0.0, f"The answer cannot be run: {problem}.", tests
            )
        # The code's own output must not be taken for a result.
        delimiter = run.new_id()
        program = build_test_program(code, tests, delimiter)
        observation = await run.call(ToolCall(self.tool, {parameter: program}))
        outcomes, printed = read_outcomes(observation.text, delimiter)
        if not outcomes:
            quoted = printed[:MAX_QUOTED_CHARS]
            feedback = f"{self.tool} ended as {observation.status} and told of no test: {quoted}"
            return Evaluation(False, None, feedback, tests)
        return _score_tests(tests, outcomes, printed)

    def _find_parameter(self, run: Run) -> str:
        """Return the name of the tool's parameter for the program."""
        spec = next((spec for spec in run.tools if spec.name == self.tool), None)
        if spec is None:
            known = ", ".join(spec.name for spec in run.tools) or "none"
            raise ConfigError(
                f"evaluator: SelfTests needs a tool {self.tool!r} that runs Python; tools here: {known}"
            )
        names = _list_parameters(spec)
        if "code" not in names and len(names) != 1:
            raise ConfigError(
                f"evaluator: SelfTests needs a parameter `code` of {self.tool!r}, which has {names}"
            )
        return "code" if "code" in names else names[0]

    async def _get_tests(self, run: Run, trajectory: Trajectory) -> tuple[str, ...]:
        """Return the tests of the latest evaluation that has some, or let the model write them."""
        for evaluation in reversed(trajectory.earlier):
            if evaluation.tests:
                return evaluation.tests
        prompts = TEST_PROMPTS.override(**self.prompts)
        prompt = prompts.fill("write", task=trajectory.task, max_tests=self.max_tests)
        try:
            reply = await run.ask(
                run.conversation.user(prompt),
                provider=self.provider,
                purpose="tests",
                again=False,
            )
            return read_tests(reply, self.max_tests)
        except AskFailed:
            return ()


def _list_parameters(spec: ToolSpec) -> list[str]:
    found = spec.schema.get("properties")
    return list(found) if isinstance(found, dict) else []


def _score_tests(
    tests: tuple[str, ...], outcomes: Mapping[int, str], printed: str
) -> Evaluation:
    """Build the evaluation from the outcome of each test; an empty outcome is a pass."""
    failed = [
        f"{test}\n  {outcomes.get(number, 'did not come to its end')}"
        for number, test in enumerate(tests)
        if outcomes.get(number) != ""
    ]
    if not failed:
        return Evaluation(True, 1.0, "", tests)
    lines = [f"{len(failed)} of {len(tests)} tests failed:", *failed]
    if printed:
        lines.append(f"The program printed: {printed[:MAX_QUOTED_CHARS]}")
    score = (len(tests) - len(failed)) / len(tests)
    return Evaluation(False, score, "\n".join(lines), tests)


async def evaluate(
    evaluator: "Evaluator | Judgement", run: Run, trajectory: Trajectory
) -> Evaluation:
    """Evaluate a trajectory; a plain function is called as an effect of the run named `evaluate`."""
    if not callable(evaluator) or hasattr(evaluator, "evaluate"):
        found = await cast(Evaluator, evaluator).evaluate(run, trajectory)
        if not isinstance(found, Evaluation):  # pyright: ignore[reportUnnecessaryIsInstance] - third-party code
            raise ConfigError(
                f"evaluator: evaluate() must return an Evaluation, got {type(found).__name__}"
            )
        return found

    async def judge() -> Evaluation:
        verdict = evaluator(trajectory)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        return _convert_verdict(verdict)

    return await run.effect("evaluate", judge, into=Evaluation)


def _convert_verdict(verdict: object) -> Evaluation:
    """Convert a function's verdict; a number is a score, and 1 or more passes."""
    if isinstance(verdict, Evaluation):
        return verdict
    if isinstance(verdict, bool):
        return Evaluation(verdict)
    if not isinstance(verdict, Real):
        raise ConfigError(
            f"evaluator: must return a bool, a number or an Evaluation, got {type(verdict).__name__}"
        )
    score = float(verdict)
    if not math.isfinite(score):
        return Evaluation(False, feedback=f"The evaluator gave no score but {score}.")
    return Evaluation(score >= 1, score)


def as_evaluator(value: object) -> Any:
    """Return an evaluator or a function as it is, and rebuild a recorded evaluator.

    Raises ValueError for anything else.
    """
    if isinstance(value, Mapping):
        return _rebuild(dict(cast("Mapping[str, Any]", value)))
    is_evaluator = callable(getattr(value, "evaluate", None)) or callable(value)
    if isinstance(value, type) or not (value is None or is_evaluator):
        raise ValueError(
            "must be an evaluator, such as ModelJudge(), or a function of the trajectory"
        )
    return value


def _rebuild(fields: dict[str, Any]) -> Any:
    """Rebuild a recorded evaluator from its fields."""
    evaluator = BUILT_IN.get(fields.pop("kind", ""))
    if evaluator is not None:
        known = {field.name for field in dataclasses.fields(evaluator)}
        if fields.keys() <= known:
            return evaluator(**fields)
    raise ValueError(f"is not one of {', '.join(BUILT_IN)}, so it cannot be made again")


def _check_positive(name: str, number: object) -> None:
    is_integer = isinstance(number, int) and not isinstance(number, bool)
    if not is_integer or cast(int, number) < 1:
        raise ConfigError(f"{name}: must be a whole number, 1 or more, got {number!r}")


def _find_overrides(prompts: object, default: PromptSet) -> dict[str, str]:
    """Return the texts that differ from the defaults."""
    if isinstance(prompts, PromptSet):
        return default.override(**prompts.texts).changes(default)
    if not isinstance(prompts, Mapping):
        raise ConfigError(
            f"prompts: must be a PromptSet or texts by name, got {prompts!r}"
        )
    texts = {
        str(name): str(text)
        for name, text in cast("Mapping[object, object]", prompts).items()
    }
    return default.override(**texts).changes(default)


# By the recorded name of each.
BUILT_IN: dict[str, Any] = {
    evaluator.kind: evaluator
    for evaluator in (ExactMatch, Heuristics, ModelJudge, SelfTests)
}
