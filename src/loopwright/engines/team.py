"""Team: a task is split into tasks for agents, which work on them at once, and the results are joined."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeAlias, cast

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, create_model

from ..engine import LoopEngine
from ..errors import AskFailed
from ..messages import Conversation
from ..parsing import read_json_document
from ..prompts import PromptSet
from ..run import Run, Share
from .assignee import (
    Assignee,
    CompositeEngine,
    Part,
    attempt,
    check_assignees,
    find_engine,
    name_of,
    perform,
)
from .board import TaskDone, TaskPosted, TaskTaken
from .react import ReActEngine

PROMPTS = PromptSet(
    split="""\
Split the task above into tasks that can be done at the same time, each by one of these agents:
{agents}

At most {max_tasks} tasks. Each is a text that its agent understands without the others. Do not solve them.""",
    split_json="""\
Split the task above into tasks that can be done at the same time, each by one of these agents:
{agents}

At most {max_tasks} tasks. Each is a text that its agent understands without the others. Do not solve them.
Reply with a JSON list and nothing else, such as [{{"agent": "{agent}", "task": "what to do, in full"}}]""",
    rejected="That cannot be used: {reason}. Reply with the corrected JSON list and nothing else.",
    task="""\
The task above is split, and this is your part of it, number {number} of {total}; the others are done beside it:

{task}""",
    join="""\
The task above was split, and these are the results of its parts, in order:

{results}

Put them together into the answer to the whole task. Say where a part has no result.""",
)


class PlannedTask(Protocol):
    """A task of the split."""

    agent: str
    task: str


class TeamEngine(CompositeEngine):
    """Split a task into tasks for agents, have them done at once, and join the results.

    A split that names an agent that is not there is sent back with the reason, before anything of it runs. A task that
    fails loses no other: the join reads that there is no result. If no task has a result, the run fails with the error
    of the first one. The tasks stand on a board of facts (`TaskPosted`, `TaskTaken`, `TaskDone`), which any process can
    read while they are at work; see `Board`.

    Args:
        agents: the names of the agents; empty is all other agents of the runtime, and where there are none, a
            `ReActEngine` named "react".
        split: who splits the task: an engine, or an agent by name; `None` is the model itself.
        join: who joins the results, in the order of the tasks; `None` is the model itself.
        max_tasks: the maximum number of tasks.
        max_split_attempts: how often the split is asked for, including unusable ones.
        max_concurrency: how many tasks are under way at a time; `None` is all.
        share: what an agent may use of the budget: "rest" is all that is left, first come, first served; "equal" is an
            equal part for each task and one for the join. A loop ends at the turn in which its part is used up.
        prompts: `split` with {agents} and {max_tasks}, `split_json` with {agent} too, `rejected` with {reason}, `task`
            with {task}, {number} and {total}, `join` with {results}.
    """

    name = "team"
    agents: tuple[str, ...] = ()
    split: Assignee | None = None
    join: Assignee | None = None
    max_tasks: int = Field(default=10, ge=1)
    max_split_attempts: int = Field(default=3, ge=1)
    max_concurrency: int | None = Field(default=5, ge=1)
    share: Literal["rest", "equal"] = "rest"
    prompts: PromptSet = PROMPTS

    @property
    def assignees(self) -> Sequence[tuple[str, Assignee | None]]:
        """Who splits, who works and who joins."""
        workers = [(f"agents.{n}", name) for n, name in enumerate(self.agents, 1)]
        return (("split", self.split), *workers, ("join", self.join))

    async def solve(self, run: Run) -> str:
        """Split, post, have the tasks done, join."""
        workers = self._find_workers()
        check_assignees(self)
        ids = [run.new_id() for _ in range(self.max_tasks)]
        planned = await self._split(run, workers)
        share = run.share(len(planned) + 1) if self.share == "equal" else None
        works = [
            TaskWork(self, workers[each.agent], TaskPosted(task_id, number, each.agent, each.task), len(planned), share)
            for number, (task_id, each) in enumerate(zip(ids, planned, strict=False), 1)
        ]  # fmt: skip
        for work in works:
            run.note(work.posted)
        parts = await run.gather(*works, max_concurrency=self.max_concurrency)
        if not any(part.answer for part in parts):
            parts[0].require()
        results = "\n\n".join(map(_format_result, works, parts))
        run.offer(results)
        talk = run.conversation.user(self.prompts.fill("join", results=results))
        return await perform(run, self, self.join, talk, purpose="join")

    def _find_workers(self) -> dict[str, LoopEngine]:
        """Return the engines of the agents by their names."""
        own = self.runtime.agent_name
        names = self.agents or [name for name in self.runtime.agents if name != own]
        if not names:
            return {ReActEngine.name: ReActEngine(self.runtime)}
        return {name: find_engine(self, name, "agents") for name in names}

    async def _split(
        self, run: Run, workers: dict[str, LoopEngine]
    ) -> list[PlannedTask]:
        """Return the tasks; raise `AskFailed` if no usable split was given."""
        wanted = _build_plan_type(tuple(workers), self.max_tasks)
        about = "\n".join(self._describe(name) for name in workers)
        values: dict[str, str | int] = {"agents": about, "max_tasks": self.max_tasks}
        if self.split is None:
            talk = run.conversation.user(self.prompts.fill("split", **values))
            return await run.ask(talk, into=wanted, purpose="split")
        prompt = self.prompts.fill("split_json", **values, agent=next(iter(workers)))
        talk, reason = run.conversation.user(prompt), ""
        for _ in range(self.max_split_attempts):
            reply = await perform(run, self, self.split, talk, purpose="split")
            try:
                value = read_json_document(reply)
                return TypeAdapter[list[PlannedTask]](wanted).validate_python(value)
            except ValueError as problem:
                reason = _explain(problem)
            talk = talk.assistant(reply, origin="model")
            talk = talk.user(self.prompts.fill("rejected", reason=reason))
        raise AskFailed(
            f"split: {name_of(self.split)} gave no usable split in {self.max_split_attempts} attempts: {reason}"
        )

    def _describe(self, name: str) -> str:
        agent = self.runtime.agents.get(name)
        about = getattr(agent, "description", "") or "any task"
        return f"- {name}: {about}"


@dataclasses.dataclass(frozen=True)
class TaskWork:
    """The work on one task, in a branch of its own."""

    team: TeamEngine
    worker: LoopEngine
    posted: TaskPosted
    total: int
    share: Share | None

    async def __call__(self, run: Run) -> Part:
        """Return the outcome of the task; both its beginning and its end are noted."""
        posted, began = self.posted, run.now()
        run.note(TaskTaken(posted.id, posted.agent))
        talk = self._open(run)
        part = await attempt(
            run, self.team, self.worker, talk, purpose="task", share=self.share
        )
        seconds = round((run.now() - began).total_seconds(), 3)
        run.note(TaskDone(posted.id, part.status, seconds, part.answer, part.problem))
        await run.publish()
        return part

    def _open(self, run: Run) -> Conversation:
        posted = self.posted
        prompt = self.team.prompts.fill(
            "task", task=posted.task, number=posted.number, total=self.total
        )
        return run.conversation.user(prompt)


PlanType: TypeAlias = type[list[PlannedTask]]


@functools.lru_cache(maxsize=64)
def _build_plan_type(names: tuple[str, ...], max_tasks: int) -> PlanType:
    """Return the type of a split: tasks for these agents alone.

    Runs share it: to build the type takes a millisecond, and so do its schema and its reader, which are kept by type.
    """
    listed: Any = {"enum": list(names)}
    agent = Annotated[
        str, Field(json_schema_extra=listed), AfterValidator(_check_name(names))
    ]
    build: Any = create_model  # its overloads cannot express types of run time
    text = Field(min_length=1, pattern=r"\S", description="what to do, in full")
    planned: Any = build("PlannedTask", agent=(agent, ...), task=(str, text))
    bounds = Field(min_length=1, max_length=max_tasks)
    return cast("PlanType", Annotated[list[planned], bounds])


def _check_name(names: Sequence[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(
                f"there is no agent {name!r}; there are {', '.join(names)}"
            )
        return name

    return check


def _explain(problem: ValueError) -> str:
    if not isinstance(problem, ValidationError):
        return str(problem)
    return "; ".join(_list_problems(problem))


def _list_problems(problem: ValidationError) -> Iterator[str]:
    for detail in problem.errors(include_url=False):
        place = ".".join(map(str, detail["loc"]))
        yield f"{place}: {detail['msg']}" if place else detail["msg"]


def _format_result(work: TaskWork, part: Part) -> str:
    posted, content = work.posted, part.answer or f"(no result: {part.status})"
    return f"Part {posted.number}, by {posted.agent}: {posted.task}\n{content}"
