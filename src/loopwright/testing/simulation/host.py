"""A simulated process: its clocks, its owners' tokens, and whether it is alive."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from ..._internal import dataclasses
from ...journals.owner import ACTIVE_TOKENS, Owner
from ...resilience.timeouts import WorkerThreads
from .loop import HOST

WALL = 1_700_000_000.0
"""Wall time at which every world begins."""


BUSY_SECONDS = 30.0
"""The longest time for which a busy pool has no thread."""


class HostClock:
    """The clocks of a process: both drift from true time, and wall time may jump.

    Args:
        loop: the world's, whose time is true.
        offset: seconds by which wall time is wrong at first.
        rate: how many seconds the process counts in a true one.
        started: what the monotonic clock shows at first.
        boot_id: the machine, whose processes have the same monotonic clock.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        offset: float = 0.0,
        rate: float = 1.0,
        started: float = 1000.0,
        boot_id: str = "machine",
    ) -> None:
        self._loop, self._rate, self._started = loop, rate, started
        self.offset, self.boot_id = offset, boot_id

    def monotonic(self) -> float:
        """Return seconds since the process's machine was started."""
        return self._started + self._loop.time() * self._rate

    def wall(self) -> float:
        """Return seconds since the Unix epoch, as this machine has them."""
        return WALL + self.offset + self._loop.time() * self._rate

    async def sleep(self, seconds: float) -> None:
        """Wait for seconds of this process."""
        await asyncio.sleep(seconds / self._rate)


class WorldClock:
    """The clock of whichever process asks."""

    def __init__(self, default: HostClock) -> None:
        self._default = default

    def _own(self) -> HostClock:
        host = HOST.get()
        return host.clock if isinstance(host, SimulatedHost) else self._default

    @property
    def boot_id(self) -> str:
        """Return the machine of the process that asks."""
        return self._own().boot_id

    def monotonic(self) -> float:
        """Return the monotonic time of the process that asks."""
        return self._own().monotonic()

    def wall(self) -> float:
        """Return the wall time of the process that asks."""
        return self._own().wall()

    async def sleep(self, seconds: float) -> None:
        """Wait for seconds of the process that asks."""
        await self._own().sleep(seconds)


@dataclasses.dataclass(eq=False)
class SimulatedHost:
    """A process of a world; a restarted one is another host of the same name."""

    name: str
    clock: HostClock
    release: int = 1
    """The release of the code that it runs."""
    is_alive: bool = True
    frozen_until: float = 0.0
    owners: set[str] = dataclasses.field(default_factory=set[str])
    """The owners of the runs that it has claimed."""

    def kill(self, *, seen: bool) -> None:
        """End the process in the middle of whatever it does; `seen` is whether others notice at once."""
        self.is_alive = False
        if seen:
            for owner in self.owners:
                ACTIVE_TOKENS.discard(Owner.parse(owner).token)


class SimulatedThreads(WorkerThreads):
    """Threads for plain functions whose work is one step of the simulated loop."""

    def __init__(self, source: random.Random, *, is_busy: bool = False) -> None:
        super().__init__()
        self._random, self._is_busy = source, is_busy

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call a function a little later, as one step; a busy pool has no thread for a while."""
        loop = asyncio.get_running_loop()
        if self._is_busy and self._random.random() < 0.2:
            await asyncio.sleep(self._random.uniform(0.0, BUSY_SECONDS))
        work: Awaitable[Any] = loop.run_in_executor(None, function)
        return await work
