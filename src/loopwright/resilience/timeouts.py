"""Foreign code under a deadline: in a task or thread of its own that can be cancelled, and left behind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import inspect
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

InThread: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
GRACE = 0.05  # seconds that a cancelled task has to tidy up


@dataclasses.dataclass(frozen=True)
class Ended:
    """How foreign code ended: with a value, an error, or not in time; `abandoned` says that it still runs."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    abandoned: bool = False


class _LeftBehind(asyncio.CancelledError):
    """Cancelled, while a thread goes on with the work."""


async def _contained(work: Coroutine[Any, Any, Any]) -> Ended:
    try:
        return Ended(await work)
    except _LeftBehind:
        return Ended(timed_out=True, abandoned=True)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything, SystemExit too; it ends here
        return Ended(error=error)


async def run_bounded(work: Coroutine[Any, Any, Any], timeout: float | None) -> Ended:
    """Run `work` as a task of its own for at most `timeout` seconds.

    `asyncio.timeout` would wait for a task that swallows its cancellation; this returns after `GRACE` and leaves it.
    """
    task = asyncio.ensure_future(_contained(work))
    try:
        await asyncio.wait((task,), timeout=timeout)
        if task.done():
            return _ended(task)
        return Ended(timed_out=True, abandoned=await _cancel(task))
    except asyncio.CancelledError:
        await _cancel(task)
        raise
    finally:
        if task.done():
            work.close()  # it may have been cancelled before it began


def contained(function: Callable[[], Any]) -> Ended:
    """Call foreign code that only computes, here and now."""
    try:
        return Ended(function())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - as above
        return Ended(error=error)


def _ended(task: asyncio.Task[Ended]) -> Ended:
    if task.cancelled():
        return Ended(error=RuntimeError("it cancelled itself"))
    return task.result()


async def _cancel(task: asyncio.Task[Ended]) -> bool:
    """Cancel a task; whether it, or its thread, is still at work after the grace period, which it has in any case."""
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


async def called(
    in_thread: InThread, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Call an async function here and a plain one in a thread, and await what that gives if it can be awaited."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    value = await in_thread(lambda: function(*arguments))
    return await value if inspect.isawaitable(value) else value


class WorkerThreads:
    """A bounded pool of daemon threads for synchronous tools.

    A thread whose caller gave up is replaced, so that blocked tools do not starve the others; at most `most` threads
    wait for work or do wanted work, and a process may exit while abandoned ones still run.
    """

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._wanted = 0  # jobs that someone waits for, in the queue or in a thread
        self.abandoned = 0  # threads still at work for callers that gave up
        self._process = os.getpid()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call `function` in a thread, in a copy of the present context; cancelling this leaves the thread behind.

        Raises `RuntimeError` if there is no thread and the system gives none; `function` is not called then.
        """
        self._check_process()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Ended] = loop.create_future()
        job = _Job(contextvars.copy_context(), function, done, loop)
        with self._lock:
            self._wanted += 1
            try:
                self._staff()
            except RuntimeError:
                self._wanted -= 1
                raise
            self._jobs.put(
                job
            )  # only now: what was told to have failed must not be done later
        try:
            ended = await done
        except asyncio.CancelledError:
            if not job.abandon():
                raise
            with self._lock:
                self._wanted -= 1
                self._threads -= (
                    1  # that thread no longer counts; it ends when its function does
                )
                self.abandoned += 1
                with contextlib.suppress(RuntimeError):  # the next call tries again
                    self._staff()
            raise _LeftBehind from None
        if ended.error is not None:
            raise ended.error
        return ended.value

    def close(self) -> None:
        """Let idle threads go."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)
            self._threads = 0

    def _check_process(self) -> None:
        """Begin anew in a process that was forked: the threads are the parent's, and nobody would take a job."""
        if self._process == os.getpid():
            return
        self._jobs, self._lock, self._process = (
            queue.SimpleQueue(),
            threading.Lock(),
            os.getpid(),
        )
        self._threads = self._wanted = self.abandoned = 0

    def _staff(self) -> None:
        """Start the threads that are wanted; where the system gives no more, those that there are must do."""
        while self._threads < min(self._wanted, self._most):
            try:
                threading.Thread(
                    target=self._work, name="loopwright-tool", daemon=True
                ).start()
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
                self._wanted -= 1
            job.deliver()  # only now: the caller's next job shall find this thread free
            del job  # a thread that waits shall hold on to no result


class _Job:
    """One call in a thread, and whether anybody still waits for it."""

    def __init__(
        self,
        context: contextvars.Context,
        function: Callable[[], Any],
        done: asyncio.Future[Ended],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._context, self._function, self._done, self._loop = (
            context,
            function,
            done,
            loop,
        )
        self._lock = threading.Lock()
        self._state = "waiting"
        self._ended: Ended | None = None
        self.abandoned = False

    def abandon(self) -> bool:
        """Nobody waits any more; whether a thread is at work on it."""
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
            ended = contained(lambda: self._context.run(self._function))
        except (
            KeyboardInterrupt
        ):  # its own: from outside only the main thread is interrupted
            ended = Ended(error=RuntimeError("it raised KeyboardInterrupt"))
        with self._lock:
            self._state, self._ended = "done", ended

    def deliver(self) -> None:
        """Hand what came of it to the caller, if somebody waits."""
        if self._ended is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._settle, self._ended)
        except RuntimeError:  # the caller's loop is closed: nobody waits
            return

    def _settle(self, ended: Ended) -> None:
        if not self._done.done():
            self._done.set_result(ended)
