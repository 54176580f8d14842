"""What the types promise: both checkers report exactly the lines marked `# error` in tests/typing, and nothing in pages."""

import pytest

from checkers import CASES, Checker, basedpyright, modules, mypy


def marked() -> set[str]:
    return {
        f"{path.name}:{number}"
        for path in CASES.glob("*.py")
        for number, line in enumerate(
            path.read_text(encoding="utf-8").splitlines(), start=1
        )
        if line.endswith("# error")
    }


@pytest.mark.types
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "checker", [mypy, basedpyright], ids=lambda checker: checker.__name__
)
def test_a_checker_reports_exactly_the_marked_lines(checker: Checker) -> None:
    found = {
        f"{finding.file}:{finding.line}": finding.message for finding in checker(CASES)
    }

    assert "\n".join(sorted(marked() - set(found))) == "", "let through"
    assert (
        "\n".join(f"{at}: {found[at]}" for at in sorted(set(found) - marked())) == ""
    ), "should be clean"


def test_each_promise_about_the_door_has_its_case() -> None:
    promised = {at.partition(":")[0] for at in marked()}

    assert promised == {path.name for path in CASES.glob("*.py")} - {
        "engine_is_clean.py"
    }


def test_there_is_code_to_check() -> None:
    names = {path.name for path in modules().glob("*.py")}

    assert names >= {
        "README.py",
        "docs_quickstart.py",
        "docs_tutorial.py",
        "docs_writing_an_engine.py",
    }


@pytest.mark.types
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "checker", [mypy, basedpyright], ids=lambda checker: checker.__name__
)
def test_the_python_in_the_pages_passes_both_checkers_as_strict_as_they_can_be(
    checker: Checker,
) -> None:
    pytest.importorskip(checker.__name__)

    assert [str(finding) for finding in checker(modules())] == []
