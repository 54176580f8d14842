"""Run the turns of a thread in this process, and show what happens in those of a message that is watched."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol, cast

from .._kernel.control.run_watch import RunWatch
from .._kernel.durability.history import TurnStart
from .._kernel.session.services import Services
from ..engine import LoopEngine, ResumeOptions, RunOptions
from ..errors import ConfigError
from ..events.lifecycle import read_start
from ..events.run import RunStarted
from ..handle import RunHandle
from ..journals.access import read_inbox, read_run
from ..journals.base import RunInfo
from ..messages import Conversation
from ..result import Result
from .approved_turn import proceed_as_approved
from .turn_items import TurnItems

GRACE = 0.5
"""Seconds to wait for the last entries of a turn that is watched."""


class ThreadAgent(Protocol):
    """What a thread needs of an `Agent`."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def engine(self) -> LoopEngine:
        """Its engine."""
        ...

    @property
    def output(self) -> type[Any] | None:
        """The type as which its answers are read."""
        ...

    @property
    def agents(self) -> Mapping[str, "ThreadAgent"]:
        """The agents of its runtime, by name."""
        ...

    def check_deps(self, deps: object) -> None:
        """Raise `ConfigError` for dependencies that do not fill its instructions."""
        ...

    def rebuild(self, started: RunStarted) -> LoopEngine:
        """Return the engine of a run that it began."""
        ...


def is_served(services: Services, info: RunInfo) -> bool:
    """Whether the code of some services is of the version that began a run; code without a version serves all."""
    return services.app_version in ("", info.app_version)


class TurnRunner:
    """Runs the turns of a thread.

    Args:
        thread: the id of the thread.
        agent: the agent that the thread was opened with.
        output: the type as which answers are read; by default that of the agent of the turn.
        options: the options of a turn.
        items: collects what happens in the turn of the message; without it nothing is watched.
    """

    def __init__(
        self,
        thread: str,
        agent: ThreadAgent,
        output: type[Any] | None,
        options: Mapping[str, Any],
        items: TurnItems | None = None,
    ) -> None:
        self._thread, self._agent, self._output = thread, agent, output
        self._options, self._items = options, items
        self._services = agent.engine.runtime

    def serves(self, info: RunInfo) -> bool:
        """Whether the code of this process is of the version that began a turn."""
        return is_served(self._services, info)

    async def count_commands(self, info: RunInfo) -> int:
        """Return the number of the last command that was sent to a turn."""
        sent = await read_inbox(self._services.journal, info.run_id)
        return sent[-1].number if sent else 0

    def find_agent(self, name: str) -> ThreadAgent:
        """Return an agent of the thread; raise `ConfigError` for one that the runtime does not have."""
        if name in ("", self._agent.name):
            return self._agent
        found = self._agent.agents.get(name)
        if found is None:
            raise ConfigError(
                f"thread {self._thread!r} continues with agent {name!r}, which this runtime does not have; "
                f"define it with runtime.agent({name!r}, ...)"
            )
        return found

    async def begin(
        self,
        conversation: Conversation,
        agent: str,
        run_id: str,
        start: TurnStart,
        *,
        is_own: bool,
        begun: Callable[[], None],
    ) -> Result[Any]:
        """Run a turn, and say once it is stored.

        That of other messages continues in this process although the sender of this one leaves.
        """
        speaker = self.find_agent(agent)
        speaker.check_deps(self._options.get("deps"))
        named = {"run_id": run_id, "thread": self._thread, "turn": start}
        options = cast("RunOptions", {**self._options, **named})
        if not is_own:
            options["on_disconnect"] = "continue"
        engine, output = speaker.engine, self._output or speaker.output
        items = self._items if is_own else None
        if items is None:
            handle = engine.start(conversation, output=output, **options)
            begun()
            return await self._use_approvals(await handle.result(), speaker.name, is_own=is_own)  # fmt: skip
        watched: RunHandle[Any, Any] = (
            engine.start(conversation, output=output, deltas=True, **options)
            if items.deltas
            else engine.start(conversation, output=output, **options)
        )
        begun()
        result = await _collect(watched, items)
        return await self._use_approvals(result, speaker.name, is_own=is_own)

    async def resume(self, info: RunInfo, *, is_own: bool) -> Result[Any]:
        """Resume a turn where its journal ends, or return its recorded result."""
        result = await self._resume(info.run_id, info.agent, is_own=is_own)
        return await self._use_approvals(result, info.agent, is_own=is_own)

    async def _use_approvals(
        self, result: Result[Any], agent: str, *, is_own: bool
    ) -> Result[Any]:
        """Continue a turn that waits for an approval which people gave for the whole thread."""
        services, run_id = self.find_agent(agent).engine.runtime, result.run_id

        async def resume() -> Result[Any]:
            return await self._resume(run_id, agent, is_own=is_own)

        return await proceed_as_approved(services, result, resume)

    async def _resume(self, run_id: str, agent: str, *, is_own: bool) -> Result[Any]:
        speaker, journal = self.find_agent(agent), self._services.journal
        entries = await read_run(journal, run_id)
        engine = speaker.rebuild(read_start(run_id, entries))
        output = self._output or speaker.output
        options: ResumeOptions = {"deps": self._options.get("deps")}
        if not is_own:
            options["on_disconnect"] = "continue"
        elif "on_disconnect" in self._options:
            options["on_disconnect"] = self._options["on_disconnect"]
        items = self._items if is_own else None
        if items is None:
            return await engine.resume(run_id, output=output, **options)
        handle = await engine.resume(run_id, output=output, deltas=True, **options)
        items.enter(run_id, handle)
        return await _collect(handle, items)

    @contextlib.asynccontextmanager
    async def watching(self, info: RunInfo) -> AsyncGenerator[None]:
        """Show what happens in a turn that another task or process works on, if anything is to be shown."""
        items, services = self._items, self._services
        if items is None:
            yield
            return
        items.enter(info.run_id)
        watch: RunWatch[Any] = RunWatch(
            services.journal, services.feeds, info.run_id, after=info.head_seq, deltas=True,
        )  # fmt: skip
        forwarding = asyncio.ensure_future(_forward(watch, items))
        try:
            yield
            await asyncio.wait((forwarding,), timeout=GRACE)
        finally:
            forwarding.cancel()
            await asyncio.wait((forwarding,))


async def _collect(handle: RunHandle[Any, Any], items: TurnItems) -> Result[Any]:
    """Return the result of a turn of this process, which is watched."""
    async with handle:
        async for item in handle:
            items.enter(handle.run_id, handle)  # it is in the journal
            items.put(item)
        return await handle.result()


async def _forward(watch: RunWatch[Any], items: TurnItems) -> None:
    async with watch:
        async for item in watch:
            items.put(item)
