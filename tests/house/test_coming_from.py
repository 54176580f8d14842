"""The page for those who come from another system: what it says of our options and defaults is so."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from loopwright import Limits, Suspend, engines
from loopwright.followups import Critique, Memories
from loopwright.gates import SupervisorGate
from loopwright.hooks.loop_detection import LoopDetection
from loopwright.hooks.model_selection import ModelSelection
from loopwright.hooks.tool_selection import ToolSelection
from loopwright.journals import MemoryJournal
from loopwright.knowledge import KnowledgeBridge
from loopwright.resilience.circuit_breaker import BreakerOptions
from loopwright.tools import Retry

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text("utf-8")
TABLES = PAGE.partition("\n## From the agent systems")[2].partition("\n## ")[0]
CLASSES: dict[str, Any] = {
    one.__name__: one
    for one in (
        Critique, Limits, Suspend, Memories, SupervisorGate, LoopDetection, ModelSelection, ToolSelection, MemoryJournal,
        KnowledgeBridge, BreakerOptions, Retry,
    )
}  # fmt: skip
SYSTEMS = "AlexClaw", "Symbiont", "CortexPrism", "AgentServer", "ovos-agentic-loop"
DEFAULTS = [
    found
    for found in re.findall(r"`([A-Z]\w+)\((\w+)=([^`]+)\)`", TABLES)
    if found[2] != "..."
]


def find_default(name: str, option: str) -> object:
    """The default of an option: of a field, or of a parameter."""
    found: Any = CLASSES.get(name) or getattr(engines, name)
    fields = getattr(found, "__pydantic_fields__", None) or getattr(
        found, "model_fields", None
    )
    if fields is not None and option in fields:
        return fields[option].default
    if dataclasses.is_dataclass(found):
        for field in dataclasses.fields(found):
            if field.name == option:
                return getattr(field.default, "default", field.default)
    return inspect.signature(found).parameters[option].default


def test_the_tables_name_many_defaults() -> None:
    assert len(DEFAULTS) > 60
    for system in SYSTEMS:
        assert f"\n### {system}" in TABLES


@pytest.mark.parametrize(("name", "option", "value"), sorted(set(DEFAULTS)))
def test_a_default_on_the_page_is_that_of_the_code(
    name: str, option: str, value: str
) -> None:
    assert repr(find_default(name, option)) == value
