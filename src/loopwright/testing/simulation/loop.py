"""SimulatedLoop: an asyncio event loop in which a seed decides the order, and time costs nothing."""

import asyncio
import contextlib
import contextvars
import functools
import heapq
import itertools
import random
import sys
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

MAX_STEPS = 400_000
"""Steps of one world, after which it counts as one that never ends."""
MAX_CLOSES = 1_000
"""How often what a dead process left in one task is closed before it is given up."""
THREAD_SECONDS = 0.004
"""The longest time until a thread of a pool begins its work."""


class Host(Protocol):
    """A simulated process: what it began never continues once it is dead, and waits while it is frozen."""

    is_alive: bool
    frozen_until: float


HOST: ContextVar[Host | None] = ContextVar("HOST", default=None)
"""The process to which the code that runs now belongs; every task and callback inherits it."""


class _Step(NamedTuple):
    """A callback that is ready, or due at `when`."""

    when: float
    number: int
    handle: asyncio.Handle
    call: Callable[[], object]
    host: Host | None
    is_task: bool


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Run tasks of several simulated processes in virtual time.

    Ready steps of tasks that stand next to each other are taken in an order that the seed
    decides; plain callbacks keep theirs, as asyncio promises. Time moves only when nothing
    is ready. What runs in a thread is one step, in this thread, a little later.

    Args:
        source: what decides the order.
        width: how many steps are looked at for the next one; 1 is the order of asyncio.
    """

    def __init__(self, source: random.Random, *, width: int = 1) -> None:
        self._random, self._width = source, width
        self._now = 0.0
        self._ready: deque[_Step] = deque()
        self._timers: list[_Step] = []
        self._numbers = itertools.count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._closed = self._stopping = self._running = False
        self.steps = 0
        self.errors: list[dict[str, Any]] = []
        """What callbacks raised, as `call_exception_handler` was told."""

    # --- time and callbacks ---

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._now

    def call_soon(  # type: ignore[override]  # as with run_in_executor
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call a function as soon as possible."""
        if context is None:  # an empty one is given, and false
            context = contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(self._step(0.0, handle, callback, args, context))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # as above

    def call_later(  # type: ignore[override]  # as with run_in_executor
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call a function `delay` virtual seconds from now."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # as above
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call a function at a virtual time."""
        if context is None:  # an empty one is given, and false
            context = contextvars.copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        step = self._step(when, handle, callback, args, context)
        heapq.heappush(self._timers, step)
        return handle

    def _step(
        self,
        when: float,
        handle: asyncio.Handle,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: Context,
    ) -> _Step:
        is_task = isinstance(getattr(callback, "__self__", None), asyncio.Task)
        return _Step(
            when,
            next(self._numbers),
            handle,
            functools.partial(context.run, callback, *args),
            context.get(HOST),
            is_task,
        )

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is dropped when it is due."""

    # --- tasks, futures and threads ---

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - typeshed has each version's own options
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **options: Any,
    ) -> "asyncio.Task[T]":
        """Return a task of this loop, which is kept until the loop is closed."""
        task = asyncio.Task(coro, loop=self, name=name, context=context, **options)
        self._tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]  # typeshed names the types of arguments one by one
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Call a function in one step, some time later, as if it ran in a thread."""
        done = self.create_future()

        def work() -> None:
            if done.cancelled():  # as a thread pool does with work that has not begun
                return
            try:
                value = func(*args)
            except Exception as error:  # noqa: BLE001 - whatever it raises belongs to who waits for it
                _settle(done, error=error)
            else:
                _settle(done, value)

        self.call_later(self._random.uniform(0.0, THREAD_SECONDS), work)
        return done

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: asynchronous generators are closed with the tasks that hold them."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there are no threads."""

    # --- running ---

    def run_until_complete(self, future: Any) -> Any:
        """Run until a future is done, and return its result."""
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_after)
        self.run_forever()
        return task.result()

    def run_forever(self) -> None:
        """Run until `stop`; raise `RuntimeError` where nothing is left to do, or the steps never end."""
        self._running, self._stopping = True, False
        hooks = sys.get_asyncgen_hooks()
        # Generators of dead processes are dropped where they are, without clean-up.
        sys.set_asyncgen_hooks(finalizer=_drop)
        asyncio._set_running_loop(self)
        try:
            while not self._stopping:
                self._run_step()
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            self._running = False

    def _run_step(self) -> None:
        while self._timers and self._timers[0].when <= self._now:
            self._ready.append(heapq.heappop(self._timers))
        if not self._ready:
            self._advance()
            return
        step = self._choose()
        if step.handle.cancelled() or not _is_alive(step.host):
            return
        if step.host is not None and step.host.frozen_until > self._now:
            heapq.heappush(self._timers, step._replace(when=step.host.frozen_until))
            return
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise RuntimeError(f"the world did not end within {MAX_STEPS} steps")
        try:
            step.call()
        except Exception as error:  # noqa: BLE001 - as asyncio does with what a callback raises
            self.call_exception_handler({"message": "callback", "exception": error})

    def _advance(self) -> None:
        """Let time pass to the next timer that counts."""
        while self._timers:
            step = self._timers[0]
            if not step.handle.cancelled() and _is_alive(step.host):
                self._now = step.when
                return
            heapq.heappop(self._timers)
        raise RuntimeError("nothing is left to do, and something is waited for")

    def _choose(self) -> _Step:
        """Take a step: one of the tasks' at the front, or the plain callback that is there."""
        if self._width == 1 or not self._ready[0].is_task:
            return self._ready.popleft()
        front = itertools.islice(self._ready, self._width)
        count = sum(1 for _ in itertools.takewhile(lambda step: step.is_task, front))
        index = self._random.randrange(count)
        step = self._ready[index]
        del self._ready[index]
        return step

    def _stop_after(self, task: "asyncio.Future[Any]") -> None:
        self.stop()

    def stop(self) -> None:
        """Stop after the step that runs now."""
        self._stopping = True

    def is_running(self) -> bool:
        """Return whether it runs."""
        return self._running

    def is_closed(self) -> bool:
        """Return whether it was closed."""
        return self._closed

    def get_debug(self) -> bool:
        """Return false: asyncio's own checks are off."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong in a callback, for the checks."""
        if not self._closed:
            self.errors.append(context)

    def close(self) -> None:
        """End what is left, in order: dead processes leave tasks that never finish."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        with warnings.catch_warnings():
            # What a dead process had not begun to wait for is never waited for.
            warnings.simplefilter("ignore", RuntimeWarning)
            # A coroutine that is closed may begin a task: here, and in no loop of the caller.
            asyncio._set_running_loop(self)
            try:
                for task in self._tasks:
                    if not task.done():
                        _abandon(task)
            finally:
                asyncio._set_running_loop(None)
            self._tasks.clear()


def make_loop(source: random.Random, width: int) -> SimulatedLoop:
    """Return a new loop, which has no sockets, processes and signals."""
    return SimulatedLoop(source, width=width)  # type: ignore[abstract]


def _is_alive(host: Host | None) -> bool:
    return host is None or host.is_alive


def _drop(generator: AsyncGenerator[Any, Any]) -> None:
    """Do nothing with a generator that no task iterates any more."""


def _settle(
    done: "asyncio.Future[Any]", value: Any = None, *, error: Exception | None = None
) -> None:
    if done.done():  # the caller gave up
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)


def _abandon(task: "asyncio.Task[Any]") -> None:
    """Close what a task runs, from the innermost coroutine outwards; what still wants to wait is cut off.

    A coroutine that is closed from outside while its clean-up waits would be left as it is, and complain when it is freed.
    """
    work = task.get_coro()
    for _ in range(MAX_CLOSES):
        if (innermost := _find_innermost(work)) is None:
            return
        # It may wait for something while it is closed, or fail in its clean-up: its process is dead.
        with contextlib.suppress(Exception):
            innermost.close()


def _find_innermost(work: Any) -> Any:
    """Return the last coroutine in a chain of those that wait for one another; none if all of it ended."""
    found = None
    while getattr(work, "cr_frame", None) is not None:
        found, work = work, work.cr_await
    return found
