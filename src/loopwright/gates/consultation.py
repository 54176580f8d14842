"""Ask one gate for its decision, within its time: an answer that comes later does not count."""

import asyncio
import copy
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, Final

from ..resilience.timeouts import CodeOutcome, capture, run_with_timeout, shorter
from .base import Action, InstantGate, PolicyGate, PolicyState, is_instant

GATE_TIMEOUT: Final = 1.0
"""Seconds for a decision of a gate without a `timeout`, whether it is awaited or only computes."""
LATE: Final = CodeOutcome(timed_out=True)


def compute(gate: InstantGate, action: Action, state: PolicyState) -> CodeOutcome:
    """Call a gate that only computes; what it says after its `timeout` is a time-out.

    Nothing can interrupt it: it blocks the thread until it returns.
    """
    timeout = _find_timeout(gate)
    started = time.perf_counter()
    ended = capture(functools.partial(gate.decide, action, state))
    return LATE if time.perf_counter() - started > timeout else ended


async def consult(
    gate: PolicyGate, action: Action, state: PolicyState, timeout: float | None
) -> CodeOutcome:
    """Await a gate for at most `timeout` seconds; what it says later is a time-out.

    A gate that blocks the event loop ends before its deadline is looked at, so its time is measured
    as well. It may keep the values that it is given, and even change them: they are copies.
    """
    own = dataclasses.replace(
        action,
        arguments=copy.deepcopy(dict(action.arguments)),
        defaults=copy.deepcopy(action.defaults),
    )
    ended = await run_with_timeout(_await(gate, own, state, timeout), timeout)
    return LATE if isinstance(ended.error, _LateDecision) else ended


def _no_bound() -> None:
    return None


async def ask_gate(
    gate: PolicyGate,
    action: Action,
    state: PolicyState,
    remaining: Callable[[], float | None] = _no_bound,
) -> CodeOutcome:
    """Return what a gate says: computed in place, or awaited within its `timeout` and what `remaining` returns."""
    if is_instant(gate):
        return compute(gate, action, state)
    timeout = shorter(_find_timeout(gate), remaining())
    return await consult(gate, action, state, timeout)


def _find_timeout(gate: object) -> float:
    return float(getattr(gate, "timeout", GATE_TIMEOUT))


class _LateDecision(Exception):
    """A gate answered after its time-out."""


async def _await(
    gate: PolicyGate, action: Action, state: PolicyState, timeout: float | None
) -> Any:
    loop = asyncio.get_running_loop()
    started = loop.time()
    decision = await gate.evaluate(action, state)
    if timeout is not None and loop.time() - started > timeout:
        raise _LateDecision
    return decision
