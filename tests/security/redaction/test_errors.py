"""Errors without secrets: what Python prints of one, its causes and the members of groups are searched."""

import traceback
from pathlib import Path
from typing import Any

import pytest

from loopwright.errors import ProviderError
from loopwright.security.redaction import Redactor
from loopwright.security.redaction.errors import redact_error

SECRET = "sk-proj-" + "Ab1" * 16


def build_error(cause: BaseException | None) -> ProviderError:
    """Raise an error from a cause, as a provider does."""
    try:
        raise ProviderError("it failed") from cause
    except ProviderError as error:
        return error


def note(error: Exception) -> Exception:
    """Return an error with a note that shows the secret."""
    error.add_note(f"the key was {SECRET}")
    return error


CAUSES = {
    "message": ValueError(f"bad key {SECRET}"),
    "cause of the cause": build_error(ValueError(f"bad key {SECRET}")),
    "note": note(ValueError("bad key")),
    "member of a group": ExceptionGroup("two", [ValueError(SECRET), KeyError(1)]),
    "cause of a member": ExceptionGroup("one", [build_error(ValueError(SECRET))]),
}


@pytest.mark.parametrize("where", CAUSES)
def test_an_error_whose_cause_shows_a_secret_is_copied_without_it(where: str) -> None:
    error = build_error(CAUSES[where])
    clean = redact_error(Redactor(), error)

    assert clean is not error
    assert clean.__cause__ is clean.__context__ is None
    assert SECRET not in f"{clean} {clean.__notes__}"
    assert clean.__notes__[0].startswith(f"caused by {type(CAUSES[where]).__name__}")


def test_an_error_raised_from_none_loses_a_context_with_a_secret() -> None:
    error = build_error(None)
    error.__context__ = ValueError(SECRET)

    assert redact_error(Redactor(), error) is error
    assert error.__context__ is None


def test_an_error_without_a_secret_keeps_its_causes_that_may_be_a_circle() -> None:
    cause = build_error(None)
    error = build_error(cause)
    cause.__cause__ = error

    assert redact_error(Redactor(), error) is error
    assert error.__cause__ is cause


LONG_STATEMENT = f"""
def connect(host, key):
    raise ValueError("no connection")

connect(
    "host",
    key="{SECRET}",
)
"""


def fail_in_a_long_statement(folder: Path) -> BaseException:
    """Return the error of a statement whose third line shows the secret."""
    file = folder / "program.py"
    file.write_text(LONG_STATEMENT)
    try:
        exec(compile(LONG_STATEMENT, str(file), "exec"), {})
    except ValueError as error:
        return error
    raise AssertionError("it fails")


def with_causes(
    error: BaseException,
    cause: BaseException | None = None,
    context: BaseException | None = None,
    is_suppressed: bool = False,
) -> BaseException:
    """Return an error with causes as any code may set them."""
    error.__cause__, error.__context__ = cause, context
    error.__suppress_context__ = is_suppressed
    return error


def build_circle() -> BaseException:
    """Return an error whose cause has it as its cause, and shows its context therefore."""
    first, second = ValueError("first"), ValueError("second")
    with_causes(second, first, ValueError(SECRET))
    return with_causes(first, second)


def build_own_cause() -> BaseException:
    """Return an error that is its own cause, and shows its context therefore."""
    error = ValueError("own")
    return with_causes(error, error, ValueError(SECRET))


def build_odd_notes(notes: Any) -> BaseException:
    error = ValueError("odd")
    error.__notes__ = notes
    return error


PRINTED = {
    "nothing": lambda _: ValueError("no secret"),
    "long statement": fail_in_a_long_statement,
    "cause with a long statement": lambda folder: with_causes(
        ValueError("it failed"), fail_in_a_long_statement(folder)
    ),
    "context": lambda _: with_causes(ValueError("it"), None, KeyError(SECRET)),
    "suppressed context": lambda _: with_causes(
        ValueError("it"), None, KeyError(SECRET), is_suppressed=True
    ),
    "context of a circle": lambda _: build_circle(),
    "context of an own cause": lambda _: build_own_cause(),
    "text of a syntax error": lambda _: SyntaxError("bad", ("f", 1, 2, SECRET)),
    "member of a group": lambda folder: ExceptionGroup(
        "two", [ValueError("one"), ExceptionGroup("in", [KeyError(SECRET)])]
    ),
    "long statement of a member": lambda folder: BaseExceptionGroup(
        "one", [fail_in_a_long_statement(folder)]
    ),
    "notes that are a text": lambda _: build_odd_notes(SECRET),
    "notes that are pairs": lambda _: build_odd_notes([("the key", SECRET)]),
}


@pytest.mark.parametrize("where", PRINTED)
def test_what_python_prints_of_an_error_is_searched(where: str, tmp_path: Path) -> None:
    error = build_error(PRINTED[where](tmp_path))
    has_secret = SECRET in "".join(traceback.format_exception(error))
    clean = redact_error(Redactor(), error)

    assert SECRET not in "".join(traceback.format_exception(clean))
    assert not has_secret or clean is not error
