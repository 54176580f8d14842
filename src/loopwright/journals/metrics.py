"""RunMetrics: how the runs of a journal went, over all of them, without a telemetry SDK."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple, Protocol, runtime_checkable

from pydantic_core import from_json

from .._internal import dataclasses
from ..errors import CodecError
from ..events.entry import Entry
from ..events.followups import FOLLOW_UP
from ..events.recovery import CallDeadLettered, RecoveryTriggered
from ..events.run import RunFinished
from .base import RESUMABLE, Journal
from .capabilities import list_page
from .listing import RunFilter

COUNTED = (RunFinished.kind, CallDeadLettered.kind, RecoveryTriggered.kind)
"""The kinds of entries that metrics are made of."""
UNREADABLE = b""
"""The body of an entry that the journal's codec cannot decode."""
ESCALATE = "escalate"
DAMAGED = "damaged"
WAKING = ("suspended", "waiting")
_NUMBERS = "llm_calls", "tool_calls", "iterations"


class CountedRun(NamedTuple):
    """What metrics need of a run; `created` and `wake_at` are wall time in seconds."""

    run_id: str
    engine: str
    status: str
    created: float
    wake_at: float


class StoredEvent(NamedTuple):
    """What metrics need of an entry: its run, its kind, when it was written (wall clock, seconds), and its body as JSON.

    The body is empty where the journal's codec cannot decode it.
    """

    run_id: str
    kind: str
    at: float
    body: bytes


class Ending(NamedTuple):
    """What metrics need of the end of a run; `None` for what is not known."""

    at: float
    tokens: int | None
    cost: float | None
    llm_calls: int
    tool_calls: int
    iterations: int


@runtime_checkable
class RunStatistics(Protocol):
    """Reads what metrics are made of, by an index."""

    def list_runs(self, where: RunFilter | None) -> Iterable[CountedRun]:
        """Return the runs that a filter selects."""
        ...

    def read_events(self, where: RunFilter | None) -> Iterable[StoredEvent]:
        """Return the entries of the kinds in `COUNTED`, for each run in the order of writing."""
        ...


class JournalStatistics:
    """Reads the same from a journal that has no statistics of its own, run by run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def list_runs(self, where: RunFilter | None) -> Iterator[CountedRun]:
        """Return the runs that a filter selects."""
        for one in list_page(self._journal, where):
            yield CountedRun(one.run_id, one.engine, one.status, one.created, one.wake_at)  # fmt: skip

    def read_events(self, where: RunFilter | None) -> Iterator[StoredEvent]:
        """Return the entries of the kinds in `COUNTED`, for each run in the order of writing."""
        for info in list_page(self._journal, where):
            entries = () if info.damage else self._journal.read(info.run_id)
            for entry in entries:
                if entry.kind in COUNTED:
                    yield _read_entry(entry)


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
        unreadable: the runs of which an entry cannot be decoded, or was damaged; what it says is in no mean and no sum.
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
    statistics: object = getattr(journal, "statistics", None)
    if not isinstance(statistics, RunStatistics):
        statistics = JournalStatistics(journal)
    listed = {run.run_id: run for run in statistics.list_runs(where)}
    readable = {run.run_id for run in listed.values() if run.status != DAMAGED}
    endings, counted, unreadable = _count(statistics.read_events(where), readable)
    runs = [run for run in listed.values() if run.engine != FOLLOW_UP]
    ended = [run for run in runs if run.status not in (*RESUMABLE, DAMAGED)]
    completed = sum(run.status == "completed" for run in ended)
    known = (endings.get(run.run_id) for run in runs)
    costs = [one.cost for one in known if one is not None and one.cost is not None]
    return RunMetrics(
        runs=Counter(run.status for run in runs),
        success_rate=completed / len(ended) if ended else None,
        cost=_mean(costs),
        total_cost=sum(costs),
        waiting=sum(run.status == "waiting" for run in runs),
        due=sum(_is_due(run, now) for run in listed.values()),
        dead_letters=counted[CallDeadLettered.kind],
        escalations=counted[RecoveryTriggered.kind],
        breakers=dict(breakers),
        unreadable=len(unreadable),
        **_average(ended, endings),
    )


def _count(
    events: Iterable[StoredEvent], runs: Container[str]
) -> tuple[dict[str, Ending], Counter[str], set[str]]:
    """Return how runs ended, the number of dead letters and escalations by kind, and the runs that cannot be decoded."""
    endings: dict[str, Ending] = {}
    unreadable: set[str] = set()
    counted: Counter[str] = Counter()
    for event in events:
        if event.run_id not in runs:
            continue  # it began after the runs were listed, or its row is damaged
        try:
            if event.kind == RunFinished.kind:
                # The last one of a run that was retried.
                endings[event.run_id] = _read_ending(event)
            elif _counts(event):
                counted[event.kind] += 1
        except (ValueError, TypeError, KeyError, AttributeError):
            unreadable.add(event.run_id)  # its key is missing, or it was changed
    return endings, counted, unreadable


def _read_ending(event: StoredEvent) -> Ending:
    body = from_json(event.body)
    usage = body["usage"]
    parts = [usage.get("input_tokens"), usage.get("output_tokens")]
    known, cost = [part for part in parts if part is not None], usage.get("cost")
    calls, tools, iterations = (int(body[name]) for name in _NUMBERS)
    tokens = sum(known) if known else None
    paid = None if cost is None else float(cost)
    return Ending(float(event.at), tokens, paid, calls, tools, iterations)


def _average(
    ended: Iterable[CountedRun], endings: Mapping[str, Ending]
) -> dict[str, float | None]:
    """Return the means over the runs that ended."""
    known = [(run, endings[run.run_id]) for run in ended if run.run_id in endings]
    return {
        "seconds": _mean([end.at - run.created for run, end in known]),
        "tokens": _mean([end.tokens for _, end in known if end.tokens is not None]),
        "llm_calls": _mean([end.llm_calls for _, end in known]),
        "tool_calls": _mean([end.tool_calls for _, end in known]),
        "iterations": _mean([end.iterations for _, end in known]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _is_due(run: CountedRun, now: float) -> bool:
    return run.status == "released" or (run.status in WAKING and 0 < run.wake_at <= now)


def _counts(event: StoredEvent) -> bool:
    """Whether an entry is a dead letter or an escalation."""
    body = from_json(event.body)
    is_dead = event.kind == CallDeadLettered.kind
    return is_dead or bool(body["strategy"] == ESCALATE)


def _read_entry(entry: Entry) -> StoredEvent:
    try:
        payload = entry.payload
    except CodecError:
        payload = UNREADABLE
    return StoredEvent(entry.run_id, entry.kind, entry.at, payload)
