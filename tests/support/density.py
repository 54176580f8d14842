"""How dense the package's code is: branch points per 100 lines of code, and what exceeds the bounds of one statement."""

import ast
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
    ast.Assert,
)
BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
Documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Measure:
    """Branch points and lines of code; docstrings, comments and empty lines are not code."""

    points: int = 0
    lines: int = 0

    @property
    def density(self) -> float:
        """Branch points per 100 lines."""
        return 100 * self.points / max(self.lines, 1)

    def __add__(self, other: "Measure") -> "Measure":
        return Measure(self.points + other.points, self.lines + other.lines)


@functools.cache
def parse(text: str) -> ast.Module:
    """Parse a module once in a process, whichever tests look at it."""
    return ast.parse(text)


@functools.cache
def walk(text: str) -> list[ast.AST]:
    """List the nodes of a module in the order of `ast.walk`, once in a process: to walk takes longer than to parse."""
    return list(ast.walk(parse(text)))


@functools.cache
def measure(text: str) -> Measure:
    """Measure the code of a module."""
    nodes = walk(text)
    points = sum(isinstance(node, BRANCHES) for node in nodes) + sum(
        map(_boolean_operators, nodes)
    )
    docstrings = _docstring_lines(nodes)
    lines = sum(
        1
        for number, line in enumerate(text.splitlines(), 1)
        if number not in docstrings and line.strip() and line.lstrip()[0] != "#"
    )
    return Measure(points, lines)


def dense_statements(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and complaint of each statement with over two boolean operators or over one ternary."""
    for node in nodes:
        if not isinstance(node, ast.stmt):
            continue
        own = _expressions(node)
        operators = sum(_boolean_operators(part) for part in own)
        ternaries = sum(isinstance(part, ast.IfExp) for part in own)
        if operators > 2:
            yield node.lineno, f"{operators} boolean operators in a statement"
        if ternaries > 1:
            yield node.lineno, f"{ternaries} ternaries in a statement"


def long_functions(nodes: Iterable[ast.AST], most: int) -> Iterator[tuple[int, str]]:
    """Yield line and complaint of each function with more lines."""
    for node in nodes:
        if isinstance(node, Functions):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > most:
                yield node.lineno, f"{node.name} has {lines} lines"


def large_classes(nodes: Iterable[ast.AST], most: int) -> Iterator[tuple[int, str]]:
    """Yield line and complaint of each class with more methods."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(member, Functions) for member in node.body)
            if methods > most:
                yield node.lineno, f"{node.name} has {methods} methods"


def densities(package: Path) -> dict[str, Measure]:
    """Measure each package and loose module below a package; the key of the whole is `all`."""
    measured: defaultdict[str, Measure] = defaultdict(Measure)
    for path in sorted(package.rglob("*.py")):
        found = measure(path.read_text(encoding="utf-8"))
        first = path.relative_to(package).parts[0]
        measured["all"] += found
        measured[first.removesuffix(".py")] += found
    return dict(measured)


def _boolean_operators(node: ast.AST) -> int:
    return len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0


def _expressions(node: ast.AST) -> list[ast.AST]:
    """List the nodes of a statement that belong to no statement inside it."""
    found: list[ast.AST] = []
    pending = [node]
    while pending:
        children = ast.iter_child_nodes(pending.pop())
        own = [child for child in children if not isinstance(child, BLOCKS)]
        found += own
        pending += own
    return found


def _docstring_lines(nodes: Iterable[ast.AST]) -> set[int]:
    lines: set[int] = set()
    for node in nodes:
        if (
            isinstance(node, Documented)
            and ast.get_docstring(node, clean=False) is not None
        ):
            first = node.body[0]
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines
