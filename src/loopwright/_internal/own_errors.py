"""Tell a `CancelledError` that code raised by itself from one that cancels its task."""

import asyncio


def read_own_error(raised: Exception | asyncio.CancelledError) -> Exception:
    """Return what code raised by itself as an ordinary error; raise what cancels the current task.

    Code that awaits a task of its own which was cancelled raises `CancelledError`, too; asyncio counts
    no request to cancel the current task then.
    """
    if isinstance(raised, Exception):
        return raised
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise raised
    error = RuntimeError(
        "CancelledError, although its task was not cancelled; handle it where a task is awaited "
        "that may have been cancelled"
    )
    error.__cause__ = raised
    return error
