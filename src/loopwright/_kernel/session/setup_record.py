"""What of a run's services its first entry names, and what of that differs when the run is resumed."""

from typing import Any, cast

from ..._internal.digest import format_names, shorten_names
from ...events.agents import InstructionsSet
from ...events.effects import DriftNoticed
from ...knowledge.bridge import name_store
from ...limits import ProgressRules
from ...messages import Json
from ...prompts import identify_text
from ...providers.context.choice import name_other_policy
from .services import Services
from .session import Session


def record_setup(services: Services) -> dict[str, Json]:
    """Return the names of the services of a run, as far as it has any beside the defaults."""
    found: dict[str, Json] = {
        "tools": cast("Json", shorten_names([tool.name for tool in services.tools])),
        "context": name_other_policy(services.context),
        "knowledge": name_store(services.knowledge),
        "hooks": [hook.identity for hook in services.hooks],
        "instructions": identify_text(
            services.instructions, services.redactor.redact_text
        ),
    }
    return {name: value for name, value in found.items() if value}


def record_progress(services: Services) -> dict[str, Any]:
    """Return what differs from the usual rules about loops; models read what follows from them, so they are kept."""
    usual = vars(ProgressRules())
    given = vars(services.progress)
    return {name: value for name, value in given.items() if value != usual.get(name)}


def note_setup_drift(session: Session) -> None:
    """Record what of the services is another one today than when the run began; early journals do not say."""
    started = session.replay.started
    if started is None or not started.setup:
        return
    today = record_setup(session.services)
    for name in sorted({*started.setup, *today}):
        before, after = started.setup.get(name), today.get(name)
        if before != after and not _is_compared_later(session, name):
            drift = DriftNoticed(name, format_names(before), format_names(after))
            session.writer.record_after_replay("", drift)


def _is_compared_later(session: Session, name: str) -> bool:
    """Whether the words of instructions are compared, which says more than that their hash differs."""
    is_text = isinstance(session.services.instructions, str)
    recorded = session.replay.effects.side("instructions:.0")
    return name == "instructions" and is_text and isinstance(recorded, InstructionsSet)
