"""Memories: after a run, remember what happened, who came up, what its person prefers and what was learnt."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from ..errors import ConfigError
from ..events.run import Status
from ..knowledge.base import MAX_MARKS, MAX_NAME, Knowledge, Relation, Remembered
from ..labels import CONFIDENTIAL
from ..run import Run
from .base import EndedRun, FollowUp
from .extraction import (
    find_category,
    find_entities,
    find_preferences,
    find_topic,
    shorten,
)
from .learned_skills import write_skill
from .memory_file import write_preferences
from .reflection import Reflected, reflect
from .transcript import read_calls, read_people

MAX_EPISODE = 400
"""Characters of an episode."""
MAX_TASK = 120
MAX_GIST_TASK, MAX_GIST = 200, 400


class Memories(FollowUp):
    """Stores what a run leaves to be remembered in the runtime's store of knowledge, once, with the run's label and scope.

    Args:
        episodic: what was asked and how it ended, as a text of at most 400 characters; its score is its importance.
        entities: the names that came up, at most 20.
        preferences: what people said they always want, by explicit patterns; no page or tool counts.
        reflection: what a model finds can be learnt, which costs a call.
        adversarial: what a model finds that assumes the answer to be wrong, which costs another one.
        skills_from: the least number of calls of a run that is written as a skill, of two different tools; 0 for none.
        skills_folder: where skills are written as SKILL.md, for the toolbox `skills`; empty for nowhere.
        memory_folder: where preferences are also written, to SCOPE/MEMORY.md, for people to read and edit; those of a run
            that read something confidential are not; empty for nowhere.
    """

    name: ClassVar[str] = "memories"
    statuses: ClassVar[tuple[Status, ...]] = ("completed", "limit", "stuck")
    needs_knowledge: ClassVar[bool] = True
    episodic: bool = True
    entities: bool = True
    preferences: bool = True
    reflection: bool = False
    adversarial: bool = False
    skills_from: int = Field(default=2, ge=0)
    skills_folder: str = ""
    memory_folder: str = ""

    async def follow(self, run: Run, ended: EndedRun) -> str:
        """Store each kind of memory in an effect of its own."""
        people, stored = read_people(ended), dict[str, int]()
        for kind, items in self._find(ended, people):
            stored[kind] = await store_items(run, ended, kind, items)
        lessons = [
            await reflect(run, ended, hostile=hostile)
            for hostile, is_wanted in ((False, self.reflection), (True, self.adversarial))
            if is_wanted
        ]  # fmt: skip
        items = _make_lessons(lessons)
        stored["reflection"] = await store_items(run, ended, "reflection", items)
        stored["skill"] = await self._learn(run, ended)
        stored["line of MEMORY.md"] = await self._write_file(run, ended, people)
        found = [f"{count} {kind}" for kind, count in stored.items() if count]
        return f"stored: {', '.join(found) or 'nothing'}"

    def _find(
        self, ended: EndedRun, people: Sequence[str]
    ) -> list[tuple[str, list[Remembered]]]:
        """Return the memories that need no model, by kind."""
        found: list[tuple[str, list[Remembered]]] = []
        if self.episodic:
            found.append(("episode", [_make_episode(ended)]))
        if self.entities:
            found.append(("entity", _make_entities(ended, people)))
        if self.preferences:
            found.append(("preference", _make_preferences(people)))
        return found

    async def _write_file(
        self, run: Run, ended: EndedRun, people: Sequence[str]
    ) -> int:
        """Write preferences to the file of the scope; return how many lines are new."""
        lines = find_preferences(people) if self.preferences else []
        is_confidential = ended.label in CONFIDENTIAL
        if not self.memory_folder or not lines or is_confidential:
            return 0

        async def write() -> int:
            return write_preferences(self.memory_folder, ended.scope, lines)

        return await run.effect("memories:file", write, into=int)

    async def _learn(self, run: Run, ended: EndedRun) -> int:
        """Write the calls of the run as a skill, if it completed; return how many were written."""
        calls = read_calls(ended.entries)
        is_wanted = bool(self.skills_folder) and ended.result.status == "completed"
        if not is_wanted or not self.skills_from:
            return 0

        async def write() -> str:
            return write_skill(self.skills_folder, calls, self.skills_from)

        return int(bool(await run.effect("memories:skill", write, into=str)))


class AnswerGist(FollowUp):
    """Stores the gist of an answer in the runtime's store of knowledge; `KnowledgeBridge(auto_persist=True)` adds it."""

    name: ClassVar[str] = "answer-gist"
    needs_knowledge: ClassVar[bool] = True

    async def follow(self, run: Run, ended: EndedRun) -> str:
        """Store it, unless the run has no answer."""
        asked = " ".join(ended.task.split())[:MAX_GIST_TASK]
        gist = " ".join((ended.result.answer or "").split())[:MAX_GIST]
        item = Remembered(f"{asked}: {gist}", kind="answer")
        stored = await store_items(run, ended, "answer", [item])
        return f"stored: {stored} answer"


async def store_items(
    run: Run, ended: EndedRun, kind: str, items: Sequence[Remembered]
) -> int:
    """Store items with label, trust and scope of a run that ended, in one effect; return how many are there."""
    if not items:
        return 0
    store = _need_store(ended.knowledge)

    async def keep() -> int:
        ids = [
            await store.store(_own(ended, item), key=f"{ended.key}:{kind}:{number}")
            for number, item in enumerate(items)
        ]
        return sum(1 for id in ids if id)

    return await run.effect(f"memories:{kind}", keep, into=int)


def _own(ended: EndedRun, item: Remembered) -> Remembered:
    return dataclasses.replace(
        item, label=ended.label, untrusted=ended.untrusted, source_run=ended.run_id, scope=ended.scope
    )  # fmt: skip


def _need_store(store: Knowledge | None) -> Knowledge:
    if store is None:
        raise ConfigError(
            "knowledge: memories need a store, got None; pass Runtime(knowledge=...)"
        )
    return store


def _make_episode(ended: EndedRun) -> Remembered:
    """Return what was asked and how it ended; what took work, or failed, is more important."""
    result = ended.result
    outcome = result.answer or f"no answer ({result.stop_reason})"
    text = f"{shorten(ended.task, MAX_TASK)} -> {outcome}"
    calls = min(result.tool_calls, 4)
    failed = 0.2 if result.status != "completed" else 0.0
    score = round(0.6 + 0.05 * calls + failed, 2)
    tools = dict.fromkeys(call.tool for call in read_calls(ended.entries))
    tags = tuple(name for name in (result.status, *tools) if len(name) <= MAX_NAME)
    return Remembered(
        shorten(text, MAX_EPISODE), kind="episode", score=score, category=ended.started.engine, tags=tags[:MAX_MARKS]
    )  # fmt: skip


def _make_entities(ended: EndedRun, people: Sequence[str]) -> list[Remembered]:
    """Return the names that came up, each with those that came up with it."""
    asked = shorten(ended.task, MAX_TASK)
    names = find_entities([*people, ended.result.answer or ""])
    return [
        Remembered(
            f"{name}: came up in {asked!r}", kind="entity", topic=name.casefold(),
            relations=tuple(Relation("came up with", other) for other in names if other != name),
        )
        for name in names
    ]  # fmt: skip


def _make_preferences(people: Sequence[str]) -> list[Remembered]:
    return [
        Remembered(text, kind="preference", topic=find_topic(text), category=find_category(text))
        for text in find_preferences(people)
    ]  # fmt: skip


def _make_lessons(lessons: Sequence[Reflected | None]) -> list[Remembered]:
    """Return the patterns that were found, each once, as sure as the model was."""
    scores: dict[str, float] = {}
    for lesson in lessons:
        for pattern in () if lesson is None else lesson.patterns:
            text = shorten(pattern, MAX_EPISODE)
            confidence = 0.0 if lesson is None else lesson.confidence
            scores[text] = max(scores.get(text, 0.0), confidence)
    return [
        Remembered(text, kind="reflection", score=score)
        for text, score in scores.items()
        if text
    ]
