"""The public surface as data: which names there are, that each is there, and what asking for them loads."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import loopwright
from loopwright import errors

ERRORS = {
    name
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, Exception)
}
NAMES = """
    Action Allow AllowAll Ask Attachment Capabilities ChainOfThoughtEngine CircuitBreaker
    CircuitBreakers Cleared Completion ConfigError Conversation CriticEngine Decision
    DefaultGate Delta Deny DenyAll Entry Fenced Journal Label LimitReached Limits LoopEngine
    LoopwrightError MemoryJournal Message Modify Observation Permit PlanExecuteEngine
    PolicyGate PolicyState Price PromptSet Proposal Provider ProviderError Question
    ReActEngine Reasoning ReflexionEngine ReplayDivergence Request Result Run RunBusy
    RunControl RunHandle Runtime RunWatch Sampling SelfAskEngine Suspend Template Tool ToolCall
    ToolContext ToolError ToolProfile ToolRegistry ToolSource ToolSpec TreeOfThoughtsEngine
    Usage Worker ask_user available_engines recommend_engine tool
""".split()  # noqa: SIM905 - a list would be a page
ROOT = Path(loopwright.__file__).parent
LAZY_PACKAGES = [
    ".".join((ROOT.name, *path.parent.relative_to(ROOT).parts))
    for path in sorted(ROOT.rglob("__init__.py"))
    if "lazy_attributes(" in path.read_text(encoding="utf-8")
]
LATE = {"httpx", "jsonschema", "sqlite3", "structlog", "tenacity"}


def loaded_after(*statements: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after some statements."""
    script = "; ".join(
        [*statements, "import json, sys", "print(json.dumps(sorted(sys.modules)))"]
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return {name.split(".")[0] for name in json.loads(done.stdout)}


def test_the_public_names_are_the_documented_ones_and_all_errors() -> None:
    assert sorted(loopwright.__all__) == sorted(NAMES)


@pytest.mark.parametrize(
    "name", sorted({*NAMES} - {"Label", "Decision"})
)  # types, which hold no text
def test_every_public_name_can_be_imported_and_says_what_it_is(name: str) -> None:
    value = getattr(loopwright, name)

    assert inspect.getdoc(value)
    assert value.__module__.startswith("loopwright.")


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_belongs_to_the_tree_and_says_what_it_is(name: str) -> None:
    error = getattr(errors, name)

    assert inspect.getdoc(error)
    assert issubclass(error, errors.LoopwrightError)


def test_listing_the_names_loads_nothing() -> None:
    loaded = loaded_after(
        "import loopwright", "assert set(loopwright.__all__) <= set(dir(loopwright))"
    )

    assert loaded & {"pydantic", "asyncio", *LATE} == set()


def test_the_whole_kernel_loads_nothing_that_is_used_later() -> None:
    loaded = loaded_after("from loopwright import *")

    assert loaded & LATE == set()


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="NoSuchEngine"):
        _ = loopwright.NoSuchEngine

    with pytest.raises(ImportError, match="NoSuchEngine"):
        importlib.import_module("loopwright.NoSuchEngine")


@pytest.mark.parametrize("name", LAZY_PACKAGES)
def test_a_lazy_package_exports_exactly_what_type_checkers_see(name: str) -> None:
    package = importlib.import_module(name)
    (imports,) = [
        node.body
        for node in ast.parse(inspect.getsource(package)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = {
        alias.asname: ("." * imported.level + (imported.module or ""), alias.name)
        for imported in imports
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }

    constants_first = sorted(seen, key=lambda name: (not name.isupper(), name))
    assert package.__all__ == constants_first
    for exported, (module, original) in seen.items():
        home = importlib.import_module(module, name)
        assert getattr(package, exported) is getattr(home, original)


def test_a_lazy_name_is_looked_up_once_and_then_kept() -> None:
    script = (
        "import loopwright.providers as package",
        "assert 'Price' in dir(package) and 'Price' not in vars(package)",
        "first = package.Price",
        "assert vars(package)['Price'] is first is package.Price",
    )

    assert "loopwright" in loaded_after(*script)


def test_upgrading_names_each_renamed_name_of_the_changelog() -> None:
    root = ROOT.parents[1]
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = changelog.rpartition("### Changed")[2].partition("###")[0]
    renamed = " ".join(
        re.findall(r"[^.]*\b(?:was|were)\b[^.]*\.\s", _hide_dots(section))
    )
    names = {name.replace("\0", ".") for name in re.findall(r"`([^`]+)`", renamed)}
    upgrading = (root / "docs/upgrading.md").read_text(encoding="utf-8")

    assert len(names) > 40
    shortened = set(map(_shorten, names))
    assert {n for n in shortened if not re.search(rf"\b{n}\b", upgrading)} == set()


def _shorten(name: str) -> str:
    """Return the last part of a dotted name, without arguments."""
    return " ".join(re.split(r"[(=]", name)[0].rpartition(".")[2].split())


def _hide_dots(text: str) -> str:
    """Return a text whose code has no dots, so that a dot ends a sentence."""
    return re.sub(r"`[^`]+`", lambda code: code[0].replace(".", "\0"), text)
