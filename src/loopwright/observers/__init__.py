"""Observers: the events of runs in an application's own log, traces and metrics."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .opentelemetry import OpenTelemetryObserver as OpenTelemetryObserver
    from .structlog import StructlogObserver as StructlogObserver

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".opentelemetry": ("OpenTelemetryObserver",),
            ".structlog": ("StructlogObserver",),
        },
    )
