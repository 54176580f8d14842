"""Patterns that are compiled at their first use are those that `re.compile` makes."""

import re
from types import ModuleType

import pytest

from loopwright._internal.regex import compile_late
from loopwright.parsing import bare_calls, spotlighting
from loopwright.security.redaction import heuristics


def test_a_late_pattern_does_what_a_compiled_one_does() -> None:
    late, compiled = (
        make(r"(?P<first>a)b*", re.IGNORECASE) for make in (compile_late, re.compile)
    )
    text = "xABBy ab"

    for _ in range(2):  # the first use, and the next
        assert late.sub(r"<\g<first>>", text) == compiled.sub(r"<\g<first>>", text)
        assert late.findall(text) == compiled.findall(text)
        assert (late.pattern, late.flags) == (compiled.pattern, compiled.flags)
        assert late.search("none") is None


def test_a_late_pattern_that_is_wrong_fails_at_its_first_use() -> None:
    late = compile_late("(")

    with pytest.raises(re.error, match="unterminated"):
        late.search("x")


@pytest.mark.parametrize("module", [bare_calls, spotlighting, heuristics])
def test_modules_with_costly_patterns_compile_none_when_they_are_imported(
    module: ModuleType,
) -> None:
    compiled = [
        name for name, value in vars(module).items() if isinstance(value, re.Pattern)
    ]

    assert compiled == []
