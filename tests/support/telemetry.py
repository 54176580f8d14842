"""An application's OpenTelemetry set-up that keeps what it is told, and how a test reads it."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from loopwright.observers import OpenTelemetryObserver


class Telemetry:
    """Everything that an observer told: spans by their end, and metrics."""

    def __init__(self, **options: Any) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        given = {
            "tracer_provider": self.tracers,
            "meter_provider": self._meters,
            **options,
        }
        self.observer = OpenTelemetryObserver(**given)

    @property
    def open(self) -> int:
        """How many activities the observer still has spans for."""
        return len(self.observer._spans._open)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that ended, in the order of their beginnings."""
        return sorted(
            self._exporter.get_finished_spans(),
            key=lambda span: (span.start_time or 0, place(span)),
        )

    def span(self, name: str) -> ReadableSpan:
        """The one span of that name."""
        [found] = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> list[str]:
        """The spans as lines, children indented below their parents, with the error that they ended with."""
        known = {span.context.span_id for span in self.spans if span.context}
        tops = [
            span
            for span in self.spans
            if span.parent is None or span.parent.span_id not in known
        ]
        return [line for top in tops for line in self._lines(top, "")]

    def _lines(self, span: ReadableSpan, indent: str) -> list[str]:
        error = (span.attributes or {}).get("error.type")
        here = f"{indent}{span.name}" + (f" !{error}" if error else "")
        below = [
            child
            for child in self.spans
            if child.parent and child.parent.span_id == span.context.span_id
        ]
        return [
            here,
            *(line for child in below for line in self._lines(child, f"{indent}  ")),
        ]

    def measured(self) -> dict[str, dict[tuple[tuple[str, Any], ...], Any]]:
        """Each metric's points by their attributes: a counter's value, a histogram's (count, sum)."""
        data = self._reader.get_metrics_data()
        found: dict[str, dict[tuple[tuple[str, Any], ...], Any]] = {}
        for metric in (
            m
            for r in (data.resource_metrics if data else ())
            for s in r.scope_metrics
            for m in s.metrics
        ):
            points = found.setdefault(metric.name, {})
            for point in metric.data.data_points:
                value = (
                    point.value if hasattr(point, "value") else (point.count, point.sum)
                )
                points[tuple(sorted(point.attributes.items()))] = value
        return found

    def count(self, name: str, *attributes: str) -> dict[Any, float]:
        """A counter by the values of some of its attributes."""
        totals: Counter[Any] = Counter()
        for labels, value in self.measured().get(name, {}).items():
            values = tuple(dict(labels).get(attribute) for attribute in attributes)
            totals[values if len(values) != 1 else values[0]] += value
        return dict(totals)


def place(span: ReadableSpan) -> str:
    """A span's place in the program of its run."""
    return str((span.attributes or {}).get("loopwright.key", ""))


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes."""
    return dict(span.attributes or {})


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    """A span's events by name."""
    return [(event.name, dict(event.attributes or {})) for event in span.events]


def everything_said(spans: Iterable[ReadableSpan]) -> str:
    """All that spans hold, as one text to search."""
    return "\n".join(span.to_json() for span in spans)
