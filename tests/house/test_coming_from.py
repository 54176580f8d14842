"""The page for those who come from another system: what it says of our options and defaults is so."""

import dataclasses
import inspect
import re
import tomllib
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


# --- each row is shown by tests, by their names ---

SHOWN: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("coming_from_tests.toml").read_text("utf-8")
)
NAMES_A_DEFAULT = re.compile(r"`[A-Z]\w+\(\w+=[^`]+\)`")


def list_rows() -> dict[str, dict[str, str]]:
    """The rows of each system: the first cell, and the last one."""
    found: dict[str, dict[str, str]] = {}
    for section in TABLES.split("\n### ")[1:]:
        title, *lines = section.splitlines()
        rows = [
            line.strip("| ").split(" | ") for line in lines if line.startswith("| ")
        ]
        found[title] = {cells[0].strip(): cells[-1] for cells in rows[1:]}
    return found


def test_each_row_names_a_default_or_is_shown_by_a_test() -> None:
    rows = list_rows()
    left_over = [
        f"{title}: {first}"
        for title, shown in SHOWN.items()
        for first in shown
        if first not in rows[title]
    ]
    not_shown = [
        f"{title}: {first}"
        for title, cells in rows.items()
        for first, last in cells.items()
        if first not in SHOWN[title] and not NAMES_A_DEFAULT.search(last)
    ]

    assert list(SHOWN) == list(rows)
    assert (not_shown, left_over) == ([], [])


def test_the_tests_that_show_the_rows_are_there() -> None:
    root = Path(__file__).parents[2]
    sources = [path.read_text("utf-8") for path in root.glob("tests/**/test_*.py")]
    names = {name for text in sources for name in re.findall(r"def test_(\w+)", text)}
    wanted = {
        one for rows in SHOWN.values() for shown in rows.values() for one in shown
    }
    files = {one.removeprefix("file:") for one in wanted if one.startswith("file:")}

    assert {one for one in files if not (root / one).exists()} == set()
    assert {one for one in wanted if not one.startswith("file:")} - names == set()
