"""One message to a thread: it becomes the next turn, or the answer to a question, once the turn before it allows that."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

from .._kernel.control.questions import open_questions
from .._kernel.durability.history import TurnStart
from ..errors import ConfigError, RunBusy, ThreadBusy
from ..journals.base import EarlierRunGone, RunInfo
from ..messages import Conversation, Message
from ..result import Result
from .thread_record import LastTurn, ThreadEnd, ThreadRecord
from .turn import TurnName

Busy: TypeAlias = Literal["wait", "refuse"]
"""What a message does while the turn before it is at work: it waits for the end, or is refused (`ThreadBusy`)."""
BUSY: tuple[Busy, ...] = ("wait", "refuse")

FIRST_PAUSE, MAX_PAUSE = 0.02, 0.25  # seconds between two looks at a turn at work


@dataclasses.dataclass(frozen=True)
class Turns:
    """How the turns of a thread are run; `Thread` says it."""

    begin: Callable[[Conversation, str, str, TurnStart], Awaitable[Result[Any]]]
    """Runs a turn: its conversation, the agent, its name as a run, and how it begins."""
    resume: Callable[[RunInfo], Awaitable[Result[Any]]]
    """Resumes a turn where its journal ends, or returns its recorded result."""


class ThreadMessage:
    """A message that a person sends to a thread.

    Args:
        record: what the journal has of the thread.
        turns: how its turns are run.
        message: what the person says.
        busy: what to do while the turn before it is at work.
        timeout: the seconds to wait for that turn; `None` is for ever for one at work, and not at all for one that waits.
    """

    def __init__(
        self,
        record: ThreadRecord,
        turns: Turns,
        message: Message,
        busy: Busy,
        timeout: float | None,
    ) -> None:
        self._record, self._turns, self._message = record, turns, message
        self._busy: Busy = busy
        self._pause = FIRST_PAUSE
        self._deadline = None if timeout is None else _now() + timeout

    async def send(self) -> Result[Any]:
        """Return the result of the turn that the message became, or that it answered a question of."""
        while True:
            last = await self._record.find_last()
            result = await self._advance(last)
            if result is not None:
                return result

    async def _advance(self, last: LastTurn | None) -> Result[Any] | None:
        """Go one step further; return the result if the message has one."""
        if last is None or last.has_ended:
            return await self._begin(last)
        if await self._record.is_unowned(last):
            with contextlib.suppress(RunBusy):  # another process was faster
                await self._turns.resume(last.info)
        elif await self._record.asks(last):
            if await self._answer(last):
                return await self._follow(last)
        else:
            await self._wait(last)
        return None

    async def _begin(self, last: LastTurn | None) -> Result[Any] | None:
        """Run the next turn; return `None` if another process was faster, or the thread was deleted meanwhile."""
        if last is None:
            name, end = TurnName.first(), ThreadEnd(Conversation(), "")
        else:
            name, end = last.name.next(), await self._record.read_end(last)
        conversation = end.conversation.add(self._message)
        start = TurnStart(is_first=last is None)
        try:
            result = await self._turns.begin(conversation, end.agent, str(name), start)
        except ConfigError:
            if await self._has_changed(last):
                return None
            raise
        is_lost = isinstance(result.error, EarlierRunGone)
        return None if is_lost and await self._has_changed(last) else result

    async def _has_changed(self, last: LastTurn | None) -> bool:
        found = await self._record.find_last()
        known = last and last.info.run_id
        return known != (found and found.info.run_id)

    async def _answer(self, last: LastTurn) -> bool:
        """Answer the question of a turn that waits; return whether no other message did so before."""
        try:
            return await self._record.answer(last, self._message.content)
        except RunBusy:
            await self._sleep(self._pause)
            return False

    async def _follow(self, last: LastTurn) -> Result[Any]:
        """Return the result of a turn that has the message, in whichever process it is at work."""
        while True:
            try:
                return await self._turns.resume(last.info)
            except RunBusy:
                await self._sleep(self._pause)

    async def _wait(self, last: LastTurn) -> None:
        """Wait a little for the end of a turn; raise `ThreadBusy` if the message is to wait no longer."""
        is_working = last.info.status == "running"
        left = None if self._deadline is None else self._deadline - _now()
        may_wait = is_working if left is None else left > 0
        if self._busy == "refuse" or not may_wait:
            raise await self._build_busy(last)
        pause = self._pause if left is None else min(self._pause, left)
        await self._sleep(pause)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._pause = min(self._pause * 1.5, MAX_PAUSE)

    async def _build_busy(self, last: LastTurn) -> ThreadBusy:
        run_id, status = last.info.run_id, last.info.status
        questions = open_questions(await self._record.read_entries(run_id))
        how = {"running": "is at work: send the message again once it has ended"}.get(
            status,
            f"is {status}: decide its questions with runtime.control({run_id!r}), then `await thread.resume()`",
        )
        return ThreadBusy(
            f"thread {self._record.id!r}: turn {last.name.number} {how}",
            run_id=run_id,
            status=status,
            questions=questions,
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
