"""Traces and metrics of runs, told to OpenTelemetry by its conventions for generative AI."""

import dataclasses
from collections.abc import Sequence

from .._internal.version import __version__
from ..errors import ConfigError
from ..events.control import CommandReceived, Declassified, RunContinued
from ..events.effects import (
    AttemptFailed,
    BreakerChanged,
    CallDeadLettered,
    DriftNoticed,
    GateDecided,
    LimitHit,
    ModelReplied,
    ModelRequested,
    RecoveryTriggered,
    ToolFinished,
    ToolStarted,
    UndoBegun,
    UndoFinished,
    UnknownOutcomeResolved,
)
from ..events.entry import Entry, Event
from ..events.run import RunFinished, RunSuspended
from .semconv import (
    Attributes,
    agent_attributes,
    change_attributes,
    ending_attributes,
    model_attributes,
    opening_content,
    operation,
    outcome_content,
    recovery_attributes,
    recovery_labels,
    reply_attributes,
    request_attributes,
    tool_attributes,
    usage_attributes,
)
from .span_tracker import (
    MAX_RUNS,
    OTHER,
    Activity,
    Began,
    Ended,
    Following,
    Noted,
    Step,
)

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ImportError as error:
    raise ConfigError(
        "OpenTelemetryObserver needs opentelemetry-api: pip install 'loopwright[otel]'"
    ) from error

SCOPE = "loopwright"
SECONDS = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
AGENT_SECONDS = (
    0.1,
    0.2,
    0.4,
    0.8,
    1.6,
    3.2,
    6.4,
    12.8,
    25.6,
    51.2,
    102.4,
    204.8,
    409.6,
    819.2,
)
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
        "Tool calls by what came of them, whether a tool ran or not.",
    ),
    "loopwright.tool.recoveries": (
        "{recovery}",
        "What was done about failed tool calls, by strategy.",
    ),
    "loopwright.tool.doubts": (
        "{call}",
        "Calls in doubt or failed of which a look-up or a person told what came.",
    ),
    "loopwright.tool.dead_letters": ("{call}", "Failed calls that were set aside."),
    "loopwright.tool.undos": (
        "{call}",
        "Calls of sagas that were to be undone, by what came of that.",
    ),
    "loopwright.gate.decisions": ("{decision}", "Decisions about calls, by verdict."),
    "loopwright.breaker.changes": ("{change}", "Changes of circuit breakers."),
    "loopwright.limits": ("{refusal}", "Refusals at a limit of a run."),
    "loopwright.cost": ("1", "What model calls cost, in the currency of the prices."),
}
RECOVERIES: dict[type, str] = {
    RecoveryTriggered: "loopwright.tool.recoveries",
    UnknownOutcomeResolved: "loopwright.tool.doubts",
    CallDeadLettered: "loopwright.tool.dead_letters",
    UndoFinished: "loopwright.tool.undos",
}
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
    """Gives each run a trace and counts what happens: `Runtime(observers=[OpenTelemetryObserver()])`.

    A run is a span below the span that is current where it starts; engines, model calls and tools in it are spans
    below that. What a resumed run has from its journal is not told again.

    Args:
        tracer_provider: where spans go; `None` is the application's global one, without which nothing is done.
        meter_provider: where metrics go; `None` is the global one.
        content: whether task, arguments, results, answers and error texts are told too, to spans only.
        max_runs: followed at once; the one that was silent for longest is given up for another.
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
        self._following = Following(max_runs=max_runs, arguments=content)
        self._spans = Spans(
            trace.get_tracer(SCOPE, __version__, tracer_provider), content=content
        )
        self._measures = Measures(metrics.get_meter(SCOPE, __version__, meter_provider))

    @property
    def followed(self) -> int:
        """How many runs are followed just now."""
        return len(self._following)

    def __call__(self, entry: Entry) -> None:
        """Tell of one new entry."""
        failures: list[Exception] = []
        for step in self._following.follow(entry):
            for tell in (self._spans.tell, self._measures.tell):
                try:
                    tell(step)
                except Exception as error:  # noqa: BLE001 - a foreign exporter that fails for one must not spoil the other
                    failures.append(error)
        if failures:
            raise failures[0]  # the run logs it and goes on


@dataclasses.dataclass(frozen=True)
class UnderWay:
    """The spans of an activity, outermost first; the context that its own code sees, and the one before."""

    spans: tuple[Span, ...]
    within: context.Context
    before: context.Context


class Spans:
    """Keeps one span for each activity that is under way, and a second one around a model call that plans."""

    def __init__(self, tracer: trace.Tracer, *, content: bool) -> None:
        self._tracer, self._content = tracer, content
        self._under_way: dict[Activity, UnderWay] = {}

    def tell(self, step: Step) -> None:
        """Begin or end a span, or give it an event."""
        match step:
            case Began():
                self._begin(step.activity)
            case Ended():
                self._end(step)
            case Noted():
                self._note(step)

    def _begin(self, activity: Activity) -> None:
        before = context.get_current()
        parent = (
            None if activity.parent is None else self._under_way.get(activity.parent)
        )
        within = (
            before
            if parent is None
            else trace.set_span_in_context(parent.spans[-1], before)
        )
        spans: tuple[Span, ...] = ()
        if (
            isinstance(activity.intent, ModelRequested)
            and activity.intent.purpose == "plan"
        ):
            planning = activity.agent
            named: Attributes = {
                **agent_attributes(planning),
                "gen_ai.operation.name": "plan",
            }
            spans = (
                self._start(
                    f"plan {planning.name}".strip(),
                    within,
                    SpanKind.INTERNAL,
                    named,
                    activity,
                ),
            )
            within = trace.set_span_in_context(spans[0], within)
        name = f"{operation(activity)} {activity.name}".strip()
        kind = SpanKind.CLIENT if activity.kind == "model" else SpanKind.INTERNAL
        spans = (
            *spans,
            self._start(name, within, kind, self._opening(activity), activity),
        )
        within = trace.set_span_in_context(spans[-1], within)
        # Spans of a tool's own code belong below the tool's. A run begins in its caller's code, whose context it is.
        if activity.parent is not None:
            context.attach(within)
        self._under_way[activity] = UnderWay(spans, within, before)

    def _start(
        self,
        name: str,
        around: context.Context,
        kind: SpanKind,
        attributes: Attributes,
        activity: Activity,
    ) -> Span:
        of_run: Attributes = {"gen_ai.conversation.id": activity.run_id}
        if activity.key:
            of_run["loopwright.key"] = activity.key
        return self._tracer.start_span(
            name, around, kind, {**attributes, **of_run}, start_time=_ns(activity.began)
        )

    def _opening(self, activity: Activity) -> Attributes:
        found: Attributes = {}
        match activity.kind:
            case "model":
                found |= model_attributes(activity)
            case "tool":
                found |= tool_attributes(activity)
            case "agent":
                found |= agent_attributes(activity)
            case "effect":
                found["loopwright.effect.name"] = activity.name
        if isinstance(activity.intent, ModelRequested):
            found |= request_attributes(activity.intent)
        if isinstance(activity.intent, ToolStarted) and activity.kind == "tool":
            found |= {
                "gen_ai.tool.call.id": activity.intent.call_id,
                "loopwright.tool.effect": activity.intent.effect,
            }
        if activity.resumed:
            found["loopwright.resumed"] = True
        return {**found, **opening_content(activity)} if self._content else found

    def _end(self, ended: Ended) -> None:
        under_way = self._under_way.pop(ended.activity, None)
        if under_way is None:  # its span could not be begun
            return
        if (
            context.get_current() is under_way.within
        ):  # else another task ends it, whose context it never was
            context.attach(under_way.before)
        for span in reversed(under_way.spans):
            try:
                self._finish(span, ended, of_activity=span is under_way.spans[-1])
            finally:
                span.end(_ns(ended.at))

    def _finish(self, span: Span, ended: Ended, *, of_activity: bool) -> None:
        if of_activity:
            span.set_attributes(self._closing(ended))
        if ended.error:
            span.set_attribute("error.type", ended.error)
            span.set_status(
                Status(
                    StatusCode.ERROR,
                    ended.message if self._content and ended.message else None,
                )
            )

    def _closing(self, ended: Ended) -> Attributes:
        found = ending_attributes(ended.outcome)
        match ended.outcome:
            case ModelReplied() as reply:
                found |= reply_attributes(reply.completion)
            case RunFinished() as finished:
                found |= usage_attributes(finished.usage)
            case RunSuspended() as suspended:
                found |= {
                    "loopwright.status": "suspended",
                    "loopwright.stop_reason": suspended.reason,
                }
            case ToolFinished() as done if ended.activity.kind == "tool":
                found["loopwright.tool.status"] = done.status
            case _:
                pass
        return {**found, **outcome_content(ended.outcome)} if self._content else found

    def _note(self, noted: Noted) -> None:
        under_way = self._under_way.get(noted.activity)
        attributes = _told(noted.entry.event, noted.tool, content=self._content)
        if under_way is not None and attributes:
            name = f"loopwright.{noted.entry.kind}"
            under_way.spans[-1].add_event(
                name,
                {**attributes, "loopwright.key": noted.entry.key},
                _ns(noted.entry.at),
            )


def _told(event: Event, tool: str, *, content: bool) -> Attributes:
    """What an event of a span says of a fact; nothing if it is no news."""
    match event:
        case GateDecided():
            found: Attributes = {
                "gen_ai.tool.name": event.tool if content else tool,
                "gen_ai.tool.call.id": event.call_id,
                "loopwright.verdict": event.verdict,
                "loopwright.policy_version": event.policy_version,
            }
            return (
                {**found, "loopwright.reason": event.reason}
                if content and event.reason
                else found
            )
        case AttemptFailed():
            status = event.error.details.get("status")
            found = {
                "error.type": str(status) if status else event.error.type,
                "loopwright.attempt": event.attempt,
                "loopwright.delay": event.delay,
            }
            return (
                {**found, "exception.message": event.error.message}
                if content
                else found
            )
        case ToolFinished() if event.status != "denied":  # the verdict said so
            return {
                "gen_ai.tool.name": event.tool if content else tool,
                "gen_ai.tool.call.id": event.call_id,
                "loopwright.tool.status": event.status,
            }
        case (
            RecoveryTriggered()
            | UnknownOutcomeResolved()
            | CallDeadLettered()
            | UndoBegun()
            | UndoFinished()
        ):
            return recovery_attributes(event, content=content)
        case LimitHit():
            return {"loopwright.limit": event.limit}
        case CommandReceived() | RunContinued() | Declassified() | BreakerChanged():
            return change_attributes(event)
        case DriftNoticed():
            return {"loopwright.drift": event.what}
        case _:
            return {}


class Measures:
    """Counts and measures what happens, by attributes of few values: no runs, no arguments, no names by a model."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._counters = {
            name: meter.create_counter(name, unit, about)
            for name, (unit, about) in COUNTERS.items()
        }
        self._histograms = {
            name: meter.create_histogram(
                name, unit, about, explicit_bucket_boundaries_advisory=bounds
            )
            for name, (unit, about, bounds) in HISTOGRAMS.items()
        }

    def tell(self, step: Step) -> None:
        """Count one step."""
        match step:
            case Ended():
                self._ended(step)
            case Noted():
                self._noted(step)
            case Began():
                pass

    def _add(self, name: str, amount: float, attributes: Attributes) -> None:
        self._counters[name].add(amount, attributes)

    def _took(self, name: str, ended: Ended, attributes: Attributes) -> None:
        error: Attributes = {"error.type": ended.error} if ended.error else {}
        self._histograms[name].record(ended.seconds, {**attributes, **error})

    def _ended(self, ended: Ended) -> None:
        match ended.activity.kind:
            case "model":
                self._model(ended)
            case "tool":
                self._tool(ended)
            case "agent":
                self._agent(ended)
            case "effect":
                pass

    def _model(self, ended: Ended) -> None:
        attributes = model_attributes(ended.activity)
        reply = (
            ended.outcome.completion
            if isinstance(ended.outcome, ModelReplied)
            else None
        )
        if reply is not None and reply.model:
            attributes["gen_ai.response.model"] = reply.model
        self._took("gen_ai.client.operation.duration", ended, attributes)
        error: Attributes = {"error.type": ended.error} if ended.error else {}
        self._add(
            "loopwright.model.calls",
            1,
            {**attributes, **_engine(ended.activity), **error},
        )
        if reply is None:
            return
        if not reply.usage.estimated:  # a guess is no measurement
            for kind, tokens in (
                ("input", reply.usage.input_tokens),
                ("output", reply.usage.output_tokens),
            ):
                if tokens is not None:
                    told: Attributes = {**attributes, "gen_ai.token.type": kind}
                    self._histograms["gen_ai.client.token.usage"].record(tokens, told)
        if reply.usage.cost:
            self._add(
                "loopwright.cost",
                reply.usage.cost,
                {**attributes, **_engine(ended.activity)},
            )

    def _tool(self, ended: Ended) -> None:
        self._took(
            "gen_ai.execute_tool.duration", ended, tool_attributes(ended.activity)
        )
        status = (
            ended.outcome.status
            if isinstance(ended.outcome, ToolFinished)
            else "cancelled"
        )
        self._count_tool(ended.activity.name, status)

    def _count_tool(self, tool: str, status: str) -> None:
        self._add(
            "loopwright.tool.calls",
            1,
            {"gen_ai.tool.name": tool, "loopwright.tool.status": status},
        )

    def _agent(self, ended: Ended) -> None:
        self._took(
            "gen_ai.invoke_agent.duration", ended, agent_attributes(ended.activity)
        )
        if ended.activity.parent is not None:
            return
        match ended.outcome:
            case RunFinished() as finished:
                how: Attributes = {
                    "loopwright.status": finished.status,
                    "loopwright.stop_reason": finished.stop_reason,
                }
            case RunSuspended() as suspended:
                how = {
                    "loopwright.status": "suspended",
                    "loopwright.stop_reason": suspended.reason,
                }
            case _:
                how = {"loopwright.status": "lost", "loopwright.stop_reason": "lost"}
        self._add("loopwright.runs", 1, {**_engine(ended.activity), **how})

    def _noted(self, noted: Noted) -> None:
        match noted.entry.event:
            case GateDecided() as decided:
                told: Attributes = {
                    "gen_ai.tool.name": noted.tool,
                    "loopwright.verdict": decided.verdict,
                }
                self._add("loopwright.gate.decisions", 1, told)
            case AttemptFailed():
                self._add(
                    "loopwright.model.retries", 1, model_attributes(noted.activity)
                )
            case ToolFinished() as done:
                self._count_tool(noted.tool, done.status)
            case (
                RecoveryTriggered()
                | UnknownOutcomeResolved()
                | CallDeadLettered()
                | UndoFinished() as fact
            ):
                self._add(RECOVERIES[type(fact)], 1, recovery_labels(fact))
            case LimitHit() as hit:
                self._add(
                    "loopwright.limits",
                    1,
                    {"loopwright.limit": hit.limit, **_engine(noted.activity)},
                )
            case BreakerChanged() as changed:
                name: Attributes = {
                    "loopwright.breaker.name": changed.name,
                    "loopwright.breaker.after": changed.after,
                }
                self._add("loopwright.breaker.changes", 1, name)
            case _:
                pass


def _engine(activity: Activity) -> Attributes:
    return {"gen_ai.agent.name": activity.agent.name or OTHER}


def _ns(seconds: float) -> int:
    return round(seconds * 1_000_000_000)
