"""Whether an engine's own code is running, which reaches tools through its run alone."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Generator

_IS_RUNNING: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "loopwright_engine_code", default=False
)


def is_engine_code() -> bool:
    """Whether the caller is the code of an engine, and no tool, gate or effect that it led to."""
    return _IS_RUNNING.get()


# Asked for each call of a tool, so it does not cost a Python frame.
end_engine_code: Callable[[], object] = functools.partial(_IS_RUNNING.set, False)
"""Note for the rest of this task that it is a tool, a gate or another third party's code."""


@contextlib.contextmanager
def engine_code() -> Generator[None]:
    """Return a context in which the code of an engine runs."""
    token = _IS_RUNNING.set(True)
    try:
        yield
    finally:
        # Where the coroutine of a lost run is freed, its context is not the current one, and needs no reset.
        with contextlib.suppress(ValueError):
            _IS_RUNNING.reset(token)
