"""Redaction of errors and of their tracebacks."""

import sys
import traceback
from collections.abc import Iterator
from typing import TypeVar, cast

from ...errors import LoopwrightError, format_error
from ...resilience.timeouts import capture
from .redactor import CUT_MARGIN, Redactor

MAX_TRACEBACK = 20_000  # characters of a traceback that are logged
E = TypeVar("E", bound=LoopwrightError)


def redact_error(redactor: Redactor, error: E) -> E:
    """Return the error if neither it nor its causes show a secret, else a redacted copy without
    causes.

    An error that was raised `from None` shows no cause, but it still has a context: a context with
    a secret is removed.
    """
    search = _SecretSearch(redactor)
    if not search.shows_secret(error):
        if any(search.shows_secret(other) for other in _iterate_causes(error)):
            error.__context__ = None
        return error
    clean = error.__class__.__new__(error.__class__)
    clean.args = tuple(_redact_field(redactor, value) for value in error.args)
    for name, value in vars(error).items():
        if not name.startswith("__"):
            setattr(clean, name, _redact_field(redactor, value))
    cause = _get_shown_cause(error)
    if cause is not None:
        text = redactor.redact_text(format_error(cause))
        clean.add_note(f"caused by {type(cause).__name__}: {text}")
    return clean


def format_traceback(redactor: Redactor, error: BaseException) -> str:
    """Return the end of a traceback for the log, redacted before it is cut: half a secret is not
    recognised.
    """
    formatted = capture(lambda: "".join(traceback.format_exception(error)))
    if formatted.error is not None:
        return f"{type(error).__name__} has none that can be written"
    max_searched = MAX_TRACEBACK + CUT_MARGIN
    clean = redactor.redact_text(formatted.value[-max_searched:])
    is_cut = len(formatted.value) > max_searched
    min_start = CUT_MARGIN if is_cut else 0
    return clean[max(len(clean) - MAX_TRACEBACK, min_start) :]


def _get_shown_cause(error: BaseException) -> BaseException | None:
    """Return the exception that Python prints above an error."""
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


class _SecretSearch:
    """Says which errors show a secret; each error of a chain is printed and searched once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._searched: dict[int, bool] = {}

    def shows_secret(self, error: BaseException) -> bool:
        """Return whether the printed form of an error, or one of its fields, holds a secret."""
        if any(self._is_printed_with_secret(one) for one in _iterate_printed(error)):
            return True
        return self._has_secret(f"{error.args!r}\n{vars(error)!r}")

    def _is_printed_with_secret(self, error: BaseException) -> bool:
        found = self._searched.get(id(error))
        if found is None:
            found = self._searched[id(error)] = self._has_secret(_format_alone(error))
        return found

    def _has_secret(self, text: str) -> bool:
        return self._redactor.redact_text(text) != text


def _format_alone(error: BaseException) -> str:
    """Return what Python prints of an error without its causes, and without carets before 3.13.

    To find the columns of the carets takes most of the time. Before 3.13 they decide about nothing
    but the carets; from then on they decide which lines of a statement are printed.
    """
    if sys.version_info >= (3, 13):
        printed = traceback.TracebackException.from_exception(error, compact=True)
        frames, last = printed.stack, printed.format_exception_only()
    else:
        walked = traceback.walk_tb(error.__traceback__)
        frames = traceback.StackSummary.extract(walked)
        last = traceback.format_exception_only(error)
    return "".join([*frames.format(), *last])


def _iterate_printed(error: BaseException) -> Iterator[BaseException]:
    """Iterate over the errors that Python may print with one: itself, causes, members of groups.

    An error with a cause shows its context if the cause was printed already and nothing suppresses
    the context.
    """
    seen, waiting = set[int](), [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        context = None if one.__suppress_context__ else one.__context__
        waiting += [other for other in (one.__cause__, context) if other is not None]
        if isinstance(one, BaseExceptionGroup):
            waiting += cast("tuple[BaseException, ...]", one.exceptions)
        yield one


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Iterate over all causes and contexts of an error, whether Python prints them or not."""
    seen = {id(error)}
    waiting = [error.__context__, error.__cause__]
    while waiting:
        other = waiting.pop()
        if other is None or id(other) in seen:
            continue
        seen.add(id(other))
        waiting += other.__context__, other.__cause__
        yield other


def _redact_field(redactor: Redactor, value: object) -> object:
    """Return a field of an error without secrets: a text redacted, any other value as its redacted
    `repr`.
    """
    if isinstance(value, str):
        return redactor.redact_text(value)
    shown = repr(value)
    clean = redactor.redact_text(shown)
    return value if clean == shown else clean
