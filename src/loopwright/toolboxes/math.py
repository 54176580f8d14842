"""A calculator for models: decimal arithmetic with limits on digits, length and depth."""

import ast
import decimal
import functools
import math as floats
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from ..errors import ConfigError, ToolError
from ..tools.base import Tool, tool

NUMBER = r"(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?(?![\w.])"  # no 007, 0x1F, 1_000 or 2pi
TOKEN = re.compile(rf"\s+|{NUMBER}|[A-Za-z_]\w*|\*\*|//|[-+*/%(),]", re.ASCII)
HINTS = {
    "^": "; write ** for powers",
    "=": "; there are no variables, write the expression alone",
    "!": "; write factorial(n)",
    "%": "; % is the remainder of a division, write 15/100*80 for 15 percent of 80",
}
SIGNALS = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
MAX_EXPONENT = 9_999
FLOAT_DIGITS = 15  # of results of sin and the like
RANGES = {
    "digits": (1, 100),
    "max_length": (1, 5_000),
    "max_depth": (1, 200),
    "max_factorial": (1, 1_000),
}
PI = Decimal(
    "3.141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067982"
)


def math(
    *,
    digits: int = 50,
    max_length: int = 1_000,
    max_depth: int = 100,
    max_factorial: int = 1_000,
) -> list[Tool]:
    """Return one tool, `calculate`, for arithmetic on decimal numbers.

    It calculates in decimals, so 0.1 + 0.2 is 0.3, and results of at most `digits` digits are exact.
    No step takes longer than numbers of that length need: `9**9**9` is refused at once.

    Args:
        digits: significant digits of all numbers, at most 100.
        max_length: characters of an expression, at most 5,000.
        max_depth: nested operations, at most 200; a sum of n terms counts for n.
        max_factorial: largest number whose factorial is calculated, at most 1,000.

    Raises:
        ConfigError: a limit is out of its range, or simpleeval is not installed.
    """
    _check_ranges(
        digits=digits,
        max_length=max_length,
        max_depth=max_depth,
        max_factorial=max_factorial,
    )
    return [_build_calculator(digits, max_length, max_depth, max_factorial)]


def _build_calculator(
    digits: int, max_length: int, max_depth: int, max_factorial: int
) -> Tool:
    context = decimal.Context(
        digits, decimal.ROUND_HALF_EVEN, -MAX_EXPONENT, MAX_EXPONENT, traps=SIGNALS
    )
    evaluate = _build_evaluator(context, max_factorial)

    @tool(effect="read", trusted=True)
    def calculate(expression: str) -> str:
        """Calculate a number, for example "(19.99 * 3) / 1.19" or "sqrt(2) * sin(pi / 4)".

        Operators are + - * / // % and ** (power). There are pi, e, and the functions abs, round(x, places), floor,
        ceil, trunc, min, max, sum(a, b, ...), sqrt, exp, ln, log2, log10, log(x, base), sin, cos, tan, asin, acos,
        atan, atan2(y, x), degrees, radians (angles are in radians), factorial, gcd and lcm.

        Args:
            expression: What to calculate. No units, no variables, no commas inside numbers.
        """
        tree = _parse(expression, max_length, max_depth)
        with decimal.localcontext(context):
            try:
                return _format_number(evaluate(tree.body), digits)
            except TypeError:
                raise ToolError(
                    "A function got another number of values than it takes."
                ) from None
            except (ArithmeticError, ValueError) as error:
                raise ToolError(_format_error(error)) from None

    return calculate


def _check_ranges(**limits: int) -> None:
    for field, value in limits.items():
        low, high = RANGES[field]
        if not low <= value <= high:
            raise ConfigError(f"{field}: must be from {low} to {high:,}, got {value!r}")


def _build_evaluator(
    context: decimal.Context, max_factorial: int
) -> Callable[[ast.expr], Decimal]:
    """Return a function that evaluates a tree by our own operators, functions and names only."""
    try:
        from simpleeval import SimpleEval  # type: ignore[import-untyped]  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigError(
            "math needs simpleeval: pip install 'loopwright[toolboxes]'"
        ) from error

    def factorial(n: Decimal) -> Decimal:
        if n > max_factorial:
            raise ToolError(f"factorial takes numbers up to {max_factorial:,}.")
        return +Decimal(floats.factorial(_read_integer(n)))

    constants = {"pi": context.plus(PI), "e": context.exp(Decimal(1))}
    made: Any = SimpleEval(
        operators=OPERATORS,
        functions={**FUNCTIONS, "factorial": factorial},
        names=constants,
    )

    def evaluate(tree: ast.expr) -> Decimal:
        value: Decimal = made.eval("", previously_parsed=tree)
        return value

    return evaluate


def _parse(expression: str, max_length: int, max_depth: int) -> ast.Expression:
    """Return the expression as a tree of numbers, operators and known names; else raise `ToolError`."""
    if len(expression) > max_length:
        raise ToolError(
            f"The expression has {len(expression):,} characters; at most {max_length:,} are allowed."
        )
    text = " ".join(_tokenize(expression))
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, RecursionError, MemoryError):
        # The last two are raised for an expression that is nested too deeply.
        hint = HINTS["%"] if "%" in text else ""
        raise ToolError(
            f"This is not an expression that can be calculated: look at operators and brackets{hint}."
        ) from None
    for node, depth in _iterate_nodes(tree.body):
        if depth > max_depth:
            raise ToolError(
                f"More than {max_depth} operations are inside each other: use sum(...), or go step by step."
            )
        if type(node) not in NODES:
            raise ToolError(
                f"A calculation has no {type(node).__name__}: give numbers, operators and functions."
            )
        if isinstance(node, ast.Name) and node.id not in ("pi", "e"):
            raise ToolError(_describe_unknown(node.id))
        if isinstance(node, ast.Constant):
            _read_number(node, text[node.col_offset : node.end_col_offset])
    return tree


def _read_number(node: ast.Constant, written: str) -> None:
    """Replace the float of a constant by the exact decimal that was written."""
    if not isinstance(node.value, (int, float)) or isinstance(node.value, bool):
        raise ToolError(
            f"A calculation has no {written}: give numbers, operators and functions."
        )
    value: Any = Decimal(written)  # the types of `ast` allow no decimals
    node.value = value


def _tokenize(expression: str) -> Iterator[str]:
    place = 0
    while place < len(expression):
        found = TOKEN.match(expression, place)
        if found is None:
            char = expression[place]
            raise ToolError(
                f"Character {place + 1}, {char!r}, cannot be read as part of a number{HINTS.get(char, '')}."
            )
        if not found[0].isspace():
            yield found[0]
        place = found.end()


def _iterate_nodes(tree: ast.expr) -> Iterator[tuple[ast.AST, int]]:
    """Return every node of a tree and its depth; the function of a call is checked here."""
    remaining: list[tuple[ast.AST, int]] = [(tree, 0)]
    while remaining:
        node, depth = remaining.pop()
        yield node, depth
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            called = (
                node.func.id
                if isinstance(node.func, ast.Name)
                else "function of that kind"
            )
            if called != "factorial" and called not in FUNCTIONS:
                raise ToolError(_describe_unknown(called))
            inner.remove(node.func)
        remaining += [(part, depth + 1) for part in inner]


def _describe_unknown(name: str) -> str:
    return f"There is no {name[:40]!r} to calculate with. There are pi, e, factorial, {', '.join(FUNCTIONS)}."


def _format_error(error: Exception) -> str:
    match error:
        case ZeroDivisionError():
            return "This divides by zero."
        case decimal.Overflow():
            return f"The number is too large: they go up to 1e{MAX_EXPONENT}."
        case decimal.InvalidOperation():
            return "This has no value: a root or logarithm that does not exist, or too many digits."
        case _:
            return "A function got a value that it has no result for."


def _format_number(value: Decimal, digits: int) -> str:
    """Return the shortest form of a number: 0.3, 1267650600228229401496703205376, 4.02E+2567."""
    value = (value + 0).normalize()
    return format(value, "f") if -8 < value.adjusted() < digits else str(value)


def _read_integer(value: Decimal) -> int:
    """Return an integer, which has at most the digits of other numbers, so that its use is fast."""
    if (
        value != value.to_integral_value()
        or value.adjusted() >= decimal.getcontext().prec
    ):
        raise ToolError(
            "factorial, gcd, lcm and the places of round take whole numbers, not too large."
        )
    return int(value)


def _floor_division(a: Decimal, b: Decimal) -> Decimal:
    rest = a % b  # in decimals it has the sign of `a`
    return a // b - 1 if rest and (rest < 0) != (b < 0) else a // b


def _remainder(a: Decimal, b: Decimal) -> Decimal:
    rest = a % b
    return rest + b if rest and (rest < 0) != (b < 0) else rest


def _round(value: Decimal, places: Decimal = Decimal(0)) -> Decimal:
    shift = _read_integer(places)
    return value.scaleb(shift).to_integral_value().scaleb(-shift)


def _logarithm(value: Decimal, base: Decimal) -> Decimal:
    return value.ln() / base.ln()


def _to_integer(rounding: str) -> Callable[[Decimal], Decimal]:
    return lambda value: value.to_integral_value(rounding)


def _by_floats(function: Callable[..., float]) -> Callable[..., Decimal]:
    def calculated(*values: Decimal) -> Decimal:
        result = function(*map(float, values))
        if not floats.isfinite(result):
            raise ValueError("outside of what a float can be")
        return Decimal(f"{result:.{FLOAT_DIGITS}g}")

    return calculated


OPERATORS: dict[type[ast.AST], Callable[..., Decimal]] = {
    ast.Add: Decimal.__add__,
    ast.Sub: Decimal.__sub__,
    ast.Mult: Decimal.__mul__,
    ast.Div: Decimal.__truediv__,
    ast.Pow: Decimal.__pow__,
    ast.FloorDiv: _floor_division,
    ast.Mod: _remainder,
    ast.UAdd: Decimal.__pos__,
    ast.USub: Decimal.__neg__,
}
NODES = {ast.Constant, ast.Name, ast.Load, ast.Call, ast.UnaryOp, ast.BinOp, *OPERATORS}
FUNCTIONS: dict[str, Callable[..., Decimal]] = {
    "abs": Decimal.__abs__,
    "round": _round,
    "floor": _to_integer(decimal.ROUND_FLOOR),
    "ceil": _to_integer(decimal.ROUND_CEILING),
    "trunc": _to_integer(decimal.ROUND_DOWN),
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "sum": lambda *values: sum(values, Decimal(0)),
    "sqrt": Decimal.sqrt,
    "exp": Decimal.exp,
    "ln": Decimal.ln,
    "log2": functools.partial(_logarithm, base=Decimal(2)),
    "log10": Decimal.log10,
    "log": _logarithm,
    **{
        name: _by_floats(getattr(floats, name))
        for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")
    },
    "degrees": _by_floats(floats.degrees),
    "radians": _by_floats(floats.radians),
    "gcd": lambda *values: Decimal(floats.gcd(*map(_read_integer, values))),
    "lcm": lambda *values: +Decimal(floats.lcm(*map(_read_integer, values))),
}
