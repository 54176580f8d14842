"""The people of a world: they answer what runs ask, and meddle with them."""

import asyncio
import contextlib

from ..._kernel.control.questions import open_questions
from ..._kernel.control.run_control import RunControl
from ...errors import LoopwrightError
from ...events.run import Question
from ...journals.base import RunInfo
from ...tools.resolution import CallCompleted, CallNotExecuted
from .programs import describe_call
from .surroundings import Surroundings


class People:
    """Those who watch over the runs of a world, at a machine of their own."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._random = world.source("people")
        self._paused: set[str] = set()
        self._asked: dict[str, tuple[str, tuple[Question, ...]]] = {}
        """What a run asks, by its name, with the hash of the last entry that it was read from."""

    async def mind_runs(self) -> None:
        """Answer what runs ask, in time, and do what people do."""
        while not self._world.has_ended():
            slow = self._world.is_faulty("people")
            await asyncio.sleep(self._random.uniform(0.5, 20.0 if slow else 3.0))
            for info in self._world.store.runs(unfinished=True):
                with contextlib.suppress(
                    LoopwrightError
                ):  # the run continued meanwhile
                    await self._mind_run(info)

    async def _mind_run(self, info: RunInfo) -> None:
        world, control = self._world, self._world.control(info.run_id)
        if world.is_faulty("people"):
            await self._meddle(control, info.run_id)
        elif world.is_calm:
            await self._restore(control, info)
        for question in self._read_questions(info.run_id):
            if world.is_calm or self._random.random() < 0.8:
                await self._decide(control, info.run_id, question)

    def _read_questions(self, run_id: str) -> tuple[Question, ...]:
        """Return what a run asks, read again only where it has other entries than at the last look."""
        entries = self._world.store.read(run_id)
        head = entries[-1].hash if entries else ""
        known, asked = self._asked.get(run_id, ("", ()))
        if head != known:
            asked = open_questions(entries)
            self._asked[run_id] = head, asked
        return asked

    async def _restore(self, control: RunControl, info: RunInfo) -> None:
        """Let a run continue that people paused, or that was parked because its processes died."""
        if info.run_id in self._paused:
            await control.unpause()
            self._paused.discard(info.run_id)
        if info.status == "parked":
            await control.retry()

    async def _decide(
        self, control: RunControl, run_id: str, question: Question
    ) -> None:
        """Answer a question, the same way whenever it is asked."""
        source = self._world.source(f"{run_id} {question.key}")
        match question.about:
            case "question":
                await control.answer("the blue one", question=question.key)
            case "approval" if source.random() < 0.7:
                arguments = describe_call(question.arguments)
                self._world.ledger.allowed.add((run_id, question.key, arguments))
                await control.approve(question.key)
            case "approval":
                await control.deny(question.key, "no")
            case _:
                await control.resolve(
                    question.key, self._resolution(run_id, question.key)
                )

    def _resolution(self, run_id: str, key: str) -> CallCompleted | CallNotExecuted:
        """Say what really became of a call."""
        ledger = self._world.ledger
        if any((one.run_id, one.key) == (run_id, key) for one in ledger.executions):
            return CallCompleted("it was done")
        return CallNotExecuted()

    async def _meddle(self, control: RunControl, run_id: str) -> None:
        chance = self._random.random()
        if chance < 0.1:
            await control.steer(f"be brief {chance:.3f}")
        elif chance < 0.2:
            await control.add_context(f"it is {chance:.3f}")
        elif chance < 0.3:
            self._paused.add(run_id)
            await control.pause()
        elif chance < 0.45:
            await control.unpause()
        else:
            await self._end_early(control, chance)

    async def _end_early(self, control: RunControl, chance: float) -> None:
        if chance < 0.48:
            await control.abort()
        elif chance < 0.5:
            await control.stop()
        elif chance < 0.53:
            await control.follow_up(f"and what is green? {chance:.3f}")
        elif chance < 0.56:
            await control.override("put", {"what": f"cup {chance:.3f}"})
