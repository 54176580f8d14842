"""Do several works at once, each in a branch of its own."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar, cast

from ...errors import (
    ConfigError,
    LoopwrightError,
    PhaseError,
    Suspended,
    get_error_name,
)
from ...events.branches import BranchFinished, BranchStarted
from ...events.effect_key import branch_key, opened_key, timeout_key
from ..session.branches import Branches, Turn, combine_waits
from ..session.scope import Scope
from .cycle import Cycle

T = TypeVar("T")
RECORDED_AT: dict[str, Callable[[str], str]] = {
    "timeout": timeout_key,
    "as_completed": opened_key,
}
"""Where the beginning of a verb that has branches is recorded; that of a gather is not."""
BranchWork: TypeAlias = Callable[[Cycle], Awaitable[T]]
"""What a branch does, given its phases."""


async def gather(
    cycle: Cycle,
    works: Sequence[BranchWork[T]],
    max_concurrency: int | None,
    names: Sequence[str] | None = None,
) -> list[T]:
    """Do works at once; return their results in order, or raise the first error once all have ended."""
    check_concurrency(max_concurrency)
    works = works if names is None else _name_works(works, names)
    with cycle.scope.enter("gather"):
        key = open_key(cycle, "gather")
        branches = [
            open_branch(cycle, f"{key}.{index}", name)
            for index, name in enumerate(names or [""] * len(works))
        ]
        places = Branches(cycle.session.replay_end, max_concurrency)
        turns = [places.add(begun=branch.scope.is_replaying()) for branch in branches]
        settled = await asyncio.gather(
            *(
                _do_in_turn(work, branch, places, turn)
                for work, branch, turn in zip(works, branches, turns, strict=True)
            ),
            return_exceptions=True,
        )
        for name, branch in zip(names or (), branches, strict=False):
            cycle.scope.watched[name] = branch.scope.monitor, branch.scope.nudges
        return read_results(cycle, key, branches, settled)


def _name_works(
    works: Sequence[BranchWork[T]], names: Sequence[str]
) -> list[BranchWork[T]]:
    """Return works that record when they begin and end, by their names; raise `ConfigError`."""
    given = cast("Sequence[object]", names)
    is_list = not isinstance(given, str)
    are_texts = is_list and all(isinstance(one, str) for one in given)
    if not are_texts or len(names) != len(works):
        raise ConfigError(
            f"names: must be a text for each of the {len(works)} works, got {names!r:.200}"
        )
    return [
        functools.partial(_do_named_work, work, name, index)
        for index, (work, name) in enumerate(zip(works, names, strict=True))
    ]


async def _do_named_work(
    work: BranchWork[T], name: str, index: int, branch: Cycle
) -> T:
    """Do a work between two entries with its name; one that waits has not ended."""
    name = branch.services.redactor.redact_text(name)
    _record_branch(branch, BranchStarted(name, index))
    try:
        result = await work(branch)
    except Suspended:
        raise
    except (Exception, asyncio.CancelledError) as raised:
        error = _read_own_error(branch, raised)
        _record_branch(branch, BranchFinished(name, index, get_error_name(error)))
        raise
    _record_branch(branch, BranchFinished(name, index))
    return result


def _record_branch(branch: Cycle, event: BranchStarted | BranchFinished) -> None:
    """Record once that a branch began or ended."""
    is_end = isinstance(event, BranchFinished)
    effect = branch.scope.path.rpartition(".")[0]
    key = branch_key(effect, event.index, ended=is_end)
    if branch.session.replay.effects.side(key) is None:
        branch.session.writer.record_after_replay(key, event)


def check_concurrency(max_concurrency: int | None) -> None:
    """Raise `ConfigError` for a number of branches that lets none run."""
    if max_concurrency is not None and max_concurrency < 1:
        raise ConfigError(f"max_concurrency must be at least 1, got {max_concurrency}")


def open_key(cycle: Cycle, verb: str) -> str:
    """Return the key of a verb that has branches; raise if something else is recorded there."""
    scope, effects = cycle.scope, cycle.session.replay.effects
    is_replaying = scope.is_replaying()
    key = scope.next_key()
    recorded = [name for name, place in RECORDED_AT.items() if effects.side(place(key))]
    expected = [name for name in RECORDED_AT if name == verb]
    is_another = recorded != expected and (is_replaying or recorded)
    if is_another or effects.outcome(key) or effects.intent(key):
        raise cycle.session.signals.diverge_from(key, verb)
    return key


def open_branch(cycle: Cycle, path: str, name: str = "") -> Cycle:
    """Return the phases of a branch, in a scope with that path; one with the name of an earlier one is watched on."""
    outer = cycle.scope
    cycle.session.sensitivity.places.open(path)
    scope = Scope(cycle.session, path, outer.engine_usage, outer.delivered)
    scope.inherit(outer)
    unwatched = scope.monitor, scope.nudges
    scope.monitor, scope.nudges = outer.watched.pop(name, unwatched)
    branch = Cycle(scope, cycle.engine, cycle.latest, cycle.guards, cycle.run_child)
    branch.succession = cycle.succession
    return branch


async def _do_in_turn(
    work: BranchWork[T], branch: Cycle, places: Branches, turn: Turn
) -> T:
    """Do the work of a branch once it is its turn."""
    async with places.place(turn):
        return await do_work(work, branch)


async def do_work(work: BranchWork[T], branch: Cycle) -> T:
    """Do the work of a branch; refuse one that cancelled a verb of its own and continued."""
    try:
        result = await work(branch)
    except asyncio.CancelledError as raised:
        raise _read_own_error(branch, raised) from raised
    branch.scope.check_cancelled()
    return result


def _read_own_error(
    branch: Cycle, raised: Exception | asyncio.CancelledError
) -> Exception:
    """Return what a branch raised by itself; raise a cancellation of it."""
    cuts = branch.session.signals.cuts
    return cuts.read_own_error(branch.scope.path, raised)


def read_results(
    cycle: Cycle, key: str, branches: Sequence[Cycle], settled: list[T | BaseException]
) -> list[T]:
    """Return the results of branches; raise the first error that is not a wait, else a wait."""
    waiting = [halted for branch in branches if (halted := close_branch(branch))]
    results: list[T] = []
    for outcome in settled:
        if not isinstance(outcome, BaseException):
            results.append(outcome)
        elif not isinstance(outcome, Suspended):
            cycle.session.cancel_questions(key)
            raise outcome
    if waiting:  # also if the branch swallowed it
        raise park_branches(cycle, waiting, key)
    return results


def close_branch(branch: Cycle) -> Suspended | None:
    """Refuse further verbs of a branch; return what it waits for."""
    halted = branch.scope.halted
    branch.scope.halted = PhaseError(
        "this branch is over: use the run that gathered it"
    )
    return halted if isinstance(halted, Suspended) else None


def park_branches(cycle: Cycle, waiting: list[Suspended], key: str) -> LoopwrightError:
    """Return the error that ends a verb some of whose branches wait."""
    if cycle.scope.is_replaying():
        expected = "effects after it"
        found = "branches that wait"
        return cycle.session.signals.diverge(key, expected, found)
    return cycle.scope.halt(combine_waits(waiting))
