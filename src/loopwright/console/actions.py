"""What a person may do with a run from the console, why not, and how it is done."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias

from .._internal import dataclasses
from .._kernel.control.run_control import RunControl
from ..errors import ConfigError
from ..events.run import Question
from ..journals.base import RESUMABLE
from ..principals import ApprovalRule, Principal, Sender
from ..tools.resolution import (
    CallCompleted,
    CallNotExecuted,
    OutcomeUnknown,
    Resolution,
)
from .users import RIGHT_OF_ACTION, ConsoleUser

NO_RUNTIME = (
    "needs a runtime, which has the model and the tools: serve the page with --config agents.toml, or mount it in "
    "your application (`Console(runtime, user=...)`)"
)
ALWAYS = (
    "steer",
    "add_context",
    "follow_up",
    "override",
    "stop",
    "abort",
    "declassify",
)
"""What can be done with each run that has not ended."""
Body: TypeAlias = Mapping[str, Any]
Send: TypeAlias = Callable[[RunControl, Body, Sender], Awaitable[None]]


@dataclasses.dataclass(frozen=True)
class RunState:
    """What decides about the controls of a run.

    Args:
        status: that of the list of runs.
        is_paused: whether it is paused between two steps.
        has_owner: whether a process is at work on it.
        retry_problem: why it cannot be retried; empty if it can.
        questions: what it asks.
        has_runtime: whether the console has a runtime, which can continue runs.
        rule: whose approvals count, as it was started with; `None` for those of everyone.
        starter: who started it.
    """

    status: str
    is_paused: bool
    has_owner: bool
    retry_problem: str
    questions: tuple[Question, ...]
    has_runtime: bool
    rule: ApprovalRule | None = None
    starter: Principal | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it receives no more commands."""
        return self.status not in RESUMABLE

    def asks(self, *about: str) -> bool:
        """Whether it asks a question of one of these kinds."""
        return any(question.about in about for question in self.questions)


def find_reasons(state: RunState, user: ConsoleUser) -> dict[str, str]:
    """Return for each action why a user cannot do it now; an empty text if they can."""
    return {
        name: user.find_problem(RIGHT_OF_ACTION.get(name, "operate")) or reason
        for name, reason in _find_reasons(state, user).items()
    }


def _find_reasons(state: RunState, user: ConsoleUser) -> dict[str, str]:
    ended = f"the run has ended ({state.status})" if state.has_ended else ""
    paused = "it is paused already" if state.is_paused else ""
    unpaused = "" if state.is_paused else "it is not paused"
    at_work = "a process is at work on it" if state.has_owner else ""
    commands = {
        **dict.fromkeys(ALWAYS, ""),
        **_find_reasons_of_answers(state, user),
        "pause": paused,
        "unpause": unpaused,
        "close": at_work,
        "resume": _find_reason_of_resume(state),
    }
    return {
        **{name: ended or reason for name, reason in commands.items()},
        "retry": state.retry_problem,
        "fork": "" if state.has_runtime else NO_RUNTIME,
    }


def _find_reasons_of_answers(state: RunState, user: ConsoleUser) -> dict[str, str]:
    rule = user.find_problem_of_rule(state.rule, state.starter)
    approval = "" if state.asks("approval") else "no call waits for approval"
    question = "" if state.asks("question") else "it asks its user nothing"
    is_known = not state.asks("doubt", "failure")
    outcome = "the outcome of every call is known" if is_known else ""
    return {
        "approve": approval or rule,
        "deny": approval,
        "answer": question,
        "resolve": outcome,
    }


def _find_reason_of_resume(state: RunState) -> str:
    if state.has_owner:
        return "a process is at work on it"
    if state.status == "parked":
        return "it is parked: have it retried first"
    return "" if state.has_runtime else NO_RUNTIME


# --- how it is done ---


def _read_text(body: Body, name: str = "text") -> str:
    text = body.get(name, "")
    if not isinstance(text, str):
        raise ConfigError(f"{name}: must be a text, got {text!r:.80}")
    return text


def _read_seconds(body: Body) -> float | None:
    seconds = body.get("seconds")
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if seconds is not None and not is_number:
        raise ConfigError(f"seconds: must be a number, got {seconds!r:.80}")
    return seconds


def _read_scope(body: Body) -> Literal["run", "thread"]:
    scope = body.get("scope", "run")
    if scope == "run":
        return "run"
    if scope == "thread":
        return "thread"
    raise ConfigError(f"scope: must be run or thread, got {scope!r:.80}")


def _read_resolution(body: Body) -> Resolution:
    verdicts: dict[str, Callable[[], Resolution]] = {
        "done": lambda: CallCompleted(_read_text(body, "result")),
        "not_done": CallNotExecuted,
        "unknown": OutcomeUnknown,
    }
    verdict = _read_text(body, "verdict")
    if verdict not in verdicts:
        raise ConfigError(
            f"verdict: must be one of {', '.join(verdicts)}, got {verdict!r:.80}"
        )
    return verdicts[verdict]()


def _read_question(body: Body) -> str:
    question = _read_text(body, "question")
    if not question:
        raise ConfigError("question: name the question, by its id")
    return question


def _approve(control: RunControl, body: Body, by: Sender) -> Awaitable[None]:
    return control.approve(
        _read_question(body),
        arguments=body.get("arguments"),
        seconds=_read_seconds(body),
        scope=_read_scope(body),
        by=by,
    )


def _deny(control: RunControl, body: Body, by: Sender) -> Awaitable[None]:
    return control.deny(_read_question(body), _read_text(body, "reason"), by=by)


def _answer(control: RunControl, body: Body, by: Sender) -> Awaitable[None]:
    return control.answer(
        _read_text(body), question=_read_text(body, "question") or None, by=by
    )


def _override(control: RunControl, body: Body, by: Sender) -> Awaitable[None]:
    return control.override(_read_text(body, "tool"), body.get("arguments", {}), by=by)


def _declassify(control: RunControl, body: Body, by: Sender) -> Awaitable[None]:
    return control.declassify(
        body.get("label", ""),
        _read_text(body, "reason"),
        trusted=bool(body.get("trusted")),
        by=by,
    )


def _resolve(control: RunControl, body: Body, by: Sender) -> Awaitable[None]:
    return control.resolve(_read_question(body), _read_resolution(body), by=by)


SENDERS: Mapping[str, Send] = {
    "pause": lambda control, body, by: control.pause(by=by),
    "unpause": lambda control, body, by: control.unpause(by=by),
    "stop": lambda control, body, by: control.stop(by=by),
    "abort": lambda control, body, by: control.abort(by=by),
    "steer": lambda control, body, by: control.steer(_read_text(body), by=by),
    "add_context": lambda control, body, by: control.add_context(
        _read_text(body), by=by
    ),
    "follow_up": lambda control, body, by: control.follow_up(_read_text(body), by=by),
    "override": _override,
    "answer": _answer,
    "approve": _approve,
    "deny": _deny,
    "declassify": _declassify,
    "resolve": _resolve,
    "retry": lambda control, body, by: control.retry(_read_text(body, "reason"), by=by),
    "close": lambda control, body, by: control.close(_read_text(body, "reason"), by=by),
}
"""How each action is sent to a run; those that continue a run need a runtime."""
