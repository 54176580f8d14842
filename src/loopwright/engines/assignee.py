"""Assignees: who does a part of a task: an agent by its name, an engine, or the model itself."""

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ..engine import LoopEngine
from ..errors import (
    AskFailed,
    ConfigError,
    Denied,
    LoopwrightError,
    ProviderError,
    Unreadable,
)
from ..events.run import Status
from ..messages import Conversation
from ..result import Result
from ..run import Run, Sampling, Share

Assignee: TypeAlias = LoopEngine | str
"""The type of an option that says who does a part: an engine, or an agent by its name, which may be defined later."""


PLAIN = Sampling()
FAILURES = (AskFailed, ConfigError, Denied, ProviderError, Unreadable)
"""The errors of one part, which leave the others alone; what else a verb raises ends or suspends the run."""


class CompositeEngine(LoopEngine):
    """An engine whose parts are done by assignees, which are checked before anything runs."""

    offers_tools = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_assignees(self, may_be_unknown=True)

    @property
    @abstractmethod
    def assignees(self) -> Sequence[tuple[str, Assignee | None]]:
        """The assignees with the names of their options; `None` is the model itself."""


def find_engine(engine: LoopEngine, assignee: Assignee, option: str) -> LoopEngine:
    """Return the engine of an assignee; raise `ConfigError` for an agent that is not there."""
    if isinstance(assignee, LoopEngine):
        return assignee
    agents = engine.runtime.agents
    if assignee not in agents:
        known = ", ".join(agents) or "none"
        raise ConfigError(
            f"{option}: must be an agent of the runtime, which has {known}, got {assignee!r}; "
            f"define it with runtime.agent({assignee!r}, ...)"
        )
    found: LoopEngine = agents[assignee].engine
    return found


def check_assignees(engine: LoopEngine, *, may_be_unknown: bool = False) -> None:
    """Raise `ConfigError` for an agent that is not there, that works for itself, or that works too deep."""
    _Check(engine.runtime.limits.max_depth, may_be_unknown).visit(engine, (engine,))


@dataclasses.dataclass(frozen=True)
class _Check:
    """Walks from an engine through those that work for it."""

    max_depth: int | None
    may_be_unknown: bool

    def visit(self, engine: LoopEngine, around: tuple[LoopEngine, ...]) -> None:
        """Check the engines that work for one; `around` ends with that."""
        for option, assignee in _list_parts(engine):
            names = " > ".join([*map(name_of, around), name_of(assignee)])
            if _is_around(assignee, around):
                raise ConfigError(
                    f"{option}: {name_of(assignee)} would work for itself in {names}; take another agent"
                )
            if self.max_depth is not None and len(around) > self.max_depth:
                raise ConfigError(
                    f"max_depth: at most {self.max_depth} engines may work below one another, got {names}; "
                    "let fewer delegate, or raise Limits(max_depth=...)"
                )
            is_name = isinstance(assignee, str)
            is_known = not is_name or assignee in engine.runtime.agents
            if self.may_be_unknown and not is_known:
                continue
            found = find_engine(engine, assignee, option)
            self.visit(found, (*around, found))


def _list_parts(engine: LoopEngine) -> Iterator[tuple[str, Assignee]]:
    """Yield the engines that work for one, each with the name of its option."""
    if isinstance(engine, CompositeEngine):
        parts = engine.assignees
        yield from ((option, each) for option, each in parts if each is not None)
        return
    for name, value in vars(engine).items():
        if isinstance(value, LoopEngine):
            yield name, value


def _is_around(assignee: Assignee, around: tuple[LoopEngine, ...]) -> bool:
    if isinstance(assignee, LoopEngine) and assignee.runtime is around[-1].runtime:
        # It is a part of the engine around it, and not the agent that this is of.
        return any(assignee is each for each in around)
    name = assignee if isinstance(assignee, str) else assignee.runtime.agent_name
    is_agent = name != "" and any(each.runtime.agent_name == name for each in around)
    return is_agent or any(assignee is each for each in around)


def name_of(assignee: Assignee) -> str:
    """Return the name of the agent, or of the engine if it is of none."""
    if isinstance(assignee, str):
        return assignee
    return assignee.runtime.agent_name or assignee.name


@dataclasses.dataclass(frozen=True)
class Part:
    """The outcome of a part of a task: an answer, or the error for which there is none."""

    answer: str
    status: Status
    error: LoopwrightError | None = None

    @property
    def problem(self) -> str:
        """Why there is no answer; empty if there is one."""
        return "" if self.error is None else str(self.error)

    def require(self) -> str:
        """Return the answer; raise the error if there is none."""
        if self.error is not None:
            raise self.error
        return self.answer


async def attempt(
    run: Run,
    engine: LoopEngine,
    assignee: Assignee | None,
    conversation: Conversation,
    *,
    purpose: str,
    sampling: Sampling = PLAIN,
    share: Share | None = None,
) -> Part:
    """Return the outcome of a part that an assignee did; `None` is one call of the engine's own model.

    Raises only what ends or suspends the run.
    """
    try:
        if assignee is None:
            answer = await run.ask(conversation, sampling=sampling, purpose=purpose)
            part = Part(answer, "completed")
        else:
            worker = find_engine(engine, assignee, purpose)
            part = _read_result(await run.delegate(worker, conversation, share=share))
    except FAILURES as failure:
        return Part("", "failed", failure)
    if part.error is None and not part.answer.strip():
        who = "the model" if assignee is None else name_of(assignee)
        blank = AskFailed(f"{purpose}: {who} gave an empty answer")
        return Part("", "failed", blank)
    return part


def _read_result(result: Result) -> Part:
    """Return the part of a child, which may have come to an answer at a limit too."""
    if result.answer is not None:
        return Part(result.answer, result.status)
    return Part("", result.status, result.error)


async def perform(
    run: Run,
    engine: LoopEngine,
    assignee: Assignee | None,
    conversation: Conversation,
    *,
    purpose: str,
    sampling: Sampling = PLAIN,
) -> str:
    """Return the answer of `attempt`; raise the error if there is none."""
    part = await attempt(
        run, engine, assignee, conversation, purpose=purpose, sampling=sampling
    )
    return part.require()
