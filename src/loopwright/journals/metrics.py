"""RunMetrics: how the runs of a journal went, over all of them, without a telemetry SDK."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

from .._internal import dataclasses
from ..errors import CodecError
from ..events.entry import Entry
from ..events.followups import FOLLOW_UP
from ..events.recovery import CallDeadLettered, RecoveryTriggered
from ..events.run import RunFinished
from .base import RESUMABLE, Journal, RunInfo
from .capabilities import list_page
from .listing import RunFilter

COUNTED = (RunFinished.kind, CallDeadLettered.kind, RecoveryTriggered.kind)
"""The kinds of entries that metrics are made of."""
UNREADABLE = b""
"""The body of an entry that the journal's codec cannot decode."""
ESCALATE = "escalate"
WAKING = ("suspended", "waiting")


@dataclasses.dataclass(frozen=True)
class StoredEvent:
    """What metrics need of an entry: its run, its kind, when it was written (wall clock, seconds), and its body as JSON.

    The body is empty where the journal's codec cannot decode it.
    """

    run_id: str
    kind: str
    at: float
    body: bytes


@runtime_checkable
class EventStatistics(Protocol):
    """Reads the entries of some kinds, of all runs."""

    def read(self, kinds: Sequence[str]) -> Iterable[StoredEvent]:
        """Return them in the order in which they were written."""
        ...


@dataclasses.dataclass(frozen=True)
class RunMetrics:
    """How the runs of a journal went. Follow-ups count in `due`, `dead_letters` and `escalations` only.

    Args:
        runs: the number of runs by status.
        success_rate: the share of the runs that ended which completed, 0 to 1; `None` before one ended.
        seconds: the mean time from the beginning of a run to its end, pauses and waits included; `None` as above, as are
            the other means.
        llm_calls: mean.
        tool_calls: mean.
        iterations: mean.
        tokens: mean of the tokens, input and output together; of runs whose providers say them.
        cost: mean of what is known of the costs.
        total_cost: their sum, 0 for none.
        waiting: the runs that wait for a person.
        due: the runs that any process may continue now.
        dead_letters: the calls that were recorded for a person to handle.
        escalations: the failed calls that a person was asked about.
        breakers: the states of the circuit breakers of this process, by name.
        unreadable: the runs of which an entry cannot be decoded; what it says is in no mean and no sum.
    """

    runs: Mapping[str, int]
    success_rate: float | None
    seconds: float | None
    llm_calls: float | None
    tool_calls: float | None
    iterations: float | None
    tokens: float | None
    cost: float | None
    total_cost: float
    waiting: int
    due: int
    dead_letters: int
    escalations: int
    breakers: Mapping[str, str]
    unreadable: int = 0

    @property
    def total(self) -> int:
        """The number of runs."""
        return sum(self.runs.values())


def measure_runs(
    journal: Journal,
    breakers: Mapping[str, str],
    now: float,
    where: RunFilter | None = None,
) -> RunMetrics:
    """Return the metrics of the runs that a filter selects, by default all; `now` is wall time in seconds."""
    infos = {info.run_id: info for info in list_page(journal, where)}
    runs = [info for info in infos.values() if info.engine != FOLLOW_UP]
    endings: dict[str, StoredEvent] = {}
    counted: Counter[str] = Counter()
    unreadable: set[str] = set()
    for event in _read_events(journal, infos):
        if event.body == UNREADABLE:
            unreadable.add(event.run_id)
        elif event.kind == RunFinished.kind:
            endings[event.run_id] = event  # the last one of a run that was retried
        elif _counts(event):
            counted[event.kind] += 1
    ended = [one for one in runs if one.status not in (*RESUMABLE, "damaged")]
    completed = [one for one in ended if one.status == "completed"]
    costs = list(_read_costs(runs, endings))
    return RunMetrics(
        runs=Counter(info.status for info in runs),
        success_rate=len(completed) / len(ended) if ended else None,
        cost=_mean(costs),
        total_cost=sum(costs),
        waiting=sum(info.status == "waiting" for info in runs),
        due=sum(_is_due(info, now) for info in infos.values()),
        dead_letters=counted[CallDeadLettered.kind],
        escalations=counted[RecoveryTriggered.kind],
        breakers=dict(breakers),
        unreadable=len(unreadable),
        **_read_means(ended, endings),
    )


def _read_means(
    ended: Sequence[RunInfo], endings: Mapping[str, StoredEvent]
) -> dict[str, float | None]:
    """Return the means over the runs that ended."""
    known = [(info, endings[info.run_id]) for info in ended if info.run_id in endings]
    bodies: list[dict[str, Any]] = [json.loads(event.body) for _, event in known]
    tokens = [_count_tokens(body["usage"]) for body in bodies]
    return {
        "seconds": _mean([event.at - info.created for info, event in known]),
        "tokens": _mean([one for one in tokens if one is not None]),
        **{
            name: _mean([body[name] for body in bodies])
            for name in ("llm_calls", "tool_calls", "iterations")
        },
    }


def _read_costs(
    runs: Iterable[RunInfo], endings: Mapping[str, StoredEvent]
) -> Iterator[float]:
    for info in runs:
        event = endings.get(info.run_id)
        cost = None if event is None else json.loads(event.body)["usage"].get("cost")
        if cost is not None:
            yield cost


def _count_tokens(usage: Mapping[str, Any]) -> int | None:
    parts = [usage.get("input_tokens"), usage.get("output_tokens")]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _is_due(info: RunInfo, now: float) -> bool:
    return info.status == "released" or (
        info.status in WAKING and 0 < info.wake_at <= now
    )


def _counts(event: StoredEvent) -> bool:
    """Whether an entry is a dead letter or an escalation."""
    if event.kind == CallDeadLettered.kind:
        return True
    return bool(json.loads(event.body)["strategy"] == ESCALATE)


def _read_events(
    journal: Journal, infos: Mapping[str, RunInfo]
) -> Iterator[StoredEvent]:
    """Return the entries that metrics are made of, of some runs, by an index where the journal has one."""
    statistics: object = getattr(journal, "statistics", None)
    if isinstance(statistics, EventStatistics):
        found = statistics.read(COUNTED)
        yield from (event for event in found if event.run_id in infos)
        return
    for run_id, info in infos.items():
        if not info.damage:
            entries = journal.read(run_id)
            yield from (_to_event(one) for one in entries if one.kind in COUNTED)


def _to_event(entry: Entry) -> StoredEvent:
    try:
        payload = entry.payload
    except CodecError:
        payload = UNREADABLE
    return StoredEvent(entry.run_id, entry.kind, entry.at, payload)
