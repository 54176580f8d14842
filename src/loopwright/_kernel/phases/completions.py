"""Give the branches of an engine as they end: the order is recorded, and a resumed run keeps it."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar, cast

from ..._internal import dataclasses
from ...errors import Aborted, JournalError, PhaseError, ReplayDivergence, Suspended
from ...events.branches import BranchDelivered, BranchesClosed, BranchesOpened
from ...events.effect_key import closed_key, done_key, opened_key
from ...result import Finished
from ..session.branches import Branches, Turn, combine_waits
from ..session.cancellation import wait_despite_cancellation
from .cycle import Cycle
from .gather import (
    BranchWork,
    check_concurrency,
    close_branch,
    do_work,
    open_branch,
    open_key,
)

T = TypeVar("T")
R = TypeVar("R")
VERB = "as_completed"
NEVER_DELIVERED = (Aborted, JournalError, ReplayDivergence)
"""Errors of a branch that end the run: the engine gets them as such."""


@dataclasses.dataclass(eq=False)
class _Branch(Generic[T]):
    """A branch at work, with its index and its phases."""

    index: int
    cycle: Cycle
    task: asyncio.Task[T]
    has_ended: bool = False
    error: BaseException | None = None
    waits_for: Suspended | None = None

    @property
    def path(self) -> str:
        """The path of its scope."""
        return self.cycle.scope.path

    def end(self) -> None:
        """Note that it has ended, and what it waits for, also if it swallowed that."""
        self.has_ended, halted = True, self.cycle.scope.halted
        if self.task.cancelled():
            self.error = asyncio.CancelledError(f"branch {self.path} was cancelled")
        else:
            self.error = self.task.exception()
        if isinstance(self.error or halted, Suspended):
            self.waits_for = cast("Suspended", self.error or halted)


class BranchGroup(Generic[T]):
    """Branches that work beside their engine, which is given each when it has ended.

    What is given is recorded at that moment. On replay, recorded deliveries are made in
    their order; the first new one is made once all branches have replayed what they had
    done, so those that had ended come in the order of their last entries.
    """

    def __init__(self, cycle: Cycle, max_concurrency: int | None) -> None:
        check_concurrency(max_concurrency)
        self._cycle, self._session = cycle, cycle.session
        self._max = max_concurrency
        self._key = ""
        self._is_open = False
        self._branches: list[_Branch[T]] = []
        self._replaying: set[_Branch[T]] = set()
        """The branches that have not replayed yet all that they had done."""
        self._ended: list[_Branch[T]] = []
        """The branches that ended and were not given yet, in that order."""
        self._working = self._given = 0
        self._changed = asyncio.Event()
        self._combined: Suspended | None = None
        """What the engine met where all branches wait."""

    # --- the engine's side ---

    def open(self) -> None:
        """Begin, and record it."""
        if self._key:
            raise PhaseError("as_completed was entered already: call it again")
        with self._cycle.scope.enter(VERB):
            self._key = open_key(self._cycle, VERB)
        self._record_once(opened_key(self._key), BranchesOpened())
        self._places = Branches(self._session.replay_end, self._max)
        self._places.work_beside(beside=True)
        self._is_open = True

    def start(self, work: BranchWork[T]) -> int:
        """Begin one more branch; return its index."""
        self._check_open()
        self._cycle.scope.check_branch(VERB)
        path = f"{self._key}.{len(self._branches)}"
        cycle, scopes = open_branch(self._cycle, path), self._session.replay.scopes
        begun = scopes.has_ended(path) or cycle.scope.is_replaying()
        turn = self._places.add(begun=begun)
        task = asyncio.ensure_future(self._do_in_turn(work, cycle, turn))
        branch = _Branch(len(self._branches), cycle, task)
        self._branches.append(branch)
        self._working += 1
        if begun:
            self._replaying.add(branch)
            self._session.replay_end.watch(path, lambda key: self._settle(branch))
        task.add_done_callback(lambda done: self._end(branch, turn))
        return branch.index

    async def next(self) -> Finished[T]:
        """Return the outcome of the branch that ended next; raise `StopAsyncIteration` once all are given."""
        self._check_open()
        scope, number = self._cycle.scope, self._given
        recorded = self._session.replay.effects.side(done_key(self._key, number))
        if recorded is None:
            scope.check_cut()
        # A limit does not keep the engine from the outcomes that there are.
        with scope.enter(VERB, recorded=True):
            if number == len(self._branches):
                raise StopAsyncIteration
            with self._parent_waiting():
                if isinstance(recorded, BranchDelivered):
                    branch = await self._wait_for_recorded(recorded.index)
                else:
                    branch = await self._wait_for_next()
            return self._deliver(branch)

    async def close(self, error: BaseException | None) -> None:
        """End with what the engine's block ended with: other branches are waited for, or cut off."""
        try:
            with self._parent_waiting():
                await self._end_others(error)
        finally:
            await self._cancel()
            self._is_open = False
            self._places.work_beside(beside=False)

    def _check_open(self) -> None:
        if not self._is_open:
            raise PhaseError("as_completed is not open: use it as `async with`")

    # --- what branches do ---

    async def _do_in_turn(self, work: BranchWork[T], cycle: Cycle, turn: Turn) -> T:
        cycle.scope.enter_branch()
        await turn
        return await do_work(work, cycle)

    def _end(self, branch: _Branch[T], turn: Turn) -> None:
        self._places.end(turn)
        self._working -= 1
        branch.end()
        if branch.waits_for is None:
            self._ended.append(branch)
        self._settle(branch)

    def _settle(self, branch: _Branch[T]) -> None:
        """Note that a branch has replayed all that it had done; order those that had ended after the last."""
        self._changed.set()
        if branch not in self._replaying:
            return
        self._replaying.remove(branch)
        self._session.replay_end.unwatch(branch.path)
        if not self._replaying:
            last_entry = self._session.replay.scopes.last_entry_inside
            self._ended.sort(key=lambda one: last_entry(one.path))

    # --- deliveries ---

    async def _wait_for_recorded(self, index: int) -> _Branch[T]:
        """Return the branch that was given here before, once it has ended again."""
        expected = f"branch {index} ended as number {self._given}"
        if index >= len(self._branches):
            raise self._diverge(expected, "no such branch")
        branch = self._branches[index]
        await self._wait_until(lambda: branch.has_ended)
        if branch not in self._ended or branch.task.cancelled():
            raise self._diverge(expected, "it waits")
        return branch

    async def _wait_for_next(self) -> _Branch[T]:
        """Return a branch that ended; raise `Suspended` if all others wait."""
        if self._session.signals.cuts.has(self._key):
            raise self._diverge("the engine left the branches", "it continues")
        await self._wait_until(self._has_next)
        if not self._ended:
            self._combined = combine_waits(self._waits())
            raise self._cycle.scope.halt(self._combined)
        return self._ended[0]

    def _has_next(self) -> bool:
        """Whether it is known which branch ended next, or that all others wait."""
        return not self._replaying and (bool(self._ended) or not self._working)

    async def _wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Wait until what branches do meets a condition."""
        while not is_reached():
            self._changed.clear()
            await self._changed.wait()

    def _deliver(self, branch: _Branch[T]) -> Finished[T]:
        """Return the outcome of a branch, and record that the engine was given it."""
        session = self._session
        if not _is_of_engine(branch.error):
            raise cast("BaseException", branch.error)
        error = cast("Exception | None", branch.error)
        event = BranchDelivered(branch.index)
        self._record_once(done_key(self._key, self._given), event)
        session.cancel_questions(branch.path)
        self._given += 1
        self._ended.remove(branch)
        close_branch(branch.cycle)
        value: Any = None if error else branch.task.result()
        return Finished(branch.index, value, error)

    def _record_once(
        self, key: str, event: BranchDelivered | BranchesOpened | BranchesClosed
    ) -> None:
        if self._session.replay.effects.side(key) is None:
            self._session.writer.record_after_replay(key, event)

    def _diverge(self, expected: str, found: str) -> ReplayDivergence:
        return self._session.signals.diverge(self._key, expected, found)

    # --- the end ---

    async def _end_others(self, error: BaseException | None) -> None:
        """Let the branches that were not given end as the engine's block ended."""
        if self._given == len(self._branches):
            return
        if isinstance(error, Suspended):
            await self._wait_for_all(error)
        if _is_of_engine(error) and self._session.signals.is_running:
            await self._cut_off()
        elif self._session.signals.cuts.is_cut(self._key):
            await self._wait_until(lambda: not self._replaying)

    def _waits(self) -> list[Suspended]:
        """Return what the branches wait for."""
        return [one.waits_for for one in self._branches if one.waits_for]

    async def _wait_for_all(self, error: Suspended) -> NoReturn:
        """Wait until every branch has ended or waits, too; then raise what the run waits for."""
        await self._wait_until(lambda: not self._working)
        scope = self._cycle.scope
        own = [] if error is self._combined else [error]
        scope.halted = combine_waits([*own, *self._waits()])
        raise scope.halted from error

    async def _cut_off(self) -> None:
        """Record that the engine left, once the branches have replayed; then cancel them."""
        await self._wait_until(lambda: not self._replaying)
        used = self._session.budget.book_cut(self._key)
        self._record_once(closed_key(self._key), BranchesClosed(used))
        self._session.signals.cuts.add(self._key, "cancelled")
        await self._cancel()
        self._session.cancel_questions(self._key)

    async def _cancel(self) -> None:
        """Cancel the branches that are under way, and wait until they have ended."""
        tasks = [branch.task for branch in self._branches]
        for task in tasks:
            task.cancel()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        cancelled = await wait_despite_cancellation(ended)
        for branch in self._branches:
            close_branch(branch.cycle)
        if cancelled is not None:
            raise cancelled

    @contextmanager
    def _parent_waiting(self) -> Generator[None]:
        self._places.work_beside(beside=False)
        try:
            yield
        finally:
            self._places.work_beside(beside=True)


def _is_of_engine(error: BaseException | None) -> bool:
    """Whether an error is the engine's own; others end the run, or the process."""
    is_ending = isinstance(error, NEVER_DELIVERED)
    return isinstance(error, Exception | None) and not is_ending


class Completions(Generic[R, T]):
    """The works of `Run.as_completed`: an async context, and an iterator of their outcomes."""

    def __init__(
        self,
        group: BranchGroup[T],
        works: Sequence[Callable[[R], Awaitable[T]]],
        bind: Callable[[Callable[[R], Awaitable[T]]], BranchWork[T]],
    ) -> None:
        self._group, self._works, self._bind = group, works, bind

    def start(self, work: Callable[[R], Awaitable[T]]) -> int:
        """Begin one more work; return its index."""
        return self._group.start(self._bind(work))

    async def __aenter__(self) -> "Completions[R, T]":
        """Begin the works."""
        self._group.open()
        for work in self._works:
            self.start(work)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cut off the works that are under way, or wait for them where the run waits."""
        await self._group.close(error)

    def __aiter__(self) -> "Completions[R, T]":
        """Return itself: an outcome is given once."""
        return self

    async def __anext__(self) -> Finished[T]:
        """Return the outcome of the work that ended next."""
        return await self._group.next()
