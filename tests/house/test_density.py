"""The code stays simple: bounds on branches, statements, functions, classes and files, and a report of where it is dense."""

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from density import (
    dense_statements,
    densities,
    large_classes,
    long_functions,
    measure,
    walk,
)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "loopwright"
FILES = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
MAX_DENSITY = {"all": 20.0, "_kernel": 18.0}
REPORTED_DENSITY = 25.0  # of a file
MAX_FILE, MAX_FUNCTION, MAX_METHODS = 500, 40, 25
DOORS = {"Run", "RunHandle"}
"""Classes with as many methods as engines and callers need: what they do is one line a method."""


def complaints(
    rule: Callable[[Iterable[ast.AST]], Iterator[tuple[int, str]]],
) -> list[str]:
    """List what a rule finds, each with its place."""
    return sorted(
        f"{path.relative_to(ROOT)}:{line}: {complaint}"
        for path, text in FILES.items()
        for line, complaint in rule(walk(text))
    )


def test_density_of_the_package_is_within_bounds(
    record_property: Callable[[str, object], None],
) -> None:
    measured = densities(PACKAGE)
    packages = {
        name: round(found.density, 1)
        for name, found in measured.items()
        if (PACKAGE / name).is_dir() or name == "all"
    }
    dense = {
        str(path.relative_to(PACKAGE)): round(measure(text).density, 1)
        for path, text in FILES.items()
        if measure(text).density > REPORTED_DENSITY
    }
    record_property(
        "report",
        f"branch points per 100 lines of code: {_listed(packages)}\n"
        f"files over {REPORTED_DENSITY:g}: {_listed(dense) or 'none'}",
    )

    assert measured["all"].density <= MAX_DENSITY["all"]


def test_density_of_the_kernel_is_within_bounds() -> None:
    assert densities(PACKAGE)["_kernel"].density <= MAX_DENSITY["_kernel"]


def _listed(densities: dict[str, float]) -> str:
    densest = sorted(densities.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {density}" for name, density in densest)


def test_a_statement_has_two_boolean_operators_and_one_ternary_at_most() -> None:
    assert complaints(dense_statements) == []


def test_a_function_has_40_lines_at_most() -> None:
    assert complaints(lambda nodes: long_functions(nodes, MAX_FUNCTION)) == []


def test_a_class_has_25_methods_at_most() -> None:
    found = complaints(lambda nodes: large_classes(nodes, MAX_METHODS))

    assert [one for one in found if one.split()[1] not in DOORS] == []


def test_a_file_has_500_lines_at_most() -> None:
    lines = {path: len(text.splitlines()) for path, text in FILES.items()}

    assert {
        str(path.relative_to(ROOT)): count
        for path, count in lines.items()
        if count > MAX_FILE
    } == {}


@pytest.mark.parametrize(
    ("code", "points", "lines"),
    [
        ('"""One line."""\n\n# a comment\nx = 1\n', 0, 1),
        ("if a and b or c:\n    pass\n", 3, 2),
        ("x = [n for n in y if n]\n", 1, 1),
        ("def f():\n    '''Do.'''\n    for a in b:\n        assert a\n", 2, 3),
    ],
)
def test_branch_points_are_counted_per_line_of_code(
    code: str, points: int, lines: int
) -> None:
    found = measure(code)

    assert (found.points, found.lines) == (points, lines)


def test_a_dense_statement_is_found_without_the_statements_inside_it() -> None:
    tree = ast.parse("if a and b:\n    x = c and d\ny = a and b and c and d\n")

    assert list(dense_statements(ast.walk(tree))) == [
        (3, "3 boolean operators in a statement")
    ]
