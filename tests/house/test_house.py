"""The rules of the house that a reader would check by hand: layers, names, docstrings, and where packages are imported."""

import ast
import functools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from density import parse, walk

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "loopwright"
FILES = sorted(PACKAGE.rglob("*.py"))
FORBIDDEN = {
    "manager",
    "helper",
    "helpers",
    "util",
    "utils",
    "handler",
    "handlers",
    "core",
    "common",
    "brain",
}
EVERYWHERE = {
    "pydantic",
    "pydantic_core",
}  # the ground of all types; any other package has one file that knows it
Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


def place(path: Path, line: int = 1) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    for path in FILES:
        for node in walk(path.read_text(encoding="utf-8")):
            if isinstance(node, kinds):
                yield path, node


def is_our_own(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").split(".")[0] == "loopwright"
    return isinstance(node, ast.Import) and any(
        name.name.split(".")[0] == "loopwright" for name in node.names
    )


def packages(node: ast.AST) -> set[str]:
    """The top-level packages that an import statement names, ours left out."""
    if is_our_own(node):
        return set()
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").split(".")[0]}
    return (
        {name.name.split(".")[0] for name in node.names}
        if isinstance(node, ast.Import)
        else set()
    )


@functools.cache
def has_indented_imports(path: Path) -> bool:
    """Whether an import stands inside anything, which is asked first: to walk each function takes long."""
    kinds = (ast.Import, ast.ImportFrom)
    return any(
        isinstance(node, kinds) and node.col_offset > 0
        for node in walk(path.read_text(encoding="utf-8"))
    )


def imports_within(node: ast.AST) -> list[ast.AST]:
    return [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Import, ast.ImportFrom)) and is_our_own(inner)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_opens_with_one_sentence(path: Path) -> None:
    tree = parse(path.read_text(encoding="utf-8"))
    first = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())

    assert re.search(r"[.!?]\s+[A-Z]", first) is None, f"one sentence, please: {first}"
    assert first.endswith((".", ":")), (
        "the docstring of a module is the map of the house: begin with one sentence"
    )


def test_no_name_says_nothing() -> None:
    named = [(path, path.stem, 1) for path in FILES] + [
        (path, node.name, node.lineno)
        for path, node in nodes(ast.ClassDef)
        if isinstance(node, ast.ClassDef)
    ]
    words = {
        (path, line): re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower())
        for path, name, line in named
    }

    assert [
        place(*where) for where, said in words.items() if FORBIDDEN & set(said)
    ] == []


def test_a_package_is_imported_in_one_file_only() -> None:
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for path, node in nodes(ast.Import, ast.ImportFrom):
        for package in packages(node) - EVERYWHERE - sys.stdlib_module_names:
            importers[package].add(place(path))

    assert {
        package: sorted(files) for package, files in importers.items() if len(files) > 1
    } == {
        "httpcore": [
            f"src/loopwright/{name}.py:1"
            for name in (
                "providers/http/connections",
                "providers/http/transport",
                "toolboxes/ssrf_guard",
            )
        ],
        "httpx": [
            f"src/loopwright/{name}.py:1"
            for name in (
                "gates/opa",
                "providers/http/proxies",
                "providers/http/transport",
                "toolboxes/json_service",
                "toolboxes/ssrf_guard",
                "toolboxes/web",
            )
        ],
        "typer": [
            f"src/loopwright/cli/{name}.py:1"
            for name in (
                "app",
                "audit",
                "chat_command",
                "console",
                "control",
                "metrics",
                "options",
                "schedules",
                "settings",
                "upkeep",
            )
        ],  # one command line
    }


def test_our_own_modules_are_imported_at_the_top_and_relatively() -> None:
    inside = [
        place(path, inner.lineno)
        for path, node in nodes(*Functions)
        if has_indented_imports(path)
        for inner in imports_within(node)
        if path.stem != "cli"
    ]
    absolute = [
        place(path, node.lineno)
        for path, node in nodes(ast.Import, ast.ImportFrom)
        if is_our_own(node)
        and not (isinstance(node, ast.ImportFrom) and node.level and node.module)
    ]

    assert inside == [], "an import inside a function hides that the layers are wrong"
    assert absolute == [], (
        "inside the package imports are relative, and name the module: from .module import Name"
    )


def test_our_own_modules_are_not_imported_for_the_types_alone() -> None:
    """Lazy listings in `__init__` show type checkers their names this way; in other modules the layers would be wrong."""
    found = [
        place(path, inner.lineno)
        for path, node in nodes(ast.If)
        if has_indented_imports(path)
        if isinstance(node, ast.If)
        and "TYPE_CHECKING" in ast.unparse(node.test)
        and path.name != "__init__.py"
        for inner in imports_within(node)
    ]

    assert found == []


def test_nothing_is_left_to_do() -> None:
    files = [
        path
        for folder in ("src", "tests", "examples", "docs")
        for path in (ROOT / folder).rglob("*.[pm][yd]")
    ]
    marks = ("TO" + "DO", "FIX" + "ME", "X" * 3)

    assert [
        place(path)
        for path in files
        if set(marks) & set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    ] == []


def test_imports_point_down_the_layers() -> None:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
    ]
    done = subprocess.run(
        [*command, "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
