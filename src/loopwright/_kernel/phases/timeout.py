"""Bound a work by active time: what was faster, the work or its time, is recorded."""

import asyncio
import functools
from typing import Any, TypeVar

from ...errors import TimedOut
from ...events.branches import TimeoutFired, TimeoutSet
from ...events.effect_key import fired_key, timeout_key
from ..session.active_timer import ActiveTimer
from ..session.session import Session
from .cycle import Cycle
from .gather import BranchWork, do_work, open_branch, open_key, read_results

T = TypeVar("T")
VERB = "timeout"


async def limit_time(cycle: Cycle, seconds: float, work: BranchWork[T]) -> T:
    """Return the result of a work in a branch of its own; raise `TimedOut` if its time was over first."""
    session = cycle.session
    with cycle.scope.enter(VERB):
        key = open_key(cycle, VERB)
        branch = open_branch(cycle, f"{key}.0")
        task = asyncio.ensure_future(do_work(work, branch))
        expire = functools.partial(_expire, session, key, seconds, task)
        timer = ActiveTimer(session, _set_deadline(session, key, seconds), expire)
        session.replay_end.watch(key, timer.arm)
        try:
            [outcome] = await asyncio.gather(task, return_exceptions=True)
        finally:
            session.replay_end.unwatch(key)
            timer.cancel()
        if session.signals.cuts.has(key):
            outcome = _time_out(session, key, seconds)
        return read_results(cycle, key, [branch], [outcome])[0]


def _set_deadline(session: Session, key: str, seconds: float) -> float:
    """Return when the time of a branch is over, in active seconds: recorded, or from now on."""
    recorded = session.replay.effects.side(timeout_key(key))
    if isinstance(recorded, TimeoutSet):
        return recorded.deadline
    deadline = round(session.active.seconds() + seconds, 6)
    event = TimeoutSet(seconds, deadline)
    session.writer.record_after_replay(timeout_key(key), event)
    return deadline


def _expire(
    session: Session, key: str, seconds: float, task: asyncio.Future[Any]
) -> None:
    """Cut a branch off, unless it has ended; that is recorded before it is cancelled."""
    signals = session.signals
    if task.done() or not signals.is_running:
        return
    used = session.budget.book_cut(key)
    session.writer.record(fired_key(key), TimeoutFired(seconds, used))
    signals.cuts.add(key, "timed_out")
    task.cancel()


def _time_out(session: Session, key: str, seconds: float) -> BaseException:
    """Return the error that ends the verb: what ends the run comes before a time-out."""
    fatal = session.signals.fatal
    return fatal or TimedOut(f"the work at {key} took longer than {seconds:g} s")
