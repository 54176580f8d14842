"""Take the next turn of a thread: wait for the one before, complete it where its process died, and claim the next."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from .._kernel.control.questions import open_questions
from .._kernel.durability.history import TurnStart
from .._kernel.session.turn_queue import TurnQueue
from ..errors import ConfigError, RunBusy, ThreadBusy, UnknownRun
from ..events.run import RunParked
from ..journals.base import Command, EarlierRunGone, RunIdDeleted
from ..messages import Conversation, Message
from ..result import Result
from .thread_record import LastTurn, ThreadEnd, ThreadRecord
from .turn import TurnName
from .turn_runner import TurnRunner

Busy: TypeAlias = Literal["wait", "steer", "refuse"]
"""What a message does while the turn before it is at work: it waits for the end, or becomes guidance of that turn, or is
refused (`ThreadBusy`)."""
BUSY: tuple[Busy, ...] = ("wait", "steer", "refuse")
FIRST_PAUSE, MAX_PAUSE = 0.02, 0.25  # seconds between two looks at a turn at work

Begun = TypeVar("Begun")
Taken = TypeVar("Taken")
AnyResult: TypeAlias = Result[Any]


_HOW = {
    "running": "is at work: send the message again once it has ended",
    "suspended": "is suspended: continue it with `await thread.resume()`",
    "parked": "is parked ({reason}): find the cause, then `await runtime.control({run_id!r}).retry()`, or end it without an "
    "answer with `await runtime.control({run_id!r}).close(reason)`",
    "left": "is of version {version!r}, which this process does not serve: a worker that takes it continues it "
    "(Worker(accepts=...)), or `await thread.resume()` if this code can replay it",
    "waiting": "is {status}: decide what it waits for with runtime.control({run_id!r}), then `await thread.resume()`",
}
"""What a caller does about a turn that takes no message, by its status."""
_NOT_AGAIN = "it has the message, so do not send that again"
_HAS_MESSAGE = (
    f"is at work: {_NOT_AGAIN}; `await thread.turns()` has its answer once it has ended"
)


class NextTurn(ABC, Generic[Taken]):
    """An attempt to take the next turn of a thread.

    Args:
        record: what the journal has of the thread.
        turns: how its turns are run.
        busy: what to do while the turn before is at work.
        timeout: the seconds to wait for that turn, and for one that has the message as guidance; `None` is for ever for one
            at work, and not at all for one that waits.
    """

    def __init__(
        self, record: ThreadRecord, turns: TurnRunner, busy: Busy, timeout: float | None
    ) -> None:
        self.record, self.turns = record, turns
        self.busy: Busy = busy
        self._pause = FIRST_PAUSE
        self._deadline = None if timeout is None else _now() + timeout
        self._place = contextlib.ExitStack()
        """Its place before the guidance of this process that came after it, until it is sent."""

    @abstractmethod
    async def begin(self, last: LastTurn | None) -> Taken | None:
        """Begin the turn after one that has ended; return `None` if another process was faster."""

    async def meet(self, last: LastTurn) -> Taken | None:
        """Do something about a turn that has not ended, and that a process or a person has to continue."""
        await self.wait(last)
        return None

    async def take(self) -> Taken:
        """Return what this was taken for."""
        async with self._keep_order():
            while True:
                last = await self.record.find_last()
                try:
                    taken = await self._advance(last)
                except UnknownRun:
                    if not await self.has_changed(last):
                        raise
                    continue  # the thread was deleted meanwhile
                if taken is not None:
                    return taken

    async def _advance(self, last: LastTurn | None) -> Taken | None:
        """Go one step further; return what this was taken for, once it is."""
        if last is None:
            return await self.begin(None)
        if last.has_ended:
            unanswered = await self.record.read_unanswered(last)
            if not unanswered:
                return await self.begin(last)
            await self.run_unanswered(last, unanswered, is_own=False)
        elif self.turns.serves(last.info) and await self.record.is_unowned(last):
            self.release_place()
            with contextlib.suppress(RunBusy):  # another process was faster
                await self.turns.resume(last.info, is_own=False)
        else:
            return await self.meet(last)
        return None

    async def run_unanswered(
        self, last: LastTurn, unanswered: Sequence[Command], *, is_own: bool
    ) -> AnyResult | None:
        """Run the turn after one that has ended with the messages to that one which it did not take."""
        messages = [Message("user", str(one.body["text"])) for one in unanswered]
        numbers = tuple(one.number for one in unanswered)
        return await self.run_turn(last, messages, numbers, is_own=is_own)

    async def run_turn(
        self,
        last: LastTurn | None,
        messages: list[Message],
        commands: tuple[int, ...] = (),
        *,
        is_own: bool = True,
    ) -> AnyResult | None:
        """Run the turn after one that has ended; return `None` if another was faster, or the thread was deleted."""
        if last is None:
            name, end = TurnName.first(), ThreadEnd(Conversation(), "")
        else:
            name, end = last.name.next(), await self.record.read_end(last)
        conversation = end.conversation.add(*messages)
        start = TurnStart(is_first=last is None, commands=commands)

        async def begin(name: TurnName) -> AnyResult:
            return await self.turns.begin(
                conversation,
                end.agent,
                str(name),
                start,
                is_own=is_own,
                begun=self.release_place,
            )

        try:
            result = await begin_unless_deleted(name, begin)
        except ConfigError:
            if await self.has_changed(last):
                return None
            raise
        is_lost = isinstance(result.error, EarlierRunGone)
        return None if is_lost and await self.has_changed(last) else result

    async def has_changed(self, last: LastTurn | None) -> bool:
        """Whether another turn is the last one by now, or none is left."""
        found = await self.record.find_last()
        known = last and last.info.run_id
        return known != (found and found.info.run_id)

    async def wait(self, last: LastTurn) -> None:
        """Wait a little for the end of a turn; raise `ThreadBusy` if that is not to be waited for."""
        self.release_place()
        is_working = last.info.status == "running" and not await self.is_left(last)
        left = self.compute_time_left()
        may_wait = is_working if left is None else left > 0
        if self.busy == "refuse" or not may_wait:
            raise await self.build_busy(last)
        await self.pause(left)

    async def is_left(self, last: LastTurn) -> bool:
        """Whether a turn is left to a process of the version that began it."""
        is_served = self.turns.serves(last.info)
        return not is_served and await self.record.is_unowned(last)

    def compute_time_left(self) -> float | None:
        """Return for how many seconds this may still wait for a turn that is blocked; `None` where none were given."""
        return None if self._deadline is None else self._deadline - _now()

    async def pause(self, limit: float | None = None) -> None:
        """Wait before the next look, longer each time."""
        await asyncio.sleep(self._pause if limit is None else min(self._pause, limit))
        self._pause = min(self._pause * 1.5, MAX_PAUSE)

    async def build_busy(self, last: LastTurn, command: int = 0) -> ThreadBusy:
        """Return the error that a turn takes no message now."""
        run_id, status = last.info.run_id, last.info.status
        entries = await self.record.read_entries(run_id)
        questions, last_event = open_questions(entries), entries[-1].event
        reason = last_event.reason if isinstance(last_event, RunParked) else ""
        how = _HOW.get(status, _HOW["waiting"]).format(
            status=status, run_id=run_id, reason=reason
        )
        if status != "parked" and await self.is_left(last):
            how = _HOW["left"].format(version=last.info.app_version)
        if command:
            how = _HAS_MESSAGE if how == _HOW["running"] else f"{how}; {_NOT_AGAIN}"
        text = f"thread {self.record.id!r}: turn {last.name.number} {how}"
        return ThreadBusy(
            text, run_id=run_id, status=status, questions=questions, command=command
        )

    @contextlib.asynccontextmanager
    async def _keep_order(self) -> AsyncGenerator[None]:
        """Let the messages of this process that wait, and those that guide a turn, go in the order in which they came."""
        if self.busy == "refuse":
            yield
            return
        queues, key = (
            self.record.queues,
            (id(asyncio.get_running_loop()), self.record.id),
        )
        queue = queues.setdefault(key, TurnQueue())
        queue.users += 1
        try:
            place = queue.sending if self.busy == "steer" else queue.lock
            await self._enter(place)
            self._place.callback(place.release)
            with self._place:
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del queues[key]

    def release_place(self) -> None:
        """Let the guidance behind it go, once it is sent, begins a turn or has to wait."""
        if self.busy == "steer":
            self._place.close()

    async def _enter(self, place: asyncio.Lock) -> None:
        """Wait for the head of the queue; raise `ThreadBusy` after the time that the message may wait."""
        try:
            async with asyncio.timeout_at(self._deadline):
                await place.acquire()
        except TimeoutError:
            last = await self.record.find_last()
            if last is not None and not last.has_ended:
                raise await self.build_busy(last) from None
            text = f"thread {self.record.id!r}: an earlier message has not got its turn yet: send the message again"
            raise ThreadBusy(text) from None


async def begin_unless_deleted(
    name: TurnName, begin: Callable[[TurnName], Awaitable[Begun]]
) -> Begun:
    """Begin a turn by its name, or by the next one that no deleted turn had."""
    while True:
        try:
            return await begin(name)
        except RunIdDeleted:
            name = name.next()


def _now() -> float:
    return asyncio.get_running_loop().time()
