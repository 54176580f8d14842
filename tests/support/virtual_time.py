"""Async tests in virtual time: no sleep costs any, and a machine that stalls changes no order."""

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from loopwright.clock import SystemClock
from loopwright.testing.simulation.loop import make_loop

P = ParamSpec("P")


class LoopClock(SystemClock):
    """Measures by the running loop, so that a slow machine uses up no time-out while the loop's time stands still."""

    def monotonic(self) -> float:
        """Return the loop's seconds."""
        return asyncio.get_running_loop().time()


def in_virtual_time(
    test: Callable[P, Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Run an async test on a loop whose time moves only while nothing is ready; it has no sockets and no threads."""

    @functools.wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        loop = make_loop(random.Random(0), 1)
        try:
            loop.run_until_complete(test(*args, **options))
        finally:
            loop.close()
        assert loop.errors == []

    return run
