"""Call one hook within its time, and keep what it did for the journal."""

import asyncio
import copy
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from ..._internal import dataclasses
from ...errors import JournalError, ReplayDivergence, RunSignal, TimedOut
from ...hooks.base import Moment, PlannedHook
from ...messages import Json

MAX_STATE = 4_096
"""Bytes of JSON that a hook may keep in one scope."""
PASSING = (RunSignal, JournalError, ReplayDivergence)
"""Errors that end the run, which a hook met by asking a model."""

Prepare = Callable[[], Awaitable[None]]
"""Makes what the hook is called about durable, before a hook that takes time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """An async method of a hook that has begun and waits for something."""

    coroutine: Any
    first: Any = None
    has_begun: bool = False


def start_hook(method: Callable[..., Any], moment: Moment, given: object) -> Any:
    """Call a method of a hook; return what it returns, or `Waiting` for one that is not done at once.

    Most hooks have mostly nothing to do, so an async one that waits for nothing needs no timer.
    """
    found: Any = method(moment, given)
    if not _is_coroutine(found):
        return Waiting(found) if inspect.isawaitable(found) else found
    try:
        return Waiting(found, found.send(None), has_begun=True)
    except StopIteration as done:
        return done.value


def _is_coroutine(found: Any) -> bool:
    return type(found) is types.CoroutineType


async def finish_hook(hook: PlannedHook, waiting: Waiting, prepare: Prepare) -> object:
    """Return what a method returns that waits for something; raise `TimedOut`, or what it raises."""
    try:
        async with asyncio.timeout(hook.timeout):
            await prepare()
            if waiting.has_begun:
                return await _resume(waiting.coroutine, waiting.first)
            return await waiting.coroutine
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
