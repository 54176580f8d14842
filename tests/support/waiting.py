"""Waiting in a test for what another task, thread or process brings about."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def eventually(look: Callable[[], Any], *, seconds: float = 60.0) -> Any:
    """What `look` finds (it may be async), as soon as it finds something."""
    for _ in range(int(seconds * 100)):
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"nothing came within {seconds:g} s")
