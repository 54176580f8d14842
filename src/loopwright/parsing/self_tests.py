"""Tests that a model writes for code of its own: reading both, the program that runs them, and what it printed."""

import ast
import itertools
import warnings
from collections.abc import Iterator, Sequence

from .fences import find_fences, read_fence

MAX_CODE = (
    50_000  # characters; Python's own parser may give up on, or fall over, much more
)
MAX_PIECES = 100  # code fences, or lines that may be tests, that are looked at
MAX_REASON = 200  # characters of what a test failed with

_RUNNER = """

def _run_tests(mark, tests):
    for number, test in enumerate(tests):
        try:
            exec(test, dict(globals()))
        except BaseException as error:
            print(f"\\n{mark} {number} failed {error!r:.%d}", flush=True)
        else:
            print(f"\\n{mark} {number} passed", flush=True)


_run_tests(%s, %s)
"""


def read_code(text: str) -> str:
    """The Python code of a reply: the longest code fence that parses, else the longest, else the whole text."""
    blocks = _blocks(text)
    parsed = [block for block in blocks if find_syntax_error(block) == ""]
    told = [
        block
        for block in parsed
        if any(not isinstance(node, ast.Expr) for node in _parsed(block).body)
    ]
    return max(told or parsed or blocks, key=len).strip(
        "\n"
    )  # a lone value is what the code prints


def find_syntax_error(code: str) -> str:
    """Why `code` is no Python; empty if it is."""
    try:
        _parsed(code)
    except ValueError as error:
        return str(error)
    return ""


def read_tests(text: str, most: int) -> tuple[str, ...]:
    """The first `most` tests in a reply, each one a piece of code of its own, none twice.

    A test is an `assert` that stands by itself, or a function `test…` without parameters. Of a text that is no Python
    as a whole the lines that are an `assert` count.
    """
    tests: dict[str, None] = {}
    for test in itertools.chain.from_iterable(map(_tests, _blocks(text))):
        tests[test] = None
        if len(tests) == most:
            break
    return tuple(tests)


def build_test_program(code: str, tests: Sequence[str], mark: str) -> str:
    """A program that runs each test on `code` and prints a line with `mark`, its number and what came of it."""
    return code + _RUNNER % (MAX_REASON, repr(mark), repr(list(tests)))


def read_outcomes(output: str, mark: str) -> tuple[dict[int, str], str]:
    """Number of each test that is told of → why it failed, empty if it passed; and whatever else was printed."""
    outcomes: dict[int, str] = {}
    rest: list[str] = []
    for line in output.splitlines():
        number, _, told = line.removeprefix(f"{mark} ").partition(" ")
        if not line.startswith(f"{mark} ") or not (
            number.isascii() and number.isdigit()
        ):
            rest.append(line)
        elif int(number) not in outcomes:
            outcomes[int(number)] = (
                ""
                if told == "passed"
                else told.removeprefix("failed").strip() or "failed"
            )
    return outcomes, "\n".join(rest).strip()


def _blocks(text: str) -> list[str]:
    fences, _ = find_fences(text)
    return [read_fence(text, start)[0] for start, _ in fences[:MAX_PIECES]] or [text]


def _parsed(code: str) -> ast.Module:
    if len(code) > MAX_CODE:
        raise ValueError(f"the code is longer than {MAX_CODE} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # odd escapes in a model's code are no warning to our caller
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"the code is no Python: {type(error).__name__}: {error}"
        ) from None


def _tests(block: str) -> Iterator[str]:
    try:
        yield from _tests_of(_parsed(block))
    except ValueError:
        lines = [
            line.strip()
            for line in block.splitlines()
            if line.lstrip().startswith("assert")
        ]
        for line in lines[:MAX_PIECES]:
            if find_syntax_error(line) == "":
                yield from _tests_of(_parsed(line))


def _tests_of(module: ast.Module) -> Iterator[str]:
    before = ""  # what a test may need: imports, and values that were made for it
    for node in module.body:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign)):
            before += f"{ast.unparse(node)}\n"
        elif isinstance(node, ast.Assert):
            yield before + ast.unparse(node)
        elif (
            isinstance(node, ast.FunctionDef)
            and node.name.startswith("test")
            and not _has_parameters(node)
        ):
            yield f"{before}{ast.unparse(node)}\n\n{node.name}()"


def _has_parameters(node: ast.FunctionDef) -> bool:
    given = node.args
    return bool(
        given.args
        or given.posonlyargs
        or given.kwonlyargs
        or given.vararg
        or given.kwarg
    )
