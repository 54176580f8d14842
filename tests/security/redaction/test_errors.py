"""Errors without secrets: what Python prints of one, its causes and the members of groups are searched."""

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
