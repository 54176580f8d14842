"""Read what an engine returned or raised: text without secrets, and errors of the library."""

import asyncio

from ..._internal.log import logger
from ...errors import (
    EngineError,
    Fenced,
    LoopwrightError,
    ReplayDivergence,
    format_error,
)
from ...security.redaction.errors import format_traceback, redact_error
from .cycle import Cycle


def clean_answer(cycle: Cycle, answer: object) -> str:
    """Return an answer as valid text without secrets."""
    if not isinstance(answer, str):
        raise EngineError(
            f"{cycle.engine_name}.solve returned {type(answer).__name__}, not a text"
        )
    valid = answer.encode("utf-8", "replace").decode()  # without lone surrogates
    return cycle.services.redactor.redact_text(valid)


def wrap_error(
    cycle: Cycle, raised: Exception | asyncio.CancelledError
) -> LoopwrightError:
    """Return what an engine raised as an error of the library, redacted.

    Divergence, fencing and the cancellation of the run are raised again.
    """
    session = cycle.session
    redactor = session.secrets.redactor
    raised = session.signals.cuts.read_own_error(cycle.scope.path, raised)
    if isinstance(raised, (Fenced, ReplayDivergence)):
        raise raised
    if isinstance(raised, LoopwrightError):
        return redact_error(redactor, raised)
    trace = format_traceback(redactor, raised)
    logger().warning("engine_failed", engine=cycle.engine_name, traceback=trace)
    error = EngineError(
        f"{cycle.engine_name} raised {type(raised).__name__}: {format_error(raised)}"
    )
    error.__cause__ = raised
    return redact_error(redactor, error)
