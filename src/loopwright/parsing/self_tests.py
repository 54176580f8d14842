"""Tests that a model writes for its own code: reading both, the program that runs them, and its
output.
"""

import ast
import itertools
import warnings
from collections.abc import Iterator, Sequence

from .fences import find_fences, read_fence

MAX_CODE = 50_000  # characters; Python's own parser may fail on much more
MAX_BLOCKS = 100  # code fences, or lines that may be tests, that are looked at
MAX_REASON = 200  # characters of the error that a test failed with

# The program is an argument of a call, whose hash journals hold: its text stays as it is, byte for byte.
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
    """Return the Python code of a reply: the longest code fence that parses, else the longest, else
    the whole text.
    """
    blocks = _read_blocks(text)
    modules = {block: _try_to_parse(block) for block in blocks}
    parsed = [block for block in blocks if modules[block] is not None]
    with_statements = [block for block in parsed if _has_statement(modules[block])]
    # a lone value is what the code prints, so code with statements comes first
    code = max(with_statements or parsed or blocks, key=len)
    return code.strip("\n")


def _try_to_parse(code: str) -> ast.Module | None:
    try:
        return _parse(code)
    except ValueError:
        return None


def _has_statement(module: ast.Module | None) -> bool:
    """Return whether a module holds anything but expressions."""
    body = [] if module is None else module.body
    return any(not isinstance(node, ast.Expr) for node in body)


def find_syntax_error(code: str) -> str:
    """Return why a text is not Python code; an empty text if it is."""
    try:
        _parse(code)
    except ValueError as error:
        return str(error)
    return ""


def read_tests(text: str, max_tests: int) -> tuple[str, ...]:
    """Return the first `max_tests` tests in a reply, each one complete code, none twice.

    A test is an `assert` that stands by itself, or a function `test…` without parameters. Of a text
    that is not Python as a whole the lines that are an `assert` count.
    """
    found = itertools.chain.from_iterable(map(_read_block_tests, _read_blocks(text)))
    tests: dict[str, None] = {}
    for test in found:
        tests[test] = None
        if len(tests) == max_tests:
            break
    return tuple(tests)


def build_test_program(code: str, tests: Sequence[str], marker: str) -> str:
    """Return a program that runs each test on `code` and prints a line with `marker`, its number
    and its outcome.
    """
    return code + _RUNNER % (MAX_REASON, repr(marker), repr(list(tests)))


def read_outcomes(output: str, marker: str) -> tuple[dict[int, str], str]:
    """Return why each reported test failed, by its number (empty if it passed), and all other
    output.
    """
    outcomes: dict[int, str] = {}
    rest: list[str] = []
    for line in output.splitlines():
        outcome = _read_outcome(line, marker)
        if outcome is None:
            rest.append(line)
        else:
            number, reason = outcome
            outcomes.setdefault(number, reason)
    return outcomes, "\n".join(rest).strip()


def _read_outcome(line: str, marker: str) -> tuple[int, str] | None:
    """Return the number of a test and why it failed; `None` for a line that is other output."""
    prefix = f"{marker} "
    if not line.startswith(prefix):
        return None
    number, _, outcome = line.removeprefix(prefix).partition(" ")
    if not (number.isascii() and number.isdigit()):
        return None
    if outcome == "passed":
        return int(number), ""
    return int(number), outcome.removeprefix("failed").strip() or "failed"


def _read_blocks(text: str) -> list[str]:
    """Return the contents of the code fences of a text, or the whole text without any."""
    spans, _ = find_fences(text)
    return [read_fence(text, start)[0] for start, _ in spans[:MAX_BLOCKS]] or [text]


def _parse(code: str) -> ast.Module:
    if len(code) > MAX_CODE:
        raise ValueError(f"the code is longer than {MAX_CODE} characters")
    try:
        with warnings.catch_warnings():
            # odd escapes in a model's code need no warning to the caller
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"the code is no Python: {type(error).__name__}: {error}"
        ) from None


def _read_block_tests(block: str) -> Iterator[str]:
    module = _try_to_parse(block)
    if module is not None:
        return _read_module_tests(module)
    lines = map(str.strip, block.splitlines())
    asserts = (line for line in lines if line.startswith("assert"))
    modules = map(_try_to_parse, itertools.islice(asserts, MAX_BLOCKS))
    found = (_read_module_tests(module) for module in modules if module is not None)
    return itertools.chain.from_iterable(found)


def _read_module_tests(module: ast.Module) -> Iterator[str]:
    setup = ""  # imports and assignments before a test, which it may need
    for node in module.body:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign)):
            setup += f"{ast.unparse(node)}\n"
        elif isinstance(node, ast.Assert):
            yield setup + ast.unparse(node)
        elif isinstance(node, ast.FunctionDef) and _is_test(node):
            yield f"{setup}{ast.unparse(node)}\n\n{node.name}()"


def _is_test(node: ast.FunctionDef) -> bool:
    """Return whether a function is a test without parameters."""
    return node.name.startswith("test") and ast.unparse(node.args) == ""
