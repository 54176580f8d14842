"""Map-reduce: the same for each item of a task at once, and the results put together."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from pydantic import Field

from ..errors import AskFailed
from ..events.run import Status
from ..messages import Conversation, Message
from ..prompts import PromptSet
from ..run import Run
from .assignee import (
    Assignee,
    CompositeEngine,
    Part,
    attempt,
    check_assignees,
    name_of,
    perform,
)

Split: TypeAlias = Literal["model", "lines", "paragraphs"]
"""Who splits a task into items: the model, or code at lines or paragraphs, the first of which says what to do."""

PROMPTS = PromptSet(
    split="""\
List the items of the task above: what it asks the same about, one after the other, each in full. At most {max_items}.
Do not solve the task.""",
    map="""\
Do the task above for this item alone, number {number} of {total}. The others are done beside it.

{item}""",
    map_part="""\
{task}

This is part {number} of {total}; the others are done beside it:

{item}""",
    reduce="""\
The task above was done for each of its items, with these results:

{results}

Put them together into the answer to the whole task. Say where an item has no result.""",
    combine="""\
The task above was done for each of its items. These are some of the results, in order:

{results}

Put them together into one result, and leave nothing out that the answer to the whole task needs.""",
)


@dataclasses.dataclass(frozen=True)
class ItemsSplit:
    """Fact: the items of a task."""

    items: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ItemMapped:
    """Fact: the outcome of an item, by its place from 1: who did it, and the result, or the problem with it."""

    number: int
    by: str
    status: Status
    content: str
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class ResultsReduced:
    """Fact: how many results were put together into one, and at which level, from 1."""

    level: int
    results: int
    content: str


class MapReduceEngine(CompositeEngine):
    """Do the same for each item of a task at once, then put the results together.

    An item without a result loses no other: the reducer reads that there is none. If no item has a result, the run
    fails with the error of the first one. More than `max_items` items are joined with their neighbours. More than
    `reduce_width` results are put together in levels.

    Args:
        map: who does an item: an engine, or an agent by name; `None` is one call of the model.
        reduce: who puts results together; `None` is one call of the model.
        items: the items; without them the task is split.
        split: who splits the task: "model" has the model list its items; "lines" and "paragraphs" are split by code,
            where the first one says what to do and each other one is an item, of which a mapper sees its own alone.
        max_items: the maximum number of items.
        reduce_width: how many results are put together at once.
        max_concurrency: how many items are under way at a time.
        prompts: `split` with {max_items}, `map` with {item}, {number} and {total}, `map_part` with {task} too, `reduce`
            and `combine` with {results}.
    """

    name = "map-reduce"
    map: Assignee | None = None
    reduce: Assignee | None = None
    items: tuple[str, ...] = ()
    split: Split = "model"
    max_items: int = Field(default=20, ge=1)
    reduce_width: int = Field(default=10, ge=2)
    max_concurrency: int | None = Field(default=5, ge=1)
    prompts: PromptSet = PROMPTS

    @property
    def assignees(self) -> Sequence[tuple[str, Assignee | None]]:
        """The mapper and the reducer."""
        return (("map", self.map), ("reduce", self.reduce))

    async def solve(self, run: Run) -> str:
        """Split, map, reduce."""
        check_assignees(self)
        talks = await self._split(run)
        mapped = await run.gather(
            *(self._map(number, talk) for number, talk in enumerate(talks, 1)),
            max_concurrency=self.max_concurrency,
        )
        if not any(part.answer for part in mapped):
            mapped[0].require()
        results = [
            _format_result(f"Item {number}", part.answer or "(no result)")
            for number, part in enumerate(mapped, 1)
        ]
        run.offer("\n\n".join(results))
        return await self._reduce(run, results, 1)

    async def _split(self, run: Run) -> list[Conversation]:
        """Return the conversation of each item."""
        if self.items or self.split == "model":
            items = list(self.items) or await self._list_items(run)
            prompt, given = "map", run.conversation
        else:
            items = _split_text(run.task, self.split)
            prompt, given = "map_part", _without_task(run.conversation)
        first = items.pop(0) if prompt == "map_part" and len(items) > 1 else ""
        items = _join_neighbours(items, self.max_items)
        run.note(ItemsSplit(tuple(items)))
        more = {"task": first} if prompt == "map_part" else {}
        return [
            given.user(self.prompts.fill(prompt, item=item, number=number, total=len(items), **more))
            for number, item in enumerate(items, 1)
        ]  # fmt: skip

    async def _list_items(self, run: Run) -> list[str]:
        """Return the items that the model lists; raise `AskFailed` if there is none."""
        prompt = self.prompts.fill("split", max_items=self.max_items)
        asked = run.conversation.user(prompt)
        listed = await run.ask(asked, into=list[str], purpose="split")
        items = [item.strip() for item in listed if item.strip()]
        if not items:
            raise AskFailed("split: the model listed no item of the task")
        return items

    def _map(self, number: int, talk: Conversation) -> "MapWork":
        return MapWork(self, number, talk)

    async def _reduce(self, run: Run, results: list[str], level: int) -> str:
        """Return one result of several, in levels if there are more than are put together at once."""
        width = self.reduce_width
        if len(results) > width:
            groups = [results[at : at + width] for at in range(0, len(results), width)]
            combined = await run.gather(
                *(ReduceWork(self, group, level) for group in groups),
                max_concurrency=self.max_concurrency,
            )
            results = [
                _format_result(f"Results {number}", content)
                for number, content in enumerate(combined, 1)
            ]
            return await self._reduce(run, results, level + 1)
        return await ReduceWork(self, results, level, prompt="reduce")(run)


@dataclasses.dataclass(frozen=True)
class MapWork:
    """The work on one item, in a branch of its own."""

    engine: MapReduceEngine
    number: int
    talk: Conversation

    async def __call__(self, run: Run) -> Part:
        """Return its outcome, noted."""
        mapper = self.engine.map
        part = await attempt(run, self.engine, mapper, self.talk, purpose="map")
        by = "model" if mapper is None else name_of(mapper)
        run.note(ItemMapped(self.number, by, part.status, part.answer, part.problem))
        return part


@dataclasses.dataclass(frozen=True)
class ReduceWork:
    """One reduce step, which combines some partial results."""

    engine: MapReduceEngine
    results: Sequence[str]
    level: int
    prompt: str = "combine"

    async def __call__(self, run: Run) -> str:
        """Return the combined result, noted."""
        results = "\n\n".join(self.results)
        prompt = self.engine.prompts.fill(self.prompt, results=results)
        reducer, talk = self.engine.reduce, run.conversation.user(prompt)
        content = await perform(run, self.engine, reducer, talk, purpose="reduce")
        run.note(ResultsReduced(self.level, len(self.results), content))
        return content


def _split_text(text: str, split: Split) -> list[str]:
    parts = text.splitlines() if split == "lines" else _split_paragraphs(text)
    return [part.strip() for part in parts if part.strip()] or [text]


def _split_paragraphs(text: str) -> Iterator[str]:
    paragraph: list[str] = []
    for line in text.splitlines():
        if line.strip():
            paragraph.append(line)
        else:
            yield "\n".join(paragraph)
            paragraph = []
    yield "\n".join(paragraph)


def _join_neighbours(items: list[str], limit: int) -> list[str]:
    """Return at most `limit` items, of which each has about as many of the given ones."""
    count = min(limit, len(items))
    bounds = [round(place * len(items) / count) for place in range(count + 1)]
    pairs = itertools.pairwise(bounds)
    return ["\n\n".join(items[start:end]) for start, end in pairs]


def _without_task(conversation: Conversation) -> Conversation:
    """Return a conversation without its latest user message, which is the task."""
    messages: list[Message] = list(conversation.messages)
    users = [at for at, message in enumerate(messages) if message.role == "user"]
    if users:
        del messages[users[-1]]
    return Conversation(messages)


def _format_result(title: str, content: str) -> str:
    return f"{title}:\n{content}"
