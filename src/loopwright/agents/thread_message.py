"""One message to a thread: it becomes the next turn, the answer to a question, or guidance of the turn at work."""

from ..errors import ConfigError, RunBusy
from ..messages import Message
from .next_turn import AnyResult, Busy, NextTurn
from .thread_record import LastTurn, ThreadRecord
from .turn_runner import TurnRunner


class ThreadMessage(NextTurn[AnyResult]):
    """A message that a person sends to a thread; `take` returns the result of the turn that has it."""

    def __init__(
        self,
        record: ThreadRecord,
        turns: TurnRunner,
        message: Message,
        busy: Busy,
        timeout: float | None,
    ) -> None:
        super().__init__(record, turns, busy, timeout)
        self._message = message

    async def begin(self, last: LastTurn | None) -> AnyResult | None:
        """Run the next turn with the message."""
        return await self.run_turn(last, [self._message])

    async def meet(self, last: LastTurn) -> AnyResult | None:
        """Answer the question of a turn that waits, guide one at work, or wait for its end."""
        if await self.record.asks(last) and not await self.is_left(last):
            return await self._answer(last)
        # Guidance counts as trusted, so a message from outside, or with a label, waits.
        is_guidance = not self._message.untrusted and self._message.label == "public"
        is_working = last.info.status == "running"
        if self.busy == "steer" and is_working and is_guidance:
            return await self._steer(last)
        await self.wait(last)
        return None

    async def _answer(self, last: LastTurn) -> AnyResult | None:
        """Answer the question of a turn; return `None` if another message did so before."""
        try:
            is_taken = await self.record.answer(last, self._message)
        except RunBusy:
            is_taken = False
        if not is_taken:
            await self.pause()
            return None
        return await self._follow(last)

    async def _follow(self, last: LastTurn, guided_by: int = 0) -> AnyResult:
        """Return the result of a turn that has the message, in whichever process it is at work.

        Where that is as guidance, by a command, raises `ThreadBusy` after the time that the message may wait.
        """
        self.release_place()
        if not self.turns.serves(last.info):
            return await self._wait_for_worker(last)
        try:
            return await self.turns.resume(last.info, is_own=True)
        except RunBusy:
            await self.pause()
        async with self.turns.watching(last.info):
            while True:
                try:
                    return await self.turns.resume(last.info, is_own=True)
                except RunBusy:
                    await self._wait_for_owner(last, guided_by)

    async def _wait_for_owner(self, last: LastTurn, guided_by: int) -> None:
        """Wait before the next look at a turn that another process works on."""
        left = self.compute_time_left() if guided_by else None
        if left is not None and left <= 0:
            found = await self.record.find_turn(last.name)
            raise await self.build_busy(found or last, guided_by)
        await self.pause(left)

    async def _wait_for_worker(self, last: LastTurn) -> AnyResult:
        """Return the result of a turn of another version once it has ended; raise `ThreadBusy` after the time for that."""
        number = await self.turns.count_commands(last.info)
        async with self.turns.watching(last.info):
            while (found := await self.record.find_turn(last.name)) is not None:
                left = self.compute_time_left()
                if found.has_ended:
                    break
                if left is None or left <= 0:
                    raise await self.build_busy(found, number)
                await self.pause(left)
        return await self.turns.resume(last.info, is_own=True)

    async def _steer(self, last: LastTurn) -> AnyResult | None:
        """Send the message to a turn at work; return the result of the turn that took it, `None` if none did."""
        try:
            number = await self.record.send(last, self._message.content)
        except ConfigError:
            found = await self.record.find_turn(last.name)
            if found is None or found.has_ended:
                return None
            raise
        self.release_place()
        async with self.turns.watching(last.info):
            result = await self._wait_for_end(last, number)
        if result is not None:
            return result
        ended = await self.record.find_turn(last.name)
        # Without it the thread was deleted, and the message with it.
        return None if ended is None else await self._find_taker(ended, number)

    async def _wait_for_end(self, last: LastTurn, number: int) -> AnyResult | None:
        """Wait until a turn has ended, or is gone; return its result if it waits for a person.

        Raises `ThreadBusy` for one that is blocked, and after the time that the message may wait.
        """
        while (found := await self.record.find_turn(last.name)) is not None:
            if found.has_ended:
                break
            if found.info.status == "waiting" or await self.record.is_unowned(found):
                result = await self._follow(found, number)
                if result.status == "waiting":
                    return result
                continue
            left = self.compute_time_left()
            is_over = left is not None and left <= 0
            if found.info.status != "running" or is_over:
                raise await self.build_busy(found, number)
            await self.pause(left)
        return None

    async def _find_taker(self, ended: LastTurn, number: int) -> AnyResult | None:
        """Return the result of the turn that took a message to one that has ended; `None` if none did."""
        while True:
            unanswered = await self.record.read_unanswered(ended)
            if number not in [one.number for one in unanswered]:
                return await self._follow(ended)
            following = await self.record.find_turn(ended.name.next())
            if following is not None:
                begins_with = await self.record.read_commands(following)
                is_taken = number in begins_with
                return await self._follow(following) if is_taken else None
            result = await self.run_unanswered(ended, unanswered, is_own=True)
            if result is not None:
                return result
