"""Assertions of the contracts, as plain functions that need no test runner."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec

from ..errors import format_error

Arguments = ParamSpec("Arguments")


def assert_true(condition: object, message: str) -> None:
    """Raise `AssertionError` with `message` unless the condition is true."""
    if not condition:
        raise AssertionError(message)


def assert_equal(found: object, expected: object, what: str) -> None:
    """Raise `AssertionError` with both values unless they are equal."""
    if found != expected:
        raise AssertionError(
            f"{what}:\n   found    {found!r}\n   expected {expected!r}"
        )


def assert_type(value: object, kinds: type | tuple[type, ...], message: str) -> None:
    """Raise `AssertionError` with `message` unless the value has one of those types."""
    assert_true(isinstance(value, kinds), f"{message}: {value!r}")


@contextlib.contextmanager
def expect_error(
    kind: type[BaseException], message: str, *, saying: str = ""
) -> Generator[None]:
    """Return a context that must raise an error of that kind, whose text contains `saying`."""
    try:
        yield
    except kind as error:
        assert_true(
            saying in str(error),
            f"{message}: the error should say {saying!r}: {format_error(error)}",
        )
        return
    except Exception as error:
        raise AssertionError(
            f"{message}: {kind.__name__} expected, got {type(error).__name__}: {format_error(error)}"
        ) from error
    raise AssertionError(f"{message}: {kind.__name__} expected, nothing was raised")


def run_in_loop(
    check: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """Turn an async check into a plain function with its own event loop, for any test runner."""

    @functools.wraps(check)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        asyncio.run(check(*args, **kwargs))

    return run
