"""Traces and metrics of runs for OpenTelemetry, by its conventions for generative AI."""

from collections.abc import Sequence

from .._internal import dataclasses
from .._internal.version import __version__
from ..errors import ConfigError
from ..events.effects import (
    AttemptFailed,
    ModelReplied,
    ModelRequested,
    ToolFinished,
)
from ..events.entry import EVENT_TYPES, Entry
from ..events.run import RunFinished
from ..messages import Completion
from ..providers.base import Request
from .semconv import (
    OPERATIONS,
    Attributes,
    activity_attributes,
    event_attributes,
    metric_attributes,
    opening_content,
    outcome_content,
    reply_attributes,
    request_content,
    sampling_attributes,
    usage_attributes,
)
from .span_tracker import (
    MAX_RUNS,
    OTHER,
    Activity,
    ActivityBegan,
    ActivityChange,
    ActivityEnded,
    EntryNoted,
    RunTracker,
)

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ImportError as error:
    raise ConfigError(
        "OpenTelemetryObserver needs opentelemetry-api: pip install 'loopwright[otel]'"
    ) from error

SCOPE = "loopwright"
SECONDS = tuple(0.01 * 2**power for power in range(14))
AGENT_SECONDS = tuple(0.1 * 2**power for power in range(14))
TOKENS = tuple(4**power for power in range(14))
COUNTERS = {
    "loopwright.runs": (
        "{run}",
        "Runs that a process stopped working at, by how they ended.",
    ),
    "loopwright.model.calls": ("{call}", "Model calls, retries not counted."),
    "loopwright.model.retries": (
        "{attempt}",
        "Attempts of model calls that failed and were followed by another.",
    ),
    "loopwright.tool.calls": (
        "{call}",
        "Tool calls by their outcome, whether a tool ran or not.",
    ),
    "loopwright.cost": ("1", "The cost of model calls, in the currency of the prices."),
}
"""The counters of activities; an event that is counted declares its own."""
LOST: Attributes = {"loopwright.status": "lost", "loopwright.stop_reason": "lost"}
"""The ending of a run whose own is not known: it was fenced off, or given up for another."""
HISTOGRAMS: dict[str, tuple[str, str, Sequence[float]]] = {
    "gen_ai.client.operation.duration": ("s", "GenAI operation duration.", SECONDS),
    "gen_ai.client.token.usage": (
        "{token}",
        "Number of input and output tokens used.",
        TOKENS,
    ),
    "gen_ai.invoke_agent.duration": (
        "s",
        "Duration of an engine's work.",
        AGENT_SECONDS,
    ),
    "gen_ai.execute_tool.duration": ("s", "Duration of a tool's work.", SECONDS),
}


class OpenTelemetryObserver:
    """Give each run a trace and count what happens: `Runtime(observers=[OpenTelemetryObserver()])`.

    A run is a span below the span that is current where it starts; engines, model calls and tools in it are spans
    below that. What a resumed run reads from its journal is not reported again.

    Args:
        tracer_provider: where spans go; `None` is the application's global one, without which nothing is done.
        meter_provider: where metrics go; `None` is the global one.
        content: whether task, prompts, arguments, results, answers and error texts are reported too, to spans only.
        max_runs: runs followed at once; the one without entries for longest is given up for another.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        content: bool = False,
        max_runs: int = MAX_RUNS,
    ) -> None:
        if max_runs < 1:
            raise ConfigError(f"max_runs must be at least 1, got {max_runs!r}")
        self._tracker = RunTracker(max_runs=max_runs, arguments=content)
        tracer = trace.get_tracer(SCOPE, __version__, tracer_provider)
        self._spans = Spans(tracer, content=content)
        self.observe_request = self._add_request if content else None
        """Adds what model calls are about to send to their spans; the runtime calls it."""
        self._measures = Measures(metrics.get_meter(SCOPE, __version__, meter_provider))

    @property
    def followed(self) -> int:
        """Return the number of runs that are followed now."""
        return len(self._tracker)

    def __call__(self, entry: Entry) -> None:
        """Report one new entry."""
        failures: list[Exception] = []
        for change in self._tracker.follow(entry):
            for report in (self._spans.report, self._measures.report):
                try:
                    report(change)
                except Exception as error:  # noqa: BLE001 - a third-party exporter that fails for one must not spoil the other
                    failures.append(error)
        if failures:
            raise failures[0]  # the run logs it and continues

    def _add_request(self, run_id: str, keys: Sequence[str], request: Request) -> None:
        found = (self._tracker.find(run_id, key) for key in keys)
        self._spans.add_request([one for one in found if one is not None], request)


@dataclasses.dataclass(frozen=True)
class OpenSpans:
    """The spans of an activity, outermost first; the context that its own code sees, and the one before."""

    spans: tuple[Span, ...]
    within: context.Context
    before: context.Context


class Spans:
    """Keep one span for each open activity, and a second one around a model call that plans."""

    def __init__(self, tracer: trace.Tracer, *, content: bool) -> None:
        self._tracer, self._content = tracer, content
        self._open: dict[Activity, OpenSpans] = {}

    def report(self, change: ActivityChange) -> None:
        """Begin or end a span, or add an event to it."""
        match change:
            case ActivityBegan():
                self._begin(change.activity)
            case ActivityEnded():
                self._end(change)
            case EntryNoted():
                self._note(change)

    def _begin(self, activity: Activity) -> None:
        before = context.get_current()
        within = self._context_of(activity.parent, before)
        spans: list[Span] = []
        if _is_plan(activity):
            agent = activity.agent
            attributes = activity_attributes(agent)
            attributes["gen_ai.operation.name"] = "plan"
            name = f"plan {agent.name}".strip()
            spans.append(self._start(name, within, attributes, activity))
            within = trace.set_span_in_context(spans[-1], within)
        name = f"{OPERATIONS[activity.kind]} {activity.name}".strip()
        kind = SpanKind.CLIENT if activity.kind == "model" else SpanKind.INTERNAL
        opening = self._read_opening(activity)
        spans.append(self._start(name, within, opening, activity, kind))
        within = trace.set_span_in_context(spans[-1], within)
        # Spans of a tool's own code belong below the tool's. A run begins in its caller's code, whose context it is.
        if activity.parent is not None:
            context.attach(within)
        self._open[activity] = OpenSpans(tuple(spans), within, before)

    def add_request(self, calls: Sequence[Activity], request: Request) -> None:
        """Add what model calls send to those of their spans that are recorded; the last request of a call counts."""
        opened = (self._open[call].spans[-1] for call in calls if call in self._open)
        spans = [span for span in opened if span.is_recording()]
        if spans:
            attributes = request_content(
                request
            )  # once for the replies to one question
            for span in spans:
                span.set_attributes(attributes)

    def _context_of(
        self, parent: Activity | None, before: context.Context
    ) -> context.Context:
        around = None if parent is None else self._open.get(parent)
        if around is None:
            return before
        return trace.set_span_in_context(around.spans[-1], before)

    def _start(
        self,
        name: str,
        around: context.Context,
        attributes: Attributes,
        activity: Activity,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        attributes = {**attributes, "gen_ai.conversation.id": activity.run_id}
        if activity.key:
            attributes["loopwright.key"] = activity.key
        began = _nanoseconds(activity.began)
        return self._tracer.start_span(name, around, kind, attributes, start_time=began)

    def _read_opening(self, activity: Activity) -> Attributes:
        found = activity_attributes(activity)
        intent = activity.intent
        if intent is not None:
            found |= event_attributes(intent, content=self._content)
        if isinstance(intent, ModelRequested):
            found |= sampling_attributes(intent)
        if activity.resumed:
            found["loopwright.resumed"] = True
        if self._content:
            found |= opening_content(activity)
        return found

    def _end(self, ended: ActivityEnded) -> None:
        opened = self._open.pop(ended.activity, None)
        if opened is None:  # its span could not be begun
            return
        # Another task may end the activity, whose context it never was.
        if context.get_current() is opened.within:
            context.attach(opened.before)
        for span in reversed(opened.spans):
            try:
                if span is opened.spans[-1]:
                    span.set_attributes(self._read_closing(ended))
                self._set_error(span, ended)
            finally:
                span.end(_nanoseconds(ended.at))

    def _set_error(self, span: Span, ended: ActivityEnded) -> None:
        if not ended.error:
            return
        text = ended.message if self._content and ended.message else None
        span.set_attribute("error.type", ended.error)
        span.set_status(Status(StatusCode.ERROR, text))

    def _read_closing(self, ended: ActivityEnded) -> Attributes:
        outcome, activity = ended.outcome, ended.activity
        if outcome is None:
            return {}
        found: Attributes = {}
        of_tool = isinstance(outcome, ToolFinished)
        if activity.kind != "agent" or not of_tool:  # else the span of its call has it
            found = event_attributes(outcome, content=self._content, tool=activity.name)
        match outcome:
            case ModelReplied(completion):
                found |= reply_attributes(completion)
            case RunFinished() if activity.parent is None:
                found |= usage_attributes(outcome.usage)
            case _:
                pass
        return {**found, **outcome_content(outcome)} if self._content else found

    def _note(self, noted: EntryNoted) -> None:
        opened, event = self._open.get(noted.activity), noted.entry.event
        if isinstance(event, ToolFinished) and event.status == "denied":
            return  # the decision of the gate says it
        found = event_attributes(event, content=self._content, tool=noted.tool)
        if opened is not None and found:
            found["loopwright.key"] = noted.entry.key
            name, at = f"loopwright.{noted.entry.kind}", noted.entry.at
            opened.spans[-1].add_event(name, found, _nanoseconds(at))


class Measures:
    """Count and measure what happens, by attributes of few values: no runs, no arguments, no names by a model."""

    def __init__(self, meter: metrics.Meter) -> None:
        declared = [event.counter for event in EVENT_TYPES.values() if event.counter]
        of_events = {one.name: (one.unit, one.description) for one in declared}
        self._counters = {
            name: meter.create_counter(name, unit, description)
            for name, (unit, description) in {**COUNTERS, **of_events}.items()
        }
        self._histograms = {
            name: meter.create_histogram(
                name, unit, about, explicit_bucket_boundaries_advisory=bounds
            )
            for name, (unit, about, bounds) in HISTOGRAMS.items()
        }

    def report(self, change: ActivityChange) -> None:
        """Count one change."""
        match change:
            case ActivityEnded():
                self._count_activity(change)
            case EntryNoted():
                self._count_event(change)
            case ActivityBegan():
                pass

    def _count_activity(self, ended: ActivityEnded) -> None:
        match ended.activity.kind:
            case "model":
                self._count_model_call(ended)
            case "tool":
                self._record("gen_ai.execute_tool.duration", ended)
                self._count_tool_call(ended.activity.name, _status(ended))
            case "agent":
                self._record("gen_ai.invoke_agent.duration", ended)
                if ended.activity.parent is None:
                    self._count_run(ended)
            case "effect":
                pass

    def _add(self, name: str, amount: float, attributes: Attributes) -> None:
        self._counters[name].add(amount, attributes)

    def _record(
        self, name: str, ended: ActivityEnded, attributes: Attributes | None = None
    ) -> None:
        if attributes is None:
            attributes = activity_attributes(ended.activity)
        self._histograms[name].record(ended.seconds, {**attributes, **_error(ended)})

    def _count_model_call(self, ended: ActivityEnded) -> None:
        attributes = activity_attributes(ended.activity)
        outcome, engine = ended.outcome, _engine(ended.activity)
        reply = outcome.completion if isinstance(outcome, ModelReplied) else None
        if reply is not None and reply.model:
            attributes["gen_ai.response.model"] = reply.model
        self._record("gen_ai.client.operation.duration", ended, attributes)
        calls = {**attributes, **engine, **_error(ended)}
        self._add("loopwright.model.calls", 1, calls)
        if reply is None:
            return
        self._record_tokens(reply, attributes)
        if reply.usage.cost:
            self._add("loopwright.cost", reply.usage.cost, {**attributes, **engine})

    def _record_tokens(self, reply: Completion, attributes: Attributes) -> None:
        usage = reply.usage
        if usage.estimated:  # an estimate is not a measurement
            return
        histogram = self._histograms["gen_ai.client.token.usage"]
        tokens = {"input": usage.input_tokens, "output": usage.output_tokens}
        for kind, number in tokens.items():
            if number is not None:
                histogram.record(number, {**attributes, "gen_ai.token.type": kind})

    def _count_tool_call(self, tool: str, status: str) -> None:
        attributes: Attributes = {
            "gen_ai.tool.name": tool,
            "loopwright.tool.status": status,
        }
        self._add("loopwright.tool.calls", 1, attributes)

    def _count_run(self, ended: ActivityEnded) -> None:
        ending = dict(LOST)
        if ended.outcome is not None:
            ending = metric_attributes(ended.outcome, tool="")
        self._add("loopwright.runs", 1, {**_engine(ended.activity), **ending})

    def _count_event(self, noted: EntryNoted) -> None:
        event = noted.entry.event
        if isinstance(event, AttemptFailed):
            attributes = activity_attributes(noted.activity)
            self._add("loopwright.model.retries", 1, attributes)
        elif isinstance(event, ToolFinished):
            self._count_tool_call(noted.tool, event.status)
        elif event.counter is not None:
            found = metric_attributes(event, noted.tool)
            if event.counter.by_engine:
                found |= _engine(noted.activity)
            self._add(event.counter.name, 1, found)


def _is_plan(activity: Activity) -> bool:
    intent = activity.intent
    return isinstance(intent, ModelRequested) and intent.purpose == "plan"


def _status(ended: ActivityEnded) -> str:
    """Return the status of a tool call; an interrupted one has no outcome."""
    outcome = ended.outcome
    return outcome.status if isinstance(outcome, ToolFinished) else "cancelled"


def _error(ended: ActivityEnded) -> Attributes:
    return {"error.type": ended.error} if ended.error else {}


def _engine(activity: Activity) -> Attributes:
    return {"gen_ai.agent.name": activity.agent.name or OTHER}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)
