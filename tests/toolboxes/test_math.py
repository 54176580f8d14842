"""The math toolbox: exact where it can be, quick whatever it is asked, and nothing but arithmetic."""

import contextlib
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import ConfigError, ReActEngine, Runtime, ToolError
from loopwright.plugins import build_tools
from loopwright.testing import ScriptedProvider, call
from loopwright.toolboxes.math import math
from stopwatch import quickest

QUICK = 0.2  # seconds


def calculated(expression: str, **limits: int) -> str:
    """The result, or what is said instead of it."""
    try:
        return str(math(**limits)[0](expression))
    except ToolError as error:
        return str(error)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1 + 0.2", "0.3"),
        ("19.99*3", "59.97"),
        ("123456789012345.67 + 0.01", "123456789012345.68"),
        ("10 / 4", "2.5"),
        ("2 ** 100", "1267650600228229401496703205376"),
        ("-2 ** 2", "-4"),
        ("2 ** -1", "0.5"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("7.5 % -2", "-0.5"),
        ("1e20", "100000000000000000000"),
        ("2 ** 200", "1.6069380442589902755419620923411626025222029937828E+60"),
        ("1 / 3", "0." + "3" * 50),
        ("1e-9 * 1", "1E-9"),
        ("-0 * 1", "0"),
        ("  1\n +\t1 ", "2"),
        (".5 + 5.", "5.5"),
        ("sqrt(2)", "1.4142135623730950488016887242096980785696718753769"),
        ("pi", "3.1415926535897932384626433832795028841971693993751"),
        ("e", "2.7182818284590452353602874713526624977572470937"),
        ("sin(pi / 6)", "0.5"),
        ("degrees(atan2(1, 1))", "45"),
        ("radians(180) - pi", "-3.2384626433832795028841971693993751E-15"),
        ("round(2.675, 2)", "2.68"),
        ("round(12345, -2)", "12300"),
        ("round(2.5)", "2"),
        ("round(1e40, 2)", "1" + "0" * 40),
        ("floor(-1.5) + ceil(1.2) + trunc(-1.9)", "-1"),
        ("max(1, 2.5, -3) + min(4, 2) + sum(1, 2, 3) + abs(-1)", "11.5"),
        ("ln(exp(2)) + log2(8) + log10(1000) + log(81, 3)", "12"),
        ("factorial(5) + gcd(12, 18) + lcm(4, 6)", "138"),
        (
            "factorial(1000)",
            "4.0238726007709377354370243392300398571937486421071E+2567",
        ),
    ],
)
def test_it_calculates(expression: str, value: str) -> None:
    assert calculated(expression) == value


@given(
    st.integers(-(10**20), 10**20),
    st.decimals(-(10**12), 10**12, places=6),
    st.sampled_from(["+", "-", "*"]),
)
def test_sums_and_products_of_decimals_are_exact(a: int, b: Decimal, sign: str) -> None:
    exact = {"+": a + Fraction(b), "-": a - Fraction(b), "*": a * Fraction(b)}[sign]

    assert Fraction(calculated(f"({a}) {sign} ({b:f})")) == exact


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "not an expression"),
        ("2 +", "not an expression"),
        ("(1", "not an expression"),
        ("15% of 80", "write 15/100*80 for 15 percent of 80"),
        ("2^3", "'^', cannot be read as part of a number; write ** for powers"),
        ("5!", "write factorial(n)"),
        ("x = 1", "there are no variables"),
        ("1,000 * 2", "Character 3, '0', cannot be read"),
        ("max(1,000)", "Character 7, '0', cannot be read"),
        ("2pi", "Character 1, '2', cannot be read"),
        ("007", "cannot be read"),
        ("0x1F", "cannot be read"),
        ("1_000", "cannot be read"),
        ("1j", "cannot be read"),
        ("1e99999", "cannot be read"),
        ("٣ + 1", "cannot be read"),  # a digit, for Python
        ("x + 1", "There is no 'x' to calculate with. There are pi, e, factorial"),
        ("sqrt", "There is no 'sqrt'"),
        ("max(sqrt, 1)", "There is no 'sqrt'"),
        ("open(1)", "There is no 'open'"),
        ("__import__(1)", "There is no '__import__'"),
        ("(1)(2)", "There is no 'function of that kind'"),
        ("True + None", "A calculation has no"),
        ("1 and 2", "A calculation has no BoolOp"),
        ("not 1", "A calculation has no Not"),
        ("1 if 2 else 3", "A calculation has no IfExp"),
        ("2 in 3", "A calculation has no Compare"),
        ("await 1", "A calculation has no Await"),
        ("(1, 2)", "A calculation has no Tuple"),
        ("(yield)", "A calculation has no Yield"),
        ("max(*2)", "A calculation has no Starred"),
        ("max(**2)", "A calculation has no keyword"),
        ("[1]", "'[', cannot be read"),
        ("'a' * 9", "cannot be read"),
        ("(1).real", "cannot be read"),
        ("lambda: 1", "cannot be read"),
        ("1; 2", "cannot be read"),
        ("1 < 2", "cannot be read"),
        ("1 / 0", "divides by zero"),
        ("0 ** 0", "This has no value"),
        ("sqrt(-1)", "This has no value"),
        ("1e9999 % 3", "This has no value"),
        ("asin(2)", "a value that it has no result for"),
        ("degrees(1e9999)", "a value that it has no result for"),
        ("max()", "a value that it has no result for"),
        ("factorial(-1)", "a value that it has no result for"),
        ("factorial(2.5)", "whole numbers"),
        ("gcd(1e60, 2)", "whole numbers, not too large"),
        ("sqrt(2, 3)", "another number of values than it takes"),
        ("log(8)", "another number of values than it takes"),
        ("9 ** 9 ** 9", "too large: they go up to 1e9999"),
    ],
)
def test_what_is_no_calculation_is_answered_with_what_to_do(
    expression: str, says: str
) -> None:
    assert says in calculated(expression)


def test_every_limit_is_one() -> None:
    assert calculated("2 / 3", digits=5) == "0.66667"
    assert calculated("11111", max_length=5) == "11111"
    assert (
        calculated("111111", max_length=5)
        == "The expression has 6 characters; at most 5 are allowed."
    )
    assert calculated("1+1+1+1", max_depth=3) == "4"
    assert calculated("1+1+1+1+1", max_depth=3).startswith(
        "More than 3 operations are inside each other"
    )
    assert calculated("factorial(10)", max_factorial=10) == "3628800"
    assert (
        calculated("factorial(11)", max_factorial=10)
        == "factorial takes numbers up to 10."
    )


@pytest.mark.parametrize(
    "limit", ["digits", "max_length", "max_depth", "max_factorial"]
)
def test_a_limit_out_of_range_is_refused_at_set_up(limit: str) -> None:
    for value in (0, 1_000_000):
        with pytest.raises(
            ConfigError, match=f"{limit}: must be from 1 to .* got {value}"
        ):
            math(**{limit: value})


LARGEST = {"digits": 100, "max_length": 5_000, "max_depth": 200, "max_factorial": 1_000}
HOSTILE = [
    *(
        "9**9**9",
        "9**9**9**9**9",
        "(9**9)**(9**9)",
        "1e9999**1e9999",
        "(1+1e-49)**1e9000",
        "0.5**1e9999",
        "2**-1e9999",
    ),
    *(
        "-" * 4_999 + "1",
        "(" * 2_499 + "1" + ")" * 2_499,
        "1" + "+1" * 2_499,
        "1" + "**1" * 1_600,
        "9" * 5_000,
    ),
    *(
        "sin(" * 1_000 + "1" + ")" * 1_000,
        "not " * 1_200 + "1",
        "2**(" * 190 + "2" + ")" * 190,
        "- " * 195 + "9**9999",
    ),
    *(
        "lcm(" + ",".join(str(10**98 + n) for n in range(49)) + ")",
        "gcd(" + "1e99," * 900 + "2)",
    ),
    *(
        "sum(" + ",".join(f"factorial({n})" for n in range(680, 1_001)) + ")",
        "max(" + "exp(9999)," * 450 + "1)",
        "1e9999 % 1e-9999",
        "exp(1e9999)",
    ),
    *(
        "ln(1+1e-99)",
        "log2(1e-9999)",
        "sqrt(1e9999)",
        "tan(1e300)",
        "round(1e9999, 99)",
        "round(1, 9**9)",
        "e**e**e**e",
    ),
    *(
        "factorial(factorial(factorial(9)))",
        "'a'*10**9",
        "a" * 5_000,
        "1 " * 2_500,
        "," * 5_000,
        "1" + " " * 4_999,
    ),
    *(
        "\0" * 5_000,
        "1\\\n" * 1_000,
        "#" * 5_000,
        "1e9999*" * 700 + "1",
        "\ud800",
        "x" * 10**6,
    ),
]


def taken(expression: str) -> float:
    """Seconds of work that an expression takes; other processes do not count, nor what happens beside it once."""
    (calculate,) = math(**LARGEST)

    def work() -> None:
        with contextlib.suppress(ToolError):
            calculate(expression)

    return quickest(work, QUICK)


@pytest.mark.faults
@pytest.mark.parametrize(
    "expression", HOSTILE, ids=[ascii(expression)[:24] for expression in HOSTILE]
)
def test_a_hostile_expression_is_over_at_once(expression: str) -> None:
    assert taken(expression) < QUICK


numbers = st.sampled_from(
    ["0", "1", "9", "0.5", "1e9999", "1e-9999", "9" * 100, "pi", "e", "-1", "1000"]
)
operators = st.sampled_from(["**", "*", "/", "//", "%", "+", "-"])
rounding = ["abs", "round", "floor", "ceil", "trunc"]
curves = [
    "sqrt",
    "exp",
    "ln",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "degrees",
    "radians",
]
functions = st.sampled_from([*rounding, *curves, "factorial"])
several = st.sampled_from(["min", "max", "sum", "gcd", "lcm", "log", "atan2", "round"])
expressions = st.recursive(
    numbers,
    lambda inner: (
        st.tuples(inner, operators, inner).map(
            lambda parts: f"({parts[0]}){parts[1]}({parts[2]})"
        )
        | st.tuples(functions, inner).map(lambda parts: f"{parts[0]}({parts[1]})")
        | st.tuples(several, inner, inner).map(
            lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"
        )
    ),
    max_leaves=30,
)


@pytest.mark.faults
@settings(max_examples=200)
@given(expressions)
def test_whatever_is_calculated_is_over_at_once(expression: str) -> None:
    assert taken(expression) < QUICK


@given(
    st.text("0123456789.eE+-*/%() ,pisnqrtmax_[]{}'\"\\#\n=<>!^&|~:;@\0é", max_size=60)
)
def test_any_text_gives_a_number_or_a_sentence(expression: str) -> None:
    assert calculated(expression)


def test_its_result_is_trusted_and_it_only_reads() -> None:
    (calculate,) = build_tools("math")

    assert (calculate.name, calculate.effect, calculate.trusted) == (
        "calculate",
        "read",
        True,
    )


def test_without_the_package_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['simpleeval'] = None\n"
        "from loopwright import ConfigError\nfrom loopwright.toolboxes.math import math\n"
        "try: math()\nexcept ConfigError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )

    assert (done.stdout, done.stderr) == (
        "math needs simpleeval: pip install 'loopwright[toolboxes]'\n",
        "",
    )


async def test_a_model_calculates() -> None:
    script = [
        [call("calculate", expression="2^8"), call("calculate", expression="2**8")],
        "256.",
    ]
    result = await ReActEngine(Runtime(ScriptedProvider(script), tools=math())).run(
        "What is two to the eighth?"
    )

    told = [
        message.content for message in result.conversation if message.role == "tool"
    ]
    assert (result.answer, told[1]) == ("256.", "256")
    assert "write ** for powers" in told[0]
