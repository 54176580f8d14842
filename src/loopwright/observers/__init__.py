"""Observers: what happens in runs, told to an application's own log, traces and metrics."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazily

if TYPE_CHECKING:
    from .opentelemetry import OpenTelemetryObserver as OpenTelemetryObserver
    from .structlog import StructlogObserver as StructlogObserver

__all__ = [
    "OpenTelemetryObserver",
    "StructlogObserver",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {"OpenTelemetryObserver": ".opentelemetry", "StructlogObserver": ".structlog"},
    )
