"""The streams that AG-UI watches: the events of one run, from an entry on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from ..._internal import dataclasses
from ..._kernel.control.run_watch import RunWatch
from ...errors import LoopwrightError
from ...events.entry import Entry
from ...events.lifecycle import restore_answer
from ...events.run import Question, RunFinished, RunSuspended
from ...journals.listing import RunFilter
from ...providers.base import Delta
from ...runtime import Runtime
from ...tools.base import ask_user
from ..digest import RunDigest
from ..service import ConsoleService
from ..threads import call_in_thread
from .events import EventWriter
from .messages import MessageReader
from .protocol import core

MAX_TURNS = 50
"""Turns of a thread whose messages a front end that comes back is sent."""
Item: TypeAlias = tuple[int | None, core.BaseEvent | None]
"""An event with the number of the entry that it is of; no event says that the stream lives."""


@dataclasses.dataclass
class Stream:
    """What one request watches.

    Args:
        run_id: the run in the journal.
        thread_id: its thread.
        request_id: the `runId` of the request.
        after: the number of the last entry that the front end has.
        user: the name of who asks.
        has_history: whether what was said before is sent first.
    """

    run_id: str
    thread_id: str
    request_id: str
    after: int
    user: str
    has_history: bool = False


class RunStreams:
    """Writes what runs do as events.

    Args:
        runtime: what runs them.
        service: the console, whose rules say what a user may see.
    """

    def __init__(self, runtime: Runtime, service: ConsoleService) -> None:
        self._runtime, self._service = runtime, service

    @property
    def client_tools(self) -> frozenset[str]:
        """The names of the tools that the front end carries out."""
        agents = self._runtime.agents.values()
        runtimes = [self._runtime, *(agent.engine.runtime for agent in agents)]
        return frozenset(
            one.name
            for runtime in runtimes
            for one in runtime.tools
            if one.asks_user and one.name != ask_user.name
        )

    async def follow(self, stream: Stream, keep_alive: float) -> AsyncIterator[Item]:
        """Write the events of a run, until it ends or waits for the front end."""
        digest = RunDigest()
        writer = EventWriter(
            stream.run_id, stream.thread_id, stream.request_id,
            lambda seq: self._service.hides(digest, seq, stream.run_id, stream.user),
            self.client_tools, is_new=not stream.has_history,
        )  # fmt: skip
        known = await call_in_thread(self._read, stream, digest)
        writer.skip(known[: stream.after])
        history = await self._read_history(stream, known) if stream.has_history else None  # fmt: skip
        for event in writer.begin(history):
            yield None, event
        async for item in self._follow_on(stream, writer, digest, known, keep_alive):
            yield item

    def _read(self, stream: Stream, digest: RunDigest) -> list[Entry]:
        """Return the entries of a run, and fold them for what may be seen."""
        entries = self._service.records.read(stream.run_id)
        restore_answer(entries)
        digest.read(entries)
        return entries

    async def _follow_on(
        self,
        stream: Stream,
        writer: EventWriter,
        digest: RunDigest,
        known: list[Entry],
        keep_alive: float,
    ) -> AsyncIterator[Item]:
        """Write the entries after the last one that the front end has, and then those to come."""
        if await self._has_stopped(stream, known):
            for last in writer.write(known[-1]):
                yield known[-1].seq, last
            return
        watch = self._runtime.attach(stream.run_id, after=stream.after, deltas=True)
        async for item in _watch(watch, keep_alive):
            number = item.seq if isinstance(item, Entry) else None
            for event in await self._write(writer, digest, item, len(known)):
                yield number, event
            if writer.has_ended:
                return

    async def _write(
        self,
        writer: EventWriter,
        digest: RunDigest,
        item: Entry | Delta | None,
        known: int,
    ) -> Sequence[core.BaseEvent | None]:
        """Return the events of an item; of none, that the stream lives."""
        if item is None:
            return [None]
        if isinstance(item, Entry):
            if item.seq > digest.seq:
                digest.read([item])
            if await self._is_decided(item, known):
                return []
        return list(writer.write(item))

    async def _is_decided(self, entry: Entry, known: int) -> bool:
        """Whether an entry says that the run waits for what was decided since."""
        event = entry.event
        if not isinstance(event, RunSuspended) or event.reason != "waiting":
            return False
        if entry.seq < known:
            return True
        if not await self.read_questions(entry.run_id):
            return True
        # An answer was received and not acted on yet: its question counts as open while the run is at work.
        info = await call_in_thread(self._service.records.find, entry.run_id)
        return info.status != "waiting"

    async def read_questions(self, run_id: str) -> Sequence[Question]:
        """Return what a run asks, without what was answered and not received yet."""
        return await call_in_thread(self._find_questions, run_id)

    def _find_questions(self, run_id: str) -> Sequence[Question]:
        records = self._service.records
        sent = records.find_unreceived(run_id)
        answered = {one["body"].get("key") for one in sent}
        asked = records.questions(records.find(run_id))
        return [one for one in asked if one.key not in answered]

    async def _has_stopped(self, stream: Stream, known: list[Entry]) -> bool:
        """Whether a run stands where the front end saw it last: ended, or with what it asks still open."""
        if stream.after < len(known):
            return False
        if known and isinstance(known[-1].event, RunFinished):
            return True
        if not (known and stream.has_history):
            return False  # what it waited for was answered just now
        event = known[-1].event
        is_waiting = isinstance(event, RunSuspended) and event.reason == "waiting"
        return is_waiting and not await self._is_decided(known[-1], len(known))

    async def _read_history(
        self, stream: Stream, known: list[Entry]
    ) -> list[core.Message]:
        """Return what was said in the thread, up to the last entry that the front end has."""
        return await call_in_thread(self._collect, stream, known)

    def _collect(self, stream: Stream, known: list[Entry]) -> list[core.Message]:
        records, messages = self._service.records, list[core.Message]()
        where = RunFilter(thread=stream.thread_id)
        infos = list(records.list_runs(where, MAX_TURNS)) if stream.thread_id else []
        earlier = [one for one in reversed(infos) if one.run_id != stream.run_id]
        created = next((one.created for one in infos if one.run_id == stream.run_id), 0)
        for info in earlier:
            if info.created <= created:
                entries = records.read(info.run_id)
                restore_answer(entries)
                messages += self._read_messages(info.run_id, entries, stream.user)
        messages += self._read_messages(
            stream.run_id, known, stream.user, max(stream.after, 1)
        )
        return messages

    def _read_messages(
        self, run_id: str, entries: list[Entry], user: str, until: int | None = None
    ) -> list[core.Message]:
        digest = RunDigest()
        digest.read(entries)
        reader = MessageReader(
            run_id, lambda seq: self._service.hides(digest, seq, run_id, user)
        )
        with contextlib.suppress(LoopwrightError):  # of a damaged run, what is readable
            return list(reader.read(entries[:until]))
        return []


async def _watch(
    watch: RunWatch[Entry | Delta], keep_alive: float
) -> AsyncIterator[Entry | Delta | None]:
    """Yield the items of a watch, and `None` after so many seconds without one."""
    async with watch:
        while True:
            try:
                item = await asyncio.wait_for(anext(watch), keep_alive)
            except TimeoutError:
                yield None
            except StopAsyncIteration:
                return
            else:
                yield item
