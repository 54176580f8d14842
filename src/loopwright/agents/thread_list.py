"""The threads of a journal, each by its last turn."""

from collections.abc import Iterator, Mapping

from .._internal import dataclasses
from ..journals.base import Journal, RunInfo
from ..journals.capabilities import iterate_runs, list_page
from ..journals.listing import RunFilter, check_page
from .turn import TurnName

PAGE = 256


@dataclasses.dataclass(frozen=True)
class ThreadInfo:
    """A thread as a journal lists it.

    Args:
        id: its name.
        agent: the agent that its last turn began with.
        turns: the number of its last turn.
        status: that of its last turn: completed, running, waiting …
        run_id: its last turn as a run.
        tags: those of its last turn.
        created: when its last turn began (wall clock, seconds).
    """

    id: str
    agent: str
    turns: int
    status: str
    run_id: str
    tags: Mapping[str, str]
    created: float


def list_threads(
    journal: Journal, where: RunFilter | None, limit: int | None
) -> list[ThreadInfo]:
    """Return the threads whose last turn a filter selects, the one with the newest turn first."""
    check_page(limit, None, where)
    listed: list[ThreadInfo] = []
    for info, name in _list_last_turns(journal, where):
        if limit is not None and len(listed) >= limit:
            break
        listed.append(_describe(info, name))
    return listed


def _describe(info: RunInfo, name: TurnName) -> ThreadInfo:
    return ThreadInfo(
        info.thread, info.agent, name.number, info.status, info.run_id, info.tags, info.created,
    )  # fmt: skip


def _list_last_turns(
    journal: Journal, where: RunFilter | None
) -> Iterator[tuple[RunInfo, TurnName]]:
    """Yield the last turns of all threads among the runs that a filter selects, the newest first."""
    seen: set[str] = set()
    for info in iterate_runs(journal, where, PAGE):
        name = TurnName.parse(info.run_id)
        if name is None or not info.thread or info.thread in seen:
            continue
        seen.add(info.thread)
        if where is None or _is_last(journal, info):
            yield info, name


def _is_last(journal: Journal, info: RunInfo) -> bool:
    """Whether a turn is the last one of its thread."""
    runs = list_page(journal, RunFilter(thread=info.thread), PAGE)
    turns = (one.run_id for one in runs if TurnName.parse(one.run_id))
    return next(turns, info.run_id) == info.run_id
