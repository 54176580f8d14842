"""Tools that many tests offer to a model, and the record of what ran."""

from typing import Any

from loopwright import tool

RAN: list[Any] = []
"""What the tools and effects of a test did, in order; `tests/conftest.py` empties it before each test."""


@tool(effect="read")
async def look(what: str) -> str:
    """Look something up."""
    return f"{what} is blue"


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="destructive")
async def wipe() -> str:
    """Wipe."""
    RAN.append("wiped")
    return "gone"
