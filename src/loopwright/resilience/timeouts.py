"""Third-party code under a deadline: it runs in a task or a thread that can be cancelled and, if need be, abandoned."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from .._internal import dataclasses
from .._internal.engine_code import end_engine_code

ThreadRunner: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
GRACE = 0.05  # seconds that a cancelled task has for its clean-up


@dataclasses.dataclass(frozen=True)
class CodeOutcome:
    """How third-party code ended: a value, an error or a time-out; `abandoned` means that it still runs."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    abandoned: bool = False


def shorter(first: float | None, second: float | None) -> float | None:
    """Return the shorter of two timeouts, where `None` means without limit."""
    if first is None:
        return second
    return first if second is None else min(first, second)


class _ThreadAbandoned(asyncio.CancelledError):
    """The caller was cancelled while its thread continues to work."""


async def run_with_timeout(
    work: Coroutine[Any, Any, Any], timeout: float | None
) -> CodeOutcome:
    """Run `work` in a separate task for at most `timeout` seconds.

    `asyncio.timeout` would wait for a task that swallows its cancellation; this function abandons it after `GRACE`.
    """
    task = asyncio.ensure_future(_capture_async(work))
    try:
        await asyncio.wait((task,), timeout=timeout)
        if task.done() and not task.cancelled():
            return task.result()
        if task.done():
            return CodeOutcome(error=RuntimeError("it cancelled itself"))
        return CodeOutcome(timed_out=True, abandoned=await _cancel(task))
    except asyncio.CancelledError:
        await _cancel(task)
        raise
    finally:
        if task.done():
            work.close()  # the task may have been cancelled before its first step


def capture(function: Callable[[], Any]) -> CodeOutcome:
    """Call a third-party function that only computes, in the current thread."""
    try:
        return CodeOutcome(function())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - third-party code may raise anything, SystemExit too
        return CodeOutcome(error=error)


async def _capture_async(work: Coroutine[Any, Any, Any]) -> CodeOutcome:
    end_engine_code()
    try:
        return CodeOutcome(await work)
    except _ThreadAbandoned:
        return CodeOutcome(timed_out=True, abandoned=True)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - as in `capture`
        return CodeOutcome(error=error)


async def _cancel(task: asyncio.Task[CodeOutcome]) -> bool:
    """Cancel a task, wait for `GRACE`, and return whether the task or its thread still works.

    The task has its grace period even if the caller is cancelled in the meantime.
    """
    task.cancel()
    loop = asyncio.get_running_loop()
    until, cancelled = loop.time() + GRACE, None
    while not task.done() and loop.time() < until:
        try:
            await asyncio.wait((task,), timeout=until - loop.time())
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    if not task.done():
        return True
    return not task.cancelled() and task.exception() is None and task.result().abandoned


async def invoke(
    run_in_thread: ThreadRunner, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Call an async function in the event loop and any other in a thread; await a result that is awaitable."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    value = await run_in_thread(lambda: function(*arguments))
    return await value if inspect.isawaitable(value) else value


class WorkerThreads:
    """A bounded pool of daemon threads for synchronous tools.

    A thread whose caller gave up is replaced, so that blocked tools do not starve the others. At most `max_threads`
    threads wait for work or do work that a caller waits for. The process can exit while abandoned threads still run.
    """

    def __init__(self, max_threads: int = 32) -> None:
        self._max_threads = max_threads
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._awaited = 0  # jobs, queued or running, that a caller waits for
        self.abandoned = 0  # threads that still work for callers that gave up
        self._process = os.getpid()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call `function` in a thread, in a copy of the current context; cancelling this abandons the thread.

        Raise `RuntimeError` if there is no thread and the system cannot start one; `function` is not called then.
        """
        self._reset_after_fork()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[CodeOutcome] = loop.create_future()
        job = _Job(contextvars.copy_context(), function, done, loop)
        self._enqueue(job)
        try:
            outcome = await done
        except asyncio.CancelledError:
            if not job.abandon():
                raise
            self._replace_thread()
            raise _ThreadAbandoned from None
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def close(self) -> None:
        """Stop the threads as they become idle."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)
            self._threads = 0

    def _enqueue(self, job: _Job) -> None:
        with self._lock:
            self._awaited += 1
            try:
                self._start_threads()
            except RuntimeError:
                self._awaited -= 1
                raise
            # Queued last: a job that was reported as failed must not run later.
            self._jobs.put(job)

    def _replace_thread(self) -> None:
        """Stop counting a thread that was abandoned; it ends when its function returns."""
        with self._lock:
            self._awaited -= 1
            self._threads -= 1
            self.abandoned += 1
            with contextlib.suppress(RuntimeError):  # the next call tries again
                self._start_threads()

    def _reset_after_fork(self) -> None:
        """Start empty in a forked process: its parent's threads do not exist there, so no thread would take a job."""
        if self._process == os.getpid():
            return
        self._jobs = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._threads = self._awaited = self.abandoned = 0

    def _start_threads(self) -> None:
        """Start the threads that are needed; if the system has no more, the existing ones must do."""
        while self._threads < min(self._awaited, self._max_threads):
            thread = threading.Thread(
                target=self._work, name="loopwright-tool", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                if self._threads:
                    return
                raise
            self._threads += 1

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            job()
            with self._lock:
                if job.abandoned:
                    self.abandoned -= 1
                    return
                self._awaited -= 1
            # Delivered after the count, so that the caller's next job finds this thread free.
            job.deliver()
            del job  # an idle thread must not keep a result alive


class _Job:
    """One call in a thread, and whether its caller still waits."""

    def __init__(
        self,
        context: contextvars.Context,
        function: Callable[[], Any],
        done: asyncio.Future[CodeOutcome],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._context, self._function = context, function
        self._done, self._loop = done, loop
        self._lock = threading.Lock()
        self._state = "waiting"
        self._outcome: CodeOutcome | None = None
        self.abandoned = False

    def abandon(self) -> bool:
        """Note that the caller no longer waits; return whether a thread runs the function."""
        with self._lock:
            running = self._state == "running"
            self.abandoned = running
            self._state = "dropped" if self._state == "waiting" else self._state
            return running

    def __call__(self) -> None:
        with self._lock:
            if self._state == "dropped":
                return
            self._state = "running"
        try:
            outcome = capture(lambda: self._context.run(self._function))
        except KeyboardInterrupt:
            # The function raised it: an interrupt from outside reaches the main thread only.
            outcome = CodeOutcome(error=RuntimeError("it raised KeyboardInterrupt"))
        with self._lock:
            self._state, self._outcome = "done", outcome

    def deliver(self) -> None:
        """Give the outcome to the caller if it still waits."""
        if self._outcome is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._settle, self._outcome)
        except RuntimeError:  # the caller's loop is closed, so no caller waits
            return

    def _settle(self, outcome: CodeOutcome) -> None:
        if not self._done.done():
            self._done.set_result(outcome)
