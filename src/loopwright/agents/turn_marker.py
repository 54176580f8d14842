"""A turn without a message: a fork of a thread begins with one, and a switch to another agent is one."""

from collections.abc import Mapping

from pydantic_core import to_jsonable_python

from .._internal import dataclasses
from .._internal.version import __version__
from .._kernel.durability.history import refer, split_history
from .._kernel.durability.replay import Replay
from .._kernel.session.session import Session
from ..engine import LoopEngine
from ..errors import ConfigError
from ..events.run import REVISION, RunFinished, RunStarted
from ..journals.base import EarlierRunGone, RunHeader
from ..journals.owner import new_owner
from ..journals.recorded_messages import RENDERER, delimiter_of
from ..messages import Conversation, Usage
from .next_turn import Busy, NextTurn, begin_unless_deleted
from .thread_record import LastTurn, ThreadEnd, ThreadRecord
from .turn import TurnName
from .turn_runner import TurnRunner


@dataclasses.dataclass(frozen=True)
class TurnMarker:
    """A turn that changes nothing of what was said, and says which agent the next one begins with.

    Args:
        thread: the id of the thread.
        name: the name of the turn.
        end: the conversation so far, and the agent of the next turn.
        is_first: whether it begins the thread.
        tags: names and values to find it by.
    """

    thread: str
    name: TurnName
    end: ThreadEnd
    is_first: bool
    tags: Mapping[str, str]

    async def write(self, engine: LoopEngine) -> None:
        """Store it, with the engine and the agent of today; raise `ConfigError` if there is a turn of that name."""
        services, owner, run_id = engine.runtime, new_owner(), str(self.name)
        options, opaque = engine.recorded_options()
        conversation, created = self.end.conversation, services.clock.wall()
        follows, messages = split_history(conversation, services.journal)
        header = RunHeader(
            run_id, engine.name, engine.encode_options(options), __version__, str(owner), created, tags=self.tags,
            app_version=services.app_version, thread=self.thread, agent=services.agent_name, first_turn=self.is_first,
        )  # fmt: skip
        claim = services.journal.create(refer(header, follows))
        session = Session(services, claim, owner, Replay(), None)
        label, untrusted = conversation.label, conversation.untrusted
        started = RunStarted(
            engine.name, options, opaque, messages, to_jsonable_python(services.limits), version=__version__,
            created=created, boundary=delimiter_of(run_id, created), label=label, app_version=services.app_version,
            tags=dict(self.tags), thread=self.thread, agent=services.agent_name, journal_id=session.journal_id,
            revision=REVISION, untrusted=untrusted, follows=follows,
        )  # fmt: skip
        session.writer.begin(started, None)
        ended = RunFinished(
            "completed", "answered", None, None, None, Usage(), 0, 0, 0, (), label, untrusted, (), len(conversation),
            renderer=RENDERER, agent=self.end.agent,
        )  # fmt: skip
        session.writer.close(ended)
        await session.writer.barrier(ended.status)


class ThreadSwitch(NextTurn[str]):
    """A change of the agent with which a thread continues; `take` returns the name of the new one."""

    def __init__(
        self,
        record: ThreadRecord,
        turns: TurnRunner,
        agent: str,
        busy: Busy,
        timeout: float | None,
        *,
        engine: LoopEngine,
        tags: Mapping[str, str],
    ) -> None:
        super().__init__(record, turns, busy, timeout)
        self._agent, self._engine, self._tags = agent, engine, tags

    async def begin(self, last: LastTurn | None) -> str | None:
        """Write the turn that switches, unless the thread continues with the agent already."""
        name, end = TurnName.first(), ThreadEnd(Conversation(), "")
        if last is not None:
            name, end = last.name.next(), await self.record.read_end(last)
            if end.agent == self._agent:
                return self._agent
        switched = dataclasses.replace(end, agent=self._agent)
        thread, tags, is_first = self.record.id, self._tags, last is None

        async def write(name: TurnName) -> None:
            marker = TurnMarker(thread, name, switched, is_first, tags)
            await marker.write(self._engine)

        try:
            await begin_unless_deleted(name, write)
        except (ConfigError, EarlierRunGone):
            if await self.has_changed(last):
                return None
            raise
        return self._agent
