"""Call one hook within its time, and keep what it did for the journal."""

import asyncio
import copy
import inspect
import types
from collections.abc import (
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from ..._internal import dataclasses
from ...errors import JournalError, ReplayDivergence, RunSignal, TimedOut
from ...hooks.base import Moment, Place, PlannedHook
from ...messages import Json

MAX_STATE = 4_096
"""Bytes of JSON that a hook may keep in one scope."""
SLOW = 0.005
"""Seconds from which on a hook that changed nothing is recorded."""
PASSING = (RunSignal, JournalError, ReplayDivergence)
"""Errors that end the run, which a hook met by asking a model."""

Prepare = Callable[[], Awaitable[None]]
"""Makes what the hook is called about durable, before a hook that takes time."""


class HookCalls:
    """Calls the hooks of a stage one after the other, until one does something.

    Most hooks have mostly nothing to do. Those that wait for nothing share one coroutine, and need no timer.

    Args:
        hooks: the hooks, in order.
        place: where in the run the stage is.
        states: what hooks keep in the scope, by their names.
        known: the hooks of which the journal has what they did, by their names; they are not called.
        read_clock: returns seconds.
    """

    moment: Moment
    """What the last hook was given."""

    def __init__(
        self,
        hooks: Sequence[PlannedHook],
        place: Place,
        states: Mapping[str, dict[str, Json]],
        known: Container[str],
        read_clock: Callable[[], float],
    ) -> None:
        self._hooks, self._place, self._states = hooks, place, states
        self._known, self._read_clock = known, read_clock
        self._position, self._size, self.is_waiting = -1, len(hooks), False
        self.began = 0.0
        """When the last hook was called."""

    @property
    def last(self) -> PlannedHook | None:
        """The hook that was come to last; `None` once none is left."""
        return None if self._position == self._size else self._hooks[self._position]

    async def call(self, value: object) -> object:
        """Return what the next hook returned that did something, failed or took long."""
        place, states, known = self._place, self._states, self._known
        hooks, stage, read_clock = self._hooks, place.stage, self._read_clock
        began, self.is_waiting = read_clock(), False
        for position in range(self._position + 1, self._size):
            hook, self._position, self.began = hooks[position], position, began
            if hook.name in known:
                return None
            self.moment = moment = Moment(place, states, hook.name)
            returned: Any = hook.methods[stage](moment, value)
            is_coroutine = type(returned) is types.CoroutineType
            if is_coroutine or inspect.isawaitable(returned):
                returned = await returned
            if returned is not None or moment.known_state is not None:
                return returned
            ended = read_clock()
            if self.is_waiting or ended - began >= SLOW:
                return None
            began = ended
        self._position = self._size
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """Calls of hooks, of which the last one waits for something."""

    coroutine: Coroutine[Any, Any, object]
    first: object


def start_call(
    calls: HookCalls, value: object
) -> tuple[object, Exception | asyncio.CancelledError | None]:
    """Call hooks until one does something; return what it returned, or `Waiting`, and how it failed."""
    coroutine = calls.call(value)
    try:
        first = coroutine.send(None)
    except StopIteration as done:
        return done.value, None
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a hook is third-party code
        return None, error
    calls.is_waiting = True
    return Waiting(coroutine, first), None


async def finish_hook(hook: PlannedHook, waiting: Waiting, prepare: Prepare) -> object:
    """Return what a method returns that waits for something; raise `TimedOut`, or what it raises."""
    try:
        async with asyncio.timeout(hook.timeout):
            await prepare()
            return await _resume(waiting.coroutine, waiting.first)
    except TimeoutError as error:
        raise TimedOut(f"it took longer than {hook.timeout:g} s") from error


@types.coroutine
def _resume(
    coroutine: Coroutine[Any, Any, object], waits_for: object
) -> Generator[Any, Any, object]:
    """Continue a coroutine in this task from where it waits."""
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:  # noqa: BLE001 - the coroutine gets it
            step: Callable[[], object] = _bind_throw(coroutine, error)
        else:
            step = _bind_send(coroutine, sent)
        try:
            waits_for = step()
        except StopIteration as done:
            return done.value


def _bind_throw(
    coroutine: Coroutine[Any, Any, object], error: BaseException
) -> Callable[[], object]:
    return lambda: coroutine.throw(error)


def _bind_send(
    coroutine: Coroutine[Any, Any, object], sent: object
) -> Callable[[], object]:
    return lambda: coroutine.send(sent)


def read_state(moment: Moment, known: dict[str, Json]) -> dict[str, Json] | None:
    """Return what a hook keeps from now on, if it changed that; raise `ValueError` for what cannot be kept."""
    state = moment.known_state
    if state is None or state == known:
        return None
    try:
        size = len(to_json(state))
    except PydanticSerializationError as error:
        raise ValueError(f"state: must be JSON: {error}") from None
    if size > MAX_STATE:
        raise ValueError(f"state: has {size} bytes, at most {MAX_STATE} are kept")
    return copy.deepcopy(state)
