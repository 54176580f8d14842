"""A run that wants to erase something, which a person has to allow, and what was erased."""

from typing import Any

import pytest

from loopwright import ReActEngine, Result, Runtime, Suspend, ask_user, tool
from loopwright.testing import ScriptedProvider

RAN: list[Any] = []
"""What was erased; a test module empties it with the fixture `nothing_ran`."""


@tool(effect="destructive", content=("what",))
async def erase(what: str) -> str:
    """Erase something."""
    RAN.append(what)
    return f"erased {what}"


def react(journal: Any, *script: Any, **options: Any) -> ReActEngine:
    """An engine that can erase and ask its user, on a journal, whose calls wait for a person."""
    given: dict[str, Any] = {
        "approver": Suspend(),
        "tools": [erase, ask_user],
        **options,
    }
    return ReActEngine(Runtime(ScriptedProvider(script), journal=journal, **given))


def tool_messages(result: Result) -> list[str]:
    """Return the tool messages that the model read."""
    return [
        message.content
        for message in result.conversation.messages
        if message.role == "tool"
    ]


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Nothing was erased so far; a module that imports this has it before each of its tests."""
    RAN.clear()
