"""What checks of the contracts say when something is broken; plain functions, so that no test runner is needed."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec

from ..errors import format_error

Arguments = ParamSpec("Arguments")


def holds(condition: object, told: str) -> None:
    """Raise `AssertionError` with `told` unless the condition is true."""
    if not condition:
        raise AssertionError(told)


def same(found: object, expected: object, what: str) -> None:
    """Raise `AssertionError` unless both are equal; it shows both."""
    if found != expected:
        raise AssertionError(
            f"{what}:\n   found    {found!r}\n   expected {expected!r}"
        )


def is_a(value: object, kinds: type | tuple[type, ...], told: str) -> None:
    """Raise `AssertionError` with `told` unless the value is of one of those types, whatever its author promised."""
    holds(isinstance(value, kinds), f"{told}: {value!r}")


@contextlib.contextmanager
def refused(
    kind: type[BaseException], told: str, *, saying: str = ""
) -> Generator[None]:
    """A context in which an error of that kind, with those words, must be raised; another is shown in its place."""
    try:
        yield
    except kind as error:
        holds(
            saying in str(error),
            f"{told}: the error should say {saying!r}: {format_error(error)}",
        )
        return
    except Exception as error:
        raise AssertionError(
            f"{told}: {kind.__name__} expected, got {type(error).__name__}: {format_error(error)}"
        ) from error
    raise AssertionError(f"{told}: {kind.__name__} expected, nothing was raised")


def in_a_loop(
    check: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """An async check as a plain function that runs it in an event loop of its own: no test runner needs a plug-in."""

    @functools.wraps(check)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        asyncio.run(check(*args, **kwargs))

    return run
